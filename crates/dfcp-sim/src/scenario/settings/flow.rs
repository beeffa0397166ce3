//! `[[flow]]`: who sends what to whom and when.

use dfcp_proto::{Duration, Instant};

use super::clock::Clock;
use crate::engine::{HostClock, ReadingRates};
use crate::scenario::fields::{
    BitRate, Codec, Count, Fields, ListOf, OneOf, Optional, OrWord, Section, Text, Time, Varying,
    WEIGHT, fault, quantity,
};
use crate::scenario::tree::{Fault, Node, Table, Value};
use crate::scenario::units::{self, Quantity};

/// Sections of transports; a flow may have overrides of them.
pub(in crate::scenario) const TRANSPORTS: [&str; 8] = [
    "tcp",
    "dfcp",
    "ctcp",
    "chameleon",
    "coded",
    "published",
    "rc_udp",
    "udp",
];

/// `[[flow]]`; its overrides of [`TRANSPORTS`] are read elsewhere.
#[derive(Clone, Debug)]
pub(in crate::scenario) struct FlowSettings {
    pub name: String,
    /// Must be stated.
    pub protocol: Option<ProtocolName>,
    pub count: u64,
    pub class: Option<String>,
    pub weight: f64,
    /// Node names taken in turn; empty for the topology's pairs, `random` for any host.
    pub from: Vec<String>,
    pub to: Vec<String>,
    /// Nodes that the route visits in between.
    pub via: Vec<String>,
    pub start: StartSettings,
    pub stop: Option<Instant>,
    pub size: SizeSettings,
    pub reading: ReadingRates,
    pub clock: HostClock,
    pub sender_clock: HostClock,
}

/// Names of protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scenario) enum ProtocolName {
    TcpNewReno,
    TcpCubic,
    TcpHighSpeed,
    TcpHTcp,
    TcpBbr,
    Auto,
    Ctcp,
    Chameleon,
    Tfrc,
    Coded,
    Dfcp,
    RcUdp,
    UdpCbr,
    UdpOnOff,
}

impl ProtocolName {
    /// The section that its settings are in.
    pub fn section(self) -> &'static str {
        match self {
            Self::TcpNewReno
            | Self::TcpCubic
            | Self::TcpHighSpeed
            | Self::TcpHTcp
            | Self::TcpBbr => "tcp",
            Self::Auto => "dfcp",
            Self::Ctcp => "ctcp",
            Self::Chameleon | Self::Tfrc => "chameleon",
            Self::Coded => "coded",
            Self::Dfcp => "published",
            Self::RcUdp => "rc_udp",
            Self::UdpCbr | Self::UdpOnOff => "udp",
        }
    }
}

impl FlowSettings {
    /// The flow of the `index`-th entry.
    pub fn new(index: usize) -> Self {
        Self {
            name: format!("flow-{index}"),
            protocol: None,
            count: 1,
            class: None,
            weight: 1.0,
            from: Vec::new(),
            to: Vec::new(),
            via: Vec::new(),
            start: StartSettings::At(vec![Instant::ZERO]),
            stop: None,
            size: SizeSettings::Bytes(vec![None]),
            reading: ReadingRates::new(),
            clock: HostClock::default(),
            sender_clock: HostClock::default(),
        }
    }
}

