//! From rows to curves: which rows, grouped how, and what a point of a curve is.
//!
//! A run is one point of a sweep, or one file of a single run. The flows of a run are not
//! independent, so they are combined first; mean and confidence interval are over runs.

use std::collections::BTreeMap;

use dfcp_command::Failure;

use super::axis::{Quantities, Scale};
use super::quantity::{self, Quantity, Unit};
use super::stats::Estimate;
use crate::sim::table::{Cell, Table};

/// Name of the column that tells files apart; tables of results have no such column.
pub const FILE: &str = "file";

/// How the flows of one run become one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Combine {
    /// Their mean
    #[default]
    Mean,
    /// Their sum
    Sum,
    /// The least of them
    Min,
    /// The greatest of them
    Max,
}

impl Combine {
    fn of(self, values: &[f64]) -> f64 {
        let sum = values.iter().sum::<f64>();
        match self {
            Self::Mean => sum / values.len() as f64,
            Self::Sum => sum,
            Self::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
            Self::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// How runs become one point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Typical {
    /// Their mean, with a confidence interval.
    #[default]
    Mean,
    /// Their median.
    Median,
}

/// What to plot; anything left out has a default that depends on the data.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Column along the horizontal axis.
    pub x: Option<String>,
    /// Column along the vertical axis.
    pub y: Option<String>,
    /// Column whose values are curves.
    pub by: Option<String>,
    /// Column whose values are panels.
    pub facet: Option<String>,
    /// Columns and the value that rows must have there.
    pub only: Vec<(String, String)>,
    /// Names of swept parameters, where known.
    pub parameters: Vec<String>,
    /// How the flows of a run become one number.
    pub combine: Combine,
    /// How runs become one point.
    pub typical: Typical,
    /// Length of a moving average along the horizontal axis, in its base unit.
    pub window: Option<f64>,
}

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Where along the horizontal axis.
    pub x: f64,
    /// How high.
    pub y: Estimate,
}

/// Curves of one panel.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// What is special about it; none for a single panel.
    pub title: Option<String>,
    /// For each curve of the figure, its points in this panel by ascending x.
    pub curves: Vec<Vec<Sample>>,
}

/// What a figure shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    /// The horizontal axis.
    pub x: Quantities,
    /// The vertical axis.
    pub y: Quantities,
    /// Names of the curves.
    pub curves: Vec<String>,
    /// The panels.
    pub panels: Vec<Panel>,
    /// What the reader ought to know.
    pub warnings: Vec<String>,
}

/// Columns that a query names or implies.
struct Columns {
    x: usize,
    y: usize,
    by: Option<usize>,
    facet: Option<usize>,
}

/// Selects and groups rows.
pub fn select(mut table: Table, query: &Query) -> Result<Data, Failure> {
    for (name, value) in &query.only {
        let column = find(&table, name)?;
        table.retain(|row| row[column].to_string() == *value);
        if table.rows().is_empty() {
            return Err(Failure::usage(format!("no row has {value:?} in {name}")));
        }
    }
    let columns = choose(&table, query)?;
    let warnings = unused_parameters(&table, query, &columns);
    let x = axis(&table, columns.x);
    let y = axis(&table, columns.y);
    if !y.categories.is_empty() {
        let name = &table.columns()[columns.y].name;
        return Err(Failure::usage(format!("{name} holds words, not numbers")));
    }
    if table.columns()[columns.x].name == "time_s" {
        // Time series of links and flows lie in one table, each with values in columns of its own.
        table.retain(|row| row[columns.y] != Cell::Missing);
    }
    let names = |column: Option<usize>| match column {
        Some(column) => distinct(&table, column),
        None => vec![Cell::Missing],
    };
    let (curves, facets) = (names(columns.by), names(columns.facet));
    let runs = runs(&table);
    let mut panels = Vec::new();
    for facet in &facets {
        let mut panel = Panel {
            title: columns.facet.map(|column| {
                let name = quantity::label(&table.columns()[column].name);
                format!("{name}: {facet}")
            }),
            curves: Vec::new(),
        };
        for curve in &curves {
            let mut groups = Groups::default();
            for (row, run) in table.rows().iter().zip(&runs) {
                let is =
                    |column: Option<usize>, cell: &Cell| column.is_none_or(|c| row[c] == *cell);
                let place = place(&row[columns.x], &x.categories);
                let value = Quantity::of(&row[columns.y]);
                if let (Some(at), Some(value)) = (place, value)
                    && is(columns.by, curve)
                    && is(columns.facet, facet)
                {
                    groups.add(at, *run, value.value);
                }
            }
            panel.curves.push(groups.samples(query));
        }
        panels.push(panel);
    }
    if panels
        .iter()
        .all(|panel| panel.curves.iter().all(Vec::is_empty))
    {
        let name = &table.columns()[columns.y].name;
        return Err(Failure::usage(format!("{name} has no value in any row")));
    }
    // One curve needs no legend.
    let curves = match curves.len() {
        1 => Vec::new(),
        _ => curves.iter().map(ToString::to_string).collect(),
    };
    Ok(Data {
        x,
        y,
        curves,
        panels,
        warnings,
    })
}

