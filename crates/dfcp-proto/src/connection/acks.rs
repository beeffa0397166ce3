//! What the peer says of packets and blocks: ACKs to loss detection and one feedback value to the
//! rate controller, reports to blocks.

use super::{CloseCode, Connection, Control};
use crate::block::{ChannelId, SendChannel};
use crate::config::MIN_DATAGRAM;
use crate::observe::Observation;
use crate::packet::{ReportIn, SentPacket, SymbolRef};
use crate::rate::{AckPoint, FateInGroups, PathReport};
use crate::scheduler::{MAX_COPY_GAP, Room};
use crate::time::{Duration, Instant};
use crate::wire::{AckHead, AckRanges, BlockReport, SackReport};

/// Packets say how long bursts last if they are closer than this part of a round trip: an eighth of
/// what repair symbols may wait. Those further apart find that a burst is over, but not since when; and
/// where bursts are counted in packets these last as long as the pause is. Copies of short messages say it in
/// any case: there may be nothing else.
const CLOSE_PACKETS: u32 = 32;

/// What an ACK says of packets; nothing where time alone passed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AckNews {
    /// The newest packet, if newer than any before.
    newest: Option<AckPoint>,
    /// Packets acknowledged for the first time.
    acked: u64,
    /// Of these, how many had been declared lost.
    spurious: u64,
    /// Of those acknowledged, the ones that left in groups.
    groups: FateInGroups,
    /// Of those acknowledged, how many could be marked.
    markable: u64,
    /// Packets that arrived marked.
    marked: u64,
    /// How long nothing was acknowledged, and the probe timeouts of that time.
    silence: Duration,
    timeouts: u32,
    /// What the receiver itself says of the path.
    path: Option<PathReport>,
}

