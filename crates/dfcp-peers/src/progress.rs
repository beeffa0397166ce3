//! What a receiver and a sender print as their last line: the lab's contract for programs that
//! make or take traffic. Times are nanoseconds of the kernel's monotonic clock, which all
//! processes of a machine share.

use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// Nanoseconds of the monotonic clock.
pub fn now_ns() -> anyhow::Result<u64> {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

/// Between two samples.
const SAMPLE_NS: u64 = 10_000_000;

/// How many bytes had been received when.
#[derive(Debug, Default)]
pub struct Progress {
    bytes: u64,
    samples: Vec<[u64; 2]>,
    last_ns: u64,
}

impl Progress {
    /// `more` bytes arrived.
    pub fn add(&mut self, now_ns: u64, more: u64) {
        self.bytes += more;
        self.last_ns = now_ns;
        let due = |last: &[u64; 2]| now_ns >= last[0] + SAMPLE_NS;
        if self.samples.last().is_none_or(due) {
            self.samples.push([now_ns, self.bytes]);
        }
    }

    /// The receiver's last line.
    pub fn report(mut self) -> Value {
        if self.bytes > 0 {
            self.samples.push([self.last_ns, self.bytes]);
        }
        let at = |sample: Option<&[u64; 2]>| sample.map(|sample| sample[0]);
        let tenth = |sample: &&[u64; 2]| sample[1] >= self.bytes.div_ceil(10);
        json!({
            "bytes": self.bytes,
            "first_ns": at(self.samples.first()),
            "tenth_ns": at(self.samples.iter().find(tenth)),
            "last_ns": at(self.samples.last()),
            "samples": self.samples,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_is_of_what_arrived() {
        let mut progress = Progress::default();
        for step in 1..=100 {
            progress.add(step * SAMPLE_NS, 7);
        }
        let report = progress.report();
        assert_eq!(report["bytes"], 700);
        assert_eq!(report["first_ns"], SAMPLE_NS);
        assert_eq!(report["tenth_ns"], 10 * SAMPLE_NS);
        assert_eq!(report["last_ns"], 100 * SAMPLE_NS);
    }

    #[test]
    fn nothing_received_is_said() {
        let report = Progress::default().report();
        assert_eq!(report["bytes"], 0);
        assert!(report["last_ns"].is_null() && report["samples"].as_array().unwrap().is_empty());
    }
}
