//! A lab: the hosts of a scenario, each with its own kernel network, joined by the scenario's
//! network on the real clock; or two hosts on one cable without anything between them.
//!
//! The lab is in the network namespace of the thread that makes it: call
//! [`isolate`](crate::isolate) first.

mod hops;
mod switched;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dfcp_proto::{Duration, Instant};
use dfcp_sim::engine::{Direction, FlowCounters, NetworkError, Simulation};
use dfcp_sim::report::RunReport;
use dfcp_sim::scenario::{FlowSpec, Scenario};
use dfcp_sim::{FlowId, LinkStats};

use self::hops::Hops;
use self::switched::Switches;
use crate::leftover::Named;
use crate::net::cable::{CableConfig, CablePort, Checksums, Classify};
use crate::net::frame::Header;
use crate::net::host::{DEVICE, Host, MAX_HOSTS, host_number};
use crate::net::netlink::{CableEnd, CableSettings, Netlink, Segmentation};
use crate::path::{Clock, Emulator, EmulatorConfig, PathStats, Port};

pub use self::switched::Tools;
pub(crate) use self::switched::{is_ordered, wants_controller};

/// Port of the server of flow `i`: this much more.
const SERVER_PORT: u16 = 20_000;

/// First of the ten further ports of flow `i`: ten times `i` more.
const FURTHER_PORTS: u16 = 30_000;

/// Flows that have ports.
const MAX_FLOWS: usize = (u16::MAX - FURTHER_PORTS) as usize / 10;

/// How a lab is made.
#[derive(Clone, Debug)]
pub struct LabOptions {
    /// Time on the lab's clock before the scenario's time zero: servers start in it.
    pub lead_in: Duration,
    /// How long before a packet is due the path's thread stops sleeping.
    pub spin: Duration,
    /// Names for the hosts, so that `ip netns exec` finds them.
    pub names: Names,
}

impl Default for LabOptions {
    fn default() -> Self {
        Self {
            lead_in: Duration::ZERO,
            spin: Duration::from_micros(10),
            names: Names::None,
        }
    }
}

/// What the hosts' namespaces are called on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Names {
    /// Nothing.
    #[default]
    None,
    /// This and the host's name.
    Prefix(String),
}

impl Names {
    fn give(&self, hosts: &[Host]) -> Result<Vec<Named>, LabError> {
        let Self::Prefix(prefix) = self else {
            return Ok(Vec::new());
        };
        let name = |host: &Host| Named::new(prefix, host.name(), host.namespace());
        let names: io::Result<_> = hosts.iter().map(name).collect();
        names.map_err(system("names for the hosts"))
    }
}

/// Why there is no lab.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The kernel does not let this process, or cannot.
    #[error("{doing}: {error}")]
    System {
        /// What was being done.
        doing: &'static str,
        /// What the kernel says.
        error: io::Error,
    },
    /// The scenario's network makes no sense.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// More flows or hosts than there are ports or addresses.
    #[error("a lab has at most {MAX_FLOWS} flows and {MAX_HOSTS} hosts")]
    TooLarge,
    /// Two flows in a row from a host to itself.
    #[error("flow {0} leads from a host to itself")]
    Loop(String),
    /// A flow whose packets come back on another way than they go.
    #[error("flow {0} comes back on another way: switches have cables both ways")]
    OneWay(String),
}

fn system(doing: &'static str) -> impl FnOnce(io::Error) -> LabError {
    move |error| LabError::System { doing, error }
}

/// A running lab; it ends, with everything in it, when dropped.
pub struct Lab {
    hosts: Vec<Host>,
    flows: FlowHosts,
    clock: Clock,
    lead_in: Duration,
    path: Option<Emulator>,
    /// As the network runs it: later by the lead-in.
    scenario: Option<Scenario>,
    /// How the network's flows, hops of switches, become the scenario's.
    joined: Option<(Hops, Vec<FlowSpec>)>,
    switches: Option<Switches>,
    _names: Vec<Named>,
}

/// What a lab measured.
#[derive(Clone, Debug, Default)]
pub struct LabStats {
    /// For each one-way link of the scenario, its counters; none on a plain cable.
    pub links: Vec<LinkStats>,
    /// For each flow, its packets: what entered its route and what came out. With switches, for each
    /// hop of each flow.
    pub flows: Vec<FlowCounters>,
    /// How true the path was; `None` on a plain cable.
    pub path: Option<PathStats>,
}

/// Transport ports that mark packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowPorts {
    /// Where the flow's server listens.
    pub server: u16,
    /// First of ten further ports, for programs that need some.
    pub further: u16,
}

impl FlowPorts {
    /// Those of the flow with this number; a lab has no flow with a greater one than fits.
    pub fn of(flow: usize) -> Self {
        let flow = flow.min(MAX_FLOWS - 1) as u16;
        Self {
            server: SERVER_PORT + flow,
            further: FURTHER_PORTS + 10 * flow,
        }
    }
}

/// Which flow joins which hosts.
#[derive(Clone, Debug, Default)]
pub struct FlowHosts(Vec<[usize; 2]>);

