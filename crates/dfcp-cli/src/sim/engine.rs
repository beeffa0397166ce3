//! The one place where the program meets the simulator: scenario files in, reports out.

use std::path::Path;

use dfcp_sim::RunReport;

use super::store::Provenance;
use super::sweep::{PointResult, Study};
use crate::failure::{Failure, Kind};

/// A scenario that is ready to run.
#[derive(Debug)]
pub struct Prepared;

/// Settings of a scenario that the command line replaces.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The seed.
    pub seed: Option<u64>,
    /// Dotted paths and TOML values.
    pub set: Vec<(String, String)>,
}

fn unconnected() -> Failure {
    Failure::new(Kind::Failure, "the simulator is not connected yet")
}

/// Reads and checks a scenario.
pub fn open(_file: &Path, _overrides: &Overrides) -> Result<Prepared, Failure> {
    Err(unconnected())
}

impl Prepared {
    /// The scenario with every default written out.
    pub fn text(&self) -> String {
        String::new()
    }

    /// Runs it.
    pub fn run(&self) -> Result<RunReport, Failure> {
        Err(unconnected())
    }
}

/// A sweep of a scenario file.
#[derive(Debug)]
pub struct ScenarioStudy {
    provenance: Provenance,
}

/// Reads a scenario with a sweep, and checks every point of it.
pub fn open_study(_file: &Path) -> Result<ScenarioStudy, Failure> {
    Err(unconnected())
}

impl Study for ScenarioStudy {
    fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    fn run(&self, _index: usize) -> Result<PointResult, Failure> {
        Err(unconnected())
    }
}
