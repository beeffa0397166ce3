//! What is reproduced, as data: figures and tables of papers, the scenarios they come from, what
//! must hold of them, and why some of it does not.
//!
//! A catalogue is TOML, in as many parts as is handy, and belongs to the program together with its
//! scenarios. Numbers are in base units: seconds, bits a second, shares of one.

use std::collections::{BTreeMap, BTreeSet};

use dfcp_command::Failure;
use serde::Deserialize;

use super::statement::{Check, Unchecked};
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
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// Its name here, such as `fig-11`.
    pub id: String,
    /// Its name in the paper.
    pub of: String,
    /// What it shows.
    pub title: String,
    /// What the paper has of it where it states nothing that could be checked.
    #[serde(default)]
    pub unstated: Option<String>,
    /// What the paper states and no check decides.
    #[serde(default)]
    pub unchecked: Vec<Unchecked>,
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
    /// Columns whose values split each curve, such as `flow`. Where the panels are the curves'
    /// titles, these values alone are names.
    #[serde(default)]
    pub split: Vec<String>,
    /// What readers call the values that curves and panels are named by, such as `wfq`.
    #[serde(default)]
    pub names: BTreeMap<String, String>,
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
    #[serde(default, rename = "check")]
    pub checks: Vec<Check>,
}

/// How an item is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Show {
    /// Curves.
    #[default]
    Figure,
    /// Curves of which no line joins the points, since what is next to each other along the axis has
    /// nothing else in common.
    Points,
    /// Rows and columns.
    Table,
    /// Shares of one as coloured squares: curves are rows, the names along the horizontal axis
    /// columns.
    Matrix,
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
    /// Whether the values are shares of one, shown as per cent.
    #[serde(default)]
    pub share: bool,
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
    /// Width of the bins in which values are put together; each stands at its middle.
    #[serde(default)]
    pub bin: Option<f64>,
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
            let stated = item.checks.iter().any(|check| check.basis.is_stated());
            match &item.unstated {
                None if !stated && item.unchecked.is_empty() => {
                    return Some(format!(
                        "{id}: neither what the paper states, nor that it does not"
                    ));
                }
                Some(_) if stated => {
                    return Some(format!("{id}: what is stated is said not to be"));
                }
                _ => {}
            }
            let fault = |check: &Check| Some(format!("{id}: {}: {}", check.what, check.fault()?));
            if let Some(fault) = item.checks.iter().find_map(fault) {
                return Some(fault);
            }
        }
        self.reasons
            .iter()
            .find_map(|reason| self.misplaced(reason))
    }

    /// Which item or check a reason is for that is not there.
    fn misplaced(&self, reason: &Reason) -> Option<String> {
        for id in &reason.items {
            let Some(item) = self.items.iter().find(|item| item.id == *id) else {
                return Some(format!("a reason is for {id}, which is no item"));
            };
            let named = |what: &String| item.checks.iter().any(|check| check.what == *what);
            if let Some(what) = reason.check.as_ref().filter(|what| !named(what)) {
                return Some(format!("a reason is for {id}: {what}, which is no check"));
            }
        }
        None
    }

    /// Other items that the same runs decide.
    pub fn same_runs<'a>(&'a self, item: &'a Item) -> impl Iterator<Item = &'a Item> {
        let others = self.items.iter();
        others.filter(|other| other.id != item.id && other.scenario == item.scenario)
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

impl Item {
    /// A curve's name for readers: each of its parts by its own name.
    pub fn readable(&self, curve: &str) -> String {
        if let Some(name) = self.names.get(curve) {
            return name.clone();
        }
        let parts = curve.split(", ").map(|part| match self.names.get(part) {
            Some(name) => name.clone(),
            // Flows of one kind are counted by the simulator: flow-1, flow-2.
            None => part.replace("flow-", "flow "),
        });
        parts.collect::<Vec<_>>().join(", ")
    }

    /// Columns beside its own that its checks look at, each once.
    pub fn other_columns(&self) -> BTreeSet<&str> {
        let columns = self.checks.iter().filter_map(|check| check.y.as_deref());
        columns.collect()
    }
}

impl Entry {
    /// Settings that runs of a size replace: paths and TOML values.
    pub fn settings(&self, size: super::Size) -> BTreeMap<String, String> {
        let quick = self.quick.iter().filter(|_| size == super::Size::Quick);
        let setting =
            |(path, value): (&String, &serde_json::Value)| (path.clone(), inline_toml(value));
        quick.map(setting).collect()
    }
}

/// A value as TOML writes it on one line.
fn inline_toml(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Array(all) => {
            let all: Vec<_> = all.iter().map(inline_toml).collect();
            format!("[{}]", all.join(","))
        }
        Value::Object(all) => {
            let pair = |(key, value): (&String, &Value)| format!("{key} = {}", inline_toml(value));
            let all: Vec<_> = all.iter().map(pair).collect();
            format!("{{ {} }}", all.join(", "))
        }
        // What JSON writes of numbers, strings and truth values is TOML too.
        single => single.to_string(),
    }
}
