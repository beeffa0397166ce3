//! The receiving end: cumulative acknowledgements (RFC 5681 §4.2), SACK (RFC 2018), timestamp echo
//! (RFC 7323 §4.3) and ECN echo (RFC 3168 §6.1.3).
//!
//! Invariant: data in order are consumed at once, so the advertised window is constant.

use super::config::{TcpReceiverConfig, buffer_segments};
use super::ranges::RangeSet;
use super::segment::{Flags, Kind, SackBlocks, Segment};
use crate::packet::Ecn;
use dfcp_proto::{Duration, Instant};

/// What a receiver counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpReceiverStats {
    /// Data segments that arrived.
    pub segments: u64,
    /// Of those, the ones that had arrived before or lay beyond the window.
    pub useless: u64,
    /// Of those, the ones that arrived beyond a gap.
    pub out_of_order: u64,
    /// Of those, the ones with a congestion mark.
    pub marked: u64,
    /// Acknowledgements sent.
    pub acks: u64,
}

/// The receiving end of one connection.
#[derive(Clone, Debug)]
pub struct TcpReceiver {
    config: TcpReceiverConfig,
    window: u32,
    /// Segments in order for which one acknowledgement is due.
    ack_every: u32,
    ack_delay: Duration,
    /// Acknowledgements that do not wait from now on.
    quick: u32,
    next: u32,
    /// What arrived beyond `next`.
    early: RangeSet,
    blocks: SackBlocks,
    /// Bytes that the last segment lacks of a full one, and its number.
    short: Option<(u32, u32)>,
    /// RFC 7323's TS.Recent.
    echo: Instant,
    /// Segments in order that no acknowledgement has told of.
    unacked: u32,
    pending: Option<Kind>,
    ece: bool,
    /// When a delayed acknowledgement is due.
    deadline: Option<Instant>,
    /// What [`TcpReceiver::poll_timeout`] tells: not after `deadline`, and seldom changed.
    timer: Option<Instant>,
    stats: TcpReceiverStats,
}

impl TcpReceiver {
    /// A receiver that waits for a SYN or for data.
    pub fn new(config: TcpReceiverConfig) -> Self {
        Self {
            window: buffer_segments(config.receive_buffer, config.mss),
            ack_every: config.delayed_ack.map_or(1, |delayed| delayed.segments),
            ack_delay: config.delayed_ack.unwrap_or_default().timeout,
            quick: config.delayed_ack.map_or(0, |delayed| delayed.quick),
            next: 0,
            early: RangeSet::default(),
            blocks: SackBlocks::NONE,
            short: None,
            echo: Instant::ZERO,
            unacked: 0,
            pending: None,
            ece: false,
            deadline: None,
            timer: None,
            stats: TcpReceiverStats::default(),
            config,
        }
    }

    /// Bytes received in order.
    pub fn in_order_bytes(&self) -> u64 {
        let missing = match self.short {
            Some((seq, missing)) if seq < self.next => missing,
            _ => 0,
        };
        u64::from(self.next) * u64::from(self.config.mss) - u64::from(missing)
    }

    /// The counters.
    pub fn stats(&self) -> &TcpReceiverStats {
        &self.stats
    }

    /// A segment arrived. Drain [`TcpReceiver::poll_transmit`] before the next one: acknowledgements
    /// are not queued.
    pub fn on_segment(&mut self, now: Instant, ecn: Ecn, segment: &Segment) {
        match segment.kind {
            Kind::Syn => {
                self.echo = segment.timestamp;
                self.pending = Some(Kind::SynAck);
            }
            Kind::Data => self.on_data(now, ecn, segment),
            Kind::SynAck | Kind::Ack => {}
        }
    }

    #[inline]
    fn on_data(&mut self, now: Instant, ecn: Ecn, segment: &Segment) {
        self.stats.segments += 1;
        if self.config.ecn {
            self.on_ecn(ecn, segment.flags);
        }
        let seq = segment.seq;
        // The segment that the next acknowledgement owes its number to is the one to time.
        if seq <= self.next - self.unacked {
            self.echo = segment.timestamp;
        }
        if segment.payload < self.config.mss {
            self.short = Some((seq, self.config.mss - segment.payload));
        }
        if seq == self.next && self.early.is_empty() {
            self.next += 1;
            self.unacked += 1;
            if self.unacked >= self.ack_every || self.quick > 0 {
                self.pending = Some(Kind::Ack);
            } else if self.deadline.is_none() {
                self.arm(now + self.ack_delay);
            }
        } else {
            self.on_disorder(seq);
        }
    }

    /// A segment that leaves or fills a gap, or came before: acknowledged at once.
    fn on_disorder(&mut self, seq: u32) {
        self.pending = Some(Kind::Ack);
        // What fills a gap is in order: Linux begins to count anew at the others.
        if seq != self.next {
            self.quick = self.config.delayed_ack.map_or(0, |delayed| delayed.quick);
        }
        if seq < self.next || seq - self.next >= self.window {
            self.stats.useless += 1;
            return;
        }
        if seq == self.next {
            self.next += 1;
            match self.early.first() {
                Some((start, end)) if start == self.next => self.next = end,
                _ => {}
            }
            self.early.remove_below(self.next);
            self.blocks.remove_below(self.next);
            return;
        }
        let mut fresh = false;
        let block = self.early.insert(seq, seq + 1, |_, _| fresh = true);
        self.blocks.push(block);
        if fresh {
            self.stats.out_of_order += 1;
        } else {
            self.stats.useless += 1;
        }
    }

    fn on_ecn(&mut self, ecn: Ecn, flags: Flags) {
        if flags.cwr {
            self.ece = false;
        }
        if ecn == Ecn::Ce {
            self.ece = true;
            self.stats.marked += 1;
        }
    }

    fn arm(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
        if self.timer.is_none_or(|timer| timer > deadline) {
            self.timer = Some(deadline);
        }
    }

    /// The time of [`TcpReceiver::poll_timeout`] has come.
    pub fn on_timeout(&mut self, now: Instant) {
        if self.timer.is_none_or(|timer| timer > now) {
            return;
        }
        self.timer = self.deadline;
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = None;
            self.timer = None;
            self.pending = Some(Kind::Ack);
        }
    }

    /// When to call [`TcpReceiver::on_timeout`]; it may find that it is too early.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timer
    }

    /// The next segment to send.
    #[inline]
    pub fn poll_transmit(&mut self, _now: Instant) -> Option<(Segment, Ecn)> {
        let kind = self.pending.take()?;
        let sack = if self.config.sack {
            self.blocks
        } else {
            SackBlocks::NONE
        };
        // At most three.
        let blocks = if sack.is_empty() {
            0
        } else {
            sack.iter().count() as u8
        };
        if kind == Kind::Ack {
            self.unacked = 0;
            self.quick = self.quick.saturating_sub(1);
            self.deadline = None;
            self.stats.acks += 1;
        }
        let segment = Segment {
            timestamp: self.echo,
            seq: self.next,
            payload: 0,
            window: self.window,
            sack,
            kind,
            flags: Flags {
                ece: self.ece,
                cwr: false,
            },
            header: self
                .config
                .sizes
                .header(kind, self.config.timestamps, blocks),
        };
        Some((segment, Ecn::NotEct))
    }
}
