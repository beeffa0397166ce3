//! IP packets, as far as a link looks into them: addresses, the flow, ECN, the MSS of TCP's SYN.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Header of IPv4 without options, and of IPv6.
const V4_HEAD: usize = 20;
const V6_HEAD: usize = 40;
/// Of TCP without options.
const TCP_HEAD: usize = 20;

/// What a packet's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Where it is from.
    pub source: IpAddr,
    /// Where it goes.
    pub destination: IpAddr,
    protocol: u8,
    /// Where the transport's header begins; `None` in later fragments, and behind extension headers.
    transport: Option<usize>,
}

/// The header of a packet that is as long as it says; `None` if it is none.
pub fn parse(packet: &[u8]) -> Option<Header> {
    match packet.first()? >> 4 {
        4 => parse_v4(packet),
        6 => parse_v6(packet),
        _ => None,
    }
}

/// Why a peer's packet is not for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is no packet.
    Malformed,
    /// It is from an address that the peer does not have.
    Forbidden,
}

/// What the kernel gets of a peer's packet: the same, where `may_be_from` says so of its source, with the MSS
/// of a SYN [lowered](Header::clamp_mss).
///
/// # Errors
/// Why it gets nothing.
pub fn admit(
    packet: &[u8],
    mtu: impl FnOnce() -> usize,
    may_be_from: impl FnOnce(IpAddr) -> bool,
) -> Result<Cow<'_, [u8]>, Refused> {
    let header = parse(packet).ok_or(Refused::Malformed)?;
    if !may_be_from(header.source) {
        return Err(Refused::Forbidden);
    }
    let mut packet = Cow::Borrowed(packet);
    if header.is_syn(&packet) {
        header.clamp_mss(packet.to_mut(), mtu());
    }
    Ok(packet)
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn parse_v4(packet: &[u8]) -> Option<Header> {
    let head = usize::from(packet[0] & 15) * 4;
    if head < V4_HEAD || packet.len() < head || usize::from(word(packet, 2)?) != packet.len() {
        return None;
    }
    let address = |at: usize| -> Option<IpAddr> {
        let octets: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
        Some(Ipv4Addr::from(octets).into())
    };
    let is_first = word(packet, 6)? & 0x1fff == 0;
    Some(Header {
        source: address(12)?,
        destination: address(16)?,
        protocol: packet[9],
        transport: is_first.then_some(head),
    })
}

fn parse_v6(packet: &[u8]) -> Option<Header> {
    if packet.len() < V6_HEAD || V6_HEAD + usize::from(word(packet, 4)?) != packet.len() {
        return None;
    }
    let address = |at: usize| -> Option<IpAddr> {
        let octets: [u8; 16] = packet.get(at..at + 16)?.try_into().ok()?;
        Some(Ipv6Addr::from(octets).into())
    };
    Some(Header {
        source: address(8)?,
        destination: address(24)?,
        protocol: packet[6],
        transport: Some(V6_HEAD),
    })
}

impl Header {
    /// Ports of TCP and UDP; zeros of anything else.
    pub fn ports(&self, packet: &[u8]) -> [u8; 4] {
        let ports = match (self.protocol, self.transport) {
            (TCP | UDP, Some(at)) => packet.get(at..at + 4),
            _ => None,
        };
        ports
            .and_then(|ports| ports.try_into().ok())
            .unwrap_or([0; 4])
    }

    /// The transport's number.
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Whether [`Header::clamp_mss`] may have something to do.
    pub fn is_syn(&self, packet: &[u8]) -> bool {
        const SYN: u8 = 2;
        let flags = self.transport.and_then(|tcp| packet.get(tcp + 13));
        self.protocol == TCP && flags.is_some_and(|flags| flags & SYN != 0)
    }