impl Connection {
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        head: AckHead,
        ranges: &AckRanges<'_>,
        path: Option<PathReport>,
    ) -> Result<(), CloseCode> {
        let mut outcome = self
            .out
            .sent
            .on_ack(now, head.largest, ranges)
            .ok_or(CloseCode::PROTOCOL)?;
        let policy = self.out.redundancy.policy();
        let mut groups = FateInGroups::default();
        for (pn, packet) in &outcome.acked {
            if usize::from(packet.size) > MIN_DATAGRAM {
                self.out.black_hole.on_large_acked();
            } else {
                self.out.black_hole.on_small_acked(*pn);
            }
            self.out.path.on_delivered(packet.size.into());
            if let Some(fate) = groups.at(packet.place) {
                fate.acked += 1;
            }
            if let Some(symbol) = packet.symbol {
                let id = ChannelId(symbol.channel);
                if let Some(send) = self.channels.sender(id) {
                    let written_off = packet.was_written_off();
                    send.on_settled(symbol.offset, true, written_off, policy);
                }
            }
        }
        (0..outcome.spurious).for_each(|_| self.out.redundancy.loss.undo_loss());
        self.stats.spurious_losses += outcome.spurious;
        let mut news = AckNews {
            acked: outcome.acked.len() as u64,
            spurious: outcome.spurious,
            groups,
            markable: outcome.acked.iter().filter(|(_, p)| p.ect).count() as u64,
            path,
            ..AckNews::default()
        };
        if news.acked > 0 {
            self.settle(now);
            let since = std::mem::replace(&mut self.out.waiting_since, now);
            news.silence = now.saturating_since(since);
            news.timeouts = std::mem::take(&mut self.out.pto_count);
        }
        if outcome.largest_advanced
            && let Some((_, packet)) = outcome.acked.iter().find(|(pn, _)| *pn == head.largest)
        {
            let trip = now.saturating_since(packet.time);
            let delay = Duration::from_micros(head.delay_us);
            self.out.path.rtt.update(trip, delay);
            let received = Duration::from_micros(head.received_at_us);
            let arrivals = &mut self.out.arrivals;
            let arrived = arrivals.read(now, packet.time, received, self.out.path.rtt.smoothed());
            // A packet cannot have been held for longer than it has been on its way.
            let absurd = arrived.is_absurd || delay > trip;
            self.stats.absurd_times += u64::from(absurd);
            let path = &self.out.path;
            let mut point = path.ack_point(arrived.at, packet.time, packet.sent_total);
            point.size = u64::from(packet.size);
            news.newest = Some(point);
        }
        for (_, packet) in outcome.acked.drain(..) {
            packet
                .control
                .into_iter()
                .for_each(|c| self.on_control_acked(c));
        }
        self.out.sent.recycle(outcome.acked);
        news.marked = head.ce.saturating_sub(self.inc.peer_ce);
        self.inc.peer_ce = self.inc.peer_ce.max(head.ce);
        self.on_news(now, &news);
        Ok(())
    }

    fn on_control_acked(&mut self, control: Control) {
        match control {
            Control::Fin(id) => {
                if let Some(send) = self.channels.sender(id) {
                    send.fin_acked = true;
                }
                self.check_acknowledged(id);
            }
            Control::Reset(id, _) => {
                if let Some(channel) = self.channels.get_mut(id) {
                    channel.send = None;
                    self.forget_if_over(id);
                }
            }
            Control::Skip(id, _) => {
                if let Some(send) = self.channels.sender(id) {
                    send.on_skip_acked();
                }
                self.check_acknowledged(id);
            }
            Control::MtuProbe(size) => {
                self.set_mtu(self.mtu.max(usize::from(size)));
                self.out.mtu_search.on_acked(self.mtu);
            }
            _ => {}
        }
    }

    /// Finds lost packets, and tells the rate controller everything that this moment taught.
    pub(super) fn on_news(&mut self, now: Instant, news: &AckNews) {
        let mut groups = news.groups;
        let lost = self.detect_losses(now, news, &mut groups);
        let in_flight = self.out.sent.bytes_in_flight();
        let lateness = self.out.sent.lateness();
        if let Some(lost) = lost {
            self.out.path.on_feedback(now, |feedback| {
                feedback.newest = news.newest;
                feedback.acked_packets = news.acked;
                feedback.spurious_packets = news.spurious;
                feedback.lost_packets = lost;
                feedback.groups = groups;
                feedback.ce_packets = news.marked;
                feedback.ect_packets = news.markable;
                feedback.silence = news.silence;
                feedback.timeouts = news.timeouts;
                feedback.lateness = lateness;
                feedback.bytes_in_flight = in_flight;
                feedback.path = news.path;
            });
        }
        if self.observer.listens() {
            let metrics = self.out.path.metrics(self.out.sent.bytes_in_flight());
            self.observer.tell(now, || Observation::Metrics(metrics));
        }
        if in_flight == 0 {
            self.notify_buffer_room();
        }
    }

    /// Puts back what lost packets carried; says how many were found, and adds those of `groups`. `None` if the
    /// path is another one from now on.
    fn detect_losses(
        &mut self,
        now: Instant,
        news: &AckNews,
        groups: &mut FateInGroups,
    ) -> Option<u64> {
        let rtt = self.loss_rtt();
        let mut lost = self.out.sent.detect_lost(now, rtt);
        let lost_count = lost.len() as u64;
        self.stats.packets_acknowledged += news.acked;
        self.stats.packets_lost += lost_count;
        // After a blackout the lost packets tell of the blackout, not of the path's loss rate.
        if news.timeouts.max(self.out.pto_count) < 2 {
            let out = &mut self.out;
            let pace = out.path.pacing();
            let packet = pace.time_for(out.path.packet()).min(rtt);
            let closely = (out.path.rtt.smoothed() / CLOSE_PACKETS).max(MAX_COPY_GAP);
            let lost = lost.iter().map(|(pn, _)| out.sent.with_next(*pn, packet));
            out.redundancy.loss.note_lost(lost, closely);
            self.out
                .redundancy
                .loss
                .update(news.acked - news.spurious, lost_count);
        }
        for (number, packet) in &lost {
            if let Some(fate) = groups.at(packet.place) {
                fate.lost += 1;
            }
            let (number, bytes) = (Some(*number), packet.size.into());
            self.observer.tell(now, || Observation::Lost {
                number,
                packets: 1,
                bytes,
            });
        }
        let mut begins_anew = false;
        for (pn, packet) in lost.drain(..) {
            // Probes for a larger size are expected to vanish.
            let large = (MIN_DATAGRAM + 1..=self.mtu).contains(&packet.size.into());
            if large && self.out.black_hole.on_large_lost(pn) {
                begins_anew |= self.on_black_hole(now);
            }
            self.on_lost(now, packet);
        }
        self.out.sent.recycle(lost);
        for symbol in self.out.sent.write_off(now, rtt) {
            self.write_off(symbol, false);
        }
        (!begins_anew).then_some(lost_count)
    }

    /// The path does not carry packets as large as before any more. Whether it is taken for another one: routes
    /// have changed, and where all that passed were probes their rate may be left, which says nothing of the path.
    fn on_black_hole(&mut self, now: Instant) -> bool {
        let failed = self.mtu;
        self.set_mtu(MIN_DATAGRAM);
        self.out.mtu_search.on_black_hole(now, self.mtu, failed);
        if let Some(split) = self.out.split.take() {
            let (channel, offset) = (split.channel.0, split.symbol.offset);
            self.write_off(SymbolRef { channel, offset }, false);
        }
        self.stats.black_holes += 1;
        let path = &self.out.path;
        let in_round_trip = path.pacing().bytes_in(path.rtt.smoothed());
        let is_slower_than_new = in_round_trip < path.rate().initial_burst();
        if is_slower_than_new {
            self.begin_path(now);
        }
        is_slower_than_new
    }

    pub(super) fn on_lost(&mut self, now: Instant, packet: SentPacket<Control>) {
        if let Some(symbol) = packet.symbol {
            self.write_off(symbol, packet.was_written_off());
        }
        for control in packet.control {
            match control {
                // Still without a round-trip time: ask again.
                Control::Ping if !self.out.path.rtt.is_measured() => {
                    self.out.control.push_back(Control::Ping);
                }
                Control::Ping => {}
                Control::PathChallenge => {
                    if let Some(moved) = &mut self.out.moved {
                        moved.ask();
                    }
                }
                Control::MtuProbe(_) => {
                    self.out.mtu_search.on_lost(now, self.mtu);
                }
                // One answer at a time.
                Control::PathResponse if self.out.control.contains(&control) => {}
                other => self.out.control.push_back(other),
            }
        }
    }

    /// A block counts no more on a symbol; `already` if it did not before.
    pub(super) fn write_off(&mut self, symbol: SymbolRef, already: bool) {
        let id = ChannelId(symbol.channel);
        if let Some(send) = self.channels.sender(id) {
            let policy = self.out.redundancy.policy();
            send.on_settled(symbol.offset, false, already, policy);
        }
        self.activate(id);
    }

    pub(super) fn on_report(&mut self, now: Instant, pn: u64, report: &BlockReport<'_>) {
        let id = ChannelId(report.channel);
        let policy = self.out.redundancy.policy();
        let Some(send) = self.channels.sender(id) else {
            return;
        };
        // What a block needs may only be raised by news; being done is for ever.
        let fresh = pn >= self.inc.newest_feedback;
        self.inc.newest_feedback = self.inc.newest_feedback.max(pn);
        let mut freed = send.on_done_below(report.done_below);
        for (offset, needed) in report.iter().filter(|&(_, needed)| fresh || needed == 0) {
            if send.is_plausible(offset, needed) {
                freed += send.on_report(offset, needed, policy);
            } else {
                self.stats.implausible_reports += 1;
            }
        }
        self.on_freed(now, id, freed);
    }

    /// A packet with feedback, and none with data, arrived.
    pub(super) fn on_report_packet(&mut self, now: Instant, report: ReportIn) {
        if self.out.reverse.on_report(now, &self.out.path.rtt, report) {
            self.out.control.push_back(Control::FeedbackRate);
        }
    }

    /// What a SACK says: complete parts, and what there is room for. Returns what it says of the path,
    /// if that is news.
    pub(super) fn on_sack(
        &mut self,
        now: Instant,
        pn: u64,
        report: &SackReport<'_>,
    ) -> Option<PathReport> {
        let id = ChannelId(report.channel);
        let fresh = pn >= self.inc.newest_feedback;
        let window = self.out.receive_window?; // else nobody asked for it
        if fresh {
            self.inc.newest_feedback = pn;
        }
        let path = fresh.then_some(report.path);
        let Some(send) = self.channels.sender(id) else {
            return path;
        };
        let Some(sent_since) = send.begun_since(report.offset) else {
            self.stats.refused_reports += 1; // nothing was sent as far as that
            return path;
        };
        let mut freed = send.on_done_below(report.offset);
        for part in report.pairs() {
            freed += send.on_done_within(part);
        }
        if fresh {
            let said = u64::from(report.avail_win);
            self.stats.refused_reports += u64::from(said > window);
            let avail_win = said.min(window);
            send.allow(self.out.redundancy.scheduler.allowance(&Room {
                avail_win,
                sent_since,
            }));
        }
        self.on_freed(now, id, freed);
        path
    }

    /// Blocks are complete at the peer: room to write more, and perhaps room to send.
    fn on_freed(&mut self, now: Instant, id: ChannelId, freed: u64) {
        self.activate(id);
        if freed > 0 {
            self.on_progress(now);
            let send = self.channels.sender(id);
            for block in send.map(SendChannel::take_acked).unwrap_or_default() {
                self.out.path.on_block_acked(now, &block.sent);
                self.out.buffers.keep(block.buffer);
            }
            self.out.let_go(freed);
            self.notify_writable(id);
            self.notify_buffer_room();
            self.check_acknowledged(id);
        }
    }
}
