//! What a peer may make us hold: the receive credit of a connection, and the memory that the
//! connections of an endpoint share.
//!
//! Each connection has a floor that nobody can take from it. What is left of the endpoint's memory
//! is lent: a connection may have as much beyond its floor as is still free, at most. So n
//! connections that want all they can get have an (n + 1)th of it each, whoever comes next finds
//! some, and what is lent never passes what there is (dynamic thresholds, Choudhury and Hahne 1998).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Least credit of a connection: seven of the largest blocks of `auto`, so that one is filled while
/// others are repaired.
pub(crate) const MIN_FLOOR: u64 = 1 << 20;
/// What is left to each stream of its first window at least, bytes: three packets while more than a
/// [`LAST_PART`] of the credit is free, then two of a sender's least pieces: with one a stream whose limit moves
/// by quarters could be stuck.
const LEAST_FIRST_WINDOW: u64 = 4 << 10;
const LAST_FIRST_WINDOW: u64 = 2 << 10;
/// The part of the credit that only first windows may use: of a proxy's 256 MiB it has 2 KiB and the charges of
/// two blocks for each of 16,384 streams.
const LAST_PART: u64 = 6;
/// Least number of streams among which half of what is free beyond that part is divided: what one of them may have is
/// enough for a fast path. With half, what is left falls with the root of how many stop with all that they were
/// given, not with their number: no rule leaves the next of them more than 1/(e n) without knowing how many
/// come, and this one leaves a third of that after a hundred.
const LEAST_SHARES: u64 = 8;
/// The part of what was read of a stream that it may be ahead of its reader whatever its share is.
const EARNED_PART: u64 = 8;
/// Buffers kept for reuse.
const MAX_POOLED: usize = 16;
/// Bytes that a settled range above a hole takes: two offsets and their share of a tree.
const RANGE: u64 = 64;
/// Of the credit, what may be held besides: decoders that need more than their blocks, symbols of
/// blocks that do not get solved, buffers to be used again.
const BESIDE: u64 = 4;

/// Memory that the connections of an endpoint share.
#[derive(Debug)]
pub struct MemoryBudget {
    floor: u64,
    lendable: u64,
    lent: AtomicU64,
}

impl MemoryBudget {
    /// `total` bytes for up to `connections`, half of them as their floors: at least
    /// 1 MiB each, however little `total` is.
    pub fn new(total: u64, connections: usize) -> Arc<Self> {
        let connections = connections.max(1) as u64;
        let floor = (total / 2 / connections).max(MIN_FLOOR);
        Arc::new(Self {
            floor,
            lendable: total.saturating_sub(floor.saturating_mul(connections)),
            lent: AtomicU64::new(0),
        })
    }

    /// What a connection always has, unless it takes less (`most`).
    pub fn floor(&self, most: u64) -> u64 {
        self.floor.min(most)
    }
}

/// What one connection has of the budget: its floor, and what it borrowed.
#[derive(Debug)]
pub struct Lease {
    budget: Arc<MemoryBudget>,
    floor: u64,
    /// Beyond the floor.
    borrowed: u64,
}

impl Lease {
    /// Nothing borrowed yet; with a floor of `most`, if that is less.
    pub fn new(budget: Arc<MemoryBudget>, most: u64) -> Self {
        Self {
            floor: budget.floor(most),
            budget,
            borrowed: 0,
        }
    }

    /// What is set aside.
    pub fn reserved(&self) -> u64 {
        self.floor + self.borrowed
    }

    /// What it may have now: its floor, and half of what the others leave.
    pub fn room(&self) -> u64 {
        let lent = self.budget.lent.load(Ordering::Relaxed) - self.borrowed;
        self.floor + self.budget.lendable.saturating_sub(lent) / 2
    }

    /// Has `bytes` set aside instead, or its floor if they are less.
    pub fn resize(&mut self, bytes: u64) {
        let borrowed = bytes.saturating_sub(self.floor);
        let lent = &self.budget.lent;
        lent.fetch_add(borrowed, Ordering::Relaxed);
        lent.fetch_sub(
            std::mem::replace(&mut self.borrowed, borrowed),
            Ordering::Relaxed,
        );
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.resize(0);
    }
}

/// Bytes held beside the charge of a block, or of all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside {
    /// Of decoders that need more than their blocks, and of buffers that are larger.
    pub excess: u64,
    /// Of symbols beyond those that should have sufficed.
    pub stuck: u64,
}

/// What a stream may be ahead of its reader beyond its first window, or all streams, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ahead {
    /// What the peer was told.
    pub promised: u64,
    /// What is held of it.
    pub held: u64,
}

