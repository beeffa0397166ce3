//! How what comes from outside is read, for the fuzz target. No part of the interface.

use std::io;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::http;
use crate::local::{self, Inbox};
use crate::socks;
use crate::status::Refusal;
use crate::target::Target;
use crate::udp::{self, Packet};
use crate::wire;

/// What a program at the local port asks for.
#[derive(Debug)]
pub enum Asked {
    /// A connection; what it said after that already.
    Connection(Target, Vec<u8>),
    /// URLs; what it said so far.
    Requests(Vec<u8>),
    /// To send datagrams.
    Datagrams,
}

/// Reads what a program asks for: SOCKS 5, SOCKS 4 or HTTP.
///
/// # Errors
/// What the program hears at last, where it asks for nothing that there is.
pub async fn program(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin + Send),
) -> Result<Asked, Vec<u8>> {
    let mut inbox = Inbox::new(stream, Vec::new());
    match local::listen(&mut inbox).await {
        Ok(local::Asked::Connection(wish)) => Ok(Asked::Connection(wish.target, wish.rest)),
        Ok(local::Asked::Requests(said)) => Ok(Asked::Requests(said)),
        Ok(local::Asked::Datagrams) => Ok(Asked::Datagrams),
        Err(mistake) => Err(mistake.answer),
    }
}

/// The head of a request for a URL.
#[derive(Debug)]
pub struct Head {
    /// Whom it is for.
    pub target: Target,
    /// What is sent there.
    pub head: Vec<u8>,
    /// Bytes that it took.
    pub length: usize,
}

/// Reads the head of a request for a URL, if all of it is there.
///
/// # Errors
/// It is none.
pub fn url(bytes: &[u8]) -> Result<Option<Head>, &'static str> {
    let read = http::request(bytes).map_err(|wrong| wrong.why)?;
    Ok(read.map(|(request, length)| Head {
        target: request.target,
        head: request.head,
        length,
    }))
}

/// Reads what a stream is for, and gives the bytes that say it.
///
/// # Errors
/// It is for nothing.
pub async fn request(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let request = wire::Request::read(from).await?;
    Ok(request.encode())
}

/// Reads the answer to that.
///
/// # Errors
/// The other side refuses, or says nothing that it could.
pub async fn answer(from: &mut (impl AsyncRead + Unpin)) -> Result<(), Refusal> {
    wire::hear_answer(from).await
}

/// Reads a datagram of a program (RFC 1928 §7).
pub fn datagram(bytes: Bytes) -> Option<Packet> {
    socks::datagram(bytes)
}

/// What [`datagram`] reads.
pub fn encode_datagram(packet: &Packet) -> Vec<u8> {
    socks::encode_datagram(packet)
}

/// Reads a datagram that came over an association's stream.
///
/// # Errors
/// The stream ends before.
pub async fn long_datagram(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Bytes> {
    udp::read_long(from).await
}
