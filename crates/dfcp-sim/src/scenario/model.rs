//! What a scenario file means, as plain validated data: what the simulation is built from. Links
//! and transports have the configurations that the simulation gives them; a type of its own is
//! here only where the file means something else, such as classes by name.
//!
//! Invariants, kept by [`Scenario::from_toml`]: every index is in range, every route leads from
//! its flow's source to its destination, every probability is within 0 to 1, every rate positive,
//! every name unique; random starts, sizes and end points are drawn, traces read already.

use std::collections::BTreeMap;

use dfcp_proto::profile::{ChameleonParameters, CtcpParameters};
use dfcp_proto::published::GeneratorState;
use dfcp_proto::published::{
    Acknowledge, Code, Codec, Completion, Degrees, LastPacket, LdpcDegrees, Moment,
    RaptorParameters, RcUdpCode, Sending,
};
use dfcp_proto::{Duration, Instant, Rate, Reliability, SchemeId};

use crate::coded::{CodedControl, Relaying};
use crate::engine::{DfcpPayload, HostClock, ReadingRates, TcpConfig, UdpConfig, UdpPattern};
use crate::link::LinkConfig;
use crate::random::Seed;
use crate::scenario::control::ControlSpec;
use crate::scenario::parts::{FeedbackLaw, SchedulerLaw};
use crate::tcp::Congestion;

/// Settings of the whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSpec {
    /// When the run ends.
    pub duration: Duration,
    /// Time at the beginning that averages leave out.
    pub warmup: Duration,
    /// Everything random hangs on it.
    pub seed: Seed,
    /// Interval of the time series; `None` for no series.
    pub sample: Option<Duration>,
    /// Whether the run ends as soon as every flow of a given size is done.
    pub end: EndSpec,
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndSpec {
    /// After its duration.
    Duration,
    /// When all flows of limited size are done, after its duration at the latest.
    Finished,
}

/// A node: an index into [`Scenario::nodes`](super::Scenario::nodes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(pub usize);

/// A one-way link: an index into [`Scenario::links`](super::Scenario::links).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkIndex(pub usize);

/// A host or router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// Its name in the file or in the ready-made topology.
    pub name: String,
}

/// A one-way link. A duplex link of the file is two of these: `NAME` and `NAME.reverse`.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// `bottleneck`, `bottleneck.reverse`, …
    pub name: String,
    /// Where packets enter.
    pub from: NodeIndex,
    /// Where packets leave.
    pub to: NodeIndex,
    /// What it does to packets at the beginning of the run.
    pub config: LinkConfig,
    /// Weights of classes at its queue; classes not named have their flows' weight.
    pub weights: BTreeMap<String, f64>,
}

/// A scheduled change of one one-way link.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeSpec {
    /// When.
    pub at: Instant,
    /// Which link.
    pub link: LinkIndex,
    /// Everything the link does from then on.
    pub config: LinkConfig,
}

/// A network controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControllerSpec {
    /// How it shares the network.
    pub kind: ControllerKind,
    /// Time from a change until senders follow it.
    pub response: Duration,
    /// By how much it over-estimates what is available, as a fraction.
    pub error: f64,
}

/// How a controller shares the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerKind {
    /// Max-min fairness, by weight.
    MaxMin,
}

/// One flow.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSpec {
    /// Its name, unique in the scenario.
    pub name: String,
    /// The entry `[[flow]]` it comes from, counted from zero: replicas share it.
    pub entry: usize,
    /// The class that fair queues keep apart; a flow of its own unless stated.
    pub class: String,
    /// The weight of its class at fair queues.
    pub weight: f64,
    /// What sends.
    pub protocol: ProtocolSpec,
    /// Source.
    pub from: NodeIndex,
    /// Destination.
    pub to: NodeIndex,
    /// Links from the source to the destination, in order.
    pub forward: Vec<LinkIndex>,
    /// Links back, in order.
    pub backward: Vec<LinkIndex>,
    /// Further routes, there and back, of a flow over several paths.
    pub others: Vec<(Vec<LinkIndex>, Vec<LinkIndex>)>,
    /// When it starts.
    pub start: Instant,
    /// When it stops sending whatever is left; `None` for the end of the run.
    pub stop: Option<Instant>,
    /// Useful bytes to send; `None` for as many as time allows.
    pub size: Option<u64>,
    /// How fast the receiving application reads.
    pub reading: ReadingRates,
    /// The clock of the receiving host.
    pub clock: HostClock,
    /// The clock of the sending host.
    pub sender_clock: HostClock,
}

/// The protocol of a flow.
#[derive(Clone, Debug, PartialEq)]
pub enum ProtocolSpec {
    /// TCP.
    Tcp(TcpConfig),
    /// A connection of the protocol core, `dfcp-proto`.
    Dfcp(DfcpSpec),
    /// DFCP as published.
    Published(PublishedSpec),
    /// Network coding over relays or several paths.
    Coded(CodedSpec),
    /// RC-UDP.
    RcUdp(RcUdpSpec),
    /// UDP cross traffic.
    Udp(UdpConfig),
}

/// A connection of the protocol core.
#[derive(Clone, Debug, PartialEq)]
pub struct DfcpSpec {
    /// The profile.
    pub profile: ProfileSpec,
    /// The code in place of the profile's.
    pub code: Option<SchemeId>,
    /// Symbols of a block; `None` for the profile's.
    pub block_symbols: Option<u32>,
    /// The rate controller in place of the profile's.
    pub control: ControlSpec,
    /// The block scheduler in place of the profile's.
    pub scheduler: Option<SchedulerLaw>,
    /// The feedback in place of the profile's.
    pub feedback: Option<FeedbackLaw>,
    /// What the sender may give up.
    pub reliability: Reliability,
    /// Whether payload bytes exist.
    pub payload: DfcpPayload,
    /// Largest IP packet it tries, bytes.
    pub mtu: u16,
    /// Bytes of incomplete or unread data that the receiver holds.
    pub receive_budget: u64,
    /// Bytes of unacknowledged data that the sender holds.
    pub send_buffer: u64,
    /// Speed of one multiply-accumulate over a symbol, charged as time; `None` costs nothing.
    pub coding_rate: Option<Rate>,
}

