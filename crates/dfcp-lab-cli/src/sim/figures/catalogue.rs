//! What is reproduced, as data: figures and tables of papers, the scenarios they come from, what
//! must hold of them, and why some of it does not.
//!
//! A catalogue is TOML, in as many parts as is handy, and belongs to the program together with its
//! scenarios. Numbers are in base units: seconds, bits a second, shares of one.

use std::collections::{BTreeMap, BTreeSet};

use dfcp_command::Failure;
use serde::Deserialize;

use crate::sim::plot::{Combine, Typical};

/// A catalogue.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// The scenarios.
    #[serde(default, rename = "scenario")]
    pub scenarios: Vec<Entry>,
    /// Figures and tables, in the order of the papers.
    #[serde(default, rename = "item")]
    pub items: Vec<Item>,
    /// Why checks fail.
    #[serde(default, rename = "reason")]
    pub reasons: Vec<Reason>,
}

/// A scenario file, which has the papers' parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its name, without `.toml`.
    pub name: String,
    /// Settings of a quick run: dotted paths and values.
    #[serde(default)]
    pub quick: BTreeMap<String, serde_json::Value>,
}

/// A figure or a table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// Its name here, such as `fig-11`.
    pub id: String,
    /// Its name in the paper.
    pub of: String,
    /// What it shows.
    pub title: String,
    /// What the paper says of it.
    pub paper: String,
    /// What was chosen where the paper is silent, and what to know before comparing.
    #[serde(default)]
    pub note: String,
    /// Where its data come from.
    pub scenario: String,
    /// How it is shown.
    #[serde(default)]
    pub show: Show,
    /// Which of the scenario's results.
    #[serde(default)]
    pub source: Source,
    /// Columns and the values that rows must have there.
    #[serde(default)]
    pub only: BTreeMap<String, Vec<String>>,
    /// Titles of the runs that are its curves, in this order.
    pub curves: Vec<String>,
    /// Column whose values split each curve, such as `flow`. Where the panels are the curves'
    /// titles, these values alone are names.
    #[serde(default)]
    pub split: Option<String>,
    /// What its panels are.
    #[serde(default)]
    pub panels: Option<Panels>,
    /// The horizontal axis; of a table the rows.
    pub x: XAxis,
    /// The vertical axis; of a table the cells.
    pub y: YAxis,
    /// Share of the link's rate that is payload, for each curve: what `share_of_maximum` divides
    /// by.
    #[serde(default)]
    pub efficiency: BTreeMap<String, f64>,
    /// Curves that follow from a formula.
    #[serde(default)]
    pub theory: Vec<Theory>,
    /// Numbers that the paper prints.
    #[serde(default)]
    pub given: Vec<Given>,
    /// What must hold.
    #[serde(rename = "check")]
    pub checks: Vec<Check>,
}

/// How an item is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Show {
    /// Curves.
    #[default]
    Figure,
    /// Rows and columns.
    Table,
}

/// Tables that a scenario results in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A row for each flow of each run.
    #[default]
    Flows,
    /// A row for each link of each run.
    Links,
    /// A row for each flow or link and sample.
    Series,
}

/// Panels.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Panels {
    /// Column whose values they are.
    pub column: String,
    /// What stands before the value, with a space at its end.
    pub label: String,
}

/// The horizontal axis.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct XAxis {
    /// A column; of a list, such as one round-trip time for each pair, the last value counts. With
    /// `title`, each curve is a place along the axis, counted from 0; with `rank` each value is, the
    /// least of a run first.
    pub column: String,
    /// Its name.
    pub label: String,
    /// Whether it is logarithmic.
    #[serde(default)]
    pub log: bool,
    /// Its unit, where neither values nor the column's name tell.
    #[serde(default)]
    pub unit: Option<UnitName>,
    /// What numbers are multiplied with.
    #[serde(default)]
    pub factor: Option<f64>,
}

/// The vertical axis.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct YAxis {
    /// A column, or a figure of [`select::derived`](super::select::derived).
    pub column: String,
    /// Its name.
    pub label: String,
    /// Whether it is logarithmic.
    #[serde(default)]
    pub log: bool,
    /// Its unit, where the column's name does not tell.
    #[serde(default)]
    pub unit: Option<UnitName>,
    /// How the flows of a run become one number.
    #[serde(default)]
    pub combine: Combine,
    /// How runs become one point.
    #[serde(default)]
    pub typical: Typical,
    /// Length of a moving average along the horizontal axis.
    #[serde(default)]
    pub average: Option<f64>,
    /// What becomes of the means.
    #[serde(default)]
    pub change: Option<Change>,
}

/// Units of axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnitName {
    /// Per cent.
    Share,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// A bare number.
    Number,
}

/// What becomes of the means of a curve.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Share of the curve's greatest.
    OfBest,
    /// Share of the curve's first value that is lost.
    LostOfFirst,
    /// Over another curve.
    Over(String),
    /// Running total, each value times the distance to the value before: a rate becomes an amount.
    Total,
}

