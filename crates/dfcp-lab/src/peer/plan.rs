//! Which processes a transfer takes, on which host, and how one knows that each is ready.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::program::{Missing, Programs};
use super::{Peer, QuinnControl, tunnel};
use crate::worker::{self, Job, Load, Sink, TcpSource};

/// The hosts of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where the file is.
    Source,
    /// Where it goes.
    Sink,
}

/// How one knows that a process can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// It prints a line.
    Line,
    /// It has bound this UDP port.
    Udp(u16),
    /// It listens on this TCP port.
    Tcp(u16),
    /// It need not be waited for.
    AtOnce,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it is called in reasons.
    pub role: &'static str,
    /// Where it runs.
    pub side: Side,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// When the next may start.
    pub ready: Ready,
}

/// What the sender's last line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// `start_ns` and `done_ns`: the lab's contract.
    Contract,
    /// `seconds`: the report of `dfcp send`.
    Dfcp,
    /// iperf3's JSON: a run of a fixed time, not of a file.
    Iperf,
    /// Nothing that counts: the file is watched, and half a round trip is added for the news of its
    /// end.
    Nothing,
}

/// The two processes that move one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Started first.
    pub receiver: Step,
    /// Started when the receiver is ready.
    pub sender: Step,
    /// What the sender tells.
    pub report: Report,
}

/// What a tunnel or a transfer is told.
#[derive(Clone, Debug)]
pub struct Told {
    /// The address of the sink.
    pub sink: Ipv4Addr,
    /// The port there, that of the flow.
    pub port: u16,
    /// The first of ten more ports of this flow, for what is within the hosts.
    pub inner: u16,
    /// The path's rate in bits of IP packets a second.
    pub rate_bps: u64,
    /// Its round-trip time without queueing.
    pub round_trip: Duration,
    /// A directory for keys and configurations, of this transfer alone.
    pub folder: PathBuf,
}

/// A file and where it goes.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a> {
    /// What is sent.
    pub source: &'a Path,
    /// The directory that it is received in.
    pub received: &'a Path,
    /// Bytes.
    pub size: u64,
}

impl Files<'_> {
    /// Where a program that asks for a file's name is told to put it.
    pub fn target(&self) -> PathBuf {
        self.received.join("file")
    }
}

/// Arguments, of whatever they are made.
macro_rules! arguments {
    ($($argument:expr),* $(,)?) => {
        vec![$(::std::ffi::OsString::from($argument)),*]
    };
}
pub(super) use arguments;

impl Peer {
    /// The processes that carry its traffic for as long as it lasts, in the order of their start;
    /// none for those that are no tunnels.
    ///
    /// # Errors
    /// When a program is missing.
    pub fn tunnel(&self, told: &Told, programs: &Programs) -> Result<Vec<Step>, Missing> {
        match self {
            Self::Kcptun => tunnel::kcptun(told, programs),
            Self::Hysteria => tunnel::hysteria(told, programs),
            _ => Ok(Vec::new()),
        }
    }

    /// The processes of one file.
    ///
    /// # Errors
    /// When a program is missing.
    pub fn pair(&self, told: &Told, files: &Files, programs: &Programs) -> Result<Pair, Missing> {
        match self {
            Self::Dfcp => dfcp(told, files, programs),
            Self::Tcp(control) => {
                let sink = SocketAddrV4::new(told.sink, told.port);
                Ok(tcp(sink, told.port, Some(control), (files, programs)))
            }
            Self::Hysteria | Self::Kcptun => {
                let entrance = SocketAddrV4::new(Ipv4Addr::LOCALHOST, tunnel::entrance(told));
                let pair = tcp(entrance, tunnel::exit(told), None, (files, programs));
                // The sender sees no further than the tunnel's near end.
                Ok(Pair {
                    report: Report::Nothing,
                    ..pair
                })
            }
            Self::Iperf(control) => iperf(control, told, programs),
            Self::Quinn(control) => quinn(*control, told, files, programs),
            Self::Srt => srt(told, files, programs),
            Self::Udt => udt(told, files, programs),
        }
    }
}

fn dfcp(told: &Told, files: &Files, programs: &Programs) -> Result<Pair, Missing> {
    let program = programs.find("dfcp")?;
    let common = |command: &str| {
        let key = told.folder.join(command);
        let mut all = arguments![command, "--json", "--with-parent", "--progress=never"];
        all.extend(arguments!["--quiet", "--key", key]);
        all
    };
    let mut receive = common("recv");
    let listen = format!("--listen=0.0.0.0:{}", told.port);
    let allowed = told.folder.join("allowed");
    receive.extend(arguments!["--once", listen, "--allow", allowed]);
    receive.extend(arguments!["-o", files.received]);
    let mut send = common("send");
    let known = told.folder.join("known_hosts");
    let to = format!("{}:{}", told.sink, told.port);
    send.extend(arguments!["--known-hosts", known, files.source, to]);
    Ok(Pair {
        receiver: receiver(program.clone(), receive, Ready::Udp(told.port)),
        sender: sender(program, send),
        report: Report::Dfcp,
    })
}

