//! Feedback and control frames, in packets of their own.

use super::transmit::{Batch, Contents};
use super::{Connection, Control};
use crate::block::{ChannelId, RecvChannel, SendChannel};
use crate::config::MIN_DATAGRAM;
use crate::rate::PathReport;
use crate::time::{Duration, Instant};
use crate::wire::{AckHead, Frame, SackReport, TAG_LEN};
use std::collections::BTreeMap;

/// Largest share of a report packet that ACK ranges may take.
const ACK_ROOM: usize = 600;
/// Where the sender wants few reports, one repeats as many ranges as it has new ones, so that losing another
/// report costs nothing, and so many of a path that hardly loses: a tenth of its bytes.
const REPEATED_AT_LEAST: usize = 4;
/// Bytes of the shortest range.
const LEAST_RANGE: usize = 2;
/// Bytes of a BLOCKS frame with the two numbers of eight bytes that it begins with, and one block.
const LEAST_BLOCKS: usize = 40;
/// Bytes of a SACK frame with at least one pair.
const MIN_SACK_ROOM: usize = 60;
/// Bytes of data below which flow control is worth an update: a quarter of the budget.
const CREDIT_STEP: u64 = 4;
/// Packets in a row that ask for no feedback: without any, the record of them would only grow.
const MAX_SILENT: u64 = 64;
/// The longest control frame: four eight-byte numbers and a type.
const MAX_CONTROL: usize = 33;

impl Connection {
    /// Feedback alone in a packet.
    pub(super) fn transmit_report(&mut self, now: Instant, out: &mut Vec<u8>) -> Batch {
        let start = out.len();
        let pn = self.begin_packet(now, out);
        self.emit_feedback(now, out, start);
        self.finish_packet(now, pn, start, out, Contents::default());
        Batch::from(out.len() - start)
    }

    /// Feedback and control frames in a packet of their own.
    pub(super) fn transmit_control(&mut self, now: Instant, out: &mut Vec<u8>) -> Batch {
        let start = out.len();
        let room = |out: &Vec<u8>, mtu: usize| mtu.saturating_sub(out.len() - start + TAG_LEN);
        let pn = self.begin_packet(now, out);
        self.emit_feedback(now, out, start);
        let report = out.len() - start + TAG_LEN;
        self.inc.policy.on_sent(now, report as u64);
        let mut sent = Vec::new();
        let mut pad_to = 0;
        while let Some(control) = self.out.control.pop_front() {
            if room(out, self.mtu) < MAX_CONTROL {
                self.out.control.push_front(control);
                break;
            }
            let alone = matches!(control, Control::MtuProbe(_));
            if alone && !self.is_validated() {
                self.out.mtu_search.withdraw();
                continue;
            }
            if let Control::MtuProbe(size) = control {
                pad_to = usize::from(size);
            }
            self.emit_control(control, out);
            sent.push(control);
            if alone {
                break;
            }
        }
        if pad_to > 0 {
            out.resize((start + pad_to - TAG_LEN).max(out.len()), 0);
        }
        let silent = self
            .out
            .sent
            .next_number()
            .saturating_sub(self.out.last_eliciting);
        if sent.is_empty() && silent >= MAX_SILENT && room(out, self.mtu) > 0 {
            self.emit_control(Control::Ping, out);
            sent.push(Control::Ping);
        }
        let contents = Contents {
            ack_eliciting: !sent.is_empty(),
            control: sent,
            ..Contents::default()
        };
        self.finish_packet(now, pn, start, out, contents);
        Batch::from(out.len() - start)
    }

    fn emit_control(&self, control: Control, out: &mut Vec<u8>) {
        match control {
            Control::Ping | Control::MtuProbe(_) => Frame::Ping.emit(out),
            // The challenge leaves alone.
            Control::PathChallenge => {}
            Control::PathResponse => {
                if let Some((_, data)) = self.inc.challenge {
                    Frame::PathResponse(data).emit(out);
                }
            }
            Control::FeedbackRate => {
                Frame::FeedbackRate(self.out.reverse.limit().unwrap_or(0)).emit(out);
            }
            Control::MaxStreamData(id) => {
                let recv = self.channels.peek_receiver(id);
                let limit = recv.map_or(0, RecvChannel::limit);
                Frame::MaxStreamData {
                    channel: id.0,
                    limit,
                }
                .emit(out);
            }
            Control::FirstWindow => Frame::FirstWindow(self.inc.credit.first_window).emit(out),
            Control::Fin(id) => match self.channels.peek_sender(id) {
                Some(send) if !send.is_abandoned() => Frame::Fin {
                    channel: id.0,
                    size: send.size(),
                }
                .emit(out),
                _ => Frame::Ping.emit(out),
            },
            Control::Reset(id, code) => {
                let send = self.channels.peek_sender(id);
                let charged = send.map_or(0, SendChannel::charged);
                Frame::Reset {
                    channel: id.0,
                    code,
                    charged,
                }
                .emit(out);
            }
            Control::Stop(id, code) => Frame::Stop {
                channel: id.0,
                code,
            }
            .emit(out),
            Control::Skip(id, skip) => Frame::Skip {
                channel: id.0,
                offset: skip.offset,
                len: skip.len,
                charged: skip.charged,
            }
            .emit(out),
        }
    }

