//! One peer between two hosts: its tunnel for as long as needed, and files through it, each with a
//! deadline after which whatever still runs is killed.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::plan::{Files, Pair, Ready, Report, Side, Step, Told};
use super::program::{Programs, ask};
use super::progress::{Progress, Watch, now_ns};
use super::{Peer, tunnel};
use crate::{Finished, Host, HostProcess};

/// How long a process may take until it can be used.
const START: Duration = Duration::from_secs(5);
/// How long a process may take to end once its work is done.
const END: Duration = Duration::from_secs(3);
/// Between two looks at whether a port is bound.
const LOOK: Duration = Duration::from_millis(2);

/// The two ends of a transfer.
#[derive(Clone, Copy)]
pub struct Ends<'a> {
    /// Where files are.
    pub source: &'a Host,
    /// Where they go.
    pub sink: &'a Host,
}

impl Ends<'_> {
    fn at(&self, side: Side) -> &Host {
        match side {
            Side::Source => self.source,
            Side::Sink => self.sink,
        }
    }
}

/// A file to move.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// The file.
    pub source: &'a Path,
    /// Its size in bytes.
    pub size: u64,
    /// When to stop it.
    pub limit: Duration,
    /// Between two looks at how much has arrived.
    pub look: Duration,
}

/// How a transfer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All arrived.
    Complete,
    /// It was stopped at its limit.
    Limit,
    /// It failed.
    Failed(String),
}

/// A transfer's figures.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// How it ended.
    pub outcome: Outcome,
    /// When it began, in nanoseconds of `CLOCK_MONOTONIC`; zero where it did not.
    pub started_ns: u64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Seconds from before connecting until the sender knew that all had arrived; or until the
    /// limit.
    pub seconds: f64,
    /// Bytes after the first tenth of them, and the seconds that these took at the receiver.
    pub steady: Option<(u64, f64)>,
    /// Processor time of the sender.
    pub cpu_sender: Duration,
    /// Processor time of the receiver.
    pub cpu_receiver: Duration,
}

/// A peer that is ready to move files.
pub struct Session<'a> {
    peer: &'a Peer,
    ends: Ends<'a>,
    told: &'a Told,
    programs: &'a Programs,
    tunnel: Vec<HostProcess>,
    transfers: usize,
}

impl<'a> Session<'a> {
    /// Prepares keys and configurations in `told.folder`, and starts the tunnel of those that are
    /// one.
    ///
    /// # Errors
    /// In words, when a program is missing or does not start.
    pub fn start(
        peer: &'a Peer,
        ends: Ends<'a>,
        told: &'a Told,
        programs: &'a Programs,
    ) -> Result<Self, String> {
        let steps = peer
            .tunnel(told, programs)
            .map_err(|missing| missing.to_string())?;
        prepare(peer, told, programs)?;
        let mut session = Self {
            peer,
            ends,
            told,
            programs,
            tunnel: Vec::new(),
            transfers: 0,
        };
        for step in &steps {
            let process = session.start_step(step)?;
            session.tunnel.push(process);
        }
        Ok(session)
    }

    /// Moves a file.
    pub fn transfer(&mut self, work: &Work) -> Transfer {
        self.transfers += 1;
        let received = self
            .told
            .folder
            .join(format!("received-{}", self.transfers));
        let transfer = self
            .try_transfer(work, &received)
            .unwrap_or_else(|reason| Transfer {
                outcome: Outcome::Failed(reason),
                started_ns: 0,
                bytes: 0,
                seconds: 0.0,
                steady: None,
                cpu_sender: Duration::ZERO,
                cpu_receiver: Duration::ZERO,
            });
        let _ = fs::remove_dir_all(&received);
        transfer
    }

