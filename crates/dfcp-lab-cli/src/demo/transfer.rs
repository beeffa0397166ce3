//! The demo's transfer: a receiver and a sender in processes of their own, with the relay between
//! them. Whatever way it ends, no process and no file is left.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use dfcp_command::{Failure, Kind, Profile, beside, units};
use dfcp_lab::path::relay::Relay;
use dfcp_sim::Seed;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::path::PathConfig;

/// What the transfer achieved.
#[derive(Clone, Debug, Serialize)]
pub struct Transfer {
    /// Useful bits per second, from the start of the connection until all was verified.
    pub goodput_bps: u64,
    /// The same after the first tenth of the bytes, at the receiver.
    pub steady_bps: u64,
    /// Time from the start of the connection until the sender knew that all was verified.
    pub seconds: f64,
    /// Bytes of IP packets that the sender sent, as the relay counted them.
    pub wire_bytes: u64,
    /// Bytes of IP packets that the receiver sent.
    pub wire_bytes_back: u64,
    /// Bytes delivered.
    pub useful_bytes: u64,
    /// Whether the file that arrived is the one that was sent.
    pub hash_ok: bool,
    /// Processor time of the sender.
    pub cpu_seconds_sender: f64,
    /// Processor time of the receiver.
    pub cpu_seconds_receiver: f64,
    /// Packets that the path's queue dropped, towards the receiver.
    pub dropped_queue: u64,
    /// Packets that the path lost, towards the receiver.
    pub lost: u64,
    /// Most packets that waited in the path's queue, towards the receiver.
    pub queue_peak_packets: u64,
    /// Smoothed round-trip time at the end.
    pub rtt_ms: f64,
    /// The latest that the relay delivered a packet.
    pub relay_max_late_ms: f64,
    /// The latest of 99 % of them.
    pub relay_p99_late_ms: f64,
}

/// What is used of a process' report.
#[derive(Deserialize)]
struct Report {
    #[serde(default)]
    goodput_bps: u64,
    #[serde(default)]
    steady_bps: u64,
    #[serde(default)]
    seconds: f64,
    #[serde(default)]
    useful_bytes: u64,
    #[serde(default)]
    cpu_seconds: f64,
    #[serde(default)]
    rtt_ms: f64,
    error: Option<Reason>,
}

#[derive(Deserialize)]
struct Reason {
    kind: Kind,
    message: String,
}

/// What is sent, and how.
#[derive(Clone, Debug)]
pub struct Load {
    /// Bytes.
    pub size: u64,
    /// Transport.
    pub profile: Profile,
    /// What `dfcp send` is told of it.
    pub options: Vec<String>,
}

/// How often `run` says how much has arrived.
const INTERVAL: Duration = Duration::from_millis(100);

/// Sends `load` over `path`, in at most `limit`; `seen` is told how many bytes have arrived.
pub async fn run(
    path: &PathConfig,
    load: &Load,
    limit: Duration,
    mut seen: impl FnMut(u64),
) -> Result<Transfer, Failure> {
    let bench = Bench::new(path.seed, load).await?;
    let (receiver, address) = bench.start_receiver().await?;
    let network = path.network().map_err(failure)?;
    let relay = Relay::start(network, address)?;
    let sender = bench.start_sender(relay.client_addr(), &load.options)?;
    let sent = async {
        report("sender", sender).await.map_err(|failure| {
            match failure.kind {
                // It gives reasons of networks, and does not know this one.
                Kind::Unreachable => unreached(path),
                _ => failure,
            }
        })
    };
    let both = async { tokio::try_join!(sent, report("receiver", receiver)) };
    let watch = async {
        let mut ticks = tokio::time::interval(INTERVAL);
        loop {
            ticks.tick().await;
            seen(bench.arrived());
        }
    };
    let both = tokio::select! {
        both = tokio::time::timeout(limit, both) => both,
        () = watch => Ok(Err(failure("the clock ended"))),
    };
    let (sent, received) = both.map_err(|_| failure("the transfer takes too long"))??;
    let (stats, [forward, backward]) = relay.stop(PathConfig::links)?;
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(Transfer {
        goodput_bps: sent.goodput_bps,
        steady_bps: received.steady_bps,
        seconds: sent.seconds,
        wire_bytes: forward.bytes_in,
        wire_bytes_back: backward.bytes_in,
        useful_bytes: sent.useful_bytes,
        hash_ok: bench.is_delivered()?,
        cpu_seconds_sender: sent.cpu_seconds,
        cpu_seconds_receiver: received.cpu_seconds,
        dropped_queue: forward.drops.full,
        lost: forward.drops.loss,
        queue_peak_packets: forward.queue_peak_packets,
        rtt_ms: sent.rtt_ms,
        relay_max_late_ms: milliseconds(stats.lateness.max()),
        relay_p99_late_ms: milliseconds(stats.lateness.quantile(0.99)),
    })
}

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::new(Kind::Failure, format!("{error:#}"))
}

/// The two ends did not find each other, or lost each other.
fn unreached(path: &PathConfig) -> Failure {
    failure(format_args!(
        "sender and receiver did not reach each other: {}, {:?} round trip and {} % lost each way are \
         too bad a path. The sender gives up after some seconds without an answer; give less --loss or \
         --rtt, or more --rate",
        path.rate,
        path.rtt,
        path.loss * 100.0
    ))
}

/// Files and keys of a transfer.
struct Bench {
    dir: TempDir,
    program: PathBuf,
    hash: blake3::Hash,
    /// Of sender and receiver, for transports that have keys.
    keys: Option<[String; 2]>,
    profile: Profile,
}

const FILE: &str = "demo.bin";

