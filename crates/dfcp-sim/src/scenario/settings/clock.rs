//! `clock` and `sender_clock` of a flow: how the clocks of its hosts differ from true time.

use crate::engine::{HostClock, MAX_SKEW_PPM};
use crate::scenario::fields::{Codec, Fields, Number, Section, Time, Timeline, Varying, quantity};
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
        f.item("skew_ppm", &mut self.skew_ppm, Varying("ppm", PPM));
        f.item("steps", &mut self.steps, Timeline("by", SignedTime));
    }
}

/// Linux lets a clock be this fast or slow.
const PPM: Number = Number(-MAX_SKEW_PPM, MAX_SKEW_PPM);

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
