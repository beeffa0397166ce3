//! Packets as bytes: the IPv4 (RFC 791), TCP (RFC 9293) and UDP (RFC 768) headers that the
//! simulation counts but does not make. DFCP as published is in IP packets of the experimental
//! protocol 253 (RFC 3692) and has its own header already.
//!
//! A flow has a pair of addresses of its own, 10.0.0.1 and 10.0.0.2 for the first, and so on. TCP
//! numbers bytes from one (a SYN is zero), 2^32 onwards from zero. Options that TCP's model adds
//! without size (`headers = "flat"`) have no room and are left out. Checksums hold for payload of
//! zeros, where the simulation has no payload; UDP goes without one.

use std::net::Ipv4Addr;

use dfcp_command::DEFAULT_PORT;
use dfcp_proto::Instant;
use dfcp_proto::published::header::{EXPERIMENTAL, HEADER_LEN, PseudoHeader, seal};
use dfcp_sim::engine::{Body, Direction, PacketEvent};
use dfcp_sim::scenario::{FlowSpec, ProtocolSpec};
use dfcp_sim::tcp::{Kind, Segment, TcpReceiverConfig};

const IP_HEADER: usize = 20;
const TCP_HEADER: usize = 20;
const TCP_MAX_OPTIONS: usize = 40;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// iperf's, which servers of nothing use.
const TCP_PORT: u16 = 5001;
/// RFC 863: cross traffic is thrown away.
const DISCARD_PORT: u16 = 9;
/// The first of those that nobody is assigned (RFC 6335).
const EPHEMERAL_PORT: u16 = 49_152;
/// RFC 7323 §2.3.
const MAX_WINDOW_SHIFT: u8 = 14;

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;
const CWR: u8 = 0x80;

/// How the packets of a flow look.
#[derive(Debug)]
pub struct Wire {
    source: (Ipv4Addr, u16),
    sink: (Ipv4Addr, u16),
    carrier: Carrier,
}

/// What follows the IP header.
#[derive(Debug)]
enum Carrier {
    Tcp(Tcp),
    Udp,
    Published,
}

/// What TCP's segments do not say of their connection.
#[derive(Debug)]
pub(super) struct Tcp {
    mss: u32,
    /// Bytes of the transfer: the last segment may be short.
    size: u64,
    /// Of the windows that the sink advertises (RFC 7323).
    window_shift: u8,
    sack: bool,
    timestamps: bool,
    ecn: bool,
}

impl Tcp {
    pub(super) fn new(config: &TcpReceiverConfig, size: Option<u64>) -> Self {
        let window = config.receive_buffer.unwrap_or(u64::MAX);
        let fits = |shift: &u8| window >> shift <= u64::from(u16::MAX);
        Self {
            mss: config.mss,
            size: size.unwrap_or(u64::MAX),
            window_shift: (0..MAX_WINDOW_SHIFT).find(fits).unwrap_or(MAX_WINDOW_SHIFT),
            sack: config.sack,
            timestamps: config.timestamps,
            ecn: config.ecn,
        }
    }

    /// The sequence number of a segment's first byte.
    pub(super) fn number(&self, segment: u32) -> u32 {
        let bytes = u64::from(segment) * u64::from(self.mss);
        (bytes.min(self.size) as u32).wrapping_add(1)
    }

    fn flags(&self, segment: &Segment) -> u8 {
        // RFC 3168 §6.1.1: a SYN with both asks for ECN, a SYN with ECE alone grants it.
        let set_up = match segment.kind {
            Kind::Syn if self.ecn => SYN | ECE | CWR,
            Kind::Syn => SYN,
            Kind::SynAck if self.ecn => SYN | ACK | ECE,
            Kind::SynAck => SYN | ACK,
            Kind::Data | Kind::Ack => ACK,
        };
        let echo = if segment.flags.ece { ECE } else { 0 };
        let reduced = if segment.flags.cwr { CWR } else { 0 };
        set_up | echo | reduced
    }

