//! `tcp`, `dfcp` and `udp`: what the protocols of flows can be told.

use dfcp_proto::{Duration, Rate};

use crate::scenario::fields::{
    BitRate, Bytes, Codec, Count, Fields, Flag, Nested, Number, OneOf, Optional, OrWord, Section,
    Time,
};
use crate::scenario::model::*;
use crate::scenario::tree::{Fault, Node, Value};

const MAX_BYTES: u64 = 1 << 53;

/// `tcp`.
#[derive(Clone, Debug)]
pub(in crate::scenario) struct TcpSettings {
    /// `None`: what the path's MTU leaves.
    pub mss: Option<u32>,
    pub cubic: CubicSettings,
    /// All the rest; its mss and congestion control mean nothing.
    pub rest: TcpSpec,
}

impl Default for TcpSettings {
    fn default() -> Self {
        Self {
            mss: None,
            cubic: CubicSettings::default(),
            rest: TcpSpec {
                congestion: CongestionSpec::NewReno,
                mss: 0,
                initial_window: 10,                          // RFC 6928
                initial_ssthresh: None,                      // RFC 5681 §3.1
                rto_initial: Duration::from_secs(1),         // RFC 6298 §2.1
                rto_min: Duration::from_millis(200),         // Linux
                rto_max: Duration::from_secs(60),            // RFC 6298 §2.5
                rto_granularity: Duration::from_millis(200), // Linux, in effect
                reduction: ReductionSpec::Proportional,
                find_lost_retransmissions: true,
                handshake: true,
                sack: true,
                timestamps: true,
                ecn: false,
                limited_transmit: true,
                delayed_ack: Some(DelayedAckSpec::default()),
                send_window: None,
                receive_window: None,
                headers: HeaderSpec::Exact,
            },
        }
    }
}

impl Default for DelayedAckSpec {
    /// Every other segment (RFC 5681 §4.2), 40 ms as Linux.
    fn default() -> Self {
        Self {
            segments: 2,
            timeout: Duration::from_millis(40),
        }
    }
}

impl Section for TcpSettings {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let tcp = &mut self.rest;
        let headers = [("exact", HeaderSpec::Exact), ("flat", HeaderSpec::Flat)];
        let delayed = Nested(DelayedAckSpec::default(), "delayed_ack");
        f.item("mss", &mut self.mss, OrWord("path", Bytes(1, 65_000)));
        f.item(
            "initial_window",
            &mut tcp.initial_window,
            Count(1, 1_000_000),
        );
        let ssthresh = OrWord("unlimited", Count(2, 1 << 30));
        f.item("initial_ssthresh", &mut tcp.initial_ssthresh, ssthresh);
        f.item("rto_initial", &mut tcp.rto_initial, Time);
        f.item("rto_min", &mut tcp.rto_min, Time);
        f.item("rto_max", &mut tcp.rto_max, Time);
        f.item("rto_granularity", &mut tcp.rto_granularity, Time);
        let reductions = [
            ("at-once", ReductionSpec::AtOnce),
            ("proportional", ReductionSpec::Proportional),
        ];
        f.item("reduction", &mut tcp.reduction, OneOf(&reductions));
        let find = &mut tcp.find_lost_retransmissions;
        f.item("find_lost_retransmissions", find, Flag);
        f.item("handshake", &mut tcp.handshake, Flag);
        f.item("sack", &mut tcp.sack, Flag);
        f.item("timestamps", &mut tcp.timestamps, Flag);
        f.item("ecn", &mut tcp.ecn, Flag);
        f.item("limited_transmit", &mut tcp.limited_transmit, Flag);
        f.item("delayed_ack", &mut tcp.delayed_ack, OrWord("off", delayed));
        let window = || OrWord("unlimited", Bytes(1, MAX_BYTES));
        f.item("send_window", &mut tcp.send_window, window());
        f.item("receive_window", &mut tcp.receive_window, window());
        f.item("headers", &mut tcp.headers, OneOf(&headers));
        f.nested("cubic", &mut self.cubic);
    }
}

impl Section for DelayedAckSpec {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("segments", &mut self.segments, Count(1, 1000));
        f.item("timeout", &mut self.timeout, Time);
    }
}

/// `cubic`.
#[derive(Clone, Debug)]
pub(in crate::scenario) struct CubicSettings {
    variant: CubicVariant,
    /// `None` for the variant's.
    beta: Option<f64>,
    fast_convergence: bool,
    hystart: HystartSpec,
}

impl Default for CubicSettings {
    /// RFC 9438; slow start ends by loss, as in the papers' kernels.
    fn default() -> Self {
        Self {
            variant: CubicVariant::Rfc9438,
            beta: None,
            fast_convergence: true,
            hystart: HystartSpec::Off,
        }
    }
}

impl Section for CubicSettings {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let variants = [
            ("rfc9438", CubicVariant::Rfc9438),
            ("linux-2.6.26", CubicVariant::Linux2626),
        ];
        let hystart = [
            ("off", HystartSpec::Off),
            ("rfc9406", HystartSpec::PlusPlus),
        ];
        f.item("variant", &mut self.variant, OneOf(&variants));
        f.item("beta", &mut self.beta, OrWord("variant", Number(0.1, 0.99)));
        f.item("fast_convergence", &mut self.fast_convergence, Flag);
        f.item("hystart", &mut self.hystart, OneOf(&hystart));
    }
}

