//! One scenario in two worlds: what the simulator says, and what happened for real.
//!
//! Both worlds run the scenario with the same seeds, several of them where chance decides; the
//! medians are compared. The verdict of a cell is its goodput, of all flows together; the other
//! figures stand beside it.

use std::path::Path;

use dfcp_sim::engine::NetworkError;
use dfcp_sim::report::{FlowReport, RunReport};
use dfcp_sim::scenario::Scenario;

use crate::lab::LabError;
use crate::run::{self, Family, Plan, RealRun, Validity};

/// How far apart the two worlds may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Of goodput and flow completion times, as a fraction.
    pub rate: f64,
    /// Of shares (loss, overhead), beside a tenth of them.
    pub share: f64,
    /// Of round-trip times, seconds, beside a tenth of them.
    pub rtt_s: f64,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self {
            rate: 0.05,
            share: 0.01,
            rtt_s: 0.002,
        }
    }
}

/// A figure in both worlds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pair {
    /// Of the simulator.
    pub simulated: Option<f64>,
    /// Of the real path.
    pub real: Option<f64>,
    /// Whether they are near enough; true where both have none.
    pub near: bool,
}

impl Pair {
    fn new(simulated: Option<f64>, real: Option<f64>, near: impl FnOnce(f64, f64) -> bool) -> Self {
        Self {
            simulated,
            real,
            near: match (simulated, real) {
                (Some(a), Some(b)) => near(a, b),
                (None, None) => true,
                _ => false,
            },
        }
    }

    /// The real figure's part of the simulated one.
    pub fn ratio(&self) -> Option<f64> {
        let (simulated, real) = (self.simulated?, self.real?);
        (simulated != 0.0).then(|| real / simulated)
    }
}

/// A flow in both worlds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowParity {
    /// Its name.
    pub flow: String,
    /// Its protocol.
    pub protocol: String,
    /// Bits per second.
    pub goodput_bps: Pair,
    /// Flow completion time, seconds.
    pub fct_s: Pair,
    /// Share of packets that did not arrive.
    pub loss: Pair,
    /// Round-trip time, seconds.
    pub rtt_s: Pair,
    /// Bytes sent for each useful byte, less one.
    pub overhead: Pair,
    /// Why it did not run, if it did not.
    pub failure: Option<String>,
}

/// A scenario in both worlds.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// What tells it from the others.
    pub name: String,
    /// Its flows.
    pub flows: Vec<FlowParity>,
    /// Goodput of all flows together, bits per second.
    pub goodput_bps: Pair,
    /// How true the path was, in the worst run.
    pub validity: Validity,
    /// Runs in each world.
    pub runs: usize,
}

impl Cell {
    /// Whether the goodput is near enough, every flow ran, and the path was true.
    pub fn passed(&self) -> bool {
        self.goodput_bps.near
            && self.validity.is_valid()
            && self.flows.iter().all(|flow| flow.failure.is_none())
    }
}

/// Why there is no comparison.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParityError {
    /// The simulator.
    #[error(transparent)]
    Simulation(#[from] NetworkError),
    /// The real path.
    #[error(transparent)]
    Lab(#[from] LabError),
}

/// Runs scenarios that differ in their seed alone in both worlds.
///
/// # Errors
/// What keeps either world from being made.
pub fn compare(
    name: &str,
    scenarios: &[Scenario],
    directory: &Path,
    tolerance: Tolerance,
) -> Result<Cell, ParityError> {
    let mut simulated = Vec::new();
    let mut real = Vec::new();
    for scenario in scenarios {
        simulated.push(dfcp_sim::run(scenario)?);
        let plan = Plan {
            scenario,
            directory,
            family: Family::Ipv4,
        };
        real.push(run::run(plan)?);
    }
    let flows = scenarios.first().map_or(0, |scenario| scenario.flows.len());
    let flows = (0..flows).map(|flow| flow_parity(flow, &simulated, &real, tolerance));
    let total = |report: &RunReport| report.flows.iter().map(|flow| flow.goodput_bps).sum();
    let goodput = median(simulated.iter().map(total));
    let real_goodput = median(real.iter().map(|run| total(&run.report)));
    let worst = real.iter().max_by_key(|run| {
        let validity = &run.validity;
        (validity.reasons.len(), validity.late_p99)
    });
    Ok(Cell {
        name: name.to_owned(),
        flows: flows.collect(),
        goodput_bps: Pair::new(goodput, real_goodput, within(tolerance.rate)),
        validity: worst.map(|run| run.validity.clone()).unwrap_or_default(),
        runs: scenarios.len(),
    })
}

fn flow_parity(
    flow: usize,
    simulated: &[RunReport],
    real: &[RealRun],
    tolerance: Tolerance,
) -> FlowParity {
    let pair = |of: fn(&FlowReport) -> Option<f64>, near: &dyn Fn(f64, f64) -> bool| {
        let simulated = simulated
            .iter()
            .filter_map(|report| of(&report.flows[flow]));
        let real = real.iter().filter_map(|run| of(&run.report.flows[flow]));
        Pair::new(median(simulated), median(real), near)
    };
    let rate = within(tolerance.rate);
    let share = |a: f64, b: f64| (a - b).abs() <= tolerance.share + 0.1 * a.abs();
    let time = |a: f64, b: f64| (a - b).abs() <= tolerance.rtt_s + 0.1 * a.abs();
    let example = simulated.first().map(|report| &report.flows[flow]);
    let failure = real.iter().find_map(|run| run.failures[flow].clone());
    FlowParity {
        flow: example.map(|flow| flow.name.clone()).unwrap_or_default(),
        protocol: example
            .map(|flow| flow.protocol.clone())
            .unwrap_or_default(),
        goodput_bps: pair(|flow| Some(flow.goodput_bps), &rate),
        fct_s: pair(|flow| flow.fct_s, &rate),
        loss: pair(|flow| Some(flow.loss), &share),
        rtt_s: pair(|flow| flow.rtt_mean_s, &time),
        overhead: pair(|flow| flow.overhead, &share),
        failure,
    }
}

fn within(fraction: f64) -> impl Fn(f64, f64) -> bool {
    move |simulated, real| (real - simulated).abs() <= fraction * simulated.abs()
}

/// The middle value, or the mean of the two in the middle.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        _ if values.is_empty() => None,
        0 => Some((values[middle - 1] + values[middle]) / 2.0),
        _ => Some(values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([].into_iter()), None);
        assert_eq!(median([3.0, f64::NAN, 1.0].into_iter()), Some(2.0));
        assert_eq!(median([9.0, 1.0, 5.0].into_iter()), Some(5.0));
    }

    #[test]
    fn worlds_are_near_within_the_tolerance_and_where_both_have_nothing() {
        let near = |a, b| Pair::new(a, b, within(0.05)).near;
        assert!(near(Some(100.0), Some(104.9)) && near(Some(100.0), Some(95.1)));
        assert!(!near(Some(100.0), Some(105.1)) && !near(Some(100.0), None));
        assert!(near(None, None));
        let pair = Pair::new(Some(50.0), Some(40.0), within(0.05));
        assert_eq!(pair.ratio(), Some(0.8));
    }
}