/// A connection of DFCP as published (`dfcp_proto::published`).
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedSpec {
    /// Most unacknowledged blocks.
    pub window: u32,
    /// ε: a block is complete at (1 + ε) k symbols.
    pub redundancy: f64,
    /// When the sender has sent enough of a block.
    pub sending: Sending,
    /// Which acknowledgements are sent.
    pub acknowledge: Acknowledge,
    /// When a block is acknowledged.
    pub moment: Moment,
    /// Whether blocks are encoded.
    pub encoding: Codec,
    /// Whether blocks are decoded.
    pub decoding: Codec,
    /// What makes a block complete that is not decoded.
    pub completion: Completion,
    /// How long a block's last packet is.
    pub last_packet: LastPacket,
    /// Bytes of a block; a whole number of symbols.
    pub block: u32,
    /// Bytes of a symbol.
    pub symbol: u16,
    /// Degrees of LT symbols.
    pub distribution: Degrees,
    /// Degrees of the LDPC code's message nodes.
    pub ldpc_degree: LdpcDegrees,
    /// The rate controller; never the profile's.
    pub control: ControlSpec,
    /// Whether payload bytes exist.
    pub payload: DfcpPayload,
    /// Largest IP packet, bytes; `None` until the path is known.
    pub mtu: Option<u16>,
}

/// Check nodes of the LDPC code for each source symbol: 2000 for 63536 (DFCP-J §4.4.1).
const CHECK_NODES: (u64, u64) = (2000, 63_536);

impl PublishedSpec {
    /// The code of the blocks.
    pub fn code(&self) -> RaptorParameters {
        let k = self.block / u32::from(self.symbol);
        let checks = (u64::from(k) * CHECK_NODES.0).div_ceil(CHECK_NODES.1);
        RaptorParameters {
            k,
            n: k + checks as u32,
            symbol_size: self.symbol,
            degrees: self.distribution,
            ldpc_degrees: self.ldpc_degree.clone(),
            ..RaptorParameters::published(GeneratorState::from_seed(1))
        }
    }
}

/// Network coding over relays or several paths ([`crate::coded`]).
#[derive(Clone, Debug, PartialEq)]
pub struct CodedSpec {
    /// Blocks, loss estimate and tokens.
    pub ctcp: CtcpParameters,
    /// What nodes of the route do.
    pub relay: Relaying,
    /// Nodes through each of which a path goes; none for the route of the flow.
    pub paths: Vec<String>,
    /// What the rate on each path follows.
    pub control: CodedControl,
    /// Largest IP packet, bytes; `None` until the paths are known.
    pub mtu: Option<u16>,
}

/// A connection of RC-UDP (`dfcp_proto::published::Config::rc_udp`).
#[derive(Clone, Debug, PartialEq)]
pub struct RcUdpSpec {
    /// Bytes of a block, B; it has as many symbols as they fill, K = ⌈B / L⌉.
    pub block: u32,
    /// Bytes of a symbol, L.
    pub symbol: u16,
    /// ε: a block is acknowledged at (1 + ε) K symbols.
    pub epsilon: f64,
    /// Which code.
    pub code: RcUdpCode,
    /// Waiting time for each packet dropped, δt.
    pub delta_t: Duration,
    /// The rate controller between the pauses; never the profile's.
    pub control: ControlSpec,
    /// Whether payload bytes exist.
    pub payload: DfcpPayload,
    /// Largest IP packet, bytes; `None` until the path is known.
    pub mtu: Option<u16>,
}

impl RcUdpSpec {
    /// The code of the blocks.
    pub fn code(&self) -> Code {
        let k = self.block.div_ceil(u32::from(self.symbol).max(1));
        self.code.code(k, self.symbol)
    }
}

/// A profile of the protocol core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ProfileSpec {
    /// The flagship.
    Auto,
    /// CTCP.
    Ctcp(CtcpParameters),
    /// Chameleon.
    Chameleon(ChameleonParameters),
    /// TFRC alone: Chameleon without its flow control.
    Tfrc(ChameleonParameters),
}

impl ProtocolSpec {
    /// The name in the file: `tcp-cubic`, `auto`, `udp-cbr`, …
    pub fn name(&self) -> &'static str {
        match self {
            Self::Tcp(tcp) => match tcp.sender.congestion {
                Congestion::Reno => "tcp-newreno",
                Congestion::Cubic(_) => "tcp-cubic",
                Congestion::HighSpeed => "tcp-highspeed",
                Congestion::HTcp => "tcp-htcp",
                Congestion::Bbr => "tcp-bbr",
            },
            Self::Dfcp(dfcp) => match dfcp.profile {
                ProfileSpec::Auto => "auto",
                ProfileSpec::Ctcp(_) => "ctcp",
                ProfileSpec::Chameleon(_) => "chameleon",
                ProfileSpec::Tfrc(_) => "tfrc",
            },
            Self::Published(_) => "dfcp",
            Self::Coded(_) => "coded",
            Self::RcUdp(_) => "rc-udp",
            Self::Udp(udp) => match udp.pattern {
                UdpPattern::Constant => "udp-cbr",
                // No file asks for it.
                UdpPattern::Poisson => "udp-poisson",
                UdpPattern::OnOff { .. } => "udp-on-off",
            },
        }
    }
}
