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
    Checked(Grants {
        every: Duration::ZERO,
        packets: None,
        bytes: None,
    }),
);

/// `shaper` and `policer`.
pub(super) const BUCKET: OrWord<Checked<TokenBucket>> = OrWord(
    NONE,
    Checked(TokenBucket {
        rate: Rate::ZERO,
        burst: 0,
    }),
);

/// `wander`.
pub(super) const WANDER: OrWord<Checked<Wander>> = OrWord(
    NONE,
    Checked(Wander {
        range: Duration::ZERO,
        step: Duration::ZERO,
    }),
);

/// A table whose values must make sense together. It holds the values of keys that are not there.
pub(super) struct Checked<T>(T);

/// A section that can say what is wrong with it.
pub(super) trait Check: Section {
    /// What it is called, and what would be right.
    const WORDS: (&'static str, &'static str);

    fn check(&self) -> Result<(), String>;
}

impl<T: Check> Codec<T> for Checked<T> {
    fn read(&self, node: &Node) -> Result<T, Fault> {
        let (what, right) = T::WORDS;
        let Value::Table(_) = node.value else {
            return fault(
                node,
                format!("{node} is no table: write for example {right}"),
            );
        };
        let read = self.0.clone().read(node, what)?;
        match read.check() {
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

impl Check for Grants {
    const WORDS: (&'static str, &'static str) = ("`grants`", "{ every = \"4 ms\", packets = 64 }");

    fn check(&self) -> Result<(), String> {
        self.validate().map_err(|why| why.to_string())
    }
}

impl Section for TokenBucket {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("rate", &mut self.rate, BitRate);
        f.item("burst", &mut self.burst, Bytes(1, 1 << 40));
    }
}

impl Check for TokenBucket {
    const WORDS: (&'static str, &'static str) = (
        "a token bucket",
        "{ rate = \"5 Mbit/s\", burst = \"16 kB\" }",
    );

    fn check(&self) -> Result<(), String> {
        self.validate().map_err(|why| why.to_string())
    }
}

impl Section for Wander {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("range", &mut self.range, Time);
        f.item("step", &mut self.step, Time);
    }
}

impl Check for Wander {
    const WORDS: (&'static str, &'static str) =
        ("`wander`", "{ range = \"200 ms\", step = \"1 s\" }");

    fn check(&self) -> Result<(), String> {
        self.validate().map_err(|why| why.to_string())
    }
}
