//! `published`: what a flow of DFCP as published can be told (DFCP-J §4.6, DFCP-TR §2.6).

use dfcp_proto::published::{
    Acknowledge, Codec as Coding, Completion, Degrees, LastPacket, LdpcDegrees, MAX_LDPC_DEGREE,
    MAX_LDPC_DEGREES, Moment, Sending,
};

use super::transport::PAYLOADS;
use crate::engine::DfcpPayload;
use crate::scenario::control::{ControlLaw, ControlSpec};
use crate::scenario::fields::{Bytes, Codec, Count, Fields, Number, OneOf, OrWord, Section, fault};
use crate::scenario::model::*;
use crate::scenario::tree::{Fault, Node, Table, Value};

impl Default for PublishedSpec {
    /// DFCP-J §7: window 10000, redundancy 10 %, blocks of 63536 symbols of a byte, line rate.
    fn default() -> Self {
        Self {
            window: 10_000,
            redundancy: 0.1,
            sending: Sending::Rateless,
            acknowledge: Acknowledge::EachBlock,
            moment: Moment::Received,
            encoding: Coding::On,
            decoding: Coding::On,
            completion: Completion::Count,
            last_packet: LastPacket::Whole,
            block: 63_536,
            symbol: 1,
            distribution: Degrees::Shokrollahi,
            ldpc_degree: LdpcDegrees::Constant(4),
            control: ControlSpec {
                law: ControlLaw::LineRate,
                ..ControlSpec::default()
            },
            payload: DfcpPayload::Virtual,
            mtu: None,
        }
    }
}

impl Section for PublishedSpec {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let acks = [
            ("each-block", Acknowledge::EachBlock),
            ("each-window", Acknowledge::EachWindow),
            ("off", Acknowledge::Off),
        ];
        let moments = [("received", Moment::Received), ("decoded", Moment::Decoded)];
        let switch = [("on", Coding::On), ("off", Coding::Off)];
        let completions = [
            ("count", Completion::Count),
            ("structure", Completion::Structure),
        ];
        let last_packets = [("whole", LastPacket::Whole), ("exact", LastPacket::Exact)];
        f.item("window", &mut self.window, Count(1, 1 << 24));
        f.item("redundancy", &mut self.redundancy, REDUNDANCY);
        f.item("sending", &mut self.sending, SendingRule);
        f.item("acknowledge", &mut self.acknowledge, OneOf(&acks));
        f.item("moment", &mut self.moment, OneOf(&moments));
        f.item("encoding", &mut self.encoding, OneOf(&switch));
        f.item("decoding", &mut self.decoding, OneOf(&switch));
        f.item("completion", &mut self.completion, OneOf(&completions));
        f.item("last_packet", &mut self.last_packet, OneOf(&last_packets));
        f.item("block", &mut self.block, Bytes(1, 1 << 26));
        f.item("symbol", &mut self.symbol, Bytes(1, 65_000));
        f.item("distribution", &mut self.distribution, Distribution);
        f.item("ldpc_degree", &mut self.ldpc_degree, LdpcDegree);
        self.control.fields(f);
        f.item("payload", &mut self.payload, OneOf(&PAYLOADS));
        f.item("mtu", &mut self.mtu, OrWord("path", Bytes(128, 65_535)));
    }
}

/// Beyond ten times the data, loss is above 90 % and rateless sending is meant.
const REDUNDANCY: Number = Number(0.0, 10.0);

/// `"rateless"`, `{ fixed = 0.1 }`, `"expected"` or `"adaptive"`.
struct SendingRule;

const SENDING: [(&str, Sending); 3] = [
    ("rateless", Sending::Rateless),
    ("expected", Sending::Expected),
    ("adaptive", Sending::Adaptive),
];

#[derive(Clone)]
struct Fixed(f64);

impl Section for Fixed {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("fixed", &mut self.0, REDUNDANCY);
    }
}

impl Codec<Sending> for SendingRule {
    fn read(&self, node: &Node) -> Result<Sending, Fault> {
        match &node.value {
            Value::Table(_) => {
                let fixed = Fixed(0.1).read(node, "sending")?;
                Ok(Sending::Fixed { extra: fixed.0 })
            }
            _ => {
                let more = " Or write { fixed = 0.1 } for a redundancy that is sent.";
                OneOf(&SENDING).read(node).map_err(|fault| fault.and(more))
            }
        }
    }