    fn try_transfer(&self, work: &Work, received: &Path) -> Result<Transfer, String> {
        fs::create_dir_all(received).map_err(|error| error.to_string())?;
        let files = Files {
            source: work.source,
            received,
            size: work.size,
        };
        let pair = self.peer.pair(self.told, &files, self.programs);
        let pair = pair.map_err(|missing| missing.to_string())?;
        let receiver = self.start_step(&pair.receiver)?;
        let watch = Watch::start(received.to_owned(), work.look);
        let started_ns = now_ns();
        let deadline = Instant::now() + work.limit;
        let sender = match self.start_step(&pair.sender) {
            Ok(sender) => sender.wait(deadline),
            Err(reason) => {
                watch.stop();
                return Err(reason);
            }
        };
        let now = Instant::now();
        let patience = match pair.report {
            // Without a sender there is nothing more to receive.
            _ if !sender.succeeded() => now,
            Report::Nothing => deadline,
            Report::Contract | Report::Dfcp | Report::Iperf => now + END,
        };
        let receiver = receiver.wait(patience);
        let seen = Seen {
            progress: watch.stop(),
            started_ns,
            sender,
            receiver,
        };
        Ok(seen.judge(&pair, &files, self.told, work.limit))
    }

    /// Ends the tunnel; its processor time.
    pub fn stop(self) -> Duration {
        let mut cpu = Duration::ZERO;
        for process in self.tunnel {
            cpu += process.wait(Instant::now()).cpu;
        }
        cpu
    }

    /// Starts a process and waits until it is ready.
    fn start_step(&self, step: &Step) -> Result<HostProcess, String> {
        let Step { role, program, .. } = step;
        let host = self.ends.at(step.side);
        let mut process = host
            .command(program)
            .args(&step.arguments)
            .env("XDG_CONFIG_HOME", &self.told.folder) // no one's own keys and settings
            .current_dir(&self.told.folder)
            .spawn()
            .map_err(|error| format!("{role}: {}: {error}", program.display()))?;
        let deadline = Instant::now() + START;
        let ready = match step.ready {
            Ready::AtOnce => true,
            Ready::Line => process.wait_line(deadline).is_ok(),
            Ready::Udp(port) => wait_bound(process.id(), Socket::Udp, port, deadline),
            Ready::Tcp(port) => wait_bound(process.id(), Socket::Tcp, port, deadline),
        };
        match ready {
            true => Ok(process),
            false => {
                let reason = reason(&process.wait(Instant::now()));
                Err(format!("{role} does not start: {reason}"))
            }
        }
    }
}

/// What a peer needs before any of its processes starts.
fn prepare(peer: &Peer, told: &Told, programs: &Programs) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot prepare: {error}");
    let output = |program: &Path, arguments: &[&str]| {
        let mut command = std::process::Command::new(program);
        let output = ask(command.args(arguments).current_dir(&told.folder)).map_err(failed)?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            false => Err(last_line(&String::from_utf8_lossy(&output.stderr))),
        }
    };
    match peer {
        Peer::Dfcp => {
            let program = programs.find("dfcp");
            let program = program.map_err(|missing| missing.to_string())?;
            let sender = output(&program, &["keygen", "--out", "send"])?;
            write_private(&told.folder.join("allowed"), &sender).map_err(failed)?;
            let key = output(&program, &["keygen", "--out", "recv"])?;
            let line = format!("{}:{} {key}\n", told.sink, told.port);
            fs::write(told.folder.join("known_hosts"), line).map_err(failed)
        }
        Peer::Hysteria => {
            let program = programs.find("dfcp-peer-quinn");
            let program = program.map_err(|missing| missing.to_string())?;
            output(&program, &["certificate", "--out", "."])?;
            tunnel::write_hysteria(told, &told.folder).map_err(failed)
        }
        _ => Ok(()),
    }
}

/// Writes a file that, whatever the umask, only its owner may change: `dfcp` trusts no other.
fn write_private(path: &Path, line: &str) -> io::Result<()> {
    let mut options = fs::File::options();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    writeln!(file, "{line}")
}

