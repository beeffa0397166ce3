//! Puts a simulation together: links, flows with their routes and hosts, and what changes when.

use super::agent::{Agent, Buffers, Pace};
use super::clock;
use super::controller::{Client, Controller, ControllerConfig};
use super::dfcp::{self, DfcpConfig};
use super::external::{Departed, External};
use super::packet::Cargo;
use super::published::{self, PublishedConfig};
use super::schedule::{MAX_COMPONENTS, Schedule};
use super::script::Act;
use super::tcp::{TcpConfig, TcpSink, TcpSource};
use super::udp::{IP_UDP_HEADER, UdpConfig, UdpPattern, UdpSink, UdpSource};
use super::{Direction, Ends, FlowCounters, Hop, HopId, NO_SEAT, Route, Samples, Seat, Simulation};
use crate::coded::{self, CodedConfig, Relaying};
use crate::link::{Link, LinkConfig, LinkConfigError, LinkRate};
use crate::packet::FlowId;
use crate::queue::Shares;
use crate::random::Seed;
use dfcp_proto::{Duration, Instant};
use std::collections::BTreeMap;

/// A link of a [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// What a flow is.
#[derive(Clone, Debug)]
pub struct FlowConfig {
    /// A name, unique in the network.
    pub name: String,
    /// The class that fair queues count it to: flows of one class share one queue.
    pub class: u32,
    /// Links from the source to the sink.
    pub forward: Vec<LinkId>,
    /// Links back.
    pub backward: Vec<LinkId>,
    /// When the source begins.
    pub start: Instant,
    /// When the source falls silent, finished or not.
    pub stop: Option<Instant>,
    /// Bytes to send; `None` for without end.
    pub size: Option<u64>,
    /// What it sends.
    pub traffic: Traffic,
}

/// Which protocol a flow speaks.
#[derive(Clone, Debug)]
pub enum Traffic {
    /// TCP, one way.
    Tcp(TcpConfig),
    /// Datagrams without any control.
    Udp(UdpConfig),
    /// The protocol core of this workspace.
    Dfcp(Box<DfcpConfig>),
    /// DFCP as published.
    Published(Box<PublishedConfig>),
    /// Network coding over several paths or relays.
    Coded(Box<CodedConfig>),
    /// Whatever programs outside the simulation send.
    External,
}

impl Traffic {
    /// What holds the sender back.
    fn pace(&self) -> Pace {
        match self {
            Self::Tcp(_) | Self::Udp(_) | Self::External => Pace::Own,
            Self::Dfcp(config) => config.pace,
            Self::Published(config) => config.pace,
            Self::Coded(config) => config.pace(),
        }
    }

    /// Most that it sends, bit/s of IP packets.
    fn most(&self) -> f64 {
        match self {
            Self::Udp(udp) if !matches!(udp.pattern, UdpPattern::OnOff { .. }) => {
                udp.rate.as_bps() as f64
            }
            _ => f64::INFINITY,
        }
    }

    /// Bytes of a full packet where the path takes `mtu`, and of its headers below the protocol.
    fn packet(&self, mtu: u32) -> (u32, u32) {
        match self {
            Self::Udp(udp) => (udp.packet, IP_UDP_HEADER),
            Self::Tcp(_) | Self::Dfcp(_) | Self::External => (mtu, IP_UDP_HEADER),
            Self::Published(config) => {
                (published::packet_size(&config.client), published::IP_HEADER)
            }
            Self::Coded(config) => (config.packet, IP_UDP_HEADER),
        }
    }
}

/// What is known of a flow from the start.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FlowInfo {
    /// Its identifier.
    pub id: FlowId,
    /// Its name.
    pub name: String,
    /// When it begins.
    pub start: Instant,
    /// When it falls silent.
    pub stop: Option<Instant>,
    /// Bytes to send.
    pub size: Option<u64>,
}

/// Why a network cannot be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// A link makes no sense.
    #[error("link {name}: {error}")]
    Link {
        /// The link.
        name: String,
        /// What is wrong.
        error: LinkConfigError,
    },
    /// A flow uses a link that does not exist.
    #[error("flow {flow} goes over link {link}, which is not there")]
    NoSuchLink {
        /// The flow.
        flow: String,
        /// The link.
        link: u32,
    },
    /// There are more links and flows than the schedule can tell apart.
    #[error("more than {MAX_COMPONENTS} links and ends of flows")]
    TooLarge,
    /// The settings of a flow make no sense.
    #[error("flow {flow}: {reason}")]
    Flow {
        /// The flow.
        flow: String,
        /// What is wrong.
        reason: String,
    },
}

