//! What people read: an item's data, figure and verdicts, a summary for programs, and a page.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::Path;

use dfcp_command::Failure;
use serde::Serialize;

use super::Size;
use super::catalogue::{Item, Show};
use super::check::{Verdict, short};
use super::papers::Book;
use super::select::Curves;
use super::statement::{Basis, Unchecked};
use super::stored::{self, Origin};
use crate::sim::plot::{self, Data, Drawing, Marking, Sample};
use crate::sim::store;

/// An item with all that came of it.
#[derive(Debug)]
pub struct Done<'a> {
    /// The item.
    pub item: &'a Item,
    /// Other items that the same runs decide.
    pub same_runs: Vec<&'a str>,
    /// How its data came about.
    pub origin: Origin,
    /// Its curves.
    pub curves: Curves,
    /// Its curves over other columns that checks look at.
    pub columns: BTreeMap<String, Curves>,
    /// What came of its checks.
    pub verdicts: Vec<Verdict>,
}

/// What came of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// All that the paper states and that is checked holds.
    Holds,
    /// Some of it does not.
    Differs,
    /// The paper states nothing that is checked.
    Unstated,
}

/// How many items and checks came out how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Items.
    pub items: usize,
    /// Items of which the paper states something that is checked.
    pub stated_items: usize,
    /// Those of them where all of it holds.
    pub holding_items: usize,
    /// Statements of the paper that are checked.
    pub statements: usize,
    /// Those that hold.
    pub holding: usize,
    /// Those that hold or fail by less than their interval over seeds.
    pub within_spread: usize,
    /// Checks of our own.
    pub ours: usize,
    /// Those that hold.
    pub ours_holding: usize,
    /// Checks that a parameter was chosen for.
    pub fitted: usize,
}

impl Tally {
    /// Counts.
    pub fn of(done: &[Done<'_>]) -> Self {
        let mut tally = Self {
            items: done.len(),
            ..Self::default()
        };
        for done in done {
            let outcome = done.outcome();
            tally.stated_items += usize::from(outcome != Outcome::Unstated);
            tally.holding_items += usize::from(outcome == Outcome::Holds);
            for verdict in &done.verdicts {
                let pass = usize::from(verdict.pass);
                match verdict.basis {
                    Basis::Stated(_) => {
                        tally.statements += 1;
                        tally.holding += pass;
                        tally.within_spread += usize::from(verdict.within_spread);
                    }
                    Basis::Ours(_) => {
                        tally.ours += 1;
                        tally.ours_holding += pass;
                    }
                    Basis::Fitted(_) => tally.fitted += 1,
                }
            }
        }
        tally
    }

    /// The cells of a row about all papers, as docs/papers.md has them.
    #[cfg(test)]
    pub fn row(&self) -> String {
        let Self {
            items,
            stated_items,
            holding_items,
            statements,
            holding,
            within_spread,
            ours,
            ours_holding,
            fitted,
        } = self;
        format!(
            "| {items} | {stated_items} | {holding_items} | {holding} of {statements} | \
             {within_spread} | {ours_holding} of {ours} | {fitted} |"
        )
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            items,
            stated_items,
            holding_items,
            statements,
            holding,
            within_spread,
            ours,
            ours_holding,
            fitted,
        } = self;
        if *stated_items > 0 {
            write!(
                f,
                "of {stated_items} items of which a paper states what can be checked, \
                 {holding_items} hold in all of it; {holding} of {statements} statements hold, \
                 {within_spread} of the {statements} are decided by less than their spread; "
            )?;
        }
        write!(f, "of {} items nothing is stated; ", items - stated_items)?;
        write!(f, "{ours_holding} of {ours} checks of our own hold; ")?;
        write!(f, "{fitted} are fits")
    }
}

/// An item in `summary.json`.
#[derive(Debug, Serialize)]
struct Entry<'a> {
    id: &'a str,
    of: &'a str,
    what: &'a str,
    outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    unstated: Option<&'a str>,
    #[serde(flatten)]
    origin: &'a Origin,
    scenario: &'a str,
    same_runs: &'a [&'a str],
    checks: &'a [Verdict],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    unchecked: &'a [Unchecked],
}

/// `summary.json`.
#[derive(Debug, Serialize)]
struct Summary<'a> {
    dfcp_version: &'a str,
    tally: Tally,
    items: Vec<Entry<'a>>,
}

