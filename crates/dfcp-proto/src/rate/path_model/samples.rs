//! Delivery samples: what was acknowledged lately, with times, bytes and queueing delays.

use std::collections::VecDeque;

use super::loss::Stretch;
use super::tuning::spans::{MIN_SAMPLES, MOST_SAMPLES};
use crate::rate::AckPoint;
use crate::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
struct Sample {
    ack: AckPoint,
    /// Seconds above the base delay.
    delay: f64,
}

/// Samples in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Samples {
    list: VecDeque<Sample>,
}

impl Samples {
    /// Takes a sample and forgets those more than `keep` seconds older. A receiver that says that everything
    /// arrived at one moment could have any number kept otherwise, and looked at with each further one.
    pub(super) fn push(&mut self, ack: AckPoint, delay: f64, keep: f64) {
        let keep = Duration::from_secs_f64(keep);
        let mut sample = Sample { ack, delay };
        let count = self.list.len();
        if count >= MOST_SAMPLES
            && ack.received_at < self.list[count - 2].ack.received_at + keep / MOST_SAMPLES as u32
        {
            let replaced = self.list.pop_back();
            sample.delay = replaced.map_or(delay, |s| s.delay.min(delay));
        }
        self.list.push_back(sample);
        let is_old = |s: &Sample| s.ack.received_at + keep < ack.received_at;
        while self.list.len() > MIN_SAMPLES && self.list.front().is_some_and(is_old) {
            self.list.pop_front();
        }
    }

    pub(super) fn last(&self) -> Option<AckPoint> {
        self.list.back().map(|s| s.ack)
    }

    /// What the newest packet saw above the base delay, seconds.
    pub(super) fn last_delay(&self) -> Option<f64> {
        self.list.back().map(|s| s.delay)
    }

    pub(super) fn first(&self) -> Option<AckPoint> {
        self.list.front().map(|s| s.ack)
    }

    /// The newest sample that `is` one.
    pub(super) fn newest(&self, is: impl Fn(&AckPoint) -> bool) -> Option<AckPoint> {
        self.list.iter().rev().map(|s| s.ack).find(is)
    }

    /// The newest sample at least `span` seconds of arrivals before the last one.
    pub(super) fn before(&self, span: f64) -> Option<AckPoint> {
        let until = self
            .last()?
            .received_at
            .checked_sub(Duration::from_secs_f64(span))?;
        self.newest(|ack| ack.received_at <= until)
    }

    /// What was sent between two times, in the time that it took to arrive, or to be sent if that was longer: it
    /// came no faster.
    pub(super) fn sent_between(&self, from: Instant, to: Instant, packet: f64) -> Option<Stretch> {
        let first = self
            .list
            .iter()
            .map(|s| s.ack)
            .find(|a| a.sent_at >= from)?;
        let last = self.newest(|a| a.sent_at <= to)?;
        if last.received_at <= first.received_at || last.sent_at <= first.sent_at {
            return None;
        }
        let stretch = Stretch::between(&first, &last, packet);
        let sending = last.sent_at.saturating_since(first.sent_at).as_secs_f64();
        Some(Stretch {
            seconds: stretch.seconds.max(sending),
            ..stretch
        })
    }

    /// Seconds of arrivals that the newest `count` samples cover.
    pub(super) fn time_of(&self, count: usize) -> f64 {
        let Some(last) = self.last() else { return 0.0 };
        let first = self.list.len().saturating_sub(count);
        let first = self.list.get(first).map_or(last, |s| s.ack);
        last.received_at
            .saturating_sub(first.received_at)
            .as_secs_f64()
    }

    /// Time without arrivals in gaps longer than `gap`, seconds, in the last `span` seconds and the
    /// gap before them.
    pub(super) fn silence(&self, span: f64, gap: f64) -> f64 {
        let Some(last) = self.last() else { return 0.0 };
        let from = last
            .received_at
            .saturating_sub(Duration::from_secs_f64(span));
        let mut later = last.received_at;
        let mut silence = 0.0;
        for sample in self.list.iter().rev().skip(1) {
            let at = sample.ack.received_at;
            let between = later.saturating_sub(at).as_secs_f64();
            if between > gap {
                silence += between;
            }
            later = at;
            if at <= from {
                break;
            }
        }
        silence
    }

    /// The two neighbours with the longest time between their arrivals, from a sample on.
    pub(super) fn longest_gap(&self, from: &AckPoint) -> Option<(AckPoint, AckPoint)> {
        let first = self
            .list
            .partition_point(|s| s.ack.received_at < from.received_at);
        let later = self.list.range(first..).map(|s| s.ack);
        let pairs = later.clone().zip(later.skip(1));
        pairs.max_by_key(|(a, b)| b.received_at.saturating_sub(a.received_at))
    }

    /// Least delay over the last `span` seconds of arrivals.
    pub(super) fn least_delay(&self, span: f64) -> f64 {
        let Some(last) = self.last() else {
            return 0.0;
        };
        let from = last
            .received_at
            .saturating_sub(Duration::from_secs_f64(span));
        self.list
            .iter()
            .rev()
            .take_while(|s| s.ack.received_at >= from)
            .fold(f64::INFINITY, |least, s| least.min(s.delay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_whose_clock_stands_has_no_more_samples_kept_than_one_whose_clock_goes() {
        let mut samples = Samples::default();
        let mut push = |millis: u64, delay: f64| {
            let ack = AckPoint::new(Duration::from_millis(millis), Instant::ZERO, 0, 0);
            samples.push(ack, delay, 2.05);
            samples.list.len()
        };
        (0..100_000).for_each(|_| {
            push(1, 1.0);
        });
        assert_eq!(push(1, 1.0), MOST_SAMPLES);
        // It goes on: what came together is forgotten as anything else is.
        let longest = (0..5000).map(|ms| push(1 + ms, 1.0)).max();
        assert!(longest <= Some(2 * MOST_SAMPLES), "{longest:?}");
        assert_eq!(push(5001, 1.0), 2051);
        assert_eq!(samples.least_delay(1.0), 1.0);
    }

    #[test]
    fn what_counts_as_one_has_the_least_delay() {
        let mut samples = Samples::default();
        let ack = AckPoint::new(Duration::ZERO, Instant::ZERO, 0, 0);
        for number in 0..2 * MOST_SAMPLES {
            let last = 2 * MOST_SAMPLES - 2;
            samples.push(ack, if number == last { 0.5 } else { 1.0 }, 1.0);
        }
        assert_eq!(samples.least_delay(1.0), 0.5);
    }
}
