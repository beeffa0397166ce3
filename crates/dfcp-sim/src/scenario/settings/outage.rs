//! `outage`: when a link loses, stands still or is slower; and the recurring windows of this and of
//! other settings.

use dfcp_proto::Duration;

use super::flow::Uniform;
use crate::link::{Outage, Spread, Windows};
use crate::scenario::fields::{
    Codec, Count, Fields, ListOf, OneOf, Optional, PROBABILITY, Section, Time, fault, valid,
};
use crate::scenario::tree::{Fault, Node, Value};

/// The word for a setting that is not there.
pub(super) const NONE: &str = "none";

/// Windows that nobody has described yet.
pub(super) fn no_windows() -> Windows {
    Windows::regular(Duration::ZERO, Duration::ZERO)
}

/// The keys of windows.
pub(super) fn windows(f: &mut Fields<'_>, windows: &mut Windows) {
    f.item("every", &mut windows.every, Time);
    // Windows of uniform lengths have no other one.
    let mut length = match windows.spread {
        Spread::Uniform(..) => None,
        _ => Some(windows.length),
    };
    f.item("length", &mut length, Optional(Time));
    windows.length = length.unwrap_or_default();
    f.item("start", &mut windows.start, Time);
    f.item("spread", &mut windows.spread, SpreadLaw);
    f.item("count", &mut windows.count, Count(1, 1_000_000));
    f.item("spacing", &mut windows.spacing, Time);
}

/// `"fixed"`, `"exponential"` or `{ uniform = [a, b] }`.
struct SpreadLaw;

const SPREADS: [(&str, Spread); 2] = [
    ("fixed", Spread::Fixed),
    ("exponential", Spread::Exponential),
];

impl Codec<Spread> for SpreadLaw {
    fn read(&self, node: &Node) -> Result<Spread, Fault> {
        match &node.value {
            Value::Table(_) => {
                let (least, most) = Uniform(Time, Vec::new()).read(node)?;
                Ok(Spread::Uniform(least, most))
            }
            _ => {
                let more = " Or write { uniform = [\"1 s\", \"5 s\"] }.";
                OneOf(&SPREADS).read(node).map_err(|fault| fault.and(more))
            }
        }
    }

    fn write(&self, value: &Spread) -> Option<Value> {
        match value {
            Spread::Uniform(least, most) => Uniform(Time, vec![*least, *most]).write(),
            _ => OneOf(&SPREADS).write(value),
        }
    }
}

/// `outage`: `"none"`, a table, or a list of tables.
pub(super) struct Outages;

impl Codec<Vec<Outage>> for Outages {
    fn read(&self, node: &Node) -> Result<Vec<Outage>, Fault> {
        match &node.value {
            Value::String(word) if word == NONE => Ok(Vec::new()),
            Value::Table(_) | Value::Array(_) => ListOf(OutageTable).read(node),
            _ => fault(node, format!("{node} is no outage: {RIGHT}, or \"{NONE}\"")),
        }
    }

    fn write(&self, value: &Vec<Outage>) -> Option<Value> {
        let none = || Some(Value::String(NONE.to_owned()));
        ListOf(OutageTable).write(value).or_else(none)
    }
}

const RIGHT: &str = "write for example { every = \"10 s\", length = \"100 ms\" }";

struct OutageTable;

impl Codec<Outage> for OutageTable {
    fn read(&self, node: &Node) -> Result<Outage, Fault> {
        let settings = OutageSettings {
            windows: no_windows(),
            packets: Packets::Lost,
            loss: None,
            rate_factor: None,
        };
        let settings = settings.read(node, "an outage")?;
        if settings.windows.every.is_zero() {
            return fault(
                node,
                format!("an outage needs `every` and `length`: {RIGHT}"),
            );
        }
        let outage = settings.outage();
        valid(node, outage.validate()).map(|()| outage)
    }

    fn write(&self, value: &Outage) -> Option<Value> {
        let settings = OutageSettings {
            windows: value.windows,
            packets: match value.rate_factor {
                0.0 => Packets::Held,
                _ => Packets::Lost,
            },
            loss: Some(value.loss),
            rate_factor: Some(value.rate_factor),
        };
        Some(Value::Table(settings.write()))
    }
}

#[derive(Clone, Debug)]
struct OutageSettings {
    windows: Windows,
    packets: Packets,
    loss: Option<f64>,
    rate_factor: Option<f64>,
}

/// What happens to packets, in a word.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Packets {
    Lost,
    Held,
}

impl Section for OutageSettings {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let words = [("lost", Packets::Lost), ("held", Packets::Held)];
        windows(f, &mut self.windows);
        f.item("packets", &mut self.packets, OneOf(&words));
        f.item("loss", &mut self.loss, Optional(PROBABILITY));
        f.item("rate_factor", &mut self.rate_factor, Optional(PROBABILITY));
    }
}

impl OutageSettings {
    fn outage(&self) -> Outage {
        let mut outage = match self.packets {
            Packets::Lost => Outage::lost(self.windows),
            Packets::Held => Outage::held(self.windows),
        };
        // Who only slows the link loses nothing, unless it is said.
        if self.rate_factor.is_some() && self.loss.is_none() {
            outage.loss = 0.0;
        }
        outage.loss = self.loss.unwrap_or(outage.loss);
        outage.rate_factor = self.rate_factor.unwrap_or(outage.rate_factor);
        outage
    }
}