impl Section for FlowSettings {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let protocols = [
            ("auto", ProtocolName::Auto),
            ("ctcp", ProtocolName::Ctcp),
            ("chameleon", ProtocolName::Chameleon),
            ("tfrc", ProtocolName::Tfrc),
            ("coded", ProtocolName::Coded),
            ("dfcp", ProtocolName::Dfcp),
            ("rc-udp", ProtocolName::RcUdp),
            ("tcp-newreno", ProtocolName::TcpNewReno),
            ("tcp-cubic", ProtocolName::TcpCubic),
            ("tcp-highspeed", ProtocolName::TcpHighSpeed),
            ("tcp-htcp", ProtocolName::TcpHTcp),
            ("tcp-bbr", ProtocolName::TcpBbr),
            ("udp-cbr", ProtocolName::UdpCbr),
            ("udp-on-off", ProtocolName::UdpOnOff),
        ];
        f.item("name", &mut self.name, Text);
        f.item("protocol", &mut self.protocol, Optional(OneOf(&protocols)));
        f.item("count", &mut self.count, Count(0, 100_000));
        f.item("class", &mut self.class, Optional(Text));
        f.item("weight", &mut self.weight, WEIGHT);
        f.item("from", &mut self.from, ListOf(Text));
        f.item("to", &mut self.to, ListOf(Text));
        f.item("via", &mut self.via, ListOf(Text));
        f.item("start", &mut self.start, Start);
        f.item("stop", &mut self.stop, OrWord("never", Time));
        f.item("size", &mut self.size, Size);
        let rate = OrWord(UNLIMITED, BitRate);
        f.item("read_rate", &mut self.reading, Varying("rate", rate));
        f.item("clock", &mut self.clock, Clock);
        f.item("sender_clock", &mut self.sender_clock, Clock);
        for section in TRANSPORTS {
            f.known(section);
        }
    }
}

/// When the replicas of a flow start.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::scenario) enum StartSettings {
    /// At these times in turn.
    At(Vec<Instant>),
    /// Uniformly between two times.
    Uniform(Duration, Duration),
    /// One after another.
    Every { first: Instant, every: Duration },
    /// A Poisson process with this mean interval.
    Poisson { first: Instant, poisson: Duration },
}

/// A time, a list, `{ uniform = [a, b] }`, `{ first, every }` or `{ first, poisson }`.
struct Start;

impl Codec<StartSettings> for Start {
    fn read(&self, node: &Node) -> Result<StartSettings, Fault> {
        let Value::Table(table) = &node.value else {
            return ListOf(Time).read(node).map(StartSettings::At);
        };
        if table.get("uniform").is_some() {
            let range = Uniform(Time, Vec::new()).read(node)?;
            return Ok(StartSettings::Uniform(range.0, range.1));
        }
        let law = StartLaw::default().read(node, "start")?;
        let StartLaw { first, .. } = law;
        match (law.every, law.poisson) {
            (Some(every), None) => Ok(StartSettings::Every { first, every }),
            (None, Some(poisson)) => Ok(StartSettings::Poisson { first, poisson }),
            _ => fault(
                node,
                "write \"0 s\", a list of times, { uniform = [\"0 s\", \"20 s\"] }, \
                 { first = \"0 s\", every = \"1 s\" } or { first = \"0 s\", poisson = \"1 s\" }",
            ),
        }
    }

    fn write(&self, value: &StartSettings) -> Option<Value> {
        let law = |first: Instant, every, poisson| {
            let law = StartLaw {
                first,
                every,
                poisson,
            };
            Some(Value::Table(law.write()))
        };
        match value {
            StartSettings::At(times) => ListOf(Time).write(times),
            StartSettings::Uniform(from, to) => Uniform(Time, vec![*from, *to]).write(),
            StartSettings::Every { first, every } => law(*first, Some(*every), None),
            StartSettings::Poisson { first, poisson } => law(*first, None, Some(*poisson)),
        }
    }
}

#[derive(Clone, Default)]
struct StartLaw {
    first: Instant,
    every: Option<Duration>,
    poisson: Option<Duration>,
}

impl Section for StartLaw {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("first", &mut self.first, Time);
        f.item("every", &mut self.every, Optional(Time));
        f.item("poisson", &mut self.poisson, Optional(Time));
    }
}

/// How much the replicas of a flow send.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::scenario) enum SizeSettings {
    /// These sizes in turn; `None` for no limit.
    Bytes(Vec<Option<u64>>),
    /// Uniformly between two sizes, both included.
    Uniform(u64, u64),
    /// Full packets.
    Packets(Vec<u64>),
    /// Uniformly between two numbers of full packets, both included.
    UniformPackets(u64, u64),
}

