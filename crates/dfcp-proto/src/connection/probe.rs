//! Probe timeouts: nothing was acknowledged for too long (RFC 9002 §6.2, RFC 8985 §7).
//!
//! A probe asks what became of everything before it. At the end of a transfer it also answers: the
//! blocks that the application waits for count no more on what is in flight, so that the scheduler
//! gives as many repair symbols as they are expected to need.

use super::{Connection, Control};
use crate::block::{ChannelId, SendChannel};
use crate::packet::SymbolRef;
use crate::time::{Duration, Instant};

/// Longest wait between probes, or one probe timeout: a path that comes back is noticed this soon.
/// From the third timeout on a probe is one packet of some 80 bytes with its headers: 2.5 kbit/s.
pub(super) const MAX_PROBE_INTERVAL: Duration = Duration::from_millis(250);
/// Timeouts in a row that are answered with data. Where half of the packets is lost both ways, two
/// probes stay unanswered 56 times in 100: silence is no outage yet, and the distance of probes does
/// not double before (Linux has four such SYNs, `tcp_syn_linear_timeouts`).
const DATA_PROBES: u32 = 2;

impl Connection {
    /// When to probe unless something is acknowledged before.
    pub(super) fn probe_time(&self) -> Option<Instant> {
        // With nothing in flight, credit or the report of an open block may have been lost.
        let waiting = || {
            let mut senders = self.channels.senders();
            !self.out.queue.is_empty() || senders.any(|(_, send)| send.open_blocks() > 0)
        };
        let in_flight = self.out.sent.any_in_flight();
        if !in_flight && !waiting() {
            return None;
        }
        let pto = self.pto();
        let rtt = &self.out.path.rtt;
        if self.is_fenced() {
            return self.challenge_time();
        }
        let spread = |doublings: u32| {
            let most = MAX_PROBE_INTERVAL.max(pto);
            (pto * (1 << doublings.min(6))).min(most)
        };
        let wait = match self.out.pto_count {
            // What is waited for is not lost, as answers come: a stream that is not read.
            0 if !in_flight && self.out.vain_probes > 0 => spread(self.out.vain_probes),
            // Twice the round trip at most (RFC 8985 §7.2): until many samples were taken, the
            // variation is a guess that makes it three times.
            0 if rtt.is_measured() => pto.min(2 * rtt.smoothed() + self.max_ack_delay()),
            count => spread(count.saturating_sub(DATA_PROBES)),
        };
        let (last, path) = (self.out.last_sent, &self.out.path);
        // Who is held back by a bound waits for the pacer, not for an answer.
        let paced = path.rate().is_bounded() && !in_flight && self.has_data_ready();
        let departure = paced.then(|| path.next_departure()).flatten();
        let since = departure.map_or(last, |at| at.clamp(last, last + MAX_PROBE_INTERVAL));
        Some(since + wait)
    }

    /// Asks, since nothing was acknowledged: twice with data that may be missing; from the second time
    /// on, when not the data but the path seems to be lost, also with a packet as small as can be, which
    /// passes where large ones do not; and in an outage with that alone.
    pub(super) fn on_probe_timeout(&mut self, now: Instant) {
        self.out.pto_count += 1;
        self.out.vain_probes += u32::from(!self.out.sent.any_in_flight());
        if !self.ask_again() {
            self.out.probes_due = (DATA_PROBES + 1).saturating_sub(self.out.pto_count) as u8;
            if self.out.pto_count > 1 || self.out.black_hole.is_suspected() {
                self.out.control.push_back(Control::Ping);
            }
        }
        self.stats.probes += 1;
        self.give_up_undecided(now);
        self.repeat_control();
        if self.out.pto_count <= DATA_PROBES {
            self.write_off_the_end();
        }
        self.out.path.on_timeout(now, self.out.pto_count);
    }

    /// The blocks that the application waits for count no more on what is in flight. Beyond the first
    /// packets their repairs wait for room in the window, which all that is unanswered fills.
    fn write_off_the_end(&mut self) {
        let channels = &self.channels;
        let awaited = |symbol: &SymbolRef| {
            let send = channels.peek_sender(ChannelId(symbol.channel));
            send.is_some_and(SendChannel::is_awaited)
        };
        for symbol in self.out.sent.write_off_unanswered(awaited) {
            self.write_off(symbol, false);
        }
    }

    /// Control frames whose repetition changes nothing go again without waiting for proof of loss.
    fn repeat_control(&mut self) {
        let queued = &mut self.out.control;
        for &control in self.out.sent.control_in_flight() {
            let repeatable = match control {
                Control::Ping
                | Control::PathChallenge
                | Control::MtuProbe(_)
                | Control::FeedbackRate
                | Control::Skip(..) => false,
                Control::PathResponse
                | Control::MaxStreamData(_)
                | Control::FirstWindow
                | Control::Fin(_)
                | Control::Reset(..)
                | Control::Stop(..) => true,
            };
            if repeatable && !queued.contains(&control) {
                queued.push_back(control);
            }
        }
    }
}
