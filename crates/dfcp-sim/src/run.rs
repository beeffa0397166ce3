//! Runs a scenario: builds its network, lets time pass, reports what was measured.

use std::collections::BTreeMap;
use std::sync::Arc;

use dfcp_proto::observe::{Observe, Vantage};
use dfcp_proto::profile::ChameleonParameters;
use dfcp_proto::published::{self, Carrier, Completion, Redundancy};
use dfcp_proto::rate::{BlockWait, MaxRate};
use dfcp_proto::{Duration, Instant, Payload, Profile, TransportConfig};

use crate::coded::CodedConfig;
use crate::engine::{
    ControllerConfig, Delivery, DfcpConfig, DfcpPayload, FlowConfig, HostClock, LinkId, Network,
    NetworkError, Observer, Pace, PublishedConfig, Simulation, Traffic,
};
use crate::report::RunReport;
use crate::scenario::{
    ControlLaw, DfcpSpec, EndSpec, FlowSpec, LinkIndex, LinkSpec, ProfileSpec, ProtocolSpec,
    PublishedSpec, RcUdpSpec, Scenario,
};

mod measure;

/// How often a run that ends when its flows are done looks whether they are.
const LOOK: Duration = Duration::from_millis(10);

/// Runs a scenario to its end.
///
/// # Errors
/// What the scenario asks for and the network cannot be.
pub fn run(scenario: &Scenario) -> Result<RunReport, NetworkError> {
    run_watched(scenario, Watch::default(), &mut |_| ())
}

/// Makes the observers of a flow's connections: by the flow's number and the end of the connection.
pub type Watcher = Arc<dyn Fn(usize, &Vantage) -> Option<Box<dyn Observe>> + Send + Sync>;

/// Who sees what happens in a run; nobody by default.
#[derive(Default)]
pub struct Watch {
    /// Sees every packet of the hosts.
    pub packets: Option<Observer>,
    /// Sees what the connections of the protocol core do, of either wire, on their hosts' clocks.
    pub connections: Option<Watcher>,
}

/// As [`run`], watched; `progress` hears of the time reached about a hundred times.
///
/// # Errors
/// As [`run`].
pub fn run_watched(
    scenario: &Scenario,
    watch: Watch,
    progress: &mut dyn FnMut(Instant),
) -> Result<RunReport, NetworkError> {
    let mut simulation = build_with(scenario, |id, flow| {
        let mut traffic = traffic(flow);
        if let Some(watcher) = &watch.connections {
            observe(&mut traffic, id, watcher);
        }
        traffic
    })?;
    if let Some(packets) = watch.packets {
        simulation.observe(packets);
    }
    let end = Instant::ZERO + scenario.run.duration;
    let steps = (scenario.run.duration / 100).max(LOOK);
    let step = match scenario.run.end {
        EndSpec::Duration => steps,
        EndSpec::Finished => LOOK,
    };
    while simulation.now() < end {
        simulation.run_until((simulation.now() + step).min(end));
        progress(simulation.now());
        if scenario.run.end == EndSpec::Finished && simulation.all_finished() {
            break;
        }
    }
    Ok(measure(scenario, &simulation))
}

/// What a simulation of `scenario` has measured so far.
pub fn measure(scenario: &Scenario, simulation: &Simulation) -> RunReport {
    measure::report(scenario, simulation)
}

/// Builds the network of a scenario, at time zero.
///
/// # Errors
/// As [`run`].
pub fn build(scenario: &Scenario) -> Result<Simulation, NetworkError> {
    build_with(scenario, |_, flow| traffic(flow))
}

/// As [`build`], with all hosts outside the simulation: real programs on a real clock.
///
/// # Errors
/// As [`run`].
pub fn build_external(scenario: &Scenario) -> Result<Simulation, NetworkError> {
    build_with(scenario, |_, _| Traffic::External)
}

fn build_with(
    scenario: &Scenario,
    traffic: impl Fn(usize, &FlowSpec) -> Traffic,
) -> Result<Simulation, NetworkError> {
    let mut network = Network::new(scenario.run.seed.0);
    let classes = Classes::of(scenario);
    let mut links = Vec::new();
    for link in &scenario.links {
        let id = network.add_link(&link.name, link.config.clone());
        network.set_weights(id, classes.weights_at(link));
        links.push(id);
    }
    for (id, flow) in scenario.flows.iter().enumerate() {
        network.add_flow(FlowConfig {
            name: flow.name.clone(),
            class: classes.number(&flow.class),
            forward: route(&flow.forward),
            backward: route(&flow.backward),
            start: flow.start,
            stop: flow.stop,
            size: flow.size,
            traffic: traffic(id, flow),
        });
    }
    for change in &scenario.changes {
        let link = LinkId(change.link.0 as u32);
        network.change_link(change.at, link, change.config.clone());
    }
    if let Some(controller) = &scenario.controller {
        network.control(ControllerConfig {
            response: controller.response,
            error: controller.error,
            weights: classes.weights.values().copied().collect(),
        });
    }
    if !scenario.run.warmup.is_zero() {
        network.warm_up_until(Instant::ZERO + scenario.run.warmup);
    }
    if let Some(interval) = scenario.run.sample {
        network.sample(interval, &links);
    }
    network.build()
}

