//! A client from its first SYNACK until the server is heard: the ACK is repeated, and further answers
//! are kept.
//!
//! A SYNACK does not say where the SYN came from that it answers. Who sees a client's SYN can send it
//! to the server from an address of his own and hand the client the answer: genuine, with the right
//! key, but with a cookie for his address, so that the server ignores the client's ACK. The first
//! answer is therefore only a guess. Others are computed, too, and acknowledged; the one whose keys open
//! a packet is the server's to this client, and what had left under other keys leaves again.

use super::handshake::{ClientSide, MAX_REPEAT, SYN_REPEAT, TRAIN};
use super::{Connection, Event};
use crate::crypto::{Opener, Sealer, Secret, SessionKeys};
use crate::packet::{MtuSearch, RttEstimator, decode_packet_number};
use crate::time::{Duration, Instant, Rate};
use crate::wire::{COOKIE_LEN, SEALED_HEADER_LEN, Sealed, SynAck, TransportParams};
use std::collections::VecDeque;
use std::fmt;

/// First repeat of the ACK; doubles with each further one.
const ACK_REPEAT: Duration = Duration::from_millis(5);
/// ACKs sent at once: without one of them the first flight is worth nothing.
const ACK_COPIES: u8 = 3;
/// Further answers that are kept, the newest. A busy server computes 100 a second for one network, so
/// that who relays SYNs from one leaves the good answer a third of a second in which to be confirmed. Each
/// takes some 2 kB, and each packet that does not open costs a try of each.
const MAX_FURTHER: usize = 32;
/// Further answers that are computed, good or not: at three operations of X25519 and some 0.2 ms each,
/// 50 ms of a core.
const MAX_COMPUTED: u32 = 256;

/// What an answer of the server leads to.
pub(super) struct Answer {
    pub facts: Facts,
    /// The ACK.
    pub packet: Vec<u8>,
    pub session: SessionKeys,
    pub rtt: Duration,
    /// Largest UDP payload that it proves to reach the server.
    pub mtu: usize,
}

/// What an ACK repeats of a SYNACK, and the server's ephemeral key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    slot: u32,
    syn_size: u16,
    cookie: [u8; COOKIE_LEN],
    ephemeral: Option<[u8; 32]>,
}

impl Facts {
    pub(super) fn of(synack: &SynAck<'_>) -> Self {
        Self {
            slot: synack.slot,
            syn_size: synack.syn_size,
            cookie: synack.cookie,
            ephemeral: synack.noise.first_chunk().copied(),
        }
    }
}

/// An answer beside the one whose keys are in use.
struct Further {
    facts: Facts,
    packet: Vec<u8>,
    send: Secret,
    exporter: Secret,
    params: TransportParams,
    opener: Opener,
    rtt: Duration,
    mtu: usize,
    /// Whether its ACK is to leave.
    due: bool,
}

impl From<Answer> for Further {
    fn from(answer: Answer) -> Self {
        Self {
            facts: answer.facts,
            packet: answer.packet,
            send: answer.session.send,
            exporter: answer.session.exporter,
            params: answer.session.params,
            opener: Opener::new(answer.session.receive),
            rtt: answer.rtt,
            mtu: answer.mtu,
            due: true,
        }
    }
}

/// See the module's text.
pub(super) struct Confirm {
    /// SYNs go on where the server stays silent.
    pub(super) side: Box<ClientSide>,
    /// The answer whose keys are in use.
    facts: Facts,
    packet: Vec<u8>,
    further: VecDeque<Further>,
    /// Answers that may still be computed.
    left: u32,
    sent: u32,
    next: Instant,
    /// No two repeats further apart than this: a round trip, in which an answer would come.
    max_repeat: Duration,
    due: u8,
    /// The answers to the SYNs that left together.
    train: Vec<TrainAnswer>,
}

/// See [`train_rate`].
const MOST_OF_MEAN: u64 = 2;

/// What a server said of one of the SYNs that left together.
struct TrainAnswer {
    cookie: [u8; COOKIE_LEN],
    attempt: u8,
    size: u16,
    received_at: u32,
}

impl TrainAnswer {
    fn of(synack: &SynAck<'_>) -> Option<Self> {
        (usize::from(synack.attempt) < TRAIN).then_some(Self {
            cookie: synack.cookie,
            attempt: synack.attempt,
            size: synack.syn_size,
            received_at: synack.received_at,
        })
    }

    /// The rate of a path that draws this one and a later one so far apart; `None` where it swapped them.
    fn rate_until(&self, second: &Self) -> Option<Rate> {
        let apart = second.received_at.wrapping_sub(self.received_at);
        // Half of the clock's range back is before.
        let in_order = apart < u32::MAX / 2 && self.size == second.size;
        let bits = u64::from(second.size) * 8 * u64::from(second.attempt - self.attempt);
        in_order.then(|| Rate::from_bps(bits * 1_000_000 / u64::from(apart.max(1))))
    }
}