#[derive(Clone, Copy)]
enum Socket {
    Udp,
    Tcp,
}

/// Waits until a port is bound in the network of a process.
fn wait_bound(process: u32, socket: Socket, port: u16, deadline: Instant) -> bool {
    // Nobody sends here: a wait that ends by its time alone.
    let (_keep, never) = std::sync::mpsc::channel::<()>();
    while Instant::now() < deadline {
        match is_bound(process, socket, port) {
            Some(true) => return true,
            Some(false) => {
                let _ = never.recv_timeout(LOOK);
            }
            None => return false, // it has ended
        }
    }
    false
}

/// None when the process is gone.
fn is_bound(process: u32, socket: Socket, port: u16) -> Option<bool> {
    let (names, state) = match socket {
        Socket::Udp => (["udp", "udp6"], None),
        Socket::Tcp => (["tcp", "tcp6"], Some("0A")), // listening
    };
    let read = |name| fs::read_to_string(format!("/proc/{process}/net/{name}")).ok();
    let tables: Vec<String> = names.into_iter().filter_map(read).collect();
    if tables.is_empty() {
        return None;
    }
    Some(tables.iter().any(|table| lists(table, state, port)))
}

/// Whether a table of `/proc/net` has a socket at this local port, in this state.
fn lists(table: &str, state: Option<&str>, port: u16) -> bool {
    let suffix = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut words = line.split_whitespace();
        let local = words.nth(1).is_some_and(|local| local.ends_with(&suffix));
        let found = words.nth(1);
        local && state.is_none_or(|state| found == Some(state))
    })
}

/// The last line that is not empty; or that there is none.
fn last_line(text: &str) -> String {
    let mut lines = text.lines().rev().map(str::trim);
    let line = lines.find(|line| !line.is_empty());
    line.map_or_else(
        || "it says nothing".to_owned(),
        |line| line.chars().take(200).collect(),
    )
}

/// What a program says went wrong: on standard error, or as the lab's workers do.
fn reason(finished: &Finished) -> String {
    match finished.stderr.trim().is_empty() {
        true => last_line(&finished.stdout),
        false => last_line(&finished.stderr),
    }
}

/// What a sender may say at its end.
#[derive(Debug, Default, Deserialize)]
struct Said {
    start_ns: Option<u64>,
    done_ns: Option<u64>,
    seconds: Option<f64>,
}

/// A transfer as it was seen.
struct Seen {
    progress: Progress,
    started_ns: u64,
    sender: Finished,
    receiver: Finished,
}

impl Seen {
    fn judge(self, pair: &Pair, files: &Files, told: &Told, limit: Duration) -> Transfer {
        let (progress, rest) = match pair.report {
            Report::Iperf => match iperf_progress(&self.receiver.stdout, self.started_ns) {
                Some(progress) => (progress, Ok(())),
                None => (Progress::default(), Err("no report of iperf3".to_owned())),
            },
            _ => (self.progress.clone(), self.verify(files)),
        };
        let (last_ns, bytes) = progress.last().unwrap_or((self.started_ns, 0));
        let bytes = match pair.report {
            Report::Iperf => bytes,
            _ => bytes.min(files.size),
        };
        let watched_out = pair.report == Report::Nothing && self.receiver.timed_out;
        let stopped = self.sender.timed_out || (self.sender.succeeded() && watched_out);
        let outcome = match (stopped, self.succeeded(pair), rest) {
            (true, ..) => Outcome::Limit,
            (false, Err(reason), _) | (false, Ok(()), Err(reason)) => Outcome::Failed(reason),
            (false, Ok(()), Ok(())) => Outcome::Complete,
        };
        let said: Said =
            serde_json::from_str(self.sender.stdout.lines().last().unwrap_or_default())
                .unwrap_or_default();
        let between = |start: u64, end: u64| end.saturating_sub(start) as f64 / 1e9;
        let seconds = match (&outcome, said) {
            (Outcome::Limit, _) => limit.as_secs_f64(),
            _ if pair.report == Report::Nothing => {
                between(self.started_ns, last_ns) + told.round_trip.as_secs_f64() / 2.0
            }
            (
                _,
                Said {
                    seconds: Some(seconds),
                    ..
                },
            ) => seconds,
            (
                _,
                Said {
                    start_ns: Some(start),
                    done_ns: Some(done),
                    ..
                },
            ) => between(start, done),
            _ => between(self.started_ns, last_ns),
        };
        let steady = progress
            .reached(bytes.div_ceil(10))
            .and_then(|(ns, tenth)| {
                // One that hangs at its limit has had all that time.
                let end = match outcome {
                    Outcome::Limit => self.started_ns + limit.as_nanos() as u64,
                    _ => last_ns,
                };
                (end > ns && bytes > tenth).then(|| (bytes - tenth, between(ns, end)))
            });
        Transfer {
            outcome,
            started_ns: self.started_ns,
            bytes,
            seconds,
            steady,
            cpu_sender: self.sender.cpu,
            cpu_receiver: self.receiver.cpu,
        }
    }

