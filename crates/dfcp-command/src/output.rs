//! Standard output and standard error, each written by a thread of its own: who does not read them halts whoever
//! waits for what it has to say there, and nobody else.
//!
//! A line has a place among those that wait, or waits for one ([`Writer::room`]). Where nobody can wait a line
//! beyond them is left out, and how many were is said behind them.

use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

use crate::{Failure, block_on, enough, text};

/// Lines that wait: what fits into a pipe (64 KiB) if they are short, as much again as waits there.
const LINES: usize = 1024;

type Job = Box<dyn FnOnce() + Send>;

/// What a stream is written by.
pub struct Writer {
    name: &'static str,
    jobs: Mutex<Option<Sender<Waiting>>>,
    room: Semaphore,
    /// Lines that were left out since that was said last.
    left_out: AtomicU64,
    /// How that is said.
    say_left_out: OnceLock<fn(u64)>,
}

struct Waiting {
    job: Job,
    _room: Option<SemaphorePermit<'static>>,
}

/// Standard output.
pub static OUT: Writer = Writer::new("standard output");
/// Standard error.
pub static ERR: Writer = Writer::new("standard error");

/// Whether this process lets threads write: from then on it must [end](attended) with them.
static ATTENDED: AtomicBool = AtomicBool::new(false);

/// A place for a line.
pub struct Room {
    of: &'static Writer,
    permit: Option<SemaphorePermit<'static>>,
}

impl Room {
    /// Does `job` after all that waits.
    pub fn put(self, job: impl FnOnce() + Send + 'static) {
        self.of.add(Box::new(job), self.permit);
    }
}

impl Writer {
    const fn new(name: &'static str) -> Self {
        Self {
            name,
            jobs: Mutex::new(None),
            room: Semaphore::const_new(LINES),
            left_out: AtomicU64::new(0),
            say_left_out: OnceLock::new(),
        }
    }

    /// Waits for a place. May be cancelled.
    pub async fn room(&'static self) -> Room {
        let permit = self.room.acquire().await.ok();
        Room { of: self, permit }
    }

