//! Frames: what a sealed packet carries. One vocabulary for every profile.

use super::ack::{self, ACK, ACK_BITMAP, AckHead, AckRanges};
use super::codec::{Reader, VarInt, WireError, varint_len, write_varint};
use super::sack::SackReport;
use super::symbol::{SHORT_SYMBOL, SHORT_SYMBOL_LAST, SYMBOL, SYMBOL_LAST, SymbolHeader};
use std::ops::Range;

const PADDING: u8 = 0x00;
const PING: u8 = 0x01;
const BLOCKS: u8 = 0x03;
const ROUND_TRIP: u8 = 0x04;
const SACK: u8 = 0x05;
const FEEDBACK_RATE: u8 = 0x06;
const PART: u8 = 0x07;
const MAX_DATA: u8 = 0x10;
const MAX_STREAM_DATA: u8 = 0x11;
const FIN: u8 = 0x12;
const RESET: u8 = 0x13;
const STOP: u8 = 0x14;
const CLOSE: u8 = 0x15;
const SKIP: u8 = 0x16;
const DATAGRAM: u8 = 0x17;
const PATH_CHALLENGE: u8 = 0x20;
const PATH_RESPONSE: u8 = 0x21;
const FIRST_WINDOW: u8 = 0x24;
const IMMEDIATE_ACK: u8 = 0x22;

/// Most block entries in one BLOCKS frame.
const MAX_ENTRIES: u64 = 1024;
/// Longest close reason, bytes.
const MAX_REASON: usize = 512;

/// What a receiver knows of one channel's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockReport<'a> {
    /// The channel.
    pub channel: u64,
    /// Every block that starts below this offset is complete.
    pub done_below: u64,
    count: u64,
    encoded: &'a [u8],
}

impl BlockReport<'_> {
    /// (block offset, symbols still needed) in ascending order; zero needed means the block can
    /// be rebuilt.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        let mut reader = Reader::new(self.encoded);
        let mut offset = self.done_below;
        (0..self.count).map_while(move |_| {
            offset = offset.checked_add(reader.varint().ok()?)?;
            Some((offset, u32::try_from(reader.varint().ok()?).ok()?))
        })
    }
}

/// One frame, borrowed from the opened packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Frame<'a> {
    /// Asks for feedback.
    Ping,
    /// Asks for feedback at once, with the time at which this packet arrived.
    ImmediateAck,
    /// Packet feedback.
    Ack {
        /// Of the newest packet, and of marks.
        head: AckHead,
        /// All packet numbers reported.
        ranges: AckRanges<'a>,
    },
    /// Block feedback.
    Blocks(BlockReport<'a>),
    /// For receivers that report loss events: precedes the symbol of a data packet.
    RoundTrip {
        /// Place of the packet among the sender's data packets; wraps.
        number: u32,
        /// The sender's round-trip time, microseconds.
        rtt_us: u32,
    },
    /// Bytes of feedback a second, headers included, that the path from the receiver carries; 0: any.
    FeedbackRate(u64),
    /// Feedback on the path and on what there is room for.
    Sack(SackReport<'a>),
    /// The symbol of this packet is only a part of one.
    Part {
        /// Bytes of the whole symbol.
        symbol_len: u64,
        /// Where in it the part begins.
        at: u64,
    },
    /// One symbol, or a part. Runs to the end of the packet.
    Symbol {
        /// Which one, of which block.
        header: SymbolHeader,
        /// The symbol.
        data: &'a [u8],
    },
    /// A message of the application that nothing repeats.
    Datagram(&'a [u8]),
    /// Block bytes that the peer may open on this connection, cumulative.
    MaxData(u64),
    /// Offset up to which the peer may send on a stream.
    MaxStreamData {
        /// The stream.
        channel: u64,
        /// The limit.
        limit: u64,
    },
    /// How much of the window that every stream begins with may be used now, bytes.
    FirstWindow(u64),
    /// The channel ends at `size`.
    Fin {
        /// The channel.
        channel: u64,
        /// Its final size.
        size: u64,
    },
    /// The sender gives the channel up.
    Reset {
        /// The channel.
        channel: u64,
        /// Application's reason.
        code: VarInt,
        /// Credit that its blocks used, those included of which nothing arrived.
        charged: u64,
    },
    /// The receiver wants no more of the channel.
    Stop {
        /// The channel.
        channel: u64,
        /// Application's reason.
        code: VarInt,
    },
    /// The sender gave up bytes of the channel.
    Skip {
        /// The channel.
        channel: u64,
        /// Where they begin.
        offset: u64,
        /// How many.
        len: u64,
        /// Credit that they used: that of one block, or none.
        charged: u64,
    },
    /// To be sent back from the address that it came to.
    PathChallenge([u8; PATH_DATA_LEN]),
    /// What a challenge said.
    PathResponse([u8; PATH_DATA_LEN]),
    /// The connection ends.
    Close {
        /// Reason, see [`crate::CloseCode`].
        code: VarInt,
        /// For people; UTF-8 expected.
        reason: &'a [u8],
    },
}

/// Iterates over the frames of an opened packet; ends after the first error.
#[derive(Clone, Debug)]
pub struct FrameIter<'a> {
    reader: Reader<'a>,
}

impl<'a> FrameIter<'a> {
    /// Frames of `plaintext`.
    pub fn new(plaintext: &'a [u8]) -> Self {
        Self {
            reader: Reader::new(plaintext),
        }
    }
}

impl<'a> Iterator for FrameIter<'a> {
    type Item = Result<Frame<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.reader.is_empty() {
                return None;
            }
            match Frame::parse(&mut self.reader) {
                Ok(Some(frame)) => return Some(Ok(frame)),
                Ok(None) => continue,
                Err(error) => {
                    self.reader.rest();
                    return Some(Err(error));
                }
            }
        }
    }
}

