//! Whether a lab's network is what its scenario says: round trips by ICMP echo, the rate by a train
//! of datagrams faster than the path, and loss, copies and order by one of half its rate.
//!
//! What is expected is computed from the scenario's settings at time zero, not from the simulator;
//! changes over time are left out. Packets have no bytes beside IPv4's, so settings with a `framing`
//! are told apart.

use std::time::Instant as Wall;

use dfcp_proto::Duration;
use dfcp_sim::engine::NetworkError;
use dfcp_sim::scenario::{FlowSpec, LinkIndex, Scenario};
use dfcp_sim::{LinkRate, LossModel};

use crate::lab::{FlowPorts, Lab, LabError, LabOptions, LabStats};
use crate::path::clock::monotonic_ns;
use crate::run::Validity;
use crate::train::{TrailFigures, Train, expected, simulate};
use crate::worker::{
    self, Job, PingJob, Pings, Received, Report, Sent, Side, Sink, UdpLoad, UdpSource,
};

/// One thing that was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The flow whose path it is.
    pub flow: String,
    /// What was measured, with its unit.
    pub what: &'static str,
    /// What the settings say.
    pub expected: f64,
    /// What it was; `None` if it could not be measured.
    pub measured: Option<f64>,
    /// How far from what is expected it may be.
    pub tolerance: f64,
}

impl Check {
    /// Whether it is as it should be.
    pub fn passed(&self) -> bool {
        let near = |measured: f64| (measured - self.expected).abs() <= self.tolerance;
        self.measured.is_some_and(near)
    }
}

/// What a verification gave.
#[derive(Clone, Debug, Default)]
pub struct Verification {
    /// All that was measured.
    pub checks: Vec<Check>,
    /// Why something was not.
    pub notes: Vec<String>,
    /// How true the path was.
    pub validity: Validity,
    /// What the lab counted.
    pub stats: LabStats,
}

/// How long a train is that is faster than the path.
const FAST: Duration = Duration::from_secs(2);

/// How long the other one is: what comes in bursts needs time.
const SLOW: Duration = Duration::from_secs(5);

/// How many standard deviations a random figure may be off: in one verification of ten thousand.
const DEVIATIONS: f64 = 4.0;

/// Most datagrams of a train.
const MOST: u64 = 400_000;

/// Bytes of a train's packets.
const PACKET: u32 = 1500;

/// Bytes of an echo's packets.
const ECHO: u32 = 100;

/// Echoes.
const ECHOES: u16 = 40;

/// What the kernels at both ends, and waking up, may add to a round trip.
const HOSTS: Duration = Duration::from_micros(500);

/// A train of this rate and length.
fn train(rate_bps: f64, length: Duration) -> Train {
    let packets = rate_bps * length.as_secs_f64() / f64::from(PACKET * 8);
    Train {
        rate_bps,
        packet: PACKET,
        count: (packets as u64).clamp(100, MOST),
    }
}

/// Verifies the network of every flow of a scenario, one after the other.
///
/// # Errors
/// What the machine does not allow.
pub fn verify(scenario: &Scenario) -> Result<Verification, LabError> {
    let mut scenario = scenario.clone();
    scenario.changes.clear();
    let lab = Lab::start(&scenario, &LabOptions::default())?;
    let mut found = Verification::default();
    let mut seen = Vec::new();
    for (number, flow) in scenario.flows.iter().enumerate() {
        let route = (&flow.forward, &flow.backward);
        if seen.contains(&route) {
            continue;
        }
        seen.push(route);
        let path = Path {
            lab: &lab,
            scenario: &scenario,
            flow,
            number,
        };
        if let Err(reason) = path.verify(&mut found) {
            found.notes.push(format!("{}: {reason}", flow.name));
        }
    }
    found.stats = lab.stop()?;
    found.validity = Validity::of(&scenario, &found.stats);
    Ok(found)
}

/// The path of one flow.
struct Path<'a> {
    lab: &'a Lab,
    scenario: &'a Scenario,
    flow: &'a FlowSpec,
    number: usize,
}

