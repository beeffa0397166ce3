//! `[link.NAME]`: rate, delay, loss and the other impairments.

use std::collections::BTreeMap;
use std::sync::Arc;

use dfcp_proto::Duration;

use super::QueueSettings;
use super::loss::{Loss, LossSettings};
use crate::scenario::fields::{
    BitRate, Bytes, Codec, Fields, OneOf, Optional, OrWord, PROBABILITY, Section, Text, Time,
};
use crate::scenario::model::*;
use crate::scenario::tree::{Fault, Node, Value};
use crate::scenario::units::Quantity;

/// A link as the file describes it.
#[derive(Clone, Debug)]
pub(in crate::scenario) struct LinkSettings {
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
            loss: LossSettings::Bernoulli(0.0),
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
        f.nested("queue", &mut self.queue);
        f.item("loss", &mut self.loss, Loss);
        f.item("jitter", &mut rest.jitter, Time);
        f.item("reorder", &mut rest.reorder, PROBABILITY);
        f.item("reorder_delay", &mut rest.reorder_delay, Time);
        f.item("duplicate", &mut rest.duplicate, PROBABILITY);
        f.item("corrupt", &mut rest.corrupt, PROBABILITY);
        f.item(
            "ecn_threshold",
            &mut rest.ecn_threshold,
            OrWord("never", Time),
        );
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
        OneOf(&FRAMINGS)
            .write(value)
            .or_else(|| Bytes(0, 1000).write(value))
    }
}