impl<'a> Frame<'a> {
    /// The next frame; `None` for padding.
    fn parse(r: &mut Reader<'a>) -> Result<Option<Self>, WireError> {
        let kind = r.u8()?;
        Ok(Some(match kind {
            PADDING => return Ok(None),
            PING => Self::Ping,
            IMMEDIATE_ACK => Self::ImmediateAck,
            ACK | ACK_BITMAP => {
                let (head, ranges) = AckRanges::parse(kind, r)?;
                Self::Ack { head, ranges }
            }
            BLOCKS => Self::Blocks(parse_report(r)?),
            ROUND_TRIP => Self::RoundTrip {
                number: r.u32()?,
                rtt_us: r.u32()?,
            },
            SACK => Self::Sack(SackReport::parse(r)?),
            FEEDBACK_RATE => Self::FeedbackRate(r.varint()?),
            FIRST_WINDOW => Self::FirstWindow(r.varint()?),
            PART => Self::Part {
                symbol_len: r.varint()?,
                at: r.varint()?,
            },
            SYMBOL..=SYMBOL_LAST | SHORT_SYMBOL..=SHORT_SYMBOL_LAST => Self::Symbol {
                header: SymbolHeader::parse(kind, r)?,
                data: r.rest(),
            },
            DATAGRAM => Self::Datagram(r.var_bytes()?),
            MAX_DATA => Self::MaxData(r.varint()?),
            MAX_STREAM_DATA => Self::MaxStreamData {
                channel: r.varint()?,
                limit: r.varint()?,
            },
            FIN => Self::Fin {
                channel: r.varint()?,
                size: r.varint()?,
            },
            RESET => Self::Reset {
                channel: r.varint()?,
                code: r.code()?,
                charged: r.varint()?,
            },
            STOP => Self::Stop {
                channel: r.varint()?,
                code: r.code()?,
            },
            SKIP => Self::Skip {
                channel: r.varint()?,
                offset: r.varint()?,
                len: r.varint()?,
                charged: r.varint()?,
            },
            PATH_CHALLENGE => Self::PathChallenge(r.array()?),
            PATH_RESPONSE => Self::PathResponse(r.array()?),
            CLOSE => {
                let (code, reason) = (r.code()?, r.var_bytes()?);
                Self::Close {
                    code,
                    reason: &reason[..reason.len().min(MAX_REASON)],
                }
            }
            other => return Err(WireError::UnknownType(other)),
        }))
    }

    /// Whether the receiver of this frame owes feedback for its packet.
    pub fn is_ack_eliciting(&self) -> bool {
        !matches!(
            self,
            Self::Ack { .. }
                | Self::Blocks(_)
                | Self::Sack(_)
                | Self::MaxData(_)
                | Self::Close { .. }
        )
    }

