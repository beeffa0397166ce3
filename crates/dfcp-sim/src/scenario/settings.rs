//! The sections of a scenario file and their defaults, each default with its reason.

use std::collections::BTreeMap;
use std::sync::Arc;

use dfcp_proto::{Duration, Rate};

use super::fields::{
    BitRate, Bytes, Codec, Count, Fields, Flag, Nested, Number, OneOf, OrWord, Optional,
    PROBABILITY, Section, Text, Time, WEIGHT, fault, quantity,
};
use super::model::*;
use super::tree::{Fault, Node, Place, Table, Value};
use super::units::{self, Quantity};
use crate::random::Seed;

const MAX_BYTES: u64 = 1 << 53;

/// `[run]`.
#[derive(Clone, Debug)]
pub(super) struct RunSettings {
    pub spec: RunSpec,
    /// What a buffer in `bdp` is measured with; `None` for the first flow's path.
    pub rtt: Option<Duration>,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            // The papers' runs: 60 s, of which the first 15 s do not count.
            spec: RunSpec {
                duration: Duration::from_secs(60),
                warmup: Duration::ZERO,
                seed: Seed(1),
                sample: None,
                end: EndSpec::Duration,
            },
            rtt: None,
        }
    }
}

impl Section for RunSettings {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let ends = [("duration", EndSpec::Duration), ("finished", EndSpec::Finished)];
        f.item("duration", &mut self.spec.duration, Time);
        f.item("warmup", &mut self.spec.warmup, Time);
        f.item("end", &mut self.spec.end, OneOf(&ends));
        f.item("seed", &mut self.spec.seed.0, Count(0, i64::MAX as u64));
        f.item("sample", &mut self.spec.sample, OrWord("off", Time));
        f.item("rtt", &mut self.rtt, OrWord("first flow", Time));
    }
}

/// A link as the file describes it.
#[derive(Clone, Debug)]
pub(super) struct LinkSettings {
    /// Must be stated somewhere.
    pub rate: Option<RateSpec>,
    pub queue: QueueSettings,
    pub loss: LossSettings,
    /// All the rest; its rate, queue and loss mean nothing.
    pub rest: LinkParams,
}

impl Default for LinkSettings {
    fn default() -> Self {
        Self {
            rate: None,
            queue: QueueSettings::default(),
            loss: LossSettings::Spec(LossSpec::None),
            rest: LinkParams {
                rate: RateSpec::Unlimited,
                delay: Duration::ZERO,
                mtu: 1500,
                framing: 0,
                queue: QueueSpec {
                    discipline: DisciplineSpec::Fifo,
                    limit: LimitSpec::Unlimited,
                    weights: BTreeMap::new(),
                },
                loss: LossSpec::None,
                jitter: Duration::ZERO,
                reorder: 0.0,
                reorder_delay: Duration::from_millis(1),
                duplicate: 0.0,
                corrupt: 0.0,
                ecn_threshold: None,
            },
        }
    }
}

impl Section for LinkSettings {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let rest = &mut self.rest;
        f.item("rate", &mut self.rate, Optional(LinkRate));
        f.item("delay", &mut rest.delay, Time);
        f.item("mtu", &mut rest.mtu, Bytes(68, 65_535));
        f.item("framing", &mut rest.framing, Framing);
        f.item("queue", &mut self.queue, Nested(QueueSettings::default(), "queue"));
        f.item("loss", &mut self.loss, Loss);
        f.item("jitter", &mut rest.jitter, Time);
        f.item("reorder", &mut rest.reorder, PROBABILITY);
        f.item("reorder_delay", &mut rest.reorder_delay, Time);
        f.item("duplicate", &mut rest.duplicate, PROBABILITY);
        f.item("corrupt", &mut rest.corrupt, PROBABILITY);
        f.item("ecn_threshold", &mut rest.ecn_threshold, OrWord("never", Time));
    }
}

/// A rate, `"unlimited"`, or `{ trace = "file" }`.
struct LinkRate;

impl Codec<RateSpec> for LinkRate {
    fn read(&self, node: &Node) -> Result<RateSpec, Fault> {
        match &node.value {
            Value::String(word) if word == "unlimited" => Ok(RateSpec::Unlimited),
            Value::Table(_) => TraceFile::default().read(node, "rate").map(|trace| {
                RateSpec::Trace(TraceSpec {
                    file: trace.0,
                    text: Arc::from(""),
                })
            }),
            _ => BitRate.read(node).map(RateSpec::Constant),
        }
    }