impl Done<'_> {
    /// What came of it.
    pub fn outcome(&self) -> Outcome {
        let mut stated = self.verdicts.iter().filter(|own| own.basis.is_stated());
        match (stated.clone().next(), stated.all(|own| own.pass)) {
            (None, _) => Outcome::Unstated,
            (Some(_), true) => Outcome::Holds,
            (Some(_), false) => Outcome::Differs,
        }
    }

    /// Writes the item's CSV and, of a figure, SVG.
    pub fn write(&self, directory: &Path) -> Result<(), Failure> {
        let Item {
            id, of, title, y, ..
        } = self.item;
        let own = (None, y.column.as_str(), &self.curves);
        let others = self.columns.iter();
        let others = others.map(|(name, curves)| (Some(name.as_str()), name.as_str(), curves));
        for (named, column, curves) in std::iter::once(own).chain(others) {
            let table = stored::table(self.item, curves, column);
            store::write(&stored::file(directory, self.item, named), &table, None)?;
        }
        if self.item.show == Show::Table {
            return Ok(());
        }
        let mut data = self.curves.data.clone();
        let names = data.curves.iter_mut().chain(&mut data.x.categories);
        names.for_each(|name| *name = self.item.readable(name));
        let out = directory.join(format!("{id}.svg"));
        if self.item.show == Show::Matrix {
            return plot::draw_matrix(&data, Some(&format!("{of}: {title}")), &out);
        }
        let drawing = Drawing {
            data,
            title: Some(format!("{of}: {title}")),
            log_x: self.item.x.log,
            log_y: self.item.y.log,
            marking: match self.item.show {
                Show::Points => Marking::Points,
                _ => Marking::EachCurve,
            },
        };
        plot::draw(drawing, &out)
    }

    fn entry(&self) -> Entry<'_> {
        Entry {
            id: &self.item.id,
            of: &self.item.of,
            what: &self.item.title,
            outcome: self.outcome(),
            unstated: self.item.unstated.as_deref(),
            origin: &self.origin,
            scenario: &self.item.scenario,
            same_runs: &self.same_runs,
            checks: &self.verdicts,
            unchecked: &self.item.unchecked,
        }
    }

    fn section(&self) -> String {
        let item = self.item;
        let mut text = format!("\n## {}: {}\n\n", item.of, item.title);
        if let Some(unstated) = &item.unstated {
            let _ = writeln!(
                text,
                "Nothing is stated that could be checked: {unstated}\n"
            );
        }
        if !item.note.is_empty() {
            let _ = writeln!(text, "{}\n", item.note);
        }
        match item.show {
            Show::Figure | Show::Points | Show::Matrix => {
                let _ = writeln!(text, "![{}]({}.svg)\n", item.of, item.id);
            }
            Show::Table => text += &markdown(item, &self.curves),
        }
        text += &self.stated();
        text += &self.unchecked();
        text += &self.others();
        text + &self.source()
    }

    /// What the paper states, with what is measured.
    fn stated(&self) -> String {
        let mut text = String::new();
        for verdict in &self.verdicts {
            let Basis::Stated(quote) = &verdict.basis else {
                continue;
            };
            if text.is_empty() {
                text += "| the paper states | where | looked at | expected | measured | |\n";
                text += "|---|---|---|---|---|---|\n";
            }
            let _ = writeln!(
                text,
                "| “{}” | {} | {} |",
                quote.words,
                quote.place,
                verdict.cells()
            );
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text
    }

    /// What the paper states and nothing here decides.
    fn unchecked(&self) -> String {
        let mut text = String::new();
        for Unchecked {
            place,
            words,
            because,
        } in &self.item.unchecked
        {
            let _ = writeln!(
                text,
                "Stated and not checked: “{words}” ({place}). {because}\n"
            );
        }
        text
    }

    /// What we ask beside it, and what was fitted.
    fn others(&self) -> String {
        let mut text = String::new();
        for verdict in &self.verdicts {
            let why = match &verdict.basis {
                Basis::Stated(_) => continue,
                Basis::Ours(why) => format!("ours: {why}"),
                Basis::Fitted(why) => format!("fitted: {why}"),
            };
            if text.is_empty() {
                text += "| not the paper's | looked at | expected | measured | |\n";
                text += "|---|---|---|---|---|\n";
            }
            let _ = writeln!(text, "| {why} | {} |", verdict.cells());
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text
    }

    /// Where the data are and what made them.
    fn source(&self) -> String {
        let Item { id, scenario, .. } = self.item;
        let Origin {
            size,
            settings_changed,
            made_by,
        } = &self.origin;
        let size = match size {
            Size::Quick => "reduced size",
            Size::Full => "full size",
        };
        let mut text = format!(
            "Data: [`{id}.csv`]({id}.csv), {size}, by {made_by}; scenario `{scenario}.toml`{}\n",
            if settings_changed.is_empty() {
                "."
            } else {
                ", with"
            }
        );
        for (path, value) in settings_changed {
            let _ = writeln!(text, "`{path} = {value}`");
        }
        if !self.same_runs.is_empty() {
            let others = self.same_runs.join(", ");
            let _ = writeln!(text, "The same runs decide {others}.");
        }
        text
    }
}

impl Verdict {
    /// What was looked at, expected and measured, and what came of it: four cells of a table.
    fn cells(&self) -> String {
        let (what, tolerance) = (&self.what, &self.tolerance);
        format!("{what} | {tolerance} | {} | {}", self.number(), self.word())
    }

    fn number(&self) -> String {
        let Some(measured) = self.measured else {
            return "nothing".to_owned();
        };
        let width = self.half_width.map(|width| format!(" ± {}", short(width)));
        format!(
            "{}{} ({})",
            short(measured),
            width.unwrap_or_default(),
            self.at
        )
    }

    /// What came of it, in words.
    pub fn word(&self) -> String {
        let word = match (&self.basis, self.pass) {
            _ if self.measured.is_none() => "**not measured**",
            (Basis::Fitted(_), true) => "as fitted",
            (Basis::Fitted(_), false) => "**not as fitted**",
            (_, true) => "holds",
            (_, false) => "**does not hold**",
        };
        let spread = if self.within_spread {
            ", within its spread"
        } else {
            ""
        };
        let reason = self.reason.as_ref().map(|reason| format!(": {reason}"));
        format!("{word}{spread}{}", reason.unwrap_or_default())
    }
}

/// Curves as rows and columns, one table for each panel.
fn markdown(item: &Item, curves: &Curves) -> String {
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
            names
                .iter()
                .map(|name| item.readable(name))
                .collect::<Vec<_>>()
                .join(" | "),
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
pub fn write(directory: &Path, book: &Book, done: &[Done<'_>]) -> Result<(), Failure> {
    let summary = Summary {
        dfcp_version: env!("CARGO_PKG_VERSION"),
        tally: Tally::of(done),
        items: done.iter().map(Done::entry).collect(),
    };
    store::write_atomically(&directory.join("summary.json"), |file| {
        serde_json::to_writer_pretty(&mut *file, &summary)?;
        Ok(file.write_all(b"\n")?)
    })?;
    let page = page(book, done);
    store::write_atomically(&directory.join("README.md"), |file| {
        Ok(file.write_all(page.as_bytes())?)
    })
}

/// The page about all items.
pub fn page(book: &Book, done: &[Done<'_>]) -> String {
    let mut text = format!(
        "# {}\n\nMade by `dfcp sim figures {}`; of what is run already, `--stored` makes this page \
         again. In short: {}.\n\nA statement of a paper stands with its words and their place, and \
         beside it what was looked at. How far a measurement may be off is our choice everywhere, \
         since the papers name no tolerances; both sides are bounded, except where a paper names \
         an order alone (\"faster\"). What we ask beyond the paper is marked ours. A fit is what a \
         parameter was chosen for, and no evidence. After ± stands half of the 95 % confidence \
         interval over seeds (Student's t), nothing for one run; what is nearer to its bound than \
         that is called within its spread, and other seeds might decide it otherwise.\n\n\
         | item | | stated | ours | |\n|---|---|---|---|---|\n",
        book.title,
        book.name,
        Tally::of(done)
    );
    for done in done {
        let item = done.item;
        let counted = |wanted: fn(&Basis) -> bool| {
            let own = || done.verdicts.iter().filter(|own| wanted(&own.basis));
            match own().count() {
                0 => "–".to_owned(),
                all => format!("{}/{all}", own().filter(|own| own.pass).count()),
            }
        };
        let word = match done.outcome() {
            Outcome::Holds => "holds",
            Outcome::Differs => "**differs**",
            Outcome::Unstated => "nothing stated",
        };
        let _ = writeln!(
            text,
            "| [{}](#{}) | {} | {} | {} | {word} |",
            item.of,
            anchor(&format!("{}: {}", item.of, item.title)),
            item.title,
            counted(Basis::is_stated),
            counted(|basis| matches!(basis, Basis::Ours(_))),
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
