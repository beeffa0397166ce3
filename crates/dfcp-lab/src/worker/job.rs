//! What a worker is told to do.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use dfcp_sim::scenario::{Document, FlowSpec, Scenario};
use serde::{Deserialize, Serialize};

/// What a worker does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "job", rename_all = "kebab-case")]
pub enum Job {
    /// Takes one TCP connection.
    TcpSink(Sink),
    /// Sends over one TCP connection.
    TcpSource(TcpSource),
    /// Takes datagrams.
    UdpSink(Sink),
    /// Sends datagrams without any control.
    UdpSource(UdpSource),
    /// Takes one connection of a protocol of this workspace.
    DfcpSink(DfcpJob),
    /// Sends over one.
    DfcpSource(DfcpJob),
    /// Measures round trips.
    Ping(PingJob),
}

/// What a worker says when it listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Always.
    pub ready: bool,
}

/// Where something is taken in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sink {
    /// The address of the server.
    pub listen: SocketAddr,
    /// When it ends at the latest, nanoseconds of `CLOCK_MONOTONIC`.
    pub until_ns: u64,
    /// The file that it writes.
    #[serde(default)]
    pub output: Option<PathBuf>,
}

/// What is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// So many bytes.
    Bytes(u64),
    /// A file.
    File(PathBuf),
    /// As much as time allows.
    Endless,
}

/// When something is sent: nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// When it begins: before the connection is opened. Zero for at once.
    pub start_ns: u64,
    /// When it stops, finished or not.
    pub stop_ns: u64,
}

/// A TCP sender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TcpSource {
    /// The server.
    pub connect: SocketAddr,
    /// The kernel's name of the congestion control; the kernel's default if not set.
    #[serde(default)]
    pub congestion: Option<String>,
    /// What is sent.
    pub load: Load,
    /// When.
    pub time: Side,
}

/// A sender of datagrams.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UdpSource {
    /// Where to.
    pub connect: SocketAddr,
    /// What is sent.
    pub load: UdpLoad,
    /// When.
    pub time: Side,
}

/// Which datagrams.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UdpLoad {
    /// Those of a scenario's flow.
    Flow(FlowSource),
    /// Equally spaced ones.
    Train {
        /// Bits per second of IP packets.
        rate_bps: u64,
        /// Bytes of an IP packet.
        packet: u32,
        /// How many.
        count: u64,
    },
}

/// One end of a connection of this workspace's protocols.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DfcpJob {
    /// The server.
    pub server: SocketAddr,
    /// The address of this host.
    pub own: IpAddr,
    /// Which protocol, with which settings, and how much.
    pub flow: FlowSource,
    /// When.
    pub time: Side,
    /// Who says how fast, to a sender that follows orders.
    #[serde(default)]
    pub controller: Option<ControllerAt>,
}

/// A network controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControllerAt {
    /// Where it is asked.
    pub address: SocketAddr,
    /// Its key, in hexadecimal digits.
    pub key: String,
}

/// A flow of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowSource {
    /// The scenario's text, with every default written out.
    pub scenario: String,
    /// Where the files are that it refers to.
    pub directory: PathBuf,
    /// Which flow.
    pub flow: usize,
}

impl FlowSource {
    /// Reads the scenario.
    ///
    /// # Errors
    /// When it cannot be read any more.
    pub fn open(&self) -> Result<(Scenario, FlowSpec), String> {
        let read = |name: &str| {
            std::fs::read_to_string(self.directory.join(Path::new(name)))
                .map_err(|error| error.to_string())
        };
        let open = || {
            let mut document = Document::parse(&self.scenario, "scenario")?;
            document.load_files(read)?;
            document.scenario()
        };
        let scenario = open().map_err(|error| error.to_string())?;
        let flow = scenario.flows.get(self.flow).cloned();
        let flow = flow.ok_or("there is no such flow")?;
        Ok((scenario, flow))
    }
}

/// Round trips to be measured, one after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PingJob {
    /// Whom to ask.
    pub to: IpAddr,
    /// How often.
    pub count: u16,
    /// Bytes of the IP packets.
    pub packet: u32,
    /// How long an answer is waited for, nanoseconds.
    pub patience_ns: u64,
}