/// Values of one curve, by place and run.
#[derive(Default)]
struct Groups(BTreeMap<Ordered, BTreeMap<Run, Vec<f64>>>);

/// File and point.
type Run = (usize, i64);

/// A finite float that can be a key.
#[derive(Clone, Copy, PartialEq)]
struct Ordered(f64);

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Groups {
    fn add(&mut self, at: f64, run: Run, value: f64) {
        // Negative and positive zero are one place.
        let runs = self.0.entry(Ordered(at + 0.0)).or_default();
        runs.entry(run).or_default().push(value);
    }

    fn samples(&self, query: &Query) -> Vec<Sample> {
        // Each run's values along the axis, averaged over the window before runs are compared.
        let mut by_run: BTreeMap<Run, Vec<(f64, f64)>> = BTreeMap::new();
        for (at, runs) in &self.0 {
            for (run, values) in runs {
                let combined = query.combine.of(values);
                by_run.entry(*run).or_default().push((at.0, combined));
            }
        }
        let mut by_place: BTreeMap<Ordered, Vec<f64>> = BTreeMap::new();
        for points in by_run.into_values() {
            let points = match query.window {
                Some(window) => moving_average(&points, window),
                None => points,
            };
            for (at, value) in points {
                by_place.entry(Ordered(at)).or_default().push(value);
            }
        }
        let sample = |(at, values): (Ordered, Vec<f64>)| {
            let y = match query.typical {
                Typical::Mean => Estimate::of(&values)?,
                Typical::Median => Estimate::median(&values)?,
            };
            Some(Sample { x: at.0, y })
        };
        by_place.into_iter().filter_map(sample).collect()
    }
}

/// Each value becomes the mean of those within `window` up to and with it.
fn moving_average(points: &[(f64, f64)], window: f64) -> Vec<(f64, f64)> {
    let (mut first, mut sum) = (0, 0.0);
    let mut averaged = Vec::with_capacity(points.len());
    for (index, (at, value)) in points.iter().enumerate() {
        sum += value;
        // Multiples of an interval are not exact.
        while points[first].0 <= at - window * (1.0 - 1e-9) && first < index {
            sum -= points[first].1;
            first += 1;
        }
        averaged.push((*at, sum / (index + 1 - first) as f64));
    }
    averaged
}

/// Which run each row is of.
fn runs(table: &Table) -> Vec<Run> {
    let (file, point) = (table.column(FILE), table.column("point"));
    let files = file.map_or_else(Vec::new, |column| distinct(table, column));
    let run = |row: &Vec<Cell>| {
        let file = file.and_then(|column| files.iter().position(|cell| *cell == row[column]));
        let point = match point.map(|column| &row[column]) {
            Some(Cell::Integer(point)) => *point,
            _ => 0,
        };
        (file.unwrap_or(0), point)
    };
    table.rows().iter().map(run).collect()
}

/// A column by its name, or which there are.
fn find(table: &Table, name: &str) -> Result<usize, Failure> {
    table.column(name).ok_or_else(|| {
        let names = table.columns().iter().map(|column| column.name.as_str());
        let names: Vec<_> = names.filter(|name| *name != FILE).collect();
        Failure::usage(format!(
            "no column {name:?}; there are {}",
            names.join(", ")
        ))
    })
}

