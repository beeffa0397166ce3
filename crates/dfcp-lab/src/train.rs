//! Trains of numbered datagrams: what a path did to one, on the real path or in the simulator.
//!
//! What is random in bursts, or by the clock, is different each time: so the same train is sent
//! through the simulator with several seeds, and what it did to them says what to expect and how
//! much that varies.

use dfcp_proto::{Duration, Instant, Rate};
use dfcp_sim::engine::{Direction, ExternalPacket, NetworkError};
use dfcp_sim::scenario::Scenario;
use dfcp_sim::{Ecn, FlowId, Seed};
use serde::{Deserialize, Serialize};

/// Datagrams that are followed one by one; those behind are only counted.
const MOST: usize = 400_000;

/// What a pause in a train is: nothing comes for this long, and for eight times the mean interval.
const PAUSE_NS: u64 = 10_000_000;

/// Follows the datagrams of a train as they arrive.
#[derive(Clone, Debug, Default)]
pub struct Trail {
    /// By number, time on the way of the first copy, nanoseconds.
    delays: Vec<Option<u64>>,
    /// Times of arrival, nanoseconds.
    arrivals: Vec<u64>,
}

/// What a path did to a train.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrailFigures {
    /// Share of the datagrams up to the last that came which did not come.
    pub loss: f64,
    /// Mean length of runs of lost datagrams; `None` without a loss.
    pub loss_burst: Option<f64>,
    /// Datagrams before the first that was lost.
    pub before_loss: Option<u64>,
    /// Time on the way above the shortest: the mean, seconds.
    pub delay_mean_s: f64,
    /// What 95 % of them did not exceed.
    pub delay_p95_s: f64,
    /// Share of the time in which nothing came for long.
    pub pause_share: f64,
    /// Datagrams that came per second, between the first and the last.
    pub arrivals_per_s: f64,
}

impl Trail {
    /// A datagram came.
    pub fn note(&mut self, number: u64, delay_ns: u64, arrived_ns: u64) {
        let Some(place) = usize::try_from(number).ok().filter(|n| *n < MOST) else {
            return;
        };
        if self.delays.len() <= place {
            self.delays.resize(place + 1, None);
        }
        if self.delays[place].is_none() {
            self.delays[place] = Some(delay_ns);
            self.arrivals.push(arrived_ns);
        }
    }

    /// What became of the train, as far as it came.
    pub fn figures(&self) -> TrailFigures {
        let mut delays: Vec<u64> = self.delays.iter().flatten().copied().collect();
        delays.sort_unstable();
        let count = delays.len();
        let Some(least) = delays.first().copied() else {
            return TrailFigures::default();
        };
        let lost = self.delays.len() - count;
        let begins = |pair: &&[Option<u64>]| pair[0].is_some() && pair[1].is_none();
        let first = usize::from(self.delays[0].is_none());
        let bursts = self.delays.windows(2).filter(begins).count() + first;
        let mean = delays.iter().map(|ns| (ns - least) as f64).sum::<f64>() / count as f64;
        let p95 = delays[(count * 95).div_ceil(100).saturating_sub(1)];
        let (time, paused) = self.pauses();
        TrailFigures {
            loss: lost as f64 / self.delays.len() as f64,
            loss_burst: (bursts > 0).then(|| lost as f64 / bursts as f64),
            before_loss: (self.delays.iter().position(Option::is_none)).map(|n| n as u64),
            delay_mean_s: mean / 1e9,
            delay_p95_s: (p95 - least) as f64 / 1e9,
            pause_share: if time > 0 {
                paused as f64 / time as f64
            } else {
                0.0
            },
            arrivals_per_s: (count - 1) as f64 * 1e9 / time.max(1) as f64,
        }
    }

