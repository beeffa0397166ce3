//! What connections do, as qlog for viewers such as qvis: JSON text sequences (RFC 7464) by
//! draft-ietf-quic-qlog-main-schema-13, events by draft-ietf-quic-qlog-quic-events-13. The event schema
//! is QUIC's, because that is what viewers know.
//!
//! A file for each connection. Packets are sealed: of them there are kind, number and size. Times are
//! milliseconds since the connection began. The records are few and of fixed shape, so they are written
//! by hand: no string in them comes from elsewhere but the reason of a close, which is escaped.

use dfcp_proto::observe::{Observation, Observe, PacketInfo, PacketKind, PathMetrics, Vantage};
use dfcp_proto::{Instant, Role, TransportConfig};
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Adds a log of every connection with these settings: `NUMBER.client.sqlog` or `NUMBER.server.sqlog`
/// in `directory`, which is made. A file that cannot be made or written ends its log, not its
/// connection. Logs are written in the task that serves the socket, some 150 bytes for a packet, and
/// are whole when their connections are forgotten.
///
/// # Errors
/// The directory cannot be made.
pub fn qlog_to(transport: TransportConfig, directory: &Path) -> io::Result<TransportConfig> {
    std::fs::create_dir_all(directory)?;
    let (directory, next) = (directory.to_owned(), AtomicU64::new(0));
    Ok(transport.observer(move |vantage| {
        let log = Log::create(&directory, &next, vantage).ok()?;
        Some(Box::new(log))
    }))
}

#[derive(Debug)]
struct Log {
    file: BufWriter<File>,
    failed: bool,
    epoch: Option<Instant>,
    /// Of the last record. A packet that waited in the socket came before what happened meanwhile, but
    /// viewers want times in order.
    last: Instant,
    metrics: PathMetrics,
}

impl Log {
    fn create(directory: &Path, next: &AtomicU64, vantage: &Vantage) -> io::Result<Self> {
        let end = match vantage.role {
            Role::Client => "client",
            Role::Server => "server",
        };
        let file = loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let path: PathBuf = directory.join(format!("{number}.{end}.sqlog"));
            match File::create_new(path) {
                // Of an earlier run: that is kept.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                file => break file?,
            }
        };
        let mut log = Self {
            file: BufWriter::new(file),
            failed: false,
            epoch: None,
            last: Instant::ZERO,
            metrics: PathMetrics::default(),
        };
        let remote = vantage.remote;
        log.record(format_args!(
            "{{\"file_schema\":\"urn:ietf:params:qlog:file:sequential\",\
             \"serialization_format\":\"application/qlog+json-seq\",\
             \"title\":\"dfcp with {remote}\",\
             \"trace\":{{\"common_fields\":{{\"time_format\":\"relative_to_epoch\",\
             \"reference_time\":{{\"clock_type\":\"monotonic\",\"epoch\":\"unknown\"}}}},\
             \"vantage_point\":{{\"name\":\"dfcp {end}\",\"type\":\"{end}\"}},\
             \"event_schemas\":[\"urn:ietf:params:qlog:events:quic-13\"]}}}}"
        ));
        Ok(log)
    }

    fn record(&mut self, record: fmt::Arguments<'_>) {
        if !self.failed {
            self.failed = writeln!(self.file, "\u{1e}{record}").is_err();
        }
    }

    fn event(&mut self, now: Instant, name: &str, data: fmt::Arguments<'_>) {
        self.last = self.last.max(now);
        let epoch = *self.epoch.get_or_insert(now);
        let time = milliseconds(self.last.saturating_since(epoch));
        self.record(format_args!(
            "{{\"time\":{time},\"name\":\"quic:{name}\",\"data\":{{{data}}}}}"
        ));
    }

    fn packet(&mut self, now: Instant, name: &str, packet: &PacketInfo) {
        let kind = match packet.kind {
            PacketKind::Syn => "initial",
            PacketKind::HandshakeAck => "handshake",
            _ => "1RTT",
        };
        let number = packet.number.map(|n| format!(",\"packet_number\":{n}"));
        let ecn = ["", "ECT(1)", "ECT(0)", "CE"][usize::from(packet.ecn & 3)];
        let ecn = (!ecn.is_empty()).then(|| format!(",\"ecn\":\"{ecn}\""));
        self.event(
            now,
            name,
            format_args!(
                "\"header\":{{\"packet_type\":\"{kind}\"{}}},\"raw\":{{\"length\":{}}}{}",
                number.unwrap_or_default(),
                packet.size,
                ecn.unwrap_or_default()
            ),
        );
    }

    /// Only what changed.
    fn metrics(&mut self, now: Instant, metrics: &PathMetrics) {
        if *metrics == self.metrics {
            return;
        }
        self.metrics = *metrics;
        // "Any" is no number that a viewer could draw.
        let window = Some(metrics.window).filter(|&window| window < u64::MAX);
        let window = window.map(|window| format!(",\"congestion_window\":{window}"));
        let rate = Some(metrics.pacing_rate.as_bps()).filter(|&rate| rate < u64::MAX);
        let rate = rate.map(|rate| format!(",\"pacing_rate\":{rate}"));
        self.event(
            now,
            "recovery_metrics_updated",
            format_args!(
                "\"min_rtt\":{},\"smoothed_rtt\":{},\"latest_rtt\":{},\"bytes_in_flight\":{}{}{}",
                milliseconds(metrics.min_rtt),
                milliseconds(metrics.smoothed_rtt),
                milliseconds(metrics.latest_rtt),
                metrics.bytes_in_flight,
                window.unwrap_or_default(),
                rate.unwrap_or_default()
            ),
        );
    }
}

impl Observe for Log {
    fn observe(&mut self, now: Instant, event: &Observation<'_>) {
        match event {
            Observation::Established { .. } => self.event(
                now,
                "connection_state_updated",
                format_args!("\"new\":\"handshake_complete\""),
            ),
            Observation::Sent(packet) => self.packet(now, "packet_sent", packet),
            Observation::Received(packet) => self.packet(now, "packet_received", packet),
            Observation::Lost { number, .. } => self.event(
                now,
                "packet_lost",
                format_args!("\"header\":{{\"packet_type\":\"1RTT\",\"packet_number\":{number}}}"),
            ),
            Observation::Metrics(metrics) => self.metrics(now, metrics),
            Observation::Closed(why) => {
                let why = Escaped(&why.to_string()).to_string();
                self.event(
                    now,
                    "connection_closed",
                    format_args!("\"reason\":\"{why}\""),
                );
                self.failed |= self.file.flush().is_err();
            }
            _ => {}
        }
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
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
