//! The sending half: blocks in the window, and from which of them the next packet comes
//! (DFCP-J §4.5).
//!
//! A block gets a first pass of as many packets as should bring nearly enough of it to the
//! receiver at the measured loss, then waits. The last packet of a pass asks for an answer
//! (ECHO), which says what is still missing: the block is repaired by that much. If no answer comes,
//! it is repaired by what it is expected to lack, and by twice as much each further time. Blocks
//! to be repaired come before new ones: few are open at any loss rate. `Rateless` sends on when
//! there is neither: a packet of each block not acknowledged, in turn. A block that the window
//! keeps waiting is pre-coded meanwhile (RC-UDP §IV-B).
//!
//! Invariants: a block in `Phase::Repair` or `Phase::Pass` is short of its goal; what a packet
//! costs does not depend on the window.

mod block;
mod echo;
mod emit;
mod input;
mod path;
mod plan;

use super::code::Encoder;
use super::config::{Acknowledge, Sending};
use super::data::{Ack, AckKind, DATA_HEADER, Packet, Report, Settled};
use crate::observe::PathMetrics;
use crate::rate::{BlockSent, Codepoint, RateController};
use crate::time::{Duration, Instant, Rate};
use block::{Blocks, Next, Phase};
use echo::Echoed;
use input::Input;
use path::{Path, Ready};
use plan::CAUTION;

/// With the window this far used (as a fraction, from a block to the newest), plans for the block
/// turn from caution to excess.
const PRESSURE: f64 = 4.0;
/// Standard deviations of excess when nothing else is to be sent, or nothing is sent twice.
const URGENT: f64 = -2.5;
/// Silence that the known loss explains less than once in so many times is news: repairs double.
const IMPLAUSIBLE: f64 = 20.0;
/// Longest pause between probes.
const MAX_PROBE: Duration = Duration::from_secs(1);

/// Counters of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SenderStats {
    /// Data packets sent.
    pub packets: u64,
    /// Of these, beyond their block's first pass.
    pub extra_packets: u64,
    /// Packets that would have been enough for the blocks acknowledged.
    pub needed_packets: u64,
    /// Blocks acknowledged.
    pub blocks_acked: u64,
    /// Acknowledgements taken back because the block did not decode.
    pub reopened: u64,
    /// Round-trip time.
    pub srtt: Option<Duration>,
    /// Loss rate.
    pub loss: f64,
    /// Pacing rate.
    pub rate: Rate,
}

/// The sending half of a connection.
#[derive(Debug)]
pub(super) struct Sender {
    settled: Settled,
    input: Input,
    /// The block to come, pre-coded.
    ahead: Option<Next>,
    blocks: Blocks,
    /// The block in its first pass.
    current: Option<u32>,
    /// Encoding off: sent in place of all blocks.
    first: Option<Encoder>,
    path: Path,
    /// The peer's word on what it has decoded and has room for; `None` if it sends no reports.
    peer: Option<(u32, u32)>,
    /// Answers are overdue if not there by then, when the rate controller's window is full.
    answers_by: Option<Instant>,
    departure: Option<Instant>,
    /// It is time to ask for news.
    probe: bool,
    /// Times in a row that was done.
    probes: u32,
    stats: SenderStats,
}

impl Sender {
    /// A sender with nothing to send.
    pub fn new(now: Instant, settled: &Settled, rate: Box<dyn RateController>) -> Self {
        let packet = (DATA_HEADER + settled.payload_bytes()) as u64;
        Self {
            input: Input::new(settled),
            ahead: None,
            blocks: Blocks::new(),
            current: None,
            first: None,
            path: Path::new(now, rate, settled.rtt, packet),
            peer: None,
            answers_by: None,
            departure: None,
            probe: false,
            probes: 0,
            stats: SenderStats::default(),
            settled: settled.clone(),
        }
    }

    /// Whether congestion marks slow it down.
    pub fn ecn(&self) -> Codepoint {
        self.path.ecn()
    }

    /// Takes bytes; returns how many fit.
    pub fn write(&mut self, data: &[u8]) -> usize {
        self.input.write(data)
    }

    /// Takes virtual bytes; returns how many fit.
    pub fn write_virtual(&mut self, len: u64) -> u64 {
        self.input.write_virtual(len)
    }

