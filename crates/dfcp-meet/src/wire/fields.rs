//! The fields that datagrams are made of, read and written.

use super::{Allowance, MAX_LETTER, Ticket};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Takes fields off the front.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub fn address(&mut self) -> Option<SocketAddr> {
        let ip = Ipv6Addr::from(self.array::<16>()?);
        let port = u16::from_be_bytes(self.array()?);
        Some(SocketAddr::new(IpAddr::from(ip).to_canonical(), port))
    }

    pub fn relay(&mut self) -> Option<Option<Allowance>> {
        let (bytes, seconds) = (self.u64()?, self.u32()?);
        Some((bytes > 0 && seconds > 0).then_some(Allowance { bytes, seconds }))
    }

    pub fn ticket(&mut self) -> Option<Ticket> {
        Some(Ticket {
            address: self.address()?,
            mac: self.array()?,
        })
    }

    pub fn letter(&mut self) -> Option<Vec<u8>> {
        let len = usize::from(u16::from_be_bytes(self.array()?));
        let letter = self.0.get(..len).filter(|_| len <= MAX_LETTER)?;
        self.0 = &self.0[len..];
        Some(letter.to_vec())
    }
}

/// Appends an address, as [`Reader::address`] reads it.
pub(crate) fn put_address(out: &mut Vec<u8>, address: SocketAddr) {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    out.extend(ip.octets());
    out.extend(address.port().to_be_bytes());
}

pub(super) fn put_letter(out: &mut Vec<u8>, letter: &[u8]) {
    let letter = &letter[..letter.len().min(MAX_LETTER)];
    out.extend((letter.len() as u16).to_be_bytes());
    out.extend(letter);
}

pub(super) fn put_ticket(out: &mut Vec<u8>, ticket: &Ticket) {
    put_address(out, ticket.address);
    out.extend(ticket.mac);
}

pub(super) fn put_relay(out: &mut Vec<u8>, relay: Option<Allowance>) {
    let Allowance { bytes, seconds } = relay.unwrap_or(Allowance {
        bytes: 0,
        seconds: 0,
    });
    out.extend(bytes.to_be_bytes());
    out.extend(seconds.to_be_bytes());
}
