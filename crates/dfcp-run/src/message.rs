//! Messages as programs give them to `sendmsg` and get them from `recvmsg`: `struct msghdr`, of 64 bits.

use std::io;

use crate::process;
use crate::sys::{Call, Received};

/// Sizes of `struct msghdr` and `struct mmsghdr`; the latter has the former, and a length behind it.
const HEADER: usize = 56;
pub(crate) const ONE_OF_MANY: u64 = 64;

/// As many messages, and parts of one, as the kernel takes at once (UIO_MAXIOV).
const MOST: u64 = 1024;

/// Longest message of UDP, with some more.
const LONGEST: usize = 65_536;

/// As much as programs may say beside a message by default (net.core.optmem_max).
const LONGEST_CONTROL: u64 = 131_072;

/// Where the parts of a message are, in the memory of a program.
#[derive(Debug)]
pub(crate) struct Message {
    /// Where the address is, with its length, or the room for it.
    pub name: (u64, u32),
    parts: Vec<(u64, usize)>,
    control: (u64, usize),
    /// Where the header is, to be filled in; for `recvfrom` the address of the address' length.
    results: Results,
}

#[derive(Clone, Copy, Debug)]
enum Results {
    Header(u64),
    Length(u64),
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let word = bytes[at..].first_chunk();
    word.map_or(0, |word| u64::from_ne_bytes(*word))
}

impl Message {
    /// Of `sendto` and `recvfrom`; at receiving the length of the address is to be found at `len`.
    pub fn of_arguments(call: &Call, is_received: bool) -> io::Result<Self> {
        let [_, at, size, _, name, len] = call.arguments;
        let room = match is_received {
            true => word(
                &[process::read(call.thread, len, 4)?, vec![0; 4]].concat(),
                0,
            ),
            false => len,
        };
        Ok(Self {
            name: (name, room as u32),
            parts: vec![(at, size as usize)],
            control: (0, 0),
            results: Results::Length(len),
        })
    }

    /// Of the header at an address.
    pub fn of_header(call: &Call, at: u64) -> io::Result<Self> {
        let header = process::read(call.thread, at, HEADER)?;
        let (parts_at, count) = (word(&header, 16), word(&header, 24));
        let control = match word(&header, 32) {
            0 => (0, 0),
            at => (at, word(&header, 40).min(LONGEST_CONTROL) as usize),
        };
        if count > MOST {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        let parts = process::read(call.thread, parts_at, count as usize * 16)?;
        Ok(Self {
            name: (word(&header, 0), word(&header, 8) as u32),
            parts: parts
                .chunks_exact(16)
                .map(|part| (word(part, 0), word(part, 8) as usize))
                .collect(),
            control,
            results: Results::Header(at),
        })
    }

    /// Where the headers of several are, by the arguments of `sendmmsg` or `recvmmsg`.
    pub fn many(call: &Call) -> impl Iterator<Item = u64> {
        let [_, at, count, ..] = call.arguments;
        let count = u64::from(count as u32).min(MOST);
        (0..count).map(move |n| at.wrapping_add(n * ONE_OF_MANY))
    }

    /// Notes how much was sent or received of one of several.
    pub fn note_length(call: &Call, at: u64, len: usize) -> io::Result<()> {
        let len = (len as u32).to_ne_bytes();
        process::write(call.thread, at.wrapping_add(HEADER as u64), &len)
    }

    /// The bytes of the address.
    pub fn address(&self, call: &Call) -> io::Result<Vec<u8>> {
        let (at, len) = self.name;
        match at == 0 || len as usize > crate::address::MAX_LEN {
            true => Ok(Vec::new()),
            false => process::read(call.thread, at, len as usize),
        }
    }

    /// How much it holds.
    pub fn len(&self) -> usize {
        let len: usize = self
            .parts
            .iter()
            .fold(0, |sum, (_, len)| sum.saturating_add(*len));
        len.min(LONGEST)
    }

    pub fn control_len(&self) -> usize {
        self.control.1
    }

    /// What is to be sent.
    pub fn payload(&self, call: &Call) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        for (at, len) in &self.parts {
            // Whatever a program writes there.
            if *len > LONGEST - out.len() {
                return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
            }
            out.extend(process::read(call.thread, *at, *len)?);
        }
        Ok(out)
    }

    /// What is said beside it.
    pub fn control(&self, call: &Call) -> io::Result<Vec<u8>> {
        match self.control {
            (_, 0) => Ok(Vec::new()),
            (at, len) => process::read(call.thread, at, len),
        }
    }