    fn write(&self, value: &RateSpec) -> Option<Value> {
        match value {
            RateSpec::Unlimited => Some(Value::String("unlimited".to_owned())),
            RateSpec::Constant(rate) => BitRate.write(rate),
            RateSpec::Trace(trace) => Some(Value::Table(TraceFile(trace.file.clone()).write())),
        }
    }
}

#[derive(Clone, Default)]
struct TraceFile(String);

impl Section for TraceFile {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("trace", &mut self.0, Text);
    }
}

/// Framing that has a name. Ethernet: header 14, check sequence 4, preamble 8, gap 12.
const FRAMINGS: [(&str, u32); 2] = [("ip", 0), ("ethernet", 38)];

/// A number of bytes or a layer.
struct Framing;

impl Codec<u32> for Framing {
    fn read(&self, node: &Node) -> Result<u32, Fault> {
        let named = |node| OneOf(&FRAMINGS).read(node);
        match &node.value {
            Value::String(word) if Quantity::parse(word).is_none() => named(node),
            _ => Bytes(0, 1000).read(node),
        }
    }

    fn write(&self, value: &u32) -> Option<Value> {
        OneOf(&FRAMINGS).write(value).or_else(|| Bytes(0, 1000).write(value))
    }
}

/// Loss as the file describes it.
#[derive(Clone, Debug)]
pub(super) enum LossSettings {
    Spec(LossSpec),
    /// A file of `.` and `x`.
    Trace(String),
}

/// A probability, or a table that says which model.
struct Loss;

impl Codec<LossSettings> for Loss {
    fn read(&self, node: &Node) -> Result<LossSettings, Fault> {
        let table = match &node.value {
            Value::Table(table) => table,
            _ => {
                return PROBABILITY.read(node).map(|p| match p {
                    0.0 => LossSettings::Spec(LossSpec::None),
                    p => LossSettings::Spec(LossSpec::Bernoulli(p)),
                });
            }
        };
        if table.get("trace").is_some() {
            return Ok(LossSettings::Trace(TraceFile::default().read(node, "loss")?.0));
        }
        if let Some(mask) = table.get("mask") {
            Mask::default().read(node, "loss")?;
            let text = Text.read(mask)?;
            let lost = loss_mask(&text).map_err(|why| Fault::new(mask.place, why))?;
            return Ok(LossSettings::Spec(LossSpec::Trace(lost)));
        }
        let chain = GilbertElliott::default().read(node, "loss")?;
        if chain.p_good_to_bad + chain.p_bad_to_good == 0.0 {
            return fault(
                node,
                "`p_good_to_bad` and `p_bad_to_good` say how often the state changes: write for \
                 example { p_good_to_bad = 0.01, p_bad_to_good = 0.3 }",
            );
        }
        Ok(LossSettings::Spec(LossSpec::GilbertElliott {
            p_good_to_bad: chain.p_good_to_bad,
            p_bad_to_good: chain.p_bad_to_good,
            loss_good: chain.loss_good,
            loss_bad: chain.loss_bad,
        }))
    }

    fn write(&self, value: &LossSettings) -> Option<Value> {
        let spec = match value {
            LossSettings::Spec(spec) => spec,
            LossSettings::Trace(file) => return Some(Value::Table(TraceFile(file.clone()).write())),
        };
        Some(match spec {
            LossSpec::None => Value::Float(0.0),
            LossSpec::Bernoulli(p) => Value::Float(*p),
            LossSpec::Trace(lost) => {
                let text = lost.iter().map(|lost| if *lost { 'x' } else { '.' });
                Value::Table(Mask(text.collect()).write())
            }
            &LossSpec::GilbertElliott {
                p_good_to_bad,
                p_bad_to_good,
                loss_good,
                loss_bad,
            } => Value::Table(
                GilbertElliott {
                    p_good_to_bad,
                    p_bad_to_good,
                    loss_good,
                    loss_bad,
                }
                .write(),
            ),
        })
    }
}

#[derive(Clone, Default)]
struct Mask(String);

impl Section for Mask {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("mask", &mut self.0, Text);
    }
}

/// Gilbert's case by default: no loss in the good state, all lost in the bad one.
#[derive(Clone)]
struct GilbertElliott {
    p_good_to_bad: f64,
    p_bad_to_good: f64,
    loss_good: f64,
    loss_bad: f64,
}