    /// Lowers the MSS that a SYN of TCP announces to what packets of `mtu` bytes hold (RFC 9293 §3.7.1):
    /// hosts behind a link do not know its MTU, and the ICMP that would tell them is often filtered.
    pub fn clamp_mss(&self, packet: &mut [u8], mtu: usize) {
        const END: u8 = 0;
        const NO_OPERATION: u8 = 1;
        const MSS: u8 = 2;
        let Some(tcp) = self.transport.filter(|_| self.is_syn(packet)) else {
            return;
        };
        let offset = packet[tcp + 12];
        let ip = if self.source.is_ipv4() {
            V4_HEAD
        } else {
            V6_HEAD
        };
        let most = mtu.saturating_sub(ip + TCP_HEAD).min(usize::from(u16::MAX)) as u16;
        let end = packet.len().min(tcp + usize::from(offset >> 4) * 4);
        let mut at = tcp + TCP_HEAD;
        while at < end {
            let (kind, len) = (packet[at], packet.get(at + 1).copied().unwrap_or(0));
            match kind {
                END => return,
                NO_OPERATION => at += 1,
                MSS if len == 4 && at + 4 <= end => {
                    if word(packet, at + 2).is_some_and(|mss| mss > most) {
                        replace(packet, tcp, at + 2, most);
                    }
                    return;
                }
                _ if len < 2 => return,
                _ => at += usize::from(len),
            }
        }
    }
}

