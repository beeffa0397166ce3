//! How far the peer may be ahead of a stream's reader.

use super::RecvChannel;
use crate::block::ChannelKind;
use crate::block::credit::{Ahead, Credit};
use crate::time::{Duration, Instant};

/// How many times what was read of a stream in a round trip the peer may be ahead of its reader. While the search
/// for the rate doubles what is in flight each round trip, twice what was read in the last one is in flight when a
/// limit is told, and as much again before it arrives; order waits for a lost symbol one round trip more, in
/// which the flight doubles again. With half of it 10 MiB over 200 Mbit/s, 200 ms and 5 % loss took 2.8 s instead of
/// 1.8; more would only give more to who reads a little and stops.
const READ_AHEAD: u64 = 8;
/// What the reader of a stream takes in a round trip, or what comes of it, bytes (dynamic right-sizing, Fisk and
/// Feng 2001). A window that follows it holds, of a reader that stops, what it was good for; one that follows all
/// that was ever read gives a slow reader as much as a fast one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadingPace {
    /// When the round began, and at which offset.
    begun: Instant,
    begun_at: u64,
    /// How much it was in the last round, or in this one if that is more.
    in_round: u64,
}

impl ReadingPace {
    fn update(&mut self, now: Instant, offset: u64, round_trip: Duration) {
        let read = offset - self.begun_at;
        if now >= self.begun + round_trip {
            (self.begun, self.begun_at, self.in_round) = (now, offset, read);
        } else {
            self.in_round = self.in_round.max(read);
        }
    }
}

impl RecvChannel {
    /// Whether the reader has taken all that there is in order: he would have taken what came behind what was lost.
    fn is_awaited(&self) -> bool {
        self.read_offset > 0 && self.in_order().is_none()
    }

    /// How far the peer may be ahead of the reader now, as far as other streams leave room: a few times what
    /// was read in a round trip, or would have been but for a loss, and `first` at least.
    fn window(&self, first: u64, credit: &Credit) -> u64 {
        let own = self.charged - self.freed + self.ahead.promised - self.ahead.held;
        let most = first + credit.room_ahead(own, self.read_offset);
        let arriving = if self.is_awaited() {
            self.arriving.in_round
        } else {
            0
        };
        let in_round = self.pace.in_round.max(arriving);
        let grown = in_round.saturating_mul(READ_AHEAD);
        grown.min(self.window).min(most).max(first)
    }

    /// Something was read, where a round trip takes `round_trip`.
    pub fn on_read(&mut self, now: Instant, round_trip: Duration) {
        self.pace.update(now, self.read_offset, round_trip);
    }

    /// So many bytes came that were not there, where a round trip takes `round_trip`.
    pub fn on_arrival(&mut self, now: Instant, bytes: u64, round_trip: Duration) {
        self.arrived += bytes;
        self.arriving.update(now, self.arrived, round_trip);
    }

    /// The same as [`Self::new_limit`] where nobody reads, as what is next was lost.
    pub fn new_limit_meanwhile(&mut self, credit: &mut Credit) -> Option<u64> {
        match self.is_awaited() {
            true => self.new_limit(credit),
            false => None,
        }
    }

    /// A new limit for the peer, if it moved enough to be worth saying.
    pub fn new_limit(&mut self, credit: &mut Credit) -> Option<u64> {
        let first = credit.first_window.min(self.initial_window);
        let withheld = self.initial_window - first;
        // The end may be known long before the peer was allowed to reach it.
        let enough = self
            .final_size
            .is_some_and(|size| self.limit >= size.saturating_add(withheld));
        if self.id.kind() == ChannelKind::Object || enough {
            self.count_ahead(credit);
            return None;
        }
        let window = self.window(first, credit);
        let limit = self.read_offset + withheld + window;
        let moved = limit >= self.limit + window / 4;
        if moved {
            self.limit = limit;
        }
        self.count_ahead(credit);
        moved.then_some(limit)
    }

    /// Has the credit know how far beyond its first window the peer may be ahead of the reader, and is.
    pub(super) fn count_ahead(&mut self, credit: &mut Credit) {
        if self.id.kind() == ChannelKind::Object {
            return;
        }
        let end = self
            .final_size
            .map_or(self.limit, |size| size.min(self.limit));
        let promised = end.saturating_sub(self.read_offset + self.initial_window);
        let first = credit.first_window.min(self.initial_window);
        let held = (self.charged - self.freed).saturating_sub(first);
        let held = held.min(promised);
        credit.set_ahead(&mut self.ahead, Ahead { promised, held });
    }

    /// What was read so far gives no window beyond the first any more.
    pub fn begin_anew(&mut self) {
        let anew = |begun_at| ReadingPace {
            begun_at,
            ..ReadingPace::default()
        };
        self.pace = anew(self.read_offset);
        self.arriving = anew(self.arrived);
    }

    /// The limit that the peer was told.
    pub fn limit(&self) -> u64 {
        self.limit
    }
}
