//! The SACK frame: Chameleon's feedback message (Chameleon §II, Fig. 1), with byte offsets of blocks
//! for its sequence numbers.

use super::codec::{Reader, WireError, varint_len, write_varint};
use crate::rate::PathReport;
use std::ops::Range;

/// Most pairs in one frame.
const MAX_PAIRS: u64 = 256;

/// What a receiver says of the path and of one channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SackReport<'a> {
    /// X_recv and p.
    pub path: PathReport,
    /// The channel.
    pub channel: u64,
    /// Packets that there is room for beyond those received.
    pub avail_win: u8,
    /// Where the report before ended: every block that starts below this is complete.
    pub offset: u64,
    count: u64,
    encoded: &'a [u8],
}

impl<'a> SackReport<'a> {
    /// Complete parts of the channel above `offset`, ascending and apart.
    pub fn pairs(&self) -> impl Iterator<Item = Range<u64>> {
        let mut reader = Reader::new(self.encoded);
        let mut end = self.offset;
        (0..self.count).map_while(move |_| {
            let start = end.checked_add(reader.varint().ok()?)?;
            end = start.checked_add(reader.varint().ok()?)?;
            Some(start..end)
        })
    }

    /// Reads the fields after the type.
    pub(super) fn parse(r: &mut Reader<'a>) -> Result<Self, WireError> {
        let receive_rate = r.varint()? as f64;
        let loss_event_rate = f64::from(r.u32()?) / f64::from(u32::MAX);
        let (channel, avail_win) = (r.varint()?, r.u8()?);
        let (offset, count) = (r.varint()?, r.varint()?);
        if count > MAX_PAIRS {
            return Err(WireError::Invalid("SACK pair count"));
        }
        let start = *r;
        for _ in 0..count {
            r.varint()?;
            r.varint()?;
        }
        Ok(Self {
            path: PathReport {
                receive_rate,
                loss_event_rate,
            },
            channel,
            avail_win,
            offset,
            count,
            encoded: super::frame::consumed(start, r),
        })
    }

    /// Appends type and fields, with as many of `pairs` (ascending, at or above the offset, apart)
    /// as fit into `room` bytes.
    pub(super) fn emit(
        &self,
        kind: u8,
        out: &mut Vec<u8>,
        pairs: impl Iterator<Item = Range<u64>>,
        room: usize,
    ) {
        let start = out.len();
        out.push(kind);
        let most = ((1u64 << 62) - 1) as f64;
        write_varint(out, self.path.receive_rate.clamp(0.0, most) as u64);
        // Rounded up: a little loss is not none.
        let p = self.path.loss_event_rate.clamp(0.0, 1.0) * f64::from(u32::MAX);
        out.extend_from_slice(&(p.ceil() as u32).to_be_bytes());
        write_varint(out, self.channel);
        out.push(self.avail_win);
        write_varint(out, self.offset);
        let (mut body, mut count, mut end) = (Vec::new(), 0, self.offset);
        for pair in pairs.take(MAX_PAIRS as usize) {
            let numbers = [pair.start - end, pair.end - pair.start];
            let need: usize = numbers.into_iter().map(varint_len).sum();
            if out.len() - start + 2 + body.len() + need > room {
                break;
            }
            numbers.into_iter().for_each(|n| write_varint(&mut body, n));
            (count, end) = (count + 1, pair.end);
        }
        write_varint(out, count);
        out.extend_from_slice(&body);
    }

    /// A report without pairs, to be [written](super::Frame::emit_sack).
    pub fn new(path: PathReport, channel: u64, avail_win: u8, offset: u64) -> Self {
        Self {
            path,
            channel,
            avail_win,
            offset,
            count: 0,
            encoded: &[],
        }
    }
}
