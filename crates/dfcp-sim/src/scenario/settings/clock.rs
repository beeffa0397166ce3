//! `clock` and `sender_clock` of a flow: how the clocks of its hosts differ from true time.

use dfcp_proto::Instant;

use crate::engine::{HostClock, MAX_SKEW_PPM};
use crate::scenario::fields::{Codec, Fields, Number, Section, Time, fault, quantity};
use crate::scenario::tree::{Fault, Node, Value};
use crate::scenario::units::{self, Quantity};

/// `{ offset, skew_ppm, steps }`; an exact clock is not written.
pub(super) struct Clock;

impl Codec<HostClock> for Clock {
    fn read(&self, node: &Node) -> Result<HostClock, Fault> {
        HostClock::default().read(node, "a clock")
    }

    fn write(&self, value: &HostClock) -> Option<Value> {
        (!value.is_exact()).then(|| Value::Table(Section::write(value)))
    }
}

impl Section for HostClock {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("offset", &mut self.offset, Time);
        f.item("skew_ppm", &mut self.skew_ppm, Skew);
        f.item("steps", &mut self.steps, Steps);
    }
}

/// Linux lets a clock be this fast or slow.
const PPM: Number = Number(-MAX_SKEW_PPM, MAX_SKEW_PPM);

/// A number, or a list of `{ at, ppm }` in order of time.
struct Skew;

#[derive(Clone, Default)]
struct SkewFrom {
    at: Instant,
    ppm: f64,
}

impl Section for SkewFrom {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("at", &mut self.at, Time);
        f.item("ppm", &mut self.ppm, PPM);
    }
}

impl Codec<Vec<(Instant, f64)>> for Skew {
    fn read(&self, node: &Node) -> Result<Vec<(Instant, f64)>, Fault> {
        let Value::Array(items) = &node.value else {
            let ppm = PPM.read(node)?;
            let skewed = (ppm != 0.0).then_some((Instant::ZERO, ppm));
            return Ok(skewed.into_iter().collect());
        };
        let item = |node| SkewFrom::default().read(node, "skew_ppm");
        let items: Result<Vec<_>, Fault> = items.iter().map(item).collect();
        ascending(items?.into_iter().map(|s| (s.at, s.ppm)).collect(), node)
    }

    fn write(&self, value: &Vec<(Instant, f64)>) -> Option<Value> {
        match value.as_slice() {
            [] => None,
            [(Instant::ZERO, ppm)] => PPM.write(ppm),
            items => {
                let item = |&(at, ppm)| Value::Table(SkewFrom { at, ppm }.write());
                Some(items.iter().map(item).collect())
            }
        }
    }
}

/// A list of `{ at, by }` in order of time.
struct Steps;

#[derive(Clone, Default)]
struct Step {
    at: Instant,
    by: i64,
}

impl Section for Step {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("at", &mut self.at, Time);
        f.item("by", &mut self.by, SignedTime);
    }
}

impl Codec<Vec<(Instant, i64)>> for Steps {
    fn read(&self, node: &Node) -> Result<Vec<(Instant, i64)>, Fault> {
        let item = |node| Step::default().read(node, "steps");
        let items: Result<Vec<_>, Fault> = node.list()?.iter().map(item).collect();
        ascending(items?.into_iter().map(|s| (s.at, s.by)).collect(), node)
    }

    fn write(&self, value: &Vec<(Instant, i64)>) -> Option<Value> {
        let item = |&(at, by)| Value::Table(Step { at, by }.write());
        (!value.is_empty()).then(|| value.iter().map(item).collect())
    }
}

fn ascending<T>(items: Vec<(Instant, T)>, node: &Node) -> Result<Vec<(Instant, T)>, Fault> {
    match items.is_sorted_by(|a, b| a.0 < b.0) {
        true => Ok(items),
        false => fault(node, "the times must ascend"),
    }
}

/// Nanoseconds, forward or back.
struct SignedTime;

impl Codec<i64> for SignedTime {
    fn read(&self, node: &Node) -> Result<i64, Fault> {
        let back = match &node.value {
            Value::String(text) => Quantity::parse(text).is_some_and(|q| q.number < 0.0),
            _ => false,
        };
        if !back {
            let nanos = quantity(node, units::TIME, "128 ms")?;
            return Ok(i64::try_from(nanos).unwrap_or(i64::MAX));
        }
        let mut forward = node.clone();
        if let Value::String(text) = &mut forward.value {
            *text = text.trim().trim_start_matches('-').to_owned();
        }
        self.read(&forward).map(|nanos| -nanos)
    }

    fn write(&self, value: &i64) -> Option<Value> {
        let sign = if *value < 0 { "-" } else { "" };
        let length = units::format(value.unsigned_abs(), units::TIME);
        Some(Value::String(format!("{sign}{length}")))
    }
}
