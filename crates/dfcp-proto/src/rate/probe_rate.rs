//! Available bandwidth by the probe rate model, self-induced congestion: chirps as pathChirp sends
//! and reads them (Ribeiro, Riedi, Baraniuk, Navratil, Cottrell: "pathChirp: efficient available
//! bandwidth estimation for network paths", PAM 2003).
//!
//! A chirp is a train of packets whose spacing shrinks by a constant factor, so that its rate sweeps
//! from half to twice the present estimate. Packets at a rate below what is available meet the
//! queue that others made, which rises and falls; above it, each packet waits longer than the one
//! before, to the end of the chirp. Where that last excursion of the queueing delay begins is the
//! chirp's estimate; excursions that end say that their rates are available in part.
//!
//! The chirps are packets that would have been sent anyway, and their mean rate is the estimate: so
//! what they find is what is available to this flow. Only differences of delays within a chirp
//! count, so that a standing queue, or clocks that are apart, do no harm. Under a fair scheduler the
//! queue is the flow's own, and what is found is its share.
//!
//! Limits: jitter longer than a chirp's own queue, or reordering within it, hides the rise; then only
//! the overestimate makes the rate grow, until the path is full.

use super::delivery::{Delivery, factor};
use super::{AckPoint, Departure, Feedback, RateController};
use crate::time::{Duration, Instant, Rate};
use std::collections::VecDeque;

/// Packets of a chirp.
const PACKETS: usize = 40;
/// Its first rate and its last, relative to the estimate.
const LOWEST: f64 = 0.6;
const HIGHEST: f64 = 1.8;
/// Paced packets between two chirps, and chirps in a round trip at most.
const BETWEEN: u32 = 24;
const PER_RTT: u32 = 32;
/// An excursion lasts as long as the delay is above its greatest ÷ F …
const DECREASE: f64 = 1.5;
/// … and counts if it has at least L packets; both as pathChirp has them.
const BUSY: usize = 5;
/// A rise to the end of the chirp counts if it is so many times what delays change by anyway.
const SIGNAL: f64 = 4.0;
/// Packets more that are lost of the fast half of a chirp: chance alone, on a path that loses one
/// in five by itself, gets here one time in 20.
const CLIPPED: usize = 5;
/// Weight of a new chirp.
const GAIN: f64 = 0.2;
/// Chirps in flight that are remembered.
const MAX_OPEN: usize = 2 * PER_RTT as usize;

/// See the module's text.
#[derive(Debug)]
pub struct ProbeRate {
    factor: f64,
    estimate: Rate,
    /// No chirp has met congestion yet.
    is_starting: bool,
    /// The chirp being sent, and the gaps that are left of it, the next one last.
    sending: Option<(Chirp, Vec<Duration>)>,
    open: VecDeque<Chirp>,
    until_chirp: u32,
    last_chirp: Option<Instant>,
    delivery: Delivery,
}

/// A packet of a chirp.
#[derive(Clone, Copy, Debug)]
struct Packet {
    total: u64,
    sent: Instant,
    received: Option<Duration>,
}

#[derive(Clone, Debug)]
struct Chirp {
    packets: Vec<Packet>,
}

/// What a chirp found.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Finding {
    /// Bits per second.
    available: f64,
    /// The delay rose to the end.
    is_congested: bool,
}

impl ProbeRate {
    /// Sends at the estimate times 1 + `overestimate`.
    pub fn new(overestimate: f64) -> Self {
        Self {
            factor: factor(overestimate),
            estimate: Rate::from_bps(1_000_000),
            is_starting: true,
            sending: None,
            open: VecDeque::new(),
            until_chirp: 0,
            last_chirp: None,
            delivery: Delivery::default(),
        }
    }

    /// Gaps of the next chirp, the first one last.
    fn gaps(&self) -> Vec<Duration> {
        let steps = (PACKETS - 2) as f64;
        let spread = (HIGHEST / LOWEST).powf(1.0 / steps);
        (0..PACKETS - 1)
            .rev()
            .map(|k| {
                let rate = self.estimate.mul_f64(LOWEST * spread.powi(k as i32));
                rate.max(self.delivery.least())
                    .time_for(self.delivery.packet())
            })
            .collect()
    }

