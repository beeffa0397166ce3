//! Rebuilding a block apart from receiving it, and what attempts in vain may cost.

use super::ChannelId;
use crate::time::{Duration, Instant};
use dfcp_fec::{BlockDecoder, FecError, SchemeId};

/// Bytes that a core multiplies and adds in a second, as measured (dense code, symbols of 1200 bytes).
/// RaptorQ takes about twice the time that this makes of its operations, Raptor five times: what is
/// estimated for them, and their budget, is that much short.
const BYTES_PER_SECOND: u64 = 60_000_000_000;
/// Of a core's time, what solves in vain may take in the long run: by chance 1 % of RaptorQ's fail.
const SHARE: u64 = 20;
/// And what they may take of it at once: ten of the largest blocks.
const BURST: Duration = Duration::from_millis(500);

/// Rebuilding one block; may run on any thread.
#[derive(Debug)]
pub struct SolveJob {
    /// Channel of the block.
    pub channel: ChannelId,
    /// The block.
    pub offset: u64,
    pub(super) len: u64,
    pub(super) scheme: SchemeId,
    pub(super) decoder: Box<dyn BlockDecoder>,
    pub(super) cost: Duration,
    pub(super) solved: Result<bool, FecError>,
}

impl SolveJob {
    pub(super) fn new(
        channel: ChannelId,
        (offset, len): (u64, u64),
        scheme: SchemeId,
        decoder: Box<dyn BlockDecoder>,
    ) -> Self {
        let bytes = decoder
            .solve_operations()
            .saturating_mul(decoder.spec().symbol_size() as u64);
        Self {
            channel,
            offset,
            len,
            scheme,
            decoder,
            cost: Duration::from_nanos(bytes / (BYTES_PER_SECOND / 1_000_000_000)),
            solved: Ok(false),
        }
    }

    /// Does the work.
    pub fn run(&mut self) {
        self.solved = self.decoder.solve();
    }

    /// What [`SolveJob::run`] costs, in multiply-accumulates of whole symbols, for hosts that
    /// simulate time; a repair symbol costs its sender K of them.
    pub fn symbol_operations(&self) -> u64 {
        self.decoder.solve_operations()
    }

    /// Bytes of a symbol.
    pub fn symbol_size(&self) -> usize {
        self.decoder.spec().symbol_size()
    }

    /// About how long [`SolveJob::run`] takes: to a factor, see above.
    pub fn estimated_time(&self) -> Duration {
        self.cost
    }

    /// What was spent in vain, if the block is not complete.
    pub(crate) fn wasted(&self) -> Duration {
        match self.solved {
            Ok(true) => Duration::ZERO,
            _ => self.cost,
        }
    }
}

/// Time that a connection's solves in vain may still take: who chooses symbols so that they never
/// suffice makes us work for nothing.
#[derive(Debug)]
pub struct SolveBudget {
    left: Duration,
    at: Instant,
}

impl SolveBudget {
    /// The whole budget.
    pub fn new(now: Instant) -> Self {
        let left = BURST;
        Self { left, at: now }
    }

    /// Takes `cost` of it; false if so much is not left.
    pub fn spend(&mut self, now: Instant, cost: Duration) -> bool {
        let regained = now.saturating_since(self.at) / SHARE as u32;
        self.left = (self.left + regained).min(BURST);
        self.at = now;
        let left = self.left.checked_sub(cost);
        self.left = left.unwrap_or_default();
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twentieth_of_the_time_may_be_spent_and_half_a_second_at_once() {
        let start = Instant::from_nanos(1_000_000_000);
        let mut budget = SolveBudget::new(start);
        let ms = Duration::from_millis;
        assert!(budget.spend(start, ms(300)) && budget.spend(start, ms(200)));
        assert!(!budget.spend(start, ms(1)));
        assert!(budget.spend(start + ms(1000), ms(50)));
        assert!(!budget.spend(start + ms(1000), ms(1)));
        assert!(!budget.spend(start + ms(1_000_000), ms(501)));
    }
}