    /// Bytes that may be written.
    pub fn room(&self) -> u64 {
        self.input.room()
    }

    /// Bytes until the end of the message, or of what can be counted.
    pub fn left(&self) -> u64 {
        self.input.left()
    }

    /// Whether the message is not written to its end.
    pub fn lacks_some(&self) -> bool {
        self.settled.message.is_some() && self.input.left() > 0
    }

    /// Sends what is written though it fills no block. The last thing before FIN, too.
    pub fn flush(&mut self) {
        self.input.flush();
    }

    /// Whether all that was written has been acknowledged and, as far as the peer says, decoded;
    /// with ACKs off: sent.
    pub fn all_acked(&self) -> bool {
        let next = self.blocks.next();
        !self.has_more()
            && self.blocks.lowest() == next
            && self.peer.is_none_or(|(decoded, _)| decoded >= next)
    }

    /// Blocks sent or being sent: the number that FIN carries once all are acknowledged.
    pub fn blocks(&self) -> u32 {
        self.blocks.next()
    }

    /// A network controller allows `rate`.
    pub fn order_rate(&mut self, now: Instant, rate: Rate) {
        self.path.order_rate(now, rate);
    }

    /// Packets taken for lost, and the bytes of one.
    pub fn lost(&self) -> (u64, u64) {
        self.path.lost()
    }

    /// What is known of the path.
    pub fn metrics(&self) -> PathMetrics {
        self.path.metrics()
    }

    /// Counters.
    pub fn stats(&self) -> SenderStats {
        SenderStats {
            srtt: self.path.srtt(),
            loss: self.path.per_arrival().loss(),
            rate: self.path.pacing(),
            ..self.stats
        }
    }

    #[cfg(test)]
    pub fn has_coded_ahead(&self) -> bool {
        let source = self.ahead.as_ref().and_then(|next| next.source.as_deref());
        matches!(source, Some(block::Source::Encoder(_)))
    }

    // ---- answers

    /// An answer of the peer. Nonsense is ignored.
    pub fn on_ack(&mut self, now: Instant, ack: &Ack) {
        let echoed = self.path.on_answer(now, ack.state, ack.report.as_ref());
        self.probe = false;
        self.answers_by = None;
        if let Some(report) = &ack.report {
            self.on_progress(now, report);
        }
        if ack.block >= self.blocks.next() {
            return;
        }
        match (ack.kind, self.settled.acknowledge) {
            (AckKind::Block, Acknowledge::EachBlock | Acknowledge::Off) => {
                self.acknowledge(now, ack.block);
            }
            (AckKind::Block, Acknowledge::EachWindow) => {
                for id in self.blocks.lowest()..=ack.block {
                    self.acknowledge(now, id);
                }
            }
            (AckKind::More | AckKind::Echo, _) => {
                if let Some(report) = &ack.report {
                    self.on_missing(ack, report.missing, echoed);
                }
            }
        }
        self.release();
    }

    fn on_progress(&mut self, now: Instant, report: &Report) {
        // With ACKs off the sender minds neither.
        if self.settled.acknowledge == Acknowledge::Off {
            return;
        }
        let decoded = report.decoded.min(self.blocks.next());
        let (before, limit) = self.peer.unwrap_or((0, 0));
        let peer = Some((before.max(decoded), limit.max(report.limit)));
        if peer != self.peer {
            self.peer = peer;
            self.probes = 0;
        }
        for id in self.blocks.lowest()..decoded {
            self.acknowledge(now, id);
        }
    }

    fn acknowledge(&mut self, now: Instant, id: u32) {
        let Some(block) = self.blocks.get(id).filter(|b| b.phase != Phase::Acked) else {
            return;
        };
        let needed = self.settled.packets_needed(block.useful);
        let sent = BlockSent {
            next_is_ready: self.ahead.is_some(),
            ..BlockSent::new(block.sent.into(), needed.into())
        };
        self.path.on_block_acked(now, &sent);
        self.set_phase(id, Phase::Acked);
        self.probes = 0;
        self.stats.blocks_acked += 1;
        self.stats.needed_packets += u64::from(needed);
    }

    fn set_phase(&mut self, id: u32, phase: Phase) {
        if self.current == Some(id) {
            self.current = None;
        }
        self.blocks.set_phase(id, phase);
    }

