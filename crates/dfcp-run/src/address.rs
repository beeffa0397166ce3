//! Addresses as programs give and get them: `struct sockaddr`.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

/// Longest `struct sockaddr` that there is: `sockaddr_storage`.
pub(crate) const MAX_LEN: usize = 128;

/// What a program connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// An address of the internet protocols.
    Ip(SocketAddr),
    /// A path, of a socket of this machine.
    Path(Vec<u8>),
    /// None: a socket is to be connected no more.
    Nobody,
    /// Something else.
    Other,
}

/// Reads what a program gave.
pub(crate) fn decode(bytes: &[u8]) -> Peer {
    let Some((family, rest)) = bytes.split_first_chunk() else {
        return Peer::Other;
    };
    let family = i32::from(u16::from_ne_bytes(*family));
    let read = || match family {
        libc::AF_INET => {
            let (port, rest) = rest.split_first_chunk()?;
            let ip: &[u8; 4] = rest.first_chunk()?;
            let at = SocketAddr::from((*ip, u16::from_be_bytes(*port)));
            (bytes.len() >= 16).then_some(Peer::Ip(at))
        }
        libc::AF_INET6 => {
            let (port, rest) = rest.split_first_chunk()?;
            let (flow, rest) = rest.split_first_chunk()?;
            let (ip, rest) = rest.split_first_chunk::<16>()?;
            // The kernel takes addresses without a scope (RFC 2133).
            let scope = rest.first_chunk().map_or(0, |id| u32::from_ne_bytes(*id));
            Some(Peer::Ip(
                SocketAddrV6::new(
                    Ipv6Addr::from(*ip),
                    u16::from_be_bytes(*port),
                    u32::from_be_bytes(*flow),
                    scope,
                )
                .into(),
            ))
        }
        libc::AF_UNIX => {
            let path = rest.split(|byte| *byte == 0).next()?;
            Some(Peer::Path(path.to_vec()))
        }
        libc::AF_UNSPEC => Some(Peer::Nobody),
        _ => None,
    };
    read().unwrap_or(Peer::Other)
}

/// The address that is meant where one of IPv6 stands for one of IPv4.
pub(crate) fn canonical(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

/// What [`decode`] reads.
pub(crate) fn encode(at: SocketAddr) -> Vec<u8> {
    let mut out = Vec::with_capacity(28);
    let family = match at {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    out.extend((family as u16).to_ne_bytes());
    out.extend(at.port().to_be_bytes());
    match at {
        SocketAddr::V4(at) => {
            out.extend(at.ip().octets());
            out.extend([0; 8]);
        }
        SocketAddr::V6(at) => {
            out.extend(at.flowinfo().to_be_bytes());
            out.extend(at.ip().octets());
            out.extend(at.scope_id().to_ne_bytes());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written_and_parts_of_them_are_none() {
        for text in ["10.1.2.3:80", "[2001:db8::1]:443", "[::ffff:10.0.0.1]:1"] {
            let at: SocketAddr = text.parse().unwrap();
            let bytes = encode(at);
            assert_eq!(decode(&bytes), Peer::Ip(at));
            for len in 0..bytes.len() {
                let part = decode(&bytes[..len]);
                // Without the scope it is one.
                let whole = at.is_ipv6() && len >= 24;
                assert_eq!(part == Peer::Ip(at), whole, "{text} {len}");
            }
        }
        let mut path = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
        path.extend(b"/run/x\0junk");
        assert_eq!(decode(&path), Peer::Path(b"/run/x".to_vec()));
        assert_eq!(decode(&[0; 16]), Peer::Nobody);
        assert_eq!(
            canonical("[::ffff:10.0.0.1]:1".parse().unwrap()),
            "10.0.0.1:1".parse().unwrap()
        );
    }
}
