//! Where in a file a mutation can be switched: found by the bytes at which it begins.

use std::collections::HashMap;
use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, ExprBinary};

use crate::LineColumn;

/// Bytes of lines, to turn the positions of others into offsets.
struct LineStarts<'a> {
    source: &'a str,
    starts: Vec<usize>,
}

impl<'a> LineStarts<'a> {
    fn of(source: &'a str) -> Self {
        let ends = source.bytes().enumerate().filter(|(_, b)| *b == b'\n');
        let starts = std::iter::once(0).chain(ends.map(|(i, _)| i + 1)).collect();
        LineStarts { source, starts }
    }

    /// The offset of a line, from one, and of characters in it, from zero.
    fn offset(&self, line: usize, characters: usize) -> usize {
        let start = self.starts[line - 1];
        let line = &self.source[start..];
        start
            + line
                .char_indices()
                .nth(characters)
                .map_or(line.len(), |(i, _)| i)
    }

    fn range(&self, span: proc_macro2::Span) -> Range<usize> {
        let (start, end) = (span.start(), span.end());
        self.offset(start.line, start.column)..self.offset(end.line, end.column)
    }
}

/// What stands where in a file.
pub struct Places<'a> {
    lines: LineStarts<'a>,
    /// The whole expression that an operator belongs to, by where the operator begins: of operators
    /// beside each other without parentheses the outermost, since a change of one changes what binds
    /// tighter.
    pub operators: HashMap<usize, Range<usize>>,
    /// Guards of arms, by where they begin.
    pub guards: HashMap<usize, Range<usize>>,
    /// Expressions that make a struct from a base, by where each field begins.
    pub fields: HashMap<usize, Range<usize>>,
    /// Where the pattern of an arm ends, by where the arm begins.
    pub arms: HashMap<usize, usize>,
    /// Where bodies of functions begin.
    pub bodies: HashMap<usize, usize>,
}

impl<'a> Places<'a> {
    /// All of a file.
    pub fn of(source: &'a str) -> syn::Result<Self> {
        let mut places = Places {
            lines: LineStarts::of(source),
            operators: HashMap::new(),
            guards: HashMap::new(),
            fields: HashMap::new(),
            arms: HashMap::new(),
            bodies: HashMap::new(),
        };
        places.visit_file(&syn::parse_file(source)?);
        Ok(places)
    }

    /// The offset of a position, whose column is from one.
    pub fn offset(&self, at: LineColumn) -> usize {
        self.lines.offset(at.line, at.column - 1)
    }

    /// Notes the operators of `binary` and of its operands that are operations themselves.
    fn note_operators(&mut self, binary: &ExprBinary, root: &Range<usize>) {
        let at = self.lines.range(binary.op.span()).start;
        self.operators.insert(at, root.clone());
        for side in [&binary.left, &binary.right] {
            match &**side {
                Expr::Binary(inner) => self.note_operators(inner, root),
                other => self.visit_expr(other),
            }
        }
    }

    fn note_body(&mut self, block: &Block) {
        if let Some(first) = block.stmts.first() {
            let at = self.lines.range(first.span()).start;
            self.bodies.insert(at, at);
        }
    }
}

/// Whether this is a condition that binds names, which stands in no parentheses.
fn binds(binary: &ExprBinary) -> bool {
    matches!(binary.op, BinOp::And(_))
        && [&binary.left, &binary.right]
            .iter()
            .any(|side| match &***side {
                Expr::Let(_) => true,
                Expr::Binary(inner) => binds(inner),
                _ => false,
            })
}

impl<'ast> Visit<'ast> for Places<'_> {
    fn visit_expr_binary(&mut self, binary: &'ast ExprBinary) {
        if binds(binary) {
            visit::visit_expr_binary(self, binary);
        } else {
            let root = self.lines.range(binary.span());
            self.note_operators(binary, &root);
        }
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        let at = self.lines.range(unary.op.span()).start;
        let root = self.lines.range(unary.span());
        self.operators.insert(at, root);
        visit::visit_expr_unary(self, unary);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        let at = self.lines.range(arm.span()).start;
        let pattern = self.lines.range(arm.pat.span());
        self.arms.insert(at, pattern.end);
        if let Some((_, guard)) = &arm.guard {
            let guard = self.lines.range(guard.span());
            self.guards.insert(guard.start, guard);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_struct(&mut self, made: &'ast syn::ExprStruct) {
        let root = self.lines.range(made.span());
        for field in &made.fields {
            let at = self.lines.range(field.span()).start;
            self.fields.insert(at, root.clone());
        }
        visit::visit_expr_struct(self, made);
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.note_body(&function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.note_body(&function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.note_body(block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}