/// Formulas along the horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Theory {
    /// Goodput over redundancy: DFCP-J eq. (2) for one flow, less headers and framing.
    GoodputOfRedundancy,
    /// The same with whole packets in each block.
    GoodputOfWholePackets,
    /// Share of the goodput that redundancy costs, ε / (1 + ε).
    CostOfRedundancy,
    /// Goodput over loss of a code that wastes nothing but what is lost.
    GoodputOfLoss,
    /// Efficiency over loss of TCP on the testbed of CTCP §6.2, √(1.5/p) packets a round trip.
    PadhyeOfLoss,
    /// Efficiency over loss of blocks of 32 with ⌊32/(1−p)⌋ packets each: CTCP eq. (7).
    CodedOfLoss,
}

/// Numbers that a paper prints.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Given {
    /// What the legend calls them.
    pub name: String,
    /// The panel they belong to; the only one if none.
    #[serde(default)]
    pub panel: Option<String>,
    /// Pairs.
    pub points: Vec<(f64, f64)>,
}

/// A statement about curves: numbers are taken from them, and all must lie within bounds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// In words.
    pub what: String,
    /// The curves; each must hold.
    pub curves: Vec<String>,
    /// Values are divided by this curve's.
    #[serde(default)]
    pub over: Option<String>,
    /// This curve's values are subtracted.
    #[serde(default)]
    pub minus: Option<String>,
    /// Only in this panel.
    #[serde(default)]
    pub panel: Option<String>,
    /// Only there.
    #[serde(default)]
    pub x: Option<f64>,
    /// Only from there on.
    #[serde(default)]
    pub from: Option<f64>,
    /// Only up to there.
    #[serde(default)]
    pub to: Option<f64>,
    /// Another column than the item's vertical axis.
    #[serde(default)]
    pub y: Option<String>,
    /// Which numbers.
    #[serde(default)]
    pub take: Take,
    /// What they should be.
    #[serde(default)]
    pub expect: Option<f64>,
    /// How far off they may be, as a share of what is expected.
    #[serde(default)]
    pub within: Option<f64>,
    /// How far off they may be, as a difference.
    #[serde(default)]
    pub within_difference: Option<f64>,
    /// The least they may be.
    #[serde(default)]
    pub at_least: Option<f64>,
    /// The most they may be.
    #[serde(default)]
    pub at_most: Option<f64>,
}

/// Numbers taken from a curve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Take {
    /// Every value.
    #[default]
    Each,
    /// The mean.
    Mean,
    /// The greatest.
    Greatest,
    /// The greatest over the least.
    Spread,
    /// The greatest rise from one value to the next, as a share of the former; 0 if it falls.
    Rise,
    /// The greatest fall likewise.
    Fall,
}

/// Why a check fails, written by people.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// Items.
    pub items: Vec<String>,
    /// What the check says; any of the items' checks if none.
    #[serde(default)]
    pub check: Option<String>,
    /// Only in runs of this size.
    #[serde(default)]
    pub size: Option<super::Size>,
    /// Why.
    pub because: String,
}

impl Catalogue {
    /// Reads the parts of a catalogue and checks that they fit together.
    pub fn read(parts: &[(&str, &str)]) -> Result<Self, Failure> {
        let mut all = Self::default();
        for (name, text) in parts {
            let part: Self =
                toml::from_str(text).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
            all.scenarios.extend(part.scenarios);
            all.items.extend(part.items);
            all.reasons.extend(part.reasons);
        }
        match all.fault() {
            None => Ok(all),
            Some(fault) => Err(Failure::usage(fault)),
        }
    }

    /// What does not fit together.
    fn fault(&self) -> Option<String> {
        let mut seen = BTreeSet::new();
        for item in &self.items {
            let id = &item.id;
            if !seen.insert(id) {
                return Some(format!("{id} is there twice"));
            }
            if self.scenario(&item.scenario).is_none() {
                return Some(format!("{id}: no scenario {}", item.scenario));
            }
            if item.checks.is_empty() {
                return Some(format!("{id} expects nothing"));
            }
            if let Some(check) = item.checks.iter().find(|check| !check.is_bounded()) {
                return Some(format!("{id}: {}: no bound", check.what));
            }
        }
        let mut named = self.reasons.iter().flat_map(|reason| &reason.items);
        let unknown = named.find(|id| !seen.contains(id))?;
        Some(format!("a reason is for {unknown}, which is no item"))
    }

    /// A scenario by its name.
    pub fn scenario(&self, name: &str) -> Option<&Entry> {
        self.scenarios.iter().find(|entry| entry.name == name)
    }

    /// Why a check fails, if somebody found out.
    pub fn reason(&self, item: &str, check: &str, size: super::Size) -> Option<&str> {
        let applies = |reason: &&Reason| {
            reason.items.iter().any(|id| id == item)
                && reason.check.as_deref().is_none_or(|what| what == check)
                && reason.size.is_none_or(|only| only == size)
        };
        let reason = self.reasons.iter().find(applies)?;
        Some(&reason.because)
    }
}

impl Entry {
    /// Settings that runs of a size replace: paths and TOML values.
    pub fn settings(&self, size: super::Size) -> Vec<(String, String)> {
        let quick = self.quick.iter().filter(|_| size == super::Size::Quick);
        // What JSON writes of numbers, strings and lists is TOML too.
        let setting =
            |(path, value): (&String, &serde_json::Value)| (path.clone(), value.to_string());
        quick.map(setting).collect()
    }
}

impl Check {
    fn is_bounded(&self) -> bool {
        let tolerance = self.within.or(self.within_difference);
        match self.expect {
            Some(_) => tolerance.is_some(),
            None => self.at_least.or(self.at_most).is_some(),
        }
    }
}
