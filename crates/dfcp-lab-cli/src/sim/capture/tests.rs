//! Files read back by a reader that shares nothing with the writers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use dfcp_command::Kind;
use dfcp_sim::report::RunReport;
use dfcp_sim::scenario::Scenario;
use serde_json::Value;

use super::{Capture, Targets};

const SCENARIO: &str = r#"schema = 1

[run]
duration = "4 s"
seed = 7

[topology]
kind = "dumbbell"
pairs = 3
rtt = "20 ms"

[link.default]
rate = "20 Mbit/s"

[link.bottleneck]
loss = 0.02

[[flow]]
name = "bulk/1"
protocol = "tcp-cubic"
size = "500 kB"

[[flow]]
name = "flagship"
protocol = "auto"

[[flow]]
name = "cross"
protocol = "udp-cbr"
udp = { rate = "1 Mbit/s" }
"#;

struct Run {
    directory: tempfile::TempDir,
    report: RunReport,
}

impl Run {
    fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let targets = Targets {
            pcap: Some(directory.path().join("run.pcap")),
            qlog: Some(directory.path().join("qlog")),
        };
        let scenario = Scenario::from_toml(text, "test.toml").unwrap();
        let capture = Capture::create(&targets, &scenario).unwrap();
        let report = dfcp_sim::run_watched(&scenario, capture.watch(), &mut |_| ()).unwrap();
        capture.finish().unwrap();
        Self { directory, report }
    }

    fn packets(&self) -> Vec<Packet> {
        pcap(&std::fs::read(self.directory.path().join("run.pcap")).unwrap())
    }

    fn trace(&self, name: &str) -> Vec<Value> {
        let path = self.directory.path().join("qlog").join(name);
        let text = std::fs::read_to_string(path).unwrap();
        let records = text.strip_prefix('\u{1e}').unwrap().split("\n\u{1e}");
        records.map(|r| serde_json::from_str(r).unwrap()).collect()
    }
}

/// A record of a pcap file: nanoseconds, original length, captured bytes.
struct Packet {
    at: u64,
    length: usize,
    bytes: Vec<u8>,
}

fn pcap(mut file: &[u8]) -> Vec<Packet> {
    fn take<'a>(file: &mut &'a [u8], n: usize) -> &'a [u8] {
        let (head, rest) = file.split_at(n);
        *file = rest;
        head
    }
    fn word(file: &mut &[u8]) -> u32 {
        u32::from_le_bytes(take(file, 4).try_into().unwrap())
    }
    assert_eq!(word(&mut file), 0xa1b2_3c4d, "little-endian, nanoseconds");
    assert_eq!(take(&mut file, 4), [2, 0, 4, 0]);
    take(&mut file, 12);
    assert_eq!(word(&mut file), 101, "raw IP");
    let mut packets = Vec::new();
    while !file.is_empty() {
        let at = u64::from(word(&mut file)) * 1_000_000_000 + u64::from(word(&mut file));
        let (captured, length) = (word(&mut file) as usize, word(&mut file) as usize);
        let bytes = take(&mut file, captured).to_vec();
        packets.push(Packet { at, length, bytes });
    }
    packets
}

impl Packet {
    fn half(&self, at: usize) -> usize {
        usize::from(self.bytes[at]) << 8 | usize::from(self.bytes[at + 1])
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.bytes[at..at + 4].try_into().unwrap())
    }

    fn is_tcp(&self) -> bool {
        self.bytes[9] == 6
    }

    fn flow(&self) -> usize {
        let last = |address: usize| usize::from(self.bytes[address + 3]);
        assert_eq!(self.bytes[12..15], [10, 0, 0]);
        (last(12).min(last(16)) - 1) / 2
    }

    fn is_forward(&self) -> bool {
        self.bytes[15] < self.bytes[19]
    }

    /// TCP's options by kind.
    fn option(&self, wanted: u8) -> Option<&[u8]> {
        let mut options = &self.bytes[40..20 + self.tcp_header()];
        while let [kind, rest @ ..] = options {
            options = match kind {
                0 => return None,
                1 => rest,
                _ if *kind == wanted => return Some(&options[2..usize::from(rest[0])]),
                _ => &options[usize::from(rest[0])..],
            };
        }
        None
    }

    fn tcp_header(&self) -> usize {
        usize::from(self.bytes[32] >> 4) * 4
    }
}

/// The internet checksum over parts of even length: right if it comes out as all ones.
fn sum(parts: &[&[u8]]) -> u64 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let total: u64 = words.map(|w| u64::from(w[0]) << 8 | u64::from(w[1])).sum();
    (total & 0xffff) + (total >> 16)
}

