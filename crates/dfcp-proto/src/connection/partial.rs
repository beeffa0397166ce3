//! Partial reliability: giving blocks up, telling the peer, and hearing of it.

use super::{CloseCode, Connection, Control, Event};
use crate::block::{ChannelId, GivenUp, RecvChannel, SendChannel, Skip};
use crate::time::{Duration, Instant};

/// Longest time that a gap waits to be told with others; a quarter of a round trip if that is
/// shorter. Control frames are not paced, so there must be few packets of them.
const MAX_TELL_DELAY: Duration = Duration::from_millis(20);

/// Settled ranges above holes of all channels beside which gaps that cost no credit are taken: as many as
/// a single channel may have, some 4 MB.
const MAX_RANGES: u64 = 1 << 16;

impl Connection {
    /// Gives up what may not be sent any more, and tells the peer what is due to be told.
    pub(super) fn give_up(&mut self, now: Instant) {
        self.give_up_by(now, |send| send.give_up(now));
        if self.out.tell_skips.is_some_and(|at| at <= now) {
            self.out.tell_skips = None;
            for (id, send) in self.channels.senders_mut() {
                let skips = send.tell_skips();
                let frames = skips.into_iter().map(|s| Control::Skip(id, s));
                self.out.control.extend(frames);
            }
        }
    }

    /// After a probe timeout: blocks whose last report does not come are given up too.
    pub(super) fn give_up_undecided(&mut self, now: Instant) {
        self.give_up_by(now, SendChannel::give_up_undecided);
    }

    fn give_up_by(&mut self, now: Instant, give_up: impl Fn(&mut SendChannel) -> GivenUp) {
        if !self.config.reliability.is_partial() {
            return;
        }
        let (mut total, mut freed) = (GivenUp::default(), Vec::new());
        for (id, send) in self.channels.senders_mut() {
            let unsent = send.unsent_bytes();
            let given_up = give_up(send);
            let given_up_unsent = unsent - send.unsent_bytes();
            self.out.unsent = self.out.unsent.saturating_sub(given_up_unsent);
            if given_up.freed > 0 {
                total += given_up;
                freed.push(id);
            }
        }
        self.stats.blocks_abandoned += total.blocks;
        self.stats.blocks_never_sent += total.unsent;
        self.stats.bytes_abandoned += total.bytes;
        self.out.let_go(total.freed);
        if total.blocks > 0 {
            let delay = (self.out.path.rtt.smoothed() / 4).min(MAX_TELL_DELAY);
            self.out.tell_skips.get_or_insert(now + delay);
        }
        if !freed.is_empty() {
            self.notify_waiting();
        }
        freed.into_iter().for_each(|id| self.check_acknowledged(id));
    }

    /// When blocks become too old, or the peer is to be told of gaps.
    pub(super) fn give_up_time(&self) -> Option<Instant> {
        let senders = self.channels.senders();
        let expiry = self.config.reliability.deadline().and_then(|_| {
            let expiries = senders.filter_map(|(_, send)| send.next_expiry());
            expiries.min()
        });
        expiry.into_iter().chain(self.out.tell_skips).min()
    }

    /// The peer gave bytes of a channel up.
    pub(super) fn on_skip(
        &mut self,
        now: Instant,
        id: ChannelId,
        skip: &Skip,
    ) -> Result<(), CloseCode> {
        if !id.can_receive(self.role) {
            return Err(CloseCode::PROTOCOL);
        }
        self.touch(id);
        let Some(recv) = self.channels.receiver(id) else {
            self.stats.skips_ignored += 1;
            return Ok(());
        };
        let (before, missing) = (recv.readiness(), recv.missing());
        if !recv.on_skip(skip, &mut self.inc.credit)? {
            self.stats.skips_ignored += 1;
            return Ok(());
        }
        // No credit bounds gaps of what was never sent, and each is kept.
        if skip.charged == 0 && self.inc.credit.ranges > MAX_RANGES {
            return Err(CloseCode::LIMIT);
        }
        self.stats.skips_received += 1;
        self.stats.bytes_skipped += recv.missing() - missing;
        if recv.readiness() > before {
            self.events.push_back(Event::Readable(id));
        }
        self.on_block_settled(now, id);
        self.offer_credit(now);
        Ok(())
    }

    /// Takes the lowest gap of an object that the application was not told of: bytes that the peer
    /// gave up. Gaps of streams are told by [`super::Read::Gap`].
    pub fn take_gap(&mut self, id: ChannelId) -> Option<std::ops::Range<u64>> {
        let recv = self.channels.receiver(id)?;
        recv.take_gap(&mut self.inc.credit)
    }

    /// Bytes of the channel that the peer gave up so far.
    pub fn missing(&self, id: ChannelId) -> u64 {
        let recv = self.channels.peek_receiver(id);
        recv.map_or(0, RecvChannel::missing)
    }
}