    /// From the first arrival to the last, and how much of it were pauses.
    fn pauses(&self) -> (u64, u64) {
        let (Some(first), Some(last)) = (self.arrivals.first(), self.arrivals.last()) else {
            return (0, 0);
        };
        let time = last.saturating_sub(*first);
        let longest = PAUSE_NS.max(8 * time / self.arrivals.len() as u64);
        let gaps = self.arrivals.windows(2).map(|w| w[1].saturating_sub(w[0]));
        (time, gaps.filter(|gap| *gap > longest).sum())
    }
}

/// A train to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Train {
    /// Bits per second of IP packets.
    pub rate_bps: f64,
    /// Bytes of an IP packet.
    pub packet: u32,
    /// How many.
    pub count: u64,
}

/// Seeds that a train is simulated with.
const SEEDS: u64 = 5;

/// Where in the path's time a train begins with each further seed: what happens by the clock is met
/// elsewhere. A prime, so that no period fits it.
const LATER: Duration = Duration::from_millis(1013);

/// How long after the last datagram one may come.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the network of a flow does to a train, with several seeds.
///
/// # Errors
/// The network makes no sense.
pub fn simulate(
    scenario: &Scenario,
    flow: usize,
    train: Train,
) -> Result<Vec<TrailFigures>, NetworkError> {
    let own = scenario.run.seed.0;
    let runs = (0..SEEDS).map(|n| {
        let mut scenario = scenario.clone();
        scenario.run.seed = Seed(own.wrapping_add(n));
        simulate_once(&scenario, flow, train, Instant::ZERO + LATER * n as u32)
    });
    runs.collect()
}

fn simulate_once(
    scenario: &Scenario,
    flow: usize,
    train: Train,
    start: Instant,
) -> Result<TrailFigures, NetworkError> {
    let mut network = dfcp_sim::build_external(scenario)?;
    let mut trail = Trail::default();
    let rate = Rate::from_bps(train.rate_bps as u64);
    let at = |number: u64| start + rate.time_for(number * u64::from(train.packet));
    let mut note = |network: &mut dfcp_sim::engine::Simulation| {
        while let Some((arrived, packet)) = network.take_external() {
            let number = packet
                .bytes
                .first_chunk()
                .map(|bytes| u64::from_be_bytes(*bytes));
            // A link may have flipped a bit of it, which a checksum would show.
            if let Some(number) = number.filter(|number| *number < train.count) {
                let delay = arrived.saturating_since(at(number)).as_nanos() as u64;
                trail.note(number, delay, arrived.as_nanos());
            }
            network.give_buffer(packet.bytes);
        }
    };
    for number in 0..train.count {
        let mut bytes = network.take_buffer();
        bytes.extend(number.to_be_bytes());
        let packet = ExternalPacket {
            flow: FlowId(flow as u32),
            direction: Direction::Forward,
            size: train.packet,
            ecn: Ecn::NotEct,
            tag: 0,
            bytes,
        };
        network.inject_external(at(number), packet);
        note(&mut network);
    }
    network.run_until(at(train.count) + PATIENCE);
    note(&mut network);
    Ok(trail.figures())
}

