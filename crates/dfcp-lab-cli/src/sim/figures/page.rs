//! What people read: an item's data, figure and verdicts, a summary for programs, and a page.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use dfcp_command::Failure;
use serde::Serialize;

use super::Size;
use super::catalogue::{Item, Show};
use super::check::{Verdict, short};
use super::papers::Book;
use super::select::Curves;
use crate::sim::plot::{self, Data, Drawing, Sample};
use crate::sim::store;
use crate::sim::table::{Cell, Table};

/// An item with all that came of it.
#[derive(Debug)]
pub struct Done<'a> {
    /// The item.
    pub item: &'a Item,
    /// Settings of its scenario that this size of run replaced.
    pub changed: Vec<(String, String)>,
    /// Its curves.
    pub curves: Curves,
    /// What came of its checks.
    pub verdicts: Vec<Verdict>,
}

/// An item in `summary.json`.
#[derive(Debug, Serialize)]
struct Entry<'a> {
    id: &'a str,
    of: &'a str,
    what: &'a str,
    paper: &'a str,
    measured: String,
    tolerance: String,
    pass: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    scenario: &'a str,
    settings_changed: BTreeMap<&'a str, &'a str>,
    checks: &'a [Verdict],
}

/// `summary.json`.
#[derive(Debug, Serialize)]
struct Summary<'a> {
    dfcp_version: &'a str,
    size: Size,
    items: Vec<Entry<'a>>,
}

impl Done<'_> {
    /// Whether everything holds.
    pub fn passes(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.pass)
    }

    /// Writes the item's CSV and, of a figure, SVG.
    pub fn write(&self, directory: &Path) -> Result<(), Failure> {
        let file = |extension: &str| directory.join(format!("{}.{extension}", self.item.id));
        store::write(&file("csv"), &self.tidy(), None)?;
        if self.item.show == Show::Table {
            return Ok(());
        }
        let drawing = Drawing {
            data: self.curves.data.clone(),
            // What it is stands in the caption.
            title: None,
            log_x: self.item.x.log,
            log_y: self.item.y.log,
        };
        plot::draw(drawing, &file("svg"))
    }

    /// A row for each place of each curve.
    fn tidy(&self) -> Table {
        let Item { x, y, panels, .. } = self.item;
        let panel = panels.as_ref().map_or("panel", |panels| &panels.column);
        let width = format!("{}_half_width", y.column);
        let mut table = Table::untyped([panel, "curve", &x.column, &y.column, &width]);
        let data = &self.curves.data;
        for (panel, name) in data.panels.iter().zip(&self.curves.panels) {
            for (samples, curve) in panel.curves.iter().zip(&data.curves) {
                for Sample { x, y } in samples {
                    let at = match data.x.categories.get(*x as usize) {
                        Some(name) => Cell::from(name.as_str()),
                        None => Cell::from(*x),
                    };
                    table.push(vec![
                        name.as_str().into(),
                        curve.as_str().into(),
                        at,
                        y.mean.into(),
                        y.half_width.into(),
                    ]);
                }
            }
        }
        table
    }

    fn changed(&self) -> impl Iterator<Item = (&str, &str)> {
        let changed = self.changed.iter();
        changed.map(|(path, value)| (path.as_str(), value.as_str()))
    }

    fn entry(&self) -> Entry<'_> {
        let all = |part: fn(&Verdict) -> String| {
            let parts: Vec<_> = self.verdicts.iter().map(part).collect();
            parts.join("; ")
        };
        let failing = self.verdicts.iter().filter(|verdict| !verdict.pass);
        let mut reasons: Vec<_> = failing
            .filter_map(|verdict| verdict.reason.clone())
            .collect();
        reasons.dedup();
        Entry {
            id: &self.item.id,
            of: &self.item.of,
            what: &self.item.title,
            paper: &self.item.paper,
            measured: all(|verdict| format!("{}: {}", verdict.what, verdict.number())),
            tolerance: all(|verdict| verdict.tolerance.clone()),
            pass: self.passes(),
            reason: (!reasons.is_empty()).then(|| reasons.join(" ")),
            scenario: &self.item.scenario,
            settings_changed: self.changed().collect(),
            checks: &self.verdicts,
        }
    }

    fn section(&self) -> String {
        let item = self.item;
        let mut text = format!("\n## {}: {}\n\n", item.of, item.title);
        let _ = writeln!(text, "The paper: {}\n", item.paper);
        if !item.note.is_empty() {
            let _ = writeln!(text, "{}\n", item.note);
        }
        match item.show {
            Show::Figure => {
                let _ = writeln!(text, "![{}]({}.svg)\n", item.of, item.id);
            }
            Show::Table => text += &markdown(&self.curves),
        }
        text += "| what | expected | measured | |\n|---|---|---|---|\n";
        for verdict in &self.verdicts {
            let Verdict {
                what,
                tolerance,
                at,
                ..
            } = verdict;
            let number = verdict.number();
            let _ = writeln!(
                text,
                "| {what} | {tolerance} | {number} ({at}) | {} |",
                verdict.word()
            );
        }
        let (id, scenario) = (&item.id, &item.scenario);
        let _ = writeln!(
            text,
            "\nData: [`{id}.csv`]({id}.csv); scenario `{scenario}.toml`{}",
            if self.changed.is_empty() {
                "."
            } else {
                ", with"
            }
        );
        for (path, value) in self.changed() {
            let _ = writeln!(text, "`{path} = {value}`");
        }
        text
    }
}