const UNLIMITED: &str = "unlimited";

/// `"unlimited"`, a size, a list, or `{ uniform = [a, b] }`; sizes in bytes or in packets.
struct Size;

impl Codec<SizeSettings> for Size {
    fn read(&self, node: &Node) -> Result<SizeSettings, Fault> {
        let packets = first_unit(node).is_some_and(|unit| unit.starts_with("packet"));
        match (&node.value, packets) {
            (Value::Table(_), true) => Uniform(PacketCount, Vec::new())
                .read(node)
                .map(|range| SizeSettings::UniformPackets(range.0, range.1)),
            (Value::Table(_), false) => Uniform(ByteCount, Vec::new())
                .read(node)
                .map(|range| SizeSettings::Uniform(range.0, range.1)),
            (_, true) => ListOf(PacketCount).read(node).map(SizeSettings::Packets),
            (_, false) => ListOf(OrWord(UNLIMITED, ByteCount))
                .read(node)
                .map(SizeSettings::Bytes),
        }
    }

    fn write(&self, value: &SizeSettings) -> Option<Value> {
        match value {
            SizeSettings::Bytes(sizes) => ListOf(OrWord(UNLIMITED, ByteCount)).write(sizes),
            SizeSettings::Packets(sizes) => ListOf(PacketCount).write(sizes),
            SizeSettings::Uniform(from, to) => Uniform(ByteCount, vec![*from, *to]).write(),
            SizeSettings::UniformPackets(from, to) => {
                Uniform(PacketCount, vec![*from, *to]).write()
            }
        }
    }
}

/// The unit of the first quantity within `node`.
fn first_unit(node: &Node) -> Option<&str> {
    match &node.value {
        Value::String(text) => Quantity::parse(text).map(|quantity| quantity.unit),
        Value::Array(items) => first_unit(items.first()?),
        Value::Table(table) => first_unit(&table.0.first()?.node),
        _ => None,
    }
}

struct ByteCount;

impl Codec<u64> for ByteCount {
    fn read(&self, node: &Node) -> Result<u64, Fault> {
        positive(node, quantity(node, units::SIZE, "150 kB")?)
    }

    fn write(&self, value: &u64) -> Option<Value> {
        Some(Value::String(units::format(*value, units::SIZE)))
    }
}

struct PacketCount;

impl Codec<u64> for PacketCount {
    fn read(&self, node: &Node) -> Result<u64, Fault> {
        positive(node, quantity(node, units::PACKETS, "100 packets")?)
    }

    fn write(&self, value: &u64) -> Option<Value> {
        Some(Value::String(units::format(*value, units::PACKETS)))
    }
}

fn positive(node: &Node, value: u64) -> Result<u64, Fault> {
    match value {
        0 => fault(
            node,
            "a flow of size zero sends nothing: write \"unlimited\" for no limit",
        ),
        value => Ok(value),
    }
}

/// `{ uniform = [a, b] }`.
pub(super) struct Uniform<C, T>(pub C, pub Vec<T>);

impl<T: Copy + PartialOrd, C: Codec<T>> Uniform<C, T> {
    pub fn read(&self, node: &Node) -> Result<(T, T), Fault> {
        const RIGHT: &str = "write for example { uniform = [\"1 …\", \"20 …\"] }, lesser first";
        let table = node.table()?;
        let (Some(range), 1) = (table.get("uniform"), table.0.len()) else {
            return fault(node, RIGHT);
        };
        match range.list()? {
            [from, to] => {
                let (from, to) = (self.0.read(from)?, self.0.read(to)?);
                if from <= to {
                    Ok((from, to))
                } else {
                    fault(range, RIGHT)
                }
            }
            _ => fault(range, RIGHT),
        }
    }

    pub fn write(&self) -> Option<Value> {
        // ListOf writes a list of one as a single value; a range has two.
        let items = self.1.iter().filter_map(|value| self.0.write(value));
        let mut table = Table::default();
        table.put("uniform", items.collect());
        Some(Value::Table(table))
    }
}
