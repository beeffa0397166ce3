//! `tcp`, `dfcp` and `udp`: what the protocols of flows can be told.

use dfcp_proto::{Duration, Rate, Reliability, SchemeId};

use crate::engine::{DfcpPayload, Lengths, TcpConfig};
use crate::scenario::control::ControlSpec;
use crate::scenario::fields::{
    BitRate, Bytes, Codec, Count, Fields, Flag, Nested, Number, OneOf, Optional, OrWord, Section,
    Time, fault,
};
use crate::scenario::model::*;
use crate::scenario::parts::{FEEDBACK, SCHEDULERS};
use crate::scenario::tree::{Fault, Node, Value};
use crate::tcp::{
    Congestion, CubicConfig, CubicVariant, DelayedAck, Sizes, TcpReceiverConfig, TcpSenderConfig,
    WindowReduction,
};

const MAX_BYTES: u64 = 1 << 53;

/// Words of payloads.
pub(super) const PAYLOADS: [(&str, DfcpPayload); 2] = [
    ("virtual", DfcpPayload::Virtual),
    ("real", DfcpPayload::Real),
];

/// ns-2 counts 40 bytes of headers whatever they carry.
const FLAT: Sizes = Sizes::Flat {
    data_header: 40,
    ack: 40,
};

/// `tcp`.
#[derive(Clone, Debug)]
pub(in crate::scenario) struct TcpSettings {
    /// `None`: what the path's MTU leaves.
    pub mss: Option<u32>,
    pub cubic: CubicSettings,
    /// The sender, and what the receiver has in common with it; the MSS and the congestion
    /// control mean nothing.
    pub sender: TcpSenderConfig,
    delayed_ack: Option<DelayedAck>,
    pub receive_window: Option<u64>,
}

impl Default for TcpSettings {
    fn default() -> Self {
        Self {
            mss: None,
            cubic: CubicSettings::default(),
            sender: TcpSenderConfig {
                initial_window: 10,                          // RFC 6928
                initial_ssthresh: None,                      // RFC 5681 §3.1
                rto_initial: Duration::from_secs(1),         // RFC 6298 §2.1
                rto_min: Duration::from_millis(200),         // Linux
                rto_max: Duration::from_secs(60),            // RFC 6298 §2.5
                rto_granularity: Duration::from_millis(200), // Linux, in effect
                reduction: WindowReduction::Proportional,
                find_lost_retransmissions: true,
                ..TcpSenderConfig::default()
            },
            delayed_ack: Some(DelayedAck::default()),
            receive_window: None,
        }
    }
}

impl TcpSettings {
    /// Both ends, with segments of `mss` bytes.
    pub fn config(&self, congestion: Congestion, mss: u32) -> TcpConfig {
        let sender = TcpSenderConfig {
            congestion,
            mss,
            ..self.sender.clone()
        };
        let receiver = TcpReceiverConfig {
            mss,
            delayed_ack: self.delayed_ack,
            timestamps: sender.timestamps,
            sack: sender.sack,
            ecn: sender.ecn,
            receive_buffer: self.receive_window,
            sizes: sender.sizes,
        };
        TcpConfig { sender, receiver }
    }
}

impl Section for TcpSettings {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let tcp = &mut self.sender;
        let headers = [("exact", Sizes::Wire), ("flat", FLAT)];
        let delayed = Nested(DelayedAck::default(), "delayed_ack");
        f.item("mss", &mut self.mss, OrWord("path", Bytes(1, 65_000)));
        let window = Count(1, 1_000_000);
        f.item("initial_window", &mut tcp.initial_window, window);
        let ssthresh = OrWord("unlimited", Count(2, 1 << 30));
        f.item("initial_ssthresh", &mut tcp.initial_ssthresh, ssthresh);
        f.item("rto_initial", &mut tcp.rto_initial, Time);
        f.item("rto_min", &mut tcp.rto_min, Time);
        f.item("rto_max", &mut tcp.rto_max, Time);
        f.item("rto_granularity", &mut tcp.rto_granularity, Time);
        let reductions = [
            ("at-once", WindowReduction::AtOnce),
            ("proportional", WindowReduction::Proportional),
        ];
        f.item("reduction", &mut tcp.reduction, OneOf(&reductions));
        let find = &mut tcp.find_lost_retransmissions;
        f.item("find_lost_retransmissions", find, Flag);
        f.item("handshake", &mut tcp.handshake, Flag);
        f.item("sack", &mut tcp.sack, Flag);
        f.item("timestamps", &mut tcp.timestamps, Flag);
        f.item("ecn", &mut tcp.ecn, Flag);
        f.item("limited_transmit", &mut tcp.limited_transmit, Flag);
        f.item("delayed_ack", &mut self.delayed_ack, OrWord("off", delayed));
        let window = || OrWord("unlimited", Bytes(1, MAX_BYTES));
        f.item("send_window", &mut tcp.send_buffer, window());
        f.item("receive_window", &mut self.receive_window, window());
        f.item("headers", &mut tcp.sizes, OneOf(&headers));
        f.nested("cubic", &mut self.cubic);
    }
}

