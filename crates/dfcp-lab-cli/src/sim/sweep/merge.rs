//! `dfcp sim merge`: parts of a sweep, run apart, put together.
//!
//! Parts belong together if their Parquet files carry the same provenance. A point that two parts
//! hold must be the same in both: the simulator is deterministic, so anything else is a mistake.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use dfcp_command::{Failure, Kind};

use super::outputs::{self, Outputs, Results};
use crate::sim::store::{self, Provenance};
use crate::sim::table::{Cell, Table};

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Parquet files of `dfcp sim sweep --points`
    #[arg(required = true, value_name = "PART.parquet")]
    parts: Vec<PathBuf>,
    /// Results: OUT.parquet, OUT.csv or a directory
    #[arg(short, long, value_name = "OUT")]
    out: PathBuf,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    let merge = || {
        let outputs = Outputs::new(&args.out)?;
        let provenance = merge(&args.parts, &outputs)?;
        eprintln!(
            "dfcp: {} of {} points: {}",
            provenance.1,
            provenance.0.points,
            outputs.flows("parquet").display()
        );
        Ok(())
    };
    match merge() {
        Ok(()) => ExitCode::SUCCESS,
        Err::<_, Failure>(failure) => dfcp_command::fail(&failure),
    }
}

/// Puts parts together; their common provenance, and how many points they hold.
pub fn merge(parts: &[PathBuf], outputs: &Outputs) -> Result<(Provenance, usize), Failure> {
    let mut flows = Joined::default();
    let mut links = Joined::default();
    for part in parts {
        flows.add(part)?;
        let beside = Outputs::new(part)?.links("parquet");
        match beside.exists() {
            true => links.add(&beside)?,
            false => links.missing = Some(beside),
        }
    }
    let links = match (links.table, links.missing) {
        (Some(_), Some(missing)) => {
            return Err(Failure::new(
                Kind::LocalIo,
                format!("{}: not found, but other parts have one", missing.display()),
            ));
        }
        (table, _) => table,
    };
    let (Some(provenance), Some(flows)) = (flows.provenance, flows.table) else {
        return Err(Failure::usage("no parts to merge"));
    };
    let results = Results { flows, links };
    outputs.write(&results, &provenance)?;
    let points = outputs::points(&results.flows).len();
    Ok((provenance, points))
}

#[derive(Default)]
struct Joined {
    provenance: Option<Provenance>,
    table: Option<Table>,
    missing: Option<PathBuf>,
}

impl Joined {
    fn add(&mut self, path: &Path) -> Result<(), Failure> {
        let stored = store::read(path)?;
        let wrong = |what: &str| {
            let path = path.display();
            Failure::usage(format!("{path}: {what}"))
        };
        let provenance = stored.provenance.ok_or_else(|| {
            wrong("does not say which scenario it is of; merge the Parquet files of dfcp sim sweep")
        })?;
        match &self.provenance {
            Some(first) if *first != provenance => {
                return Err(wrong(
                    "of another scenario, or another version of dfcp, than the first part",
                ));
            }
            _ => self.provenance = Some(provenance),
        }
        let Some(table) = &mut self.table else {
            self.table = Some(stored.table);
            return Ok(());
        };
        let mut new = stored.table;
        let both: BTreeSet<_> = outputs::points(table)
            .intersection(&outputs::points(&new))
            .copied()
            .collect();
        for &point in &both {
            if !rows_of(table, point).eq(rows_of(&new, point)) {
                return Err(wrong(&format!(
                    "point {point} differs from that of another part"
                )));
            }
        }
        new.retain(|row| point_of(row).is_none_or(|point| !both.contains(&point)));
        table.append(new);
        table.sort_by_integer(0);
        Ok(())
    }
}

fn point_of(row: &[Cell]) -> Option<usize> {
    match row.first() {
        Some(Cell::Integer(point)) => usize::try_from(*point).ok(),
        _ => None,
    }
}

/// The rows of a point as they print, which is independent of the columns' kinds.
fn rows_of(table: &Table, point: usize) -> impl Iterator<Item = Vec<String>> {
    let rows = table.rows().iter();
    rows.filter(move |row| point_of(row) == Some(point))
        .map(|row| row.iter().map(ToString::to_string).collect())
}