#[test]
fn pcap_holds_every_packet_that_was_sent() {
    let run = Run::new(SCENARIO);
    let packets = run.packets();
    for (flow, report) in run.report.flows.iter().enumerate() {
        let sent = packets
            .iter()
            .filter(|p| p.flow() == flow && p.is_forward());
        let lengths: Vec<u64> = sent.map(|p| p.length as u64).collect();
        assert_eq!(lengths.len() as u64, report.packets_sent, "{}", report.name);
        assert_eq!(lengths.iter().sum::<u64>(), report.bytes_sent);
        assert!(report.packets_sent > 50, "{}", report.name);
    }
    assert!(packets.windows(2).all(|pair| pair[0].at <= pair[1].at));
    assert!(packets.last().unwrap().at <= 4_000_000_000);
}

#[test]
fn headers_are_right() {
    let run = Run::new(SCENARIO);
    for packet in run.packets() {
        assert_eq!(sum(&[&packet.bytes[..20]]), 0xffff, "IP checksum");
        assert_eq!(packet.half(2), packet.length);
        assert!(packet.bytes.len() <= packet.length);
        if packet.is_tcp() {
            let length = (packet.length - 20) as u16;
            let protocol = [0, 6];
            let parts = [&packet.bytes[12..], &protocol, &length.to_be_bytes()];
            assert_eq!(sum(&parts), 0xffff, "TCP checksum, payload of zeros");
            assert_eq!(packet.bytes.len(), 20 + packet.tcp_header());
        } else {
            assert_eq!(packet.half(24), packet.length - 20, "UDP length");
        }
    }
}

#[test]
fn tcp_tells_its_story() {
    let run = Run::new(SCENARIO);
    let packets = run.packets();
    let tcp: Vec<&Packet> = packets.iter().filter(|p| p.is_tcp()).collect();
    let flags: Vec<u8> = tcp[..3].iter().map(|p| p.bytes[33]).collect();
    assert_eq!(flags, [0x02, 0x12, 0x10], "SYN, SYN and ACK, data");
    assert_eq!(tcp[0].option(2), Some(&1448_u16.to_be_bytes()[..]));
    assert!(tcp[0].option(3).is_some() && tcp[0].option(4).is_some());
    assert_eq!((tcp[2].word(24), tcp[2].word(28)), (1, 1));

    // Each byte of the transfer is sent; a lost one again.
    let data = tcp[2..].iter().filter(|p| p.is_forward());
    let spans: Vec<(u32, usize)> = data
        .map(|p| (p.word(24), p.length - 20 - p.tcp_header()))
        .collect();
    let once: BTreeSet<_> = spans.iter().copied().collect();
    assert_eq!(once.iter().map(|span| span.1).sum::<usize>(), 500_000);
    assert!(spans.len() > once.len(), "retransmissions");

    let acks: Vec<_> = tcp[2..].iter().filter(|p| !p.is_forward()).collect();
    assert_eq!(acks.last().unwrap().word(28), 500_001);
    let blocks = acks.iter().filter_map(|p| Some((p, p.option(5)?)));
    let mut seen = 0;
    for (ack, blocks) in blocks {
        for block in blocks.chunks(8) {
            let [start, end] =
                [&block[..4], &block[4..]].map(|edge| u32::from_be_bytes(edge.try_into().unwrap()));
            assert!(ack.word(28) < start && start < end && end <= 500_001);
            seen += 1;
        }
    }
    assert!(seen > 0, "the loss shows as SACK blocks");
    for ack in acks {
        let echo = u32::from_be_bytes(ack.option(8).unwrap()[4..].try_into().unwrap());
        assert!(u64::from(echo) <= ack.at / 1_000_000);
    }
}

#[test]
fn sequence_numbers_begin_anew_after_four_gigabytes() {
    use dfcp_sim::scenario::ProtocolSpec;
    let scenario = Scenario::from_toml(SCENARIO, "test.toml").unwrap();
    let ProtocolSpec::Tcp(config) = &scenario.flows[0].protocol else {
        panic!("the first flow is TCP");
    };
    let tcp = super::wire::Tcp::new(&config.receiver, None);
    let segment = 1 << 24;
    let expected = (u64::from(segment) * 1448 + 1) % (1 << 32);
    assert_eq!(u64::from(tcp.number(segment)), expected);
}

