//! The kernel's TCP over the demo's path, one transfer for each congestion control.
//!
//! Network namespaces need a process that has no other threads yet, so the program runs itself
//! again with the hidden subcommand `demo-tcp` ([`TcpArgs`], [`worker`]), which prints a JSON line
//! for each result and leaves nothing behind: its namespaces end with it.

use std::process::Stdio;

use dfcp_proto::{Duration, Rate};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::path::PathConfig;

/// What TCP achieved with one congestion control.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TcpResult {
    /// `tcp-` and the congestion control.
    pub protocol: String,
    /// Goodput from the start of the connection, in bits per second.
    pub goodput_bps: u64,
    /// Goodput once a tenth of the bytes was received, in bits per second.
    pub steady_bps: u64,
    /// Time until the last byte was received, or the limit.
    pub seconds: f64,
    /// Whether everything was received within the limit.
    pub complete: bool,
    /// Bytes received.
    pub bytes: u64,
}

/// Why this machine or this user cannot run TCP over the demo's path: a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{error}")]
pub struct Unavailable {
    error: String,
}

impl Unavailable {
    /// Unavailable for this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            error: reason.into(),
        }
    }
}

/// How much of a transfer has arrived by now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TcpProgress {
    /// `tcp-` and the congestion control.
    pub protocol: String,
    /// Bytes received.
    pub arrived: u64,
}

/// A line of the worker's output.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Result(TcpResult),
    Progress(TcpProgress),
    Unavailable(Unavailable),
}

/// What is seen of TCP.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// A transfer goes on.
    Progress(&'a TcpProgress),
    /// A transfer ended.
    Result(&'a TcpResult),
}

/// Sends `size` bytes over the path with each congestion control that the kernel offers, for at
/// most `limit` each, and says to `show` what comes of it as soon as it does.
///
/// # Errors
/// When this machine or this user may not do that.
pub async fn run_tcp(
    path: &PathConfig,
    size: u64,
    limit: Duration,
    mut show: impl FnMut(Seen<'_>),
) -> Result<Vec<TcpResult>, Unavailable> {
    let failed = |error: std::io::Error| Unavailable::new(format!("cannot run again: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    let mut worker = Command::new(program)
        .args(TcpArgs::new(path, size, limit).to_argv())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let mut results = Vec::new();
    let mut unavailable = None;
    // It ends by itself, and its output with it.
    if let Some(output) = worker.stdout.take() {
        let mut lines = BufReader::new(output).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            match serde_json::from_str(&line) {
                Ok(Line::Result(result)) => {
                    show(Seen::Result(&result));
                    results.push(result);
                }
                Ok(Line::Progress(progress)) => show(Seen::Progress(&progress)),
                Ok(Line::Unavailable(reason)) => unavailable = Some(reason),
                Err(_) => unavailable = Some(Unavailable::new(format!("the worker says {line}"))),
            }
        }
    }
    let status = worker.wait().await.map_err(failed)?;
    match unavailable {
        Some(reason) => Err(reason),
        None if status.success() => Ok(results),
        None => Err(Unavailable::new(format!("the worker ended: {status}"))),
    }
}

/// Arguments of the hidden subcommand `demo-tcp`.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct TcpArgs {
    /// Bits per second.
    #[arg(long)]
    rate: u64,
    /// Round-trip time in nanoseconds.
    #[arg(long)]
    rtt: u64,
    /// Probability of loss, each way.
    #[arg(long)]
    loss: f64,
    /// Packets that a queue holds.
    #[arg(long)]
    queue: usize,
    /// Seed of the losses.
    #[arg(long)]
    seed: u64,
    /// Bytes to send.
    #[arg(long)]
    size: u64,
    /// Longest time of a transfer, in nanoseconds.
    #[arg(long)]
    limit: u64,
}

impl TcpArgs {
    /// Arguments for `size` bytes over a path, for at most `limit`.
    pub(super) fn new(path: &PathConfig, size: u64, limit: Duration) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            rate: path.rate.as_bps(),
            rtt: nanos(path.rtt),
            loss: path.loss,
            queue: path.queue_packets,
            seed: path.seed,
            size,
            limit: nanos(limit),
        }
    }

    fn to_argv(&self) -> Vec<String> {
        vec![
            "demo-tcp".into(),
            format!("--rate={}", self.rate),
            format!("--rtt={}", self.rtt),
            format!("--loss={}", self.loss),
            format!("--queue={}", self.queue),
            format!("--seed={}", self.seed),
            format!("--size={}", self.size),
            format!("--limit={}", self.limit),
        ]
    }

    /// The path to run over.
    pub(super) fn path(&self) -> PathConfig {
        PathConfig {
            rate: Rate::from_bps(self.rate),
            rtt: Duration::from_nanos(self.rtt),
            loss: self.loss,
            queue_packets: self.queue,
            seed: self.seed,
        }
    }

    /// Bytes to send.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Longest time of a transfer.
    pub(super) fn limit(&self) -> Duration {
        Duration::from_nanos(self.limit)
    }
}

/// The hidden subcommand: prints a JSON line for each result, or for the reason why there is none.
///
/// Call it before the process starts any thread.
pub fn worker(args: &TcpArgs) {
    #[cfg(target_os = "linux")]
    let outcome = super::tcp_worker::run(args, &mut |result| print_line(&result), &|progress| {
        print_line(&progress)
    });
    #[cfg(not(target_os = "linux"))]
    let outcome = {
        let _ = (args.path(), args.size(), args.limit());
        Err(Unavailable::new("TCP over the demo's path needs Linux"))
    };
    if let Err(reason) = outcome {
        print_line(&reason);
    }
}

fn print_line(line: &impl Serialize) {
    use std::io::Write;
    if let Ok(json) = serde_json::to_string(line) {
        // A reader that went away is no reason to panic; the run is bounded.
        let _ = writeln!(std::io::stdout(), "{json}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    #[test]
    fn arguments_survive_the_command_line() {
        let path = PathConfig::new(Rate::from_bps(7), Duration::from_nanos(61), 0.1 + 0.2, 9);
        let args = TcpArgs::new(&path, 1 << 40, Duration::from_millis(1500));
        let command = TcpArgs::augment_args(clap::Command::new("demo-tcp"));
        let matches = command.try_get_matches_from(args.to_argv()).unwrap();
        assert_eq!(TcpArgs::from_arg_matches(&matches).unwrap(), args);
        assert_eq!(args.path(), path);
    }

    #[test]
    fn lines_are_told_apart() {
        let line = r#"{"protocol":"tcp-bbr","goodput_bps":1,"steady_bps":2,"seconds":0.5,"complete":true,"bytes":3}"#;
        assert!(matches!(serde_json::from_str(line), Ok(Line::Result(_))));
        let line = r#"{"protocol":"tcp-bbr","arrived":1}"#;
        assert!(matches!(serde_json::from_str(line), Ok(Line::Progress(_))));
        let line = r#"{"error":"may not"}"#;
        assert!(matches!(
            serde_json::from_str(line),
            Ok(Line::Unavailable(reason)) if reason.to_string() == "may not"
        ));
    }
}
