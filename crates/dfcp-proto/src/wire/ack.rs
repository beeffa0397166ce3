//! Packet feedback: which packets arrived, as ranges or as a bitmap.

use super::codec::{Reader, WireError, varint_len, write_varint};
use super::frame::{consumed, emit_numbers};
use std::ops::RangeInclusive;

/// Frame types.
pub(super) const ACK: u8 = 0x02;
pub(super) const ACK_BITMAP: u8 = 0x23;

/// Most packet-number ranges in one ACK frame.
const MAX_RANGES: usize = 512;
/// Most bytes of a bitmap: as many as reports have room for. A byte names four ranges at most.
const MAX_BITMAP: usize = 600;

/// What an ACK says of the newest packet, and of marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckHead {
    /// Largest packet number received.
    pub largest: u64,
    /// When it arrived: microseconds on the receiver's clock, origin arbitrary.
    pub received_at_us: u64,
    /// How long the receiver held this feedback, microseconds.
    pub delay_us: u64,
    /// Packets received with Congestion Experienced so far.
    pub ce: u64,
}

impl AckHead {
    fn numbers(&self) -> [u64; 4] {
        [self.largest, self.received_at_us, self.delay_us, self.ce]
    }
}

/// Acknowledged packet numbers, newest first, borrowed from a frame that was checked whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckRanges<'a> {
    largest: u64,
    encoded: Encoded<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoded<'a> {
    /// Lengths and the gaps between them.
    Ranges { count: usize, bytes: &'a [u8] },
    /// A bit for each number below the largest, from it down.
    Bitmap(&'a [u8]),
}

impl<'a> AckRanges<'a> {
    /// Reads what follows the type of an ACK frame, as ranges or as a bitmap.
    pub(super) fn parse(
        kind: u8,
        r: &mut Reader<'a>,
    ) -> Result<(AckHead, AckRanges<'a>), WireError> {
        let head = AckHead {
            largest: r.varint()?,
            received_at_us: r.varint()?,
            delay_us: r.varint()?,
            ce: r.varint()?,
        };
        let encoded = match kind {
            ACK_BITMAP => Self::parse_bitmap(head.largest, r)?,
            _ => Self::parse_ranges(head.largest, r)?,
        };
        let largest = head.largest;
        Ok((head, AckRanges { largest, encoded }))
    }

    fn parse_ranges(largest: u64, r: &mut Reader<'a>) -> Result<Encoded<'a>, WireError> {
        let count = r.varint()?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count == 0 || count > MAX_RANGES {
            return Err(WireError::Invalid("ACK range count"));
        }
        let start = *r;
        let mut low = largest.checked_sub(r.varint()?);
        for _ in 1..count {
            let gap = r.varint()?.saturating_add(2);
            let len = r.varint()?;
            low = low
                .and_then(|l| l.checked_sub(gap))
                .and_then(|h| h.checked_sub(len));
        }
        if low.is_none() {
            return Err(WireError::Invalid("ACK range"));
        }
        let bytes = consumed(start, r);
        Ok(Encoded::Ranges { count, bytes })
    }

    fn parse_bitmap(largest: u64, r: &mut Reader<'a>) -> Result<Encoded<'a>, WireError> {
        let bytes = r.var_bytes()?;
        if bytes.len() > MAX_BITMAP {
            return Err(WireError::Invalid("ACK bitmap length"));
        }
        let last = bytes.iter().rposition(|&byte| byte != 0);
        // How far below the largest the lowest number is that it names.
        let below = last.map_or(0, |at| {
            8 * at as u64 + 8 - u64::from(bytes[at].leading_zeros())
        });
        if below > largest {
            return Err(WireError::Invalid("ACK bitmap"));
        }
        Ok(Encoded::Bitmap(bytes))
    }

    /// Inclusive ranges in descending order.
    pub fn iter(&self) -> impl Iterator<Item = RangeInclusive<u64>> {
        let mut next_high = Some(self.largest);
        let (count, mut reader, bits) = match self.encoded {
            Encoded::Ranges { count, bytes } => (count, Reader::new(bytes), &[][..]),
            Encoded::Bitmap(bits) => (0, Reader::new(&[]), bits),
        };
        let ranges = (0..count).map_while(move |i| {
            let gap = if i == 0 { 0 } else { reader.varint().ok()? + 1 };
            let high = next_high?.checked_sub(gap)?;
            let low = high.checked_sub(reader.varint().ok()?)?;
            next_high = low.checked_sub(1);
            Some(low..=high)
        });
        let first = matches!(self.encoded, Encoded::Bitmap(_)).then_some(self.largest);
        ranges.chain(Runs {
            high: first,
            largest: self.largest,
            bits,
        })
    }
}

/// The ranges that a bitmap names.
struct Runs<'a> {
    /// The last number of the next one.
    high: Option<u64>,
    largest: u64,
    bits: &'a [u8],
}

impl Runs<'_> {
    fn has(&self, number: u64) -> bool {
        let at = self.largest - number - 1;
        let byte = self.bits.get((at / 8) as usize);
        byte.is_some_and(|byte| byte >> (at % 8) & 1 == 1)
    }

    /// The lowest number that there is a bit for.
    fn end(&self) -> u64 {
        self.largest.saturating_sub(8 * self.bits.len() as u64)
    }
}

impl Iterator for Runs<'_> {
    type Item = RangeInclusive<u64>;

    fn next(&mut self) -> Option<Self::Item> {
        let high = self.high.take()?;
        let mut low = high;
        while low > self.end() && self.has(low - 1) {
            low -= 1;
        }
        self.high = (self.end()..low).rev().find(|&number| self.has(number));
        Some(low..=high)
    }
}

