//! `ctcp`: what CTCP can be told, by the paper's names (CTCP, Table 1).

use dfcp_proto::profile::CtcpParameters;
use dfcp_proto::rate::{BackOff, MinRtt, TokenParameters};
use dfcp_proto::scheduler::Rounding;

use crate::scenario::fields::{Codec, Count, Fields, Number, OneOf, OrWord, Section};
use crate::scenario::tree::{Fault, Node, Value};

const MAX_TOKENS: u64 = 1_000_000;

impl Section for CtcpParameters {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let roundings = [("down", Rounding::Down), ("up", Rounding::Up)];
        f.item("blksize", &mut self.block_symbols, Count(1, 255));
        f.item("numblks", &mut self.open_blocks, Count(1, 1 << 20));
        f.item("mu", &mut self.loss_weight, Number(1e-6, 1.0));
        f.item("expiry", &mut self.expiry_eighths, Eighths);
        f.item("rounding", &mut self.rounding, OneOf(&roundings));
        self.tokens.fields(f);
    }
}

impl Section for TokenParameters {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let back_offs = [
            ("round-trip", BackOff::OncePerRoundTrip),
            ("loss", BackOff::EveryLoss),
        ];
        let least = [
            ("connection", MinRtt::OfConnection),
            ("reset", MinRtt::SinceFewTokens),
        ];
        let initial = &mut self.initial_tokens;
        f.item("initial_tokens", initial, Count(1, MAX_TOKENS));
        let threshold = &mut self.slow_start_threshold;
        f.item(
            "ss_threshold",
            threshold,
            OrWord("unlimited", Count(1, MAX_TOKENS)),
        );
        f.item("alpha", &mut self.increase, Number(0.0, 1e3));
        f.item("gamma", &mut self.timeout, Number(1.0, 1e3));
        f.item("back_off", &mut self.back_off, OneOf(&back_offs));
        f.item("min_rtt", &mut self.min_rtt, OneOf(&least));
    }
}

/// Round trips, to the nearest eighth.
struct Eighths;

impl Codec<u32> for Eighths {
    fn read(&self, node: &Node) -> Result<u32, Fault> {
        let round_trips = Number(1.0, 1e3).read(node)?;
        Ok((round_trips * 8.0).round() as u32)
    }

    fn write(&self, value: &u32) -> Option<Value> {
        Some(Value::Float(f64::from(*value) / 8.0))
    }
}
