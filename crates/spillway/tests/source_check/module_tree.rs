//! A crate's modules with the names that each declares, and where a path leads among them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use syn::{Attribute, Item, Meta, UseTree, Visibility};

/// Index of a module in [`ModuleTree::modules`].
pub type ModuleId = usize;

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Module(ModuleId),
    /// Anything else.
    Item {
        /// The file that defines it.
        file: PathBuf,
        name: String,
    },
}

/// What a name stands for in the module that declares it.
enum Binding {
    Module(ModuleId),
    Item,
    Import(Vec<String>),
}

/// One module, in a file of its own or within another's.
pub struct Module {
    /// Relative to where the sources were read.
    pub file: PathBuf,
    /// What it holds, without what only tests compile.
    pub items: Vec<Item>,
    parent: Option<ModuleId>,
    names: HashMap<String, Vec<Binding>>,
    globs: Vec<Vec<String>>,
}

/// All modules below a crate's root file, its root first.
pub struct ModuleTree {
    pub modules: Vec<Module>,
}

/// One name that a `use` declaration brings in: its path, and what it is called here; `None` for `*`.
pub struct Leaf {
    pub path: Vec<String>,
    pub name: Option<String>,
    pub line: usize,
}

/// Whether an item is compiled where no test is: false for `#[cfg(test)]`, `#[test]` and what implies them.
pub fn is_shipped(attributes: &[Attribute]) -> bool {
    attributes.iter().all(|attribute| {
        let path = attribute.path();
        let refuted = path.is_ident("cfg")
            && attribute
                .parse_args::<Meta>()
                .is_ok_and(|condition| holds_without_test(&condition) == Some(false));
        !path.is_ident("test") && !refuted
    })
}

/// What a `cfg` condition comes to where `test` is not set, as far as that decides it.
fn holds_without_test(condition: &Meta) -> Option<bool> {
    let parts = |list: &syn::MetaList| {
        let parser = syn::punctuated::Punctuated::<Meta, syn::Token![,]>::parse_terminated;
        let parts = list.parse_args_with(parser).unwrap_or_default();
        parts.iter().map(holds_without_test).collect::<Vec<_>>()
    };
    match condition {
        Meta::Path(path) if path.is_ident("test") => Some(false),
        Meta::List(list) if list.path.is_ident("not") => {
            parts(list).first().copied().flatten().map(|held| !held)
        }
        Meta::List(list) if list.path.is_ident("all") => parts(list).contains(&Some(false)).then_some(false),
        Meta::List(list) if list.path.is_ident("any") => {
            parts(list).iter().all(|part| *part == Some(false)).then_some(false)
        }
        _ => None,
    }
}

/// The names that a `use` declaration brings in.
pub fn leaves(tree: &UseTree) -> Vec<Leaf> {
    let mut found = Vec::new();
    collect_leaves(tree, &mut Vec::new(), &mut found);
    found
}

fn collect_leaves(tree: &UseTree, prefix: &mut Vec<String>, found: &mut Vec<Leaf>) {
    let mut leaf = |ident: &syn::Ident, name: Option<String>| {
        let mut path = prefix.clone();
        if ident != "self" || path.is_empty() {
            path.push(ident.to_string());
        }
        let name = name.or_else(|| path.last().cloned());
        found.push(Leaf { path, name, line: ident.span().start().line });
    };
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            collect_leaves(&path.tree, prefix, found);
            prefix.pop();
        }
        UseTree::Name(name) => leaf(&name.ident, None),
        UseTree::Rename(rename) => leaf(&rename.ident, Some(rename.rename.to_string())),
        UseTree::Glob(glob) => {
            let line = glob.star_token.spans[0].start().line;
            found.push(Leaf { path: prefix.clone(), name: None, line });
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| collect_leaves(tree, prefix, found)),
    }
}

impl ModuleTree {
    /// Reads a crate's modules from its root file on; `read` gives the text of a file, if there is one.
    pub fn read(root: &Path, read: &dyn Fn(&Path) -> Option<String>) -> Self {
        let mut tree = Self { modules: Vec::new() };
        let directory = root.parent().unwrap_or(Path::new(""));
        tree.add_file(None, root, directory, read);
        tree
    }

    /// Reads the modules of a crate on disk, with paths relative to its directory.
    pub fn of_crate(directory: &Path) -> Vec<Self> {
        let read = |path: &Path| std::fs::read_to_string(directory.join(path)).ok();
        let roots = ["src/lib.rs", "src/main.rs"].map(Path::new);
        roots
            .into_iter()
            .filter(|root| directory.join(root).exists())
            .map(|root| Self::read(root, &read))
            .collect()
    }

    fn add_file(
        &mut self,
        parent: Option<ModuleId>,
        file: &Path,
        directory: &Path,
        read: &dyn Fn(&Path) -> Option<String>,
    ) -> ModuleId {
        let text = read(file).unwrap_or_else(|| panic!("no file {}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| {
            let start = error.span().start();
            panic!("{}:{}:{}: {error}", file.display(), start.line, start.column)
        });
        self.add_module(parent, file, directory, parsed.items, read)
    }

