//! What a service counts, for Prometheus: its text format over HTTP.

mod http;
mod text;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dfcp::observe::Metrics;
use dfcp::{Connection, Endpoint, TransportConfig};
use dfcp_command::Failure;
use dfcp_proxy::{Server, Traffic};
use tokio::net::TcpListener;

use crate::net::cannot_listen;
use crate::tally::Tally;
use text::{Page, Type};

/// Families of one number each: name, what it says, number.
macro_rules! counters {
    ($page:ident: $($name:literal, $help:literal, $count:expr;)*) => {$(
        $page.family($name, Type::Counter, $help);
        $page.sample(&[], $count);
    )*};
}

/// Where what is counted can be asked for, bound before anything else is begun.
pub struct Exporter {
    port: Port,
    transport: Metrics,
}

enum Port {
    Bound(TcpListener),
    /// Somebody else's until he has ended.
    Later(SocketAddr),
}

/// How often it is tried to have a port that somebody leaves.
const AGAIN: Duration = Duration::from_secs(1);

/// Whose numbers are shown.
#[derive(Clone)]
pub struct Source {
    /// The service's endpoint.
    pub endpoint: Endpoint,
    /// What a proxy carries, if it is one.
    pub traffic: Option<Traffic>,
    /// The server, if it is one of proxies.
    pub server: Option<Server>,
    /// What a receiver of files has counted, if there is one.
    pub files: Option<Tally>,
    /// Its IP links, if it has some.
    pub links: Option<dfcp_tun::Server>,
    /// Why the service cannot do its work now, if so: what /healthz says.
    pub ailing: Arc<dyn Fn() -> Option<String> + Send + Sync>,
}

impl Exporter {
    /// Binds to `at`.
    ///
    /// # Errors
    /// When the port is taken, or not to be had.
    pub async fn bind(at: SocketAddr) -> Result<Self, Failure> {
        let bound = TcpListener::bind(at).await;
        bound
            .map(Self::over)
            .map_err(|error| cannot_listen(at, &error))
    }

    /// Binds to `at`, or waits until somebody leaves it: that somebody has it is for who knows whether he
    /// does to judge.
    pub async fn bind_or_wait(at: SocketAddr) -> (Self, Option<Failure>) {
        match Self::bind(at).await {
            Ok(exporter) => (exporter, None),
            Err(failure) => {
                let later = Self {
                    port: Port::Later(at),
                    transport: Metrics::default(),
                };
                (later, Some(failure))
            }
        }
    }

    /// Over a port that is bound.
    pub fn over(listener: TcpListener) -> Self {
        Self {
            port: Port::Bound(listener),
            transport: Metrics::default(),
        }
    }

    /// `transport` whose connections are counted.
    pub fn observe(&self, transport: TransportConfig) -> TransportConfig {
        let metrics = self.transport.clone();
        transport.observer(move |_| Some(metrics.observer()))
    }

    /// What is said of it at the start, and whether others can read it.
    pub fn announce(&self, say: impl Fn(String)) {
        let at = match &self.port {
            Port::Bound(listener) => listener.local_addr().ok(),
            Port::Later(at) => Some(*at),
        };
        if let Some(at) = at {
            say(match self.port {
                Port::Bound(_) => format!("metrics at http://{at}/metrics"),
                Port::Later(_) => format!("metrics at {at} when who has that port has left it"),
            });
            if !at.ip().is_loopback() {
                say(format!(
                    "warning: whoever reaches {at} reads the metrics, keys of clients among them"
                ));
            }
        }
    }

    /// Answers who asks. Does not end.
    pub async fn serve(self, source: Source) {
        let transport = self.transport;
        let answer = move |path: &str| match path {
            "/metrics" => http::Answer::metrics(page(&transport, &source)),
            "/healthz" => match (source.ailing)() {
                None => http::Answer::text("200 OK", "ok"),
                Some(why) => http::Answer::text("503 Service Unavailable", &why),
            },
            _ => http::Answer::text("404 Not Found", "there are /metrics and /healthz"),
        };
        let listener = match self.port {
            Port::Bound(listener) => listener,
            Port::Later(at) => loop {
                match TcpListener::bind(at).await {
                    Ok(listener) => break listener,
                    Err(_) => tokio::time::sleep(AGAIN).await,
                }
            },
        };
        http::serve(listener, Arc::new(answer)).await;
    }
}

/// All there is.
fn page(transport: &Metrics, source: &Source) -> String {
    let mut page = Page::default();
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    page.family("dfcp_build_info", Type::Gauge, "The program.");
    page.sample(&version, 1);
    of_transport(&mut page, transport);
    of_endpoint(&mut page, &source.endpoint);
    if let Some(traffic) = &source.traffic {
        of_traffic(&mut page, traffic);
        of_connections(&mut page, &traffic.connections());
    }
    if let Some(server) = &source.server {
        of_keys(&mut page, server);
    }
    if let Some(files) = &source.files {
        of_files(&mut page, files);
    }
    if let Some(links) = &source.links {
        of_links(&mut page, links);
    }
    of_process(&mut page);
    page.finish()
}