/// The rate of a path that draws a train apart as these answers say. Packets arrive late by chance, each by
/// itself: so it is that of the neighbours that are closest, but no more than twice that of the first and the last.
/// One between them of which nothing was heard is taken for carried: its answer may be what was lost, and if it was
/// not carried, the rate is twice too high as well. A first flight takes half a round trip at that rate, so the path
/// then carries it in a whole one.
fn train_rate(train: &[TrainAnswer]) -> Option<Rate> {
    let [first, .., last] = train else {
        return None;
    };
    let mean = first.rate_until(last)?;
    let neighbours = train.windows(2);
    let rates = neighbours.filter_map(|pair| pair[0].rate_until(&pair[1]));
    let most = Rate::from_bps(mean.as_bps().saturating_mul(MOST_OF_MEAN));
    rates.max().map(|rate| rate.clamp(mean, most))
}

impl fmt::Debug for Confirm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Confirm")
            .field("sent", &self.sent)
            .field("next", &self.next)
            .field("further", &self.further.len())
            .finish_non_exhaustive()
    }
}

impl Confirm {
    /// When a server that answered the SYN only counts as gone.
    pub(super) fn deadline(&self) -> Instant {
        self.side.deadline()
    }

    pub(super) fn next(&self) -> Instant {
        self.next.min(self.side.next())
    }

    pub(super) fn on_timeout(&mut self, now: Instant) {
        // The connection looks at the deadline itself.
        self.side.on_timeout(now);
        if now >= self.next {
            self.due = self.due.max(1);
        }
    }

    /// The ACK that is to be sent now, if any. Those of further answers leave at once, and then in turn,
    /// one with each repeat.
    pub(super) fn transmit(&mut self, now: Instant) -> Option<&[u8]> {
        self.on_timeout(now);
        if let Some(at) = self.further.iter().position(|further| further.due) {
            self.further[at].due = false;
            return Some(&self.further[at].packet);
        }
        self.due = self.due.checked_sub(1)?;
        let turn = self.sent as usize % self.further.len().max(1);
        if let Some(further) = self.further.get_mut(turn) {
            further.due = true;
        }
        self.next = now + (ACK_REPEAT * (1 << self.sent.min(8))).min(self.max_repeat);
        self.sent += 1;
        Some(&self.packet)
    }

    fn knows(&self, facts: &Facts) -> bool {
        self.facts == *facts || self.further.iter().any(|further| further.facts == *facts)
    }

    fn keep(&mut self, answer: Answer) {
        if self.further.len() >= MAX_FURTHER {
            self.further.pop_front();
        }
        self.further.push_back(answer.into());
    }

    /// The further answer whose keys open a packet, and the packet.
    fn try_open(&mut self, header: Sealed, packet: &[u8]) -> Option<(Further, Vec<u8>, usize)> {
        let number = decode_packet_number(None, header.packet_number);
        for at in 0..self.further.len() {
            // A failed attempt spoils what it was made on.
            let mut packet = packet.to_vec();
            let opener = &mut self.further[at].opener;
            let opened = opener.open(number, &mut packet, SEALED_HEADER_LEN);
            if let Ok(len) = opened.map(|frames| frames.len()) {
                return Some((self.further.remove(at)?, packet, len));
            }
        }
        None
    }
}

/// Whether two answers of a server differ only in what it says to each client.
fn are_alike(one: &TransportParams, other: &TransportParams) -> bool {
    let one = TransportParams {
        cid: other.cid,
        reset_key: other.reset_key,
        max_datagram: other.max_datagram,
        ..one.clone()
    };
    one == *other
}

impl Connection {
    /// The first answer: its keys are in use from now on.
    pub(super) fn take_first_answer(
        &mut self,
        now: Instant,
        mut side: Box<ClientSide>,
        synack: &SynAck<'_>,
        answer: Answer,
    ) {
        let rtt = answer.rtt;
        // The server says a word at once: if none came after two round trips, the answer was somebody else's, or
        // ACKs or words were lost.
        side.postpone(now + 2 * rtt + SYN_REPEAT);
        self.confirm = Some(Confirm {
            side,
            facts: answer.facts,
            packet: answer.packet,
            further: VecDeque::new(),
            left: MAX_COMPUTED,
            sent: 0,
            next: now,
            max_repeat: rtt.clamp(ACK_REPEAT, MAX_REPEAT),
            due: ACK_COPIES,
            train: TrainAnswer::of(synack).into_iter().collect(),
        });
        self.out.path.rtt.update(rtt, Duration::ZERO);
        self.establish(now, answer.session, answer.mtu);
    }

