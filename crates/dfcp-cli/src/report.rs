//! What a session was like: one JSON object, or a few lines for people.

mod attempts;
mod reasons;
mod words;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use dfcp::published::{Carrier, Monitor, Traffic};
use dfcp::{Connection, ConnectionStats, SocketBuffers};
use dfcp_command::{Failure, Kind};
use dfcp_transfer::{Diary, Entry, LeftOut, Meter, Outcome, Received, Unstable};
use serde::Serialize;

use crate::files;
pub use attempts::Attempts;

/// Bytes of the IP and UDP headers around each datagram.
fn header_bytes(remote: SocketAddr) -> u64 {
    match remote.ip().to_canonical().is_ipv4() {
        true => 28,
        false => 48,
    }
}

/// Figures of a session, or of the attempt at one.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// `send`, `recv` or `cp`.
    pub role: &'static str,
    /// What carries a copy to a machine that ssh reaches: `udp` or `ssh`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<&'static str>,
    /// The peer's key.
    pub peer: Option<String>,
    /// The peer's address.
    pub remote: Option<SocketAddr>,
    /// Files in place and verified.
    pub files: u64,
    /// Files that were there already, with the same content.
    pub files_there: u64,
    /// Files that are not in place because others have their names (`--on-conflict skip`).
    pub files_skipped: u64,
    /// Files and directories that failed.
    pub files_failed: u64,
    /// Bytes of the files that are in place.
    pub useful_bytes: u64,
    /// Bytes of files that arrived in this session, whatever became of the files.
    pub moved_bytes: u64,
    /// Bytes of the files in place that did not have to come: the receiver had them, in a part that came
    /// earlier or in another version of the file.
    pub kept_bytes: u64,
    /// Connections that were tried, see `--retry`: all figures are those of all of them together.
    #[serde(skip_serializing_if = "is_zero")]
    pub attempts: u32,
    /// Time from the start of the first connection until all was known to be verified.
    pub seconds: f64,
    /// Useful bits that came, per second of that time.
    pub goodput_bps: u64,
    /// The same after the first tenth of the bytes, at the receiver; of several attempts the last one's.
    pub steady_bps: u64,
    /// Bytes of IP packets sent.
    pub wire_bytes: u64,
    /// Bytes of IP packets received.
    pub wire_bytes_received: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Of those sent, packets that were lost.
    pub packets_lost: u64,
    /// Their share.
    pub loss: f64,
    /// Smoothed round-trip time.
    pub rtt_ms: f64,
    /// Smallest round-trip time.
    pub min_rtt_ms: f64,
    /// Source symbols sent.
    pub source_symbols: u64,
    /// Repair symbols sent.
    pub repair_symbols: u64,
    /// Symbols received that taught nothing.
    pub redundant_symbols: u64,
    /// What only DFCP as published counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
    /// Processor time of this process.
    pub cpu_seconds: f64,
    /// Socket buffers, if they are known.
    pub socket_buffers: Option<Buffers>,
    /// What would be done, of a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<crate::command::cp::plan::Plan>,
    /// What was not sent, or not as it is at the sender, and why.
    pub left_out: Vec<LeftOut>,
    /// Files that grew while they were sent: they arrived as they were offered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grown: Vec<String>,
    /// Files that changed, or were replaced, before they were sent: they arrived as they were then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// What became of files that are not in place.
    pub problems: Vec<FileProblem>,
    /// What ended the session early, or the sum of the problems.
    pub error: Option<Failure>,
    /// The exit code that belongs to this.
    pub exit_code: u8,
}

/// Sizes of socket buffers in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct Buffers {
    requested: usize,
    receive: usize,
    send: usize,
    shortfall: Option<String>,
}

/// Counters of a connection of DFCP as published.
#[derive(Clone, Debug, Serialize)]
pub struct Published {
    /// Data packets sent.
    data_packets: u64,
    /// Of these, beyond the first pass over their block.
    extra_packets: u64,
    /// Blocks acknowledged by the peer.
    blocks_acked: u64,
    /// Blocks received.
    blocks_received: u64,
    /// Blocks that could not be decoded with the symbols that should suffice.
    decode_failures: u64,
    /// Data packets received for blocks already complete.
    late_packets: u64,
}

