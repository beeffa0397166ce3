//! The end: CLOSE is repeated until the peer answers with one of its own, or for three probe timeouts. Where nobody
//! holds the connection any more it begins once the peer has what was finished.

use super::transmit::{Batch, Contents};
use super::{ChannelId, CloseCode, Connection, ConnectionError, Event, State};
use crate::block::SendChannel;
use crate::observe::{Ending, Observation};
use crate::time::{Duration, Instant};
use crate::wire::{Frame, SEALED_HEADER_LEN, TAG_LEN};

/// How long a closed connection is kept at most, whatever its peer has made of the round trip: three probe
/// timeouts of a path of three seconds, such as a satellite's with a full queue. After it a peer that has
/// not heard of the end is answered as for any connection that is not known: by a reset.
const MAX_CLOSE_TIME: Duration = Duration::from_secs(30);

/// CLOSE packets that leave at once, at most: what one in a thousand needs where half is lost. They take less
/// than one full packet together.
const MOST_CLOSES: u8 = 10;

/// Bytes of a packet that says CLOSE without a reason, at most.
const BARE_CLOSE: u64 = (SEALED_HEADER_LEN + TAG_LEN + 32) as u64;

impl Connection {
    /// Ends the connection. What is not acknowledged may be lost.
    pub fn close(&mut self, now: Instant, code: CloseCode, reason: &str) {
        self.close_with(now, code, reason, ConnectionError::LocallyClosed);
    }

    /// Ends the connection as [`Connection::close`] does, without an error, once the peer has all that was finished,
    /// or stopped it, and what waits of datagrams has left: for who has nothing more to say. Nothing is received any
    /// more: the peer is asked to stop. It has to take something within each idle timeout, so that it cannot keep a
    /// connection for ever that nobody wants.
    pub fn close_when_delivered(&mut self, now: Instant) {
        if !self.is_established() || self.is_delivered() {
            return self.close(now, CloseCode::NO_ERROR, "");
        }
        self.leaving.get_or_insert(now + self.idle_timeout());
        let receivers = self.channels.receivers_mut();
        let unread: Vec<ChannelId> = receivers.map(|(id, _)| id).collect();
        unread.into_iter().for_each(|id| self.end_recv(id));
    }

    /// The peer has taken something more of what was written.
    pub(super) fn on_progress(&mut self, now: Instant) {
        let until = now + self.idle_timeout();
        self.leaving = self.leaving.map(|_| until);
    }

    /// Closes a connection that was left, when nothing is to be waited for any more.
    pub(super) fn end_if_left(&mut self, now: Instant) {
        let is_over = |until| now >= until || self.is_delivered();
        if self.leaving.is_some_and(is_over) {
            self.close(now, CloseCode::NO_ERROR, "");
        }
    }

    /// Whether the peer has what was finished, or wants no more of it, and no datagram waits to be sent.
    fn is_delivered(&self) -> bool {
        // One that is acknowledged is gone.
        let waits = |send: &SendChannel| send.is_finished() && !send.is_abandoned();
        self.out.datagrams.is_empty() && !self.channels.senders().any(|(_, send)| waits(send))
    }

    fn close_with(&mut self, now: Instant, code: CloseCode, reason: &str, error: ConnectionError) {
        match self.state {
            State::Connecting(_) => self.finish(now, error),
            State::Established => {
                let reason = reason.to_owned();
                let copies = self.close_copies();
                let unreported = self.inc.policy.due();
                // At once, then twice in each probe timeout, and when the peer still talks.
                self.state = State::Closing {
                    code,
                    reason,
                    reports: unreported.map_or(0, |_| copies),
                    until: None,
                    due: copies,
                    next: now + self.pto() / 2,
                };
                self.tell_closed(now, error);
            }
            _ => {}
        }
    }

    /// Ends it because of what the peer did.
    pub(super) fn violation(&mut self, now: Instant, code: CloseCode) {
        let (reason, error) = match code {
            CloseCode::UNSOLVABLE => ("blocks that cannot be decoded", ConnectionError::Unsolvable),
            code => ("protocol violation", ConnectionError::Violation(code)),
        };
        self.close_with(now, code, reason, error);
    }

    /// The peer closed.
    pub(super) fn on_close(&mut self, now: Instant, code: CloseCode, reason: &[u8]) {
        let reason = || String::from_utf8_lossy(reason).into_owned();
        let error = match code {
            CloseCode::REFUSED => ConnectionError::Refused,
            CloseCode::EXPIRED => ConnectionError::Expired,
            CloseCode::NOT_OFFERED => ConnectionError::NotOffered { reason: reason() },
            code => ConnectionError::PeerClosed {
                code,
                reason: reason(),
            },
        };
        self.settle(now);
        self.state = State::Draining {
            until: now + self.close_time(),
            due: true,
        };
        self.tell_closed(now, error);
    }

    /// Says that this side closed, or has heard that the peer did.
    pub(super) fn transmit_close(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Batch> {
        let ends = now + self.close_time();
        if let State::Closing { until, .. } = &mut self.state {
            // Also where nothing may be said: who has moved and fallen silent keeps no connection.
            until.get_or_insert(ends);
        }
        let room = self.out.moved.map_or(u64::MAX, |moved| moved.allowance());
        if room < BARE_CLOSE {
            return None;
        }
        // Who has read everything and leaves has not said yet that it came: the peer would take it for lost.
        if let State::Closing { reports, .. } = &mut self.state
            && *reports > 0
            && self.out.moved.is_none()
        {
            *reports -= 1;
            return Some(self.transmit_report(now, out));
        }
        let (code, mut reason) = match &mut self.state {
            State::Closing {
                code, reason, due, ..
            } => {
                *due = due.checked_sub(1)?;
                (*code, reason.clone())
            }
            State::Draining { due, .. } => {
                std::mem::take(due).then_some(())?;
                (CloseCode::NO_ERROR, String::new())
            }
            _ => return None,
        };
        if room < BARE_CLOSE + reason.len() as u64 {
            reason.clear();
        }
        let start = out.len();
        let pn = self.begin_packet(now, out);
        Frame::Close {
            code: code.0,
            reason: reason.as_bytes(),
        }
        .emit(out);
        self.finish_packet(now, pn, start, out, Contents::default());
        Some(Batch::from(out.len() - start))
    }

    /// CLOSE packets that leave at once: who ends its process after them is missed no more than once in a
    /// thousand times where each is lost on its own, or [`MOST_CLOSES`] are not enough. At least two.
    fn close_copies(&self) -> u8 {
        let mut unheard = self.out.redundancy.loss.probability();
        let lost = unheard;
        let mut copies = 1;
        while copies < 2 || (unheard > 1e-3 && copies < MOST_CLOSES) {
            unheard *= lost;
            copies += 1;
        }
        copies
    }

    /// A peer that answers late makes round trips as long as it likes: a place is not its own for so long.
    fn close_time(&self) -> Duration {
        (3 * self.pto()).min(MAX_CLOSE_TIME)
    }

    /// Tells everyone that the connection is over, once.
    fn tell_closed(&mut self, now: Instant, error: ConnectionError) {
        self.observer
            .tell(now, || Observation::Closed(Ending::Sealed(&error)));
        self.events.push_back(Event::Closed(error));
    }

    /// Ends at once.
    pub(super) fn finish(&mut self, now: Instant, error: ConnectionError) {
        if !matches!(
            self.state,
            State::Closed | State::Closing { .. } | State::Draining { .. }
        ) {
            self.tell_closed(now, error);
        }
        self.state = State::Closed;
    }
}
