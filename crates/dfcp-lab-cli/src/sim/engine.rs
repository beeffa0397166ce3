//! The one place where the program meets the simulator: scenario files in, reports out.

use std::ops::Range;
use std::path::{Path, PathBuf};

use dfcp_command::{Failure, Kind};
use dfcp_proto::Instant;
use dfcp_sim::Watch;
use dfcp_sim::report::RunReport;
use dfcp_sim::scenario::{Document, LeftOut, Parameter, Scenario, ScenarioError, Sweep};

use super::store::Provenance;
use super::sweep::{PointResult, Study};
use super::table::Cell;

/// Runs a scenario; `watch` sees what happens, `progress` hears of the simulated time reached.
pub fn simulate(
    scenario: &Scenario,
    watch: Watch,
    progress: &mut dyn FnMut(Instant),
) -> Result<RunReport, Failure> {
    dfcp_sim::run_watched(scenario, watch, progress)
        .map_err(|error| Failure::new(Kind::Failure, error.to_string()))
}

/// What of a scenario the command line chooses and replaces.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// A case of its sweep that becomes the scenario.
    pub case: Option<String>,
    /// The seed.
    pub seed: Option<u64>,
    /// Dotted paths and TOML values.
    pub set: Vec<(String, String)>,
    /// Where traces are that do not lie beside it.
    pub traces: Option<PathBuf>,
}

/// What is wrong with a scenario, and where.
pub fn wrong(error: ScenarioError) -> Failure {
    Failure::usage(error.to_string())
}

/// Reads a scenario and the traces that it names, which lie beside it or in the folder of traces.
fn document(file: &Path, overrides: &Overrides) -> Result<Document, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| Failure::io(file, error))?;
    let mut document = parse(&text, &file.to_string_lossy(), overrides)?;
    load(&mut document, file.parent(), overrides.traces.as_deref())?;
    Ok(document)
}

/// Reads the files that a document names from the first of these folders that has them.
fn load(
    document: &mut Document,
    beside: Option<&Path>,
    traces: Option<&Path>,
) -> Result<(), Failure> {
    let read = |name: &str| {
        let folders = [beside.or(Some(Path::new("."))), traces];
        let mut texts = folders.into_iter().flatten().map(|folder| {
            std::fs::read_to_string(folder.join(name)).map_err(|error| error.to_string())
        });
        let first = texts.next().unwrap_or_else(|| Err("no folder".to_owned()));
        first.or_else(|why| texts.find_map(Result::ok).ok_or(why))
    };
    document.load_files(read).map_err(wrong)
}

/// A scenario with the settings that replace its own.
fn parse(text: &str, name: &str, overrides: &Overrides) -> Result<Document, Failure> {
    let mut document = Document::parse(text, name).map_err(wrong)?;
    if let Some(case) = &overrides.case {
        document.choose(case).map_err(wrong)?;
    }
    for (path, value) in &overrides.set {
        document.set(path, value).map_err(wrong)?;
    }
    if let Some(seed) = overrides.seed {
        document.set("run.seed", &seed.to_string()).map_err(wrong)?;
    }
    Ok(document)
}

/// Cases by name, and those whose files are missing.
type NamedCases = (Vec<(String, Document)>, Vec<LeftOut>);

/// Every case of a scenario's sweep on its own, under its name, and the cases that were left out;
/// of a file without cases the scenario alone, called as the file is.
pub fn cases(text: &str, file: &Path, traces: Option<&Path>) -> Result<NamedCases, Failure> {
    let mut document = Document::parse(text, &file.to_string_lossy()).map_err(wrong)?;
    load(&mut document, file.parent(), traces)?;
    let left_out = document.left_out().to_vec();
    let mut names = document.cases();
    names.retain(|name| !left_out.iter().any(|left| left.case == *name));
    if names.is_empty() && left_out.is_empty() {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        return Ok((vec![(stem.into_owned(), document)], left_out));
    }
    let case = |name: String| {
        let mut chosen = document.clone();
        chosen.choose(&name).map_err(wrong)?;
        Ok((name, chosen))
    };
    let cases: Result<_, Failure> = names.into_iter().map(case).collect();
    Ok((cases?, left_out))
}

/// Reads and checks a scenario; a sweep in it has no effect.
pub fn open(file: &Path, overrides: &Overrides) -> Result<Scenario, Failure> {
    document(file, overrides)?.scenario().map_err(wrong)
}

/// The points of a scenario's sweep, each with a name made of its parameters; of a file without a
/// sweep the scenario alone, called as the file is.
pub fn points(file: &Path, overrides: &Overrides) -> Result<Vec<(String, Scenario)>, Failure> {
    let document = document(file, overrides)?;
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let sweep = document.sweep().map_err(wrong)?;
    let point = |index| {
        let point = sweep.point(index).map_err(wrong)?;
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
    document(file, overrides)?
        .to_toml_with_defaults()
        .map_err(wrong)
}

/// A sweep of a scenario file.
#[derive(Debug)]
pub struct ScenarioStudy {
    provenance: Provenance,
    sweep: Sweep,
}

/// A point of a sweep, as it is to be run.
#[derive(Debug)]
pub struct Point {
    /// Its parameters, in the order of [`Provenance::parameters`].
    pub parameters: Vec<Cell>,
    /// Its seed.
    pub seed: u64,
    /// What it runs.
    pub scenario: Scenario,
}

/// Reads a scenario with a sweep.
pub fn open_study(file: &Path, overrides: &Overrides) -> Result<ScenarioStudy, Failure> {
    ScenarioStudy::new(document(file, overrides)?)
}

/// Reads a scenario with a sweep that names no other files; `name` is what errors call it.
pub fn study(text: &str, name: &str, overrides: &Overrides) -> Result<ScenarioStudy, Failure> {
    ScenarioStudy::new(parse(text, name, overrides)?)
}

impl ScenarioStudy {
    fn new(document: Document) -> Result<Self, Failure> {
        let sweep = document.sweep().map_err(wrong)?;
        let provenance = Provenance {
            dfcp_version: env!("CARGO_PKG_VERSION").to_owned(),
            scenario_hash: sweep.hash().map_err(wrong)?,
            scenario: sweep.to_toml_with_defaults().map_err(wrong)?,
            parameters: sweep.parameters().map(ToOwned::to_owned).collect(),
            points: sweep.len(),
        };
        Ok(Self { provenance, sweep })
    }

    /// Cases that the sweep goes without, because a file of theirs cannot be read.
    pub fn left_out(&self) -> &[LeftOut] {
        self.sweep.left_out()
    }

    /// Parameters of a point.
    pub fn parameters(&self, index: usize) -> Result<Vec<Cell>, Failure> {
        Ok(self.point(index)?.parameters)
    }

    /// A point as it is to be run.
    pub fn point(&self, index: usize) -> Result<Point, Failure> {
        let point = self.sweep.point(index).map_err(wrong)?;
        Ok(Point {
            parameters: point.parameters.iter().map(cell).collect(),
            seed: point.seed,
            scenario: point.scenario,
        })
    }

    /// Whether each of these points makes a scenario: better known before the first is run.
    pub fn check(&self, points: Range<usize>) -> Result<(), Failure> {
        for index in points {
            self.sweep.point(index).map_err(wrong)?;
        }
        Ok(())
    }
}

impl Study for ScenarioStudy {
    fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    fn run(&self, index: usize) -> Result<PointResult, Failure> {
        let point = self.point(index)?;
        Ok(PointResult {
            parameters: point.parameters,
            seed: point.seed,
            report: simulate(&point.scenario, Watch::default(), &mut |_| ())?,
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