    /// Gives the program what came, with an address.
    pub fn fill(&self, call: &Call, came: &Received, name: &[u8]) -> io::Result<()> {
        let mut rest = &came.payload[..];
        for (at, len) in &self.parts {
            let part;
            (part, rest) = rest.split_at(rest.len().min(*len));
            if !part.is_empty() {
                process::write(call.thread, *at, part)?;
            }
        }
        let (name_at, room) = self.name;
        if name_at != 0 {
            let fits = name.len().min(room as usize);
            process::write(call.thread, name_at, &name[..fits])?;
        }
        let name_len = (name.len() as u32).to_ne_bytes();
        match self.results {
            Results::Length(at) if name_at != 0 => process::write(call.thread, at, &name_len),
            Results::Length(_) => Ok(()),
            Results::Header(at) => {
                if name_at != 0 {
                    process::write(call.thread, at + 8, &name_len)?;
                }
                if !came.control.is_empty() {
                    process::write(call.thread, self.control.0, &came.control)?;
                }
                let control_len = (came.control.len() as u64).to_ne_bytes();
                process::write(call.thread, at + 40, &control_len)?;
                process::write(call.thread, at + 48, &came.flags.to_ne_bytes())
            }
        }
    }
}

/// What may go with a message whose host is another than the program knows: not from which of its addresses
/// and links it leaves.
pub(crate) fn portable(control: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), control);
    // `struct cmsghdr`: the length with this head, the level, the type; the next begins at a multiple of 8.
    while rest.len() >= 16 {
        let len = word(rest, 0) as usize;
        let number = |at: usize| {
            let bytes = rest[at..].first_chunk();
            bytes.map_or(0, |bytes| i32::from_ne_bytes(*bytes))
        };
        let next = len.saturating_add(7) / 8 * 8;
        if len < 16 || len > rest.len() {
            break;
        }
        let is_local = matches!(
            (number(8), number(12)),
            (libc::IPPROTO_IP, libc::IP_PKTINFO) | (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO)
        );
        let end = next.min(rest.len());
        if !is_local {
            out.extend(&rest[..end]);
            out.resize(out.len().next_multiple_of(8), 0);
        }
        rest = &rest[end..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(level: i32, kind: i32, what: &[u8]) -> Vec<u8> {
        let mut out = (16 + what.len() as u64).to_ne_bytes().to_vec();
        out.extend(level.to_ne_bytes());
        out.extend(kind.to_ne_bytes());
        out.extend(what);
        out.resize(out.len().next_multiple_of(8), 0);
        out
    }

    /// A sum of lengths that is none would end all programs' connections.
    #[test]
    fn lengths_that_no_message_has_are_refused() {
        let (bytes, own) = ([7_u8; 8], std::process::id() as i32);
        let at = bytes.as_ptr() as u64;
        let call = Call {
            id: 0,
            thread: own,
            number: libc::SYS_sendmsg,
            arguments: [0; 6],
        };
        for (len, is_sent) in [(4, true), (LONGEST, false), (usize::MAX, false)] {
            let message = Message {
                name: (0, 0),
                parts: vec![(at, 4), (at + 4, len)],
                control: (0, 0),
                results: Results::Header(0),
            };
            assert!(message.len() <= LONGEST);
            match message.payload(&call) {
                Ok(payload) => assert!(is_sent && payload == bytes),
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE), "{len}"),
            }
        }
    }

    #[test]
    fn which_address_a_message_leaves_from_is_not_said_elsewhere() {
        let own = said(libc::IPPROTO_IP, libc::IP_PKTINFO, &[7; 12]);
        let segments = said(
            libc::IPPROTO_UDP,
            libc::UDP_SEGMENT,
            &1200_u16.to_ne_bytes(),
        );
        let service = said(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &[2, 0, 0, 0]);
        let all = [&segments[..], &own, &service].concat();
        assert_eq!(portable(&all), [&segments[..], &service].concat());
        assert_eq!(portable(&own), []);
        // What is no message ends it, and never panics.
        for short in 0..all.len() {
            let kept = portable(&all[..short]);
            assert!(kept.len() <= all.len());
        }
        let mut endless = said(1, 2, &[]);
        endless[..8].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert_eq!(portable(&endless), []);
        endless[..8].fill(0);
        assert_eq!(portable(&endless), []);
    }
}
