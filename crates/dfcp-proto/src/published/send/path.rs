//! The path as the answers show it: round trips, loss, and when the rate controller lets the next
//! packet go.

use super::super::data::{DataHeader, Report};
use super::echo::{Echoed, Echoes};
use super::plan::PerArrival;
use crate::observe::PathMetrics;
use crate::rate::{BlockSent, Codepoint, Grouping, PathControl, RateController};
use crate::time::{Duration, Instant, Rate};
use dfcp_fec::raptor::State;

/// One packet in this many is to be answered, as seen by the receiver.
const ECHO_INTERVAL: f64 = 32.0;
/// Slack of a silence beyond the round trip: the receiver's host is no clockwork either.
const SLACK: Duration = Duration::from_millis(2);
/// Packets overtake each other by up to this part of a round trip.
const REORDERING: u32 = 8;

/// Packets from one that is to be answered to the next, at least 1.
pub(super) fn echo_interval(per_arrival: &PerArrival) -> f64 {
    (ECHO_INTERVAL / per_arrival.get()).floor() + 1.0
}

/// Whether a packet may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    /// It may.
    Now,
    /// Not before then.
    At(Instant),
    /// Not before answers come, or until their absence is certain.
    Answers(Instant),
}

/// What the newest answer said.
#[derive(Clone, Copy, Debug, Default)]
struct Newest {
    sent_packets: u64,
    sent_bytes: u64,
    arrived: u64,
    lost: u64,
    report: Report,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Path {
    control: PathControl,
    echoes: Echoes,
    per_arrival: PerArrival,
    sent_packets: u64,
    until_echo: u32,
    newest: Newest,
    /// Bytes known to have arrived.
    delivered: u64,
    last_sent: Instant,
    heard: Instant,
    /// When the latest of the packets answered left.
    answered: Instant,
}

impl Path {
    pub fn new(
        now: Instant,
        rate: Box<dyn RateController>,
        rtt: Option<Duration>,
        packet_bytes: u64,
    ) -> Self {
        let mut control = PathControl::new(now, rate, Grouping::Fixed);
        if let Some(rtt) = rtt {
            control.rtt.update(rtt, Duration::ZERO);
        }
        control.on_established(now, packet_bytes);
        control.follow_rate(now);
        Self {
            control,
            echoes: Echoes::new(),
            per_arrival: PerArrival::new(),
            sent_packets: 0,
            until_echo: 0,
            newest: Newest::default(),
            delivered: 0,
            last_sent: now,
            heard: now,
            answered: now,
        }
    }

    pub fn per_arrival(&self) -> &PerArrival {
        &self.per_arrival
    }

    pub fn srtt(&self) -> Option<Duration> {
        let rtt = &self.control.rtt;
        rtt.is_measured().then(|| rtt.smoothed())
    }

    pub fn pacing(&self) -> Rate {
        self.control.pacing()
    }

    pub fn ecn(&self) -> Codepoint {
        self.control.rate().ecn()
    }

    /// Packets taken for lost, and the bytes of one.
    pub fn lost(&self) -> (u64, u64) {
        (self.newest.lost, self.control.packet())
    }

    /// What is known of the path.
    pub fn metrics(&self) -> PathMetrics {
        self.control.metrics(self.in_flight())
    }

    /// Bytes sent after those that the newest answer is of.
    fn in_flight(&self) -> u64 {
        self.control.sent_total() - self.newest.sent_bytes
    }

    /// When something was last sent or heard.
    pub fn last_activity(&self) -> Instant {
        self.last_sent.max(self.heard)
    }

    /// How long answers may stay out.
    pub fn patience(&self) -> Duration {
        self.control.rtt.pto(Duration::ZERO) + SLACK
    }

    /// From when on the packet that left at `sent` must be taken as not answered: when a later
    /// one is answered, or none for long. A queue that grows delays all answers.
    pub fn overdue_at(&self, sent: Instant) -> Instant {
        let late = sent + self.control.rtt.smoothed() / REORDERING;
        if self.answered > late {
            return late;
        }
        sent.max(self.heard) + self.patience()
    }

    pub fn order_rate(&mut self, now: Instant, rate: Rate) {
        self.control.order_rate(now, rate);
    }

    /// A block was acknowledged.
    pub fn on_block_acked(&mut self, now: Instant, block: &BlockSent) {
        self.control.on_block_acked(now, block);
    }

