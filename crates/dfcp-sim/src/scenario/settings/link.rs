//! `[link.NAME]`: rate, delay, loss and the other impairments.

use std::collections::BTreeMap;
use std::sync::Arc;

use dfcp_proto::{Duration, Rate};

use super::QueueSettings;
use super::jitter::JitterSum;
use super::limits::{BUCKET, GRANTS, WANDER};
use super::loss::{Loss, LossSettings};
use super::outage::Outages;
use crate::link::{AckThinning, LinkConfig, LinkRate, LossAt, PacketOrder, RateTrace};
use crate::scenario::fields::{
    BitRate, Bytes, Codec, Count, Fields, Number, OneOf, Optional, OrWord, PROBABILITY, Section,
    Text, Time,
};
use crate::scenario::tree::{Fault, Node, Value};
use crate::scenario::units::Quantity;

/// A link as the file describes it.
#[derive(Clone, Debug)]
pub(in crate::scenario) struct LinkSettings {
    /// Must be stated somewhere.
    pub rate: Option<RateSettings>,
    pub queue: QueueSettings,
    pub loss: LossSettings,
    /// By which fraction of its rate a link may be off, either way.
    pub clock_tolerance: f64,
    /// Largest IP packet, bytes.
    pub mtu: u32,
    /// All the rest; its rate, queue, loss and MTU mean nothing.
    pub rest: LinkConfig,
}

impl Default for LinkSettings {
    fn default() -> Self {
        Self {
            rate: None,
            queue: QueueSettings::default(),
            loss: LossSettings::Bernoulli(0.0),
            clock_tolerance: 0.0,
            mtu: 1500, // Ethernet
            rest: LinkConfig {
                framing: 0,
                reorder_delay: Duration::from_millis(1),
                ..LinkConfig::default()
            },
        }
    }
}

/// A rate as the file describes it.
#[derive(Clone, Debug)]
pub(in crate::scenario) enum RateSettings {
    Unlimited,
    Constant(Rate),
    /// The file of a trace.
    Trace(String),
}

impl RateSettings {
    /// The rate, given the files of traces.
    ///
    /// # Errors
    /// Says which trace is missing, or the line that is wrong.
    pub fn link_rate(&self, files: &BTreeMap<String, Arc<str>>) -> Result<LinkRate, String> {
        match self {
            Self::Unlimited => Ok(LinkRate::Unlimited),
            Self::Constant(rate) => Ok(LinkRate::Constant(*rate)),
            Self::Trace(file) => {
                let text = files.get(file);
                let text = text.ok_or_else(|| format!("trace `{file}` is not loaded"))?;
                let trace = RateTrace::parse(text);
                let trace = trace.map_err(|error| format!("trace `{file}`: {error}"))?;
                Ok(LinkRate::Trace(Arc::new(trace)))
            }
        }
    }
}

impl Section for LinkSettings {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let rest = &mut self.rest;
        f.item("rate", &mut self.rate, Optional(RateOrTrace));
        f.item("clock_tolerance", &mut self.clock_tolerance, CLOCK);
        f.item("grants", &mut rest.grants, GRANTS);
        f.item("shaper", &mut rest.shaper, BUCKET);
        f.item("policer", &mut rest.policer, BUCKET);
        f.item("delay", &mut rest.delay, Time);
        f.item("delay_order", &mut rest.delay_order, OneOf(&ORDER));
        f.item("wander", &mut rest.wander, WANDER);
        f.item("mtu", &mut self.mtu, Bytes(68, 65_535));
        f.item("framing", &mut rest.framing, Framing);
        f.nested("queue", &mut self.queue);
        f.item("loss", &mut self.loss, Loss);
        f.item("loss_at", &mut rest.loss_at, OneOf(&LOSS_AT));
        f.item("outage", &mut rest.outages, Outages);
        f.item("jitter", &mut rest.jitter, JitterSum);
        f.item("jitter_order", &mut rest.jitter_order, OneOf(&ORDER));
        f.item("reorder", &mut rest.reorder, PROBABILITY);
        f.item("reorder_delay", &mut rest.reorder_delay, Time);
        f.item("duplicate", &mut rest.duplicate, PROBABILITY);
        f.item("corrupt", &mut rest.corrupt, PROBABILITY);
        f.item(
            "ecn_threshold",
            &mut rest.ecn_threshold,
            OrWord("never", Time),
        );
        f.item("ack_thinning", &mut rest.ack_thinning, Thinning);
    }
}

const ORDER: [(&str, PacketOrder); 2] = [("free", PacketOrder::Free), ("kept", PacketOrder::Kept)];

const LOSS_AT: [(&str, LossAt); 2] = [("exit", LossAt::Exit), ("entry", LossAt::Entry)];

/// A clock that is off by more than a hundredth is broken.
const CLOCK: Number = Number(0.0, 0.01);

/// A rate, `"unlimited"`, or `{ trace = "file" }`.
struct RateOrTrace;

impl Codec<RateSettings> for RateOrTrace {
    fn read(&self, node: &Node) -> Result<RateSettings, Fault> {
        match &node.value {
            Value::String(word) if word == "unlimited" => Ok(RateSettings::Unlimited),
            Value::Table(_) => TraceFile::default()
                .read(node, "rate")
                .map(|trace| RateSettings::Trace(trace.0)),
            _ => BitRate.read(node).map(RateSettings::Constant),
        }
    }

    fn write(&self, value: &RateSettings) -> Option<Value> {
        match value {
            RateSettings::Unlimited => Some(Value::String("unlimited".to_owned())),
            RateSettings::Constant(rate) => BitRate.write(rate),
            RateSettings::Trace(file) => Some(Value::Table(TraceFile(file.clone()).write())),
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

const THINNING: [(&str, AckThinning); 2] =
    [("off", AckThinning::Off), ("newest", AckThinning::Newest)];

/// `"off"`, `"newest"`, or of how many one is passed on.
struct Thinning;

impl Codec<AckThinning> for Thinning {
    fn read(&self, node: &Node) -> Result<AckThinning, Fault> {
        match &node.value {
            Value::Integer(_) => Count(1, 1_000_000).read(node).map(AckThinning::Every),
            _ => OneOf(&THINNING).read(node),
        }
    }

    fn write(&self, value: &AckThinning) -> Option<Value> {
        match value {
            AckThinning::Every(count) => Some(Value::Integer(i64::from(*count))),
            value => OneOf(&THINNING).write(value),
        }
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
        OneOf(&FRAMINGS)
            .write(value)
            .or_else(|| Bytes(0, 1000).write(value))
    }
}
