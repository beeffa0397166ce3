//! `[link.NAME]`: rate, delay, loss and the other impairments.

use std::collections::BTreeMap;
use std::sync::Arc;

use dfcp_proto::Duration;

use super::QueueSettings;
use crate::scenario::fields::{
    BitRate, Bytes, Codec, Fields, OneOf, Optional, OrWord, PROBABILITY, Section, Text, Time, fault,
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

/// Loss as the file describes it.
#[derive(Clone, Debug)]
pub(in crate::scenario) enum LossSettings {
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
            return Ok(LossSettings::Trace(
                TraceFile::default().read(node, "loss")?.0,
            ));
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
            LossSettings::Trace(file) => {
                return Some(Value::Table(TraceFile(file.clone()).write()));
            }
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
pub(in crate::scenario) fn loss_mask(text: &str) -> Result<Arc<[bool]>, String> {
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