/// A connection's receive credit, in block charges; cumulative, so that losing an update costs
/// nothing.
#[derive(Debug)]
pub struct Credit {
    /// What the peer may use.
    pub granted: u64,
    /// What it used.
    pub used: u64,
    /// What the application is done with.
    pub freed: u64,
    /// What is held beside the charges.
    beside: Beside,
    /// Settled ranges above holes, of all channels.
    pub ranges: u64,
    /// What streams may be ahead of their readers beyond their first windows, in all.
    ahead: Ahead,
    /// How many of them may.
    streams_ahead: u64,
    /// How much of their first windows streams may use, as the peer was told; not told yet if `MAX`.
    pub first_window: u64,
    /// Most that may be used and not freed.
    most: u64,
    lease: Lease,
    pool: Vec<Vec<u8>>,
}

impl Credit {
    /// Credit of at most `most` at a time. A peer that was told of the floor only, before there was
    /// a connection, hears of the rest in reports.
    pub fn new(most: u64, budget: Arc<MemoryBudget>) -> Self {
        let lease = Lease::new(budget, most);
        Self {
            granted: lease.reserved(),
            used: 0,
            freed: 0,
            beside: Beside::default(),
            ranges: 0,
            ahead: Ahead::default(),
            streams_ahead: 0,
            first_window: u64::MAX,
            most,
            lease,
            pool: Vec::new(),
        }
    }

    /// What the peer may still make us hold with what it was granted.
    fn window(&self) -> u64 {
        self.granted - self.freed
    }

    /// What is set aside for this connection.
    pub fn reserved(&self) -> u64 {
        self.lease.reserved()
    }

    /// What would be granted now.
    pub fn grantable(&self) -> u64 {
        self.freed + self.most_now().saturating_sub(self.ranges * RANGE)
    }

    /// Most that may be used and not freed now: other connections have the rest.
    fn most_now(&self) -> u64 {
        self.lease.room().min(self.most)
    }

    /// What a stream that has `own` of the credit, held and promised, may be ahead of its reader beyond its first
    /// window. Alone it has a quarter of the credit, and less with the square of what others leave of a half. Where
    /// they leave little it has its share of what is free but for the last part, which is for first windows: so
    /// however many stop reading there is some credit for who comes next.
    ///
    /// One that goes on being read earns more: an eighth of the `read` bytes, and a sixteenth of what is free beyond a
    /// third at most. So those that stop hold little of what they took, and however many do, the others have their
    /// shares.
    pub fn room_ahead(&self, own: u64, read: u64) -> u64 {
        let (free, all) = self.unclaimed();
        let (free, half) = ((free + own).min(all), all / 2);
        let shared = free.saturating_sub(all / LAST_PART) / 2;
        let share = shared / (self.streams_ahead + LEAST_SHARES);
        let spare = free.saturating_sub(2 * all / LAST_PART) / 2;
        let earned = (read / EARNED_PART).min(spare / LEAST_SHARES);
        square(half / 2, free.saturating_sub(half), half)
            .max(share)
            .max(earned)
    }

    /// What is free of the credit and not promised beyond first windows, and all of it.
    fn unclaimed(&self) -> (u64, u64) {
        let end = self.granted.max(self.grantable());
        let promised = self.ahead.promised - self.ahead.held;
        let free = end.saturating_sub(self.used + promised);
        (free, end.saturating_sub(self.freed))
    }

    /// How much of its first window, which has `initial` bytes, a stream may use now: all while three quarters of
    /// the credit are free and not promised, and less with the square of what is beyond a half. That one is for
    /// streams that are read, and for what is under way when the peer hears of it.
    pub fn first_window_now(&self, initial: u64) -> u64 {
        let (free, all) = self.unclaimed();
        let quarter = all / 4;
        let part = free.saturating_sub(all / 2).min(quarter);
        let least = match free < all / LAST_PART {
            true => LAST_FIRST_WINDOW,
            false => LEAST_FIRST_WINDOW,
        };
        square(initial, part, quarter).max(least.min(initial))
    }

    /// A stream may be so far ahead now, instead of `own`.
    pub fn set_ahead(&mut self, own: &mut Ahead, ahead: Ahead) {
        self.ahead.promised = self.ahead.promised - own.promised + ahead.promised;
        self.ahead.held = self.ahead.held - own.held + ahead.held;
        let is_ahead = |of: &Ahead| u64::from(of.promised > 0);
        self.streams_ahead = self.streams_ahead - is_ahead(own) + is_ahead(&ahead);
        *own = ahead;
    }