    /// Adds a module that lies in `file` and whose own modules lie in `directory`.
    fn add_module(
        &mut self,
        parent: Option<ModuleId>,
        file: &Path,
        directory: &Path,
        items: Vec<Item>,
        read: &dyn Fn(&Path) -> Option<String>,
    ) -> ModuleId {
        let id = self.modules.len();
        let items: Vec<_> = items.into_iter().filter(|item| is_shipped(attributes(item))).collect();
        self.modules.push(Module {
            file: file.to_owned(),
            items: Vec::new(),
            parent,
            names: HashMap::new(),
            globs: Vec::new(),
        });
        for item in &items {
            match item {
                Item::Mod(module) => {
                    let child = self.add_child(id, module, file, directory, read);
                    self.declare(id, &module.ident.to_string(), Binding::Module(child));
                }
                Item::Use(used) => self.import(id, used),
                Item::Macro(made) => {
                    let exported =
                        made.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export"));
                    if let Some(name) = &made.ident {
                        self.declare(id, &name.to_string(), Binding::Item);
                        if exported {
                            let path = self.path_of(id).into_iter().chain([name.to_string()]).collect();
                            self.declare(0, &name.to_string(), Binding::Import(path));
                        }
                    }
                }
                other => {
                    if let Some(name) = declared(other) {
                        self.declare(id, &name, Binding::Item);
                    }
                }
            }
        }
        self.modules[id].items = items;
        id
    }

    fn add_child(
        &mut self,
        parent: ModuleId,
        module: &syn::ItemMod,
        file: &Path,
        directory: &Path,
        read: &dyn Fn(&Path) -> Option<String>,
    ) -> ModuleId {
        let name = module.ident.to_string();
        let below = directory.join(&name);
        if let Some((_, items)) = &module.content {
            return self.add_module(Some(parent), file, &below, items.clone(), read);
        }
        let flat = directory.join(format!("{name}.rs"));
        let found = if read(&flat).is_some() { flat } else { below.join("mod.rs") };
        self.add_file(Some(parent), &found, &below, read)
    }

    fn declare(&mut self, module: ModuleId, name: &str, binding: Binding) {
        self.modules[module].names.entry(name.to_owned()).or_default().push(binding);
    }

    /// Makes the names of a `use` declaration known in a module.
    pub fn import(&mut self, module: ModuleId, used: &syn::ItemUse) {
        for leaf in leaves(&used.tree) {
            match leaf.name {
                Some(name) => self.declare(module, &name, Binding::Import(leaf.path)),
                None => self.modules[module].globs.push(leaf.path),
            }
        }
    }

    /// The path of a module from its crate's root, which is called `crate`.
    fn path_of(&self, module: ModuleId) -> Vec<String> {
        let Some(parent) = self.modules[module].parent else { return vec!["crate".to_owned()] };
        let mut path = self.path_of(parent);
        let is_this = |binding: &Binding| matches!(binding, Binding::Module(id) if *id == module);
        let mut names = self.modules[parent].names.iter();
        path.extend(names.find(|(_, bindings)| bindings.iter().any(is_this)).map(|(name, _)| name.clone()));
        path
    }

    /// What a path leads to that stands in `module`: nothing where it leaves the crate or names what is local
    /// to a function. A name is followed through re-exports to where it is defined. Its last segments may be
    /// variants or methods.
    pub fn resolve(&self, module: ModuleId, path: &[String]) -> Vec<Target> {
        self.follow(module, path, &mut Vec::new())
    }

    fn follow(&self, module: ModuleId, path: &[String], trail: &mut Vec<(ModuleId, String)>) -> Vec<Target> {
        let Some((first, mut rest)) = path.split_first() else { return Vec::new() };
        let mut targets = match first.as_str() {
            "crate" => vec![Target::Module(0)],
            "self" => vec![Target::Module(module)],
            "super" => self.modules[module].parent.into_iter().map(Target::Module).collect(),
            name => self.look_up(module, name, trail),
        };
        while let Some((name, after)) = rest.split_first() {
            rest = after;
            let mut modules = targets.iter().filter_map(|target| match target {
                Target::Module(id) => Some(*id),
                Target::Item { .. } => None,
            });
            let Some(within) = modules.next_back() else { return targets };
            targets = match name.as_str() {
                "super" => self.modules[within].parent.into_iter().map(Target::Module).collect(),
                name => self.look_up(within, name, trail),
            };
            if targets.is_empty() {
                // Made by a macro of that module.
                return vec![Target::Item { file: self.modules[within].file.clone(), name: name.clone() }];
            }
        }
        targets
    }

    /// What a name stands for in a module; `trail` holds the names that are being looked up.
    fn look_up(&self, module: ModuleId, name: &str, trail: &mut Vec<(ModuleId, String)>) -> Vec<Target> {
        let step = (module, name.to_owned());
        if trail.contains(&step) {
            return Vec::new();
        }
        trail.push(step);
        let here = &self.modules[module];
        let mut targets = Vec::new();
        for binding in here.names.get(name).into_iter().flatten() {
            match binding {
                Binding::Module(id) => targets.push(Target::Module(*id)),
                Binding::Item => {
                    targets.push(Target::Item { file: here.file.clone(), name: name.to_owned() })
                }
                Binding::Import(path) => targets.extend(self.follow(module, path, trail)),
            }
        }
        if targets.is_empty() {
            for glob in &here.globs {
                for target in self.follow(module, glob, trail) {
                    if let Target::Module(id) = target {
                        targets.extend(self.look_up(id, name, trail));
                    }
                }
            }
        }
        trail.pop();
        targets
    }
}

/// Whether a `use` declaration hands its names on.
pub fn is_re_export(used: &syn::ItemUse) -> bool {
    !matches!(used.vis, Visibility::Inherited)
}

/// The attributes of an item.
pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The name that an item declares, modules, imports and macros excepted.
fn declared(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}