#[derive(Debug)]
struct NewLink {
    name: String,
    config: LinkConfig,
    /// By class.
    weights: Vec<u32>,
}

/// A network that does not run yet.
#[derive(Debug)]
pub struct Network {
    seed: Seed,
    links: Vec<NewLink>,
    flows: Vec<FlowConfig>,
    script: Vec<(Instant, Act)>,
    samples: Samples,
    controller: Option<ControllerConfig>,
}

impl Network {
    /// An empty network; everything random hangs on `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            seed: Seed(seed),
            links: Vec::new(),
            flows: Vec::new(),
            script: Vec::new(),
            samples: Samples::default(),
            controller: None,
        }
    }

    /// Adds a one-way link. Its name also names its random stream.
    pub fn add_link(&mut self, name: impl Into<String>, config: LinkConfig) -> LinkId {
        self.links.push(NewLink {
            name: name.into(),
            config,
            weights: Vec::new(),
        });
        LinkId(self.links.len() as u32 - 1)
    }

    /// Sets the weights of the classes at a link, in order of their numbers; one if not set.
    pub fn set_weights(&mut self, link: LinkId, weights: Vec<u32>) {
        if let Some(link) = self.links.get_mut(link.0 as usize) {
            link.weights = weights;
        }
    }

    /// Adds a flow.
    pub fn add_flow(&mut self, flow: FlowConfig) -> FlowId {
        self.flows.push(flow);
        FlowId(self.flows.len() as u32 - 1)
    }

    /// Changes a link at `at`.
    pub fn change_link(&mut self, at: Instant, link: LinkId, config: LinkConfig) {
        self.script.push((at, Act::SetLink(link, Box::new(config))));
    }

    /// Counting begins at `at`: what came before is the warm-up.
    pub fn warm_up_until(&mut self, at: Instant) {
        self.script.push((at, Act::EndWarmUp));
    }

    /// Samples goodput, and the queues of `links`, at every `interval`.
    pub fn sample(&mut self, interval: Duration, links: &[LinkId]) {
        self.samples.interval = interval;
        self.samples.links = links.iter().map(|&id| (id, Vec::new())).collect();
    }

    /// Lets a controller order senders their rates.
    pub fn control(&mut self, controller: ControllerConfig) {
        self.controller = Some(controller);
    }

    /// Builds the simulation, at time zero.
    ///
    /// # Errors
    /// The first link or flow that makes no sense.
    pub fn build(self) -> Result<Simulation, NetworkError> {
        self.check()?;
        let links: Vec<_> = self
            .links
            .iter()
            .map(|link| {
                let seed = self.seed.stream(&link.name).next_u64();
                let shares = self.shares(&link.weights);
                Link::with_shares(link.config.clone(), shares, seed)
            })
            .collect();
        let mut builder = Builder::for_flows(self.flows.len());
        for (id, flow) in self.flows.iter().enumerate() {
            builder.add(FlowId(id as u32), flow, self.seed)?;
        }
        builder.seats.append(&mut builder.relays);
        if links.len() + builder.seats.len() + 1 > MAX_COMPONENTS {
            return Err(NetworkError::TooLarge);
        }
        let controller = self.controller();
        let mut script = self.script;
        for (client, id) in (controller.iter().flat_map(Controller::clients)).zip(0..) {
            script.push((client.start, Act::Greet(FlowId(id))));
            script.extend(client.stop.map(|at| (at, Act::Survey)));
        }
        script.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        let flows = builder.flows.len();
        let mut samples = self.samples;
        samples.delivered = vec![Vec::new(); flows];
        samples.arrived = vec![Vec::new(); flows];
        let mut simulation = Simulation {
            now: Instant::ZERO,
            schedule: Schedule::new(links.len() + builder.seats.len() + 1),
            next_sample: (!samples.interval.is_zero()).then(|| Instant::ZERO + samples.interval),
            links,
            ends: Ends {
                paced: builder.paced(),
                seats: builder.seats,
                counters: vec![FlowCounters::default(); flows],
                cargo: Cargo::default(),
                buffers: Buffers::default(),
            },
            hops: builder.hops,
            script,
            sampled: vec![(0, 0); samples.links.len()],
            samples,
            flows: builder.flows,
            warm: (Instant::ZERO, vec![FlowCounters::default(); flows]),
            controller,
            events: 0,
            observer: None,
            departed: Departed::new(),
            started: false,
        };
        simulation.plan();
        Ok(simulation)
    }

    /// The controller with what it knows of the flows.
    fn controller(&self) -> Option<Controller> {
        let config = self.controller.clone()?;
        let clients = self.flows.iter().map(|flow| {
            let links: Vec<usize> = flow.forward.iter().map(|link| link.0 as usize).collect();
            let mtu = links.iter().filter_map(|&link| self.links[link].config.mtu);
            let (packet, headers) = flow.traffic.packet(mtu.min().unwrap_or(1500));
            Client {
                class: flow.class,
                links,
                start: flow.start,
                stop: flow.stop,
                packet,
                headers,
                most: flow.traffic.most(),
                listens: flow.traffic.pace() == Pace::Orders,
                finished: false,
                told: None,
            }
        });
        Some(Controller::new(config, clients.collect()))
    }

    fn check(&self) -> Result<(), NetworkError> {
        let configs = self.links.iter().map(|link| (&link.name, &link.config));
        let changed = self.script.iter().filter_map(|(_, act)| match act {
            Act::SetLink(id, config) => {
                let link = self.links.get(id.0 as usize)?;
                Some((&link.name, &**config))
            }
            _ => None,
        });
        for (name, config) in configs.chain(changed) {
            config.validate().map_err(|error| NetworkError::Link {
                name: name.clone(),
                error,
            })?;
        }
        let components = self.links.len() + 2 * self.flows.len() + 1;
        if components > MAX_COMPONENTS {
            return Err(NetworkError::TooLarge);
        }
        for flow in &self.flows {
            let others = match &flow.traffic {
                Traffic::Coded(config) => &config.others[..],
                _ => &[],
            };
            let others = others
                .iter()
                .flat_map(|(there, back)| there.iter().chain(back));
            for link in flow.forward.iter().chain(&flow.backward).chain(others) {
                if link.0 as usize >= self.links.len() {
                    return Err(NetworkError::NoSuchLink {
                        flow: flow.name.clone(),
                        link: link.0,
                    });
                }
            }
            self.check_pace(flow)?;
        }
        Ok(())
    }

    /// Only a link with a rate can hold back a sender that has none of its own.
    fn check_pace(&self, flow: &FlowConfig) -> Result<(), NetworkError> {
        if flow.traffic.pace() != Pace::FirstLink {
            return Ok(());
        }
        // Relays send like sources, each into the next link.
        let paced = match &flow.traffic {
            Traffic::Coded(config) if config.relaying == Relaying::Recode => &flow.forward[..],
            _ => &flow.forward[..flow.forward.len().min(1)],
        };
        let before = paced
            .iter()
            .filter_map(|link| self.links.get(link.0 as usize));
        let changed = self.script.iter().filter_map(|(_, act)| match act {
            Act::SetLink(link, config) if paced.contains(link) => Some(&**config),
            _ => None,
        });
        let mut configs = before.map(|link| &link.config).chain(changed);
        if paced.is_empty() || configs.any(|config| config.rate == LinkRate::Unlimited) {
            return Err(NetworkError::Flow {
                flow: flow.name.clone(),
                reason: "a sender at line rate needs a first link with a rate".into(),
            });
        }
        Ok(())
    }

    /// The classes of the flows, with a link's weights.
    fn shares(&self, weights: &[u32]) -> Shares {
        let mut classes: BTreeMap<u32, Vec<FlowId>> = BTreeMap::new();
        for (id, flow) in (0..).zip(&self.flows) {
            classes.entry(flow.class).or_default().push(FlowId(id));
        }
        let shares = classes.into_iter().map(|(class, flows)| {
            let weight = weights.get(class as usize).copied().unwrap_or(1);
            (weight, flows)
        });
        shares.fold(Shares::equal(), |shares, (weight, flows)| {
            shares.class(weight, flows)
        })
    }
}