impl Verdict {
    fn number(&self) -> String {
        self.measured.map_or_else(|| "–".to_owned(), short)
    }

    fn word(&self) -> String {
        match (&self.reason, self.pass) {
            (_, true) => "pass".to_owned(),
            (Some(reason), false) => format!("**fail**: {reason}"),
            (None, false) => "**fail**".to_owned(),
        }
    }
}

/// Curves as rows and columns, one table for each panel.
fn markdown(curves: &Curves) -> String {
    let Data {
        x,
        y,
        curves: names,
        panels,
        ..
    } = &curves.data;
    let samples = || {
        panels
            .iter()
            .flat_map(|panel| panel.curves.iter().flatten())
    };
    let largest = samples()
        .map(|sample| sample.y.mean.abs())
        .fold(0.0, f64::max);
    let (prefix, factor) = y.unit.prefix(largest);
    let mut text = String::new();
    for panel in panels {
        let mut places: Vec<f64> = panel
            .curves
            .iter()
            .flatten()
            .map(|sample| sample.x)
            .collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let title = panel.title.as_ref().map(|title| format!("{title}: "));
        let _ = writeln!(
            text,
            "{}{} in {}\n\n| {} | {} |\n|{}",
            title.unwrap_or_default(),
            y.name,
            match y.unit.symbol(prefix) {
                symbol if symbol.is_empty() => "1".to_owned(),
                symbol => symbol,
            },
            x.name,
            names.join(" | "),
            "---|".repeat(names.len() + 1)
        );
        for place in places {
            let unit = x.unit.prefix(place.abs());
            let row = match x.categories.get(place as usize) {
                Some(name) => name.clone(),
                None => format!("{} {}", short(place / unit.1), x.unit.symbol(unit.0)),
            };
            let cell = |samples: &Vec<Sample>| {
                let here = samples.iter().find(|sample| sample.x == place);
                here.map_or("–".to_owned(), |sample| short(sample.y.mean / factor))
            };
            let cells: Vec<_> = panel.curves.iter().map(cell).collect();
            let _ = writeln!(text, "| {} | {} |", row.trim(), cells.join(" | "));
        }
        text.push('\n');
    }
    text
}

/// Writes `summary.json` and `README.md`.
pub fn write(directory: &Path, book: &Book, size: Size, done: &[Done<'_>]) -> Result<(), Failure> {
    let summary = Summary {
        dfcp_version: env!("CARGO_PKG_VERSION"),
        size,
        items: done.iter().map(Done::entry).collect(),
    };
    store::write_atomically(&directory.join("summary.json"), |file| {
        serde_json::to_writer_pretty(&mut *file, &summary)?;
        Ok(file.write_all(b"\n")?)
    })?;
    let page = page(book, size, done);
    store::write_atomically(&directory.join("README.md"), |file| {
        Ok(file.write_all(page.as_bytes())?)
    })
}

fn page(book: &Book, size: Size, done: &[Done<'_>]) -> String {
    let (size, command) = match size {
        Size::Quick => ("a reduced grid and shorter runs", "--quick"),
        Size::Full => ("the papers' parameters", "--full"),
    };
    let passing = done.iter().filter(|done| done.passes()).count();
    let mut text = format!(
        "# {}\n\nMade by `dfcp sim figures {} {command}` of dfcp {}: {size}. {passing} of \
         {} items pass all their checks. Each row below says what a paper states, what is \
         measured here, and how far the two may differ; what fails says why.\n\n\
         | item | | checks | |\n|---|---|---|---|\n",
        book.title,
        book.name,
        env!("CARGO_PKG_VERSION"),
        done.len()
    );
    for done in done {
        let item = done.item;
        let passed = done.verdicts.iter().filter(|verdict| verdict.pass).count();
        let word = if done.passes() { "pass" } else { "**fail**" };
        let _ = writeln!(
            text,
            "| [{}](#{}) | {} | {passed}/{} | {word} |",
            item.of,
            anchor(&format!("{}: {}", item.of, item.title)),
            item.title,
            done.verdicts.len()
        );
    }
    for done in done {
        text += &done.section();
    }
    text
}

/// The anchor that a heading gets on web pages.
fn anchor(heading: &str) -> String {
    let lower = heading.to_lowercase();
    let kept = lower
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