/// Appends an ACK frame with as many of `ranges` (inclusive, descending, apart) as fit into
/// `room` bytes, and returns how many.
pub(super) fn emit_ranges(
    out: &mut Vec<u8>,
    head: AckHead,
    ranges: impl Iterator<Item = (u64, u64)>,
    room: usize,
) -> usize {
    let ranges: Vec<_> = ranges.take(MAX_RANGES).collect();
    let (count, _) = ranges_that_fit(&ranges, room_beside(head, room));
    write_ranges(out, head, &ranges[..count]);
    count
}

/// The same as ranges or as a bitmap: in the form in which more of them fit, of equals the shorter one.
pub(super) fn emit_shortest(
    out: &mut Vec<u8>,
    head: AckHead,
    ranges: impl Iterator<Item = (u64, u64)>,
    room: usize,
) -> usize {
    let room = room_beside(head, room);
    let ranges: Vec<_> = ranges.take(4 * MAX_BITMAP).collect();
    let bitmap_len = |&(low, _): &(u64, u64)| (head.largest - low).div_ceil(8) as usize;
    let in_bitmap = ranges.partition_point(|range| bitmap_len(range) <= room.min(MAX_BITMAP));
    let (as_ranges, ranges_len) = ranges_that_fit(&ranges, room);
    let bytes = ranges[..in_bitmap].last().map_or(0, bitmap_len);
    // More ranges first, then fewer bytes.
    if (in_bitmap, ranges_len) > (as_ranges, bytes) {
        write_bitmap(out, head, &ranges[..in_bitmap], bytes);
        in_bitmap
    } else {
        write_ranges(out, head, &ranges[..as_ranges]);
        as_ranges
    }
}

/// What is left of `room` beside the numbers that a frame begins with, and two bytes that are kept for a
/// count or a length.
fn room_beside(head: AckHead, room: usize) -> usize {
    let numbers: usize = head.numbers().into_iter().map(varint_len).sum();
    room.saturating_sub(1 + numbers + 2)
}

fn write_ranges(out: &mut Vec<u8>, head: AckHead, ranges: &[(u64, u64)]) {
    emit_numbers(out, ACK, head.numbers());
    write_varint(out, ranges.len() as u64);
    let mut above = None;
    for &(low, high) in ranges {
        if let Some(above) = above.replace(low) {
            write_varint(out, above - high - 2);
        }
        write_varint(out, high - low);
    }
}

fn write_bitmap(out: &mut Vec<u8>, head: AckHead, ranges: &[(u64, u64)], bytes: usize) {
    let mut bits = vec![0; bytes];
    for number in ranges.iter().flat_map(|&(low, high)| low..=high) {
        if let Some(at) = (head.largest - number).checked_sub(1) {
            bits[(at / 8) as usize] |= 1 << (at % 8);
        }
    }
    emit_numbers(out, ACK_BITMAP, head.numbers());
    write_varint(out, bits.len() as u64);
    out.extend_from_slice(&bits);
}

/// How many ranges fit into `room` bytes as ranges, and the bytes that they take.
fn ranges_that_fit(ranges: &[(u64, u64)], room: usize) -> (usize, usize) {
    let (mut len, mut above) = (0, None);
    for (count, &(low, high)) in ranges.iter().enumerate() {
        let gap = above
            .replace(low)
            .map_or(0, |above: u64| varint_len(above - high - 2));
        let need = gap + varint_len(high - low);
        if count == MAX_RANGES || len + need > room {
            return (count, len);
        }
        len += need;
    }
    (ranges.len(), len)
}
