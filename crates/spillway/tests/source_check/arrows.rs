//! Which file names what another file defines.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::module_tree::{ModuleId, ModuleTree, Target, attributes, is_re_export, is_shipped, leaves};

/// One file naming an item that another defines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrow {
    pub from: PathBuf,
    pub to: PathBuf,
    /// Where `from` names the item first.
    pub line: usize,
    /// What it says there.
    pub path: String,
}

/// A path that a module says.
struct Mention {
    path: Vec<String>,
    line: usize,
}

/// The arrows among the files of a crate: one for each file and each item of another's that it names.
pub fn arrows(tree: &mut ModuleTree) -> Vec<Arrow> {
    let mut found: BTreeMap<(PathBuf, PathBuf, String), (usize, String)> = BTreeMap::new();
    for module in 0..tree.modules.len() {
        for Mention { path, line } in mentions(tree, module) {
            for target in tree.resolve(module, &path) {
                let from = &tree.modules[module].file;
                if let Target::Item { file, name } = target
                    && file != *from
                {
                    let said = (line, path.join("::"));
                    let first = found.entry((from.clone(), file, name)).or_insert_with(|| said.clone());
                    if said.0 < first.0 {
                        *first = said;
                    }
                }
            }
        }
    }
    let mut arrows: Vec<_> =
        found.into_iter().map(|((from, to, _), (line, path))| Arrow { from, to, line, path }).collect();
    arrows.sort();
    arrows
}

/// Which of `crates` a crate's sources name, each with the place that does so first.
pub fn crates_named(tree: &mut ModuleTree, crates: &[String]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for module in 0..tree.modules.len() {
        for Mention { path, line } in mentions(tree, module) {
            // A name alone is a variable's.
            let name = path.first().filter(|_| path.len() > 1).map(|name| name.replace('_', "-"));
            if let Some(name) = name.filter(|name| crates.contains(name)) {
                let place = format!("{}:{line}", tree.modules[module].file.display());
                found.entry(name).or_insert(place);
            }
        }
    }
    found
}

/// All paths that a module says, without what only tests compile.
/// What functions import is made known to the tree.
fn mentions(tree: &mut ModuleTree, module: ModuleId) -> Vec<Mention> {
    let mut reader = Reader::default();
    let items = std::mem::take(&mut tree.modules[module].items);
    items.iter().for_each(|item| reader.visit_item(item));
    for local in &reader.local_imports {
        tree.import(module, local);
    }
    tree.modules[module].items = items;
    reader.mentions
}

#[derive(Default)]
struct Reader {
    mentions: Vec<Mention>,
    local_imports: Vec<syn::ItemUse>,
    /// How many functions and the like are open.
    depth: usize,
}

impl Reader {
    fn mention(&mut self, path: Vec<String>, line: usize) {
        self.mentions.push(Mention { path, line });
    }

    /// Finds paths in what only a macro understands: names joined by `::`, types, and what is called.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let sign = |at: usize| match tokens.get(at) {
            Some(TokenTree::Punct(punct)) => Some(punct.as_char()),
            _ => None,
        };
        let is = |at: usize, expected: char| sign(at) == Some(expected);
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Group(group) => self.read_tokens(group.stream()),
                TokenTree::Ident(ident) => {
                    let is_member = at > 0 && is(at - 1, '.') && !(at > 1 && is(at - 2, '.'));
                    let mut path = vec![ident.to_string()];
                    while is(at + 1, ':')
                        && is(at + 2, ':')
                        && let Some(TokenTree::Ident(next)) = tokens.get(at + 3)
                    {
                        path.push(next.to_string());
                        at += 3;
                    }
                    let is_type = ident.to_string().starts_with(|first: char| first.is_ascii_uppercase());
                    let is_called =
                        is(at + 1, '!') || matches!(tokens.get(at + 1), Some(TokenTree::Group(_)));
                    if !is_member && (path.len() > 1 || is_type || is_called) {
                        self.mention(path, ident.span().start().line);
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// Finds paths in an attribute, those in strings included, as in `#[serde(with = "...")]`.
    fn read_attribute(&mut self, tokens: TokenStream) {
        for token in tokens.clone() {
            match token {
                TokenTree::Group(group) => self.read_attribute(group.stream()),
                TokenTree::Literal(literal) => {
                    let path = syn::parse_str::<syn::LitStr>(&literal.to_string())
                        .and_then(|text| syn::parse_str::<syn::Path>(&text.value()));
                    if let Ok(path) = path {
                        self.mention(segments(&path), literal.span().start().line);
                    }
                }
                _ => {}
            }
        }
    }
}

fn segments(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        // A module is read by itself.
        if is_shipped(attributes(item)) && !matches!(item, syn::Item::Mod(_)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes = match item {
            syn::ImplItem::Const(item) => &item.attrs,
            syn::ImplItem::Fn(item) => &item.attrs,
            syn::ImplItem::Type(item) => &item.attrs,
            syn::ImplItem::Macro(item) => &item.attrs,
            _ => return,
        };
        if is_shipped(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if is_shipped(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        if is_shipped(&variant.attrs) {
            visit::visit_variant(self, variant);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if is_shipped(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_expr_block(&mut self, block: &'ast syn::ExprBlock) {
        if is_shipped(&block.attrs) {
            visit::visit_expr_block(self, block);
        }
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        self.depth += 1;
        visit::visit_block(self, block);
        self.depth -= 1;
    }

    fn visit_item_use(&mut self, used: &'ast syn::ItemUse) {
        if self.depth > 0 {
            self.local_imports.push(used.clone());
        }
        // What is only handed on makes no arrow.
        if !is_re_export(used) {
            for leaf in leaves(&used.tree).into_iter().filter(|leaf| leaf.name.is_some()) {
                self.mention(leaf.path, leaf.line);
            }
        }
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let Some(first) = path.segments.first() {
            self.mention(segments(path), first.ident.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta
            && !list.path.is_ident("cfg")
        {
            self.read_attribute(list.tokens.clone());
            self.read_tokens(list.tokens.clone());
        }
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.visit_path(&called.path);
        self.read_tokens(called.tokens.clone());
    }
}

/// The files that take part in an arrow.
pub fn files(arrows: &[Arrow]) -> BTreeSet<&PathBuf> {
    arrows.iter().flat_map(|arrow| [&arrow.from, &arrow.to]).collect()
}
