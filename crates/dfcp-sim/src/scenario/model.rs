//! What a scenario file means, as plain validated data: what the simulation is built from.
//!
//! Invariants, kept by [`Scenario::from_toml`]: every index is in range, every route leads from
//! its flow's source to its destination, every probability is within 0 to 1, every rate positive,
//! every name unique; random starts, sizes and end points are drawn already.

use std::collections::BTreeMap;
use std::sync::Arc;

use dfcp_proto::{Duration, Instant, Rate};

use crate::random::Seed;

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
    pub params: LinkParams,
}

/// What a one-way link does to packets.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkParams {
    /// How fast it serialises.
    pub rate: RateSpec,
    /// Propagation delay, one way.
    pub delay: Duration,
    /// Largest IP packet, bytes; larger ones are dropped.
    pub mtu: u32,
    /// Bytes added to each IP packet before the rate counts it: 0 where the rate is one of IP
    /// packets, 38 where it is that of Ethernet.
    pub framing: u32,
    /// The buffer in front of the transmitter.
    pub queue: QueueSpec,
    /// Loss after transmission.
    pub loss: LossSpec,
    /// Each packet is delayed by a uniform extra time below this.
    pub jitter: Duration,
    /// Probability that a packet is held back by `reorder_delay`.
    pub reorder: f64,
    /// How long a reordered packet is held back.
    pub reorder_delay: Duration,
    /// Probability that a packet is delivered twice.
    pub duplicate: f64,
    /// Probability that one random bit of a packet is flipped.
    pub corrupt: f64,
    /// An ECN-capable packet that waited longer than this is marked; `None` never marks.
    pub ecn_threshold: Option<Duration>,
}

/// The rate of a link.
#[derive(Clone, Debug, PartialEq)]
pub enum RateSpec {
    /// No serialisation time.
    Unlimited,
    /// The same at all times.
    Constant(Rate),
    /// Delivery opportunities of 1500 bytes, in the format of mahimahi: one time in milliseconds
    /// a line, repeated after the last.
    Trace(TraceSpec),
}

/// A trace that the scenario refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSpec {
    /// The file as the scenario names it.
    pub file: String,
    /// What the file holds.
    pub text: Arc<str>,
}

/// How packets are lost on a link.
#[derive(Clone, Debug, PartialEq)]
pub enum LossSpec {
    /// Not at all.
    None,
    /// Each on its own with this probability.
    Bernoulli(f64),
    /// Gilbert–Elliott: a loss probability for each of two states.
    GilbertElliott {
        /// Probability of going from the good state to the bad one, per packet.
        p_good_to_bad: f64,
        /// Probability of going back, per packet.
        p_bad_to_good: f64,
        /// Loss probability in the good state.
        loss_good: f64,
        /// Loss probability in the bad state.
        loss_bad: f64,
    },
    /// Packet by packet: `true` is lost; from the first again after the last.
    Trace(Arc<[bool]>),
    /// As [`Self::Trace`], but nothing is lost after the last.
    Mask(Arc<[bool]>),
}

/// A buffer and who may leave it first.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSpec {
    /// Who may leave first, and who is dropped.
    pub discipline: DisciplineSpec,
    /// How much it holds beside the packet in the transmitter.
    pub limit: LimitSpec,
    /// Weights of classes at this queue; classes not named have their flows' weight.
    pub weights: BTreeMap<String, f64>,
}

/// The size of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitSpec {
    /// At most this many packets.
    Packets(u64),
    /// At most this many bytes, framing included.
    Bytes(u64),
    /// Everything.
    Unlimited,
}

