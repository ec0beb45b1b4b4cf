//! Constants that must be defined once.

use std::collections::BTreeMap;
use std::path::PathBuf;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::files::{Finding, Text};
use super::module_tree::{attributes, is_shipped};

/// The page size and its mask.
const PAGE_NUMBERS: [u128; 2] = [4096, 4095];

/// Places of a source that say the page size as a number, in what is not for tests only. A constant of another name
/// may be as large.
pub fn page_numbers(source: &str) -> Vec<Finding> {
    let mut reader = Numbers::default();
    reader.visit_file(&syn::parse_file(source).unwrap());
    reader.found
}

#[derive(Default)]
struct Numbers {
    found: Vec<Finding>,
}

impl Numbers {
    fn note(&mut self, literal: &syn::LitInt) {
        if literal.base10_parse().is_ok_and(|value| PAGE_NUMBERS.contains(&value)) {
            let what = format!("{literal} in place of PAGE_SIZE, or of a name");
            self.found.push(Finding::new(literal.span().start().line, what));
        }
    }

    /// Numbers in what only a macro understands.
    fn read_tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.read_tokens(group.stream()),
                TokenTree::Literal(literal) => {
                    if let Ok(number) = syn::parse2::<syn::LitInt>(TokenTree::Literal(literal).into()) {
                        self.note(&number);
                    }
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Numbers {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_shipped(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        if !is_number(&item.expr) {
            visit::visit_item_const(self, item);
        }
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        if !is_number(&item.expr) {
            visit::visit_impl_item_const(self, item);
        }
    }

    fn visit_lit_int(&mut self, literal: &'ast syn::LitInt) {
        self.note(literal);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.read_tokens(called.tokens.clone());
    }
}

fn is_number(expression: &syn::Expr) -> bool {
    matches!(expression, syn::Expr::Lit(literal) if matches!(literal.lit, syn::Lit::Int(_)))
}

/// A constant as it is defined.
pub struct Constant {
    pub name: String,
    pub value: String,
    pub line: usize,
}

/// The constants with numbers for values that a source defines, in what is not for tests only.
pub fn constants(source: &str) -> Vec<Constant> {
    let mut reader = Definitions::default();
    reader.visit_file(&syn::parse_file(source).unwrap());
    reader.found
}

#[derive(Default)]
struct Definitions {
    found: Vec<Constant>,
}

impl<'ast> Visit<'ast> for Definitions {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_shipped(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        if let Some(value) = value(&item.expr) {
            let (name, line) = (item.ident.to_string(), item.ident.span().start().line);
            self.found.push(Constant { name, value: value.to_string(), line });
        }
    }
}

/// What an expression of numbers comes to.
fn value(expression: &syn::Expr) -> Option<u128> {
    match expression {
        syn::Expr::Lit(literal) => match &literal.lit {
            syn::Lit::Int(number) => number.base10_parse().ok(),
            _ => None,
        },
        syn::Expr::Paren(inner) => value(&inner.expr),
        syn::Expr::Cast(cast) => value(&cast.expr),
        syn::Expr::Binary(binary) => {
            let (left, right) = (value(&binary.left)?, value(&binary.right)?);
            match binary.op {
                syn::BinOp::Shl(_) => left.checked_shl(right.try_into().ok()?),
                syn::BinOp::Mul(_) => left.checked_mul(right),
                syn::BinOp::Add(_) => left.checked_add(right),
                syn::BinOp::Sub(_) => left.checked_sub(right),
                syn::BinOp::BitOr(_) => Some(left | right),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Constants of the kernel's, and others that are defined alike in more than one file: the least value that cannot be
/// chance, so that two may both be called `SHARE` and be 4.
const LEAST_TELLING: u128 = 1000;

/// Constants of like name and value in several files: for each file, where it defines one and who else does.
pub fn defined_twice(sources: &[Text]) -> BTreeMap<PathBuf, Vec<Finding>> {
    let mut places: BTreeMap<(String, String), Vec<(PathBuf, usize)>> = BTreeMap::new();
    for Text { path, text } in sources {
        for Constant { name, value, line } in constants(text) {
            let telling = value.parse::<u128>().is_ok_and(|value| value >= LEAST_TELLING);
            if telling || name == "PAGE_SIZE" {
                places.entry((name, value)).or_default().push((path.clone(), line));
            }
        }
    }
    let mut found: BTreeMap<PathBuf, Vec<Finding>> = BTreeMap::new();
    for ((name, value), places) in places.iter().filter(|(_, places)| places.len() > 1) {
        for (at, (path, line)) in places.iter().enumerate() {
            let others = places.iter().enumerate().filter(|(other, _)| *other != at);
            let others: Vec<_> =
                others.map(|(_, (path, line))| format!("{}:{line}", path.display())).collect();
            let what = format!("{name} = {value} is defined here too: {}", others.join(", "));
            found.entry(path.clone()).or_default().push(Finding::new(*line, what));
        }
    }
    found
}