    fn is_due(&self, now: Instant) -> bool {
        let apart = self.delivery.rtt() / PER_RTT;
        self.until_chirp == 0 && self.last_chirp.is_none_or(|last| now >= last + apart)
    }

    fn on_arrival(&mut self, ack: &AckPoint) {
        while let Some(chirp) = self.open.front_mut() {
            let last = chirp.packets.last().map_or(0, |p| p.total);
            chirp.mark(ack);
            if ack.sent_total < last {
                return;
            }
            match self.open.pop_front().and_then(|chirp| chirp.read()) {
                Some(finding) => self.on_finding(finding),
                None => self.follow_arrivals(),
            }
        }
        if let Some((chirp, _)) = &mut self.sending {
            chirp.mark(ack);
        }
    }

    /// Falls back to what arrives.
    fn follow_arrivals(&mut self) {
        self.is_starting = false;
        self.estimate = self.delivery.arriving().unwrap_or(self.delivery.initial());
    }

    fn on_finding(&mut self, finding: Finding) {
        let old = self.estimate.as_bps() as f64;
        self.is_starting &= !finding.is_congested;
        let mut available = finding.available;
        if !finding.is_congested {
            // A host with a coarse clock may not have sent it as fast as it should.
            let arriving = self.delivery.arriving().unwrap_or(Rate::ZERO);
            available = available.max(arriving.as_bps() as f64);
        }
        let new = if self.is_starting {
            available.max(old)
        } else {
            old + GAIN * (available - old)
        };
        self.estimate = Rate::from_bps(new as u64);
        // No further than sending can follow.
        self.estimate = self.delivery.bound(self.estimate);
    }
}

impl Chirp {
    fn mark(&mut self, ack: &AckPoint) {
        if let Ok(i) = self
            .packets
            .binary_search_by_key(&ack.sent_total, |p| p.total)
        {
            self.packets[i].received = Some(ack.received_at);
        }
    }

    /// pathChirp's estimate; `None` if it was far too fast: most of it was lost, or, at a queue too
    /// short or too full to grow, clearly more of its fast half than of its slow one.
    fn read(&self) -> Option<Finding> {
        let arrived: Vec<(Packet, Duration)> = self
            .packets
            .iter()
            .filter_map(|p| Some((*p, p.received?)))
            .collect();
        let ((origin, zero), last) = (arrived.first()?, arrived.last()?);
        if 2 * arrived.len() < PACKETS || last.0.sent <= origin.sent {
            return None;
        }
        // Relative to the first packet: the clocks' origins differ.
        let delays: Vec<f64> = arrived
            .iter()
            .map(|(p, received)| {
                let out = received.as_secs_f64() - zero.as_secs_f64();
                out - p.sent.saturating_since(origin.sent).as_secs_f64()
            })
            .collect();
        let gaps: Vec<Gap> = arrived
            .windows(2)
            .map(|w| Gap::between(&w[0].0, &w[1].0))
            .collect();
        let finding = read(&delays, &gaps);
        let lost = |half: &[Packet]| half.iter().filter(|p| p.received.is_none()).count();
        let (slow, fast) = self.packets.split_at(self.packets.len() / 2);
        let clipped = !finding.is_congested && lost(fast) >= lost(slow) + CLIPPED;
        (!clipped).then_some(finding)
    }
}

/// Two neighbours among the packets that arrived.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// Bits per second.
    rate: f64,
    seconds: f64,
}

impl Gap {
    fn between(from: &Packet, to: &Packet) -> Self {
        let seconds = to.sent.saturating_since(from.sent).as_secs_f64().max(1e-9);
        let bits = 8.0 * to.total.saturating_sub(from.total) as f64;
        Self {
            rate: bits / seconds,
            seconds,
        }
    }
}

