//! What programs at the local port of a proxy say, and what the other side of its streams does.

#[path = "live.rs"]
mod live;

use bytes::Bytes;
use dfcp_proxy::parse::{self, Asked};
use dfcp_proxy::{Host, Packet, Target};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Longest head of a request of HTTP, and what comes with one read. All other requests are shorter.
const LONGEST_HEAD: usize = 16 << 10;
const READ: usize = 4096;
/// What a parser holds: what was said, a buffer that doubles, its answer; a long datagram.
const MAY_HOLD: usize = 4 * (LONGEST_HEAD + READ) + (1 << 17);
/// What follows an input that goes on for ever, in effect.
const MORE: usize = 1 << 16;

/// A program that says these bytes, a piece at a time, and then leaves; what it hears.
struct Program<'a> {
    said: &'a [u8],
    /// Lengths of the pieces, less one, in turn.
    pieces: &'a [u8],
    at: usize,
    turn: usize,
    /// Zeros that it says then.
    more: usize,
    heard: Vec<u8>,
}

impl<'a> Program<'a> {
    fn new(said: &'a [u8], pieces: &'a [u8], more: usize) -> Self {
        Self {
            said,
            pieces,
            at: 0,
            turn: 0,
            more,
            heard: Vec::new(),
        }
    }
}

impl AsyncRead for Program<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let piece = match self.pieces.len() {
            0 => READ,
            len => usize::from(self.pieces[self.turn % len]) + 1,
        };
        self.turn += 1;
        let most = piece.min(buffer.remaining());
        let here = self.said.len().saturating_sub(self.at).min(most);
        buffer.put_slice(&self.said[self.said.len().min(self.at)..][..here]);
        let end = self.said.len() + self.more;
        let zeros = (end - self.at - here).min(READ.min(buffer.remaining()));
        let zeros = if here == 0 { zeros } else { 0 };
        buffer.put_slice(&vec![b'0'; zeros]);
        self.at += here + zeros;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Program<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.heard.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The result of a future that waits for nothing but its program.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it waits for something else"),
    }
}

/// What became of a program.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// For whom it wants a connection, and the bytes that it took to say that.
    Connection(Target, usize),
    Requests,
    Datagrams,
    Mistake(Vec<u8>),
}

/// Reads what a program asks for; what is left over is the end of what it said.
fn program(said: &[u8], pieces: &[u8], more: usize) -> (Outcome, Vec<u8>) {
    let mut program = Program::new(said, pieces, more);
    let asked = now(parse::program(&mut program));
    let taken = program.at;
    assert!(
        taken <= said.len().min(LONGEST_HEAD) + LONGEST_HEAD + 3 * READ,
        "{taken} bytes were read"
    );
    let outcome = match asked {
        Ok(Asked::Connection(target, rest)) => {
            check(&target);
            let used = taken - rest.len();
            check_end(said, &target, used);
            let whole = said.iter().copied().chain(std::iter::repeat(b'0'));
            assert!(whole.take(taken).skip(used).eq(rest), "what is left over");
            Outcome::Connection(target, used)
        }
        Ok(Asked::Requests(first)) => {
            assert!(said.starts_with(&first[..first.len().min(said.len())]));
            Outcome::Requests
        }
        Ok(Asked::Datagrams) => Outcome::Datagrams,
        Err(answer) => Outcome::Mistake(answer),
    };
    (outcome, program.heard)
}

/// A target as SOCKS 5 and streams say it; `None` for an address that was said as a name.
fn encoded(host: &Target, like: u8) -> Option<Vec<u8>> {
    let (host, payload) = (host.clone(), Bytes::new());
    let bytes = parse::encode_datagram(&Packet { host, payload }).split_off(3);
    (bytes[0] == like).then_some(bytes)
}

