//! Points of a sweep on a real path.
//!
//! Each runs as long as its scenario says at most. One whose path was not true is run again, as
//! often as is allowed, whatever it measured; the truest run is kept, and what it was like is kept
//! beside the journal, in a file for each point, before the point counts as done. When the command is
//! given again, such points are run once more, and what they measure then takes the place of what
//! stands there: which runs count hangs on their paths alone, never on their results.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use dfcp_command::Failure;
use dfcp_lab::run::{Family, Plan, RealRun};
use serde::{Deserialize, Serialize};

use crate::lab::run::failure;
use crate::sim::engine::ScenarioStudy;
use crate::sim::store::{self, Provenance};
use crate::sim::sweep::{PointResult, Study};

/// How true the path of a point was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// Why the run does not count; none if it does.
    pub reasons: Vec<String>,
    /// Flows that did not run, and why.
    pub failures: Vec<String>,
    /// What 99 % of the packets did not exceed in being late, seconds.
    pub late_p99_s: f64,
    /// How often it was run.
    pub attempts: u32,
}

impl Truth {
    fn of(run: &RealRun, attempts: u32) -> Self {
        let flows = run.report.flows.iter().zip(&run.failures);
        let failed = flows.filter_map(|(flow, failure)| {
            let failure = failure.as_ref()?;
            Some(format!("{} did not run: {failure}", flow.name))
        });
        Self {
            reasons: run.validity.reasons.clone(),
            failures: failed.collect(),
            late_p99_s: run.validity.late_p99.as_secs_f64(),
            attempts,
        }
    }

    /// Whether the run counts.
    pub fn is_true(&self) -> bool {
        self.reasons.is_empty() && self.failures.is_empty()
    }

    /// What makes one run better than another: that all ran, and how late packets were.
    fn faults(&self) -> (usize, usize, f64) {
        (self.failures.len(), self.reasons.len(), self.late_p99_s)
    }
}

/// A sweep on a real path.
pub struct Real {
    /// What is swept.
    pub study: ScenarioStudy,
    /// What it is called.
    pub name: String,
    /// Where the files about points go.
    pub directory: PathBuf,
    /// How often a point is run whose path is not true.
    pub attempts: u32,
    /// Points run so far, to tell how far it is.
    pub run: AtomicUsize,
}

/// The file about a point.
fn file(directory: &Path, point: usize) -> PathBuf {
    directory.join(format!("{point}.json"))
}

/// Points that were run on a path that was not true.
pub fn untrue(directory: &Path, points: usize) -> BTreeSet<usize> {
    let is_untrue = |point: &usize| {
        let text = std::fs::read(file(directory, *point)).ok();
        let truth = text.and_then(|text| serde_json::from_slice::<Truth>(&text).ok());
        truth.is_some_and(|truth| !truth.is_true())
    };
    (0..points).filter(is_untrue).collect()
}

/// How true the path of each point was.
pub fn truths(directory: &Path, points: usize) -> Result<Vec<Truth>, Failure> {
    let read = |point: usize| {
        let path = file(directory, point);
        let text = std::fs::read_to_string(&path).map_err(|error| Failure::io(&path, error))?;
        serde_json::from_str(&text).map_err(|error| Failure::io(&path, error))
    };
    (0..points).map(read).collect()
}

impl Study for Real {
    fn provenance(&self) -> &Provenance {
        self.study.provenance()
    }

    fn run(&self, index: usize) -> Result<PointResult, Failure> {
        let point = self.study.point(index)?;
        let mut best: Option<(Truth, RealRun)> = None;
        for attempt in 1..=self.attempts.max(1) {
            let plan = Plan {
                scenario: &point.scenario,
                // Scenarios of papers name no files.
                directory: Path::new("."),
                family: Family::Ipv4,
            };
            let run = dfcp_lab::run::run(plan).map_err(failure)?;
            let truth = Truth::of(&run, attempt);
            let done = truth.is_true();
            let better = best.as_ref().is_none_or(|(old, _)| {
                let (new, old) = (truth.faults(), old.faults());
                new.partial_cmp(&old).is_some_and(|order| order.is_lt())
            });
            if better {
                best = Some((truth, run));
            } else if let Some((old, _)) = &mut best {
                old.attempts = attempt;
            }
            if done {
                break;
            }
        }
        let (truth, run) = best.unwrap_or_default();
        store::write_atomically(&file(&self.directory, index), |out| {
            serde_json::to_writer(&mut *out, &truth)?;
            Ok(out.write_all(b"\n")?)
        })?;
        self.tell(&point.parameters, &truth);
        Ok(PointResult {
            parameters: point.parameters,
            seed: point.seed,
            report: run.report,
        })
    }

    fn again(&self) -> BTreeSet<usize> {
        untrue(&self.directory, self.provenance().points)
    }
}

impl Real {
    /// Says that a point is done: a run of an hour is not to be silent.
    fn tell(&self, parameters: &[crate::sim::table::Cell], truth: &Truth) {
        let run = self.run.fetch_add(1, Ordering::Relaxed) + 1;
        let values: Vec<_> = parameters.iter().map(ToString::to_string).collect();
        let all = self.provenance().points;
        let faults = [&truth.failures[..], &truth.reasons[..]]
            .concat()
            .join("; ");
        let faults = match faults.as_str() {
            "" => faults,
            _ => format!(": {faults}"),
        };
        eprintln!(
            "dfcp: {} for real, {run} of at most {all}: {}{faults}",
            self.name,
            values.join(", ")
        );
    }
}
