//! A path, and the network that the lab makes of it.

use std::time::Duration;

use dfcp_proto::Instant;
use dfcp_sim::limit::{Window, goodput_limit};
use dfcp_sim::scenario::{Document, Scenario};

use super::path::{Bottleneck, Named, Path};

/// A path with its network; of the bare cable there is none.
#[derive(Clone, Debug)]
pub struct Emulated {
    /// What tables and lines of results say.
    pub path: Path,
    document: Option<Document>,
}

/// Longer than any run: the lab is stopped. Changes that repeat are listed until then.
const ENDLESS: &str = "\"2 h\"";

impl Emulated {
    /// The bare cable.
    pub fn direct() -> Self {
        Self {
            path: Path::DIRECT,
            document: None,
        }
    }

    /// A bottleneck.
    ///
    /// # Errors
    /// In words, where the simulator refuses its settings.
    pub fn bottleneck(bottleneck: Bottleneck) -> Result<Self, String> {
        Ok(Self {
            document: Some(bottleneck.document()?),
            path: Path::Bottleneck(bottleneck),
        })
    }

    /// The path of a scenario's first flow, without its traffic. Runs take as long as the
    /// scenario's.
    ///
    /// # Errors
    /// In words, where the scenario makes no sense, or its path has no limit.
    pub fn named(name: &str, document: Document) -> Result<Self, String> {
        let wrong = |why: String| format!("path {name}: {why}");
        let scenario = document.scenario();
        let scenario = scenario.map_err(|error| wrong(error.to_string()))?;
        let flow = scenario.flows.first();
        let flow = flow.ok_or_else(|| wrong("the scenario has no flow".to_owned()))?;
        let window = Window {
            from: Instant::ZERO + scenario.run.warmup,
            to: Instant::ZERO + scenario.run.duration,
        };
        let limit = goodput_limit(&scenario, flow, window);
        let limit_bps = limit.ok_or_else(|| wrong("no link of it limits the rate".to_owned()))?;
        let rates = flow.forward.iter().filter_map(|link| {
            let config = &scenario.links[link.0].config;
            config.rate.mean().map(|rate| rate.as_bps())
        });
        Ok(Self {
            path: Path::Named(Named {
                name: name.to_owned(),
                title: scenario.title.clone(),
                rate_bps: rates.min().unwrap_or(limit_bps as u64),
                rtt_s: scenario.rtt(flow).as_secs_f64(),
                limit_bps,
                seconds: scenario.run.duration.as_secs_f64(),
            }),
            document: Some(document),
        })
    }

    /// Its network with so many pairs of hosts, each with a flow; it runs until it is stopped.
    /// `None` for the bare cable.
    ///
    /// # Errors
    /// In words, where there is no such network.
    pub fn scenario(&self, pairs: usize, seed: u64) -> Result<Option<Scenario>, String> {
        let Some(document) = &self.document else {
            return Ok(None);
        };
        let mut document = document.clone();
        let mut set = |path: &str, value: &str| {
            let set = document.set(path, value);
            set.map_err(|error| error.to_string())
        };
        set("run.seed", &seed.to_string())?;
        set("run.duration", ENDLESS)?;
        if pairs > 1 {
            set("topology.pairs", &pairs.to_string())?;
            set("flow.0.count", &pairs.to_string())?;
        }
        let scenario = document.scenario();
        scenario.map(Some).map_err(|error| error.to_string())
    }

    /// Bytes and time of a run whose plan allows these at most: of a named path, what its limit
    /// carries in the scenario's time.
    pub(super) fn work(&self, size: u64, time: Duration) -> (u64, Duration) {
        match &self.path {
            Path::Named(named) => {
                let seconds = named.seconds.min(time.as_secs_f64());
                let bytes = (named.limit_bps / 8.0 * seconds) as u64;
                (bytes.clamp(1, size), Duration::from_secs_f64(seconds))
            }
            Path::Bottleneck(_) | Path::Direct { .. } => (size, time),
        }
    }
}

/// What a perfect sender of the first flow would have reached between two times of the lab's
/// clock, in nanoseconds since the scenario's beginning.
pub(super) fn limit_between(scenario: &Scenario, from_ns: u64, to_ns: u64) -> Option<f64> {
    let [from, to] = [from_ns, to_ns].map(Instant::from_nanos);
    goodput_limit(scenario, scenario.flows.first()?, Window { from, to })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: &str = r#"
schema = 1
title = "a step"
run = { duration = "20 s" }
topology = { kind = "dumbbell", rtt = "50 ms" }
link.default = { rate = "unlimited" }
link.bottleneck = { rate = "100 Mbit/s", loss = 0.1 }
flow = [{ protocol = "auto" }]
change = [{ at = "10 s", link = "bottleneck", rate = "20 Mbit/s" }]
"#;

    #[test]
    fn a_scenario_is_a_path_with_the_limit_of_its_own_time() {
        let document = Document::parse(STEP, "step.toml").unwrap();
        let path = Emulated::named("step", document).unwrap();
        let Path::Named(named) = &path.path else {
            panic!("{path:?}");
        };
        assert_eq!(
            (named.name.as_str(), named.title.as_str()),
            ("step", "a step")
        );
        assert_eq!((named.rate_bps, named.rtt_s), (100_000_000, 0.05));
        assert!((named.limit_bps / (54e6 * 1472.0 / 1500.0) - 1.0).abs() < 1e-9);
        // All that its limit carries, in all of its time; less where the plan allows less.
        let (bytes, time) = path.work(u64::MAX, Duration::MAX);
        assert_eq!(
            (bytes, time.as_secs()),
            ((named.limit_bps * 2.5) as u64, 20)
        );
        assert_eq!(
            path.work(10, Duration::from_secs(5)),
            (10, Duration::from_secs(5))
        );
        let scenario = path.scenario(2, 7).unwrap().unwrap();
        assert_eq!((scenario.flows.len(), scenario.run.seed.0), (2, 7));
        let late = limit_between(&scenario, 10_000_000_000, 12_000_000_000);
        assert!((late.unwrap() / (18e6 * 1472.0 / 1500.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_path_without_a_limit_is_refused() {
        let text = STEP
            .replace("100 Mbit/s", "unlimited")
            .replace("20 Mbit/s", "unlimited");
        let error = Emulated::named("step", Document::parse(&text, "").unwrap()).unwrap_err();
        assert!(
            error.contains("step") && error.contains("limits"),
            "{error}"
        );
        assert!(Emulated::direct().scenario(1, 1).unwrap().is_none());
    }
}