    fn window(&self, segment: &Segment) -> u16 {
        let bytes = u64::from(segment.window) * u64::from(self.mss);
        let field = match segment.kind {
            Kind::Ack => bytes >> self.window_shift,
            Kind::SynAck => bytes,
            // The source receives nothing that would need a window.
            Kind::Syn | Kind::Data => u64::MAX,
        };
        u16::try_from(field).unwrap_or(u16::MAX)
    }

    /// Options that fit `room`, padded to it.
    fn options(&self, at: Instant, segment: &Segment, room: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(room);
        let mut add = |option: &[u8]| {
            if out.len() + option.len() <= room {
                out.extend_from_slice(option);
            }
        };
        let opening = matches!(segment.kind, Kind::Syn | Kind::SynAck);
        if opening {
            let [high, low] = u16::try_from(self.mss).unwrap_or(u16::MAX).to_be_bytes();
            add(&[2, 4, high, low]);
        }
        match (opening, self.sack) {
            (true, true) => add(&[4, 2]),
            _ if self.timestamps => add(&[1, 1]),
            _ => {}
        }
        if self.timestamps {
            // The model has no echo of the sink's clock.
            let (value, echo) = match segment.kind {
                Kind::Syn | Kind::Data => (milliseconds(segment.timestamp), 0),
                Kind::SynAck | Kind::Ack => (milliseconds(at), milliseconds(segment.timestamp)),
            };
            let mut option = [8, 10, 0, 0, 0, 0, 0, 0, 0, 0];
            option[2..6].copy_from_slice(&value.to_be_bytes());
            option[6..].copy_from_slice(&echo.to_be_bytes());
            add(&option);
        }
        if opening {
            let shift = match segment.kind {
                Kind::SynAck => self.window_shift,
                _ => 0,
            };
            add(&[1, 3, 3, shift]);
        }
        let mut sack = vec![1, 1, 5, 2];
        for (start, end) in segment.sack.iter() {
            sack[3] += 8;
            sack.extend(self.number(start).to_be_bytes());
            sack.extend(self.number(end).to_be_bytes());
        }
        if sack.len() > 4 {
            add(&sack);
        }
        out.resize(room, 0);
        out
    }
}

/// TCP's clock for timestamps.
fn milliseconds(at: Instant) -> u32 {
    (at.as_nanos() / 1_000_000) as u32
}

impl Wire {
    /// The flow numbered `id`.
    pub fn new(flow: &FlowSpec, id: u32) -> Self {
        let host = |n: u32| {
            let [_, a, b, c] = id.wrapping_mul(2).wrapping_add(n).to_be_bytes();
            Ipv4Addr::new(10, a, b, c)
        };
        let (port, carrier) = match &flow.protocol {
            ProtocolSpec::Tcp(tcp) => {
                let tcp = Tcp::new(&tcp.receiver, flow.size);
                (TCP_PORT, Carrier::Tcp(tcp))
            }
            ProtocolSpec::Udp(_) | ProtocolSpec::Coded(_) => (DISCARD_PORT, Carrier::Udp),
            ProtocolSpec::Dfcp(_) => (DEFAULT_PORT, Carrier::Udp),
            ProtocolSpec::Published(_) | ProtocolSpec::RcUdp(_) => {
                (DEFAULT_PORT, Carrier::Published)
            }
        };
        let ephemeral = EPHEMERAL_PORT + (id % u32::from(u16::MAX - EPHEMERAL_PORT)) as u16;
        Self {
            source: (host(1), ephemeral),
            sink: (host(2), port),
            carrier,
        }
    }

    /// Appends what exists of a packet.
    pub fn emit(&self, event: &PacketEvent<'_>, out: &mut Vec<u8>) {
        let ends = match event.packet.direction {
            Direction::Forward => [self.source, self.sink],
            Direction::Backward => [self.sink, self.source],
        };
        match (event.body, &self.carrier) {
            (Body::Tcp(segment), Carrier::Tcp(tcp)) => {
                ip_header(event, TCP, ends, out);
                tcp_segment(tcp, event, segment, ends, out);
            }
            (Body::Datagram(bytes), Carrier::Published) => {
                ip_header(event, EXPERIMENTAL, ends, out);
                published(event, bytes, ends, out);
            }
            (Body::Datagram(bytes), _) => {
                ip_header(event, UDP, ends, out);
                udp_header(event, ends, out);
                out.extend_from_slice(bytes);
            }
            (Body::Udp(_) | Body::Coded(_) | Body::Tcp(_), _) => {
                ip_header(event, UDP, ends, out);
                udp_header(event, ends, out);
            }
        }
    }
}

