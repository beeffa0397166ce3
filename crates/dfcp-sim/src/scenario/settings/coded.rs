//! `coded`: what a flow with network coding over relays or several paths can be told.

use dfcp_proto::profile::CtcpParameters;

use crate::coded::{CodedControl, Relaying};
use crate::scenario::fields::{
    BitRate, Bytes, Codec, Fields, ListOf, OneOf, OrWord, Section, Text,
};
use crate::scenario::model::CodedSpec;
use crate::scenario::tree::{Fault, Node, Value};

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
        f.item("control", &mut self.control, Law);
        f.item("mtu", &mut self.mtu, OrWord("path", Bytes(128, 65_535)));
        self.ctcp.fields(f);
    }
}

/// A rate, `"tokens"` or `"line rate"`.
struct Law;

const WORDS: [(&str, CodedControl); 2] = [
    ("tokens", CodedControl::Tokens),
    ("line rate", CodedControl::LineRate),
];

impl Codec<CodedControl> for Law {
    fn read(&self, node: &Node) -> Result<CodedControl, Fault> {
        let word = |text: &String| WORDS.iter().find(|(name, _)| name == text);
        if let Value::String(text) = &node.value
            && let Some((_, law)) = word(text)
        {
            return Ok(*law);
        }
        BitRate
            .read(node)
            .map(CodedControl::Fixed)
            .map_err(|mut fault| {
                fault.message.push_str("; or \"tokens\" or \"line rate\"");
                fault
            })
    }

    fn write(&self, value: &CodedControl) -> Option<Value> {
        match value {
            CodedControl::Fixed(rate) => BitRate.write(rate),
            other => OneOf(&WORDS).write(other),
        }
    }
}
