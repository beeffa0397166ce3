//! What connections do, as qlog for viewers such as qvis: JSON text sequences (RFC 7464) of qlog 0.3
//! (draft-ietf-quic-qlog-main-schema-02, events by draft-ietf-quic-qlog-quic-events-02). The event
//! schema is QUIC's, because that is what viewers know; the version is the newest that qvis opens.
//!
//! A [`Trace`] has one vantage point: one end of one connection. Packets are sealed: of them there are
//! kind, number and size. DFCP as published has no packet numbers: the number of a data packet is its
//! block's, that of a block's acknowledgement a range.
//!
//! The records are few and of fixed shape, so they are written by hand; strings that come from elsewhere
//! are escaped. Invariant: times are milliseconds since the epoch, in order.

use dfcp_proto::observe::{Observation, Observe, PacketInfo, PacketKind, PathMetrics, Vantage};
use dfcp_proto::{Instant, Role, TransportConfig, published};
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Adds a log of every connection with these settings: `NUMBER.client.sqlog` or `NUMBER.server.sqlog`
/// in `directory`, which is made. A file that cannot be made or written ends its log, not its
/// connection. Logs are written in the tasks of their connections, some 150 bytes for a packet, and
/// are whole when their connections are forgotten. Times are since the connection began.
///
/// # Errors
/// The directory cannot be made.
pub fn qlog_to(transport: TransportConfig, directory: &Path) -> io::Result<TransportConfig> {
    Ok(transport.observer(Directory::create(directory)?.maker()))
}

/// As [`qlog_to`] for DFCP as published.
///
/// # Errors
/// The directory cannot be made.
pub fn published_qlog_to(
    config: published::Config,
    directory: &Path,
) -> io::Result<published::Config> {
    Ok(config.observer(Directory::create(directory)?.maker()))
}

struct Directory {
    path: PathBuf,
    next: AtomicU64,
}

impl Directory {
    fn create(path: &Path) -> io::Result<Arc<Self>> {
        std::fs::create_dir_all(path)?;
        Ok(Arc::new(Self {
            path: path.to_owned(),
            next: AtomicU64::new(0),
        }))
    }

    fn maker(self: Arc<Self>) -> impl Fn(&Vantage) -> Option<Box<dyn Observe>> + Send + Sync {
        move |vantage| {
            let title = format!("dfcp with {}", vantage.remote);
            let file = self.file(end(vantage.role)).ok()?;
            let trace = Trace::new(BufWriter::new(file), vantage.role, &title);
            Some(Box::new(trace))
        }
    }

    fn file(&self, end: &str) -> io::Result<File> {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            match File::create_new(self.path.join(format!("{number}.{end}.sqlog"))) {
                // Of an earlier run: that is kept.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                file => return file,
            }
        }
    }
}

fn end(role: Role) -> &'static str {
    match role {
        Role::Client => "client",
        Role::Server => "server",
    }
}

/// A packet, for transports that are none of ours. Those of ours are [observed](Trace::observe).
#[derive(Clone, Debug)]
pub struct Packet {
    /// Of QUIC's packet types.
    pub kind: &'static str,
    /// Its number, if it has one.
    pub number: Option<u64>,
    /// What it carries.
    pub frame: Option<Frame>,
    /// Its bytes.
    pub size: u64,
    /// ECN codepoint of its IP header.
    pub ecn: u8,
}

/// What a packet carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Bytes of the one stream there is.
    Stream {
        /// Offset of the first.
        offset: u64,
        /// How many.
        len: u64,
    },
    /// Packets that have arrived, by number: first and last of each range.
    Ack(Vec<[u64; 2]>),
}

/// What a packet does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It leaves.
    Sent,
    /// It came.
    Received,
}

/// What a sender knows of its path, as far as it does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recovery {
    /// Smallest round-trip time.
    pub min_rtt: Option<Duration>,
    /// Smoothed round-trip time.
    pub smoothed_rtt: Option<Duration>,
    /// Newest round-trip time.
    pub latest_rtt: Option<Duration>,
    /// Bytes in flight.
    pub bytes_in_flight: Option<u64>,
    /// Most bytes in flight.
    pub congestion_window: Option<u64>,
    /// Bits per second that packets leave at.
    pub pacing_rate: Option<u64>,
}

impl From<&PathMetrics> for Recovery {
    fn from(metrics: &PathMetrics) -> Self {
        // "Any" is no number that a viewer could draw.
        let finite = |number: u64| Some(number).filter(|&number| number < u64::MAX);
        Self {
            min_rtt: Some(metrics.min_rtt),
            smoothed_rtt: Some(metrics.smoothed_rtt),
            latest_rtt: Some(metrics.latest_rtt),
            bytes_in_flight: Some(metrics.bytes_in_flight),
            congestion_window: finite(metrics.window),
            pacing_rate: finite(metrics.pacing_rate.as_bps()),
        }
    }
}