/// The hosts of a flow, from its source to its sink.
pub(crate) struct Chain {
    pub source: Box<dyn Agent>,
    /// Hosts on the way, at every node of the route if there are any.
    pub relays: Vec<Box<dyn Agent>>,
    pub sink: Box<dyn Agent>,
}

impl Chain {
    fn pair(source: impl Agent + 'static, sink: impl Agent + 'static) -> Self {
        Self {
            source: Box::new(source),
            relays: Vec::new(),
            sink: Box::new(sink),
        }
    }

    fn of(flow: &FlowConfig, id: FlowId, seed: Seed) -> Result<Self, String> {
        Ok(match &flow.traffic {
            Traffic::Tcp(config) => {
                Self::pair(TcpSource::new(config, flow)?, TcpSink::new(config, flow))
            }
            Traffic::Udp(config) => {
                let source = UdpSource::new(config, flow, seed.stream(&flow.name))?;
                Self::pair(source, UdpSink::new(flow))
            }
            Traffic::Dfcp(config) => {
                let (source, sink) = dfcp::pair(config, flow, id, seed);
                Self {
                    source: clock::host(source, &config.sender_clock),
                    relays: Vec::new(),
                    sink: clock::host(sink, &config.clock),
                }
            }
            Traffic::Published(config) => {
                let (source, sink) = published::pair(config, flow, id, seed);
                Self::pair(source, sink)
            }
            Traffic::Coded(config) => coded::chain(config, flow, seed)?,
            Traffic::External => Self::pair(External, External),
        })
    }
}