impl Default for GilbertElliott {
    fn default() -> Self {
        Self {
            p_good_to_bad: 0.0,
            p_bad_to_good: 0.0,
            loss_good: 0.0,
            loss_bad: 1.0,
        }
    }
}

impl Section for GilbertElliott {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("p_good_to_bad", &mut self.p_good_to_bad, PROBABILITY);
        f.item("p_bad_to_good", &mut self.p_bad_to_good, PROBABILITY);
        f.item("loss_good", &mut self.loss_good, PROBABILITY);
        f.item("loss_bad", &mut self.loss_bad, PROBABILITY);
    }
}

/// Reads `.` (delivered) and `x` (lost), blanks ignored.
pub(super) fn loss_mask(text: &str) -> Result<Arc<[bool]>, String> {
    let marks = text.chars().filter(|c| !c.is_whitespace());
    let lost: Result<Vec<bool>, char> = marks
        .map(|c| match c {
            '.' => Ok(false),
            'x' => Ok(true),
            other => Err(other),
        })
        .collect();
    match lost {
        Ok(lost) if lost.is_empty() => {
            Err("the loss mask is empty: write one mark a packet, `.` delivered, `x` lost".into())
        }
        Ok(lost) => Ok(lost.into()),
        Err(other) => Err(format!(
            "`{other}` is no mark: write one a packet, `.` delivered, `x` lost"
        )),
    }
}

/// `queue`. Parameters of other disciplines have no effect, so that the discipline can be swept.
#[derive(Clone, Debug)]
pub(super) struct QueueSettings {
    discipline: DisciplineName,
    pub limit: LimitSettings,
    weights: BTreeMap<String, f64>,
    quantum: u32,
    drop: DropSpec,
    buckets: u32,
    perturb: Option<Duration>,
    min_threshold: f64,
    max_threshold: f64,
    max_probability: f64,
    weight: f64,
    target: Duration,
    interval: Duration,
    ecn: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DisciplineName {
    Fifo,
    Drr,
    Wfq,
    Sfq,
    Red,
    CoDel,
    FqCoDel,
}

/// The size of a buffer as the file describes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LimitSettings {
    Spec(LimitSpec),
    /// Millionths of the bandwidth-delay product.
    Bdp(u64),
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            discipline: DisciplineName::Fifo,
            // Linux's txqueuelen, and the papers' buffer.
            limit: LimitSettings::Spec(LimitSpec::Packets(1000)),
            weights: BTreeMap::new(),
            // One MTU (Shreedhar and Varghese; RFC 8290 says 1514 with the Ethernet header).
            quantum: 1500,
            // As ns-2's DRR does.
            drop: DropSpec::Head,
            // RFC 8290 §4.1.
            buckets: 1024,
            perturb: None,
            // ns-2's RED: thresh_ 5, maxthresh_ 15, linterm_ 10, q_weight_ 0.002.
            min_threshold: 5.0,
            max_threshold: 15.0,
            max_probability: 0.1,
            weight: 0.002,
            // RFC 8289 §4.
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            ecn: false,
        }
    }
}

impl Section for QueueSettings {
    fn fields(&mut self, f: &mut Fields<'_>) {
        use DisciplineName::{CoDel, Drr, Fifo, FqCoDel, Red, Sfq, Wfq};
        let disciplines = [
            ("fifo", Fifo),
            ("drr", Drr),
            ("wfq", Wfq),
            ("sfq", Sfq),
            ("red", Red),
            ("codel", CoDel),
            ("fq-codel", FqCoDel),
        ];
        let drops = [("head", DropSpec::Head), ("tail", DropSpec::Tail)];
        f.item("discipline", &mut self.discipline, OneOf(&disciplines));
        f.item("limit", &mut self.limit, Limit);
        f.item("weights", &mut self.weights, Weights);
        f.item("quantum", &mut self.quantum, Bytes(1, 1 << 30));
        f.item("drop", &mut self.drop, OneOf(&drops));
        f.item("buckets", &mut self.buckets, Count(1, 1 << 20));
        f.item("perturb", &mut self.perturb, OrWord("never", Time));
        f.item("min_threshold", &mut self.min_threshold, Number(0.0, 1e9));
        f.item("max_threshold", &mut self.max_threshold, Number(1e-3, 1e9));
        f.item("max_probability", &mut self.max_probability, PROBABILITY);
        f.item("weight", &mut self.weight, Number(1e-9, 1.0));
        f.item("target", &mut self.target, Time);
        f.item("interval", &mut self.interval, Time);
        f.item("ecn", &mut self.ecn, Flag);
    }
}

