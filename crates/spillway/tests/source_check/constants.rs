//! Constants that must be defined once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::files::{Finding, Text};
use super::module_tree::{attributes, is_shipped};

/// The page size and its mask.
const PAGE_NUMBERS: [u128; 2] = [4096, 4095];

/// Places of a source that say the page size as a number, in what is not for tests only. A constant of another
/// name may be as large.
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

/// Whether an expression is a number and nothing else, whatever its type and sign.
fn is_number(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Lit(literal) => matches!(literal.lit, syn::Lit::Int(_)),
        syn::Expr::Cast(cast) => is_number(&cast.expr),
        syn::Expr::Unary(unary) => is_number(&unary.expr),
        _ => false,
    }
}

/// A constant as it is defined.
pub struct Constant {
    pub name: String,
    pub value: u128,
    pub line: usize,
}

/// The constants that a source defines as numbers, in what is not for tests only.
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
            self.found.push(Constant { name, value, line });
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

/// The file that says how large a page is.
pub const PAGE_FILE: &str = "crates/spillway-sys/src/page.rs";
/// Names by which constants say it, with their values.
const PAGE_CONSTANTS: [(&str, u128); 8] = [
    ("PAGE", 4096),
    ("PAGE_SIZE", 4096),
    ("PAGE_BYTES", 4096),
    ("PAGE_MASK", 4095),
    ("PAGE_SHIFT", 12),
    ("HUGE_BYTES", 2 << 20),
    ("HUGE_PAGE_BYTES", 2 << 20),
    ("HUGE_PAGE_SIZE", 2 << 20),
];
/// With what the kernel's own constants begin.
const KERNEL_PREFIXES: [&str; 12] =
    ["BPF_", "CAP_", "CLONE_", "FUTEX_", "IORING_", "MADV_", "MAP_", "MPOL_", "PERF_", "PR_", "SYS_", "UFFD"];

/// Constants that say again what another file has: the size of a page, or a constant of the kernel's. For
/// each file, where it does so and who has it.
pub fn defined_again(sources: &[Text]) -> BTreeMap<PathBuf, Vec<Finding>> {
    let mut kernels: BTreeMap<(String, u128), Vec<(PathBuf, usize)>> = BTreeMap::new();
    let mut found: BTreeMap<PathBuf, Vec<Finding>> = BTreeMap::new();
    for Text { path, text } in sources {
        for Constant { name, value, line } in constants(text) {
            if PAGE_CONSTANTS.contains(&(name.as_str(), value)) && *path != Path::new(PAGE_FILE) {
                let what = format!("{name} = {value} is what {PAGE_FILE} has");
                found.entry(path.clone()).or_default().push(Finding::new(line, what));
            } else if KERNEL_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
                kernels.entry((name, value)).or_default().push((path.clone(), line));
            }
        }
    }
    for ((name, value), places) in kernels {
        for (path, line) in &places {
            let others = places.iter().filter(|(other, _)| other != path);
            let others: Vec<_> = others.map(|(path, line)| format!("{}:{line}", path.display())).collect();
            if !others.is_empty() {
                let what = format!("{name} = {value} is defined here too: {}", others.join(", "));
                found.entry(path.clone()).or_default().push(Finding::new(*line, what));
            }
        }
    }
    found
}