/// A queue discipline.
#[derive(Clone, Debug, PartialEq)]
pub enum DisciplineSpec {
    /// First in, first out; DropTail.
    Fifo,
    /// Deficit round robin (Shreedhar and Varghese 1996).
    Drr {
        /// Bytes a turn for a class of weight 1.
        quantum: u32,
        /// Who is dropped when the buffer is full.
        drop: DropSpec,
    },
    /// Weighted fair queueing (packetised GPS).
    Wfq {
        /// Who is dropped when the buffer is full.
        drop: DropSpec,
    },
    /// Stochastic fair queueing (McKenney 1990).
    Sfq {
        /// Number of queues that flows are hashed into.
        buckets: u32,
        /// Bytes a turn.
        quantum: u32,
        /// Time after which flows are hashed anew; `None` for never.
        perturb: Option<Duration>,
        /// Who is dropped when the buffer is full.
        drop: DropSpec,
    },
    /// Random early detection (Floyd and Jacobson 1993).
    Red {
        /// Average queue below which nothing is dropped, packets.
        min_threshold: f64,
        /// Average queue at which `max_probability` is reached, packets.
        max_threshold: f64,
        /// Drop probability at `max_threshold`.
        max_probability: f64,
        /// Weight of a new sample in the average.
        weight: f64,
        /// Whether the probability rises to 1 at twice `max_threshold` instead of jumping.
        gentle: bool,
        /// Whether ECN-capable packets are marked instead of dropped.
        ecn: bool,
    },
    /// Controlled delay (RFC 8289).
    CoDel {
        /// Acceptable standing delay.
        target: Duration,
        /// Time in which a queue should fall below the target.
        interval: Duration,
        /// Whether ECN-capable packets are marked instead of dropped.
        ecn: bool,
    },
    /// Flow queues under CoDel (RFC 8290).
    FqCoDel {
        /// Number of queues that flows are hashed into.
        buckets: u32,
        /// Bytes a turn.
        quantum: u32,
        /// Acceptable standing delay.
        target: Duration,
        /// Time in which a queue should fall below the target.
        interval: Duration,
        /// Whether ECN-capable packets are marked instead of dropped.
        ecn: bool,
    },
}

/// Which packet of the longest queue goes when a shared buffer is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropSpec {
    /// The oldest.
    Head,
    /// The newest.
    Tail,
}

/// A scheduled change of one one-way link.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeSpec {
    /// When.
    pub at: Instant,
    /// Which link.
    pub link: LinkIndex,
    /// Everything the link does from then on.
    pub params: LinkParams,
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
    /// When it starts.
    pub start: Instant,
    /// When it stops sending whatever is left; `None` for the end of the run.
    pub stop: Option<Instant>,
    /// Useful bytes to send; `None` for as many as time allows.
    pub size: Option<u64>,
}

/// The protocol of a flow.
#[derive(Clone, Debug, PartialEq)]
pub enum ProtocolSpec {
    /// TCP.
    Tcp(TcpSpec),
    /// A connection of the protocol core, `dfcp-proto`.
    Dfcp(DfcpSpec),
    /// UDP cross traffic.
    Udp(UdpSpec),
}

/// A TCP sender and its receiver.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpSpec {
    /// Congestion control.
    pub congestion: CongestionSpec,
    /// Payload of a full segment, bytes.
    pub mss: u32,
    /// Initial window, segments.
    pub initial_window: u32,
    /// Initial slow-start threshold, segments; `None` for no limit.
    pub initial_ssthresh: Option<u32>,
    /// Retransmission timeout before the first round trip is measured.
    pub rto_initial: Duration,
    /// Least retransmission timeout.
    pub rto_min: Duration,
    /// Greatest retransmission timeout.
    pub rto_max: Duration,
    /// Whether a SYN exchange comes first.
    pub handshake: bool,
    /// Selective acknowledgements (RFC 2018, RFC 6675); NewReno (RFC 6582) without.
    pub sack: bool,
    /// Timestamps (RFC 7323).
    pub timestamps: bool,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// Limited transmit (RFC 3042).
    pub limited_transmit: bool,
    /// Delayed acknowledgements; `None` acknowledges every segment.
    pub delayed_ack: Option<DelayedAckSpec>,
    /// Cap of the send window (socket buffer), bytes; `None` for no cap.
    pub send_window: Option<u64>,
    /// Receive window (socket buffer), bytes; `None` for no cap.
    pub receive_window: Option<u64>,
    /// Headers on the wire.
    pub headers: HeaderSpec,
}

/// When a TCP receiver acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayedAckSpec {
    /// At the latest after this many full segments.
    pub segments: u32,
    /// At the latest after this time.
    pub timeout: Duration,
}

/// How long TCP's headers count on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderSpec {
    /// 40 bytes of IPv4 and TCP, and options as they are used.
    Exact,
    /// 40 bytes whatever the options, as ns-2 counts.
    Flat,
}