impl QueueSettings {
    /// With the limit in packets or bytes.
    ///
    /// # Errors
    /// Says what does not fit together.
    pub fn spec(&self, limit: LimitSpec) -> Result<QueueSpec, String> {
        let &Self {
            quantum,
            drop,
            buckets,
            perturb,
            target,
            interval,
            ecn,
            ..
        } = self;
        let discipline = match self.discipline {
            DisciplineName::Fifo => DisciplineSpec::Fifo,
            DisciplineName::Drr => DisciplineSpec::Drr { quantum, drop },
            DisciplineName::Wfq => DisciplineSpec::Wfq { drop },
            DisciplineName::Sfq => DisciplineSpec::Sfq {
                buckets,
                quantum,
                perturb,
                drop,
            },
            DisciplineName::Red => DisciplineSpec::Red {
                min_threshold: self.min_threshold,
                max_threshold: self.max_threshold,
                max_probability: self.max_probability,
                weight: self.weight,
                ecn,
            },
            DisciplineName::CoDel => DisciplineSpec::CoDel {
                target,
                interval,
                ecn,
            },
            DisciplineName::FqCoDel => DisciplineSpec::FqCoDel {
                buckets,
                quantum,
                target,
                interval,
                ecn,
            },
        };
        let zero = matches!(limit, LimitSpec::Packets(0) | LimitSpec::Bytes(0));
        if zero && discipline != DisciplineSpec::Fifo {
            return Err(
                "a limit of zero leaves this discipline nothing to choose from: write for example \
                 limit = \"1000 packets\", or discipline = \"fifo\" for a link without buffer"
                    .to_owned(),
            );
        }
        if self.discipline == DisciplineName::Red && self.min_threshold >= self.max_threshold {
            return Err(format!(
                "min_threshold {} is not below max_threshold {}",
                self.min_threshold, self.max_threshold
            ));
        }
        if interval.is_zero() || perturb == Some(Duration::ZERO) {
            return Err("`interval` and `perturb` must be longer than zero".to_owned());
        }
        Ok(QueueSpec {
            discipline,
            limit,
            weights: self.weights.clone(),
        })
    }
}

struct Limit;

impl Codec<LimitSettings> for Limit {
    fn read(&self, node: &Node) -> Result<LimitSettings, Fault> {
        use LimitSettings::{Bdp, Spec};
        let text = match &node.value {
            Value::String(text) => text.as_str(),
            _ => "",
        };
        if text == "unlimited" {
            return Ok(Spec(LimitSpec::Unlimited));
        }
        let unit = Quantity::parse(text).map_or("", |quantity| quantity.unit);
        let has = |units: units::Units| units.iter().any(|(name, _)| *name == unit);
        if has(units::SIZE) {
            quantity(node, units::SIZE, "150 kB").map(|bytes| Spec(LimitSpec::Bytes(bytes)))
        } else if has(units::BDP) {
            quantity(node, units::BDP, "0.1 bdp").map(Bdp)
        } else {
            quantity(node, units::PACKETS, "1000 packets")
                .map(|packets| Spec(LimitSpec::Packets(packets)))
                .map_err(|mut fault| {
                    fault.message.push_str(", \"150 kB\", \"0.1 bdp\" or \"unlimited\"");
                    fault
                })
        }
    }

    fn write(&self, value: &LimitSettings) -> Option<Value> {
        Some(Value::String(match value {
            LimitSettings::Spec(LimitSpec::Unlimited) => "unlimited".to_owned(),
            LimitSettings::Spec(LimitSpec::Packets(n)) => units::format(*n, units::PACKETS),
            LimitSettings::Spec(LimitSpec::Bytes(n)) => units::format(*n, units::SIZE),
            LimitSettings::Bdp(millionths) => format!("{} bdp", *millionths as f64 / 1e6),
        }))
    }
}

/// `{ class = weight, … }`.
struct Weights;

impl Codec<BTreeMap<String, f64>> for Weights {
    fn read(&self, node: &Node) -> Result<BTreeMap<String, f64>, Fault> {
        let table = node.table()?;
        let entries = table.0.iter();
        entries
            .map(|entry| Ok((entry.key.clone(), WEIGHT.read(&entry.node)?)))
            .collect()
    }

    fn write(&self, value: &BTreeMap<String, f64>) -> Option<Value> {
        let mut table = Table::default();
        for (class, weight) in value {
            table.put(class, Value::Float(*weight));
        }
        Some(Value::Table(table))
    }
}

