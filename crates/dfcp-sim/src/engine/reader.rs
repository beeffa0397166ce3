//! An application that reads what arrived no faster than it can: it takes a packet's worth when the
//! time for one has passed (Chameleon §IV-B).

use super::DfcpPayload;
use crate::pair::pattern;
use dfcp_proto::{ChannelId, Connection, Duration, Instant, Rate, Read};

/// How fast an application reads from when on; `None` for as fast as data come. In order of time;
/// before the first it is not held back.
pub type ReadingRates = Vec<(Instant, Option<Rate>)>;

/// Bytes taken at a time at the least.
const PIECE: f64 = 1000.0;
/// A fast reader takes what comes in this time.
const TICK: Duration = Duration::from_millis(1);

/// An application that reads no faster than it can; it owns neither data nor clock.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    rates: ReadingRates,
    /// How many of them have come.
    begun: usize,
    rate: Option<Rate>,
    /// Bytes that it may take; below zero after a block larger than it could take at once.
    allowed: f64,
    updated: Instant,
}

impl Reader {
    /// One that reads at these rates.
    pub fn new(rates: &ReadingRates) -> Self {
        Self {
            rates: rates.clone(),
            ..Self::default()
        }
    }

    fn piece(rate: Rate) -> f64 {
        PIECE.max(rate.bytes_in(TICK) as f64)
    }

    /// Bytes that it takes now: none until there is time for a piece.
    pub fn available(&mut self, now: Instant) -> u64 {
        while let Some(&(at, rate)) = self.rates.get(self.begun)
            && at <= now
        {
            self.pass(at);
            (self.rate, self.begun) = (rate, self.begun + 1);
        }
        self.pass(now);
        match self.rate {
            None => u64::MAX,
            // A nanosecond's rounding is not worth another wake-up.
            Some(rate) if self.allowed + 1.0 >= Self::piece(rate) => self.allowed.ceil() as u64,
            Some(_) => 0,
        }
    }

    /// Time passes; one that finds nothing to read is not faster afterwards.
    fn pass(&mut self, now: Instant) {
        if let Some(rate) = self.rate {
            let elapsed = now.saturating_since(self.updated).as_secs_f64();
            let allowed = self.allowed + rate.as_bps() as f64 / 8.0 * elapsed;
            self.allowed = allowed.min(Self::piece(rate));
        }
        self.updated = self.updated.max(now);
    }

    /// It has taken so much.
    pub fn took(&mut self, bytes: u64) {
        if self.rate.is_some() {
            self.allowed -= bytes as f64;
        }
    }

    /// When it may take more than it may now.
    pub fn next(&self) -> Option<Instant> {
        let change = self.rates.get(self.begun).map(|(at, _)| *at);
        let piece = self.rate.and_then(|rate| {
            let missing = Self::piece(rate) - self.allowed;
            (missing >= 1.0).then(|| self.updated + rate.time_for(missing.ceil() as u64))
        });
        change.into_iter().chain(piece).min()
    }
}

/// What a reader took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    pub len: u64,
    /// Bytes that it was told to be missing.
    pub missing: u64,
    /// The end was read.
    pub ended: bool,
    /// Bytes that are not those of the pattern.
    pub wrong: u64,
}

impl Taken {
    fn check(bytes: &[u8], offset: u64) -> Self {
        let expected = bytes.iter().zip(offset..);
        Self {
            len: bytes.len() as u64,
            wrong: expected.filter(|&(&b, o)| b != pattern(o)).count() as u64,
            ..Self::default()
        }
    }

    fn length(len: u64) -> Self {
        Self {
            len,
            ..Self::default()
        }
    }
}

/// Takes a complete block of an object, or a gap.
pub(super) fn take_block(
    connection: &mut Connection,
    now: Instant,
    channel: ChannelId,
    payload: DfcpPayload,
) -> Option<Taken> {
    let block = match payload {
        DfcpPayload::Virtual => {
            let block = connection.take_virtual_block(now, channel);
            block.ok()?.map(|(_, len)| Taken::length(len))
        }
        DfcpPayload::Real => {
            let block = connection.take_block(now, channel);
            block.ok()?.map(|(offset, bytes)| {
                let taken = Taken::check(&bytes, offset);
                connection.recycle(now, bytes);
                taken
            })
        }
    };
    block.or_else(|| {
        let gap = connection.take_gap(channel)?;
        Some(Taken {
            missing: gap.end - gap.start,
            ..Taken::default()
        })
    })
}

/// Reads a stream on from `offset`: at most `most` bytes.
pub(super) fn take_bytes(
    connection: &mut Connection,
    now: Instant,
    channel: ChannelId,
    payload: DfcpPayload,
    (offset, most): (u64, usize),
) -> Option<Taken> {
    let mut bytes = Vec::new();
    let read = match payload {
        DfcpPayload::Virtual => connection.read_virtual(now, channel, most),
        DfcpPayload::Real => {
            bytes.resize(most, 0);
            connection.read(now, channel, &mut bytes)
        }
    };
    Some(match (read.ok()?, payload) {
        (Read::Data(n), DfcpPayload::Virtual) => Taken::length(n as u64),
        (Read::Data(n), DfcpPayload::Real) => Taken::check(&bytes[..n], offset),
        (Read::Gap(missing), _) => Taken {
            missing,
            ..Taken::default()
        },
        (Read::End, _) => Taken {
            ended: true,
            ..Taken::default()
        },
        (Read::Blocked, _) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_at_its_rate_whatever_waits() {
        let at = |s| Instant::ZERO + Duration::from_secs(s);
        let rates = vec![
            (at(0), Some(Rate::from_bps(600_000))),
            (at(10), Some(Rate::from_bps(100_000))),
            (at(20), None),
        ];
        let mut reader = Reader::new(&rates);
        let (mut now, mut read) = (Instant::ZERO, [0; 2]);
        while now < at(20) {
            let n = reader.available(now);
            if n > 0 && now < at(20) {
                reader.took(n);
                read[usize::from(now >= at(10))] += n;
            }
            now = reader.next().expect("it waits for the next piece");
        }
        assert!((749_000..=751_000).contains(&read[0]), "{read:?}");
        assert!((124_000..=126_000).contains(&read[1]), "{read:?}");
        assert_eq!(reader.available(at(20)), u64::MAX);
        assert_eq!(reader.next(), None);
    }
}
