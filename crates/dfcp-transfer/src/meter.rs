//! How fast bytes arrive: the goodput after the first tenth of them, so that start-up does not
//! count.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use dfcp::{Progress, Rate};

use crate::diary::Diary;

/// When how many bytes had arrived.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    bytes: u64,
}

/// Watches a [`Progress`].
#[derive(Debug)]
pub struct Meter {
    progress: Progress,
    samples: Mutex<Samples>,
    diary: Diary,
}

#[derive(Debug, Default)]
struct Samples {
    total: u64,
    is_known: bool,
    tenth: Option<Sample>,
    last: Option<Sample>,
    end: Option<Instant>,
}

impl Meter {
    /// Watches a new [`Progress`], as long as it is held. It is told when bytes arrive, so that it need
    /// not look: each look would be a wake-up.
    pub fn start() -> Arc<Self> {
        Arc::new_cyclic(|meter: &Weak<Self>| {
            let meter = meter.clone();
            let tell = move || {
                if let Some(meter) = meter.upgrade() {
                    meter.sample();
                }
            };
            Self {
                progress: Progress::told(tell),
                samples: Mutex::default(),
                diary: Diary::default(),
            }
        })
    }

    /// What is watched.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// What happens to the files.
    pub fn diary(&self) -> &Diary {
        &self.diary
    }

    /// Everything is in its place: what follows is waiting for the other side.
    pub fn end(&self) {
        self.samples().end.get_or_insert_with(Instant::now);
    }

    /// When everything was in its place.
    pub fn ended(&self) -> Option<Instant> {
        self.samples().end
    }

    /// This many bytes are to come; nobody knows how many where it is 0.
    pub fn expect(&self, total: u64) {
        let mut samples = self.samples();
        (samples.total, samples.is_known) = (total, total > 0);
    }

    /// Of those that are to come, these are there already.
    pub fn spare(&self, bytes: u64) {
        let mut samples = self.samples();
        samples.total = samples.total.saturating_sub(bytes);
    }

    /// Bytes that are to come in all; 0 where that is not known. More come than were expected where a
    /// part was sent in vain: of a file that turned out to be there, or that changed meanwhile.
    pub fn total(&self) -> u64 {
        let samples = self.samples();
        match samples.is_known {
            true => samples.total.max(self.progress.bytes()),
            false => 0,
        }
    }

    /// Goodput after the first tenth of the bytes, in bits per second, if there was time to tell.
    pub fn steady_bps(&self) -> Option<u64> {
        self.sample();
        let samples = self.samples();
        let (tenth, last) = (samples.tenth?, samples.last?);
        match last.bytes - tenth.bytes {
            0 => None,
            bytes => Some(Rate::from_transfer(bytes, last.at - tenth.at).as_bps()),
        }
    }

    fn sample(&self) {
        let sample = Sample {
            at: Instant::now(),
            bytes: self.progress.bytes(),
        };
        let mut samples = self.samples();
        if samples.last.is_some_and(|last| last.bytes == sample.bytes) {
            return;
        }
        samples.last = Some(sample);
        if samples.tenth.is_none() && samples.total > 0 && sample.bytes >= samples.total / 10 {
            samples.tenth = Some(sample);
        }
    }

    fn samples(&self) -> MutexGuard<'_, Samples> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody looks: there is no runtime that could.
    #[test]
    fn it_is_told_when_bytes_move() {
        let meter = Meter::start();
        meter.expect(1000);
        assert_eq!(meter.steady_bps(), None);
        meter.progress().add(99);
        assert!(meter.samples().tenth.is_none(), "not a tenth yet");
        meter.progress().add(1);
        let tenth = meter.samples().tenth.map(|tenth| tenth.bytes);
        assert_eq!(tenth, Some(100));
        assert_eq!(meter.steady_bps(), None, "nothing came since");
        meter.progress().add(900);
        assert!(meter.steady_bps().is_some());
    }

    #[test]
    fn what_is_to_come_is_what_was_offered_less_what_is_there() {
        let meter = Meter::start();
        meter.progress().add(5);
        assert_eq!(meter.total(), 0, "nobody knows yet");
        meter.expect(1000);
        meter.spare(300);
        assert_eq!(meter.total(), 700);
        // What came in vain came all the same.
        meter.progress().add(995);
        assert_eq!(meter.total(), 1000);
        meter.spare(u64::MAX);
        assert_eq!(meter.total(), 1000);
        meter.expect(0);
        assert_eq!(meter.total(), 0, "nobody knows");
    }
}
