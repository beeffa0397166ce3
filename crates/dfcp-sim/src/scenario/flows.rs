//! From `[[flow]]` to flows: starts, sizes, protocols.

use std::collections::BTreeMap;

use dfcp_proto::profile::{ChameleonParameters, CtcpParameters};
use dfcp_proto::scheduler::FlowControl;
use dfcp_proto::{Duration, Instant};

use super::build::show;
use super::control::{ControlLaw, ControlSpec};
use super::ends::Ends;
use super::fields::Section;
use super::model::*;
use super::network::Network;
use super::route::{Hop, Routes};
use super::settings::{
    FlowSettings, ProtocolName, SizeSettings, StartSettings, TcpSettings, UdpSettings,
};
use super::settle::check_coded;
use super::tree::{Fault, Node, Place, Table};
use crate::engine::{UdpConfig, UdpPattern};
use crate::link::LinkRate;
use crate::random::Random;
use crate::tcp::Congestion;

/// Bytes of IPv4 and UDP headers.
const UDP_HEADERS: u32 = 28;

/// The flows, and what is still open until the links are known.
pub(super) struct Flows<'a> {
    pub flows: Vec<FlowSpec>,
    entries: Vec<Entry<'a>>,
    hops: Vec<Hop>,
    root: &'a Table,
}

/// One `[[flow]]`.
struct Entry<'a> {
    settings: FlowSettings,
    node: &'a Node,
    transport: Transport,
    sizes: Random,
}

/// What a flow speaks, before its path is known.
#[derive(Clone)]
pub(super) enum Transport {
    Tcp(TcpSettings, Congestion),
    Dfcp(DfcpSpec),
    Published(PublishedSpec),
    Coded(CodedSpec),
    RcUdp(RcUdpSpec),
    Udp(UdpConfig),
}

impl<'a> Flows<'a> {
    /// Reads all flows; sizes and segment sizes are settled later.
    pub fn read(root: &'a Table, network: &Network<'_>, run: &RunSpec) -> Result<Self, Fault> {
        let nodes = root.list("flow")?;
        let mut read = Flows {
            flows: Vec::new(),
            entries: Vec::new(),
            hops: network.wires.iter().map(|wire| wire.hop).collect(),
            root,
        };
        let hops = read.hops.clone();
        let mut routes = Routes::new(network.graph.nodes.len(), &hops);
        for (index, node) in nodes.iter().enumerate() {
            let settings = FlowSettings::new(index).read(node, "[[flow]]")?;
            let transport = transport(root, &settings, node)?;
            let stream = |what: &str| run.seed.stream(&format!("{}.{what}", settings.name));
            let starts = starts(&settings, run, node, &mut stream("start"))?;
            let mut ends = Ends {
                network,
                node,
                random: stream("ends"),
            };
            for (replica, start) in starts.into_iter().enumerate() {
                let (from, to) = ends.pick(&settings, replica, read.flows.len())?;
                let mut others = ends.routes(&settings, &transport, &mut routes, [from, to])?;
                let (forward, backward) = others.remove(0);
                let name = match settings.count {
                    1 => settings.name.clone(),
                    _ => format!("{}-{}", settings.name, replica + 1),
                };
                read.flows.push(FlowSpec {
                    class: settings.class.clone().unwrap_or_else(|| name.clone()),
                    name,
                    entry: index,
                    weight: settings.weight,
                    protocol: transport.placeholder(),
                    from,
                    to,
                    forward,
                    backward,
                    others,
                    start,
                    stop: settings.stop,
                    size: None,
                    reading: settings.reading.clone(),
                    clock: settings.clock.clone(),
                    sender_clock: settings.sender_clock.clone(),
                });
            }
            read.entries.push(Entry {
                sizes: stream("size"),
                settings,
                node,
                transport,
            });
        }
        read.check(nodes)?;
        Ok(read)
    }

    /// There are flows, names differ, the weights of a class agree.
    fn check(&self, nodes: &[Node]) -> Result<(), Fault> {
        if self.flows.is_empty() {
            let place = nodes.first().map_or(Place::default(), |node| node.place);
            let message = "there are no flows: write for example [[flow]] protocol = \"auto\"";
            return Err(Fault::new(place, message));
        }
        let mut names = BTreeMap::new();
        let mut weights = BTreeMap::new();
        for flow in &self.flows {
            let place = self.entries[flow.entry].place("name");
            if names.insert(&flow.name, ()).is_some() {
                let message = format!("two flows are called `{}`: give one a `name`", flow.name);
                return Err(Fault::new(place, message));
            }
            let weight = *weights.entry(&flow.class).or_insert(flow.weight);
            if weight != flow.weight {
                let (class, other) = (&flow.class, flow.weight);
                let message = format!(
                    "class `{class}` has weight {weight} in an earlier flow and {other} here: a \
                     class has one weight"
                );
                return Err(Fault::new(
                    self.entries[flow.entry].place("weight"),
                    message,
                ));
            }
        }
        Ok(())
    }