    fn write(&self, value: &Sending) -> Option<Value> {
        match value {
            Sending::Fixed { extra } => Some(Value::Table(Fixed(*extra).write())),
            other => OneOf(&SENDING).write(other),
        }
    }
}

/// `"shokrollahi"`, `"ideal-soliton"` or `{ robust-soliton = { c, delta } }`.
struct Distribution;

const PLAIN: [(&str, Degrees); 2] = [
    ("shokrollahi", Degrees::Shokrollahi),
    ("ideal-soliton", Degrees::IdealSoliton),
];

const MILLION: f64 = 1e6;

/// c and δ of a robust soliton distribution.
#[derive(Clone)]
struct Robust {
    c: f64,
    delta: f64,
}

impl Default for Robust {
    /// Luby's "LT codes" leaves both open; these are usual.
    fn default() -> Self {
        Self {
            c: 0.03,
            delta: 0.5,
        }
    }
}

impl Section for Robust {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("c", &mut self.c, Number(1e-6, 1.0));
        f.item("delta", &mut self.delta, Number(1e-6, 0.999_999));
    }
}

#[derive(Clone, Default)]
struct RobustSoliton(Robust);

impl Section for RobustSoliton {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.nested("robust-soliton", &mut self.0);
    }
}

impl Codec<Degrees> for Distribution {
    fn read(&self, node: &Node) -> Result<Degrees, Fault> {
        if let Value::Table(_) = &node.value {
            let Robust { c, delta } = RobustSoliton::default().read(node, "distribution")?.0;
            return Ok(Degrees::RobustSoliton {
                c_millionths: (c * MILLION).round() as u32,
                delta_millionths: (delta * MILLION).round() as u32,
            });
        }
        let more = " Or write { robust-soliton = { c = 0.03, delta = 0.5 } }.";
        OneOf(&PLAIN).read(node).map_err(|fault| fault.and(more))
    }

    fn write(&self, value: &Degrees) -> Option<Value> {
        match *value {
            Degrees::RobustSoliton {
                c_millionths,
                delta_millionths,
            } => {
                let robust = Robust {
                    c: f64::from(c_millionths) / MILLION,
                    delta: f64::from(delta_millionths) / MILLION,
                };
                Some(Value::Table(RobustSoliton(robust).write()))
            }
            ref plain => OneOf(&PLAIN).write(plain),
        }
    }
}

/// A degree, or degrees with their weights: `{ 3 = 6, 5 = 3 }`.
struct LdpcDegree;

const LDPC_DEGREE: Count = Count(1, MAX_LDPC_DEGREE as u64);

impl Codec<LdpcDegrees> for LdpcDegree {
    fn read(&self, node: &Node) -> Result<LdpcDegrees, Fault> {
        let Value::Table(table) = &node.value else {
            let more = "; or write degrees and weights: { 3 = 6, 5 = 3 }";
            let degree = LDPC_DEGREE.read(node).map_err(|fault| fault.and(more));
            return degree.map(LdpcDegrees::Constant);
        };
        if !(1..=MAX_LDPC_DEGREES).contains(&table.0.len()) {
            let wrong = format!("1 to {MAX_LDPC_DEGREES} degrees are possible");
            return fault(node, wrong);
        }
        let entries = table.0.iter().map(|entry| {
            let degree = entry
                .key
                .parse()
                .map_or(Value::String(entry.key.clone()), Value::Integer);
            let key = Node {
                value: degree,
                place: entry.place,
            };
            Ok((
                LDPC_DEGREE.read(&key)?,
                Count(1, u16::MAX.into()).read(&entry.node)?,
            ))
        });
        let mut list: Vec<(u8, u16)> = entries.collect::<Result<_, Fault>>()?;
        list.sort_unstable();
        // `03` is another key than `3`.
        match list.is_sorted_by(|a, b| a.0 < b.0) {
            true => Ok(LdpcDegrees::Weighted(list)),
            false => fault(node, "a degree is there twice"),
        }
    }

    fn write(&self, value: &LdpcDegrees) -> Option<Value> {
        match value {
            LdpcDegrees::Constant(degree) => LDPC_DEGREE.write(degree),
            LdpcDegrees::Weighted(list) => {
                let mut table = Table::default();
                for &(degree, weight) in list {
                    table.put(&degree.to_string(), Value::Integer(weight.into()));
                }
                Some(Value::Table(table))
            }
        }
    }
}
