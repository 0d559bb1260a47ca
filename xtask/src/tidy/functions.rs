//! Limits the length of functions.

use super::Finding;
use super::exceptions::Exceptions;
use super::sources::Source;
use crate::Result;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const LINES: usize = 60;

pub(super) fn check(
    source: &Source,
    exceptions: &Exceptions,
    findings: &mut Vec<Finding>,
) -> Result<()> {
    let file = syn::parse_file(&source.text).map_err(|e| format!("{}: {e}", source.path))?;
    Functions { source, exceptions, findings }.visit_file(&file);
    Ok(())
}

struct Functions<'a> {
    source: &'a Source,
    exceptions: &'a Exceptions,
    findings: &'a mut Vec<Finding>,
}

impl Functions<'_> {
    fn check(&mut self, name: &syn::Ident, body: &syn::Block) {
        let span = body.span();
        let lines = span.end().line - span.start().line + 1;
        let path = format!("{}::{name}", self.source.path);
        if lines > LINES && !self.exceptions.allow(&path) {
            let text = format!("`{name}` has {lines} lines, the limit is {LINES}; split it");
            self.findings.push(Finding::new(self.source, name.span().start().line, text));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.check(&function.sig.ident, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.check(&function.sig.ident, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.check(&function.sig.ident, body);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lines: usize) -> usize {
        let body = "    work();\n".repeat(lines - 2);
        let text = format!("impl A {{\nfn long() {{\n{body}}}\n}}\n");
        let mut findings = Vec::new();
        check(&Source::new("a.rs", &text), &Exceptions::none(), &mut findings).unwrap();
        findings.len()
    }

    #[test]
    fn a_long_function_is_found() {
        assert_eq!((found(LINES), found(LINES + 1)), (0, 1));
    }
}