impl Bench {
    async fn new(seed: u64, load: &Load) -> Result<Self, Failure> {
        let program = beside::find("dfcp").ok_or_else(absent)?;
        let dir = tempfile::Builder::new().prefix("dfcp-demo-").tempdir()?;
        check_room(dir.path(), load.size)?;
        let keys = match load.profile.sealed() {
            Some(_) => {
                let [send, recv] = ["send", "recv"].map(|name| dir.path().join(name));
                Some([
                    keygen(&program, &send).await?,
                    keygen(&program, &recv).await?,
                ])
            }
            None => None,
        };
        Ok(Self {
            program,
            hash: write_random(&dir.path().join(FILE), seed, load.size)?,
            keys,
            profile: load.profile,
            dir,
        })
    }

    fn command(&self, subcommand: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args([subcommand, "--json", "--with-parent", "--progress=never"]);
        if self.keys.is_some() {
            command.arg("--key").arg(self.dir.path().join(subcommand));
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    async fn start_receiver(&self) -> Result<(Child, SocketAddr), Failure> {
        let mut command = self.command("recv");
        match &self.keys {
            Some([sender, _]) => command.args(["--allow", sender]),
            // In clear there are no keys; only this machine reaches the address.
            None => command.args(["--allow-any", "--profile", self.profile.name()]),
        };
        let mut child = command
            .args(["--once", "--listen=127.0.0.1:0"])
            .arg("-o")
            .arg(self.dir.path().join("received"))
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = child
            .stderr
            .take()
            .ok_or_else(|| failure("no standard error"))?;
        let mut lines = BufReader::new(stderr).lines();
        while let Some(line) = lines.next_line().await? {
            if let Some((_, address)) = line.split_once("listening on ") {
                let address = address.parse().map_err(failure)?;
                // What it says further is in its report too.
                tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
                return Ok((child, address));
            }
        }
        Err(failure("the receiver does not start"))
    }

    fn start_sender(&self, to: SocketAddr, options: &[String]) -> Result<Child, Failure> {
        let mut command = self.command("send");
        if let Some([_, receiver]) = &self.keys {
            command.args(["--peer-key", receiver]);
        }
        command
            .arg("--quiet")
            .args(options)
            .arg(self.dir.path().join(FILE))
            .arg(to.to_string())
            // What it says is in its report too.
            .stderr(Stdio::piped());
        Ok(command.spawn()?)
    }

    /// Bytes on disk at the receiver so far.
    fn arrived(&self) -> u64 {
        let files = std::fs::read_dir(self.dir.path().join("received"));
        let sizes = files.into_iter().flatten().flatten().map(|file| {
            let metadata = file.metadata();
            // Blocks arrive out of order: the size alone says less.
            metadata.map_or(0, |metadata| metadata.blocks() * 512)
        });
        sizes.sum()
    }

    fn is_delivered(&self) -> Result<bool, Failure> {
        let mut file = File::open(self.dir.path().join("received").join(FILE))?;
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; 1 << 20];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(hasher.finalize() == self.hash),
                n => hasher.update(&buffer[..n]),
            };
        }
    }
}

/// Refuses what would fill the disk: the file is there twice.
fn check_room(directory: &Path, size: u64) -> Result<(), Failure> {
    let room = nix::sys::statvfs::statvfs(directory).map_err(std::io::Error::from)?;
    #[allow(clippy::useless_conversion)] // other types on other platforms
    let room = u64::from(room.blocks_available()) * u64::from(room.fragment_size());
    match size > room / 2 {
        false => Ok(()),
        true => Err(Failure::new(
            Kind::LocalIo,
            format!(
                "{}: has room for {}, and the demo's {} are there twice: give a smaller --size, or a \
                 larger disk by TMPDIR",
                std::env::temp_dir().display(),
                units::bytes(room),
                units::bytes(size)
            ),
        )),
    }
}

fn absent() -> Failure {
    Failure::usage(format!(
        "the demo runs dfcp, and {}: cargo build --release -p dfcp-cli makes it",
        beside::looked_for("dfcp")
    ))
}

/// Makes a key; its public half.
async fn keygen(program: &Path, path: &Path) -> Result<String, Failure> {
    let mut command = Command::new(program);
    let made = command
        .arg("keygen")
        .arg("--out")
        .arg(path)
        .output()
        .await?;
    match made.status.success() {
        true => Ok(String::from_utf8_lossy(&made.stdout).trim().to_owned()),
        false => Err(failure(String::from_utf8_lossy(&made.stderr).trim())),
    }
}

/// Waits for a process and reads its report.
async fn report(name: &str, child: Child) -> Result<Report, Failure> {
    let output = child.wait_with_output().await?;
    let report: Report = serde_json::from_slice(&output.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr);
        let status = output.status;
        failure(format!(
            "the {name} ended without a report: {status} {said}"
        ))
    })?;
    match &report.error {
        Some(reason) => {
            let message = format!("{name}: {}", reason.message);
            Err(Failure::new(reason.kind, message))
        }
        None => Ok(report),
    }
}

/// Writes pseudo-random bytes and returns their hash.
fn write_random(path: &Path, seed: u64, size: u64) -> Result<blake3::Hash, Failure> {
    let write = || {
        let mut file = BufWriter::new(File::create_new(path)?);
        let mut random = Seed(seed).stream("demo.content");
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; 1 << 16];
        let mut left = size;
        while left > 0 {
            for word in buffer.chunks_exact_mut(8) {
                word.copy_from_slice(&random.next_u64().to_le_bytes());
            }
            let part = &buffer[..buffer
                .len()
                .min(usize::try_from(left).unwrap_or(usize::MAX))];
            hasher.update(part);
            file.write_all(part)?;
            left -= part.len() as u64;
        }
        file.flush()?;
        Ok(hasher.finalize())
    };
    write().map_err(|error: std::io::Error| Failure::io(path, error))
}
