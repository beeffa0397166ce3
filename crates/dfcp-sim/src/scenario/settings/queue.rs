//! `queue`: the buffer of a link and its discipline.

use std::collections::BTreeMap;

use dfcp_proto::Duration;

use crate::scenario::fields::{
    Bytes, Codec, Count, Fields, Flag, Number, OneOf, OrWord, Section, Time, WEIGHT, quantity,
};
use crate::scenario::model::*;
use crate::scenario::tree::{Fault, Node, Table, Value};
use crate::scenario::units::{self, Quantity};

/// `queue`. Parameters of other disciplines have no effect, so that the discipline can be swept.
#[derive(Clone, Debug)]
pub(in crate::scenario) struct QueueSettings {
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
    gentle: bool,
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
pub(in crate::scenario) enum LimitSettings {
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
            // ns-2's RED: thresh_ 5, maxthresh_ 15, linterm_ 10, q_weight_ 0.002, gentle_.
            min_threshold: 5.0,
            max_threshold: 15.0,
            max_probability: 0.1,
            weight: 0.002,
            gentle: true,
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
        f.item(
            "max_probability",
            &mut self.max_probability,
            Number(1e-9, 1.0),
        );
        f.item("weight", &mut self.weight, Number(1e-9, 1.0));
        f.item("gentle", &mut self.gentle, Flag);
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
                gentle: self.gentle,
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
                    fault
                        .message
                        .push_str(", \"150 kB\", \"0.1 bdp\" or \"unlimited\"");
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