/// The classes of a scenario, numbered by their names, and their weights as integers.
struct Classes {
    numbers: BTreeMap<String, u32>,
    weights: BTreeMap<String, f64>,
}

impl Classes {
    fn of(scenario: &Scenario) -> Self {
        let weights: BTreeMap<_, _> = scenario
            .flows
            .iter()
            .map(|flow| (flow.class.clone(), flow.weight))
            .collect();
        let numbers = weights.keys().cloned().zip(0..).collect();
        Self { numbers, weights }
    }

    fn number(&self, class: &str) -> u32 {
        self.numbers.get(class).copied().unwrap_or(0)
    }

    /// The weight of every class at a link, in order of their numbers, as small integers in
    /// their proportion.
    fn weights_at(&self, link: &LinkSpec) -> Vec<u32> {
        let weights: Vec<f64> = self
            .weights
            .iter()
            .map(|(class, own)| link.weights.get(class).copied().unwrap_or(*own))
            .collect();
        integer_weights(&weights)
    }
}

/// Integers in the proportion of `weights`, within 1 %, the smallest that are: DRR's quantum is
/// multiplied by them, and a long turn is a burst.
fn integer_weights(weights: &[f64]) -> Vec<u32> {
    let least = weights.iter().copied().fold(f64::INFINITY, f64::min);
    let scaled = |n: f64| weights.iter().map(move |w| w / least * n);
    let fits = |n: &u32| scaled(f64::from(*n)).all(|w| (w - w.round()).abs() <= 0.01 * w);
    let n = (1..100).find(fits).unwrap_or(100);
    scaled(f64::from(n)).map(|w| w.round() as u32).collect()
}

fn route(links: &[LinkIndex]) -> Vec<LinkId> {
    links.iter().map(|i| LinkId(i.0 as u32)).collect()
}

/// What a flow of a scenario sends, as hosts take it.
pub fn traffic(flow: &FlowSpec) -> Traffic {
    match &flow.protocol {
        ProtocolSpec::Tcp(tcp) => Traffic::Tcp(tcp.clone()),
        ProtocolSpec::Udp(udp) => Traffic::Udp(udp.clone()),
        ProtocolSpec::Dfcp(spec) => {
            let mut config = dfcp(spec);
            config.reading.clone_from(&flow.reading);
            config.clock.clone_from(&flow.clock);
            config.sender_clock.clone_from(&flow.sender_clock);
            // A reader that takes all at once is given what arrives: order would only show in the
            // time series, as gaps that the papers' rates of arrival do not have.
            if flow.reading.is_empty() {
                config.delivery = Delivery::AnyOrder;
            }
            Traffic::Dfcp(Box::new(config))
        }
        ProtocolSpec::Published(spec) => Traffic::Published(Box::new(published(spec))),
        ProtocolSpec::Coded(spec) => {
            let others = flow.others.iter();
            Traffic::Coded(Box::new(CodedConfig {
                others: others
                    .map(|(there, back)| (route(there), route(back)))
                    .collect(),
                ..spec.config()
            }))
        }
        ProtocolSpec::RcUdp(spec) => Traffic::Published(Box::new(rc_udp(spec, flow.size))),
    }
}

/// Has the connections of flow number `id` watched.
fn observe(traffic: &mut Traffic, id: usize, watcher: &Watcher) {
    let maker = || {
        let watcher = watcher.clone();
        move |vantage: &Vantage| watcher(id, vantage)
    };
    match traffic {
        Traffic::Dfcp(config) => {
            for end in [&mut config.client, &mut config.server] {
                *end = std::mem::take(end).observer(maker());
            }
        }
        Traffic::Published(config) => {
            config.client.observers.add(maker());
            config.server.observers.add(maker());
        }
        _ => {}
    }
}

