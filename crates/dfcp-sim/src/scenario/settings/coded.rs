//! `coded`: what a flow with network coding over relays or several paths can be told.

use dfcp_proto::profile::CtcpParameters;

use crate::coded::{CodedControl, Relaying};
use crate::scenario::fields::{Bytes, Fields, ListOf, OneOf, OrWord, RateOrWord, Section, Text};
use crate::scenario::model::CodedSpec;

impl Default for CodedSpec {
    /// CTCP's, but for `numblks`: several paths and hops hold more than one does.
    fn default() -> Self {
        Self {
            ctcp: CtcpParameters {
                open_blocks: 32,
                ..CtcpParameters::default()
            },
            relay: Relaying::default(),
            paths: Vec::new(),
            control: CodedControl::default(),
            mtu: None,
        }
    }
}

impl Section for CodedSpec {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let relaying = [("forward", Relaying::Forward), ("recode", Relaying::Recode)];
        f.item("relay", &mut self.relay, OneOf(&relaying));
        f.item("paths", &mut self.paths, ListOf(Text));
        f.item("control", &mut self.control, LAW);
        f.item("mtu", &mut self.mtu, OrWord("path", Bytes(128, 65_535)));
        self.ctcp.fields(f);
    }
}

/// A rate, or a word.
const LAW: RateOrWord<'_, CodedControl> = RateOrWord {
    words: &[
        ("tokens", CodedControl::Tokens),
        ("line rate", CodedControl::LineRate),
    ],
    of: CodedControl::Fixed,
    rate: |law| match law {
        CodedControl::Fixed(rate) => Some(*rate),
        _ => None,
    },
};
