//! Loss recovery: SACK (RFC 6675), NewReno (RFC 6582), timeout (RFC 6298 §5, RFC 5681 §3.1),
//! proportional rate reduction (RFC 6937) and ECN (RFC 3168 §6.1.2).
//!
//! Without SACK the scoreboard counts duplicates as arrivals, so RFC 6582's inflated window is
//! RFC 6675's pipe, and both run through the same code.

use super::{Segment, TcpSender, WindowReduction};
use crate::tcp::scoreboard::DUP_THRESH;
use dfcp_proto::{Duration, Instant};

/// What the sender is doing about losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing.
    Open,
    /// Repairing losses found by SACK or duplicates.
    Recovery,
    /// Repairing after a timeout.
    Loss,
}

/// The counts of RFC 6937, segments.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prr {
    flight: u32,
    delivered: u32,
    out: u32,
}

impl Prr {
    #[inline]
    pub fn on_sent(&mut self) {
        self.out = self.out.wrapping_add(1);
    }
}

impl TcpSender {
    #[inline]
    pub(super) fn take_sacks(&mut self, now: Instant, segment: &Segment) -> u32 {
        if segment.sack.is_empty() {
            return 0;
        }
        match &mut self.sampler {
            Some(sampler) => self
                .scoreboard
                .sack(&segment.sack, |seq| sampler.on_delivered(now, seq)),
            None => self.scoreboard.sack(&segment.sack, |_| {}),
        }
    }

    /// Without SACK: what an acknowledgement says of arrivals.
    pub(super) fn count_duplicates(&mut self, acked: u32, fresh: u32) -> u32 {
        if acked > 0 {
            self.duplicates = 0;
            return self.scoreboard.remove_duplicates(acked).min(fresh);
        }
        if self.scoreboard.outstanding() == 0 {
            return 0;
        }
        self.duplicates += 1;
        self.scoreboard.add_duplicate();
        1
    }

    /// Marks segments as lost; gives how many.
    #[inline]
    pub(super) fn find_losses(&mut self) -> u32 {
        if !self.sack || self.scoreboard.sacked() == 0 && self.phase == Phase::Open {
            return 0;
        }
        let slack = self.rtt.min().unwrap_or(Duration::ZERO) / 4;
        self.scoreboard.mark_overtaken() + self.scoreboard.mark_lost_again(slack)
    }

    #[inline]
    pub(super) fn update_phase(&mut self, now: Instant, acked: u32, delivered: u32) {
        if self.phase != Phase::Open {
            self.continue_repair(acked);
        }
        if self.phase == Phase::Open && self.must_recover() {
            self.enter_recovery(now, delivered);
        }
    }

    fn continue_repair(&mut self, acked: u32) {
        let una = self.scoreboard.una();
        if self.recover.is_none_or(|recover| una >= recover) {
            if self.phase == Phase::Recovery && !self.control.is_model_based() {
                self.window.cwnd = self.window.ssthresh;
            }
            if !self.sack {
                self.scoreboard.clear_duplicates();
            }
            self.phase = Phase::Open;
            self.force = false;
            self.control.on_recovered(&mut self.window);
        } else if acked > 0 && self.phase == Phase::Recovery && !self.sack {
            // A partial acknowledgement: the next gap begins here (RFC 6582 §3.2, step 5).
            self.scoreboard.mark_first_lost();
            self.force = true;
        }
    }

    fn must_recover(&self) -> bool {
        if self.sack {
            return self.scoreboard.lost() > 0;
        }
        // Duplicates of what a timeout sent again are not news (RFC 6582 §3.2, step 2).
        let una = self.scoreboard.una();
        self.duplicates >= DUP_THRESH && self.recover.is_none_or(|recover| una > recover)
    }

    fn enter_recovery(&mut self, now: Instant, delivered: u32) {
        let scoreboard = &mut self.scoreboard;
        self.prr = Prr {
            flight: scoreboard.outstanding(),
            delivered: 0,
            out: 0,
        };
        if !self.sack {
            scoreboard.mark_first_lost();
        }
        self.recover = Some(scoreboard.next());
        self.phase = Phase::Recovery;
        self.force = true;
        self.rescue = true;
        self.stats.recoveries += 1;
        // Already reduced in this window, for a mark.
        if scoreboard.una() >= self.reduced_at {
            self.reduce(now);
        }
        if self.control.is_model_based() {
            let in_flight = self.scoreboard.in_flight();
            self.control
                .on_recovery(&mut self.window, in_flight, delivered);
        } else {
            self.window.cwnd = self.window.ssthresh;
        }
    }

    fn reduce(&mut self, now: Instant) {
        self.control.on_congestion(&mut self.window, now);
        self.reduced_at = self.scoreboard.next();
        self.cwr_due = self.ecn;
    }

    /// The receiver saw a mark: at most one reduction a window.
    pub(super) fn on_ecn_echo(&mut self, now: Instant) {
        if self.phase != Phase::Open || self.scoreboard.una() <= self.reduced_at {
            return;
        }
        self.reduce(now);
        self.stats.ecn_reductions += 1;
        if !self.control.is_model_based() {
            self.window.cwnd = self.window.ssthresh;
        }
    }

    /// RFC 6937 §3.1. The slow-start reduction bound holds on acknowledgements that are `safe`,
    /// that advance and tell of no further loss; else the conservative bound, as its successor
    /// has it: a threshold above what the path holds would drop its own repairs for ever.
    pub(super) fn follow_prr(&mut self, delivered: u32, safe: bool) {
        if self.reduction == WindowReduction::AtOnce || self.control.is_model_based() {
            return;
        }
        let prr = &mut self.prr;
        prr.delivered += delivered;
        let in_flight = self.scoreboard.in_flight();
        let target = self.window.ssthresh.floor();
        let pipe = f64::from(in_flight);
        let (done, out) = (f64::from(prr.delivered), f64::from(prr.out));
        let send = if pipe > target {
            (done * target / f64::from(prr.flight.max(1))).ceil() - out
        } else {
            let growth = if safe { 1.0 } else { 0.0 };
            let bound = (done - out).max(f64::from(delivered)) + growth;
            (target - pipe).min(bound)
        };
        self.window.cwnd = (pipe + send.max(0.0)).max(1.0);
    }

    /// Rules 3 and 4 of NextSeg: what may be sent when nothing is known to be lost and there is
    /// no new data.
    pub(super) fn last_resort(&self) -> Option<u32> {
        let doubtful = self.scoreboard.next_doubtful();
        doubtful.or_else(|| self.scoreboard.last_unsacked().filter(|_| self.rescue))
    }

    /// The retransmission timer ran out with data unacknowledged.
    pub(super) fn on_retransmission_timeout(&mut self, now: Instant) {
        // Not again for a segment that timed out before (RFC 5681 §3.1). A recovery that stalled
        // lost what it sent again, which is congestion to RFC 6675; Linux, which finds such losses
        // without a timeout, leaves it at one reduction a window.
        let due = match self.phase {
            Phase::Open => true,
            Phase::Recovery => !self.scoreboard.finds_lost_retransmissions(),
            Phase::Loss => self.progress,
        };
        if due {
            self.reduce(now);
        }
        self.control.on_timeout(&self.window);
        self.window.cwnd = 1.0;
        self.phase = Phase::Loss;
        self.recover = Some(self.scoreboard.next());
        self.progress = false;
        self.duplicates = 0;
        self.force = false;
        self.scoreboard.mark_all_lost();
    }
}
