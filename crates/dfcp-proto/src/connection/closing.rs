//! The end: CLOSE is repeated until the peer answers with one of its own, or for three probe timeouts.

use super::transmit::{Batch, Contents};
use super::{CloseCode, Connection, ConnectionError, Event, State};
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

    fn close_with(&mut self, now: Instant, code: CloseCode, reason: &str, error: ConnectionError) {
        match self.state {
            State::Connecting(_) => self.finish(now, error),
            State::Established => {
                let reason = reason.to_owned();
                // At once, then twice in each probe timeout, and when the peer still talks.
                self.state = State::Closing {
                    code,
                    reason,
                    until: None,
                    due: self.close_copies(),
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
