//! What SYN offers and SYNACK settles (DFCP-J §4.3: "all the parameters necessary for decoding"):
//! the payload of both, byte for byte, and the limits that it is held against.
//!
//! The connecting side decides about the code and the acknowledgements. The other side may lower
//! the window to what it has room for; all else it takes or refuses.

use super::code::Code;
use super::config::{Acknowledge, Codec, Config, Moment};
use super::data::Message;
use super::recv::RECORD;
use crate::config::Payload;
use crate::wire::{Reader, WireError};
use dfcp_fec::raptor::{Degrees, LdpcDegrees, MAX_LDPC_DEGREES, RaptorParameters, State};

/// Version of this payload.
const VERSION: u8 = 1;
/// Bytes of the payload.
pub(super) const OFFER_LEN: usize = 44;
/// Bytes that follow for each degree of the LDPC code, if it has several.
const LDPC_ENTRY_LEN: usize = 3;
/// Bytes that follow for a message.
const MESSAGE_LEN: usize = 16;
/// The code field of RaptorQ; below it are the degree distributions of the Raptor code.
const RAPTORQ: u8 = 3;
/// Most bytes of a block.
const MAX_BLOCK: u64 = 1 << 26;
/// Most redundancy, millionths.
const MAX_EPSILON: u32 = 100_000_000;
/// The same where blocks have bytes: no decoder takes more than twice a block and some symbols.
const MAX_REAL_EPSILON: u32 = 1_000_000;

/// Why a SYN is refused; the payload of RST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Another version, or a payload that is none.
    Version = 1,
    /// Numbers outside limits.
    Limits = 2,
    /// A block does not fit into the receive budget.
    Memory = 3,
    /// Bytes against sizes only.
    Payload = 4,
    /// Too many connections, or they leave no memory for a block.
    Busy = 5,
    /// The blocks do not make up the message.
    Message = 6,
}

impl Refusal {
    /// What the byte in an RST says, for people.
    pub fn describe(byte: u8) -> &'static str {
        match byte {
            1 => "version",
            2 => "numbers outside limits",
            3 => "a block is larger than its receive budget",
            4 => "bytes or sizes only",
            5 => "too many connections",
            6 => "blocks that do not make up the message",
            _ => "unknown reason",
        }
    }
}

/// What both sides must know.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Offer {
    /// The code; its pre-code state, if it has one, is S1..S3 of the SYN.
    pub code: Code,
    /// Most unacknowledged blocks.
    pub window: u32,
    /// ε in millionths.
    pub epsilon: u32,
    /// Which ACKs.
    pub acknowledge: Acknowledge,
    /// When a block is acknowledged.
    pub moment: Moment,
    /// Whether blocks are encoded.
    pub encoding: Codec,
    /// Whether blocks are decoded.
    pub decoding: Codec,
    /// Bytes or sizes.
    pub payload: Payload,
    /// What the connecting side will send, if it knows.
    pub message: Option<Message>,
}

/// What a receiver spends, beside [`Code::block_memory`], on what it notes of each block of the window, of which one packet can make it note all: two records
/// (what holds them doubles as it grows) of up to 128 bytes.
const BLOCK_RECORD: u64 = 256;
/// Most blocks of a window: with ACKs off a packet can give up a whole one, a few nanoseconds for each block. The
/// papers have up to 10,000.
const MAX_WINDOW: u32 = 1 << 16;
const _: () = assert!(2 * RECORD as u64 <= BLOCK_RECORD);

impl Offer {
    /// What `config` asks for, with `initial` as the state of SYN.
    ///
    /// # Errors
    /// Numbers outside limits.
    pub fn new(config: &Config, initial: State) -> Result<Self, Refusal> {
        let epsilon = config.redundancy.epsilon * 1e6;
        let code = match &config.code {
            Code::Raptor(code) => Code::Raptor(RaptorParameters {
                precode: initial,
                ..config.block_size.apply(code)
            }),
            code => code.clone(),
        };
        let message = match config.message {
            Some(bytes) => Some(Message::new(bytes, &code).ok_or(Refusal::Message)?),
            None => None,
        };
        let offer = Self {
            code,
            message,
            window: config.window,
            // NaN becomes 0, what is too large stays so.
            epsilon: epsilon.round().clamp(0.0, f64::from(u32::MAX)) as u32,
            acknowledge: config.acknowledge,
            moment: config.moment,
            encoding: config.encoding,
            decoding: config.decoding,
            payload: config.payload,
        };
        offer.fit(config)
    }

    /// What the side with `config` makes of an offer.
    ///
    /// # Errors
    /// Why it refuses.
    pub fn fit(self, config: &Config) -> Result<Self, Refusal> {
        self.fit_within(config, config.receive_budget)
    }