fn of_transport(page: &mut Page, transport: &Metrics) {
    let all = transport.counters();
    counters! { page:
        "dfcp_connections_begun_total", "Connections begun, by either side.", all.begun;
        "dfcp_connections_established_total", "Connections whose handshake was completed.", all.established;
        "dfcp_packets_sent_total", "Packets sent.", all.packets_sent;
        "dfcp_packets_received_total", "Packets received.", all.packets_received;
        "dfcp_packets_lost_total", "Packets sent and taken for lost.", all.packets_lost;
        "dfcp_packets_marked_total", "Packets received with a mark of congestion.", all.marked_received;
        "dfcp_sent_bytes_total", "Bytes sent.", all.bytes_sent;
        "dfcp_received_bytes_total", "Bytes received.", all.bytes_received;
        "dfcp_lost_bytes_total", "Bytes sent and taken for lost.", all.bytes_lost;
        "dfcp_symbol_bytes_total", "Bytes of symbols received.", all.symbol_bytes;
        "dfcp_redundant_symbol_bytes_total", "Of these, bytes that taught nothing.", all.redundant_bytes;
        "dfcp_goodput_bytes_total", "Bytes of blocks that became whole here.", all.block_bytes;
    }
    page.family(
        "dfcp_connections_ended_total",
        Type::Counter,
        "Connections ended: by one of the applications, refused, or otherwise.",
    );
    for (how, count) in [
        ("closed", all.closed),
        ("refused", all.refused),
        ("failed", all.failed),
    ] {
        page.sample(&[("how", how)], count);
    }
    page.family(
        "dfcp_queueing_seconds",
        Type::Summary,
        "Round trips above the smallest of their connection.",
    );
    page.part("_sum", all.queueing.as_secs_f64());
    page.part("_count", all.queueing_samples);
    page.family(
        "dfcp_coding_overhead_ratio",
        Type::Gauge,
        "Bytes of symbols received for each byte of whole blocks, beyond one.",
    );
    page.sample(&[], all.coding_overhead());
}

fn of_endpoint(page: &mut Page, endpoint: &Endpoint) {
    let stats = endpoint.stats();
    page.family(
        "dfcp_datagrams_dropped_total",
        Type::Counter,
        "Datagrams dropped: no packets, packets of no connection, or handshakes refused.",
    );
    for (reason, count) in [
        ("malformed", stats.malformed),
        ("unknown", stats.unknown),
        ("refused", stats.refused),
    ] {
        page.sample(&[("reason", reason)], count);
    }
    counters! { page:
        "dfcp_handshakes_answered_total", "Handshakes answered.", stats.syns;
        "dfcp_handshakes_retried_total", "Handshakes that were to come again with a cookie.", stats.retries;
        "dfcp_handshakes_computed_total", "Packets of handshakes that took public-key arithmetic.", stats.computed;
    }
}

fn of_traffic(page: &mut Page, traffic: &Traffic) {
    let counts = traffic.counts();
    page.family(
        "dfcp_proxy_streams_total",
        Type::Counter,
        "Attempts to connect or to associate, by how they ended.",
    );
    for (status, count) in &counts.attempts {
        page.sample(&[("status", status.word())], *count);
    }
    page.family(
        "dfcp_proxy_streams",
        Type::Gauge,
        "TCP connections and associations of UDP that are carried now.",
    );
    page.sample(&[("kind", "tcp")], counts.open_connections);
    page.sample(&[("kind", "udp")], counts.open_associations);
    page.family(
        "dfcp_proxy_carried_bytes_total",
        Type::Counter,
        "Bytes carried for programs: sent to the other side, received from it.",
    );
    let ways = ["sent", "received"];
    for (kind, bytes) in [("tcp", counts.tcp_bytes), ("udp", counts.udp_bytes)] {
        for (way, bytes) in ways.into_iter().zip(bytes) {
            page.sample(&[("kind", kind), ("direction", way)], bytes);
        }
    }
    page.family(
        "dfcp_proxy_datagrams_total",
        Type::Counter,
        "Datagrams carried for programs.",
    );
    for (way, count) in ways.into_iter().zip(counts.datagrams) {
        page.sample(&[("direction", way)], count);
    }
}

fn of_keys(page: &mut Page, server: &Server) {
    page.family(
        "dfcp_proxy_key_carried_bytes_total",
        Type::Counter,
        "Bytes carried for each key: sent to its clients, received from them.",
    );
    for (key, carried) in server.carried() {
        let peer = key.to_string();
        for (way, bytes) in ["sent", "received"].into_iter().zip(carried) {
            page.sample(&[("peer", &peer), ("direction", way)], bytes);
        }
    }
}