    /// Whoever waits for orders has somebody to give them.
    pub fn check_orders(&self, controlled: bool) -> Result<(), Fault> {
        let waiting = self.flows.iter().find_map(|flow| {
            let (section, control) = control(&flow.protocol)?;
            (control.law == ControlLaw::Ordered).then_some((flow, section))
        });
        match waiting {
            Some((flow, section)) if !controlled => Err(Fault::new(
                stated(self.root, self.entries[flow.entry].node, section, "control"),
                "`control`: nobody gives orders: write a section [controller], for example with \
                 response = \"50 ms\"",
            )),
            _ => Ok(()),
        }
    }

    /// The round-trip propagation delay of the first flow.
    pub fn first_rtt(&self) -> Duration {
        let Some(flow) = self.flows.first() else {
            return Duration::ZERO;
        };
        let links = flow.forward.iter().chain(&flow.backward);
        links.map(|link| self.hops[link.0].delay).sum()
    }

    /// Fills in what depends on the links: segment sizes from the MTU, sizes in packets.
    pub fn settle(&mut self, links: &[LinkSpec]) -> Result<(), Fault> {
        let mut replicas = vec![0; self.entries.len()];
        for flow in &mut self.flows {
            let entry = &mut self.entries[flow.entry];
            let others = flow.others.iter().flat_map(|(there, _)| there);
            let path = flow.forward.iter().chain(others);
            let path = path.map(|link| &links[link.0].config);
            let mtu = path.filter_map(|link| link.mtu).min().unwrap_or(u32::MAX);
            flow.protocol = entry.transport.settle(mtu, |section, key| {
                stated(self.root, entry.node, section, key)
            })?;
            if let ProtocolSpec::Coded(spec) = &flow.protocol {
                check_coded(spec, flow, links, |section, key| {
                    stated(self.root, entry.node, section, key)
                })?;
            }
            let first = flow.forward.first().map(|link| &links[link.0]);
            entry.check_line_rate(self.root, &flow.protocol, first)?;
            entry.check_reader(&flow.protocol)?;
            entry.check_clocks(&flow.protocol)?;
            flow.size = entry.size(replicas[flow.entry], &flow.protocol)?;
            if let (ProtocolSpec::Tcp(tcp), Some(size)) = (&flow.protocol, flow.size)
                && size.div_ceil(u64::from(tcp.sender.mss)) >= u64::from(u32::MAX)
            {
                let message = format!("`size`: {size} B are more than 2^32 segments of TCP");
                return Err(Fault::new(entry.place("size"), message));
            }
            replicas[flow.entry] += 1;
        }
        Ok(())
    }
}

