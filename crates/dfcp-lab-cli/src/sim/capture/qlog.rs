//! What each end of a flow does, as qlog ([`dfcp::qlog`]): a file for its source (the client) and one for
//! its sink (the server).
//!
//! Connections of the protocol core, of either wire, tell it themselves, as they do in real transfers:
//! the same events, written by the same writer, on the clocks of their hosts. What other traffic does is
//! read off its packets: a TCP segment is a packet whose number is the segment's, in the whole
//! connection, and its data a stream frame; TCP's acknowledgements and SACK blocks are ranges of an ACK
//! frame. A number sent twice is a retransmission; one that only the source has was lost.
//!
//! Invariant: times are milliseconds since the start of the run.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dfcp::qlog::{Frame, Packet, Recovery, Trace, Way};
use dfcp_command::Failure;
use dfcp_proto::observe::{Observation, Observe};
use dfcp_proto::{Instant, Role};
use dfcp_sim::Watcher;
use dfcp_sim::coded::Content;
use dfcp_sim::engine::{Body, Direction, End, PacketEvent};
use dfcp_sim::scenario::{FlowSpec, ProtocolSpec, Scenario};
use dfcp_sim::tcp::{Kind, Segment};

/// Longest part of a file's name that is the flow's.
const NAME_LENGTH: usize = 100;

/// The traces of all flows.
#[derive(Debug)]
pub struct Qlog {
    flows: Vec<Flow>,
}

#[derive(Debug)]
struct Flow {
    /// Of its source, of its sink.
    ends: [Log; 2],
    mss: u64,
}

/// A trace that a connection may write to.
#[derive(Clone, Debug)]
struct Log {
    path: PathBuf,
    trace: Arc<Mutex<Trace<BufWriter<File>>>>,
}

impl Qlog {
    pub fn create(directory: &Path, scenario: &Scenario) -> Result<Self, Failure> {
        std::fs::create_dir_all(directory).map_err(|error| Failure::io(directory, error))?;
        let flows = scenario.flows.iter().enumerate().map(|(id, flow)| {
            let log = |role, end| {
                let name = format!("{id}-{}.{end}.sqlog", file_name(&flow.name));
                Log::create(directory.join(name), flow, role)
            };
            Ok(Flow {
                ends: [log(Role::Client, "client")?, log(Role::Server, "server")?],
                mss: match &flow.protocol {
                    ProtocolSpec::Tcp(tcp) => tcp.sender.mss.into(),
                    _ => 0,
                },
            })
        });
        Ok(Self {
            flows: flows.collect::<Result<_, Failure>>()?,
        })
    }

    /// Has connections write their traces themselves.
    pub fn watcher(&self) -> Watcher {
        let ends: Vec<_> = self.flows.iter().map(|flow| flow.ends.clone()).collect();
        Arc::new(move |flow, vantage| {
            let [source, sink] = ends.get(flow)?;
            Some(match vantage.role {
                Role::Client => Box::new(source.clone()),
                Role::Server => Box::new(sink.clone()),
            })
        })
    }

    /// Writes a packet of other traffic.
    pub fn record(&mut self, event: &PacketEvent<'_>) {
        let here = match (event.packet.direction, event.end) {
            (Direction::Forward, End::Sent) | (Direction::Backward, End::Received) => 0,
            (Direction::Forward, End::Received) | (Direction::Backward, End::Sent) => 1,
        };
        let Some(flow) = self.flows.get(event.packet.flow.0 as usize) else {
            return;
        };
        let Some((kind, number, frame)) = describe(event.body, flow.mss) else {
            return;
        };
        let progress = event.host.progress();
        let recovery = Recovery {
            smoothed_rtt: progress.srtt,
            congestion_window: progress.window,
            ..Recovery::default()
        };
        let packet = Packet {
            kind,
            number,
            frame,
            size: event.packet.size.into(),
            ecn: event.packet.ecn as u8,
        };
        let way = match event.end {
            End::Sent => Way::Sent,
            End::Received => Way::Received,
        };
        let mut trace = flow.ends[here].lock();
        trace.recovery(event.at, &recovery);
        trace.packet(event.at, way, &packet);
    }

    pub fn finish(self) -> Result<(), Failure> {
        let logs = self.flows.iter().flat_map(|flow| &flow.ends);
        let ends = logs.map(|log| {
            let end = log.lock().finish();
            end.map_err(|error| Failure::io(&log.path, error))
        });
        ends.fold(Ok(()), Result::and)
    }
}

/// A flow's name as part of a file's.
fn file_name(flow: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let safe = flow.chars().map(|c| if keep(c) { c } else { '_' });
    safe.take(NAME_LENGTH).collect()
}

impl Log {
    fn create(path: PathBuf, flow: &FlowSpec, role: Role) -> Result<Self, Failure> {
        let file = File::create(&path).map_err(|error| Failure::io(&path, error))?;
        let title = format!("{} ({})", flow.name, flow.protocol.name());
        let trace = Trace::new(BufWriter::new(file), role, &title).since(Instant::ZERO);
        let trace = Arc::new(Mutex::new(trace));
        Ok(Self { path, trace })
    }

    fn lock(&self) -> MutexGuard<'_, Trace<BufWriter<File>>> {
        // The lock is for the type system: a run is one thread.
        self.trace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observe for Log {
    fn observe(&mut self, now: Instant, event: &Observation<'_>) {
        self.lock().observe(now, event);
    }
}

type Description = (&'static str, Option<u64>, Option<Frame>);

/// A packet's type, number and frame; none of a connection's that writes its own trace.
fn describe(body: &Body, mss: u64) -> Option<Description> {
    match body {
        Body::Tcp(segment) => Some(describe_segment(segment, mss)),
        Body::Udp(number) => Some(("unknown", Some(*number), None)),
        Body::Coded(packet) => {
            let number = match &packet.content {
                Content::Data(data) => Some(data.number),
                Content::Report(report) => report.answers.map(|(number, _)| number),
            };
            Some(("1RTT", number, None))
        }
        Body::Datagram(_) => None,
    }
}

fn describe_segment(segment: &Segment, mss: u64) -> Description {
    let number = u64::from(segment.seq);
    match segment.kind {
        Kind::Syn => ("initial", None, None),
        Kind::SynAck => ("handshake", None, None),
        Kind::Data => {
            let frame = Frame::Stream {
                offset: number * mss,
                len: segment.payload.into(),
            };
            ("1RTT", Some(number), Some(frame))
        }
        Kind::Ack => {
            let in_order = (segment.seq > 0).then_some((0, segment.seq));
            let ranges = in_order.into_iter().chain(segment.sack.iter());
            // qlog's ranges include their ends.
            let acked: Vec<_> = ranges
                .map(|(from, to)| [from.into(), u64::from(to) - 1])
                .collect();
            let frame = (!acked.is_empty()).then_some(Frame::Ack(acked));
            ("1RTT", None, frame)
        }
    }
}
