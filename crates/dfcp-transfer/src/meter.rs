//! How fast bytes arrive: the goodput after the first tenth of them, so that start-up does not
//! count.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dfcp::{Progress, Rate};
use tokio::task::AbortHandle;

use crate::diary::Diary;

/// The bytes are looked at after this part of the time that has passed, and no more often than this:
/// each look is a wake-up, and times are known to one in a hundred.
const PART: u32 = 100;
const MIN_INTERVAL: Duration = Duration::from_millis(5);

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
}

/// Ends the watching when dropped.
#[derive(Debug)]
pub struct Watch(AbortHandle);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Meter {
    /// Watches a new [`Progress`] until the watch is dropped; call within a runtime.
    pub fn start() -> (Arc<Self>, Watch) {
        let meter = Arc::new(Self {
            progress: Progress::default(),
            samples: Mutex::default(),
            diary: Diary::default(),
        });
        let (watched, start) = (meter.clone(), Instant::now());
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(MIN_INTERVAL.max(start.elapsed() / PART)).await;
                watched.sample();
            }
        });
        (meter, Watch(task.abort_handle()))
    }

    /// What is watched.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// What happens to the files.
    pub fn diary(&self) -> &Diary {
        &self.diary
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