/// Puts `new` at `at` of the segment of TCP that begins at `tcp`, and follows up its checksum (RFC 1624).
fn replace(packet: &mut [u8], tcp: usize, at: usize, new: u16) {
    let (Some(old), Some(sum)) = (word(packet, at), word(packet, tcp + 16)) else {
        return;
    };
    packet[at..at + 2].copy_from_slice(&new.to_be_bytes());
    // A field at an odd place is in the sum with its bytes swapped.
    let swap = |value: u16| {
        if (at - tcp) % 2 == 1 {
            value.swap_bytes()
        } else {
            value
        }
    };
    let sum = update(sum, swap(old), swap(new));
    packet[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
}

/// The checksum after a word changed from `old` to `new` (RFC 1624, equation 3).
fn update(sum: u16, old: u16, new: u16) -> u16 {
    let mut total = u32::from(!sum) + u32::from(!old) + u32::from(new);
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

/// Marks a packet with Congestion Experienced (RFC 3168) if its transport understands that; whether it
/// does.
pub fn mark(packet: &mut [u8]) -> bool {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) if packet.len() >= V4_HEAD && packet[1] & 3 != 0 => {
            let (Some(old), Some(sum)) = (word(packet, 0), word(packet, 10)) else {
                return false;
            };
            packet[1] |= 3;
            let new = old | 3;
            packet[10..12].copy_from_slice(&update(sum, old, new).to_be_bytes());
            true
        }
        // The traffic class lies across two bytes.
        Some(6) if packet.len() >= V6_HEAD && packet[1] & 0x30 != 0 => {
            packet[1] |= 0x30;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn sum(bytes: &[u8]) -> u16 {
        let mut total: u32 = 0;
        for pair in bytes.chunks(2) {
            total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        }
        while total > 0xffff {
            total = (total & 0xffff) + (total >> 16);
        }
        !(total as u16)
    }

    /// A packet of IPv4 with right checksums of its head.
    pub fn v4(source: [u8; 4], destination: [u8; 4], protocol: u8, body: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; V4_HEAD];
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&((V4_HEAD + body.len()) as u16).to_be_bytes());
        packet[8] = 64;
        packet[9] = protocol;
        packet[12..16].copy_from_slice(&source);
        packet[16..20].copy_from_slice(&destination);
        let check = sum(&packet);
        packet[10..12].copy_from_slice(&check.to_be_bytes());
        packet.extend_from_slice(body);
        packet
    }

    fn v6(protocol: u8, body: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; V6_HEAD];
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&(body.len() as u16).to_be_bytes());
        packet[6] = protocol;
        packet[23] = 1;
        packet[39] = 2;
        packet.extend_from_slice(body);
        packet
    }

    fn tcp(flags: u8, options: &[u8]) -> Vec<u8> {
        let mut segment = vec![0; TCP_HEAD];
        segment[..4].copy_from_slice(&[0x12, 0x34, 0, 80]);
        segment[12] = ((TCP_HEAD + options.len()) as u8 / 4) << 4;
        segment[13] = flags;
        segment.extend_from_slice(options);
        segment
    }

    /// A segment's sum; the pseudo-header does not change and is left out.
    fn with_sum(mut segment: Vec<u8>) -> Vec<u8> {
        let check = sum(&segment);
        segment[16..18].copy_from_slice(&check.to_be_bytes());
        segment
    }

    #[test]
    fn lengths_must_be_right() {
        let good = v4(
            [10, 0, 0, 1],
            [10, 0, 0, 2],
            UDP,
            &[0, 53, 1, 2, 0, 8, 0, 0],
        );
        let header = parse(&good).unwrap();
        assert_eq!(header.source.to_string(), "10.0.0.1");
        assert_eq!(header.destination.to_string(), "10.0.0.2");
        assert_eq!(header.ports(&good), [0, 53, 1, 2]);
        let six = v6(UDP, &[0; 8]);
        assert_eq!(parse(&six).unwrap().source.to_string(), "::1");
        for bad in [
            &good[..good.len() - 1],
            &six[..six.len() - 1],
            &good[..19],
            &[],
            &[0x45],
            &[0xff; 40],
        ] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
        let mut short_head = good.clone();
        short_head[0] = 0x44;
        assert_eq!(parse(&short_head), None);
        let mut fragment = good;
        fragment[7] = 1;
        assert_eq!(parse(&fragment).unwrap().ports(&fragment), [0; 4]);
    }

    #[test]
    fn the_mss_of_a_syn_is_lowered_and_its_checksum_follows() {
        let mss = [2, 4, 0x05, 0xb4]; // 1460
        for options in [
            [&mss[..], &[1, 3, 3, 7]].concat(),
            [&[1], &mss[..], &[3, 3, 7]].concat(),
        ] {
            for (mut packet, most) in [
                (
                    v4([1; 4], [2; 4], TCP, &with_sum(tcp(2, &options))),
                    1400 - 40,
                ),
                (v6(TCP, &with_sum(tcp(0x12, &options))), 1400 - 60),
            ] {
                let header = parse(&packet).unwrap();
                header.clamp_mss(&mut packet, 1400);
                let at = header.transport.unwrap();
                let place = at + TCP_HEAD + usize::from(options[0] == 1) + 2;
                assert_eq!(word(&packet, place), Some(most));
                assert_eq!(sum(&packet[at..]), 0, "{options:?}");
                let before = packet.clone();
                header.clamp_mss(&mut packet, 1400);
                assert_eq!(packet, before, "it is low enough");
            }
        }
    }

    #[test]
    fn nothing_else_is_touched_whatever_the_options_are() {
        let mss = [2, 4, 0xff, 0xff];
        for segment in [
            tcp(0x10, &mss),
            tcp(2, &[0, 2, 4, 255, 255, 0, 0, 0]),
            tcp(2, &[3, 0, 2, 4]),
            tcp(2, &[3, 1, 2, 4]),
            tcp(2, &[1, 1, 1, 2]),
            tcp(2, &[2, 3, 255, 255]),
            tcp(2, &[254, 255, 2, 4]),
            vec![0; 3],
            vec![2; 14],
            vec![0xff; 21],
        ] {
            let mut packet = v4([1; 4], [2; 4], TCP, &segment);
            let before = packet.clone();
            parse(&packet).unwrap().clamp_mss(&mut packet, 1280);
            assert_eq!(packet, before, "{segment:?}");
        }
    }

    #[test]
    fn marks_keep_the_checksum_right() {
        let mut packet = v4([1; 4], [2; 4], UDP, &[]);
        assert!(!mark(&mut packet), "not capable");
        packet[1] = 2;
        packet[10..12].fill(0);
        let check = sum(&packet);
        packet[10..12].copy_from_slice(&check.to_be_bytes());
        assert!(mark(&mut packet));
        assert_eq!((packet[1], sum(&packet)), (3, 0));
        let mut six = v6(UDP, &[]);
        assert!(!mark(&mut six));
        six[1] |= 0x10;
        assert!(mark(&mut six));
        assert_eq!(six[1], 0x30);
        for short in [&mut [0x45, 3][..], &mut [0x60, 0x30], &mut []] {
            assert!(!mark(short));
        }
    }
}