    /// Lets go of blocks that will not be asked for again.
    fn release(&mut self) {
        let (decoded, limit) = self.peer.unwrap_or((u32::MAX, u32::MAX));
        loop {
            // Without any block there would be nothing to ask a full receiver with.
            let last = self.blocks.base() + 1 == self.blocks.next();
            let keep = last && self.blocks.next() >= limit;
            if keep || self.blocks.base() >= decoded {
                return;
            }
            let Some(block) = self.blocks.release() else {
                return;
            };
            self.input.release(block.useful);
        }
    }

    /// An answer says what a block lacks.
    fn on_missing(&mut self, ack: &Ack, missing: u32, echoed: Option<Echoed>) {
        let id = ack.block;
        let caution = self.caution(id);
        let Some(block) = self.blocks.get_mut(id) else {
            return;
        };
        let reopened = ack.kind == AckKind::More && block.phase == Phase::Acked;
        if block.phase == Phase::Acked && !reopened {
            return;
        }
        if missing == 0 {
            self.set_phase(id, Phase::Known);
            return;
        }
        let at = match echoed {
            Some(echoed) if echoed.block == id => echoed.index + 1,
            // Nothing in flight is known to be newer.
            _ if reopened => block.sent,
            _ => return,
        };
        if at < block.have_at || matches!(self.settled.redundancy.sending, Sending::Fixed { .. }) {
            return;
        }
        // More than the whole block is nonsense, which would be sent to the end of time.
        let needed = self.settled.packets_needed(block.useful);
        let missing = self.settled.packets(missing).min(needed);
        block.have = needed.saturating_sub(missing);
        block.have_at = at;
        block.silences = 0;
        let more = self.path.per_arrival().plan(f64::from(missing), caution);
        block.goal = at.saturating_add(more).max(block.sent);
        // A few packets more can wait for the answers to those in flight.
        if block.phase == Phase::Waiting && 4 * (block.goal - block.sent) < block.sent - at {
            block.goal = block.sent;
        }
        let finished = block.goal == block.sent;
        let phase = block.phase;
        self.stats.reopened += u64::from(reopened);
        match (phase, finished) {
            (Phase::Pass, false) | (Phase::Repair, false) | (Phase::Waiting, true) => {}
            (_, true) => self.set_phase(id, Phase::Waiting),
            (_, false) => self.set_phase(id, Phase::Repair),
        }
    }

    /// Standard deviations by which plans for a block stay below its need.
    fn caution(&self, id: u32) -> f64 {
        match self.settled.redundancy.sending {
            Sending::Adaptive => URGENT,
            Sending::Expected if !self.is_ready() => URGENT,
            _ => {
                let age = f64::from(self.blocks.next() - id.min(self.blocks.next()));
                (CAUTION - PRESSURE * age / f64::from(self.window())).max(URGENT)
            }
        }
    }

    // ---- packets