    /// Does `job`, which writes a line, after all that waits, or counts it as left out.
    pub fn offer(&'static self, job: impl FnOnce() + Send + 'static) {
        match self.room.try_acquire() {
            Ok(permit) => self.add(Box::new(job), Some(permit)),
            Err(_) => {
                self.left_out.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Does `job` after all that waits. It takes no place: whoever calls this bounds how many there are.
    pub fn next(&'static self, job: impl FnOnce() + Send + 'static) {
        self.add(Box::new(job), None);
    }

    /// From now on `say` tells how many lines were left out.
    pub fn say_left_out(&self, say: fn(u64)) {
        let _ = self.say_left_out.set(say);
    }

    fn add(&'static self, job: Job, room: Option<SemaphorePermit<'static>>) {
        if !ATTENDED.load(Ordering::Relaxed) {
            return job();
        }
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.is_none() {
            let (add, added) = channel();
            let thread = std::thread::Builder::new().name(self.name.to_owned());
            // Where no thread is to be had this one waits.
            if thread.spawn(move || self.write_all(&added)).is_err() {
                return job();
            }
            *jobs = Some(add);
        }
        if let Some(add) = &*jobs {
            // The thread ends with the process.
            let _ = add.send(Waiting { job, _room: room });
        }
    }

    fn write_all(&'static self, added: &Receiver<Waiting>) {
        while let Ok(Waiting { job, _room: room }) = added.recv() {
            job();
            drop(room);
            if self.room.available_permits() < LINES {
                continue;
            }
            match self.left_out.swap(0, Ordering::Relaxed) {
                0 => {}
                n => self.say_left_out.get_or_init(|| say_left_out)(n),
            }
        }
    }

    /// Halts this thread until all is written that waits now.
    pub fn wait_for_the_rest(&'static self) {
        // The thread that writes would wait for itself, and who holds the lock of the jobs as well.
        let writes = std::thread::current().name() == Some(self.name);
        let jobs = self.jobs.try_lock().ok().and_then(|jobs| jobs.clone());
        if let (false, Some(add)) = (writes, jobs) {
            let (tell, told) = channel();
            let job = Box::new(move || tell.send(()).unwrap_or_default());
            let _ = add.send(Waiting { job, _room: None });
            let _ = told.recv();
        }
    }

    /// Waits until all is written that waits now, or somebody ends this.
    fn finish(&'static self) {
        if self
            .jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_none()
        {
            return;
        }
        let _ = block_on(async {
            // What was left out may be told behind the last line.
            for _ in 0..2 {
                let (tell, told) = oneshot::channel();
                self.next(move || tell.send(()).unwrap_or_default());
                tokio::select! {
                    _ = told => {}
                    failure = enough() => return Err(failure),
                }
            }
            Ok(())
        });
    }
}

fn say_left_out(lines: u64) {
    crate::tell!("dfcp: {}", left_out(lines));
}

/// That lines were left out.
pub fn left_out(lines: u64) -> String {
    format!("{lines} lines were left out here, as nobody read those before them")
}

/// Runs a program whose streams have threads that write them. At its end it waits until they are read, as a
/// process does that writes them itself; a signal ends that.
pub fn attended(run: impl FnOnce() -> ExitCode) -> ExitCode {
    ATTENDED.store(true, Ordering::Relaxed);
    let code = run();
    ERR.finish();
    code
}

/// Writes a line on standard error. One that cannot be written, as where a log's disk is full, ends nothing.
pub fn tell(line: String) {
    ERR.offer(move || write_err(format!("{line}\n").as_bytes()));
}

/// Prints what a command is for, at its end: a signal ends the wait for who reads it. Not within a runtime.
///
/// # Errors
/// Those of [`print`](crate::print) or [`print_whole`](crate::print_whole), which `print` is, and the signal.
pub fn print_at_end(
    print: impl FnOnce() -> Result<(), Failure> + Send + 'static,
) -> Result<(), Failure> {
    block_on(async {
        let (tell, told) = oneshot::channel();
        OUT.next(move || tell.send(print()).unwrap_or_default());
        tokio::select! {
            printed = told => printed.unwrap_or_else(|gone| Err(std::io::Error::other(gone).into())),
            failure = enough() => Err(failure),
        }
    })
}

/// Writes bytes on standard error, by the thread that calls this.
pub fn write_err(bytes: &[u8]) {
    let _ = std::io::stderr().lock().write_all(bytes);
}

/// A line of JSON.
///
/// # Errors
/// When it has none.
pub fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    let json = serde_json::to_string(value).map_err(std::io::Error::other)?;
    Ok(text::printable_json(&json).to_string())
}

/// Writes a line on standard output, and waits until it is written.
///
/// # Errors
/// When it cannot be, also because its reader went away.
pub async fn print_line(line: String) -> Result<(), Failure> {
    let (tell, told) = oneshot::channel();
    OUT.room().await.put(move || {
        let _ = tell.send(crate::print_whole(line));
    });
    told.await
        .unwrap_or_else(|gone| Err(std::io::Error::other(gone).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    static SLOW: Writer = Writer::new("slow");
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    static SAID: AtomicU64 = AtomicU64::new(0);

    #[test]
    fn what_nobody_reads_is_bounded_and_said() {
        ATTENDED.store(true, Ordering::Relaxed);
        SLOW.say_left_out(|lines| SAID.store(lines, Ordering::Relaxed));
        let (read, reading) = channel();
        SLOW.next(move || reading.recv().unwrap());
        for _ in 0..LINES + 5 {
            SLOW.offer(|| {
                WRITTEN.fetch_add(1, Ordering::Relaxed);
            });
        }
        // Nothing is lost of who waits for a place, and who gives up waiting takes none.
        block_on(async {
            let mut room = std::pin::pin!(SLOW.room());
            tokio::select! {
                biased;
                _ = &mut room => panic!("all places are taken"),
                () = std::future::ready(()) => {}
            }
            read.send(()).unwrap();
            let (tell, told) = oneshot::channel();
            room.await.put(move || tell.send(()).unwrap());
            told.await.unwrap();
            Ok(())
        })
        .unwrap();
        SLOW.finish();
        assert_eq!(WRITTEN.load(Ordering::Relaxed), LINES as u64);
        assert_eq!(SAID.load(Ordering::Relaxed), 5);
    }
}
