//! Data that a former run left: an item's curves out of its CSV, and how they came about out of
//! `summary.json`.
//!
//! So what the data show can be said anew, when a check has changed or been added, without another
//! hour of runs; and the pages in docs/reproduction follow from the data beside them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use dfcp_command::Failure;
use serde::{Deserialize, Serialize};

use super::Size;
use super::catalogue::Item;
use super::select::{self, Curves};
use crate::sim::plot::{Data, Estimate, Panel, Quantities, Sample, Scale, Unit};
use crate::sim::store;
use crate::sim::table::{Cell, Table};

/// How the data of an item came about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// How much was run.
    pub size: Size,
    /// Settings of the scenario that this size replaced, at the time.
    pub settings_changed: BTreeMap<String, String>,
    /// What ran it: a version, and where it matters a commit.
    pub made_by: String,
}

/// What is read again of `summary.json`.
#[derive(Debug, Deserialize)]
struct Summary {
    items: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    id: String,
    #[serde(flatten)]
    origin: Origin,
}

/// How the data of items in a directory came about, by item; empty where nothing was made yet.
pub fn origins(directory: &Path) -> Result<BTreeMap<String, Origin>, Failure> {
    let path = directory.join("summary.json");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(Failure::io(&path, error)),
    };
    let summary: Summary = serde_json::from_str(&text).map_err(|error| {
        let message = format!("{}: {error}; make the figures again", path.display());
        Failure::usage(message)
    })?;
    let pair = |entry: Entry| (entry.id, entry.origin);
    Ok(summary.items.into_iter().map(pair).collect())
}

/// The file of an item's curves; of those over another column than its own, if one is named.
pub fn file(directory: &Path, item: &Item, column: Option<&str>) -> PathBuf {
    let column = column.map_or_else(String::new, |column| format!("-{column}"));
    directory.join(format!("{}{column}.csv", item.id))
}

/// A row for each place of each curve: panel, curve, place, mean, half of its interval.
pub fn table(item: &Item, curves: &Curves, column: &str) -> Table {
    let panel = item.panels.as_ref();
    let panel = panel.map_or("panel", |panels| &panels.column);
    let width = format!("{column}_half_width");
    let mut table = Table::untyped([panel, "curve", &item.x.column, column, &width]);
    let data = &curves.data;
    for (panel, name) in data.panels.iter().zip(&curves.panels) {
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

/// Curves as [`table`] wrote them; `unit` is that of the horizontal axis, which CSV does not tell.
pub fn read(path: &Path, item: &Item, column: &str, unit: Option<Unit>) -> Result<Curves, Failure> {
    let table = store::read(path)?.table;
    if table.columns().len() != 5 {
        let message = format!("{}: no data of a figure: 5 columns wanted", path.display());
        return Err(Failure::usage(message));
    }
    let mut measured = Vec::new();
    for row in table.rows() {
        let [panel, curve, x, y, width] = row.as_slice() else {
            continue;
        };
        let curve = curve.to_string();
        // Formulas and the paper's numbers are put beside them again.
        if !select::is_beside(item, &curve) {
            measured.push((panel.to_string(), curve, x, y.number(), width.number()));
        }
    }
    let words = measured.iter().any(|(_, _, x, ..)| x.number().is_none());
    let (mut panels, mut names, mut categories) = (Vec::new(), Vec::new(), Vec::new());
    let index = |list: &mut Vec<String>, name: String| {
        let known = list.iter().position(|own| *own == name);
        known.unwrap_or_else(|| {
            list.push(name);
            list.len() - 1
        })
    };
    let mut points: Vec<(usize, usize, Sample)> = Vec::new();
    for (panel, curve, x, mean, half_width) in measured {
        let (panel, curve) = (index(&mut panels, panel), index(&mut names, curve));
        let at = match words {
            true => Some(index(&mut categories, x.to_string()) as f64),
            false => x.number(),
        };
        if let (Some(x), Some(mean)) = (at, mean) {
            let y = Estimate { mean, half_width };
            points.push((panel, curve, Sample { x, y }));
        }
    }
    let curve = |panel: usize, curve: usize| {
        let own = points.iter().filter(|(p, c, _)| (*p, *c) == (panel, curve));
        own.map(|(.., sample)| *sample).collect()
    };
    let shown = |panel: usize| Panel {
        title: None,
        curves: (0..names.len()).map(|name| curve(panel, name)).collect(),
    };
    let axis = |unit: Option<Unit>, categories: Vec<String>| Quantities {
        name: String::new(),
        unit: unit.unwrap_or(Unit::Count("")),
        scale: Scale::Linear,
        categories,
    };
    let data = Data {
        x: axis(unit, categories),
        y: axis(None, Vec::new()),
        panels: (0..panels.len()).map(shown).collect(),
        curves: names,
        warnings: Vec::new(),
    };
    Ok(select::finished(Curves { data, panels }, item, column))
}
