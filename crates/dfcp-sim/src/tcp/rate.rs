//! Delivery-rate samples (draft-cheng-iccrg-delivery-rate-estimation), in segments.

use super::ring::Ring;
use dfcp_proto::{Duration, Instant};

/// What was known when a segment was sent.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    sent: Instant,
    app_limited: bool,
}

/// One sample of the delivery rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateSample {
    /// Segments delivered within `interval`.
    pub delivered: u64,
    /// Over which they were sent and acknowledged, whichever took longer.
    pub interval: Duration,
    /// How many had been delivered when the newest of them was sent.
    pub prior_delivered: u64,
    /// Whether the sender had nothing to send meanwhile.
    pub app_limited: bool,
}

/// Takes one sample from each acknowledgement.
#[derive(Clone, Debug)]
pub(super) struct RateSampler {
    records: Ring<Record>,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    /// Samples are application-limited until so many are delivered.
    app_limited_until: u64,
    newest: Option<Record>,
}

impl RateSampler {
    pub fn new() -> Self {
        Self {
            records: Ring::new(),
            delivered: 0,
            delivered_at: Instant::ZERO,
            first_sent: Instant::ZERO,
            app_limited_until: 0,
            newest: None,
        }
    }

    /// Segments delivered so far.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Makes room for segment `next`.
    pub fn reserve(&mut self, first: u32, next: u32) {
        self.records.reserve(first, next);
    }

    /// Segment `seq` is sent while `in_flight` others are.
    pub fn on_sent(&mut self, now: Instant, seq: u32, in_flight: u32) {
        if in_flight == 0 {
            self.first_sent = now;
            self.delivered_at = now;
        }
        *self.records.at(seq) = Record {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            sent: now,
            app_limited: self.delivered < self.app_limited_until,
        };
    }

    /// The sender has nothing more to send though it might, with `in_flight` segments out.
    pub fn on_app_limited(&mut self, in_flight: u32) {
        self.app_limited_until = (self.delivered + u64::from(in_flight)).max(1);
    }

    /// Segment `seq` was acknowledged, for the first time.
    pub fn on_delivered(&mut self, now: Instant, seq: u32) {
        self.delivered += 1;
        self.delivered_at = now;
        let record = self.records.get(seq);
        if self
            .newest
            .is_none_or(|newest| (record.delivered, record.sent) >= (newest.delivered, newest.sent))
        {
            self.newest = Some(record);
        }
    }

    /// The sample of one acknowledgement, after [`RateSampler::on_delivered`] for all it covers.
    pub fn take(&mut self, min_rtt: Option<Duration>) -> Option<RateSample> {
        let record = self.newest.take()?;
        self.first_sent = record.sent;
        let sending = record.sent.saturating_since(record.first_sent);
        let receiving = self.delivered_at.saturating_since(record.delivered_at);
        let interval = sending.max(receiving);
        // Shorter than the path allows: an artefact of loss or of acknowledgements held back.
        if interval.is_zero() || min_rtt.is_some_and(|min| interval < min) {
            return None;
        }
        Some(RateSample {
            delivered: self.delivered - record.delivered,
            interval,
            prior_delivered: record.delivered,
            app_limited: record.app_limited,
        })
    }
}