    /// Another answer: to another one of the client's SYNs, or to somebody who sent one on.
    pub(super) fn handle_further_synack(
        &mut self,
        now: Instant,
        synack: &SynAck<'_>,
        datagram_len: usize,
    ) {
        let Some(confirm) = self.confirm.as_mut() else {
            return;
        };
        let facts = Facts::of(synack);
        if facts == confirm.facts {
            return self.learn_train(now, synack);
        }
        let (Some(sent), Some(left)) = (confirm.side.sent(synack), confirm.left.checked_sub(1))
        else {
            return;
        };
        if confirm.knows(&facts) {
            return;
        }
        confirm.left = left;
        let rtt = now.saturating_since(sent);
        let answer = confirm
            .side
            .answer(self.local_cid, synack, rtt, datagram_len);
        let Ok(answer) = answer else {
            self.stats.forged += 1;
            return;
        };
        // Whoever was told of the peer goes on with this one, and no other; and data were sent within
        // the limits of the first answer.
        let (session, known) = (&answer.session, self.peer_params.as_ref());
        let is_same = known.is_some_and(|known| are_alike(&session.params, known));
        if Some(session.peer) == self.peer && is_same {
            confirm.keep(answer);
        }
    }

    /// The server's word on another one of the SYNs that left together. It repeats the cookie of the
    /// first answer, so only who sees the packets can forge it, and who sees them can delay them: it
    /// chooses the first flight, within bounds, and [`TRAIN`] less one times at most.
    fn learn_train(&mut self, now: Instant, synack: &SynAck<'_>) {
        let Some(confirm) = self.confirm.as_mut() else {
            return;
        };
        let train = &mut confirm.train;
        let (known, next) = (train.first(), TrainAnswer::of(synack));
        let (Some(known), Some(next)) = (known, next) else {
            return;
        };
        let is_new = train.iter().all(|answer| answer.attempt != next.attempt);
        if next.cookie != known.cookie || !is_new {
            return;
        }
        train.push(next);
        train.sort_by_key(|answer| answer.attempt);
        if let Some(rate) = train_rate(train) {
            self.out.path.on_pair(now, rate);
        }
    }

    /// Whether packets may have to be opened with other keys than those in use.
    pub(super) fn has_further_answers(&self) -> bool {
        let confirm = self.confirm.as_ref();
        confirm.is_some_and(|confirm| !confirm.further.is_empty())
            && self.inc.received.largest().is_none()
    }

    /// Opens a packet with the keys of further answers, and goes on with those that open it. Says how long
    /// its frames are.
    pub(super) fn open_by_further(
        &mut self,
        now: Instant,
        header: Sealed,
        sealed: &[u8],
        datagram: &mut [u8],
    ) -> Option<usize> {
        let (further, opened, len) = self.confirm.as_mut()?.try_open(header, sealed)?;
        datagram.copy_from_slice(&opened);
        self.switch_to(now, further);
        Some(len)
    }

    /// Goes on with another answer than the first.
    fn switch_to(&mut self, now: Instant, further: Further) {
        self.sealer = Some(Sealer::new(further.send, now));
        self.opener = Some(further.opener);
        self.exporter = Some(further.exporter);
        self.remote_cid = further.params.cid;
        let largest = self
            .config
            .max_datagram(self.remote)
            .min(further.params.max_datagram as usize);
        self.out.mtu_search = MtuSearch::new(largest);
        self.set_mtu(further.mtu.min(largest));
        self.peer_params = Some(further.params);
        self.out.path.rtt = RttEstimator::default();
        self.out.path.rtt.update(further.rtt, Duration::ZERO);
        if let Some(confirm) = &mut self.confirm {
            confirm.further.clear();
            // The flight begins again here, not once more when that is confirmed.
            confirm.sent = 0;
        }
        self.repeat_flight(now, now + Duration::from_nanos(1));
        if let Some(peer) = self.peer.filter(|_| self.is_established()) {
            // The peer's connection ID is another one.
            self.events.push_back(Event::Connected { peer });
        }
    }

    /// Any opened packet proves that the peer has the keys. If the first ACKs were lost, so was
    /// all that went with them: it met a server that knew nothing. That flight begins again.
    pub(super) fn on_confirmed(&mut self, now: Instant) {
        let Some(confirm) = self.confirm.take() else {
            return;
        };
        self.events.push_back(Event::Confirmed);
        if confirm.sent > u32::from(ACK_COPIES) {
            let reached = now - self.out.path.rtt.smoothed();
            self.repeat_flight(now, reached);
        }
    }

    /// What left before a time is known to have reached nobody.
    fn repeat_flight(&mut self, now: Instant, before: Instant) {
        for (_, packet) in self.out.sent.give_up_before(before) {
            self.on_lost(now, packet);
        }
        self.out.path.restart(now);
        self.out.queue.unblock();
    }
}