/// A trace in the making. The first failure to write ends it.
#[derive(Debug)]
pub struct Trace<W: Write> {
    out: W,
    error: Option<io::Error>,
    epoch: Option<Instant>,
    /// Of the last record. A packet that waited in the socket came before what happened meanwhile, but
    /// viewers want times in order.
    last: Instant,
    recovery: Recovery,
    /// A record's data, in the making.
    data: String,
}

impl<W: Write> Trace<W> {
    /// Begins a trace of the end that `role` is, with its head. Times will be since the first event.
    pub fn new(out: W, role: Role, title: &str) -> Self {
        let mut trace = Self {
            out,
            error: None,
            epoch: None,
            last: Instant::ZERO,
            recovery: Recovery::default(),
            data: String::new(),
        };
        let (title, end) = (Escaped(title), end(role));
        trace.record(format_args!(
            "{{\"qlog_version\":\"0.3\",\"qlog_format\":\"JSON-SEQ\",\"title\":\"{title}\",\
             \"trace\":{{\"common_fields\":{{\"time_format\":\"relative\",\"reference_time\":0}},\
             \"vantage_point\":{{\"name\":\"{title}, {end}\",\"type\":\"{end}\"}}}}}}"
        ));
        trace
    }

    /// The same with times since `epoch`.
    pub fn since(mut self, epoch: Instant) -> Self {
        self.epoch = Some(epoch);
        self
    }

    /// A packet.
    pub fn packet(&mut self, now: Instant, way: Way, packet: &Packet) {
        let mut data = self.begin();
        let _ = write!(data, "\"header\":{{\"packet_type\":\"{}\"", packet.kind);
        if let Some(number) = packet.number {
            let _ = write!(data, ",\"packet_number\":{number}");
        }
        data.push('}');
        if let Some(frame) = &packet.frame {
            let _ = write!(data, ",\"frames\":[{{{frame}}}]");
        }
        let _ = write!(data, ",\"raw\":{{\"length\":{}}}", packet.size);
        let ecn = ["", "ECT(1)", "ECT(0)", "CE"][usize::from(packet.ecn & 3)];
        if !ecn.is_empty() {
            let _ = write!(data, ",\"ecn\":\"{ecn}\"");
        }
        let name = match way {
            Way::Sent => "transport:packet_sent",
            Way::Received => "transport:packet_received",
        };
        self.event(now, name, data);
    }

    /// What is known of the path now; written if that changed.
    pub fn recovery(&mut self, now: Instant, recovery: &Recovery) {
        if *recovery == self.recovery {
            return;
        }
        self.recovery = *recovery;
        let mut data = self.begin();
        let times = [
            ("min_rtt", recovery.min_rtt),
            ("smoothed_rtt", recovery.smoothed_rtt),
            ("latest_rtt", recovery.latest_rtt),
        ];
        for (name, time) in times {
            if let Some(time) = time.map(milliseconds) {
                let _ = write!(data, ",\"{name}\":{time}");
            }
        }
        let numbers = [
            ("bytes_in_flight", recovery.bytes_in_flight),
            ("congestion_window", recovery.congestion_window),
            ("pacing_rate", recovery.pacing_rate),
        ];
        for (name, number) in numbers {
            if let Some(number) = number {
                let _ = write!(data, ",\"{name}\":{number}");
            }
        }
        if data.starts_with(',') {
            data.remove(0);
        }
        self.event(now, "recovery:metrics_updated", data);
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// The first that there was.
    pub fn finish(&mut self) -> io::Result<()> {
        match self.error.take() {
            Some(error) => Err(error),
            None => self.out.flush(),
        }
    }

    fn begin(&mut self) -> String {
        let mut data = std::mem::take(&mut self.data);
        data.clear();
        data
    }

    fn event(&mut self, now: Instant, name: &str, data: String) {
        self.last = self.last.max(now);
        let epoch = *self.epoch.get_or_insert(now);
        let time = milliseconds(self.last.saturating_since(epoch));
        self.record(format_args!(
            "{{\"time\":{time},\"name\":\"{name}\",\"data\":{{{data}}}}}"
        ));
        self.data = data;
    }

    fn record(&mut self, record: fmt::Arguments<'_>) {
        if self.error.is_none() {
            self.error = writeln!(self.out, "\u{1e}{record}").err();
        }
    }
}

impl From<&PacketInfo> for Packet {
    fn from(packet: &PacketInfo) -> Self {
        let is_ack = packet.kind == PacketKind::BlockAck;
        let acked = packet.number.filter(|_| is_ack).map(|n| vec![[n, n]]);
        Self {
            kind: match packet.kind {
                PacketKind::Syn => "initial",
                PacketKind::SynAck | PacketKind::HandshakeAck => "handshake",
                _ => "1RTT",
            },
            number: packet.number.filter(|_| !is_ack),
            frame: acked.map(Frame::Ack),
            size: packet.size,
            ecn: packet.ecn,
        }
    }
}

impl<W: Write + fmt::Debug + Send> Observe for Trace<W> {
    fn observe(&mut self, now: Instant, event: &Observation<'_>) {
        match event {
            Observation::Established { .. } => {
                let data = "\"new\":\"handshake_completed\"".to_owned();
                self.event(now, "connectivity:connection_state_updated", data);
            }
            Observation::Sent(packet) => self.packet(now, Way::Sent, &packet.into()),
            Observation::Received(packet) => self.packet(now, Way::Received, &packet.into()),
            Observation::Lost {
                number, packets, ..
            } => {
                let mut data = self.begin();
                let _ = match number {
                    Some(number) => write!(
                        data,
                        "\"header\":{{\"packet_type\":\"1RTT\",\"packet_number\":{number}}}"
                    ),
                    None => write!(data, "\"packets\":{packets}"),
                };
                self.event(now, "recovery:packet_lost", data);
            }
            Observation::Metrics(metrics) => self.recovery(now, &metrics.into()),
            Observation::Closed(why) => {
                let why = why.to_string();
                let data = format!("\"reason\":\"{}\"", Escaped(&why));
                self.event(now, "connectivity:connection_closed", data);
                if self.error.is_none() {
                    self.error = self.out.flush().err();
                }
            }
            _ => {}
        }
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream { offset, len } => write!(
                f,
                "\"frame_type\":\"stream\",\"stream_id\":0,\"offset\":{offset},\"length\":{len}"
            ),
            Self::Ack(ranges) => {
                write!(f, "\"frame_type\":\"ack\",\"acked_ranges\":{ranges:?}")
            }
        }
    }
}