/// A file that is not in place.
#[derive(Clone, Debug, Serialize)]
pub struct FileProblem {
    /// Where it was to be.
    pub path: String,
    /// What failed.
    pub kind: Kind,
    /// In words.
    pub message: String,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for a reference
fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Report {
    /// A report on nothing yet.
    pub fn new(role: &'static str) -> Self {
        Self {
            role,
            ..Self::default()
        }
    }

    /// Adds the sizes of the socket's buffers.
    pub fn add_buffers(&mut self, buffers: SocketBuffers) {
        self.socket_buffers = Some(Buffers {
            requested: buffers.requested,
            receive: buffers.receive,
            send: buffers.send,
            shortfall: buffers.shortfall(),
        });
    }

    /// Adds the figures of a connection.
    pub fn add_connection(&mut self, connection: &Connection, remote: SocketAddr) {
        self.peer = Some(connection.peer().to_string());
        self.remote = Some(remote);
        self.add_stats(&connection.stats(), header_bytes(remote));
    }

    fn add_stats(&mut self, stats: &ConnectionStats, header: u64) {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        self.wire_bytes = stats.bytes_sent + stats.packets_sent * header;
        self.wire_bytes_received = stats.bytes_received + stats.packets_received * header;
        self.packets_sent = stats.packets_sent;
        self.packets_received = stats.packets_received;
        self.packets_lost = stats.packets_lost.saturating_sub(stats.spurious_losses);
        self.loss = self.packets_lost as f64 / stats.packets_sent.max(1) as f64;
        self.rtt_ms = milliseconds(stats.rtt);
        self.min_rtt_ms = milliseconds(stats.min_rtt);
        self.source_symbols = stats.source_symbols_sent;
        self.repair_symbols = stats.repair_symbols_sent;
        self.redundant_symbols = stats.redundant_symbols;
    }

    /// Adds the figures of a connection of DFCP as published, and of its socket.
    pub fn add_published(
        &mut self,
        remote: SocketAddr,
        carrier: Carrier,
        monitor: &Monitor,
        traffic: Traffic,
    ) {
        let udp = match carrier {
            Carrier::Udp => 0,
            Carrier::Ip => 8,
        };
        let header = header_bytes(remote) - udp;
        self.remote = Some(remote);
        self.wire_bytes = traffic.bytes_sent + traffic.packets_sent * header;
        self.wire_bytes_received = traffic.bytes_received + traffic.packets_received * header;
        self.packets_sent = traffic.packets_sent;
        self.packets_received = traffic.packets_received;
        let Some(stats) = monitor.stats() else {
            return;
        };
        self.loss = stats.loss;
        self.packets_lost = (stats.loss * stats.data_packets as f64).round() as u64;
        self.rtt_ms = stats.srtt.unwrap_or_default().as_secs_f64() * 1e3;
        self.published = Some(Published {
            data_packets: stats.data_packets,
            extra_packets: stats.extra_packets,
            blocks_acked: stats.blocks_acked,
            blocks_received: stats.blocks_received,
            decode_failures: stats.decode_failures,
            late_packets: stats.late_packets,
        });
    }

    /// Adds what became of the files.
    pub fn add_outcomes(
        &mut self,
        entries: &[Entry],
        outcomes: &BTreeMap<u64, Outcome>,
        diary: &Diary,
    ) {
        let unstable = diary.unstable();
        for (index, outcome) in outcomes {
            let Some(entry) = usize::try_from(*index).ok().and_then(|i| entries.get(i)) else {
                continue;
            };
            match outcome {
                Outcome::Done => {
                    self.files += 1;
                    self.useful_bytes += diary.size(*index).unwrap_or(entry.size);
                    match unstable.get(index) {
                        Some(Unstable::Grown) => self.grown.push(entry.path.clone()),
                        Some(Unstable::Changed) => self.changed.push(entry.path.clone()),
                        None => {}
                    }
                }
                Outcome::There => self.files_there += 1,
                Outcome::Skipped => self.files_skipped += 1,
                Outcome::Error(problem) => {
                    self.files_failed += 1;
                    self.problems.push(FileProblem {
                        path: entry.path.clone(),
                        kind: files::kind(problem.kind),
                        message: problem.message.clone(),
                    });
                }
            }
        }
    }

    /// Adds what a session of a receiver since `start` brought, and concludes.
    pub fn add_received(&mut self, received: Received, start: Instant, meter: &Meter) {
        self.add_outcomes(&received.entries, &received.outcomes, meter.diary());
        self.left_out = received.left_out;
        let waited = meter.ended().map_or(Duration::ZERO, |end| end.elapsed());
        let apart = meter.diary().asked() + waited;
        self.add_time(start, apart, meter.steady_bps());
        self.conclude(received.failure.map(files::failure));
    }

    /// Adds the time since `start`, and what it gave.
    ///
    /// Time `apart` that a person took to answer, or that this side waited for the other one to end, is not the
    /// path's.
    pub fn add_time(&mut self, start: Instant, apart: Duration, steady_bps: Option<u64>) {
        let time = start
            .elapsed()
            .saturating_sub(apart)
            .max(Duration::from_micros(1));
        self.seconds = time.as_secs_f64();
        self.goodput_bps = match self.carried() {
            0 => 0,
            bytes => dfcp::Rate::from_transfer(bytes, time).as_bps(),
        };
        self.steady_bps = steady_bps.unwrap_or(self.goodput_bps);
    }

    /// Useful bytes that came in this session: what was there of a part already took no time. Published
    /// sessions do not go on with parts, and count useful bytes alone.
    fn carried(&self) -> u64 {
        match (self.moved_bytes, self.kept_bytes) {
            (0, 0) => self.useful_bytes,
            (moved, _) => self.useful_bytes.min(moved),
        }
    }

    /// Adds what earlier attempts at the same transfer cost and brought: figures are then those of all
    /// attempts, from the start of the first; round trips and the steady goodput are the last one's. In
    /// this one a person was `asked` for so long.
    pub fn add_attempts(&mut self, earlier: &Attempts, asked: Duration) {
        let Some(began) = earlier.began else {
            return;
        };
        self.add_figures(&earlier.figures);
        let steady_bps = match self.steady_bps {
            0 => earlier.figures.steady_bps,
            steady_bps => steady_bps,
        };
        self.add_time(began, earlier.asked + asked, Some(steady_bps));
    }

    /// Adds what arrived of a transfer that ended early.
    pub fn add_arrived(&mut self, attempts: &Attempts) {
        self.files = attempts.arrived.len() as u64;
        self.useful_bytes = attempts.arrived.values().sum();
        let time = Duration::from_secs_f64(self.seconds.max(1e-6));
        self.goodput_bps = match self.carried() {
            0 => 0,
            bytes => dfcp::Rate::from_transfer(bytes, time).as_bps(),
        };
    }

    fn add_figures(&mut self, sum: &Self) {
        self.attempts += sum.attempts;
        self.moved_bytes += sum.moved_bytes;
        self.kept_bytes += sum.kept_bytes;
        self.wire_bytes += sum.wire_bytes;
        self.wire_bytes_received += sum.wire_bytes_received;
        self.packets_sent += sum.packets_sent;
        self.packets_received += sum.packets_received;
        self.packets_lost += sum.packets_lost;
        self.loss = self.packets_lost as f64 / self.packets_sent.max(1) as f64;
        self.source_symbols += sum.source_symbols;
        self.repair_symbols += sum.repair_symbols;
        self.redundant_symbols += sum.redundant_symbols;
    }

    /// Draws the sum: what the session's exit code is, and why.
    pub fn conclude(&mut self, failure: Option<Failure>) {
        self.cpu_seconds = cpu_seconds();
        self.error = failure.or_else(|| self.sum_of_problems());
        self.exit_code = self.error.as_ref().map_or(0, |error| error.kind as u8);
    }

    fn sum_of_problems(&self) -> Option<Failure> {
        let Some(first) = self.problems.first() else {
            return self.sum_of_left_out();
        };
        let corrupt = self.problems.iter().any(|p| p.kind == Kind::Integrity);
        let some = self.files + self.files_there + self.files_skipped > 0;
        let kind = match (corrupt, some) {
            (true, _) => Kind::Integrity,
            (false, true) => Kind::Partial,
            (false, false) => first.kind,
        };
        let message = match self.problems.len() {
            1 => first.message.clone(),
            n => format!("{n} files failed{FIRST}{}", first.message),
        };
        Some(Failure::new(kind, message))
    }

    fn sum_of_left_out(&self) -> Option<Failure> {
        let first = self.left_out.first()?;
        let message = format!("left out {}: {}", first.path, first.why);
        let message = match self.left_out.len() {
            1 => message,
            n => format!("{n} things were not sent as they are{FIRST}{message}"),
        };
        Some(Failure::new(Kind::Partial, message))
    }
}

/// Between the number of files that failed and what became of the first.
const FIRST: &str = ", the first one: ";

/// Processor time that this process has used.
pub fn cpu_seconds() -> f64 {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike;
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, |usage| {
        (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6
    })
}
