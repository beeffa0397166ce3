//! The one place where the program meets the simulator: scenario files in, reports out.

use std::ops::Range;
use std::path::Path;

use dfcp_proto::Instant;
use dfcp_sim::engine::Observer;
use dfcp_sim::report::RunReport;
use dfcp_sim::scenario::{Document, Parameter, Scenario, ScenarioError, Sweep};

use super::store::Provenance;
use super::sweep::{PointResult, Study};
use super::table::Cell;
use crate::failure::{Failure, Kind};

/// Runs a scenario; `observer` sees every packet, `progress` hears of the simulated time reached.
pub fn simulate(
    scenario: &Scenario,
    observer: Option<Observer>,
    progress: &mut dyn FnMut(Instant),
) -> Result<RunReport, Failure> {
    dfcp_sim::run_observed(scenario, observer, progress)
        .map_err(|error| Failure::new(Kind::Failure, error.to_string()))
}

/// Settings of a scenario that the command line replaces.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The seed.
    pub seed: Option<u64>,
    /// Dotted paths and TOML values.
    pub set: Vec<(String, String)>,
}

impl From<ScenarioError> for Failure {
    fn from(error: ScenarioError) -> Self {
        Self::usage(error.to_string())
    }
}

/// Reads a scenario and the traces that it names, which lie beside it.
fn document(file: &Path, overrides: &Overrides) -> Result<Document, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| Failure::io(file, error))?;
    let mut document = parse(&text, &file.to_string_lossy(), overrides)?;
    let directory = file.parent().unwrap_or(Path::new("."));
    document.load_files(|name| {
        std::fs::read_to_string(directory.join(name)).map_err(|error| error.to_string())
    })?;
    Ok(document)
}

/// A scenario with the settings that replace its own.
fn parse(text: &str, name: &str, overrides: &Overrides) -> Result<Document, Failure> {
    let mut document = Document::parse(text, name)?;
    for (path, value) in &overrides.set {
        document.set(path, value)?;
    }
    if let Some(seed) = overrides.seed {
        document.set("run.seed", &seed.to_string())?;
    }
    Ok(document)
}

/// Reads and checks a scenario; a sweep in it has no effect.
pub fn open(file: &Path, overrides: &Overrides) -> Result<Scenario, Failure> {
    Ok(document(file, overrides)?.scenario()?)
}

/// The points of a scenario's sweep, each with a name made of its parameters; of a file without a
/// sweep the scenario alone, called as the file is.
pub fn points(file: &Path, overrides: &Overrides) -> Result<Vec<(String, Scenario)>, Failure> {
    let document = document(file, overrides)?;
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let sweep = document.sweep()?;
    let point = |index| {
        let point = sweep.point(index)?;
        let values = point.parameters.iter().map(|parameter| &*parameter.text);
        let name = match point.parameters.is_empty() {
            true => stem.to_string(),
            false => values.collect::<Vec<_>>().join(", "),
        };
        Ok((name, point.scenario))
    };
    (0..sweep.len()).map(point).collect()
}

/// A scenario file with its sweep, every default written out.
pub fn with_defaults(file: &Path, overrides: &Overrides) -> Result<String, Failure> {
    Ok(document(file, overrides)?.to_toml_with_defaults()?)
}

/// A sweep of a scenario file.
#[derive(Debug)]
pub struct ScenarioStudy {
    provenance: Provenance,
    sweep: Sweep,
}

/// Reads a scenario with a sweep.
pub fn open_study(file: &Path) -> Result<ScenarioStudy, Failure> {
    ScenarioStudy::new(document(file, &Overrides::default())?)
}

/// Reads a scenario with a sweep that names no other files; `name` is what errors call it.
pub fn study(text: &str, name: &str, overrides: &Overrides) -> Result<ScenarioStudy, Failure> {
    ScenarioStudy::new(parse(text, name, overrides)?)
}

impl ScenarioStudy {
    fn new(document: Document) -> Result<Self, Failure> {
        let sweep = document.sweep()?;
        let provenance = Provenance {
            dfcp_version: env!("CARGO_PKG_VERSION").to_owned(),
            scenario_hash: sweep.hash()?,
            scenario: sweep.to_toml_with_defaults()?,
            parameters: sweep.parameters().map(ToOwned::to_owned).collect(),
            points: sweep.len(),
        };
        Ok(Self { provenance, sweep })
    }

    /// Parameters of a point.
    #[cfg(test)]
    pub fn parameters(&self, index: usize) -> Result<Vec<Cell>, Failure> {
        Ok(self
            .sweep
            .point(index)?
            .parameters
            .iter()
            .map(cell)
            .collect())
    }

    /// Whether each of these points makes a scenario: better known before the first is run.
    pub fn check(&self, points: Range<usize>) -> Result<(), Failure> {
        for index in points {
            self.sweep.point(index)?;
        }
        Ok(())
    }
}

impl Study for ScenarioStudy {
    fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    fn run(&self, index: usize) -> Result<PointResult, Failure> {
        let point = self.sweep.point(index)?;
        Ok(PointResult {
            parameters: point.parameters.iter().map(cell).collect(),
            seed: point.seed,
            report: simulate(&point.scenario, None, &mut |_| ())?,
        })
    }
}

/// Bare numbers as numbers; quantities as they are written, unit and all.
fn cell(parameter: &Parameter) -> Cell {
    match parameter.unit {
        "" => Cell::parse(&parameter.text),
        _ => parameter.text.as_str().into(),
    }
}
