//! What workers measure and report.

use serde::{Deserialize, Serialize};

use super::ping::Pings;
use crate::path::clock::monotonic_ns;
use crate::train::TrailFigures;

/// A worker's last line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Report {
    /// Of a sink.
    Received(Received),
    /// Of a source.
    Sent(Sent),
    /// Of round trips.
    Pings(Pings),
}

/// Why a worker failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// A sentence.
    pub error: String,
}

/// What a sink got. Times are nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// Useful bytes.
    pub bytes: u64,
    /// When the first came.
    pub first_ns: u64,
    /// When the last came.
    pub last_ns: u64,
    /// When a tenth had come.
    pub tenth_ns: u64,
    /// When how many bytes had come, about every millisecond.
    pub samples: Vec<[u64; 2]>,
    /// How long the sink waited for a processor, nanoseconds.
    #[serde(default)]
    pub waited_ns: u64,
    /// Of datagrams: what happened to them on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<Datagrams>,
    /// Of a train: what became of its datagrams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train: Option<TrailFigures>,
}

/// What a sink saw of numbered datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Datagrams {
    /// That came, those that came again included.
    pub count: u64,
    /// That came again.
    pub duplicates: u64,
    /// That came after one with a greater number.
    pub reordered: u64,
    /// Sum of the times on the way, nanoseconds.
    pub delay_sum_ns: u64,
    /// Shortest time on the way, nanoseconds.
    pub delay_min_ns: u64,
    /// Longest time on the way, nanoseconds.
    pub delay_max_ns: u64,
}

/// What a source sent. Times are nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Useful bytes handed over.
    pub bytes: u64,
    /// Before the connection was opened.
    pub start_ns: u64,
    /// When it knew that all was received; when it gave up, if it did not.
    pub done_ns: u64,
    /// Smoothed round-trip time at the end, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<u64>,
    /// Packets sent again, or repair symbols.
    #[serde(default)]
    pub repairs: u64,
    /// How long the source waited for a processor, nanoseconds.
    #[serde(default)]
    pub waited_ns: u64,
    /// Datagrams sent, where they are numbered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<u64>,
}

/// Least time between two samples.
const SAMPLE_NS: u64 = 1_000_000;

/// Follows what a sink gets.
#[derive(Default)]
pub(super) struct Meter {
    bytes: u64,
    first_ns: u64,
    last_ns: u64,
    samples: Vec<[u64; 2]>,
}

impl Meter {
    /// `bytes` more have come, now.
    pub fn add(&mut self, bytes: u64) {
        let now = monotonic_ns();
        if self.bytes == 0 {
            self.first_ns = now;
        }
        self.bytes += bytes;
        self.last_ns = now;
        // One sample for each interval: its latest state.
        let fresh = match &self.samples[..] {
            [.., before, _] => now >= before[0] + SAMPLE_NS,
            _ => true,
        };
        match self.samples.last_mut() {
            Some(last) if !fresh => *last = [now, self.bytes],
            _ => self.samples.push([now, self.bytes]),
        }
    }

    pub fn finish(self) -> Received {
        let tenth = self
            .samples
            .iter()
            .find(|[_, bytes]| bytes * 10 >= self.bytes);
        Received {
            bytes: self.bytes,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            tenth_ns: tenth.map_or(0, |[at, _]| *at),
            samples: self.samples,
            waited_ns: 0,
            datagrams: None,
            train: None,
        }
    }
}

impl Received {
    /// Bytes that had come by a time.
    pub fn bytes_at(&self, ns: u64) -> u64 {
        let later = self.samples.partition_point(|[at, _]| *at <= ns);
        match later.checked_sub(1) {
            Some(last) => self.samples[last][1],
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_at_a_time_are_those_of_the_sample_before() {
        let received = Received {
            samples: vec![[10, 1], [20, 5], [30, 9]],
            ..Received::default()
        };
        let at = [0, 10, 29, 30, 1000].map(|ns| received.bytes_at(ns));
        assert_eq!(at, [0, 1, 5, 9, 9]);
    }

    #[test]
    fn reports_are_told_apart() {
        let sent = Report::Sent(Sent {
            bytes: 3,
            ..Sent::default()
        });
        let mut meter = Meter::default();
        meter.add(7);
        let received = Report::Received(meter.finish());
        for report in [sent, received] {
            let text = serde_json::to_string(&report).unwrap();
            assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
        }
        assert!(serde_json::from_str::<Report>(r#"{"error":"no"}"#).is_err());
    }
}
