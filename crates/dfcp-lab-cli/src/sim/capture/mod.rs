//! The packets of a run in files that other tools read: [`pcap`] for Wireshark, [`qlog`] for
//! qlog's viewers. [`wire`] makes the headers that the simulation only counts.
//!
//! Invariants:
//! - packets are written as they happen, in order of time, and not kept;
//! - the same scenario and seed give the same bytes;
//! - a file that fails does not stop the run: it keeps what it has, and the failure is told at the
//!   end.

mod pcap;
mod qlog;
#[cfg(test)]
mod tests;
mod wire;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dfcp_command::Failure;
use dfcp_sim::Watch;
use dfcp_sim::engine::PacketEvent;
use dfcp_sim::scenario::Scenario;

use self::pcap::Pcap;
use self::qlog::Qlog;

/// Where packets go.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Targets {
    /// Write all packets as their senders send them, for Wireshark and tcpdump
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Directory for what each end of each flow sends, receives and knows, as qlog
    #[arg(long, value_name = "DIR")]
    pub qlog: Option<PathBuf>,
}

/// The files of one run.
#[derive(Debug)]
pub struct Capture(Option<Arc<Mutex<Files>>>);

#[derive(Debug)]
struct Files {
    pcap: Option<Pcap>,
    qlog: Option<Qlog>,
}

impl Capture {
    /// Makes the files: where they cannot be, it is better known before the run.
    pub fn create(targets: &Targets, scenario: &Scenario) -> Result<Self, Failure> {
        if targets.pcap.is_none() && targets.qlog.is_none() {
            return Ok(Self(None));
        }
        let pcap = targets.pcap.as_deref();
        let qlog = targets.qlog.as_deref();
        let files = Files {
            pcap: pcap.map(|path| Pcap::create(path, scenario)).transpose()?,
            qlog: qlog.map(|path| Qlog::create(path, scenario)).transpose()?,
        };
        Ok(Self(Some(Arc::new(Mutex::new(files)))))
    }

    /// Writes what it sees to the files; it sees nothing if nobody asked for any.
    pub fn watch(&self) -> Watch {
        let Some(files) = self.0.clone() else {
            return Watch::default();
        };
        let connections = lock(&files).qlog.as_ref().map(Qlog::watcher);
        let record = move |event: PacketEvent<'_>| lock(&files).record(&event);
        Watch {
            packets: Some(Box::new(record)),
            connections,
        }
    }

    /// Completes the files, and tells the first failure there was.
    pub fn finish(self) -> Result<(), Failure> {
        let Some(files) = self.0 else {
            return Ok(());
        };
        let mut files = lock(&files);
        let pcap = files.pcap.take().map_or(Ok(()), Pcap::finish);
        let qlog = files.qlog.take().map_or(Ok(()), Qlog::finish);
        pcap.and(qlog)
    }
}

/// The lock is for the type system: a run is one thread.
fn lock(files: &Mutex<Files>) -> MutexGuard<'_, Files> {
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Files {
    fn record(&mut self, event: &PacketEvent<'_>) {
        if let Some(pcap) = &mut self.pcap {
            pcap.record(event);
        }
        if let Some(qlog) = &mut self.qlog {
            qlog.record(event);
        }
    }
}

/// A file that takes records until one fails, and remembers why.
#[derive(Debug)]
struct Log {
    path: PathBuf,
    writer: BufWriter<File>,
    error: Option<io::Error>,
}

impl Log {
    fn create(path: &Path) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|error| Failure::io(path, error))?;
        Ok(Self {
            path: path.to_owned(),
            writer: BufWriter::new(file),
            error: None,
        })
    }

    fn write(&mut self, record: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) {
        if self.error.is_none() {
            self.error = record(&mut self.writer).err();
        }
    }

    fn finish(mut self) -> Result<(), Failure> {
        self.write(BufWriter::flush);
        match self.error {
            Some(error) => {
                // What could not be written is not tried again.
                let _ = self.writer.into_parts();
                Err(Failure::io(&self.path, error))
            }
            None => Ok(()),
        }
    }
}
