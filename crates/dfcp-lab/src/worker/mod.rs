//! The programs that make and take traffic in a lab's hosts: one process for each end of a flow.
//!
//! A worker is this program again, with a [`Job`] as its only argument. A sink prints
//! `{"ready":true}` when it listens; each worker ends by itself and prints as its last line one
//! JSON object: a [`Received`], a [`Sent`], or what went wrong. SIGTERM ends it earlier. Times are
//! nanoseconds of `CLOCK_MONOTONIC`, which all hosts share.

mod dfcp;
mod job;
mod ping;
mod progress;
mod tcp;
mod udp;

pub(crate) use self::dfcp::on_a_real_path;

pub use job::{
    ControllerAt, DfcpJob, FlowSource, Job, Load, PingJob, Ready, Side, Sink, TcpSource, UdpLoad,
    UdpSource,
};
pub use ping::Pings;
pub use progress::{Datagrams, Failed, Received, Report, Sent};

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use serde::Serialize;

use crate::net::host::Host;
use crate::net::process::{Finished, HostCommand, HostProcess};
use crate::path::clock::monotonic_ns;

/// The name of the program's hidden subcommand.
pub const SUBCOMMAND: &str = "lab-worker";

/// Does a job, given as the subcommand's argument.
pub fn main(job: &str) -> ExitCode {
    let result = serde_json::from_str(job)
        .map_err(|error| format!("the job is not understood: {error}"))
        .and_then(run);
    match result {
        Ok(report) => {
            print_line(&report);
            ExitCode::SUCCESS
        }
        Err(error) => {
            print_line(&Failed { error });
            ExitCode::FAILURE
        }
    }
}

/// Whether somebody asked this worker to end.
static STOPPING: AtomicBool = AtomicBool::new(false);

/// Lets SIGTERM end the work, not the process: it reports first. Before any other thread.
fn stop_on_request() {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    if signals.thread_block().is_ok() {
        let wait = move || {
            if signals.wait().is_ok() {
                STOPPING.store(true, Ordering::Relaxed);
            }
        };
        let _ = std::thread::Builder::new().name("stop".into()).spawn(wait);
    }
}

/// Whether the work is to go on: nobody asked to stop, and it is not that late yet.
fn in_time(until_ns: u64) -> bool {
    !STOPPING.load(Ordering::Relaxed) && monotonic_ns() < until_ns
}

fn run(job: Job) -> Result<Report, String> {
    stop_on_request();
    let text = |error: std::io::Error| error.to_string();
    let received = |report: Received| {
        let waited_ns = waited_ns();
        Report::Received(Received {
            waited_ns,
            ..report
        })
    };
    let sent = |report: Sent| {
        let waited_ns = waited_ns();
        Report::Sent(Sent {
            waited_ns,
            ..report
        })
    };
    match job {
        Job::TcpSink(job) => tcp::sink(&job).map(received).map_err(text),
        Job::TcpSource(job) => tcp::source(&job).map(sent).map_err(text),
        Job::UdpSink(job) => udp::sink(&job).map(received).map_err(text),
        Job::UdpSource(job) => udp::source(&job).map(sent),
        Job::DfcpSink(job) => dfcp::sink(&job).map(received),
        Job::DfcpSource(job) => dfcp::source(&job).map(sent),
        Job::Ping(job) => ping::ping(&job).map(Report::Pings).map_err(text),
    }
}

fn print_line(line: &impl Serialize) {
    if let Ok(json) = serde_json::to_string(line) {
        // A reader that went away is no reason to panic.
        let mut out = std::io::stdout();
        let _ = writeln!(out, "{json}");
        let _ = out.flush();
    }
}

/// A command that does a job in a host, by this very program.
///
/// # Errors
/// When this program cannot be found.
pub fn command(host: &Host, job: &Job) -> std::io::Result<HostCommand> {
    let program: OsString = std::env::current_exe()?.into();
    let job = serde_json::to_string(job).map_err(std::io::Error::other)?;
    Ok(host.command(program).args([SUBCOMMAND, &job]))
}

/// Waits until a worker says that it listens.
///
/// # Errors
/// What it says instead, or that it says nothing by the deadline.
pub fn wait_ready(worker: &mut HostProcess, deadline: Instant) -> Result<(), String> {
    match worker.wait_line(deadline) {
        Ok(line) if serde_json::from_str::<Ready>(&line).is_ok_and(|ready| ready.ready) => Ok(()),
        Ok(line) => Err(line),
        Err(error) => Err(error.to_string()),
    }
}

/// What a worker reported.
///
/// # Errors
/// What went wrong, as far as is known.
pub fn report(finished: &Finished) -> Result<Report, String> {
    let last = finished.stdout.lines().last().unwrap_or_default();
    if let Ok(report) = serde_json::from_str(last) {
        return Ok(report);
    }
    if let Ok(failed) = serde_json::from_str::<Failed>(last) {
        return Err(failed.error);
    }
    Err(match (finished.timed_out, finished.status) {
        (true, _) => "it did not end in time".into(),
        (false, Some(status)) => format!("it ended without a report: {status}"),
        (false, None) => "it cannot be ended".into(),
    })
}

/// Time that the threads of this process, as far as they still run, waited for a processor.
fn waited_ns() -> u64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return 0;
    };
    let waited = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    tasks.flatten().filter_map(waited).sum()
}

/// Sleeps until a time of `CLOCK_MONOTONIC`.
pub(crate) fn sleep_until(ns: u64) {
    let until = TimeSpec::new((ns / 1_000_000_000) as _, (ns % 1_000_000_000) as _);
    let flags = ClockNanosleepFlags::TIMER_ABSTIME;
    while clock_nanosleep(ClockId::CLOCK_MONOTONIC, flags, &until) == Err(nix::errno::Errno::EINTR)
    {
    }
}