    /// The same with `bytes` of memory at most for what is received.
    ///
    /// # Errors
    /// Why it refuses.
    pub fn fit_within(mut self, config: &Config, bytes: u64) -> Result<Self, Refusal> {
        let code = &self.code;
        let numbers = code.check().is_ok()
            && code.block_bytes() <= MAX_BLOCK
            && self.window >= 1
            && self.epsilon <= MAX_EPSILON;
        if !numbers {
            return Err(Refusal::Limits);
        }
        // Sizes alone cost next to nothing.
        let costly = self.payload == Payload::Real
            && (code.is_too_fine() || self.epsilon > MAX_REAL_EPSILON);
        if costly {
            return Err(Refusal::Limits);
        }
        if self.message.is_some_and(|m| !m.agrees_with(code)) {
            return Err(Refusal::Message);
        }
        if self.payload != config.payload {
            return Err(Refusal::Payload);
        }
        let room = bytes.min(config.receive_budget) / self.block_memory();
        if room == 0 {
            return Err(match config.receive_budget >= self.block_memory() {
                true => Refusal::Busy,
                false => Refusal::Memory,
            });
        }
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        self.window = self.window.min(room).min(MAX_WINDOW);
        Ok(self)
    }

    /// What a receiver spends on a block. Sizes need no memory but for the records.
    fn block_memory(&self) -> u64 {
        let symbols = match self.payload {
            Payload::Real => self.code.block_memory(),
            Payload::Virtual => 0,
        };
        symbols + BLOCK_RECORD
    }

    /// What a receiver spends on a whole window.
    pub fn memory(&self) -> u64 {
        self.block_memory().saturating_mul(self.window.into())
    }

    /// Appends the payload. `answered` is the state of the SYN that a SYNACK answers.
    pub fn emit(&self, answered: Option<State>, out: &mut Vec<u8>) {
        let bit = |set: bool, at: u8| u8::from(set) << at;
        let acknowledge = match self.acknowledge {
            Acknowledge::EachBlock => 0,
            Acknowledge::EachWindow => 1,
            Acknowledge::Off => 2,
        };
        let modes = acknowledge
            | bit(self.moment == Moment::Decoded, 2)
            | bit(self.encoding == Codec::Off, 3)
            | bit(self.decoding == Codec::Off, 4)
            | bit(self.payload == Payload::Virtual, 5)
            | bit(self.message.is_some(), 6);
        let Wire {
            code,
            ldpc_degree,
            ldpc_list,
            n,
            c,
            delta,
        } = Wire::of(&self.code);
        out.extend_from_slice(&[VERSION, code, ldpc_degree, modes]);
        out.extend_from_slice(&self.code.k().to_be_bytes());
        out.extend_from_slice(&n.to_be_bytes());
        out.extend_from_slice(&self.code.symbol_size().to_be_bytes());
        // As many as the limits that an offer is held against.
        out.extend_from_slice(&(ldpc_list.len() as u16).to_be_bytes());
        let [s1, s2, s3] = answered.map_or([0; 3], State::words);
        for word in [c, delta, self.window, self.epsilon, s1, s2, s3] {
            out.extend_from_slice(&u32::to_be_bytes(word));
        }
        if let Some(message) = &self.message {
            out.extend_from_slice(&message.bytes.to_be_bytes());
            out.extend_from_slice(&message.blocks.to_be_bytes());
            out.extend_from_slice(&message.block.to_be_bytes());
        }
        for &(degree, weight) in ldpc_list {
            out.push(degree);
            out.extend_from_slice(&weight.to_be_bytes());
        }
    }

    /// Reads the payload of a SYN whose S1..S3 are `precode`, or of the SYNACK that answers it;
    /// with it the state of the SYN that is answered, if there is one.
    ///
    /// # Errors
    /// Not such a payload, or values without meaning.
    pub fn parse(payload: &[u8], precode: State) -> Result<(Self, Option<State>), Refusal> {
        let parsed = Self::read(Reader::new(payload), precode);
        parsed.map_err(|_| Refusal::Version)?
    }

