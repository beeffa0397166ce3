//! The text of a file with switches.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::Range;

use serde::Serialize;

use crate::Mutant;
use crate::place::Places;

/// Lines of the text, from one and inclusive, and for which mutations they are there.
#[derive(Serialize)]
pub struct Lines {
    first: usize,
    last: usize,
    ids: Vec<u32>,
    stands: Stands,
}

/// What stands in such lines.
#[derive(Serialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Stands {
    /// What the mutation puts there.
    Changed,
    /// What was there.
    Unchanged,
}

/// Where an expression begins, and where it ends, so that those that contain others come first.
type Span = (usize, Reverse<usize>);

/// What is put into one file.
#[derive(Default)]
pub struct Changes {
    /// Of each expression the mutations and how it reads with each.
    expressions: BTreeMap<Span, Vec<(u32, String)>>,
    /// Returns at the beginning of bodies.
    returns: BTreeMap<usize, Vec<(u32, String)>>,
    /// Guards behind patterns.
    guards: BTreeMap<usize, u32>,
}

impl Changes {
    /// Takes a mutation up; false if there is no place for a switch.
    pub fn add(&mut self, source: &str, places: &Places, mutant: &Mutant) -> bool {
        let replaced = places.offset(mutant.span.start)..places.offset(mutant.span.end);
        let root = match mutant.genre.as_str() {
            "FnValue" => {
                let Some(at) = places.bodies.get(&replaced.start) else {
                    return false;
                };
                let value = (mutant.id, mutant.replacement.clone());
                self.returns.entry(*at).or_default().push(value);
                return true;
            }
            "MatchArm" => {
                let Some(at) = places.arms.get(&replaced.start) else {
                    return false;
                };
                self.guards.insert(*at, mutant.id);
                return true;
            }
            "MatchArmGuard" => places.guards.get(&replaced.start),
            "StructField" => places.fields.get(&replaced.start),
            _ => places.operators.get(&replaced.start),
        };
        let Some(root) = root else { return false };
        let before = &source[root.start..replaced.start];
        let text = format!(
            "{before}{}{}",
            mutant.replacement,
            &source[replaced.end..root.end]
        );
        let key = (root.start, Reverse(root.end));
        self.expressions
            .entry(key)
            .or_default()
            .push((mutant.id, text));
        true
    }

    /// The text, and which of its lines are there for which mutations.
    pub fn render(self, source: &str) -> (String, Vec<Lines>) {
        let mut output = Output {
            source,
            changes: &self,
            text: String::new(),
            lines: Vec::new(),
            stopped: BTreeSet::new(),
        };
        let expressions: Vec<_> = self
            .expressions
            .keys()
            .map(|(s, Reverse(e))| *s..*e)
            .collect();
        output.copy(0..source.len(), &expressions);
        (output.text, output.lines)
    }
}

struct Output<'a> {
    source: &'a str,
    changes: &'a Changes,
    text: String,
    lines: Vec<Lines>,
    /// Offsets where something was put in: an expression and its first operand begin at the same.
    stopped: BTreeSet<usize>,
}

impl Output<'_> {
    fn line(&self) -> usize {
        self.text.matches('\n').count() + 1
    }

    /// Writes lines of their own and notes for which mutations they are.
    fn place(&mut self, ids: &[u32], stands: Stands, write: impl FnOnce(&mut Self)) {
        self.text.push('\n');
        let first = self.line();
        write(self);
        let last = self.line();
        self.lines.push(Lines {
            first,
            last,
            ids: ids.to_vec(),
            stands,
        });
        self.text.push('\n');
    }

    /// Copies a part of the source in which these expressions lie, with its switches.
    fn copy(&mut self, range: Range<usize>, mut inside: &[Range<usize>]) {
        let mut at = range.start;
        while let Some((outer, rest)) = inside.split_first() {
            self.plain(at..outer.start);
            let nested = rest
                .iter()
                .take_while(|inner| inner.end <= outer.end)
                .count();
            self.expression(outer.clone(), &rest[..nested]);
            inside = &rest[nested..];
            at = outer.end;
        }
        self.plain(at..range.end);
    }

    /// Copies a part in which there are no expressions with switches, but may be returns and guards.
    fn plain(&mut self, range: Range<usize>) {
        let (source, changes) = (self.source, self.changes);
        let mut at = range.start;
        let returns = changes.returns.range(range.clone()).map(|(at, _)| *at);
        let guards = changes.guards.range(range.clone()).map(|(at, _)| *at);
        let mut stops: Vec<usize> = returns.chain(guards).collect();
        stops.sort_unstable();
        for stop in stops {
            self.text.push_str(&source[at..stop]);
            at = stop;
            self.stop(stop);
        }
        self.text.push_str(&source[at..range.end]);
    }

    /// What is put in at an offset.
    fn stop(&mut self, at: usize) {
        if !self.stopped.insert(at) {
            return;
        }
        let changes = self.changes;
        for (id, value) in changes.returns.get(&at).into_iter().flatten() {
            self.place(&[*id], Stands::Changed, |output| {
                let _ = write!(
                    output.text,
                    "if crate::mutant::on({id}) {{\nreturn {value};\n}}"
                );
            });
        }
        if let Some(id) = changes.guards.get(&at) {
            self.place(&[*id], Stands::Changed, |output| {
                let _ = write!(output.text, " if crate::mutant::off(&[{id}])");
            });
        }
    }

    /// One expression with the switches of its mutations.
    fn expression(&mut self, range: Range<usize>, nested: &[Range<usize>]) {
        self.stop(range.start); // a body may begin with it
        let others = &self.changes.expressions[&(range.start, Reverse(range.end))];
        let ids: Vec<u32> = others.iter().map(|(id, _)| *id).collect();
        self.place(&ids, Stands::Unchanged, |output| {
            // The unchanged one first: of types that differ, the compiler blames the later.
            let _ = writeln!(output.text, "(if crate::mutant::off(&{ids:?}) {{");
            output.copy(range, nested);
        });
        for (id, text) in others {
            self.place(&[*id], Stands::Changed, |output| {
                let _ = write!(output.text, "}} else if crate::mutant::on({id}) {{\n{text}");
            });
        }
        self.text.push_str("} else { unreachable!() })");
    }
}