    /// Appends the payload of the next data packet to `out`, if one may go now.
    pub fn poll_packet(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Packet> {
        self.departure = None;
        self.answers_by = None;
        if self.is_idle(now) {
            self.path.on_idle();
            self.code_ahead();
            return None;
        }
        match self.path.ready(now) {
            Ready::Now => {}
            Ready::At(at) => {
                self.departure = Some(at);
                self.code_ahead();
                return None;
            }
            Ready::Answers(by) => {
                self.answers_by = Some(by);
                self.code_ahead();
                return None;
            }
        }
        let id = self.pick(now)?;
        Some(self.emit(now, id, out))
    }

    /// Most blocks at once.
    fn window(&self) -> u32 {
        self.settled.window.min(self.settled.at_once)
    }

    /// Whether a further block is there.
    fn is_ready(&self) -> bool {
        self.ahead.is_some() || self.input.is_ready()
    }

    /// Whether anything written is not in the window yet.
    fn has_more(&self) -> bool {
        self.ahead.is_some() || !self.input.is_empty()
    }

    /// Whether no packet is to be sent at all.
    fn is_idle(&self, now: Instant) -> bool {
        self.blocks.repair().is_none()
            && self.current.is_none()
            && !self.may_open()
            && !(self.is_rateless() && self.blocks.waiting().is_some())
            && !self.probe
            && self.overdue_at().is_none_or(|at| at > now)
            && self.probe_at().is_none_or(|at| at > now)
    }

    fn is_rateless(&self) -> bool {
        self.settled.redundancy.sending == Sending::Rateless
            && self.settled.acknowledge != Acknowledge::Off
    }

    /// Whether a new block is there and has room in the window.
    fn may_open(&self) -> bool {
        let next = self.blocks.next();
        self.is_ready()
            && next < u32::MAX - 1
            && next - self.blocks.lowest() < self.window()
            && self.peer.is_none_or(|(_, limit)| next < limit)
    }

    /// When the block that waits longest has waited too long.
    fn overdue_at(&self) -> Option<Instant> {
        if matches!(self.settled.redundancy.sending, Sending::Fixed { .. }) {
            return None;
        }
        // Within a window no ACK is due.
        if self.settled.acknowledge == Acknowledge::EachWindow && self.may_open() {
            return None;
        }
        let block = self.blocks.get(self.blocks.waiting()?)?;
        Some(self.path.overdue_at(block.last))
    }

    /// When to ask for news: the window is used up, or all is acknowledged but not decoded, and no
    /// block is known to need anything.
    fn probe_at(&self) -> Option<Instant> {
        let stuck = self.blocks.repair().is_none()
            && self.current.is_none()
            && !self.may_open()
            && (self.overdue_at().is_none())
            && self.blocks.base() < self.blocks.next()
            && (!self.all_acked() || self.is_ready());
        let pause = self.path.patience() * (1 << self.probes.min(10));
        stuck.then(|| self.path.last_activity() + pause.min(MAX_PROBE.max(self.path.patience())))
    }

    /// The block that the next packet comes from.
    fn pick(&mut self, now: Instant) -> Option<u32> {
        if self.overdue_at().is_some_and(|at| at <= now)
            && let Some(id) = self.blocks.waiting()
        {
            self.on_overdue(id);
        }
        if let Some(id) = self.blocks.repair() {
            return Some(id);
        }
        if self.current.is_some() {
            return self.current;
        }
        if self.may_open() {
            return self.open(now);
        }
        if self.is_rateless()
            && let Some(id) = self.blocks.waiting()
        {
            let block = self.blocks.get_mut(id)?;
            block.goal = block.sent + 1;
            return Some(id);
        }
        self.probes += 1;
        self.probe = false;
        if self.blocks.lowest() < self.blocks.next() {
            Some(self.blocks.lowest())
        } else {
            Some(self.blocks.base())
        }
    }

    fn on_overdue(&mut self, id: u32) {
        let per_arrival = *self.path.per_arrival();
        let caution = self.caution(id);
        let Some(block) = self.blocks.get_mut(id) else {
            return;
        };
        let needed = f64::from(self.settled.packets_needed(block.useful));
        let unheard = f64::from(block.sent - block.have_at);
        let missing = needed - f64::from(block.have) - per_arrival.arriving(unheard, caution);
        // The last packet of each pass and repair was to be answered, and some before it.
        block.silences = block.silences.saturating_add(1);
        let asked = f64::from(block.silences).max(unheard / path::echo_interval(&per_arrival));
        let plausible = IMPLAUSIBLE.ln() / -per_arrival.loss().max(0.01).ln();
        let doublings = (asked / plausible).floor().min(16.0);
        // At least what brings one arrival, and with it an answer.
        let plan = per_arrival.plan((missing.max(1.0) * doublings.exp2()).min(needed), caution);
        block.goal = block.sent + plan.max(per_arrival.get() as u32);
        self.set_phase(id, Phase::Repair);
    }

    // ---- time

    /// When to call [`handle_timeout`](Self::handle_timeout) and to look for packets again. Not in
    /// the past once that was called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if let Some(held) = self.answers_by.or(self.departure) {
            return Some(held);
        }
        if self.blocks.repair().is_some() || self.probe {
            return None;
        }
        [self.overdue_at(), self.probe_at()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The time of [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.answers_by) {
            self.answers_by = None;
            self.path.on_silence(now);
        }
        if due(self.departure) {
            self.departure = None;
        }
        self.probe |= due(self.probe_at());
        if self.blocks.repair().is_none()
            && due(self.overdue_at())
            && let Some(id) = self.blocks.waiting()
        {
            self.on_overdue(id);
        }
    }
}