/// Congestion control of TCP.
#[derive(Clone, Debug, PartialEq)]
pub enum CongestionSpec {
    /// Reno's window (RFC 5681).
    NewReno,
    /// CUBIC.
    Cubic(CubicSpec),
    /// HighSpeed TCP (RFC 3649).
    HighSpeed,
    /// H-TCP (draft-leith-tcp-htcp-06).
    HTcp,
    /// BBR.
    Bbr,
}

/// Parameters of CUBIC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CubicSpec {
    /// Which CUBIC.
    pub variant: CubicVariant,
    /// Multiplicative decrease.
    pub beta: f64,
    /// Steepness, segments a second cubed.
    pub c: f64,
    /// Whether a window that shrinks again gives way faster.
    pub fast_convergence: bool,
    /// Whether it is never slower than Reno would be.
    pub tcp_friendly: bool,
    /// How slow start ends.
    pub hystart: HystartSpec,
}

/// Which CUBIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CubicVariant {
    /// RFC 9438.
    Rfc9438,
    /// CUBIC v2.2 of Linux 2.6.26.
    Linux2_6_26,
}

/// How slow start ends before a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HystartSpec {
    /// It does not.
    Off,
    /// HyStart++ (RFC 9406).
    PlusPlus,
}

/// A connection of the protocol core.
#[derive(Clone, Debug, PartialEq)]
pub struct DfcpSpec {
    /// The profile; only `auto` exists yet.
    pub profile: ProfileSpec,
    /// The code in place of the profile's.
    pub code: CodeSpec,
    /// Symbols of a block; `None` for the profile's.
    pub block_symbols: Option<u32>,
    /// The rate controller in place of the profile's.
    pub control: ControlSpec,
    /// Whether payload bytes exist.
    pub payload: PayloadSpec,
    /// Largest IP packet it tries, bytes.
    pub mtu: u16,
    /// Bytes of incomplete or unread data that the receiver holds.
    pub receive_budget: u64,
    /// Bytes of unacknowledged data that the sender holds.
    pub send_buffer: u64,
    /// Speed of one multiply-accumulate over a symbol, charged as time; `None` costs nothing.
    pub coding_rate: Option<Rate>,
}

/// A profile of the protocol core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileSpec {
    /// The flagship.
    Auto,
}

/// An erasure code of the protocol core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeSpec {
    /// The profile's.
    Profile,
    /// None: every symbol a block of its own.
    Arq,
    /// Systematic random linear code over GF(256).
    Dense,
    /// RaptorQ (RFC 6330).
    RaptorQ,
}

/// A rate controller of the protocol core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlSpec {
    /// The profile's.
    Profile,
    /// This rate, without backing off.
    Fixed(Rate),
    /// As fast as the first link takes it.
    LineRate,
}

/// Whether payload bytes exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadSpec {
    /// Sizes only.
    Virtual,
    /// Real bytes, coded and checked.
    Real,
}

/// UDP cross traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UdpSpec {
    /// Rate of IP packets while it sends.
    pub rate: Rate,
    /// Size of an IP packet, bytes.
    pub packet: u32,
    /// Pauses between bursts; `None` sends at all times.
    pub on_off: Option<OnOffSpec>,
}

/// Bursts and pauses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OnOffSpec {
    /// Mean length of a burst.
    pub on: Duration,
    /// Mean length of a pause.
    pub off: Duration,
    /// How the lengths are distributed.
    pub distribution: OnOffDistribution,
}

/// How bursts and pauses are distributed around their mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OnOffDistribution {
    /// All alike.
    Constant,
    /// Exponential.
    Exponential,
    /// Pareto with this shape (above 1).
    Pareto(f64),
}

impl ProtocolSpec {
    /// The name in the file: `tcp-cubic`, `auto`, `udp-cbr`, …
    pub fn name(&self) -> &'static str {
        match self {
            Self::Tcp(tcp) => match tcp.congestion {
                CongestionSpec::NewReno => "tcp-newreno",
                CongestionSpec::Cubic(_) => "tcp-cubic",
                CongestionSpec::HighSpeed => "tcp-highspeed",
                CongestionSpec::HTcp => "tcp-htcp",
                CongestionSpec::Bbr => "tcp-bbr",
            },
            Self::Dfcp(dfcp) => match dfcp.profile {
                ProfileSpec::Auto => "auto",
            },
            Self::Udp(UdpSpec { on_off: None, .. }) => "udp-cbr",
            Self::Udp(_) => "udp-on-off",
        }
    }
}