#[test]
fn qlog_holds_what_each_end_saw() {
    let run = Run::new(SCENARIO);
    let flows = ["0-bulk_1", "1-flagship", "2-cross"];
    for (report, flow) in run.report.flows.iter().zip(flows) {
        let [client, server] =
            ["client", "server"].map(|end| run.trace(&format!("{flow}.{end}.sqlog")));
        let all = |trace: &[Value], name: &str| {
            let named = trace.iter().filter(|event| event["name"] == name);
            named.cloned().collect::<Vec<Value>>()
        };
        let sent = all(&client, "transport:packet_sent");
        let received = all(&server, "transport:packet_received");
        assert_eq!(sent.len() as u64, report.packets_sent, "{flow}");
        let length = |event: &Value| event["data"]["raw"]["length"].as_u64().unwrap();
        // Connections count what is behind the headers of IP and UDP.
        let headers = if flow == "1-flagship" { 28 } else { 0 };
        let sizes = sent.iter().map(|event| length(event) + headers);
        assert_eq!(sizes.sum::<u64>(), report.bytes_sent, "{flow}");
        assert!(received.len() < sent.len(), "{flow}: some were lost");
        let returned = all(&server, "transport:packet_sent").len();
        assert!(all(&client, "transport:packet_received").len() <= returned);

        let head = &client[0];
        // What qvis looks at before it opens a file.
        assert_eq!(head["qlog_version"], "0.3");
        assert_eq!(head["qlog_format"], "JSON-SEQ");
        assert_eq!(head["trace"]["vantage_point"]["type"], "client");
        for trace in [&client, &server] {
            let times: Vec<f64> = trace[1..]
                .iter()
                .map(|event| event["time"].as_f64().unwrap())
                .collect();
            assert!(times.is_sorted(), "{flow}");
            assert!(*times.last().unwrap() <= 4000.0, "from the run's start, ms");
        }
        let seen = |event: &Value| {
            let number = event["data"]["header"]["packet_number"].as_u64();
            (number, length(event))
        };
        let known: BTreeSet<_> = sent.iter().map(seen).collect();
        assert!(received.iter().all(|event| known.contains(&seen(event))));
    }
}

/// Names of a trace's records, and how many there are of each.
fn names(trace: &[Value]) -> BTreeMap<String, usize> {
    let mut names = BTreeMap::new();
    for name in trace[1..].iter().filter_map(|event| event["name"].as_str()) {
        *names.entry(name.to_owned()).or_default() += 1;
    }
    names
}

#[test]
fn qlog_of_connections_is_what_they_tell_themselves() {
    let [sealed, published] = [Run::new(SCENARIO), Run::new(PUBLISHED)];
    for (run, name) in [(&sealed, "1-flagship"), (&published, "0-sizes")] {
        let trace = run.trace(&format!("{name}.client.sqlog"));
        let names = names(&trace);
        assert_eq!(names["connectivity:connection_state_updated"], 1, "{name}");
        assert!(names["recovery:packet_lost"] > 0, "{name}");
        let metrics = |event: &&Value| event["name"] == "recovery:metrics_updated";
        let last = &trace.iter().rfind(metrics).unwrap()["data"];
        let min_rtt = last["min_rtt"].as_f64().unwrap();
        assert!((20.0..40.0).contains(&min_rtt), "{name}: {min_rtt} ms");
        assert!(last["bytes_in_flight"].is_u64(), "{name}");
    }
}

#[test]
fn qlog_of_tcp_has_ranges_and_metrics() {
    let run = Run::new(SCENARIO);
    let trace = run.trace("0-bulk_1.client.sqlog");
    let ranges = |event: &Value| event["data"]["frames"][0]["acked_ranges"].clone();
    let acked: Vec<Value> = trace.iter().map(ranges).filter(|r| !r.is_null()).collect();
    assert!(acked.iter().any(|ranges| ranges[1].is_array()), "SACK");
    // 500 kB are 346 segments.
    assert_eq!(acked.last().unwrap()[0], serde_json::json!([0, 345]));
    let metrics = |event: &&Value| event["name"] == "recovery:metrics_updated";
    let last = trace.iter().rfind(metrics).unwrap();
    let rtt = last["data"]["smoothed_rtt"].as_f64().unwrap();
    assert!((20.0..500.0).contains(&rtt), "{rtt} ms");
    assert!(last["data"]["congestion_window"].as_u64() > Some(1448));
}

const PUBLISHED: &str = r#"schema = 1

[run]
duration = "2 s"
seed = 7

[topology]
kind = "dumbbell"
pairs = 2
rtt = "20 ms"

[link.default]
rate = "20 Mbit/s"

[link.bottleneck]
loss = 0.02

[[flow]]
name = "sizes"
protocol = "dfcp"
size = "300 kB"

[[flow]]
name = "bytes"
protocol = "dfcp"
size = "300 kB"
published.payload = "real"
"#;

/// Offset of DFCP's header behind IP's, and its flags.
const DFCP: usize = 20;
const SYN: u8 = 0x01;
const ACK: u8 = 0x02;
const BLOCK: u8 = 0x10;