impl CubicSettings {
    /// With the variant's own β where none is stated.
    pub fn spec(&self) -> CubicSpec {
        let beta = match self.variant {
            CubicVariant::Rfc9438 => 0.7,
            CubicVariant::Linux2626 => 717.0 / 1024.0,
        };
        CubicSpec {
            variant: self.variant,
            beta: self.beta.unwrap_or(beta),
            fast_convergence: self.fast_convergence,
            hystart: self.hystart,
        }
    }
}

impl Default for DfcpSpec {
    /// `dfcp_proto::TransportConfig`'s defaults, without payload bytes.
    fn default() -> Self {
        Self {
            profile: ProfileSpec::Auto,
            code: CodeSpec::Profile,
            block_symbols: None,
            control: ControlSpec::Profile,
            payload: PayloadSpec::Virtual,
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
            ("profile", CodeSpec::Profile),
            ("arq", CodeSpec::Arq),
            ("dense", CodeSpec::Dense),
            ("raptorq", CodeSpec::RaptorQ),
        ];
        let payloads = [
            ("virtual", PayloadSpec::Virtual),
            ("real", PayloadSpec::Real),
        ];
        f.item("code", &mut self.code, OneOf(&codes));
        let symbols = OrWord("profile", Count(1, 56_403));
        f.item("block_symbols", &mut self.block_symbols, symbols);
        f.item("control", &mut self.control, Control);
        f.item("payload", &mut self.payload, OneOf(&payloads));
        f.item("mtu", &mut self.mtu, Bytes(1280, 9000));
        f.item(
            "receive_budget",
            &mut self.receive_budget,
            Bytes(1 << 20, 1 << 40),
        );
        f.item(
            "send_buffer",
            &mut self.send_buffer,
            Bytes(1 << 20, 1 << 40),
        );
        f.item(
            "coding_rate",
            &mut self.coding_rate,
            OrWord("unlimited", BitRate),
        );
    }
}

/// `"profile"`, `"line rate"`, or a rate.
struct Control;

impl Codec<ControlSpec> for Control {
    fn read(&self, node: &Node) -> Result<ControlSpec, Fault> {
        match &node.value {
            Value::String(word) if word == "profile" => Ok(ControlSpec::Profile),
            Value::String(word) if word == "line rate" => Ok(ControlSpec::LineRate),
            _ => BitRate
                .read(node)
                .map(ControlSpec::Fixed)
                .map_err(|mut fault| {
                    fault.message.push_str(", \"profile\" or \"line rate\"");
                    fault
                }),
        }
    }

    fn write(&self, value: &ControlSpec) -> Option<Value> {
        match value {
            ControlSpec::Profile => Some(Value::String("profile".to_owned())),
            ControlSpec::LineRate => Some(Value::String("line rate".to_owned())),
            ControlSpec::Fixed(rate) => BitRate.write(rate),
        }
    }
}

/// `udp`.
#[derive(Clone, Debug)]
pub(in crate::scenario) struct UdpSettings {
    /// Must be stated.
    pub rate: Option<Rate>,
    pub packet: u32,
    pub on_off: OnOffSpec,
}

impl Default for UdpSettings {
    fn default() -> Self {
        Self {
            rate: None,
            packet: 1500,
            // The traditional source of voice and web models: exponential, mean one second.
            on_off: OnOffSpec {
                on: Duration::from_secs(1),
                off: Duration::from_secs(1),
                distribution: OnOffDistribution::Exponential,
            },
        }
    }
}

impl Section for UdpSettings {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("rate", &mut self.rate, Optional(BitRate));
        f.item("packet", &mut self.packet, Bytes(28, 65_535));
        f.item("on", &mut self.on_off.on, Time);
        f.item("off", &mut self.on_off.off, Time);
        f.item("distribution", &mut self.on_off.distribution, OnOffLaw);
    }
}

/// `"constant"`, `"exponential"` or `{ pareto = shape }`.
struct OnOffLaw;

#[derive(Clone)]
struct Pareto(f64);

impl Section for Pareto {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("pareto", &mut self.0, Number(1.001, 1e3));
    }
}

impl Codec<OnOffDistribution> for OnOffLaw {
    fn read(&self, node: &Node) -> Result<OnOffDistribution, Fault> {
        match &node.value {
            Value::Table(_) => Pareto(1.5)
                .read(node, "distribution")
                .map(|pareto| OnOffDistribution::Pareto(pareto.0)),
            _ => OneOf(&[
                ("constant", OnOffDistribution::Constant),
                ("exponential", OnOffDistribution::Exponential),
            ])
            .read(node),
        }
    }

    fn write(&self, value: &OnOffDistribution) -> Option<Value> {
        Some(match value {
            OnOffDistribution::Constant => Value::String("constant".to_owned()),
            OnOffDistribution::Exponential => Value::String("exponential".to_owned()),
            OnOffDistribution::Pareto(shape) => Value::Table(Pareto(*shape).write()),
        })
    }
}