/// `tcp`.
#[derive(Clone, Debug)]
pub(super) struct TcpSettings {
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
                initial_window: 10,                  // RFC 6928
                initial_ssthresh: None,              // RFC 5681 §3.1
                rto_initial: Duration::from_secs(1), // RFC 6298 §2.1
                rto_min: Duration::from_millis(200), // Linux
                rto_max: Duration::from_secs(60),    // RFC 6298 §2.5
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
        f.item("initial_window", &mut tcp.initial_window, Count(1, 1_000_000));
        let ssthresh = OrWord("unlimited", Count(2, 1 << 30));
        f.item("initial_ssthresh", &mut tcp.initial_ssthresh, ssthresh);
        f.item("rto_initial", &mut tcp.rto_initial, Time);
        f.item("rto_min", &mut tcp.rto_min, Time);
        f.item("rto_max", &mut tcp.rto_max, Time);
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
        f.item("cubic", &mut self.cubic, Nested(CubicSettings::default(), "cubic"));
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
pub(super) struct CubicSettings {
    variant: CubicVariant,
    /// `None` for the variant's.
    beta: Option<f64>,
    c: f64,
    fast_convergence: bool,
    tcp_friendly: bool,
    hystart: HystartSpec,
}

impl Default for CubicSettings {
    /// RFC 9438; slow start ends by loss, as in the papers' kernels.
    fn default() -> Self {
        Self {
            variant: CubicVariant::Rfc9438,
            beta: None,
            c: 0.4,
            fast_convergence: true,
            tcp_friendly: true,
            hystart: HystartSpec::Off,
        }
    }
}

impl Section for CubicSettings {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let variants = [
            ("rfc9438", CubicVariant::Rfc9438),
            ("linux-2.6.26", CubicVariant::Linux2_6_26),
        ];
        let hystart = [("off", HystartSpec::Off), ("rfc9406", HystartSpec::PlusPlus)];
        f.item("variant", &mut self.variant, OneOf(&variants));
        f.item("beta", &mut self.beta, OrWord("variant", Number(0.01, 0.99)));
        f.item("c", &mut self.c, Number(1e-6, 1e3));
        f.item("fast_convergence", &mut self.fast_convergence, Flag);
        f.item("tcp_friendly", &mut self.tcp_friendly, Flag);
        f.item("hystart", &mut self.hystart, OneOf(&hystart));
    }
}

impl CubicSettings {
    /// With the variant's own β where none is stated.
    pub fn spec(&self) -> CubicSpec {
        let beta = match self.variant {
            CubicVariant::Rfc9438 => 0.7,
            CubicVariant::Linux2_6_26 => 717.0 / 1024.0,
        };
        CubicSpec {
            variant: self.variant,
            beta: self.beta.unwrap_or(beta),
            c: self.c,
            fast_convergence: self.fast_convergence,
            tcp_friendly: self.tcp_friendly,
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
        let payloads = [("virtual", PayloadSpec::Virtual), ("real", PayloadSpec::Real)];
        f.item("code", &mut self.code, OneOf(&codes));
        let symbols = OrWord("profile", Count(1, 56_403));
        f.item("block_symbols", &mut self.block_symbols, symbols);
        f.item("control", &mut self.control, Control);
        f.item("payload", &mut self.payload, OneOf(&payloads));
        f.item("mtu", &mut self.mtu, Bytes(1280, 9000));
        f.item("receive_budget", &mut self.receive_budget, Bytes(1 << 20, 1 << 40));
        f.item("send_buffer", &mut self.send_buffer, Bytes(1 << 20, 1 << 40));
        f.item("coding_rate", &mut self.coding_rate, OrWord("unlimited", BitRate));
    }
}

/// `"profile"`, `"line rate"`, or a rate.
struct Control;

impl Codec<ControlSpec> for Control {
    fn read(&self, node: &Node) -> Result<ControlSpec, Fault> {
        match &node.value {
            Value::String(word) if word == "profile" => Ok(ControlSpec::Profile),
            Value::String(word) if word == "line rate" => Ok(ControlSpec::LineRate),
            _ => BitRate.read(node).map(ControlSpec::Fixed).map_err(|mut fault| {
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
pub(super) struct UdpSettings {
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

/// A value that nobody wrote.
pub(super) fn unwritten(value: Value) -> Node {
    let place = Place::default();
    Node { value, place }
}