    /// Whether the processes ended well.
    fn succeeded(&self, pair: &Pair) -> Result<(), String> {
        for (finished, step) in [
            (&self.sender, &pair.sender),
            (&self.receiver, &pair.receiver),
        ] {
            let role = step.role;
            let status = match finished.status {
                _ if finished.timed_out => return Err(format!("the {role} does not end")),
                Some(status) if status.success() => continue,
                Some(status) => status.to_string(),
                None => "ended".to_owned(),
            };
            return Err(format!("{role}: {status}: {}", reason(finished)));
        }
        Ok(())
    }

    /// Whether the file that arrived is the one that was sent.
    fn verify(&self, files: &Files) -> Result<(), String> {
        let arrived = fs::read_dir(files.received).map_err(|error| error.to_string())?;
        let mut paths = arrived.flatten().map(|entry| entry.path());
        match paths.find(|path| is_same(path, files.source).unwrap_or(false)) {
            Some(_) => Ok(()),
            None => Err("what arrived is not what was sent".to_owned()),
        }
    }
}

fn is_same(one: &PathBuf, other: &Path) -> io::Result<bool> {
    let (one, other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    const BLOCK: usize = 1 << 18;
    let mut readers = [one, other].map(|file| BufReader::with_capacity(BLOCK, file));
    let mut buffers = [vec![0; BLOCK], vec![0; BLOCK]];
    loop {
        let mut len = 0;
        for (reader, buffer) in readers.iter_mut().zip(&mut buffers) {
            buffer.resize(BLOCK, 0);
            len = read_full(reader, buffer)?;
            buffer.truncate(len);
        }
        if buffers[0] != buffers[1] {
            return Ok(false);
        }
        if len == 0 {
            return Ok(true);
        }
    }
}

fn read_full(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match reader.read(&mut buffer[len..])? {
            0 => break,
            more => len += more,
        }
    }
    Ok(len)
}

/// The receiver's intervals as iperf3 reports them; its clock starts about when it was connected to.
fn iperf_progress(report: &str, started_ns: u64) -> Option<Progress> {
    #[derive(Deserialize)]
    struct Sum {
        end: f64,
        bytes: u64,
    }
    #[derive(Deserialize)]
    struct Interval {
        sum: Sum,
    }
    #[derive(Deserialize)]
    struct Whole {
        intervals: Vec<Interval>,
    }
    let whole: Whole = serde_json::from_str(report).ok()?;
    let mut bytes = 0;
    let samples = whole.intervals.iter().map(|Interval { sum }| {
        bytes += sum.bytes;
        (started_ns + (sum.end * 1e9) as u64, bytes)
    });
    Some(Progress::new(samples.collect()))
}
