//! What each end of a flow sends and receives, as qlog: JSON text sequences (RFC 7464) by
//! draft-ietf-quic-qlog-main-schema-13, events by draft-ietf-quic-qlog-quic-events-13.
//!
//! A trace has one vantage point, so a flow has two files, of its source (the client) and its sink
//! (the server). The event schema is QUIC's, whatever the protocol, because that is what viewers
//! know: a TCP segment is a packet whose number is the segment's, in the whole connection, and its
//! data a stream frame; TCP's acknowledgements and SACK blocks are ranges of an ACK frame. A number
//! sent twice is a retransmission; one that only the source has was lost. `dfcp` packets are
//! sealed: of them there are the number (its low 32 bits) and the size. DFCP as published has no
//! packet numbers: the number of a data packet is its block's, that of a block ACK a range.
//!
//! Invariant: times are milliseconds since the start of the run, in order.

use std::io::{self, Write};
use std::path::Path;

use dfcp_command::Failure;
use dfcp_proto::published::header as published;
use dfcp_proto::wire::Packet as DfcpPacket;
use dfcp_proto::{Duration, Instant};
use dfcp_sim::Ecn;
use dfcp_sim::coded::Content;
use dfcp_sim::engine::{Body, Direction, End, PacketEvent};
use dfcp_sim::scenario::{FlowSpec, ProtocolSpec, Scenario};
use dfcp_sim::tcp::{Kind, Segment};
use serde::Serialize;
use serde_json::json;

use super::Log;

/// RFC 7464.
const RECORD_SEPARATOR: u8 = 0x1e;
/// Longest part of a file's name that is the flow's.
const NAME_LENGTH: usize = 100;

/// The traces of all flows.
#[derive(Debug)]
pub struct Qlog {
    /// By flow: its source's, its sink's.
    traces: Vec<[Trace; 2]>,
}

impl Qlog {
    pub fn create(directory: &Path, scenario: &Scenario) -> Result<Self, Failure> {
        std::fs::create_dir_all(directory).map_err(|error| Failure::io(directory, error))?;
        let flows = scenario.flows.iter().enumerate();
        let traces = flows.map(|(id, flow)| {
            let trace = |end: &str| {
                let name = format!("{id}-{}.{end}.sqlog", file_name(&flow.name));
                Trace::create(&directory.join(name), flow, end)
            };
            Ok([trace("client")?, trace("server")?])
        });
        Ok(Self {
            traces: traces.collect::<Result<_, Failure>>()?,
        })
    }

    pub fn record(&mut self, event: &PacketEvent<'_>) {
        let here = match (event.packet.direction, event.end) {
            (Direction::Forward, End::Sent) | (Direction::Backward, End::Received) => 0,
            (Direction::Forward, End::Received) | (Direction::Backward, End::Sent) => 1,
        };
        if let Some(traces) = self.traces.get_mut(event.packet.flow.0 as usize) {
            traces[here].record(event);
        }
    }

    pub fn finish(self) -> Result<(), Failure> {
        let traces = self.traces.into_iter().flatten();
        traces.map(Trace::finish).fold(Ok(()), Result::and)
    }
}

/// A flow's name as part of a file's.
fn file_name(flow: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let safe = flow.chars().map(|c| if keep(c) { c } else { '_' });
    safe.take(NAME_LENGTH).collect()
}

/// One end of a flow.
#[derive(Debug)]
struct Trace {
    log: Log,
    mss: u64,
    /// Whether datagrams are those of DFCP as published.
    published: bool,
    metrics: Metrics,
}

/// What a host knows of its path; `quic:recovery_metrics_updated`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Metrics {
    #[serde(skip_serializing_if = "Option::is_none")]
    smoothed_rtt: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    congestion_window: Option<u64>,
}

#[derive(Serialize)]
struct Event<T> {
    time: f64,
    name: &'static str,
    data: T,
}

/// `quic:packet_sent` and `quic:packet_received`.
#[derive(Serialize)]
struct Packet {
    header: Header,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    frames: Vec<Frame>,
    raw: Raw,
    /// Ours; left out where packets are not ECN-capable.
    #[serde(skip_serializing_if = "Option::is_none")]
    ecn: Option<&'static str>,
}

#[derive(Serialize)]
struct Header {
    packet_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    packet_number: Option<u64>,
}

#[derive(Serialize)]
struct Raw {
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_length: Option<u32>,
}

#[derive(Serialize)]
#[serde(tag = "frame_type", rename_all = "snake_case")]
enum Frame {
    Stream {
        stream_id: u64,
        offset: u64,
        raw: Raw,
    },
    Ack {
        acked_ranges: Vec<[u32; 2]>,
    },
}

impl Trace {
    fn create(path: &Path, flow: &FlowSpec, end: &str) -> Result<Self, Failure> {
        let mut log = Log::create(path)?;
        let header = json!({
            "file_schema": "urn:ietf:params:qlog:file:sequential",
            "serialization_format": "application/qlog+json-seq",
            "title": format!("{} ({})", flow.name, flow.protocol.name()),
            "trace": {
                "common_fields": {
                    "group_id": flow.name,
                    "time_format": "relative_to_epoch",
                    "reference_time": { "clock_type": "monotonic", "epoch": "unknown" },
                },
                "vantage_point": { "name": format!("{} {end}", flow.name), "type": end },
                "event_schemas": ["urn:ietf:params:qlog:events:quic-13"],
            },
        });
        write(&mut log, &header);
        let mss = match &flow.protocol {
            ProtocolSpec::Tcp(tcp) => tcp.sender.mss.into(),
            _ => 0,
        };
        Ok(Self {
            log,
            mss,
            published: matches!(
                flow.protocol,
                ProtocolSpec::Published(_) | ProtocolSpec::RcUdp(_)
            ),
            metrics: Metrics::default(),
        })
    }