impl FlowHosts {
    /// The flow that a port marks.
    fn of_port(&self, port: u16) -> Option<usize> {
        let flow = match port {
            FURTHER_PORTS.. => (port - FURTHER_PORTS) / 10,
            SERVER_PORT.. => port - SERVER_PORT,
            _ => return None,
        };
        (usize::from(flow) < self.0.len()).then_some(usize::from(flow))
    }

    /// Which way a packet between two hosts goes on a flow, if it does.
    fn direction(&self, flow: usize, from: usize, to: usize) -> Option<(FlowId, Direction)> {
        let [source, sink] = *self.0.get(flow)?;
        let direction = match (from, to) {
            ends if ends == (source, sink) => Direction::Forward,
            ends if ends == (sink, source) => Direction::Backward,
            _ => return None,
        };
        Some((FlowId(flow as u32), direction))
    }
}

impl Classify for FlowHosts {
    fn classify(&self, from: usize, header: &Header) -> Option<(FlowId, Direction)> {
        let to = host_number(header.destination)?;
        let (source, destination) = header.ports.unwrap_or_default();
        let marked = [destination, source].into_iter();
        marked
            .filter_map(|port| self.of_port(port))
            .find_map(|flow| self.direction(flow, from, to))
            .or_else(|| (0..self.0.len()).find_map(|flow| self.direction(flow, from, to)))
    }
}

impl Lab {
    /// The hosts of a scenario's flows, joined by its network, which starts to run.
    ///
    /// # Errors
    /// What the kernel or the scenario does not allow.
    pub fn start(scenario: &Scenario, options: &LabOptions) -> Result<Self, LabError> {
        let (names, flows) = flow_hosts(scenario)?;
        let mut hosts = Vec::new();
        for (number, name) in names.iter().enumerate() {
            hosts.push(Host::create(name, number).map_err(system("a host's namespace"))?);
        }
        let names = options.names.give(&hosts)?;
        let shared: Arc<dyn Classify> = Arc::new(flows.clone());
        let mtu = mtu(scenario);
        let checksums = match flips_bits(scenario) {
            true => Checksums::Computed,
            false => Checksums::Open,
        };
        let mut ports: Vec<Box<dyn Port>> = Vec::new();
        for host in &hosts {
            let device = plug_in(host, mtu).map_err(system("a host's cable"))?;
            let config = CableConfig {
                device,
                host: ports.len(),
                mac: host.mac(),
                flows: Arc::clone(&shared),
                checksums,
            };
            let port = CablePort::open(config).map_err(system("the path's end of a cable"))?;
            ports.push(Box::new(port));
        }
        let scenario = later(scenario, options.lead_in);
        let network = dfcp_sim::build_external(&scenario)?;
        let clock = Clock::start();
        let path = Emulator::start(EmulatorConfig {
            network,
            clock,
            ports,
            ends: flows.0.clone(),
            spin: options.spin,
        });
        Ok(Self {
            hosts,
            flows,
            clock,
            lead_in: options.lead_in,
            path: Some(path.map_err(system("the path's thread"))?),
            scenario: Some(scenario),
            joined: None,
            switches: None,
            _names: names,
        })
    }

    /// Two hosts, `source` and `sink`, on one cable with nothing between them; flow 0 leads from
    /// the first to the second.
    ///
    /// # Errors
    /// What the kernel does not allow.
    pub fn direct_pair(options: &LabOptions) -> Result<Self, LabError> {
        let host = |name, number| Host::create(name, number).map_err(system("a host's namespace"));
        let hosts = vec![host("source", 0)?, host("sink", 1)?];
        let end = |host| end(host, DEVICE);
        let cable = || -> io::Result<()> {
            let settings = CableSettings {
                mtu: 1500,
                segmentation: Segmentation::Card,
            };
            // Without questions about hardware addresses each host writes to its own.
            let far = CableEnd {
                mac: hosts[0].mac(),
                ..end(&hosts[1])
            };
            Netlink::open()?.add_cable(&end(&hosts[0]), &far, settings)?;
            hosts.iter().try_for_each(Host::connect)
        };
        cable().map_err(system("a cable between two hosts"))?;
        Ok(Self {
            _names: options.names.give(&hosts)?,
            hosts,
            flows: FlowHosts(vec![[0, 1]]),
            clock: Clock::start(),
            lead_in: options.lead_in,
            path: None,
            scenario: None,
            joined: None,
            switches: None,
        })
    }