/// A string of JSON, without its quotation marks.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '"' | '\\' => write!(f, "\\{c}"),
            c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c)),
            c => write!(f, "{c}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dfcp_proto::observe::Ending;
    use serde_json::Value;

    fn records(out: &[u8]) -> Vec<Value> {
        let text = std::str::from_utf8(out).expect("text");
        // RFC 7464: a record separator, JSON, a line feed.
        let records = text.split_inclusive('\n').map(|record| {
            let json = record.strip_prefix('\u{1e}').expect("separated");
            serde_json::from_str(json).expect("JSON")
        });
        records.collect()
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_trace_has_a_head_and_records_in_order_of_time() {
        let mut trace = Trace::new(Vec::new(), Role::Client, "\"a\\b\"\n");
        let packet = Packet {
            kind: "1RTT",
            number: Some(7),
            frame: Some(Frame::Ack(vec![[1, 3], [5, 5]])),
            size: 1200,
            ecn: 3,
        };
        trace.packet(at(50), Way::Sent, &packet);
        trace.packet(at(40), Way::Received, &packet);
        trace.observe(at(60), &Observation::Closed(Ending::Published(None)));
        let records = records(&trace.out);
        let head = &records[0];
        assert_eq!(
            (&head["qlog_version"], &head["qlog_format"]),
            (&"0.3".into(), &"JSON-SEQ".into())
        );
        assert_eq!(head["title"], "\"a\\b\"\n");
        assert_eq!(head["trace"]["vantage_point"]["type"], "client");
        assert_eq!(head["trace"]["common_fields"]["time_format"], "relative");
        let times: Vec<_> = records[1..].iter().map(|r| r["time"].as_f64()).collect();
        assert_eq!(times, [Some(0.0), Some(0.0), Some(10.0)]);
        let sent = serde_json::json!({
            "time": 0,
            "name": "transport:packet_sent",
            "data": {
                "header": { "packet_type": "1RTT", "packet_number": 7 },
                "frames": [{ "frame_type": "ack", "acked_ranges": [[1, 3], [5, 5]] }],
                "raw": { "length": 1200 },
                "ecn": "CE",
            },
        });
        assert_eq!(records[1], sent);
        assert_eq!(records[3]["data"]["reason"], "closed by both sides");
    }

    #[test]
    fn what_is_known_of_the_path_is_told_once_and_as_far_as_it_is() {
        let mut trace = Trace::new(Vec::new(), Role::Server, "").since(at(10));
        let known = Recovery {
            smoothed_rtt: Some(Duration::from_micros(20_500)),
            congestion_window: Some(14_480),
            ..Recovery::default()
        };
        trace.recovery(at(12), &known);
        trace.recovery(at(13), &known);
        trace.observe(at(14), &Observation::Metrics(PathMetrics::default()));
        let records = records(&trace.out);
        assert_eq!(records.len(), 3);
        let data = serde_json::json!({ "smoothed_rtt": 20.5, "congestion_window": 14_480 });
        assert_eq!(records[1]["data"], data);
        assert_eq!(records[1]["time"], 2.0);
        assert_eq!(records[1]["name"], "recovery:metrics_updated");
    }
}