    /// Grants it, and says how much that is in all.
    pub fn grant(&mut self) -> u64 {
        self.granted = self.granted.max(self.grantable());
        self.lease.resize(self.window());
        self.granted
    }

    /// Whether `excess` more bytes may be held beside the blocks; buffers make way.
    pub fn has_room_beside(&mut self, excess: u64) -> bool {
        let (room, held) = (self.reserved() / BESIDE, self.held() + excess);
        while held + self.pooled() > room && self.pool.pop().is_some() {}
        held <= room
    }

    fn held(&self) -> u64 {
        self.beside.excess + self.beside.stuck
    }

    /// Counts what is held beside a block.
    pub fn hold(&mut self, beside: Beside) {
        self.beside.excess += beside.excess;
        self.beside.stuck += beside.stuck;
    }

    /// And no longer.
    pub fn let_go(&mut self, beside: Beside) {
        self.beside.excess -= beside.excess;
        self.beside.stuck -= beside.stuck;
    }

    /// Whether blocks that do not get solved hold more than chance explains: of RaptorQ's one in a
    /// hundred needs a symbol more.
    pub fn is_stuck(&self) -> bool {
        self.beside.stuck > self.reserved() / BESIDE
    }

    fn pooled(&self) -> u64 {
        self.pool
            .iter()
            .map(|buffer| buffer.capacity() as u64)
            .sum()
    }

    /// A buffer for a block of `len` bytes, of one that was before.
    pub fn buffer(&mut self, len: u64) -> Vec<u8> {
        let buffer = self.pool.pop().unwrap_or_default();
        match buffer.capacity() as u64 > 4 * len {
            true => Vec::new(), // the next ones are as small
            false => buffer,
        }
    }

    /// Takes a buffer back; what it holds is not worth clearing.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        let bytes = buffer.capacity() as u64;
        let room = self.reserved() / BESIDE;
        if self.pool.len() < MAX_POOLED && self.held() + self.pooled() + bytes <= room {
            self.pool.push(buffer);
        }
    }
}

