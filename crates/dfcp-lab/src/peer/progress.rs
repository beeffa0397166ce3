//! How much of a file has arrived, seen from outside: the space its content takes.
//!
//! One yardstick for all programs, whatever they report, and for those that write a file's parts
//! in any order: holes take no space. In memory (tmpfs) it is exact to a page.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of the kernel's monotonic clock, which all processes share.
pub fn now_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| {
        time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
    })
}

/// Bytes of the largest file in a directory that are there.
pub fn arrived(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else {
        return 0;
    };
    let present = |meta: fs::Metadata| meta.len().min(meta.blocks() * 512);
    let files = entries.flatten().filter_map(|entry| entry.metadata().ok());
    let files = files.filter(fs::Metadata::is_file);
    files.map(present).max().unwrap_or(0)
}

/// How much had arrived when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress(Vec<(u64, u64)>);

impl Progress {
    /// From samples of nanoseconds and bytes, both rising.
    pub fn new(samples: Vec<(u64, u64)>) -> Self {
        Self(samples)
    }

    /// The last sample.
    pub fn last(&self) -> Option<(u64, u64)> {
        self.0.last().copied()
    }

    /// The first sample with at least so many bytes.
    pub fn reached(&self, bytes: u64) -> Option<(u64, u64)> {
        self.0.iter().copied().find(|sample| sample.1 >= bytes)
    }

    /// The first sample at or after this time; else the last.
    pub fn at(&self, ns: u64) -> Option<(u64, u64)> {
        let later = self.0.iter().copied().find(|sample| sample.0 >= ns);
        later.or_else(|| self.last())
    }
}

/// Watches a directory on a thread of its own.
#[derive(Debug)]
pub struct Watch {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<Progress>,
}

impl Watch {
    /// Looks at the directory every `period` and keeps what changed.
    pub fn start(directory: PathBuf, period: Duration) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut samples = Vec::new();
            let mut last = 0;
            loop {
                let end = stopped.recv_timeout(period) != Err(RecvTimeoutError::Timeout);
                let bytes = arrived(&directory);
                if bytes > last {
                    last = bytes;
                    samples.push((now_ns(), bytes));
                }
                if end {
                    return Progress(samples);
                }
            }
        });
        Self { stop, thread }
    }

    /// What it saw.
    pub fn stop(self) -> Progress {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_are_not_counted_and_the_largest_file_is_the_one() {
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
            eprintln!("skipped: no /dev/shm");
            return;
        };
        assert_eq!(arrived(folder.path()), 0);
        let file = File::create(folder.path().join("target")).unwrap();
        file.set_len(1 << 20).unwrap();
        assert_eq!(arrived(folder.path()), 0);
        file.write_all_at(&[1; 8192], 1 << 19).unwrap();
        fs::write(folder.path().join("ledger"), [1; 100]).unwrap();
        assert_eq!(arrived(folder.path()), 8192);
    }

    #[test]
    fn what_changes_is_seen_with_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let watch = Watch::start(folder.path().to_path_buf(), Duration::from_micros(100));
        fs::write(folder.path().join("target"), [1; 5000]).unwrap();
        let progress = watch.stop();
        assert_eq!(progress.last().map(|sample| sample.1), Some(5000));
        assert_eq!(progress.reached(5000), progress.last());
        assert_eq!(progress.reached(5001), None);
    }
}
