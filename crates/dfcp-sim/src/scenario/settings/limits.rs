//! `grants`, `shaper`, `policer` and `wander`: tables, or `"none"`.

use dfcp_proto::{Duration, Rate};

use super::outage::NONE;
use crate::link::{Grants, TokenBucket, Wander};
use crate::scenario::fields::{
    BitRate, Bytes, Codec, Count, Fields, Optional, OrWord, Section, Time, fault,
};
use crate::scenario::tree::{Fault, Node, Value};

/// `grants`.
pub(super) const GRANTS: OrWord<Checked<Grants>> = OrWord(
    NONE,
    Checked {
        blank: Grants {
            every: Duration::ZERO,
            packets: None,
            bytes: None,
        },
        what: "`grants`",
        right: "{ every = \"4 ms\", packets = 64 }",
        check: |grants| grants.validate().map_err(|why| why.to_string()),
    },
);

/// `shaper` and `policer`.
pub(super) const BUCKET: OrWord<Checked<TokenBucket>> = OrWord(
    NONE,
    Checked {
        blank: TokenBucket {
            rate: Rate::ZERO,
            burst: 0,
        },
        what: "a token bucket",
        right: "{ rate = \"5 Mbit/s\", burst = \"16 kB\" }",
        check: |bucket| bucket.validate().map_err(|why| why.to_string()),
    },
);

/// `wander`.
pub(super) const WANDER: OrWord<Checked<Wander>> = OrWord(
    NONE,
    Checked {
        blank: Wander {
            range: Duration::ZERO,
            step: Duration::ZERO,
        },
        what: "`wander`",
        right: "{ range = \"200 ms\", step = \"1 s\" }",
        check: |wander| wander.validate().map_err(|why| why.to_string()),
    },
);

/// A table whose values must make sense together.
pub(super) struct Checked<T> {
    /// The values of keys that are not there.
    blank: T,
    /// What it is called.
    what: &'static str,
    /// What would be right.
    right: &'static str,
    check: fn(&T) -> Result<(), String>,
}

impl<T: Section> Codec<T> for Checked<T> {
    fn read(&self, node: &Node) -> Result<T, Fault> {
        let right = self.right;
        let Value::Table(_) = node.value else {
            return fault(
                node,
                format!("{node} is no table: write for example {right}"),
            );
        };
        let read = self.blank.clone().read(node, self.what)?;
        match (self.check)(&read) {
            Ok(()) => Ok(read),
            Err(why) => fault(node, format!("{why}: write for example {right}")),
        }
    }

    fn write(&self, value: &T) -> Option<Value> {
        Some(Value::Table(value.write()))
    }
}

impl Section for Grants {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("every", &mut self.every, Time);
        f.item("packets", &mut self.packets, Optional(Count(1, 1_000_000)));
        f.item("bytes", &mut self.bytes, Optional(Bytes(1, 1 << 40)));
    }
}

impl Section for TokenBucket {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("rate", &mut self.rate, BitRate);
        f.item("burst", &mut self.burst, Bytes(1, 1 << 40));
    }
}

impl Section for Wander {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("range", &mut self.range, Time);
        f.item("step", &mut self.step, Time);
    }
}
