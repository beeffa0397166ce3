//! The files of a sweep, named after what `-o` says, and the manifest among them.
//!
//! `-o out.parquet`, `-o out.csv` and the stem `out` mean the same files: `out.csv`, `out.parquet`,
//! `out-links.csv`, `out-links.parquet`, `out.manifest.json` and `out.journal`. All but the journal
//! follow from scenario, version and points alone: no times, no names of machines.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use dfcp_command::Failure;
use serde::Serialize;

use crate::sim::columns;
use crate::sim::store::{self, Provenance};
use crate::sim::table::{Cell, Column, Table};

/// Name of the files in a directory.
const IN_DIRECTORY: &str = "sweep";

/// Where the files of a sweep are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outputs {
    stem: PathBuf,
}

impl Outputs {
    /// The files that `-o` names.
    pub fn new(named: &Path) -> Result<Self, Failure> {
        let is_directory = named.is_dir() || named.to_string_lossy().ends_with('/');
        let stem = match named.extension().and_then(|extension| extension.to_str()) {
            _ if is_directory => named.join(IN_DIRECTORY),
            Some("csv" | "parquet") => named.with_extension(""),
            None if named.file_name().is_some() => named.to_owned(),
            _ => {
                return Err(Failure::usage(format!(
                    "{}: name a .parquet or .csv file, or a directory",
                    named.display()
                )));
            }
        };
        Ok(Self { stem })
    }

    fn with(&self, suffix: &str) -> PathBuf {
        let mut name = self.stem.clone().into_os_string();
        name.push(suffix);
        name.into()
    }

    /// A row for each flow and point.
    pub fn flows(&self, extension: &str) -> PathBuf {
        self.with(&format!(".{extension}"))
    }

    /// A row for each link and point.
    pub fn links(&self, extension: &str) -> PathBuf {
        self.with(&format!("-links.{extension}"))
    }

    /// What was done.
    pub fn manifest(&self) -> PathBuf {
        self.with(".manifest.json")
    }

    /// The points that are done.
    pub fn journal(&self) -> PathBuf {
        self.with(".journal")
    }

    /// Writes tables and manifest.
    pub fn write(&self, results: &Results, provenance: &Provenance) -> Result<(), Failure> {
        for extension in ["csv", "parquet"] {
            store::write(&self.flows(extension), &results.flows, Some(provenance))?;
            if let Some(links) = &results.links {
                store::write(&self.links(extension), links, Some(provenance))?;
            }
        }
        store::write_atomically(&self.manifest(), |file| {
            serde_json::to_writer_pretty(&mut *file, &manifest(results, provenance))?;
            Ok(file.write_all(b"\n")?)
        })
    }
}

/// Tables of results, ordered by point.
#[derive(Clone, Debug)]
pub struct Results {
    /// A row for each flow and point.
    pub flows: Table,
    /// A row for each link and point; none where only flows are known.
    pub links: Option<Table>,
}

/// What comes before the figures in every row.
pub fn leading_columns(parameters: &[String], figures: Vec<Column>) -> Vec<Column> {
    let free = |name: &str| Column {
        name: name.to_owned(),
        kind: None,
    };
    let taken = |name: &str| figures.iter().any(|column| column.name == name);
    let mut columns = vec![free("point")];
    columns.extend(parameters.iter().map(|name| match taken(name) {
        true => free(&format!("parameter.{name}")),
        false => free(name),
    }));
    columns.push(free("seed"));
    columns.extend(figures);
    columns
}

impl Results {
    /// No rows yet, for a sweep over these parameters.
    pub fn new(parameters: &[String]) -> Self {
        let table = |figures| Table::new(leading_columns(parameters, figures));
        Self {
            flows: table(columns::flow_columns()),
            links: Some(table(columns::link_columns())),
        }
    }
}

/// Points in a table of results.
pub fn points(table: &Table) -> BTreeSet<usize> {
    let point = |row: &Vec<Cell>| match row.first() {
        Some(Cell::Integer(point)) => usize::try_from(*point).ok(),
        _ => None,
    };
    table.rows().iter().filter_map(point).collect()
}

/// `0..4, 7..8`.
pub fn ranges(points: &BTreeSet<usize>) -> Vec<String> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for &point in points {
        match ranges.last_mut() {
            Some(range) if range.end == point => range.end += 1,
            _ => ranges.push(point..point + 1),
        }
    }
    ranges.iter().map(|range| format!("{range:?}")).collect()
}

#[derive(Serialize)]
struct Manifest<'a> {
    #[serde(flatten)]
    provenance: &'a Provenance,
    complete: bool,
    points_done: Vec<String>,
    seeds: Vec<serde_json::Value>,
    rows: usize,
    link_rows: usize,
}

fn manifest<'a>(results: &Results, provenance: &'a Provenance) -> Manifest<'a> {
    let done = points(&results.flows);
    let mut seeds = Vec::new();
    if let Some(column) = results.flows.column("seed") {
        for row in results.flows.rows() {
            let seed = serde_json::to_value(&row[column]).unwrap_or_default();
            if !seeds.contains(&seed) {
                seeds.push(seed);
            }
        }
    }
    Manifest {
        provenance,
        complete: done.len() == provenance.points,
        points_done: ranges(&done),
        seeds,
        rows: results.flows.rows().len(),
        link_rows: results.links.as_ref().map_or(0, |links| links.rows().len()),
    }
}