/// Seats and routes as they grow.
#[derive(Default)]
struct Builder {
    seats: Vec<Seat>,
    /// Seats that come behind those of all sources and sinks.
    relays: Vec<Seat>,
    first_relay: u32,
    hops: Vec<Hop>,
    flows: Vec<FlowInfo>,
}

impl Builder {
    fn for_flows(flows: usize) -> Self {
        Self {
            first_relay: 2 * flows as u32,
            ..Self::default()
        }
    }

    fn add(&mut self, id: FlowId, flow: &FlowConfig, seed: Seed) -> Result<(), NetworkError> {
        let chain = Chain::of(flow, id, seed).map_err(|reason| NetworkError::Flow {
            flow: flow.name.clone(),
            reason,
        })?;
        let source = self.seats.len() as u32;
        let sink = source + 1;
        let relays = self.first_relay + self.relays.len() as u32..;
        let mut nodes = vec![source];
        nodes.extend(relays.take(chain.relays.len()));
        nodes.push(sink);
        // Where relays sit, each hop is one link; otherwise all are one hop.
        let hops = nodes.len() - 1;
        let part = |links: &'_ [LinkId], hop: usize| match hops {
            1 => links.to_vec(),
            _ => links[hop..=hop].to_vec(),
        };
        let mut ahead: Vec<Route> = Vec::new();
        let mut behind: Vec<Route> = Vec::new();
        for hop in 0..hops {
            let there = part(&flow.forward, hop);
            let back = part(&flow.backward, hops - 1 - hop);
            ahead.push(self.route(&there, nodes[hop + 1], Direction::Forward));
            behind.push(self.route(&back, nodes[hop], Direction::Backward));
        }
        let outside = matches!(flow.traffic, Traffic::External);
        let seat = |agent: Box<dyn Agent>, routes| Seat {
            outside,
            pace: agent.pace(),
            agent,
            flow: id,
            routes,
            first_link: 0,
        };
        for (at, relay) in chain.relays.into_iter().enumerate() {
            self.relays
                .push(seat(relay, vec![ahead[at + 1], behind[at]]));
        }
        let (mut to_sink, mut to_source) = (vec![ahead[0]], vec![behind[hops - 1]]);
        if let Traffic::Coded(config) = &flow.traffic {
            for (there, back) in &config.others {
                to_sink.push(self.route(there, sink, Direction::Forward));
                to_source.push(self.route(back, source, Direction::Backward));
            }
        }
        self.seats.push(seat(chain.source, to_sink));
        self.seats.push(seat(chain.sink, to_source));
        self.flows.push(FlowInfo {
            id,
            name: flow.name.clone(),
            start: flow.start,
            stop: flow.stop,
            size: flow.size,
        });
        Ok(())
    }

    fn route(&mut self, links: &[LinkId], to: u32, direction: Direction) -> Route {
        let start = self.hops.len() as HopId;
        self.hops.extend(links.iter().map(|link| Hop::Link(link.0)));
        self.hops.push(Hop::Agent(to));
        Route { start, direction }
    }

    /// Which seat each hop behind a first link paces.
    fn paced(&self) -> Vec<u32> {
        let mut paced = vec![NO_SEAT; self.hops.len()];
        for (seat, at) in self.seats.iter().zip(0..) {
            let next = seat.routes[0].start as usize + 1;
            if seat.pace == Pace::FirstLink && next < paced.len() {
                paced[next] = at;
            }
        }
        paced
    }
}