/// The columns to use: those named, else what most figures want.
fn choose(table: &Table, query: &Query) -> Result<Columns, Failure> {
    let named = |name: &Option<String>| match name {
        Some(name) => find(table, name).map(Some),
        None => Ok(None),
    };
    let parameters = query.parameters.iter();
    let parameters: Vec<_> = parameters.filter_map(|name| table.column(name)).collect();
    let first = |names: &[&str]| names.iter().find_map(|name| table.column(name));
    let x = match named(&query.x)? {
        Some(x) => x,
        None => {
            // A protocol may be swept too, but makes a better curve than an axis.
            let mut numbers = parameters.iter().copied();
            let number = numbers.find(|column| axis(table, *column).categories.is_empty());
            let default = number.or(parameters.first().copied());
            let default = default.or_else(|| first(&["time_s"]));
            default.ok_or_else(|| {
                Failure::usage("nothing was swept here: name the horizontal axis with --x COLUMN")
            })?
        }
    };
    let y = match named(&query.y)? {
        Some(y) => y,
        None => first(&["goodput_bps", "utilisation"]).ok_or_else(|| {
            Failure::usage("no goodput here: name the vertical axis with --y COLUMN")
        })?,
    };
    let facet = named(&query.facet)?;
    let free = |column: usize| column != x && column != y && Some(column) != facet;
    let varies = |column: &usize| distinct(table, *column).len() > 1;
    let by = match named(&query.by)? {
        Some(by) => Some(by),
        None => {
            // What varies beside x makes the curves; else what flows and links are called.
            let kinds = ["protocol", "link", "name"];
            let kinds = kinds.iter().filter_map(|name| table.column(name));
            let kinds: Vec<_> = kinds.filter(|column| free(*column)).collect();
            let varying = kinds.iter().chain(&parameters).copied();
            let mut varying = varying.filter(|column| free(*column)).filter(varies);
            varying.next().or(kinds.first().copied())
        }
    };
    Ok(Columns { x, y, by, facet })
}

/// Parameters that vary but are on no axis: their runs would be averaged in silence.
fn unused_parameters(table: &Table, query: &Query, columns: &Columns) -> Vec<String> {
    let used = [Some(columns.x), columns.by, columns.facet];
    let used: Vec<_> = used.into_iter().flatten().collect();
    let parameters = query.parameters.iter();
    let unused = parameters.filter_map(|name| {
        let column = table.column(name)?;
        let count = distinct(table, column).len();
        let silent = !used.contains(&column) && count > 1 && !follows(table, column, &used);
        silent.then(|| {
            format!(
                "averaged over {count} values of {name}; separate them with --by, --facet or --only"
            )
        })
    });
    unused.collect()
}

/// Whether the values of a column follow from those of others, as coupled parameters do.
fn follows(table: &Table, column: usize, others: &[usize]) -> bool {
    let mut seen: BTreeMap<Vec<String>, &Cell> = BTreeMap::new();
    table.rows().iter().all(|row| {
        let key = others.iter().map(|&other| row[other].to_string()).collect();
        *seen.entry(key).or_insert(&row[column]) == &row[column]
    })
}

/// The values of a column, each once; numbers ascending, words as they come.
fn distinct(table: &Table, column: usize) -> Vec<Cell> {
    let mut seen = BTreeMap::new();
    for row in table.rows() {
        let count = seen.len();
        seen.entry(row[column].to_string())
            .or_insert((count, row[column].clone()));
    }
    let mut values: Vec<_> = seen.into_values().collect();
    values.sort_by_key(|(order, _)| *order);
    let mut values: Vec<_> = values.into_iter().map(|(_, cell)| cell).collect();
    if values.iter().all(|cell| Quantity::of(cell).is_some()) {
        let value = |cell: &Cell| Quantity::of(cell).map_or(0.0, |quantity| quantity.value);
        values.sort_by(|a, b| value(a).total_cmp(&value(b)));
    }
    values
}

/// What an axis along a column shows.
fn axis(table: &Table, column: usize) -> Quantities {
    let name = &table.columns()[column].name;
    let cells = table.rows().iter().map(|row| &row[column]);
    let known = cells.filter(|cell| **cell != Cell::Missing);
    let quantities: Option<Vec<_>> = known.map(Quantity::of).collect();
    let units: Option<Vec<Option<Unit>>> =
        quantities.map(|all| all.iter().map(|quantity| quantity.unit).collect());
    // Numbers of one unit; anything else is names.
    let uniform = units.filter(|units| units.windows(2).all(|pair| pair[0] == pair[1]));
    let categories = match uniform {
        Some(_) => Vec::new(),
        None => distinct(table, column)
            .iter()
            .map(ToString::to_string)
            .collect(),
    };
    let unit = uniform.and_then(|units| units.first().copied().flatten());
    Quantities {
        name: quantity::label(name),
        unit: unit.unwrap_or_else(|| Unit::of_column(name)),
        scale: Scale::Linear,
        categories,
    }
}

/// Where a cell lies along an axis.
fn place(cell: &Cell, categories: &[String]) -> Option<f64> {
    match categories.is_empty() {
        true => Quantity::of(cell).map(|quantity| quantity.value),
        false => {
            let text = cell.to_string();
            let index = categories.iter().position(|name| *name == text);
            index.map(|index| index as f64)
        }
    }
}
