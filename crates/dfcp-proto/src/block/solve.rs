//! Rebuilding a block apart from receiving it, and what attempts in vain may cost.

use super::ChannelId;
use crate::time::{Duration, Instant};
use dfcp_fec::{BlockDecoder, FecError, SchemeId};

/// Bytes that a core gets through in a nanosecond, of the operations that a solve of `scheme` is
/// counted in, as measured with symbols of 1200 bytes. Dense codes multiply and add whole rows in
/// cache. RaptorQ and Raptor also search and allocate, and their largest blocks leave the caches:
/// these are the slowest of all sizes (RaptorQ 81 ms at K = 8192, Raptor 408 µs at K = 250 and twice
/// as much for each operation elsewhere), so that what is estimated is not short.
const fn bytes_per_nanosecond(scheme: SchemeId) -> u64 {
    match scheme {
        SchemeId::RaptorQ => 24,
        SchemeId::Raptor => 6,
        SchemeId::Arq | SchemeId::Dense | SchemeId::Rlnc => 60,
    }
}
/// Of a core's time, what solves in vain may take in the long run: by chance 1 % of RaptorQ's fail.
const SHARE: u64 = 20;
/// And what they may take of it at once: nine of the largest blocks.
const BURST: Duration = Duration::from_secs(1);

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
            cost: Duration::from_nanos(bytes / bytes_per_nanosecond(scheme)),
            solved: Ok(false),
        }
    }

    /// Source bytes of the block.
    pub(crate) fn bytes(&self) -> u64 {
        self.len
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

    /// About how long [`SolveJob::run`] takes, rather more than less.
    pub fn estimated_time(&self) -> Duration {
        self.cost
    }

    /// Bytes of memory that [`SolveJob::run`] takes beside the block, rather more than less.
    pub fn memory(&self) -> usize {
        self.decoder.solve_memory()
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
    use crate::block::block_spec;

    #[test]
    fn a_block_of_an_expensive_code_is_estimated_as_such() {
        let estimate = |scheme, k: u64| {
            let spec = block_spec(scheme, 0, 0, k * 1200, 1200).expect("a good block");
            let decoder = dfcp_fec::scheme(scheme).decoder(spec, Vec::new());
            let decoder = decoder.expect("a good block");
            SolveJob::new(ChannelId(0), (0, k * 1200), scheme, decoder).estimated_time()
        };
        // What they take on the machine that the rates come from.
        let us = Duration::from_micros;
        for (scheme, k, takes) in [
            (SchemeId::RaptorQ, 8192, us(81_000)),
            (SchemeId::Raptor, 250, us(408)),
        ] {
            let estimated = estimate(scheme, k);
            assert!(
                (takes..3 * takes).contains(&estimated),
                "{scheme:?}: {estimated:?}"
            );
        }
    }

    #[test]
    fn a_twentieth_of_the_time_may_be_spent_and_a_second_at_once() {
        let start = Instant::from_nanos(1_000_000_000);
        let mut budget = SolveBudget::new(start);
        let ms = Duration::from_millis;
        assert!(budget.spend(start, ms(600)) && budget.spend(start, ms(400)));
        assert!(!budget.spend(start, ms(1)));
        assert!(budget.spend(start + ms(1000), ms(50)));
        assert!(!budget.spend(start + ms(1000), ms(1)));
        assert!(!budget.spend(start + ms(1_000_000), ms(1001)));
    }
}
