//! The text format of Prometheus
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>, version 0.0.4).

use std::fmt::{Display, Write};

/// What kind of numbers a family has.
#[derive(Clone, Copy, Debug)]
pub enum Type {
    Counter,
    Gauge,
    Summary,
}

/// A page, written family by family.
#[derive(Default)]
pub struct Page {
    text: String,
    name: &'static str,
}

impl Page {
    /// Begins a family; its samples follow.
    pub fn family(&mut self, name: &'static str, kind: Type, help: &str) {
        let kind = match kind {
            Type::Counter => "counter",
            Type::Gauge => "gauge",
            Type::Summary => "summary",
        };
        self.name = name;
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    /// A sample of the family.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<_> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
            .collect();
        let name = self.name;
        match labels.is_empty() {
            true => self.line(format_args!("{name} {value}")),
            false => self.line(format_args!("{name}{{{}}} {value}", labels.join(","))),
        }
    }

    /// A part of a summary: `_sum` or `_count`.
    pub fn part(&mut self, suffix: &str, value: impl Display) {
        let name = self.name;
        self.line(format_args!("{name}{suffix} {value}"));
    }

    /// The text.
    pub fn finish(self) -> String {
        self.text
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // A string takes everything.
        let _ = writeln!(self.text, "{line}");
    }
}

/// A label's value as it may stand between quotes.
fn escaped(value: &str) -> String {
    value
        .replace('\\', r"\\")
        .replace('"', "\\\"")
        .replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_families_with_samples_and_escape_what_labels_say() {
        let mut page = Page::default();
        page.family("a_total", Type::Counter, "Of a.");
        page.sample(&[], 1);
        page.sample(&[("x", "y"), ("z", "\"\\\n")], 0.5);
        page.family("b_seconds", Type::Summary, "Of b.");
        page.part("_sum", 2.5);
        page.part("_count", 3);
        let expected = "# HELP a_total Of a.\n# TYPE a_total counter\na_total 1\n\
             a_total{x=\"y\",z=\"\\\"\\\\\\n\"} 0.5\n\
             # HELP b_seconds Of b.\n# TYPE b_seconds summary\nb_seconds_sum 2.5\nb_seconds_count 3\n";
        assert_eq!(page.finish(), expected);
    }
}