#[test]
fn published_packets_are_those_of_the_papers() {
    let run = Run::new(PUBLISHED);
    let packets = run.packets();
    for (flow, report) in run.report.flows.iter().enumerate() {
        let own: Vec<&Packet> = packets.iter().filter(|p| p.flow() == flow).collect();
        let forward = own.iter().filter(|p| p.is_forward()).count() as u64;
        assert_eq!(forward, report.packets_sent, "{}", report.name);
        let mut flags: Vec<u8> = own.iter().map(|p| p.bytes[DFCP + 21]).collect();
        flags.dedup();
        assert_eq!(flags[..3], [SYN, SYN | ACK, ACK], "the handshake");
        for packet in &own {
            assert_eq!(packet.bytes[9], 253);
            assert_eq!(packet.half(2), packet.length);
            let header = usize::from(packet.bytes[DFCP + 20] >> 4) * 4;
            let is_data = packet.bytes[DFCP + 21] & (BLOCK | ACK) == BLOCK;
            let captured = match (flow, is_data) {
                (0, true) => DFCP + 24,
                _ => packet.length,
            };
            assert_eq!(packet.bytes.len(), captured);
            // Addresses, protocol and length; the header; the payload's first 64 bytes.
            let length = (packet.length - DFCP) as u16;
            let covered = packet.bytes.len().min(DFCP + header + 64);
            let mut covered = packet.bytes[DFCP..covered].to_vec();
            covered.resize(covered.len().next_multiple_of(2), 0);
            let pseudo = [&packet.bytes[12..20], &[0, 253], &length.to_be_bytes()];
            let parts = [pseudo[0], pseudo[1], pseudo[2], &covered];
            assert_eq!(sum(&parts), 0xffff, "{}: {:?}", report.name, packet.bytes);
        }
        // 300 kB are five blocks, of 49 packets each at ε = 10 %.
        let blocks = own
            .iter()
            .filter(|p| p.bytes[DFCP + 21] & (BLOCK | ACK) == BLOCK);
        let full = blocks.clone().filter(|p| p.length == 1500).count();
        assert!(full >= 5 * 49, "{full}");
        let blocks: BTreeSet<u32> = blocks.map(|p| p.word(DFCP + 4)).collect();
        assert_eq!(blocks, (0..5).collect());
        assert!(report.finished);
    }
}

#[test]
fn qlog_of_published_packets_numbers_blocks() {
    let run = Run::new(PUBLISHED);
    let trace = run.trace("0-sizes.client.sqlog");
    let field = |event: &Value, name: &str| event["data"]["header"][name].clone();
    assert_eq!(field(&trace[1], "packet_type"), "initial");
    let sent = trace
        .iter()
        .filter(|e| e["name"] == "transport:packet_sent");
    let blocks: BTreeSet<u64> = sent
        .filter_map(|e| field(e, "packet_number").as_u64())
        .collect();
    assert_eq!(blocks, (0..5).collect());
    let acked = |event: &Value| event["data"]["frames"][0]["acked_ranges"][0][0].as_u64();
    let acked: BTreeSet<u64> = trace.iter().filter_map(acked).collect();
    assert_eq!(acked, blocks);
}

#[test]
fn same_seed_same_bytes() {
    let read = |run: &Run, name: &str| std::fs::read(run.directory.path().join(name)).unwrap();
    let [one, two] = [Run::new(SCENARIO), Run::new(SCENARIO)];
    let other = Run::new(&SCENARIO.replace("seed = 7", "seed = 8"));
    for name in ["run.pcap", "qlog/0-bulk_1.client.sqlog"] {
        assert!(read(&one, name) == read(&two, name), "{name}");
        assert!(read(&one, name) != read(&other, name), "{name}");
    }
}

#[test]
fn headers_counted_flat_have_no_options() {
    let flat = SCENARIO.replace(
        "size = \"500 kB\"",
        "size = \"500 kB\"\ntcp = { headers = \"flat\" }",
    );
    for packet in Run::new(&flat).packets().iter().filter(|p| p.is_tcp()) {
        assert_eq!(packet.tcp_header(), 20);
        assert_eq!(packet.half(2), packet.length);
    }
}

#[test]
fn a_place_that_is_not_there_is_known_before_the_run() {
    let scenario = Scenario::from_toml(SCENARIO, "test.toml").unwrap();
    let targets = Targets {
        pcap: Some(PathBuf::from("/no/such/directory/run.pcap")),
        qlog: None,
    };
    let refused = Capture::create(&targets, &scenario).unwrap_err();
    assert_eq!(refused.kind, Kind::LocalIo);
    assert!(refused.message.contains("run.pcap"), "{}", refused.message);
}