    /// Appends a frame that has no variable part borrowed from elsewhere. ACK and BLOCKS are
    /// written by [`Frame::emit_ack`] and [`Frame::emit_blocks`].
    pub fn emit(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Ping => out.push(PING),
            Self::ImmediateAck => out.push(IMMEDIATE_ACK),
            Self::PathChallenge(data) => emit_path(out, PATH_CHALLENGE, &data),
            Self::PathResponse(data) => emit_path(out, PATH_RESPONSE, &data),
            Self::RoundTrip { number, rtt_us } => {
                out.push(ROUND_TRIP);
                out.extend_from_slice(&number.to_be_bytes());
                out.extend_from_slice(&rtt_us.to_be_bytes());
            }
            Self::Sack(ref report) => Self::emit_sack(out, report, report.pairs(), usize::MAX),
            Self::Symbol { ref header, data } => {
                header.emit(out);
                out.extend_from_slice(data);
            }
            Self::Datagram(datagram) => {
                emit_numbers(out, DATAGRAM, [datagram.len() as u64]);
                out.extend_from_slice(datagram);
            }
            Self::FeedbackRate(rate) => emit_numbers(out, FEEDBACK_RATE, [rate]),
            Self::FirstWindow(bytes) => emit_numbers(out, FIRST_WINDOW, [bytes]),
            Self::Part { symbol_len, at } => emit_numbers(out, PART, [symbol_len, at]),
            Self::MaxData(limit) => emit_numbers(out, MAX_DATA, [limit]),
            Self::MaxStreamData { channel, limit } => {
                emit_numbers(out, MAX_STREAM_DATA, [channel, limit]);
            }
            Self::Fin { channel, size } => emit_numbers(out, FIN, [channel, size]),
            Self::Reset {
                channel,
                code,
                charged,
            } => {
                emit_numbers(out, RESET, [channel, code.get(), charged]);
            }
            Self::Stop { channel, code } => emit_numbers(out, STOP, [channel, code.get()]),
            Self::Skip {
                channel,
                offset,
                len,
                charged,
            } => emit_numbers(out, SKIP, [channel, offset, len, charged]),
            Self::Close { code, reason } => {
                let reason = &reason[..reason.len().min(MAX_REASON)];
                emit_numbers(out, CLOSE, [code.get(), reason.len() as u64]);
                out.extend_from_slice(reason);
            }
            Self::Ack { head, ref ranges } => {
                let ranges = ranges.iter().map(|r| (*r.start(), *r.end()));
                Self::emit_shortest_ack(out, head, ranges, usize::MAX);
            }
            Self::Blocks(ref report) => {
                Self::emit_blocks(
                    out,
                    report.channel,
                    report.done_below,
                    report.iter(),
                    usize::MAX,
                );
            }
        }
    }

    /// Appends a SACK frame of `report` with as many of `pairs` (ascending, at or above the offset,
    /// apart) as fit into `room` bytes.
    pub fn emit_sack(
        out: &mut Vec<u8>,
        report: &SackReport<'_>,
        pairs: impl Iterator<Item = Range<u64>>,
        room: usize,
    ) {
        report.emit(SACK, out, pairs, room);
    }

    /// Appends an ACK frame with as many of `ranges` (inclusive, descending, apart) as fit into
    /// `room` bytes, and returns how many.
    pub fn emit_ack(
        out: &mut Vec<u8>,
        head: AckHead,
        ranges: impl Iterator<Item = (u64, u64)>,
        room: usize,
    ) -> usize {
        ack::emit_ranges(out, head, ranges, room)
    }

    /// The same, as ranges or as a bitmap, whichever says more or is shorter.
    pub fn emit_shortest_ack(
        out: &mut Vec<u8>,
        head: AckHead,
        ranges: impl Iterator<Item = (u64, u64)>,
        room: usize,
    ) -> usize {
        ack::emit_shortest(out, head, ranges, room)
    }

    /// Appends a BLOCKS frame with as many of `entries` (ascending offsets ≥ `done_below`) as fit
    /// into `room` bytes.
    pub fn emit_blocks(
        out: &mut Vec<u8>,
        channel: u64,
        done_below: u64,
        entries: impl Iterator<Item = (u64, u32)>,
        room: usize,
    ) {
        let start = out.len();
        emit_numbers(out, BLOCKS, [channel, done_below]);
        let mut body = Vec::with_capacity(64);
        let (mut count, mut previous) = (0, done_below);
        for (offset, needed) in entries.take(MAX_ENTRIES as usize) {
            let need = varint_len(offset - previous) + varint_len(needed.into());
            if out.len() - start + 2 + body.len() + need > room {
                break;
            }
            write_varint(&mut body, offset - previous);
            write_varint(&mut body, needed.into());
            previous = offset;
            count += 1;
        }
        write_varint(out, count);
        out.extend_from_slice(&body);
    }
}

pub(super) fn emit_numbers<const N: usize>(out: &mut Vec<u8>, kind: u8, values: [u64; N]) {
    out.push(kind);
    values.into_iter().for_each(|v| write_varint(out, v));
}

fn emit_path(out: &mut Vec<u8>, kind: u8, data: &[u8; PATH_DATA_LEN]) {
    out.push(kind);
    out.extend_from_slice(data);
}

fn parse_report<'a>(r: &mut Reader<'a>) -> Result<BlockReport<'a>, WireError> {
    let (channel, done_below, count) = (r.varint()?, r.varint()?, r.varint()?);
    if count > MAX_ENTRIES {
        return Err(WireError::Invalid("BLOCKS entry count"));
    }
    let start = *r;
    for _ in 0..count {
        r.varint()?;
        r.varint()?;
    }
    Ok(BlockReport {
        channel,
        done_below,
        count,
        encoded: consumed(start, r),
    })
}

/// The bytes between `start` and where `now` stands.
pub(super) fn consumed<'a>(mut start: Reader<'a>, now: &Reader<'a>) -> &'a [u8] {
    let all = start.rest();
    &all[..all.len() - now.remaining()]
}

/// Bytes of a PART frame.
pub fn part_overhead(symbol_len: usize, at: usize) -> usize {
    1 + varint_len(symbol_len as u64) + varint_len(at as u64)
}

/// Bytes of a DATAGRAM frame of `len` bytes beside these.
pub fn datagram_overhead(len: usize) -> usize {
    1 + varint_len(len as u64)
}

/// Random bytes of a PATH_CHALLENGE frame.
pub const PATH_DATA_LEN: usize = 8;

/// Bytes of a ROUND_TRIP frame.
pub const ROUND_TRIP_LEN: usize = 1 + 4 + 4;

#[cfg(test)]
mod tests;