impl Path<'_> {
    fn verify(&self, found: &mut Verification) -> Result<(), String> {
        let pings = self.ping()?;
        found.checks.push(self.round_trip(&pings));
        let Some(rate) = self.slowest() else {
            found.notes.push(format!(
                "{}: no link of its path has a rate, so none was measured",
                self.flow.name
            ));
            return Ok(());
        };
        let ports = FlowPorts::of(self.number);
        let (fast, slow) = (train(rate * 1.3, FAST), train(rate * 0.5, SLOW));
        let (_, overload) = self.train(ports.server, fast)?;
        // Elsewhere: late farewells of the first train would end the second.
        let (sent, received) = self.train(ports.further, slow)?;
        let simulate = |train| simulate(self.scenario, self.number, train);
        let text = |error: NetworkError| error.to_string();
        let (fast, slow) = (simulate(fast).map_err(text)?, simulate(slow).map_err(text)?);
        found.checks.push(self.rate(rate, &overload, &fast));
        found.checks.push(self.loss(&sent, &received, &slow));
        found.checks.push(self.copies(&received));
        let (overload, received) = (overload.train, received.train);
        found.checks.extend(self.burst(overload, &fast));
        found.checks.extend(self.distributions(received, &slow));
        Ok(())
    }

    fn links(&self, links: &[LinkIndex]) -> impl Iterator<Item = &dfcp_sim::LinkConfig> {
        links.iter().map(|link| &self.scenario.links[link.0].config)
    }

    /// Bits per second of IP packets that the slowest link carries in the long run; `None` if none
    /// has a rate.
    fn slowest(&self) -> Option<f64> {
        let rate = |config: &dfcp_sim::LinkConfig| {
            let share = f64::from(PACKET) / f64::from(PACKET + config.framing);
            let rate = match &config.rate {
                LinkRate::Constant(rate) => Some(*rate),
                LinkRate::Trace(trace) => Some(trace.mean_rate()),
                LinkRate::Unlimited => None,
            };
            let buckets = [config.shaper, config.policer].into_iter().flatten();
            let rates = rate.into_iter().chain(buckets.map(|bucket| bucket.rate));
            let least = rates.map(|rate| rate.as_bps() as f64);
            least.fold(f64::INFINITY, f64::min) * share
        };
        let rates = self.links(&self.flow.forward).map(rate);
        let slowest = rates.fold(f64::INFINITY, f64::min);
        slowest.is_finite().then_some(slowest)
    }

    /// Whether all links there have constant rates, and nothing that holds packets or loses them by
    /// the clock.
    fn is_steady(&self) -> bool {
        let steady = |config: &dfcp_sim::LinkConfig| {
            let limits = [config.shaper, config.policer];
            !matches!(config.rate, LinkRate::Trace(_))
                && config.outages.is_empty()
                && config.grants.is_none()
                && limits.iter().all(Option::is_none)
        };
        self.links(&self.flow.forward).all(steady)
    }

    fn ping(&self) -> Result<Pings, String> {
        let (source, sink) = self.lab.flow_hosts(self.number);
        let patience = 4 * self.scenario.rtt(self.flow) + Duration::from_millis(500);
        let job = Job::Ping(PingJob {
            to: sink.ipv4().into(),
            count: ECHOES,
            packet: ECHO,
            patience_ns: patience.as_nanos() as u64,
        });
        let start = |job| worker::command(source, job)?.spawn();
        let process = start(&job).map_err(|error| error.to_string())?;
        let deadline = Wall::now() + u32::from(ECHOES) * patience + Duration::from_secs(5);
        match worker::report(&process.wait(deadline))? {
            Report::Pings(pings) => Ok(pings),
            _ => Err("an echo's report is not understood".into()),
        }
    }

    /// The median round trip beside propagation and serialisation of an idle path.
    fn round_trip(&self, pings: &Pings) -> Check {
        let serial = |config: &dfcp_sim::LinkConfig| match &config.rate {
            LinkRate::Constant(rate) => {
                f64::from(ECHO + config.framing) * 8.0 / rate.as_bps() as f64
            }
            _ => 0.0,
        };
        let both = || {
            let forward = self.links(&self.flow.forward);
            forward.chain(self.links(&self.flow.backward))
        };
        // Up to this long an echo waits for a grant, or the delay has wandered.
        let wait = |config: &dfcp_sim::LinkConfig| {
            let grant = config.grants.map_or(Duration::ZERO, |grants| grants.every);
            let wandered = config.wander.map_or(Duration::ZERO, |wander| wander.range);
            (grant + wandered).as_secs_f64()
        };
        // The median of a sum of times is near the sum of their medians.
        let time = |config: &dfcp_sim::LinkConfig| {
            let jitter = config.jitter.median();
            (config.delay + jitter).as_secs_f64() + serial(config) + wait(config) / 2.0
        };
        let waits: f64 = both().map(wait).sum();
        let jitter: f64 = both()
            .map(|config| config.jitter.mean().as_secs_f64())
            .sum();
        let mut times = pings.round_trips_ns.clone();
        times.sort_unstable();
        let median = times.get(times.len() / 2).map(|ns| *ns as f64 / 1e9);
        Check {
            flow: self.flow.name.clone(),
            what: "rtt_s",
            expected: both().map(time).sum(),
            measured: median,
            tolerance: HOSTS.as_secs_f64() + jitter / 2.0 + waits / 2.0,
        }
    }

    /// Sends datagrams to a port at so many bits a second.
    fn train(&self, port: u16, train: Train) -> Result<(Sent, Received), String> {
        let Train {
            rate_bps: rate,
            count,
            ..
        } = train;
        let (source, sink) = self.lab.flow_hosts(self.number);
        let server = (sink.ipv4(), port).into();
        let longest = Duration::from_secs_f64(count as f64 * f64::from(PACKET * 8) / rate);
        let limit = 2 * longest + self.scenario.rtt(self.flow) + Duration::from_secs(10);
        let until_ns = monotonic_ns() + limit.as_nanos() as u64;
        let text = |error: std::io::Error| error.to_string();
        let takes = Job::UdpSink(Sink {
            listen: server,
            until_ns,
            output: None,
        });
        let gives = Job::UdpSource(UdpSource {
            connect: server,
            load: UdpLoad::Train {
                rate_bps: rate as u64,
                packet: PACKET,
                count,
            },
            time: Side {
                start_ns: 0,
                stop_ns: until_ns,
            },
        });
        let deadline = Wall::now() + limit + Duration::from_secs(5);
        let start = |host, job| worker::command(host, job)?.spawn();
        let mut sink = start(sink, &takes).map_err(text)?;
        worker::wait_ready(&mut sink, deadline)?;
        let source = start(source, &gives).map_err(text)?;
        let sent = worker::report(&source.wait(deadline))?;
        let received = worker::report(&sink.wait(deadline))?;
        match (sent, received) {
            (Report::Sent(sent), Report::Received(received)) => Ok((sent, received)),
            _ => Err("a train's report is not understood".into()),
        }
    }

    /// The rate at which a train that was too fast came out, beside the slowest link's.
    fn rate(&self, rate: f64, received: &Received, simulated: &[TrailFigures]) -> Check {
        let bits_per_datagram = f64::from(PACKET * 8);
        if !self.is_steady() {
            let figure = |f: &TrailFigures| Some(f.arrivals_per_s * bits_per_datagram);
            let (expected, varies) = expected(simulated, figure).unwrap_or_default();
            return Check {
                flow: self.flow.name.clone(),
                what: "rate_bps",
                expected,
                measured: received.train.as_ref().and_then(figure),
                tolerance: 0.02 * expected + DEVIATIONS * varies,
            };
        }
        let mut samples = received.samples.iter();
        // From when the queue was full, at the latest after a tenth.
        let first = samples.find(|[at, _]| *at >= received.tenth_ns);
        let bits = first.map(|[at, bytes]| {
            let payload = (received.bytes - bytes) as f64;
            let packets = payload / f64::from(PACKET - 28);
            let seconds = received.last_ns.saturating_sub(*at) as f64 / 1e9;
            packets * bits_per_datagram / seconds
        });
        let passing = self.passing();
        let packets = received.datagrams.unwrap_or_default().count.max(1) as f64;
        let chance = 4.0 * ((1.0 - passing) / packets).sqrt();
        Check {
            flow: self.flow.name.clone(),
            what: "rate_bps",
            expected: rate * passing * self.copied(),
            measured: bits.filter(|bits| bits.is_finite()),
            tolerance: rate * (0.01 + chance),
        }
    }

    /// Share of packets that no link loses, on the way there.
    fn passing(&self) -> f64 {
        let pass = |config: &dfcp_sim::LinkConfig| 1.0 - config.mean_loss();
        self.links(&self.flow.forward).map(pass).product()
    }

    /// Packets that come out for each that is not lost.
    fn copied(&self) -> f64 {
        let copies = |config: &dfcp_sim::LinkConfig| 1.0 + config.duplicate;
        self.links(&self.flow.forward).map(copies).product()
    }

    fn loss(&self, sent: &Sent, received: &Received, simulated: &[TrailFigures]) -> Check {
        let came = received.datagrams.unwrap_or_default();
        let count = sent.datagrams.unwrap_or(0) as f64;
        let once = came.count.saturating_sub(came.duplicates) as f64;
        let expected = 1.0 - self.passing();
        // Losses in bursts vary more than independent ones.
        let bursts = self
            .links(&self.flow.forward)
            .map(|config| burst(&config.loss))
            .fold(1.0, f64::max);
        let deviation = (expected * (1.0 - expected) / count.max(1.0) * bursts).sqrt();
        let varies = crate::train::expected(simulated, |figures| Some(figures.loss));
        let deviation = varies.map_or(deviation, |(_, varies)| deviation.max(varies));
        Check {
            flow: self.flow.name.clone(),
            what: "loss",
            expected,
            measured: (count > 0.0).then(|| 1.0 - once / count),
            tolerance: 0.0005 + 5.0 * deviation,
        }
    }

    /// How many packets of a train that is too fast pass before the first is lost: the queue, or the
    /// burst that a policer allows. Left out where chance decides it.
    fn burst(&self, measured: Option<TrailFigures>, simulated: &[TrailFigures]) -> Option<Check> {
        let figure = |figures: &TrailFigures| figures.before_loss.map(|n| n as f64);
        let (expected, varies) = expected(simulated, figure)?;
        (varies <= 0.1 * expected).then(|| Check {
            flow: self.flow.name.clone(),
            what: "burst_packets",
            expected,
            measured: measured.as_ref().and_then(figure),
            tolerance: 10.0 + 0.1 * expected + DEVIATIONS * varies,
        })
    }

    /// What is random in bursts or by the clock, beside what the simulator does to the same train.
    fn distributions(
        &self,
        measured: Option<TrailFigures>,
        simulated: &[TrailFigures],
    ) -> Vec<Check> {
        type Figure = fn(&TrailFigures) -> Option<f64>;
        let hosts = HOSTS.as_secs_f64();
        // What a host or a short run may add, and the share of what is expected.
        let figures: [(&'static str, Figure, f64, f64); 4] = [
            ("loss_burst_packets", |f| f.loss_burst, 0.1, 0.05),
            ("delay_mean_s", |f| Some(f.delay_mean_s), hosts, 0.05),
            ("delay_p95_s", |f| Some(f.delay_p95_s), 2.0 * hosts, 0.05),
            ("pause_share", |f| Some(f.pause_share), 0.005, 0.05),
        ];
        let check = |(what, figure, least, share): (_, Figure, f64, f64)| {
            let (expected, varies) = expected(simulated, figure)?;
            Some(Check {
                flow: self.flow.name.clone(),
                what,
                expected,
                measured: measured.as_ref().and_then(figure),
                tolerance: least + share * expected + DEVIATIONS * varies,
            })
        };
        figures.into_iter().filter_map(check).collect()
    }

    fn copies(&self, received: &Received) -> Check {
        let came = received.datagrams.unwrap_or_default();
        let once = came.count.saturating_sub(came.duplicates) as f64;
        let expected = self.copied() - 1.0;
        let deviation = (expected / once.max(1.0)).sqrt();
        Check {
            flow: self.flow.name.clone(),
            what: "duplicates",
            expected,
            measured: (once > 0.0).then(|| came.duplicates as f64 / once),
            tolerance: 0.0005 + 5.0 * deviation,
        }
    }
}

/// How much more the share of lost packets varies than if each was lost on its own: about twice
/// the packets that a channel's state lasts.
fn burst(loss: &LossModel) -> f64 {
    match loss {
        LossModel::GilbertElliott(channel) => {
            2.0 / (channel.good_to_bad + channel.bad_to_good).max(1e-6)
        }
        _ => 1.0,
    }
}