impl Section for DelayedAck {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("segments", &mut self.segments, Count(1, 1000));
        f.item("timeout", &mut self.timeout, Time);
        f.item("quick", &mut self.quick, Count(0, 1000));
    }
}

/// `cubic`.
#[derive(Clone, Debug)]
pub(in crate::scenario) struct CubicSettings {
    variant: CubicVariant,
    /// `None` for the variant's.
    beta: Option<f64>,
    fast_convergence: bool,
    hystart: bool,
    keeps_growth: bool,
}

impl Default for CubicSettings {
    /// RFC 9438; slow start ends by loss, as in the papers' kernels.
    fn default() -> Self {
        Self {
            variant: CubicVariant::Rfc9438,
            beta: None,
            fast_convergence: true,
            hystart: false,
            keeps_growth: false,
        }
    }
}

impl Section for CubicSettings {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let variants = [
            ("rfc9438", CubicVariant::Rfc9438),
            ("linux-2.6.26", CubicVariant::Linux2626),
        ];
        let hystart = [("off", false), ("rfc9406", true)];
        f.item("variant", &mut self.variant, OneOf(&variants));
        f.item("beta", &mut self.beta, OrWord("variant", Number(0.1, 0.99)));
        f.item("fast_convergence", &mut self.fast_convergence, Flag);
        f.item("hystart", &mut self.hystart, OneOf(&hystart));
        f.item("keeps_growth", &mut self.keeps_growth, Flag);
    }
}

impl CubicSettings {
    /// With the variant's own β where none is stated.
    pub fn config(&self) -> CubicConfig {
        let own = match self.variant {
            CubicVariant::Rfc9438 => CubicConfig::default(),
            CubicVariant::Linux2626 => CubicConfig::linux_2_6_26(),
        };
        CubicConfig {
            beta: self.beta.unwrap_or(own.beta),
            fast_convergence: self.fast_convergence,
            hystart: self.hystart,
            keeps_growth: self.keeps_growth,
            ..own
        }
    }
}

impl Default for DfcpSpec {
    /// `dfcp_proto::TransportConfig`'s defaults, without payload bytes.
    fn default() -> Self {
        Self {
            profile: ProfileSpec::Auto,
            code: None,
            block_symbols: None,
            control: ControlSpec::default(),
            scheduler: None,
            feedback: None,
            reliability: Reliability::Reliable,
            payload: DfcpPayload::Virtual,
            mtu: 1500,
            receive_budget: 32 << 20,
            send_buffer: 32 << 20,
            coding_rate: None,
        }
    }
}

impl Section for DfcpSpec {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let codes = [
            ("profile", None),
            ("arq", Some(SchemeId::Arq)),
            ("dense", Some(SchemeId::Dense)),
            ("raptorq", Some(SchemeId::RaptorQ)),
            ("raptor", Some(SchemeId::Raptor)),
            ("rlnc", Some(SchemeId::Rlnc)),
        ];
        f.item("code", &mut self.code, OneOf(&codes));
        let symbols = OrWord("profile", Count(1, 56_403));
        f.item("block_symbols", &mut self.block_symbols, symbols);
        self.control.fields(f);
        f.item("scheduler", &mut self.scheduler, OneOf(&SCHEDULERS));
        f.item("feedback", &mut self.feedback, OneOf(&FEEDBACK));
        f.item("reliability", &mut self.reliability, ReliabilityLaw);
        f.item("payload", &mut self.payload, OneOf(&PAYLOADS));
        f.item("mtu", &mut self.mtu, Bytes(1280, 9000));
        let buffer = || Bytes(1 << 20, 1 << 40);
        f.item("receive_budget", &mut self.receive_budget, buffer());
        f.item("send_buffer", &mut self.send_buffer, buffer());
        let rate = OrWord("unlimited", BitRate);
        f.item("coding_rate", &mut self.coding_rate, rate);
    }
}

