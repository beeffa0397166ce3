//! A client that moved: its new address is validated by a challenge (RFC 9000 §8.2, §9).
//!
//! Whoever owns a session can send its packets from somebody else's address, and acknowledge what
//! the server sent there without having seen it: packet numbers can be guessed. Eight random bytes
//! cannot. Until they come back, an address gets at most three times what came from it, of whatever
//! kind. When that is spent, what comes next from there earns more: a client that waits for data asks
//! ([`Connection::silence_time`]).

use super::transmit::{Batch, Contents};
use super::{Connection, Control};
use crate::packet::ArrivalClock;
use crate::rate::{Grouping, PathControl};
use crate::time::Instant;
use crate::wire::{Frame, PATH_DATA_LEN, SEALED_HEADER_LEN, TAG_LEN};
use std::net::SocketAddr;

/// Bytes of a packet with nothing but a challenge.
const CHALLENGE_LEN: u64 = (SEALED_HEADER_LEN + 1 + PATH_DATA_LEN + TAG_LEN) as u64;
/// Challenges for which all other packets leave room: the smallest packet that may come, of 26 bytes, pays for
/// two.
const RESERVED: u64 = 2;

/// The peer's address before it is validated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    /// Where the peer was known to receive last.
    from: SocketAddr,
    received: u64,
    sent: u64,
    /// What the peer must send back from there.
    challenge: [u8; PATH_DATA_LEN],
    /// A challenge is due.
    due: bool,
    /// Probe timeouts since bytes came from there.
    timeouts: u32,
}

impl Moved {
    /// Bytes that may still go there.
    pub(super) fn allowance(&self) -> u64 {
        (3 * self.received).saturating_sub(self.sent)
    }

    /// Bytes came from there.
    pub(super) fn on_received(&mut self, bytes: u64) {
        self.received += bytes;
        self.timeouts = 0;
    }

    /// A packet went there.
    pub(super) fn on_sent(&mut self, bytes: u64) {
        self.sent += bytes;
    }

    /// Asks again.
    pub(super) fn ask(&mut self) {
        self.due = true;
    }

    /// Whether not even a challenge may go there.
    fn is_muted(&self) -> bool {
        self.allowance() < CHALLENGE_LEN
    }
}

impl Connection {
    /// Whether the peer has shown that it receives at this address.
    pub fn is_validated(&self) -> bool {
        self.out.moved.is_none()
    }

    /// The peer's newest packet came from `remote`.
    pub(super) fn follow(&mut self, remote: SocketAddr) {
        let last = std::mem::replace(&mut self.remote, remote);
        // Where it was last known to receive: back there is no move.
        let from = self.out.moved.map_or(last, |moved| moved.from);
        let challenge = self.rng.array();
        self.out.moved = (from != remote).then_some(Moved {
            from,
            received: 0,
            sent: 0,
            challenge,
            due: true,
            timeouts: 0,
        });
    }

    /// Whether the peer's new address has not earned a full packet yet.
    pub(super) fn is_fenced(&self) -> bool {
        let least = self.mtu as u64 + RESERVED * CHALLENGE_LEN;
        let moved = self.out.moved.as_ref();
        moved.is_some_and(|moved| moved.allowance() < least)
    }

    /// When a new address that has not earned more is asked again, if it has earned that. The distances double, as
    /// it may take a while until it can be reached, and there are few.
    pub(super) fn challenge_time(&self) -> Option<Instant> {
        let moved = self.out.moved.filter(|moved| !moved.is_muted())?;
        Some(self.out.last_sent + self.pto() * (1 << moved.timeouts.min(6)))
    }

    /// Nothing was acknowledged: whether all that may go out is a challenge.
    pub(super) fn ask_again(&mut self) -> bool {
        let fenced = self.is_fenced();
        if let Some(moved) = &mut self.out.moved {
            moved.due = true;
            moved.timeouts += 1;
        }
        fenced
    }

    /// The challenge, if it is due and may leave.
    pub(super) fn transmit_challenge(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Batch> {
        let moved = self.out.moved.as_mut()?;
        if !moved.due || moved.is_muted() {
            return None;
        }
        moved.due = false;
        let challenge = moved.challenge;
        let start = out.len();
        let pn = self.begin_packet(now, out);
        Frame::PathChallenge(challenge).emit(out);
        let contents = Contents {
            ack_eliciting: true,
            control: vec![Control::PathChallenge],
            ..Contents::default()
        };
        self.finish_packet(now, pn, start, out, contents);
        Some(Batch::from(out.len() - start))
    }

    /// The peer wants to see whether this side receives where it was sent to. The newest counts:
    /// one answer at a time waits, however many are asked for.
    pub(super) fn on_path_challenge(&mut self, pn: u64, data: [u8; PATH_DATA_LEN]) {
        if self.inc.challenge.is_none_or(|(newest, _)| newest < pn) {
            self.inc.challenge = Some((pn, data));
        }
        if !self.out.control.contains(&Control::PathResponse) {
            self.out.control.push_back(Control::PathResponse);
        }
    }

    /// What came back from `remote`.
    pub(super) fn on_path_response(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        data: [u8; PATH_DATA_LEN],
    ) {
        let answers = |moved: &mut Moved| moved.challenge == data && remote == self.remote;
        if let Some(moved) = self.out.moved.take_if(answers) {
            self.on_validated(now, moved.from);
        }
    }

    /// The peer receives at its new address. Unless only its port is another one, as NATs like to
    /// change it, the path is another one, too.
    fn on_validated(&mut self, now: Instant, from: SocketAddr) {
        if from.ip() != self.remote.ip() {
            self.begin_path(now);
        }
    }

    /// The path is another one: what was learnt of the last is forgotten (RFC 9000 §9.4).
    pub(super) fn begin_path(&mut self, now: Instant) {
        let sent = self.out.path.sent_total();
        let rate = self.config.profile.rate.make();
        self.out.path = PathControl::new(now, rate, Grouping::Coalesced(self.config.coalescing));
        self.out.path.count_sent(sent);
        self.out.arrivals = ArrivalClock::default();
        let packet = self.packet_size();
        self.out.path.on_established(now, packet);
    }
}