/// A request that was taken is one up to its last byte.
fn check_end(said: &[u8], target: &Target, used: usize) {
    let taken = &said[..used.min(said.len())];
    let is_whole = match said[0] {
        _ if used > said.len() => true,
        // Greeting and head are before it.
        5 => encoded(target, said[said[1] as usize + 5]).is_none_or(|end| taken.ends_with(&end)),
        4 => taken.ends_with(&[0]),
        _ => taken.ends_with(b"\n\n") || taken.ends_with(b"\n\r\n"),
    };
    assert!(is_whole, "{target} after {used} bytes");
}

/// A name is one that goes into logs, requests and resolvers.
fn check(target: &Target) {
    if let Host::Name(name) = &target.host {
        assert!((1..=255).contains(&name.len()), "{name:?}");
        let wrong = |c: char| c.is_control() || c.is_whitespace() || "/:[]".contains(c);
        assert!(!name.contains(wrong), "{name:?}");
    }
}

/// A head that is sent on: lines end in one way only, it ends once, and says once how long its body is.
fn check_head(head: &[u8]) {
    let text = String::from_utf8_lossy(head);
    let lines = text.strip_suffix("\r\n\r\n").expect("an end");
    let lines: Vec<_> = lines.split("\r\n").collect();
    assert!(lines.iter().all(|line| !line.is_empty()), "{text:?}");
    assert!(!lines.concat().contains(['\r', '\n', '\0']), "{text:?}");
    let fields: Vec<_> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.to_ascii_lowercase())
        .collect();
    assert_eq!(fields.len(), lines.len() - 1, "{text:?}");
    let count = |names: &[&str]| {
        fields
            .iter()
            .filter(|f| names.contains(&f.as_str()))
            .count()
    };
    assert!(
        count(&["content-length", "transfer-encoding"]) <= 1,
        "{text:?}"
    );
    assert_eq!(count(&["host"]), 1, "{text:?}");
    assert!(
        count(&["proxy-connection", "proxy-authorization"]) == 0,
        "{text:?}"
    );
}

/// Any bytes to each of the parsers: what is read does not depend on the pieces that it came in, is what
/// its encoding says, and takes no more than a request may have.
pub fn parsers(data: &[u8]) {
    let (&[which, count], data) = data.split_first_chunk().unwrap_or((&[0; 2], &[]));
    let (pieces, said) = data.split_at(data.len().min(usize::from(count % 16)));
    let watch = live::Watch::allow(MAY_HOLD + 4 * data.len());
    match which % 6 {
        0 | 1 => {
            let more = if which & 8 == 0 { 0 } else { MORE };
            let whole = program(said, &[], more);
            let split = program(said, pieces, more);
            assert_eq!(whole, split, "in pieces");
        }
        2 => {
            let mut program = Program::new(said, pieces, 0);
            if let Ok(again) = now(parse::request(&mut program)) {
                let kind = if said[0] == 1 { 1 } else { 5 };
                // An address that was said as a name is one.
                if again.get(kind) == said.get(kind) {
                    assert_eq!(again, said[..program.at], "a request");
                }
            }
        }
        3 => {
            let mut program = Program::new(said, pieces, 0);
            if let Err(refusal) = now(parse::answer(&mut program)) {
                assert!(!refusal.message.contains(char::is_control), "{refusal:?}");
            }
            let mut program = Program::new(said, pieces, 0);
            while let Ok(datagram) = now(parse::long_datagram(&mut program)) {
                let from = program.at - datagram.len();
                assert_eq!(datagram, said[from..program.at]);
            }
        }
        4 => {
            if let Some(packet) = parse::datagram(Bytes::copy_from_slice(said)) {
                check(&packet.host);
                if let Some(host) = encoded(&packet.host, said[3]) {
                    assert_eq!([&[0; 3], &host[..], &packet.payload].concat(), said);
                }
            }
        }
        _ => {
            if let Ok(Some(request)) = parse::url(said) {
                assert!(request.length <= said.len());
                check(&request.target);
                check_head(&request.head);
            }
        }
    }
    watch.check();
}