    /// Everything the peer should know about what arrived, as far as it fits into a datagram that every
    /// path carries: no report is lost because a path became narrower.
    fn emit_feedback(&mut self, now: Instant, out: &mut Vec<u8>, start: usize) {
        let Some(largest) = self.inc.received.largest() else {
            return;
        };
        // Reports of the path come with what there is room for, or not at all.
        let window = self.inc.policy.receive_window();
        let path = window.and_then(|window| Some((window, self.inc.policy.report(now)?)));
        let mut touched = std::mem::take(&mut self.inc.touched);
        // Before the ACK: what this says of the path is part of what that teaches.
        if let Some((window, path)) = path {
            for &id in touched.keys() {
                self.emit_sack(id, (window, path), out, start);
            }
        }
        let micros = |d: Duration| d.as_micros() as u64;
        let head = AckHead {
            largest,
            received_at_us: micros(self.inc.largest_at.saturating_since(self.epoch)),
            delay_us: micros(now.saturating_since(self.inc.largest_at)),
            ce: self.inc.ce,
        };
        let limit = self.inc.policy.most_in_report();
        let full = limit.map_or(MIN_DATAGRAM, |most| MIN_DATAGRAM.min(most as usize));
        let full = full.saturating_sub(TAG_LEN);
        self.emit_ack(head, limit.map(|_| ACK_ROOM.min(full / 2)), out);
        Frame::MaxData(self.inc.credit.grant()).emit(out);
        // They take turns where there is not room for all.
        let from = self.inc.report_from;
        let mut after = touched.split_off(&from);
        let is_whole = [&mut after, &mut touched]
            .into_iter()
            .all(|part| self.emit_reports(part, path.is_some(), (full, start), out));
        if is_whole {
            self.inc.report_from = ChannelId(0);
        }
        self.inc.touched.append(&mut touched);
        self.inc.touched.append(&mut after);
    }

    /// Reports on `channels` in their order until a packet of `full` bytes is; whether it had room for all. Of those
    /// that a SACK named it says only what blocks still need.
    fn emit_reports(
        &mut self,
        channels: &mut BTreeMap<ChannelId, u8>,
        are_sacked: bool,
        (full, start): (usize, usize),
        out: &mut Vec<u8>,
    ) -> bool {
        let mut next = ChannelId(0);
        while let Some((&id, left)) = channels.range_mut(next..).next() {
            let room = full.saturating_sub(out.len() - start);
            if room < LEAST_BLOCKS {
                self.inc.report_from = id; // next report
                return false;
            }
            next = ChannelId(id.0 + 1);
            *left -= 1;
            if *left == 0 {
                channels.remove(&id);
            }
            let (done_below, entries) = self.channel_report(id);
            let said = are_sacked && entries.iter().all(|&(_, needed)| needed == 0);
            if !said || self.channels.peek_receiver(id).is_none() {
                Frame::emit_blocks(out, id.0, done_below, entries.into_iter(), room);
            }
        }
        true
    }

    /// What arrived. Where the way back is narrow there is `limited` room, as longer reports would be fewer ones:
    /// few ranges are repeated, and what many would take is a bitmap.
    fn emit_ack(&mut self, head: AckHead, limited: Option<usize>, out: &mut Vec<u8>) {
        let received = &mut self.inc.received;
        let most = match limited {
            Some(_) => 2 * received.unreported() + REPEATED_AT_LEAST,
            None => ACK_ROOM / LEAST_RANGE,
        };
        let news = received.news(most);
        let ranges = news.iter().copied();
        let said = match limited {
            Some(room) => Frame::emit_shortest_ack(out, head, ranges, room),
            None => Frame::emit_ack(out, head, ranges, ACK_ROOM),
        };
        received.on_reported(&news[..said]);
    }

    /// What there is room for on a channel, with what the policy says of the path.
    fn emit_sack(
        &mut self,
        id: ChannelId,
        (window, path): (u8, PathReport),
        out: &mut Vec<u8>,
        start: usize,
    ) {
        let room = (MIN_DATAGRAM - TAG_LEN).saturating_sub(out.len() - start + ACK_ROOM);
        let recv = self.channels.receiver(id);
        let Some(recv) = recv.filter(|_| room >= MIN_SACK_ROOM) else {
            return;
        };
        let avail_win = u64::from(window).saturating_sub(recv.occupancy()) as u8;
        let (offset, parts) = recv.sack();
        let report = SackReport::new(path, id.0, avail_win, offset);
        Frame::emit_sack(out, &report, parts.into_iter(), room);
    }

    /// Reports soon that the application took something from a channel.
    pub(super) fn offer_room(&mut self, now: Instant, id: ChannelId) {
        if self.inc.policy.receive_window().is_some() {
            self.inc.touched.entry(id).or_insert(1);
            self.inc.policy.on_room(now);
        }
    }

    /// The application may have freed some of the budget: asks for a report soon if that is a good part.
    pub(super) fn offer_credit(&mut self, now: Instant) {
        self.review_first_window(now);
        let credit = &self.inc.credit;
        if credit.grantable() >= credit.granted + credit.reserved() / CREDIT_STEP {
            self.inc.policy.on_urgent(now);
        }
    }
}