    /// Whether a packet may go now.
    pub fn ready(&mut self, now: Instant) -> Ready {
        if self.control.window_room(self.in_flight()) < self.control.packet() {
            return Ready::Answers(self.last_activity() + self.patience());
        }
        if self.control.may_depart(now) {
            return Ready::Now;
        }
        // A rate of zero waits for an order or an answer.
        self.control
            .next_departure()
            .map_or(Ready::Answers(now + self.patience()), Ready::At)
    }

    /// There was nothing to send, though a packet might have gone.
    pub fn on_idle(&mut self) {
        self.control.on_idle(false);
    }

    /// Whether the next packet should be answered, last of a pass or not.
    pub fn wants_echo(&self) -> bool {
        self.until_echo == 0 || self.control.rate().departure().immediate_ack
    }

    /// Packet `index` of its block leaves, `bytes` long with its header.
    pub fn on_sent(&mut self, now: Instant, header: &DataHeader, index: u32, bytes: u64) {
        self.sent_packets += 1;
        self.control.count_sent(bytes);
        self.last_sent = now;
        self.until_echo = self.until_echo.saturating_sub(1);
        if header.echo {
            self.until_echo = echo_interval(&self.per_arrival) as u32 - 1;
            let echoed = Echoed {
                state: header.state,
                block: header.block,
                index,
                sent_at: now,
                sent_packets: self.sent_packets,
                sent_bytes: self.control.sent_total(),
            };
            self.echoes.insert(echoed, 2 * self.control.rtt.smoothed());
        }
        self.control.on_data_sent(now, bytes);
    }

    /// An answer arrived; gives the packet it answers, if that is known.
    pub fn on_answer(
        &mut self,
        now: Instant,
        state: State,
        report: Option<&Report>,
    ) -> Option<Echoed> {
        self.heard = now;
        let echoed = self.echoes.take(state)?;
        self.control
            .rtt
            .update(now.saturating_since(echoed.sent_at), Duration::ZERO);
        self.answered = self.answered.max(echoed.sent_at);
        if echoed.sent_packets > self.newest.sent_packets {
            match report {
                Some(report) => self.on_report(now, &echoed, report),
                None => {
                    self.newest.sent_packets = echoed.sent_packets;
                    self.newest.sent_bytes = echoed.sent_bytes;
                }
            }
        }
        Some(echoed)
    }

    fn on_report(&mut self, now: Instant, echoed: &Echoed, report: &Report) {
        let before = self.newest;
        let acked = u64::from(report.packets.wrapping_sub(before.report.packets));
        let sent = echoed.sent_packets - before.sent_packets;
        // More than were sent: duplicates, late arrivals, or nonsense.
        let acked = acked.min(2 * sent);
        let arrived = before.arrived + acked;
        let lost = echoed.sent_packets.saturating_sub(arrived);
        self.newest = Newest {
            sent_packets: echoed.sent_packets,
            sent_bytes: echoed.sent_bytes,
            arrived,
            lost: lost.max(before.lost),
            report: *report,
        };
        self.per_arrival.update(sent, acked);
        // No more than was sent by then, whatever the receiver says or the network doubles.
        self.delivered = report.bytes.min(echoed.sent_bytes).max(self.delivered);
        self.control.set_delivered(self.delivered);
        let received_at = Duration::from_nanos(report.clock);
        let (sent_at, sent_bytes) = (echoed.sent_at, echoed.sent_bytes);
        let point = self.control.ack_point(received_at, sent_at, sent_bytes);
        let in_flight = self.control.sent_total() - sent_bytes;
        self.control.on_feedback(now, |feedback| {
            feedback.bytes_in_flight = in_flight;
            feedback.newest = Some(point);
            feedback.acked_packets = acked;
            feedback.lost_packets = lost.saturating_sub(before.lost);
            feedback.ce_packets = u64::from(report.ce.wrapping_sub(before.report.ce)).min(acked);
        });
    }

    /// No answer came for long though the rate controller's window is full: what is in flight is
    /// given up.
    pub fn on_silence(&mut self, now: Instant) {
        let lost = self.sent_packets - self.newest.sent_packets;
        self.newest.sent_packets = self.sent_packets;
        self.newest.sent_bytes = self.control.sent_total();
        self.newest.lost += lost;
        self.control
            .on_feedback(now, |feedback| feedback.lost_packets = lost);
    }
}