    fn record(&mut self, event: &PacketEvent<'_>) {
        let (header, frames) = self.describe(event.body);
        let packet = Packet {
            header,
            frames,
            raw: Raw {
                length: Some(event.packet.size),
                payload_length: None,
            },
            ecn: match event.packet.ecn {
                Ecn::NotEct => None,
                Ecn::Ect0 => Some("ECT(0)"),
                Ecn::Ect1 => Some("ECT(1)"),
                Ecn::Ce => Some("CE"),
            },
        };
        let time = milliseconds(event.at.saturating_since(Instant::ZERO));
        let name = match event.end {
            End::Sent => "quic:packet_sent",
            End::Received => "quic:packet_received",
        };
        self.metrics(time, event);
        write(
            &mut self.log,
            &Event {
                time,
                name,
                data: packet,
            },
        );
    }

    /// Tells what the host has learnt since its last packet.
    fn metrics(&mut self, time: f64, event: &PacketEvent<'_>) {
        let progress = event.host.progress();
        let data = Metrics {
            smoothed_rtt: progress.srtt.map(milliseconds),
            congestion_window: progress.window,
        };
        if data != self.metrics {
            self.metrics = data;
            let name = "quic:recovery_metrics_updated";
            write(&mut self.log, &Event { time, name, data });
        }
    }

    fn describe(&self, body: &Body) -> (Header, Vec<Frame>) {
        let header = |packet_type, packet_number| Header {
            packet_type,
            packet_number,
        };
        match body {
            Body::Tcp(segment) => self.segment(segment),
            Body::Udp(number) => (header("unknown", Some(*number)), Vec::new()),
            Body::Coded(packet) => {
                let number = match &packet.content {
                    Content::Data(data) => Some(data.number),
                    Content::Report(report) => report.answers.map(|(number, _)| number),
                };
                (header("1RTT", number), Vec::new())
            }
            Body::Datagram(bytes) if self.published => published_packet(bytes),
            Body::Datagram(bytes) => {
                let header = match DfcpPacket::parse(bytes) {
                    Ok(DfcpPacket::Sealed(sealed)) => {
                        header("1RTT", Some(sealed.packet_number.into()))
                    }
                    Ok(DfcpPacket::Syn(_)) => header("initial", None),
                    Ok(DfcpPacket::SynAck(_) | DfcpPacket::Ack(_)) => header("handshake", None),
                    Ok(DfcpPacket::Version { .. }) => header("version_negotiation", None),
                    Ok(DfcpPacket::Retry(_)) => header("retry", None),
                    Ok(DfcpPacket::Reset { .. }) => header("stateless_reset", None),
                    Err(_) => header("unknown", None),
                };
                (header, Vec::new())
            }
        }
    }

    fn segment(&self, segment: &Segment) -> (Header, Vec<Frame>) {
        let (packet_type, packet_number, frame) = match segment.kind {
            Kind::Syn => ("initial", None, None),
            Kind::SynAck => ("handshake", None, None),
            Kind::Data => {
                let frame = Frame::Stream {
                    stream_id: 0,
                    offset: u64::from(segment.seq) * self.mss,
                    raw: Raw {
                        length: None,
                        payload_length: Some(segment.payload),
                    },
                };
                ("1RTT", Some(segment.seq.into()), Some(frame))
            }
            Kind::Ack => {
                let in_order = (segment.seq > 0).then_some((0, segment.seq));
                let ranges = in_order.into_iter().chain(segment.sack.iter());
                // qlog's ranges include their ends.
                let acked_ranges: Vec<_> = ranges.map(|(from, to)| [from, to - 1]).collect();
                let frame = (!acked_ranges.is_empty()).then_some(Frame::Ack { acked_ranges });
                ("1RTT", None, frame)
            }
        };
        let header = Header {
            packet_type,
            packet_number,
        };
        (header, frame.into_iter().collect())
    }

    fn finish(self) -> Result<(), Failure> {
        self.log.finish()
    }
}

/// A packet of DFCP as published, from a sender: its header is right.
fn published_packet(bytes: &[u8]) -> (Header, Vec<Frame>) {
    let header = |packet_type, packet_number| Header {
        packet_type,
        packet_number,
    };
    let Some((kind, block)) = published::Header::peek(bytes) else {
        return (header("unknown", None), Vec::new());
    };
    match kind {
        published::Kind::Syn => (header("initial", None), Vec::new()),
        published::Kind::SynAck => (header("handshake", None), Vec::new()),
        published::Kind::BlockAck { more: false } => {
            let acked_ranges = vec![[block, block]];
            (header("1RTT", None), vec![Frame::Ack { acked_ranges }])
        }
        published::Kind::Data { .. } => (header("1RTT", Some(block.into())), Vec::new()),
        _ => (header("1RTT", None), Vec::new()),
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

fn write(log: &mut Log, record: &impl Serialize) {
    log.write(|file| {
        file.write_all(&[RECORD_SEPARATOR])?;
        serde_json::to_writer(&mut *file, record).map_err(io::Error::from)?;
        file.write_all(b"\n")
    });
}