/// `of` times the square of `part` / `whole`.
pub(crate) fn square(of: u64, part: u64, whole: u64) -> u64 {
    let (part, whole) = (u128::from(part), u128::from(whole.max(1)));
    (u128::from(of) * part / whole * part / whole) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{ChannelId, ChannelKind, Received, RecvChannel, Role, SymbolIn, charge};
    use crate::config::TransportConfig;
    use dfcp_fec::SchemeId;

    const MIB: u64 = 1 << 20;

    #[test]
    fn connections_that_want_everything_share_it_and_leave_some_to_the_next() {
        let budget = MemoryBudget::new(128 * MIB, 64);
        let open = || Credit::new(128 * MIB, budget.clone());
        let mut greedy: Vec<Credit> = (0..3).map(|_| open()).collect();
        // They use and free what they have, and ask again.
        for _ in 0..100 {
            for credit in &mut greedy {
                credit.grant();
                credit.used = credit.granted;
                credit.freed = credit.used;
            }
        }
        for credit in &mut greedy {
            credit.grant();
        }
        for credit in &greedy {
            assert!(credit.window().abs_diff(17 * MIB) <= 2 * MIB, "{credit:?}");
        }
        let mut next = open();
        next.grant();
        assert!(next.window() >= 8 * MIB, "{next:?}");
        drop(greedy);
        next.grant();
        assert_eq!(next.window(), 33 * MIB, "what the others had is free");
    }

    #[test]
    fn connections_that_keep_all_they_get_never_pass_the_budget() {
        let budget = MemoryBudget::new(128 * MIB, 64);
        let mut all: Vec<Credit> = Vec::new();
        for _ in 0..64 {
            all.push(Credit::new(32 * MIB, budget.clone()));
            for credit in &mut all {
                credit.grant();
                credit.used = credit.granted;
            }
            let held: u64 = all.iter().map(Credit::window).sum();
            assert!(held <= 128 * MIB, "{} hold {held}", all.len());
        }
        assert!(all.iter().all(|credit| credit.window() >= MIB));
    }

    #[test]
    fn what_streams_may_be_ahead_of_their_readers_is_divided_among_them() {
        let mut credit = Credit::new(16 * MIB, MemoryBudget::new(64 * MIB, 1));
        let (mut first, mut second) = (Ahead::default(), Ahead::default());
        let told = |promised| Ahead { promised, held: 0 };
        let share = |free, others| (free - 16 * MIB / LAST_PART) / 2 / (others + LEAST_SHARES);
        assert_eq!(credit.room_ahead(0, 0), 4 * MIB);
        credit.set_ahead(&mut first, told(4 * MIB));
        // One stream's own does not count against it.
        assert_eq!(
            (
                credit.room_ahead(first.promised, 0),
                credit.room_ahead(0, 0)
            ),
            (4 * MIB, MIB)
        );
        // What is held counts once.
        (credit.used, credit.first_window) = (2 * MIB, 0);
        let held = Ahead {
            promised: 4 * MIB,
            held: 2 * MIB,
        };
        credit.set_ahead(&mut first, held);
        assert_eq!(credit.room_ahead(0, 0), MIB);
        credit.set_ahead(&mut second, told(6 * MIB));
        assert_eq!(credit.room_ahead(0, 0), share(6 * MIB, 2));
        credit.set_ahead(&mut first, told(0));
        credit.used = 0;
        assert_eq!(credit.room_ahead(0, 0), share(10 * MIB, 1));
    }

    /// Others came, were read for a while and then held all that they might, block charges included.
    fn stop(credit: &mut Credit, others: usize, read: u64) {
        for n in 0..others {
            let first = credit.first_window_now(MIB / 2);
            let promised = credit.room_ahead(0, read).min(8 * MIB);
            credit.set_ahead(
                &mut Ahead::default(),
                Ahead {
                    promised,
                    held: promised,
                },
            );
            credit.used += first + promised + 2 * charge(0);
            assert!(credit.used < credit.granted, "{n} have all of it");
        }
    }

    #[test]
    fn however_many_streams_stop_there_is_credit_for_the_next() {
        let most = 256 * MIB;
        for read in [0, u64::MAX] {
            let mut credit = Credit::new(most, MemoryBudget::new(4 * most, 1));
            credit.grant();
            stop(&mut credit, 16_384, read);
        }
    }

    #[test]
    fn a_stream_that_goes_on_being_read_earns_more_than_a_share_and_leaves_others_theirs() {
        let most = 32 * MIB;
        let open = || {
            let mut credit = Credit::new(most, MemoryBudget::new(4 * most, 1));
            credit.grant();
            credit
        };
        // A hundred that were read slowly have stopped, and leave 14 MiB.
        let mut credit = open();
        for _ in 0..100 {
            let (promised, held) = (48 << 10, 48 << 10);
            credit.set_ahead(&mut Ahead::default(), Ahead { promised, held });
        }
        credit.used = 18 * MIB;
        let share = credit.room_ahead(0, 0);
        assert_eq!(share, (14 * MIB - most / LAST_PART) / 2 / 108);
        assert_eq!(credit.room_ahead(0, 8 * share), share);
        assert_eq!(credit.room_ahead(0, 16 * share), 2 * share);
        assert!(credit.room_ahead(0, u64::MAX) > 4 * share);
        // A third is not to be earned: whoever comes after many that have earned all they could has a share of it.
        let after = |read| {
            let mut credit = open();
            stop(&mut credit, 100, read);
            credit.room_ahead(0, 0)
        };
        let (unearned, earned) = (after(0), after(u64::MAX));
        assert!(2 * earned > unearned, "{earned} instead of {unearned}");
    }

    #[test]
    fn first_windows_are_whole_while_three_quarters_are_free_and_half_stays_for_those_that_are_read()
     {
        let mut credit = Credit::new(16 * MIB, MemoryBudget::new(64 * MIB, 1));
        credit.grant();
        let mut at = |used: u64| {
            credit.used = used;
            credit.first_window_now(MIB)
        };
        assert_eq!((at(0), at(4 * MIB), at(5 * MIB)), (MIB, MIB, 9 * MIB / 16));
        assert_eq!((at(6 * MIB), at(7 * MIB)), (MIB / 4, MIB / 16));
        let least = (LEAST_FIRST_WINDOW, LAST_FIRST_WINDOW);
        assert_eq!((at(8 * MIB), at(15 * MIB)), least);
        // What nobody reads, one after the other, never gets there.
        let mut held = 0;
        for _ in 0..1000 {
            held += at(held);
        }
        assert!(held < 16 * MIB, "{held}");
        assert_eq!(credit.first_window_now(1000), 1000);
        credit.freed = credit.used;
        assert_eq!(credit.first_window_now(MIB), MIB);
    }

    #[test]
    fn ranges_that_are_kept_lessen_what_is_granted_and_nothing_is_taken_back() {
        let mut credit = Credit::new(4 * MIB, MemoryBudget::new(64 * MIB, 1));
        assert_eq!((credit.reserved(), credit.grant()), (4 * MIB, 4 * MIB));
        credit.used = MIB;
        credit.freed = MIB;
        credit.ranges = 1000;
        assert_eq!(credit.grantable(), 5 * MIB - 64_000);
        credit.ranges = 1 << 20;
        assert_eq!((credit.grantable(), credit.grant()), (MIB, 4 * MIB));
    }

    /// A quarter of the credit, here 1 MiB.
    #[test]
    fn what_is_held_beside_blocks_is_bounded_and_buffers_make_way() {
        let mut credit = Credit::new(4 * MIB, MemoryBudget::new(64 * MIB, 1));
        assert!(credit.has_room_beside(MIB) && !credit.has_room_beside(MIB + 1));
        let part = Beside {
            excess: 300_000,
            stuck: 200_000,
        };
        credit.hold(part);
        assert!(credit.has_room_beside(MIB - 500_000));
        assert!(!credit.has_room_beside(MIB + 1 - 500_000));
        credit.recycle(vec![0; (MIB - 500_000) as usize + 1]);
        assert_eq!(credit.pooled(), 0, "one byte too many");
        credit.recycle(vec![0; 300_000]);
        credit.recycle(vec![0; 200_000]);
        assert!(credit.has_room_beside(MIB - 1_000_000));
        assert_eq!(credit.pooled(), 500_000, "they fit");
        assert!(credit.has_room_beside(MIB - 800_000));
        assert_eq!(credit.pooled(), 300_000, "as many went as had to");
        credit.let_go(part);
        assert!(credit.has_room_beside(MIB) && credit.pooled() == 0);
    }

    #[test]
    fn blocks_that_do_not_get_solved_may_hold_a_quarter_of_the_credit() {
        let mut credit = Credit::new(4 * MIB, MemoryBudget::new(64 * MIB, 1));
        let stuck = |stuck| Beside { excess: MIB, stuck };
        credit.hold(stuck(MIB));
        assert!(!credit.is_stuck());
        credit.hold(stuck(1));
        assert!(credit.is_stuck());
        credit.let_go(stuck(1));
        assert!(!credit.is_stuck());
    }

    #[test]
    fn a_buffer_is_used_again_unless_it_is_far_too_large() {
        let mut credit = Credit::new(4 * MIB, MemoryBudget::new(64 * MIB, 1));
        for (len, capacity) in [(10_000, 40_000), (9_999, 0)] {
            credit.recycle(Vec::with_capacity(40_000));
            assert_eq!(credit.buffer(len).capacity(), capacity);
            assert_eq!(credit.buffer(len).capacity(), 0, "each once");
        }
        for _ in 0..2 * MAX_POOLED {
            credit.recycle(Vec::with_capacity(100));
        }
        assert_eq!(credit.pool.len(), MAX_POOLED);
    }

    /// What waits above a hole is read when the hole is filled: it must not be in the way of that.
    #[test]
    fn a_hole_is_filled_though_others_have_taken_the_room_since() {
        const LEN: u64 = 40_000;
        let budget = MemoryBudget::new(128 * MIB, 64);
        let mut credit = Credit::new(32 * MIB, budget.clone());
        credit.grant();
        let id = ChannelId::new(Role::Client, ChannelKind::Stream, 0);
        let mut recv = RecvChannel::new(id, &TransportConfig::default());
        // Buffers of larger blocks, which came before.
        for _ in 0..MAX_POOLED {
            credit.recycle(vec![0; 150_000]);
        }
        let data = [7; 1250];
        let arrives = |recv: &mut RecvChannel, credit: &mut Credit, block: u64| {
            let symbol = |esi| SymbolIn {
                scheme: SchemeId::Dense,
                offset: block * LEN,
                block_len: LEN,
                esi,
                len: data.len(),
                data: &data,
            };
            (0..32)
                .map(|esi| recv.on_symbol(&symbol(esi), credit).expect("honest"))
                .last()
        };
        for block in 1..=16 {
            let last = arrives(&mut recv, &mut credit, block);
            assert_eq!(last, Some(Received::Complete), "block {block}");
        }
        let mut others: Vec<Credit> = (0..20)
            .map(|_| Credit::new(32 * MIB, budget.clone()))
            .collect();
        for _ in 0..20 {
            for other in &mut others {
                other.grant();
                other.used = other.granted;
            }
            // Another stream uses what there is but for the hole, and is read.
            let rest = credit.granted - credit.used - charge(LEN);
            (credit.used, credit.freed) = (credit.used + rest, credit.freed + rest);
            credit.grant();
        }
        assert_eq!(arrives(&mut recv, &mut credit, 0), Some(Received::Complete));
        assert!(recv.read(&mut [0; 100], &mut credit) > 0);
    }
}
