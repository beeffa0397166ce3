//! The sweeps behind the items, and their results.
//!
//! Each scenario is swept as by `dfcp sim sweep`, with a journal, so that what is done is not done
//! again. A point that samples leaves its time series in a file of its own before it counts as
//! done.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dfcp_command::{Failure, Kind};
use indicatif::ProgressBar;

use super::Size;
use super::catalogue::{Catalogue, Entry};
use super::select::last_of_list;
use crate::sim::columns;
use crate::sim::engine::{self, Overrides, ScenarioStudy};
use crate::sim::plot::{Quantity, Unit};
use crate::sim::store::{self, Provenance};
use crate::sim::sweep::outputs::{self, Outputs};
use crate::sim::sweep::{self, PointResult, Request, Study};
use crate::sim::table::{Cell, Table};

/// What a scenario resulted in.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// A row for each flow of each run.
    pub flows: Table,
    /// A row for each link of each run.
    pub links: Table,
    /// A row for each flow or link and sample; no rows where nothing was sampled.
    pub series: Table,
    /// Names of the swept parameters.
    pub parameters: Vec<String>,
}

/// How scenarios are run.
#[derive(Clone, Debug)]
pub struct Runner<'a> {
    /// Names and texts of the scenario files.
    pub scenarios: &'a [(&'a str, &'a str)],
    /// How much of them.
    pub size: Size,
    /// How many seeds each point has, if not as many as its scenario says.
    pub seeds: Option<NonZeroU32>,
    /// Where results go.
    pub directory: PathBuf,
    /// Points at once.
    pub jobs: usize,
    /// Becomes true when the user has had enough.
    pub interrupted: Arc<AtomicBool>,
}

/// A sweep that keeps time series.
struct Recorded<S> {
    study: S,
    directory: PathBuf,
}

impl<S: Study> Study for Recorded<S> {
    fn provenance(&self) -> &Provenance {
        self.study.provenance()
    }

    fn run(&self, index: usize) -> Result<PointResult, Failure> {
        let result = self.study.run(index)?;
        if !result.report.series.is_empty() {
            let table = series(index, &self.provenance().parameters, &result);
            store::write(
                &self.directory.join(format!("{index}.parquet")),
                &table,
                None,
            )?;
        }
        Ok(result)
    }

    fn again(&self) -> BTreeSet<usize> {
        self.study.again()
    }
}

/// Time series of a point, with what comes before them in tables of results.
fn series(point: usize, parameters: &[String], result: &PointResult) -> Table {
    let series = columns::series_table(&result.report);
    let own = series.columns().to_vec();
    let mut table = Table::new(outputs::leading_columns(parameters, own));
    let seed = Cell::from(result.seed);
    for row in series.rows() {
        let mut cells = vec![Cell::from(point as u64)];
        cells.extend(result.parameters.iter().cloned());
        cells.push(seed.clone());
        cells.extend(row.iter().cloned());
        table.push(cells);
    }
    table
}

impl Runner<'_> {
    /// Settings of a scenario that these runs replace: paths and TOML values.
    pub fn settings(&self, entry: &Entry) -> BTreeMap<String, String> {
        let mut settings = entry.settings(self.size);
        if let Some(seeds) = self.seeds {
            settings.insert("sweep.seeds".to_owned(), format!("\"1..{seeds}\""));
        }
        settings
    }

    /// The sweep of a scenario.
    pub fn study(&self, entry: &Entry) -> Result<ScenarioStudy, Failure> {
        let name = &entry.name;
        let text = self.scenarios.iter().find(|(own, _)| own == name);
        let (_, text) = text.ok_or_else(|| Failure::usage(format!("no scenario {name}")))?;
        let overrides = Overrides {
            set: self.settings(entry).into_iter().collect(),
            ..Overrides::default()
        };
        let study = engine::study(text, &format!("{name}.toml"), &overrides)?;
        study.check(0..study.provenance().points)?;
        Ok(study)
    }

    /// The unit of a swept parameter, which its values carry; none where they are bare numbers.
    pub fn unit(&self, entry: &Entry, parameter: &str) -> Result<Option<Unit>, Failure> {
        let study = self.study(entry)?;
        let names = &study.provenance().parameters;
        let Some(place) = names.iter().position(|own| own == parameter) else {
            return Ok(None);
        };
        let cell = study.parameters(0)?.swap_remove(place);
        Ok(Quantity::of(&last_of_list(cell)).and_then(|quantity| quantity.unit))
    }

    /// Runs what is not done of the scenarios.
    pub fn run(
        &self,
        catalogue: &Catalogue,
        names: &[&str],
    ) -> Result<BTreeMap<String, Results>, Failure> {
        let entries = names.iter().filter_map(|name| catalogue.scenario(name));
        let studies: Result<Vec<_>, Failure> = entries
            .map(|entry| Ok((entry, self.study(entry)?)))
            .collect();
        let mut results = BTreeMap::new();
        for (entry, study) in studies? {
            results.insert(entry.name.clone(), self.sweep(entry, study)?);
        }
        Ok(results)
    }

    /// Runs what is not done of a scenario, as `study` does it.
    pub fn sweep(&self, entry: &Entry, study: impl Study) -> Result<Results, Failure> {
        let stem = self.directory.join(&entry.name);
        let recorded = Recorded {
            study,
            directory: stem.with_extension("series"),
        };
        let provenance = recorded.provenance().clone();
        let request = Request {
            outputs: Outputs::new(&stem)?,
            points: 0..provenance.points,
            jobs: self.jobs,
            interrupted: self.interrupted.clone(),
        };
        let series = recorded.directory.clone();
        let started = std::time::Instant::now();
        let outcome = sweep::execute(Arc::new(recorded), &request, &ProgressBar::hidden())?;
        let name = &entry.name;
        if let Some((point, failure)) = outcome.failed.first() {
            let message = format!("{name}, point {point}: {failure}");
            return Err(Failure::new(Kind::Failure, message));
        }
        if outcome.left > 0 {
            let message = "interrupted; run the same command again to go on";
            return Err(Failure::new(Kind::Interrupted, message));
        }
        eprintln!(
            "dfcp: {name}: {} of {} points run in {:.0} s",
            outcome.run,
            provenance.points,
            started.elapsed().as_secs_f64()
        );
        let outputs = &request.outputs;
        Ok(Results {
            flows: store::read(&outputs.flows("parquet"))?.table,
            links: store::read(&outputs.links("parquet"))?.table,
            series: read_series(&series, provenance.points)?,
            parameters: provenance.parameters,
        })
    }
}

fn read_series(directory: &Path, points: usize) -> Result<Table, Failure> {
    let mut all = Table::default();
    for point in 0..points {
        let file = directory.join(format!("{point}.parquet"));
        if file.exists() {
            all.append(store::read(&file)?.table);
        }
    }
    Ok(all)
}