fn dfcp(spec: &DfcpSpec) -> DfcpConfig {
    let (delivery, window) = match spec.profile {
        ProfileSpec::Chameleon(c) | ProfileSpec::Tfrc(c) => (Delivery::InOrder, c.window),
        _ => (Delivery::AnyOrder, ChameleonParameters::default().window),
    };
    let mut profile = match spec.profile {
        ProfileSpec::Auto => Profile::auto(),
        ProfileSpec::Ctcp(parameters) => Profile::ctcp_with(parameters),
        ProfileSpec::Chameleon(spec) | ProfileSpec::Tfrc(spec) => Profile::chameleon_with(spec),
    };
    let scheme = spec.code.unwrap_or(profile.scheme);
    profile = profile.with_scheme(scheme, spec.block_symbols.unwrap_or(0));
    let control = spec.control;
    if control.law != ControlLaw::Profile {
        profile = profile.with_rate(move || control.controller().unwrap_or(Box::new(MaxRate)));
    }
    if let Some(scheduler) = spec.scheduler {
        profile = scheduler.on(profile);
    }
    if let Some(feedback) = spec.feedback {
        profile = feedback.on(profile, window);
    }
    let block_symbols = profile.block_symbols;
    let transport = TransportConfig::default()
        .profile(profile)
        .reliability(spec.reliability)
        .mtu(spec.mtu)
        .receive_budget(spec.receive_budget)
        .send_buffer(spec.send_buffer);
    DfcpConfig {
        client: transport.clone(),
        server: transport,
        block_symbols,
        payload: spec.payload,
        coding_rate: spec.coding_rate,
        pace: pace(spec.control.law),
        delivery,
        reading: Vec::new(),
        sender_clock: HostClock::default(),
        clock: HostClock::default(),
    }
}

fn pace(law: ControlLaw) -> Pace {
    match law {
        law if law.is_at_line_rate() => Pace::FirstLink,
        ControlLaw::Ordered => Pace::Orders,
        _ => Pace::Own,
    }
}

fn published(spec: &PublishedSpec) -> PublishedConfig {
    let mut config = published::Config::default();
    config.code = spec.code().into();
    config.completion = spec.completion;
    config.last_packet = spec.last_packet;
    config.window = spec.window;
    config.redundancy = Redundancy {
        epsilon: spec.redundancy,
        sending: spec.sending,
    };
    config.acknowledge = spec.acknowledge;
    config.moment = spec.moment;
    config.encoding = spec.encoding;
    config.decoding = spec.decoding;
    config.payload = match spec.payload {
        DfcpPayload::Virtual => Payload::Virtual,
        DfcpPayload::Real => Payload::Real,
    };
    config.carrier = Carrier::Ip;
    config.mtu = spec.mtu.unwrap_or(config.mtu);
    // The window alone limits what is on its way.
    let window = u64::from(spec.window) * u64::from(spec.block);
    config.send_buffer = window + u64::from(spec.block);
    config.receive_budget = u64::MAX;
    let control = spec.control;
    config.rate = Arc::new(move || control.controller().unwrap_or(Box::new(MaxRate)));
    PublishedConfig {
        client: config.clone(),
        server: config,
        pace: pace(control.law),
    }
}

/// RC-UDP: `size` is the length of the message, S_m.
fn rc_udp(spec: &RcUdpSpec, size: Option<u64>) -> PublishedConfig {
    let (control, delta_t) = (spec.control, spec.delta_t);
    let mut config = published::Config::rc_udp(size).with_rate(move || {
        let inner = control.controller().unwrap_or(Box::new(MaxRate));
        Box::new(BlockWait::new(inner, delta_t))
    });
    config.code = spec.code();
    config.completion = Completion::Structure;
    config.redundancy.epsilon = spec.epsilon;
    config.payload = match spec.payload {
        DfcpPayload::Virtual => Payload::Virtual,
        DfcpPayload::Real => Payload::Real,
    };
    config.carrier = Carrier::Ip;
    config.mtu = spec.mtu.unwrap_or(config.mtu);
    config.receive_budget = u64::MAX;
    PublishedConfig {
        client: config.clone(),
        server: config,
        pace: pace(control.law),
    }
}

#[cfg(test)]
mod tests {
    use super::integer_weights;

    #[test]
    fn weights_become_the_smallest_integers_in_proportion() {
        assert_eq!(integer_weights(&[0.3, 0.7]), [3, 7]);
        assert_eq!(integer_weights(&[1.0, 1.0, 1.0]), [1, 1, 1]);
        assert_eq!(integer_weights(&[2.0, 8.0]), [1, 4]);
        let irrational = integer_weights(&[1.0, std::f64::consts::PI]);
        let ratio = f64::from(irrational[1]) / f64::from(irrational[0]);
        assert!((ratio / std::f64::consts::PI - 1.0).abs() < 0.01);
        assert!(integer_weights(&[]).is_empty());
    }
}