fn of_files(page: &mut Page, files: &Tally) {
    let counts = files.counts();
    page.family(
        "dfcp_recv_sessions",
        Type::Gauge,
        "Sessions of senders that there are now.",
    );
    page.sample(&[], counts.open);
    page.family(
        "dfcp_recv_sessions_total",
        Type::Counter,
        "Sessions that brought all that they offered, or did not.",
    );
    page.sample(&[("status", "done")], counts.done);
    page.sample(&[("status", "failed")], counts.failed);
    counters! { page:
        "dfcp_recv_files_total", "Files put in place.", counts.files;
        "dfcp_recv_bytes_total", "Bytes of them.", counts.bytes;
        "dfcp_recv_files_failed_total", "Files and directories that failed.", counts.files_failed;
    }
    page.family(
        "dfcp_recv_refused_total",
        Type::Counter,
        "Senders that were refused for their keys, and offers that were for what they are.",
    );
    page.sample(&[("reason", "key")], counts.refused_keys);
    page.sample(&[("reason", "offer")], counts.refused_offers);
}

fn of_links(page: &mut Page, links: &dfcp_tun::Server) {
    let clients = links.clients();
    let clients: Vec<_> = clients
        .iter()
        .map(|(key, connected, stats)| (key.to_string(), *connected, stats))
        .collect();
    page.family(
        "dfcp_tun_connected",
        Type::Gauge,
        "Whether a client of the link is connected.",
    );
    for (peer, connected, _) in &clients {
        page.sample(&[("peer", peer)], u8::from(*connected));
    }
    type Value = fn(&dfcp_tun::Stats) -> [u64; 2];
    let both: [(&str, &str, Value); 2] = [
        (
            "dfcp_tun_packets_total",
            "IP packets sent to a client, and received from it.",
            |stats| [stats.packets_out, stats.packets_in],
        ),
        ("dfcp_tun_bytes_total", "Bytes of them.", |stats| {
            [stats.bytes_out, stats.bytes_in]
        }),
    ];
    for (name, help, value) in both {
        page.family(name, Type::Counter, help);
        for (peer, _, stats) in &clients {
            for (way, count) in ["sent", "received"].into_iter().zip(value(stats)) {
                page.sample(&[("peer", peer), ("direction", way)], count);
            }
        }
    }
    page.family(
        "dfcp_tun_repaired_total",
        Type::Counter,
        "IP packets of a client that were lost and recovered, or were not.",
    );
    for (peer, _, stats) in &clients {
        for (status, count) in [
            ("recovered", stats.code.recovered),
            ("lost", stats.code.lost),
        ] {
            page.sample(&[("peer", peer), ("status", status)], count);
        }
    }
    page.family(
        "dfcp_tun_dropped_total",
        Type::Counter,
        "IP packets that were not carried, and why.",
    );
    for (peer, _, stats) in &clients {
        for (reason, count) in [
            ("queue", stats.queue.dropped),
            ("forbidden", stats.forbidden),
            ("malformed", stats.malformed),
            ("unconnected", stats.unconnected),
            ("too_long", stats.too_long),
        ] {
            page.sample(&[("peer", peer), ("reason", reason)], count);
        }
    }
}

/// What is known of each connection's path, from here to the peer.
fn of_connections(page: &mut Page, connections: &[(u64, Connection)]) {
    page.family(
        "dfcp_connections",
        Type::Gauge,
        "Connections that are there now.",
    );
    page.sample(&[], connections.len());
    let shown: Vec<_> = connections
        .iter()
        .map(|(number, connection)| {
            let (peer, stats) = (connection.peer().to_string(), connection.stats());
            (number.to_string(), peer, stats)
        })
        .collect();
    type Value = fn(&dfcp::ConnectionStats) -> f64;
    let families: [(&str, &str, Value); 4] = [
        (
            "dfcp_smoothed_rtt_seconds",
            "Smoothed round-trip time.",
            |stats| stats.rtt.as_secs_f64(),
        ),
        (
            "dfcp_min_rtt_seconds",
            "Smallest round-trip time.",
            |stats| stats.min_rtt.as_secs_f64(),
        ),
        (
            "dfcp_loss_ratio",
            "Part of the packets sent that is lost, recently.",
            |stats| stats.loss,
        ),
        (
            "dfcp_pacing_bytes_per_second",
            "Rate at which packets may leave.",
            |stats| stats.pacing_rate.as_bps() as f64 / 8.0,
        ),
    ];
    for (name, help, value) in families {
        page.family(name, Type::Gauge, help);
        for (number, peer, stats) in &shown {
            page.sample(&[("connection", number), ("peer", peer)], value(stats));
        }
    }
}

/// Open files, of which each carried connection takes one. Named as Prometheus' libraries have it.
fn of_process(page: &mut Page) {
    use nix::sys::resource::{Resource, getrlimit};
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        page.family("process_open_fds", Type::Gauge, "Open file descriptors.");
        page.sample(&[], open.count() as u64);
    }
    if let Ok((soft, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
        page.family(
            "process_max_fds",
            Type::Gauge,
            "Most open file descriptors.",
        );
        page.sample(&[], soft);
    }
}