impl Entry<'_> {
    /// What sends as fast as its first link takes it is held back by nothing else.
    fn check_line_rate(
        &self,
        root: &Table,
        protocol: &ProtocolSpec,
        first: Option<&LinkSpec>,
    ) -> Result<(), Fault> {
        let Some((section, control)) = control(protocol) else {
            return Ok(());
        };
        match first {
            Some(link)
                if control.law.is_at_line_rate() && link.config.rate == LinkRate::Unlimited =>
            {
                let message = format!(
                    "`control`: \"line rate\" needs a rate at the first link, `{}`, which is \
                     unlimited: give it one, or write a rate here",
                    link.name
                );
                Err(Fault::new(
                    stated(root, self.node, section, "control"),
                    message,
                ))
            }
            _ => Ok(()),
        }
    }

    /// Who reads slowly must be one whose receiver is simulated as an application.
    fn check_reader(&self, protocol: &ProtocolSpec) -> Result<(), Fault> {
        if self.settings.reading.is_empty() || matches!(protocol, ProtocolSpec::Dfcp(_)) {
            return Ok(());
        }
        let message = format!(
            "`read_rate`: the receivers of {} take everything at once; auto, ctcp, chameleon and \
             tfrc have readers",
            protocol.name()
        );
        Err(Fault::new(self.place("read_rate"), message))
    }

    /// Only hosts of the core have clocks of their own. That of TCP's receiver may be stated, so
    /// that both can be swept over one path: its sender uses no time that the receiver tells.
    fn check_clocks(&self, protocol: &ProtocolSpec) -> Result<(), Fault> {
        let FlowSettings {
            clock,
            sender_clock,
            ..
        } = &self.settings;
        let key = match (clock.is_exact(), sender_clock.is_exact()) {
            _ if matches!(protocol, ProtocolSpec::Dfcp(_)) => return Ok(()),
            (_, true) if matches!(protocol, ProtocolSpec::Tcp(_)) => return Ok(()),
            (true, true) => return Ok(()),
            (false, _) => "clock",
            (true, false) => "sender_clock",
        };
        let message = format!(
            "`{key}`: the hosts of {} have exact clocks; those of auto, ctcp, chameleon and tfrc \
             can be off",
            protocol.name()
        );
        Err(Fault::new(self.place(key), message))
    }

    fn place(&self, key: &str) -> Place {
        self.node.place_of(key)
    }

    /// The size of one replica; drawn in order.
    fn size(&mut self, replica: usize, protocol: &ProtocolSpec) -> Result<Option<u64>, Fault> {
        let payload = match protocol {
            ProtocolSpec::Tcp(tcp) => Some(u64::from(tcp.sender.mss)),
            ProtocolSpec::Udp(udp) => Some(u64::from(udp.packet.saturating_sub(UDP_HEADERS))),
            ProtocolSpec::Dfcp(spec) => match spec.profile {
                ProfileSpec::Chameleon(c) | ProfileSpec::Tfrc(c) => Some(u64::from(c.packet)),
                ProfileSpec::Auto | ProfileSpec::Ctcp(_) => None,
            },
            ProtocolSpec::Published(_) | ProtocolSpec::Coded(_) | ProtocolSpec::RcUdp(_) => None,
        };
        let in_packets = |packets: u64| match payload {
            Some(payload) => Ok(Some(packets.saturating_mul(payload))),
            None => Err(Fault::new(
                self.node.place_of("size"),
                "`size`: this protocol has no fixed packet: write the size in bytes, such as \
                 \"150 kB\"",
            )),
        };
        let mut uniform = |from: u64, to: u64| from + self.sizes.below(to - from + 1);
        match &self.settings.size {
            SizeSettings::Bytes(sizes) => Ok(sizes[replica % sizes.len()]),
            SizeSettings::Packets(sizes) => in_packets(sizes[replica % sizes.len()]),
            SizeSettings::Uniform(from, to) => Ok(Some(uniform(*from, *to))),
            SizeSettings::UniformPackets(from, to) => in_packets(uniform(*from, *to)),
        }
    }
}

/// The rate control of a protocol that has one to choose, and the section that says so.
fn control(protocol: &ProtocolSpec) -> Option<(&'static str, ControlSpec)> {
    match protocol {
        ProtocolSpec::Dfcp(spec) => Some(("dfcp", spec.control)),
        ProtocolSpec::Published(spec) => Some(("published", spec.control)),
        ProtocolSpec::RcUdp(spec) => Some(("rc_udp", spec.control)),
        ProtocolSpec::Tcp(_) | ProtocolSpec::Udp(_) | ProtocolSpec::Coded(_) => None,
    }
}

/// When each replica starts, and that it stops later.
fn starts(
    settings: &FlowSettings,
    run: &RunSpec,
    node: &Node,
    random: &mut Random,
) -> Result<Vec<Instant>, Fault> {
    let count = settings.count as usize;
    let after = |start: Instant, mean: Duration, random: &mut Random| {
        // Inverse transform; 1 − u is never zero.
        start + mean.mul_f64(-(1.0 - random.next_f64()).ln())
    };
    let starts: Vec<Instant> = match &settings.start {
        StartSettings::At(times) => times.iter().cycle().take(count).copied().collect(),
        StartSettings::Uniform(from, to) => {
            let span = (*to - *from).as_nanos() as u64;
            let draw = |_| Instant::ZERO + *from + Duration::from_nanos(random.below(span.max(1)));
            (0..count).map(draw).collect()
        }
        StartSettings::Every { first, every } => {
            let at = |n| *first + every.saturating_mul(n as u32);
            (0..count).map(at).collect()
        }
        StartSettings::Poisson { first, poisson } => {
            let next = |at: &Instant| Some(after(*at, *poisson, random));
            std::iter::successors(Some(*first), next)
                .take(count)
                .collect()
        }
    };
    let end = Instant::ZERO + run.duration;
    let drawn = matches!(settings.start, StartSettings::Poisson { .. });
    if let Some(late) = starts.iter().find(|start| **start >= end && !drawn) {
        let (late, end) = (show(*late), show(end));
        let message = format!("`start`: {late} is not before the end of the run, {end}");
        return Err(Fault::new(node.place_of("start"), message));
    }
    if let Some(stop) = settings.stop
        && let Some(late) = starts.iter().find(|start| **start >= stop)
    {
        let (late, stop) = (show(*late), show(stop));
        let message = format!("`stop`: {stop} is not after the start, {late}");
        return Err(Fault::new(node.place_of("stop"), message));
    }
    Ok(starts)
}

