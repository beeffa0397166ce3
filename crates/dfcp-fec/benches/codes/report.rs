//! Samples, their medians as markdown, and all of them as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

/// One measurement.
pub struct Sample {
    table: &'static str,
    name: String,
    k: usize,
    round: usize,
    bytes_per_second: f64,
}

impl Sample {
    /// The rate that `name` reached with `k` symbols in one round.
    pub fn new(table: &'static str, name: &str, k: usize, round: usize, rate: f64) -> Self {
        Self {
            table,
            name: name.to_owned(),
            k,
            round,
            bytes_per_second: rate,
        }
    }
}

/// All that was measured.
#[derive(Default)]
pub struct Report {
    samples: Vec<Sample>,
}

impl Report {
    /// Adds a measurement.
    pub fn push(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    /// Median rates of a table by name, in order of appearance, and by K.
    fn medians(&self, table: &str) -> Vec<(String, BTreeMap<usize, f64>)> {
        let mut names: Vec<String> = Vec::new();
        let mut rates: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
        for sample in self.samples.iter().filter(|sample| sample.table == table) {
            let known = names.iter().position(|name| *name == sample.name);
            let name = known.unwrap_or_else(|| {
                names.push(sample.name.clone());
                names.len() - 1
            });
            let all = rates.entry((name, sample.k)).or_default();
            all.push(sample.bytes_per_second);
        }
        let mut medians: Vec<_> = names.into_iter().map(|n| (n, BTreeMap::new())).collect();
        for ((name, k), mut all) in rates {
            all.sort_by(f64::total_cmp);
            medians[name].1.insert(k, all[all.len() / 2]);
        }
        medians
    }

    /// The tables.
    pub fn markdown(&self) -> String {
        let mut text = format!("CPU: {}\n", cpu());
        for (table, title) in [
            ("combine", "rows as malloc aligns them"),
            ("combine, aligned", "rows aligned to cache lines"),
        ] {
            let medians = self.medians(table);
            let bound = medians.first().map(|(_, rates)| rates.clone());
            let cell = |k: usize, rate: f64| match bound.as_ref().and_then(|b| b.get(&k)) {
                Some(bound) => format!("{:.1} ({:.2})", rate / 1e9, rate / bound),
                None => String::new(),
            };
            let title = format!(
                "One combination of K rows, {title}: GB/s read (ratio to plain XOR of the same rows)"
            );
            write_table(&mut text, &title, &medians, cell);
        }
        let megabytes = |_: usize, rate: f64| format!("{:.0}", rate / 1e6);
        let title = "Encode: repair symbols for 10 % loss, source MB/s";
        write_table(&mut text, title, &self.medians("encode"), megabytes);
        let medians = self.medians("decode");
        let dense = medians.first().map(|(_, rates)| rates.clone());
        let beside_dense = |k: usize, rate: f64| match dense.as_ref().and_then(|d| d.get(&k)) {
            Some(dense) => format!("{:.0} ({:.2})", rate / 1e6, rate / dense),
            None => format!("{:.0}", rate / 1e6),
        };
        let title =
            "Decode: 10 % of the source symbols lost, source MB/s (ratio to the dense code)";
        write_table(&mut text, title, &medians, beside_dense);
        text
    }

    /// Every sample.
    pub fn json(&self) -> String {
        let mut text = format!(
            "{{\"cpu\": \"{}\", \"symbol_size\": {}, \"samples\": [\n",
            cpu(),
            super::T
        );
        for (i, sample) in self.samples.iter().enumerate() {
            let comma = if i + 1 < self.samples.len() { "," } else { "" };
            let Sample { table, name, .. } = sample;
            let _ = writeln!(
                text,
                "{{\"table\": \"{table}\", \"name\": \"{name}\", \"k\": {}, \"round\": {}, \
                 \"bytes_per_second\": {:.0}}}{comma}",
                sample.k, sample.round, sample.bytes_per_second
            );
        }
        text.push_str("]}\n");
        text
    }
}

fn write_table(
    text: &mut String,
    title: &str,
    rows: &[(String, BTreeMap<usize, f64>)],
    cell: impl Fn(usize, f64) -> String,
) {
    let all: BTreeMap<usize, ()> = rows
        .iter()
        .flat_map(|(_, rates)| rates.keys().map(|&k| (k, ())))
        .collect();
    let _ = write!(text, "\n{title}\n\n| K |");
    for k in all.keys() {
        let _ = write!(text, " {k} |");
    }
    let _ = writeln!(text, "\n|---|{}", "---:|".repeat(all.len()));
    for (name, rates) in rows {
        let _ = write!(text, "| {name} |");
        for &k in all.keys() {
            let shown = rates.get(&k).map(|&rate| cell(k, rate));
            let _ = write!(text, " {} |", shown.unwrap_or_default());
        }
        text.push('\n');
    }
}

/// The processor's name and flags that matter, where the system tells.
fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split(": ").nth(1))
            .unwrap_or("unknown")
    };
    format!(
        "{}, family {} model {}, {} MHz, {}",
        field("model name"),
        field("cpu family"),
        field("model\t"),
        field("cpu MHz"),
        std::env::consts::ARCH
    )
}