const RELIABILITIES: [(&str, Reliability); 2] = [
    ("reliable", Reliability::Reliable),
    ("unreliable", Reliability::Unreliable),
];

/// `"reliable"`, `"unreliable"`, `{ deadline = time }` or `{ retransmissions = count }`.
struct ReliabilityLaw;

#[derive(Clone, Default)]
struct ReliabilityLimits {
    deadline: Option<Duration>,
    retransmissions: Option<u32>,
}

impl Section for ReliabilityLimits {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("deadline", &mut self.deadline, Optional(Time));
        let count = Optional(Count(0, 1 << 30));
        f.item("retransmissions", &mut self.retransmissions, count);
    }
}

impl Codec<Reliability> for ReliabilityLaw {
    fn read(&self, node: &Node) -> Result<Reliability, Fault> {
        let Value::Table(_) = &node.value else {
            return OneOf(&RELIABILITIES).read(node);
        };
        let limits = ReliabilityLimits::default().read(node, "reliability")?;
        match (limits.deadline, limits.retransmissions) {
            (Some(age), None) => Ok(Reliability::Deadline(age)),
            (None, Some(count)) => Ok(Reliability::Retransmissions(count)),
            _ => fault(
                node,
                "write one of `deadline` and `retransmissions`: for example \
                 `{ deadline = \"200 ms\" }`",
            ),
        }
    }

    fn write(&self, value: &Reliability) -> Option<Value> {
        let mut limits = ReliabilityLimits::default();
        match *value {
            Reliability::Reliable | Reliability::Unreliable => {
                return OneOf(&RELIABILITIES).write(value);
            }
            Reliability::Deadline(age) => limits.deadline = Some(age),
            Reliability::Retransmissions(count) => limits.retransmissions = Some(count),
        }
        Some(Value::Table(limits.write()))
    }
}

/// `udp`.
#[derive(Clone, Debug)]
pub(in crate::scenario) struct UdpSettings {
    /// Must be stated.
    pub rate: Option<Rate>,
    pub packet: u32,
    /// Mean length of a burst.
    pub on: Duration,
    /// Mean length of a pause.
    pub off: Duration,
    pub lengths: Lengths,
}

impl Default for UdpSettings {
    fn default() -> Self {
        Self {
            rate: None,
            packet: 1500,
            // The traditional source of voice and web models: exponential, mean one second.
            on: Duration::from_secs(1),
            off: Duration::from_secs(1),
            lengths: Lengths::Exponential,
        }
    }
}

impl Section for UdpSettings {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("rate", &mut self.rate, Optional(BitRate));
        f.item("packet", &mut self.packet, Bytes(28, 65_535));
        f.item("on", &mut self.on, Time);
        f.item("off", &mut self.off, Time);
        f.item("distribution", &mut self.lengths, LengthsLaw);
    }
}

const LENGTHS: [(&str, Lengths); 2] = [
    ("constant", Lengths::Constant),
    ("exponential", Lengths::Exponential),
];

/// `"constant"`, `"exponential"` or `{ pareto = shape }`.
struct LengthsLaw;

#[derive(Clone)]
struct Pareto(f64);

impl Section for Pareto {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("pareto", &mut self.0, Number(1.001, 1e3));
    }
}

impl Codec<Lengths> for LengthsLaw {
    fn read(&self, node: &Node) -> Result<Lengths, Fault> {
        match &node.value {
            Value::Table(_) => Pareto(1.5)
                .read(node, "distribution")
                .map(|pareto| Lengths::Pareto(pareto.0)),
            _ => OneOf(&LENGTHS).read(node),
        }
    }

    fn write(&self, value: &Lengths) -> Option<Value> {
        match value {
            Lengths::Pareto(shape) => Some(Value::Table(Pareto(*shape).write())),
            word => OneOf(&LENGTHS).write(word),
        }
    }
}