/// What to expect of a figure, and how much it varies: mean and standard deviation over seeds.
/// `None` where it was not there with every seed.
pub fn expected(
    runs: &[TrailFigures],
    figure: impl Fn(&TrailFigures) -> Option<f64>,
) -> Option<(f64, f64)> {
    let values: Vec<f64> = runs.iter().map(figure).collect::<Option<_>>()?;
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>();
    let deviation = (squares / (count - 1.0).max(1.0)).sqrt();
    (!values.is_empty()).then_some((mean, deviation))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(link: &str) -> Scenario {
        let text = format!(
            "schema = 1\n[link.wire]\nbetween = [\"a\", \"b\"]\nrate = \"12 Mbit/s\"\n\
             delay = \"10 ms\"\n{link}\n[[flow]]\nprotocol = \"auto\"\nfrom = \"a\"\nto = \"b\"\n"
        );
        Scenario::from_toml(&text, "test.toml").unwrap()
    }

    /// Half the link's rate: a packet every 2 ms.
    fn figures(link: &str) -> Vec<TrailFigures> {
        let train = Train {
            rate_bps: 6e6,
            packet: 1500,
            count: 20_000,
        };
        simulate(&scenario(link), 0, train).unwrap()
    }

    #[test]
    fn a_trail_tells_of_runs_delays_and_pauses() {
        let mut trail = Trail::default();
        // Every millisecond; 3, 4 and 8 are lost, 9 comes 100 ms late and 9 once more.
        for (number, delay) in [
            (0, 5),
            (1, 5),
            (2, 5),
            (5, 5),
            (6, 7),
            (7, 5),
            (9, 105),
            (9, 106),
        ] {
            trail.note(number, delay * 1_000_000, (number + delay) * 1_000_000);
        }
        trail.note(u64::MAX, 1, 1);
        let figures = trail.figures();
        assert!((figures.loss - 0.3).abs() < 1e-9);
        assert_eq!(
            (figures.loss_burst, figures.before_loss),
            (Some(1.5), Some(3))
        );
        assert!(
            (figures.delay_mean_s - 0.102 / 7.0).abs() < 1e-9,
            "{figures:?}"
        );
        assert!((figures.delay_p95_s - 0.1).abs() < 1e-9);
        assert_eq!(figures.pause_share, 0.0);
        assert_eq!(Trail::default().figures(), TrailFigures::default());
        let mut paused = Trail::default();
        for millisecond in (0..100).chain(200..300) {
            paused.note(millisecond, 0, millisecond * 1_000_000);
        }
        // 101 ms of 299.
        assert!((paused.figures().pause_share - 101.0 / 299.0).abs() < 1e-9);
    }

    #[test]
    fn simulated_trains_show_what_the_settings_say() {
        let bursts = "loss = { p_good_to_bad = 0.02, p_bad_to_good = 0.2, loss_bad = 1.0 }";
        let runs = figures(bursts);
        let (length, varies) = expected(&runs, |f| f.loss_burst).unwrap();
        assert!((length - 5.0).abs() < 0.5, "{length}");
        assert!(varies > 0.0 && varies < 1.0, "{varies}");
        let (lost, _) = expected(&runs, |f| Some(f.loss)).unwrap();
        assert!((lost - 1.0 / 11.0).abs() < 0.01, "{lost}");

        let runs = figures("jitter = \"20 ms\"");
        let (mean, _) = expected(&runs, |f| Some(f.delay_mean_s)).unwrap();
        let (p95, _) = expected(&runs, |f| Some(f.delay_p95_s)).unwrap();
        assert!((mean - 0.010).abs() < 0.001, "{mean}");
        assert!((p95 - 0.019).abs() < 0.001, "{p95}");
        assert_eq!(expected(&runs, |f| f.loss_burst), None);
        let (rate, _) = expected(&runs, |f| Some(f.arrivals_per_s)).unwrap();
        assert!((rate - 500.0).abs() < 2.0, "{rate}");

        // Three quarters of the train pass; of the bucket's ten packets each takes a quarter.
        let runs = figures("policer = { rate = \"4.5 Mbit/s\", burst = \"15 kB\" }");
        let (before, varies) = expected(&runs, |f| f.before_loss.map(|n| n as f64)).unwrap();
        assert!((before - 37.0).abs() < 4.0 && varies < 1e-9, "{before}");
        let (rate, _) = expected(&runs, |f| Some(f.arrivals_per_s)).unwrap();
        assert!((rate - 375.0).abs() < 2.0, "{rate}");

        let outages = "outage = { every = \"500 ms\", length = \"50 ms\", packets = \"held\" }";
        let runs = figures(outages);
        let (paused, _) = expected(&runs, |f| Some(f.pause_share)).unwrap();
        assert!((paused - 0.1).abs() < 0.01, "{paused}");
    }
}