    fn read(
        mut r: Reader<'_>,
        precode: State,
    ) -> Result<Result<(Self, Option<State>), Refusal>, WireError> {
        let [version, code, ldpc_degree, modes] = r.array()?;
        let (k, n, symbol_size, ldpc_count) = (r.u32()?, r.u32()?, r.u16()?, r.u16()?);
        let with_message = modes & 0x40 != 0;
        let more = if with_message { MESSAGE_LEN } else { 0 };
        let list_len = usize::from(ldpc_count) * LDPC_ENTRY_LEN;
        if version != VERSION || r.remaining() != OFFER_LEN - 16 + more + list_len {
            return Err(WireError::Invalid("version"));
        }
        if modes & 0x80 != 0 || usize::from(ldpc_count) > MAX_LDPC_DEGREES {
            return Ok(Err(Refusal::Limits));
        }
        let (c, delta) = (r.u32()?, r.u32()?);
        let acknowledge = match modes & 3 {
            0 => Acknowledge::EachBlock,
            1 => Acknowledge::EachWindow,
            2 => Acknowledge::Off,
            _ => return Ok(Err(Refusal::Limits)),
        };
        let codec = |off: u8| {
            if modes & off == 0 {
                Codec::On
            } else {
                Codec::Off
            }
        };
        let (window, epsilon) = (r.u32()?, r.u32()?);
        let answered = State::new(r.u32()?, r.u32()?, r.u32()?);
        let message = match with_message {
            true => Some(Message {
                bytes: u64::from_be_bytes(r.array()?),
                blocks: r.u32()?,
                block: r.u32()?,
            }),
            false => None,
        };
        let mut ldpc_list = Vec::with_capacity(ldpc_count.into());
        for _ in 0..ldpc_count {
            let ([degree], weight) = (r.array()?, r.u16()?);
            ldpc_list.push((degree, weight));
        }
        let wire = Wire {
            code,
            ldpc_degree,
            ldpc_list: &ldpc_list,
            n,
            c,
            delta,
        };
        let Some(code) = wire.code(k, symbol_size, precode) else {
            return Ok(Err(Refusal::Limits));
        };
        let offer = Self {
            code,
            message,
            window,
            epsilon,
            acknowledge,
            moment: if modes & 4 == 0 {
                Moment::Received
            } else {
                Moment::Decoded
            },
            encoding: codec(8),
            decoding: codec(16),
            payload: if modes & 32 == 0 {
                Payload::Real
            } else {
                Payload::Virtual
            },
        };
        Ok(Ok((offer, answered)))
    }

    /// Whether `settled` is an answer to this offer: nothing but the window may differ, downwards.
    pub fn allows(&self, settled: &Self) -> bool {
        let same = Self {
            window: self.window,
            ..settled.clone()
        };
        same == *self && (1..=self.window).contains(&settled.window)
    }

    /// ε.
    pub fn redundancy(&self) -> f64 {
        f64::from(self.epsilon) / 1e6
    }
}

/// The fields that tell codes apart.
struct Wire<'a> {
    code: u8,
    /// 0 if the list has degrees.
    ldpc_degree: u8,
    ldpc_list: &'a [(u8, u16)],
    n: u32,
    c: u32,
    delta: u32,
}

impl<'a> Wire<'a> {
    fn of(code: &'a Code) -> Self {
        let Code::Raptor(raptor) = code else {
            return Self {
                code: RAPTORQ,
                ldpc_degree: 0,
                ldpc_list: &[],
                n: code.k(),
                c: 0,
                delta: 0,
            };
        };
        let (code, c, delta) = match raptor.degrees {
            Degrees::IdealSoliton => (1, 0, 0),
            Degrees::RobustSoliton {
                c_millionths,
                delta_millionths,
            } => (2, c_millionths, delta_millionths),
            _ => (0, 0, 0),
        };
        let (ldpc_degree, ldpc_list) = match &raptor.ldpc_degrees {
            LdpcDegrees::Constant(degree) => (*degree, &[][..]),
            LdpcDegrees::Weighted(list) => (0, &list[..]),
        };
        Self {
            code,
            ldpc_degree,
            ldpc_list,
            n: raptor.n,
            c,
            delta,
        }
    }

    /// The code, if there is one with these fields; whether its numbers do is not looked at.
    fn code(&self, k: u32, symbol_size: u16, precode: State) -> Option<Code> {
        let degrees = match self.code {
            0 => Degrees::Shokrollahi,
            1 => Degrees::IdealSoliton,
            2 => Degrees::RobustSoliton {
                c_millionths: self.c,
                delta_millionths: self.delta,
            },
            RAPTORQ => {
                let plain = (self.ldpc_degree, self.n, self.c, self.delta) == (0, k, 0, 0);
                let plain = plain && self.ldpc_list.is_empty();
                return plain.then_some(Code::RaptorQ { k, symbol_size });
            }
            _ => return None,
        };
        let ldpc_degrees = match (self.ldpc_degree, self.ldpc_list) {
            (degree, []) => LdpcDegrees::Constant(degree),
            (0, list) => LdpcDegrees::Weighted(list.to_vec()),
            _ => return None,
        };
        Some(Code::Raptor(RaptorParameters {
            k,
            n: self.n,
            symbol_size,
            ldpc_degrees,
            degrees,
            precode,
        }))
    }
}

#[cfg(test)]
mod tests;