    /// The host that a scenario's node is.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name() == name)
    }

    /// All hosts.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Source and sink of a flow.
    ///
    /// # Panics
    /// When there is no such flow.
    pub fn flow_hosts(&self, flow: usize) -> (&Host, &Host) {
        let [source, sink] = self.flows.0[flow];
        (&self.hosts[source], &self.hosts[sink])
    }

    /// Nanoseconds of `CLOCK_MONOTONIC` at the scenario's time zero.
    pub fn epoch_ns(&self) -> u64 {
        self.clock.monotonic_ns(Instant::ZERO + self.lead_in)
    }

    /// Nanoseconds of `CLOCK_MONOTONIC` now.
    pub fn now_ns(&self) -> u64 {
        self.clock.monotonic_ns(self.clock.now())
    }

    /// What happened so far.
    pub fn stats(&self) -> LabStats {
        match &self.path {
            Some(path) => {
                let (links, flows) = path.inspect(counters);
                LabStats {
                    links,
                    flows,
                    path: Some(path.stats()),
                }
            }
            None => LabStats::default(),
        }
    }

    /// The figures of a run so far, without those that only the hosts know: what was delivered.
    /// Time series begin at the scenario's time zero.
    pub fn measure(&self) -> RunReport {
        let (Some(path), Some(scenario)) = (&self.path, &self.scenario) else {
            return RunReport::default();
        };
        let mut report = path.inspect(|network| dfcp_sim::measure(scenario, network));
        for series in &mut report.series {
            let before = (self.lead_in.as_secs_f64() / series.interval_s).round() as usize;
            series.values.drain(..before.min(series.values.len()));
        }
        if let Some((hops, flows)) = &self.joined {
            hops.join(flows, &mut report);
        }
        report
    }

    /// Ends the lab.
    ///
    /// # Errors
    /// When a cable had failed, which cut the path.
    pub fn stop(mut self) -> Result<LabStats, LabError> {
        let Some(path) = self.path.take() else {
            return Ok(LabStats::default());
        };
        let stopped = path.stop(counters).map_err(system("the path"))?;
        let (path, (links, flows)) = stopped;
        Ok(LabStats {
            links,
            flows,
            path: Some(path),
        })
    }
}

fn counters(network: &Simulation) -> (Vec<LinkStats>, Vec<FlowCounters>) {
    let links = network.links().iter().map(|link| link.stats().clone());
    let flows = network.flows().iter().map(|flow| network.counters(flow.id));
    (links.collect(), flows.collect())
}

/// The names of the nodes where flows begin or end, and which of them each flow joins.
fn flow_hosts(scenario: &Scenario) -> Result<(Vec<String>, FlowHosts), LabError> {
    let mut names: Vec<String> = Vec::new();
    let mut flows = Vec::new();
    for flow in &scenario.flows {
        if flow.from == flow.to {
            return Err(LabError::Loop(flow.name.clone()));
        }
        flows.push([flow.from, flow.to].map(|node| {
            let name = &scenario.nodes[node.0].name;
            let known = names.iter().position(|other| other == name);
            known.unwrap_or_else(|| {
                names.push(name.clone());
                names.len() - 1
            })
        }));
    }
    match flows.len() > MAX_FLOWS || names.len() > MAX_HOSTS {
        true => Err(LabError::TooLarge),
        false => Ok((names, FlowHosts(flows))),
    }
}

/// The largest packet of any link: a smaller one on the way is for programs to find out.
fn mtu(scenario: &Scenario) -> u32 {
    let links = scenario.links.iter().filter_map(|link| link.config.mtu);
    links.max().unwrap_or(1500).clamp(1280, 65_535)
}

fn flips_bits(scenario: &Scenario) -> bool {
    let links = scenario.links.iter().map(|link| &link.config);
    let changed = scenario.changes.iter().map(|change| &change.config);
    links.chain(changed).any(|config| config.corrupt > 0.0)
}

/// The scenario with everything later.
fn later(scenario: &Scenario, by: Duration) -> Scenario {
    let mut scenario = scenario.clone();
    scenario.run.warmup += by;
    for flow in &mut scenario.flows {
        flow.start += by;
        flow.stop = flow.stop.map(|stop| stop + by);
    }
    for change in &mut scenario.changes {
        change.at += by;
    }
    scenario
}

/// Lays a cable from this namespace to a host; says the number of its device here.
fn plug_in(host: &Host, mtu: u32) -> io::Result<u32> {
    // Those of an earlier lab may take a moment to go.
    static CABLES: AtomicU32 = AtomicU32::new(0);
    let name = format!("lab{}", CABLES.fetch_add(1, Ordering::Relaxed));
    let near = CableEnd {
        name: &name,
        mac: host.far_mac(),
        namespace: None,
    };
    let settings = CableSettings {
        mtu,
        segmentation: segmentation(),
    };
    let netlink = Netlink::open()?;
    netlink.add_cable(&near, &end(host, DEVICE), settings)?;
    // The lab's end is no host: nothing of it is to be on the cable.
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
    netlink.up_without_arp(&name)?;
    host.connect()?;
    Ok(nix::net::if_::if_nametoindex(name.as_str())?)
}

fn end<'a>(host: &'a Host, name: &'a str) -> CableEnd<'a> {
    CableEnd {
        name,
        mac: host.mac(),
        namespace: Some(host.namespace()),
    }
}

/// Before Linux 6.2 packet sockets cannot say how UDP is to be cut.
fn segmentation() -> Segmentation {
    let release = nix::sys::utsname::uname()
        .map(|name| name.release().to_string_lossy().into_owned())
        .unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|n| n.parse::<u32>().ok());
    match (number(), number()) {
        (Some(major), Some(minor)) if (major, minor) >= (6, 2) => Segmentation::Card,
        _ => Segmentation::Kernel,
    }
}