/// The transport of a flow: its section of the file, then the flow's own overrides.
fn transport(root: &Table, settings: &FlowSettings, node: &Node) -> Result<Transport, Fault> {
    let Some(protocol) = settings.protocol else {
        let message = format!(
            "flow `{}` needs a `protocol`: write for example protocol = \"tcp-cubic\"",
            settings.name
        );
        return Err(Fault::new(node.place, message));
    };
    fn layered<T: Section>(base: T, root: &Table, node: &Node, key: &str) -> Result<T, Fault> {
        let mut settings = base;
        let layers = [root.get(key), node.table()?.get(key)];
        for layer in layers.into_iter().flatten() {
            settings = settings.read(layer, &format!("[{key}]"))?;
        }
        Ok(settings)
    }
    // What other protocols of the flow's file say must be right too: a sweep may choose them.
    let key = protocol.section();
    let tcp = layered(TcpSettings::default(), root, node, "tcp")?;
    let dfcp = layered(DfcpSpec::default(), root, node, "dfcp")?;
    let ctcp = layered(CtcpParameters::default(), root, node, "ctcp")?;
    let chameleon = layered(ChameleonParameters::default(), root, node, "chameleon")?;
    let coded = layered(CodedSpec::default(), root, node, "coded")?;
    let published = layered(PublishedSpec::default(), root, node, "published")?;
    let rc_udp = layered(RcUdpSpec::default(), root, node, "rc_udp")?;
    let udp = layered(UdpSettings::default(), root, node, "udp")?;
    if tcp.sender.rto_min.is_zero() || tcp.sender.rto_min > tcp.sender.rto_max {
        let message = "`rto_min` is zero or greater than `rto_max`: write for example \"200 ms\"";
        return Err(Fault::new(stated(root, node, "tcp", "rto_min"), message));
    }
    Ok(match protocol {
        ProtocolName::TcpNewReno => Transport::Tcp(tcp, Congestion::Reno),
        ProtocolName::TcpCubic => {
            let cubic = Congestion::Cubic(tcp.cubic.config());
            Transport::Tcp(tcp, cubic)
        }
        ProtocolName::TcpHighSpeed => Transport::Tcp(tcp, Congestion::HighSpeed),
        ProtocolName::TcpHTcp => Transport::Tcp(tcp, Congestion::HTcp),
        ProtocolName::TcpBbr => Transport::Tcp(tcp, Congestion::Bbr),
        ProtocolName::Auto => Transport::Dfcp(dfcp),
        ProtocolName::Ctcp => Transport::Dfcp(DfcpSpec {
            profile: ProfileSpec::Ctcp(ctcp),
            ..dfcp
        }),
        ProtocolName::Chameleon => Transport::Dfcp(DfcpSpec {
            profile: ProfileSpec::Chameleon(chameleon),
            ..dfcp
        }),
        ProtocolName::Tfrc => Transport::Dfcp(DfcpSpec {
            profile: ProfileSpec::Tfrc(ChameleonParameters {
                flow_control: FlowControl::Off,
                ..chameleon
            }),
            ..dfcp
        }),
        ProtocolName::Coded => Transport::Coded(coded),
        ProtocolName::Dfcp => Transport::Published(published),
        ProtocolName::RcUdp => Transport::RcUdp(rc_udp),
        ProtocolName::UdpCbr | ProtocolName::UdpOnOff => {
            let config = udp_config(udp, protocol == ProtocolName::UdpOnOff);
            Transport::Udp(config.map_err(|why| Fault::new(node.place_of(key), why))?)
        }
    })
}

/// Constant traffic, or in bursts.
fn udp_config(settings: UdpSettings, bursts: bool) -> Result<UdpConfig, &'static str> {
    let UdpSettings {
        rate,
        packet,
        on,
        off,
        lengths,
    } = settings;
    let rate =
        rate.ok_or("UDP traffic needs a rate: write for example udp.rate = \"10 Mbit/s\"")?;
    let pattern = match bursts {
        true if on.is_zero() || off.is_zero() => {
            return Err("`on` and `off` must be longer than zero");
        }
        true => UdpPattern::OnOff { on, off, lengths },
        false => UdpPattern::Constant,
    };
    Ok(UdpConfig {
        rate,
        packet,
        pattern,
    })
}

/// Where a setting of a transport is written: in the flow, or in the section of its own.
fn stated(root: &Table, flow: &Node, section: &str, key: &str) -> Place {
    let layers = [
        flow.table().ok().and_then(|table| table.get(section)),
        root.get(section),
    ];
    let mut layers = layers
        .into_iter()
        .flatten()
        .filter_map(|layer| layer.table().ok());
    let found = layers.find_map(|table| table.get(key));
    found.map_or(flow.place, |node| node.place)
}