/// The mean of every gap's estimate, weighted by time; `delays` has one more than `gaps`, of which
/// there is at least one.
fn read(delays: &[f64], gaps: &[Gap]) -> Finding {
    let mut estimates: Vec<Option<f64>> = vec![None; gaps.len()];
    let mut rest = gaps.last().map_or(0.0, |gap| gap.rate);
    let mut is_congested = false;
    let noise = noise(delays);
    let mut i = 0;
    while i < gaps.len() {
        let end = excursion_end(delays, i);
        if end == delays.len() {
            let rise = delays[i..]
                .iter()
                .fold(0.0, |most: f64, d| most.max(d - delays[i]));
            if rise < SIGNAL * noise {
                break;
            }
            rest = gaps[i].rate;
            is_congested = end - i > BUSY;
            break;
        }
        for k in i..end {
            if delays[k] < delays[k + 1] {
                estimates[k] = Some(gaps[k].rate);
            }
        }
        i = end.max(i + 1);
    }
    let time: f64 = gaps.iter().map(|gap| gap.seconds).sum();
    let weighted = gaps.iter().zip(&estimates);
    let sum: f64 = weighted
        .map(|(gap, estimate)| estimate.unwrap_or(rest) * gap.seconds)
        .sum();
    Finding {
        available: sum / time,
        is_congested,
    }
}

/// Median change of delay between neighbours.
fn noise(delays: &[f64]) -> f64 {
    let mut changes: Vec<f64> = delays.windows(2).map(|w| (w[1] - w[0]).abs()).collect();
    changes.sort_by(f64::total_cmp);
    changes.get(changes.len() / 2).copied().unwrap_or(0.0)
}

/// Where the excursion that begins at packet `i` is over: `i` itself if none does or it is too
/// short to count, the number of packets if it never ends.
fn excursion_end(delays: &[f64], i: usize) -> usize {
    if delays[i] >= delays[i + 1] {
        return i;
    }
    let mut greatest: f64 = 0.0;
    for (j, delay) in delays.iter().enumerate().skip(i + 1) {
        let rise = delay - delays[i];
        greatest = greatest.max(rise);
        if rise < greatest / DECREASE {
            return if j - i >= BUSY { j } else { i };
        }
    }
    delays.len()
}

impl RateController for ProbeRate {
    fn on_established(&mut self, now: Instant, rtt: Duration, packet_size: u64) {
        self.delivery.on_established(now, rtt, packet_size);
        self.estimate = self.delivery.initial();
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.delivery.on_feedback(feedback);
        if let Some(ack) = feedback.newest {
            self.on_arrival(&ack);
        }
        if self.delivery.full().is_some() {
            self.follow_arrivals();
        }
    }

    fn on_sent(&mut self, now: Instant, sent_total: u64) {
        self.delivery.on_sent(now);
        if self.sending.is_none() {
            if !self.is_due(now) {
                self.until_chirp = self.until_chirp.saturating_sub(1);
                return;
            }
            let chirp = Chirp {
                packets: Vec::with_capacity(PACKETS),
            };
            self.sending = Some((chirp, self.gaps()));
            self.last_chirp = Some(now);
        }
        let Some((chirp, gaps)) = &mut self.sending else {
            return;
        };
        // Its first packet has no gap before it.
        if !chirp.packets.is_empty() {
            gaps.pop();
        }
        chirp.packets.push(Packet {
            total: sent_total,
            sent: now,
            received: None,
        });
        if gaps.is_empty()
            && let Some((chirp, _)) = self.sending.take()
        {
            if self.open.len() == MAX_OPEN {
                self.open.pop_front();
            }
            self.open.push_back(chirp);
            self.until_chirp = if self.is_starting { 0 } else { BETWEEN };
        }
    }

    fn departure(&self) -> Departure {
        let next = self.sending.as_ref().and_then(|(chirp, gaps)| {
            let last = chirp.packets.last()?;
            Some(last.sent + *gaps.last()?)
        });
        Departure {
            at: next,
            immediate_ack: next.is_some() || self.until_chirp == 0,
        }
    }

    fn is_probing(&self) -> bool {
        true
    }

    fn pacing_rate(&self) -> Rate {
        self.delivery.bound(self.estimate.mul_f64(self.factor))
    }

    fn window(&self) -> u64 {
        self.delivery.window(self.pacing_rate())
    }

    fn initial_burst(&self) -> u64 {
        2 * self.delivery.packet()
    }

    fn bandwidth(&self) -> Rate {
        self.estimate
    }
}