/// The lab's own programs for the kernel's TCP.
fn tcp(
    connect: SocketAddrV4,
    port: u16,
    congestion: Option<&str>,
    (files, programs): (&Files, &Programs),
) -> Pair {
    let worker = |job: &Job| {
        let job = serde_json::to_string(job).unwrap_or_default();
        arguments![worker::SUBCOMMAND, job]
    };
    let sink = Job::TcpSink(Sink {
        listen: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port).into(),
        until_ns: NEVER,
        output: Some(files.target()),
    });
    let source = Job::TcpSource(TcpSource {
        connect: connect.into(),
        congestion: congestion.map(ToOwned::to_owned),
        load: Load::File(files.source.to_owned()),
        time: worker::Side {
            start_ns: 0,
            stop_ns: NEVER,
        },
    });
    let program = programs.worker();
    Pair {
        receiver: receiver(program.to_owned(), worker(&sink), Ready::Line),
        sender: sender(program.to_owned(), worker(&source)),
        report: Report::Contract,
    }
}

/// Later than any transfer ends: the runner has a deadline.
const NEVER: u64 = 1 << 62;

/// How long iperf3 sends: it moves no file, so there is none to wait for.
pub(super) const IPERF_TIME: Duration = Duration::from_secs(8);

fn iperf(control: &str, told: &Told, programs: &Programs) -> Result<Pair, Missing> {
    let program = programs.find("iperf3")?;
    let port = told.port.to_string();
    let (sink, seconds) = (told.sink.to_string(), IPERF_TIME.as_secs().to_string());
    Ok(Pair {
        receiver: receiver(
            program.clone(),
            arguments!["-s", "-1", "-J", "-i", "0.1", "-p", &port],
            Ready::Tcp(told.port),
        ),
        sender: sender(
            program,
            arguments![
                "-c", sink, "-p", port, "-C", control, "-t", seconds, "-J", "-i", "0"
            ],
        ),
        report: Report::Iperf,
    })
}

fn quinn(
    control: QuinnControl,
    told: &Told,
    files: &Files,
    programs: &Programs,
) -> Result<Pair, Missing> {
    let program = programs.find("dfcp-peer-quinn")?;
    let certificate = told.folder.join("certificate");
    let listen = format!("--listen=0.0.0.0:{}", told.port);
    let to = format!("--to={}:{}", told.sink, told.port);
    let control = format!("--control={}", control.name());
    let rate = format!("--rate={}", payload_rate(told.rate_bps));
    let mut receive = arguments!["recv", listen, "--certificate", &certificate];
    receive.extend(arguments!["--file", files.target()]);
    let mut send = arguments!["send", to, "--certificate", certificate];
    send.extend(arguments!["--file", files.source, control, rate]);
    Ok(Pair {
        receiver: receiver(program.clone(), receive, Ready::Line),
        sender: sender(program, send),
        report: Report::Contract,
    })
}

/// Encrypted, and told the path's rate as its `maxbw`: without it SRT sends each packet many times
/// over. Buffers are SRT's own where these hold the path twice; larger ones than needed slow it.
fn srt(told: &Told, files: &Files, programs: &Programs) -> Result<Pair, Missing> {
    const OWN_BUFFER: u64 = 8192 * 1456;
    let mut options = "passphrase=comparison&pbkeylen=16".to_owned();
    options += &format!("&maxbw={}", told.rate_bps / 8);
    let twice = 2 * (told.rate_bps as f64 / 8.0 * told.round_trip.as_secs_f64()) as u64;
    if twice > OWN_BUFFER {
        let packets = twice / 1456;
        options += &format!("&fc={packets}&sndbuf={twice}&rcvbuf={twice}");
    }
    let program = programs.find("srt-file-transmit")?;
    let listen = format!("srt://:{}?mode=listener&{options}", told.port);
    let to = format!("srt://{}:{}?mode=caller&{options}", told.sink, told.port);
    let url = |path: &Path| {
        let mut url = OsString::from("file://");
        url.push(path);
        url
    };
    // The file's name comes from the sender; what is named here is a directory, with its slash.
    let into = url(&files.received.join(""));
    Ok(Pair {
        receiver: receiver(
            program.clone(),
            arguments!["-q", listen, into],
            Ready::Udp(told.port),
        ),
        sender: sender(program, arguments!["-q", url(files.source), to]),
        report: Report::Nothing,
    })
}

fn udt(told: &Told, files: &Files, programs: &Programs) -> Result<Pair, Missing> {
    const LIMIT_SECONDS: &str = "3600"; // the runner's is the one that counts
    let program = programs.find("dfcp-peer-udt")?;
    let port = told.port.to_string();
    let receive = arguments!["recv", &port, files.target(), LIMIT_SECONDS];
    Ok(Pair {
        receiver: receiver(program.clone(), receive, Ready::Line),
        sender: sender(
            program,
            arguments!["send", told.sink.to_string(), port, files.source],
        ),
        report: Report::Contract,
    })
}

fn receiver(program: PathBuf, arguments: Vec<OsString>, ready: Ready) -> Step {
    Step {
        role: "receiver",
        side: Side::Sink,
        program,
        arguments,
        ready,
    }
}

fn sender(program: PathBuf, arguments: Vec<OsString>) -> Step {
    Step {
        role: "sender",
        side: Side::Source,
        program,
        arguments,
        ready: Ready::AtOnce,
    }
}

/// What a rate of IP packets leaves for UDP payload, in packets of 1500 bytes.
fn payload_rate(rate_bps: u64) -> u64 {
    (rate_bps as f64 * 1472.0 / 1500.0) as u64
}