type Ends = [(Ipv4Addr, u16); 2];

/// A packet of DFCP as published. Of virtual payload there is nothing to show; the checksum is
/// made anew, for payload of zeros there and for the addresses of the capture.
fn published(event: &PacketEvent<'_>, bytes: &[u8], ends: Ends, out: &mut Vec<u8>) {
    let size = (event.packet.size as usize).saturating_sub(IP_HEADER);
    let [source, destination] = ends.map(|(address, _)| address.into());
    let is_virtual = bytes.len() < size;
    let shown = if is_virtual {
        HEADER_LEN.min(bytes.len())
    } else {
        size
    };
    let mut packet = bytes[..shown.min(bytes.len())].to_vec();
    packet.resize(size, 0);
    let pseudo = PseudoHeader::Ip {
        source,
        destination,
    };
    seal(&mut packet, &pseudo);
    out.extend_from_slice(&packet[..shown]);
}

fn ip_header(event: &PacketEvent<'_>, protocol: u8, ends: Ends, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend([0x45, event.packet.ecn as u8]);
    out.extend(length(event.packet.size));
    out.extend([0, 0, 0x40, 0]); // no identification: not to be fragmented (RFC 6864)
    out.extend([64, protocol, 0, 0]);
    for (address, _) in ends {
        out.extend(address.octets());
    }
    let checksum = fold(sum(&out[start..]));
    out[start + 10..start + 12].copy_from_slice(&checksum);
}

/// A length field. Zero says that it does not fit, as of captures of packets yet to be segmented.
fn length(bytes: u32) -> [u8; 2] {
    u16::try_from(bytes).unwrap_or(0).to_be_bytes()
}

fn udp_header(event: &PacketEvent<'_>, ends: Ends, out: &mut Vec<u8>) {
    for (_, port) in ends {
        out.extend(port.to_be_bytes());
    }
    out.extend(length(event.packet.size.saturating_sub(IP_HEADER as u32)));
    out.extend([0, 0]);
}

fn tcp_segment(
    tcp: &Tcp,
    event: &PacketEvent<'_>,
    segment: &Segment,
    ends: Ends,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    let room = usize::from(segment.header).saturating_sub(IP_HEADER + TCP_HEADER);
    let options = tcp.options(event.at, segment, room.min(TCP_MAX_OPTIONS) & !3);
    let (sequence, acknowledged) = match segment.kind {
        Kind::Syn => (0, 0),
        Kind::SynAck => (0, 1),
        Kind::Data => (tcp.number(segment.seq), 1),
        Kind::Ack => (1, tcp.number(segment.seq)),
    };
    for (_, port) in ends {
        out.extend(port.to_be_bytes());
    }
    out.extend(u32::to_be_bytes(sequence));
    out.extend(u32::to_be_bytes(acknowledged));
    let words = (TCP_HEADER + options.len()) / 4;
    out.extend([(words as u8) << 4, tcp.flags(segment)]);
    out.extend(tcp.window(segment).to_be_bytes());
    out.extend([0; 4]);
    out.extend(options);
    let pseudo_header = ends.iter().map(|(address, _)| sum(&address.octets()));
    let length = event.packet.size.saturating_sub(IP_HEADER as u32);
    let total = pseudo_header.sum::<u32>() + u32::from(TCP) + length + sum(&out[start..]);
    out[start + 16..start + 18].copy_from_slice(&fold(total));
}

/// The sum of 16-bit words of the internet checksum (RFC 1071); headers are far from overflow.
fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2);
    words
        .map(|word| u32::from(word[0]) << 8 | word.get(1).copied().map_or(0, u32::from))
        .sum()
}

fn fold(mut sum: u32) -> [u8; 2] {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}
