//! Packets on a cable: headers of IP, TCP and UDP (RFC 791, 8200, 9293, 768), as far as carrying
//! them needs: whose a packet is, its ECN codepoint, cutting what a program sent at once into
//! packets as a network card would, and checksums (RFC 1071) that were left to the card.
//!
//! Nothing here trusts the bytes: what makes no sense has no header.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dfcp_proto::wire::checksum::{fold, word_sum};
use dfcp_sim::Ecn;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Published DFCP over IP (an experimental number, RFC 3692), whose header begins with ports too.
const DFCP: u8 = 253;

/// What was read of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Who sent it.
    pub source: IpAddr,
    /// For whom it is.
    pub destination: IpAddr,
    /// Of what IP carries.
    protocol: u8,
    /// Where that begins.
    transport: usize,
    /// Ports of its source and destination, where it has any.
    pub ports: Option<(u16, u16)>,
    /// Its ECN codepoint.
    pub ecn: Ecn,
}

impl Header {
    /// Reads the headers of an IP packet.
    pub fn parse(packet: &[u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Self::parse_ipv4(packet),
            6 => Self::parse_ipv6(packet),
            _ => None,
        }
    }

    fn parse_ipv4(packet: &[u8]) -> Option<Self> {
        let head: &[u8; 20] = packet.first_chunk()?;
        let transport = usize::from(head[0] & 0xf) * 4;
        let address =
            |at: usize| Ipv4Addr::from([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let first_fragment = u16::from_be_bytes([head[6], head[7]]) & 0x1fff == 0;
        Some(Self {
            source: address(12).into(),
            destination: address(16).into(),
            protocol: head[9],
            transport,
            ports: first_fragment
                .then(|| ports(packet, head[9], transport))
                .flatten(),
            ecn: head[1].into(),
        })
    }

    fn parse_ipv6(packet: &[u8]) -> Option<Self> {
        let head: &[u8; 40] = packet.first_chunk()?;
        let address = |at: usize| {
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&head[at..at + 16]);
            IpAddr::from(Ipv6Addr::from(bytes))
        };
        Some(Self {
            source: address(8),
            destination: address(24),
            protocol: head[6],
            transport: 40,
            ports: ports(packet, head[6], 40),
            ecn: (head[1] >> 4).into(),
        })
    }

    /// Where the transport's header begins, and where in it the checksum is.
    pub(super) fn checksum(&self) -> Option<(usize, usize)> {
        match self.protocol {
            TCP => Some((self.transport, 16)),
            UDP => Some((self.transport, 6)),
            _ => None,
        }
    }

    /// The sum over addresses, protocol and length that TCP and UDP include.
    fn pseudo_sum(&self, packet: &[u8], len: usize) -> u32 {
        let addresses = match self.source {
            IpAddr::V4(_) => packet.get(12..20),
            IpAddr::V6(_) => packet.get(8..40),
        };
        word_sum(addresses.unwrap_or_default()) + u32::from(self.protocol) + len as u32
    }
}

fn ports(packet: &[u8], protocol: u8, transport: usize) -> Option<(u16, u16)> {
    let bytes: &[u8; 4] = packet.get(transport..)?.first_chunk()?;
    let [a, b, c, d] = *bytes;
    matches!(protocol, TCP | UDP | DFCP)
        .then(|| (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}

fn put(packet: &mut [u8], at: usize, value: u16) {
    if let Some(place) = packet.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// Computes the checksum that was left to the card.
pub(super) fn complete_checksum(packet: &mut [u8]) {
    let Some(header) = Header::parse(packet) else {
        return;
    };
    let Some((start, offset)) = header.checksum() else {
        return;
    };
    // The field holds the sum of what lies outside: it is part of what is summed.
    let total = fold(word_sum(packet.get(start..).unwrap_or_default()));
    let checksum = match !total {
        // Zero means "none" in UDP (RFC 768).
        0 if header.protocol == UDP => 0xffff,
        checksum => checksum,
    };
    put(packet, start + offset, checksum);
}

/// Writes an ECN codepoint that a queue changed.
pub(super) fn set_ecn(packet: &mut [u8], ecn: Ecn) {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) if packet.len() >= 20 => {
            packet[1] = packet[1] & !0b11 | ecn as u8;
            write_ipv4_checksum(packet);
        }
        Some(6) if packet.len() >= 2 => {
            packet[1] = packet[1] & !0b11_0000 | (ecn as u8) << 4;
        }
        _ => {}
    }
}

fn write_ipv4_checksum(packet: &mut [u8]) {
    let len = usize::from(packet[0] & 0xf) * 4;
    put(packet, 10, 0);
    let checksum = !fold(word_sum(packet.get(..len).unwrap_or_default()));
    put(packet, 10, checksum);
}

/// How the kernel wants cut what it left to the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Bytes behind the headers, in each packet but the last.
    pub payload: usize,
}

/// Cuts one oversized TCP segment or UDP datagram into packets, as segmentation offload does:
/// numbers go on, flags that end something are the last packet's, the checksum is left open.
pub(super) fn segments(
    packet: &[u8],
    cut: Cut,
    scratch: &mut Vec<u8>,
    each: &mut dyn FnMut(&mut [u8]),
) {
    let Some((header, headers)) = headers(packet) else {
        return;
    };
    let payload = &packet[headers..];
    let mut done = 0;
    for (number, part) in payload.chunks(cut.payload.max(1)).enumerate() {
        scratch.clear();
        scratch.extend_from_slice(&packet[..headers]);
        scratch.extend_from_slice(part);
        let place = Part {
            number: number as u16,
            offset: done as u32,
            last: done + part.len() == payload.len(),
        };
        rewrite(scratch, &header, place);
        done += part.len();
        each(scratch);
    }
}

/// The headers of a packet that can be cut, and how long they are.
fn headers(packet: &[u8]) -> Option<(Header, usize)> {
    let header = Header::parse(packet)?;
    let (len, least) = match header.protocol {
        TCP => (usize::from(packet.get(header.transport + 12)? >> 4) * 4, 20),
        UDP => (8, 8),
        _ => return None,
    };
    let end = header.transport + len;
    let whole = header.transport >= 20 && len >= least && packet.len() >= end;
    whole.then_some((header, end))
}

/// Which of the packets of a cut one is.
#[derive(Clone, Copy)]
struct Part {
    number: u16,
    /// Bytes behind the headers before it.
    offset: u32,
    last: bool,
}

fn rewrite(packet: &mut [u8], header: &Header, part: Part) {
    const FIN_PSH: u8 = 0x09;
    const CWR: u8 = 0x80;
    let (len, at) = (packet.len(), header.transport);
    match header.source {
        IpAddr::V4(_) => {
            put(packet, 2, len as u16);
            let id = u16::from_be_bytes([packet[4], packet[5]]);
            put(packet, 4, id.wrapping_add(part.number));
            write_ipv4_checksum(packet);
        }
        IpAddr::V6(_) => put(packet, 4, (len - 40) as u16),
    }
    if header.protocol == TCP {
        let mut number = [0; 4];
        number.copy_from_slice(&packet[at + 4..at + 8]);
        let number = u32::from_be_bytes(number).wrapping_add(part.offset);
        packet[at + 4..at + 8].copy_from_slice(&number.to_be_bytes());
        if !part.last {
            packet[at + 13] &= !FIN_PSH;
        }
        if part.number > 0 {
            packet[at + 13] &= !CWR;
        }
        put(packet, at + 16, fold(header.pseudo_sum(packet, len - at)));
    } else {
        put(packet, at + 4, (len - at) as u16);
        put(packet, at + 6, fold(header.pseudo_sum(packet, len - at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADERS_V4: usize = 20 + 32;

    /// A TCP segment with `payload` bytes behind a header with options.
    fn tcp(ipv6: bool, payload: usize) -> Vec<u8> {
        let mut packet = match ipv6 {
            false => {
                let mut ip = vec![0x45, 2, 0, 0, 0xff, 0xfe, 0x40, 0, 64, TCP, 0, 0];
                ip.extend([198, 18, 0, 1, 198, 18, 0, 2]);
                ip
            }
            true => {
                let mut ip = vec![0x60, 0x20, 0, 0, 0, 0, TCP, 64];
                ip.extend(Ipv6Addr::from(1_u128).octets());
                ip.extend(Ipv6Addr::from(2_u128).octets());
                ip
            }
        };
        // Ports 1000 and 20000, number 0xfffffff0, FIN, PSH, ACK and CWR.
        let mut header = vec![0; 32];
        header[..4].copy_from_slice(&[0x03, 0xe8, 0x4e, 0x20]);
        header[4..8].copy_from_slice(&0xffff_fff0_u32.to_be_bytes());
        header[12] = 8 << 4;
        header[13] = 0x99;
        packet.extend(header);
        packet.extend((0..payload).map(|i| (i * 7 + 3) as u8));
        let len = packet.len() as u16;
        match ipv6 {
            false => {
                put(&mut packet, 2, len);
                write_ipv4_checksum(&mut packet);
            }
            true => put(&mut packet, 4, len - 40),
        }
        packet
    }

    fn cut(packet: &[u8], payload: usize) -> Vec<Vec<u8>> {
        let mut parts = Vec::new();
        segments(packet, Cut { payload }, &mut Vec::new(), &mut |part| {
            parts.push(part.to_vec());
        });
        parts
    }

    /// Whether all checksums of a packet hold, once the open one is computed.
    fn checksums_hold(mut packet: Vec<u8>) -> bool {
        complete_checksum(&mut packet);
        let header = Header::parse(&packet).unwrap();
        let ip = match header.source {
            IpAddr::V4(_) => fold(word_sum(&packet[..20])) == 0xffff,
            IpAddr::V6(_) => true,
        };
        let transport = &packet[header.transport..];
        let pseudo = header.pseudo_sum(&packet, transport.len());
        ip && fold(word_sum(transport) + pseudo) == 0xffff
    }

    #[test]
    fn headers_are_read() {
        for ipv6 in [false, true] {
            let header = Header::parse(&tcp(ipv6, 10)).unwrap();
            assert_eq!(header.ports, Some((1000, 20_000)));
            assert_eq!(header.ecn, Ecn::Ect0);
            assert_eq!(header.source.is_ipv6(), ipv6);
        }
        let mut fragment = tcp(false, 10);
        fragment[7] = 1;
        assert_eq!(Header::parse(&fragment).unwrap().ports, None);
    }

    #[test]
    fn cut_packets_carry_the_bytes_in_order_under_headers_of_their_own() {
        for ipv6 in [false, true] {
            let whole = tcp(ipv6, 2500);
            let headers = whole.len() - 2500;
            let parts = cut(&whole, 1000);
            assert_eq!(parts.len(), 3);
            let joined: Vec<u8> = parts.iter().flat_map(|p| p[headers..].to_vec()).collect();
            assert_eq!(joined, whole[headers..]);
            for (number, part) in parts.iter().enumerate() {
                let at = headers - 32;
                let sequence = u32::from_be_bytes(part[at + 4..at + 8].try_into().unwrap());
                assert_eq!(sequence, 0xffff_fff0_u32.wrapping_add(1000 * number as u32));
                // CWR once, FIN and PSH at the end.
                let flags = [0x90, 0x10, 0x19][number];
                assert_eq!(part[at + 13], flags, "packet {number}");
                assert!(checksums_hold(part.clone()));
            }
        }
    }

    #[test]
    fn datagrams_are_cut_too() {
        let mut whole = tcp(false, 0);
        whole.truncate(20);
        whole[9] = UDP;
        whole.extend([0x4e, 0x20, 0x03, 0xe8, 0, 0, 0, 0]);
        whole.extend(vec![9; 250]);
        let parts = cut(&whole, 100);
        let lengths: Vec<_> = parts.iter().map(Vec::len).collect();
        assert_eq!(lengths, [128, 128, 78]);
        for part in parts {
            assert_eq!(
                u16::from_be_bytes([part[24], part[25]]),
                part.len() as u16 - 20
            );
            assert!(checksums_hold(part));
        }
    }

    #[test]
    fn marks_leave_checksums_right() {
        for ipv6 in [false, true] {
            let mut packet = cut(&tcp(ipv6, 100), 1000).remove(0);
            set_ecn(&mut packet, Ecn::Ce);
            assert_eq!(Header::parse(&packet).unwrap().ecn, Ecn::Ce);
            assert!(checksums_hold(packet));
        }
    }

    #[test]
    fn any_bytes_are_taken() {
        let seed = 5;
        let mut random = dfcp_sim::Seed(seed).stream("frames");
        for _ in 0..20_000 {
            let mut packet = tcp(random.chance(0.5), random.below(100) as usize);
            packet.truncate(random.below(packet.len() as u64 + 1) as usize);
            for _ in 0..random.below(4) {
                if !packet.is_empty() {
                    let at = random.below(packet.len() as u64) as usize;
                    packet[at] = random.next_u64() as u8;
                }
            }
            let total: usize = cut(&packet, random.below(50) as usize)
                .iter()
                .map(|part| part.len().saturating_sub(HEADERS_V4))
                .sum();
            assert!(total <= 40 * packet.len(), "seed {seed}");
            complete_checksum(&mut packet);
            set_ecn(&mut packet, Ecn::Ce);
        }
    }
}
