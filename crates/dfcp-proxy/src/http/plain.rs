//! Requests of plain HTTP through the local port: `GET http://host/path`, as browsers and package managers
//! send them for URLs without TLS. One connection of a program may ask for one thing after the other, of
//! several hosts; each answer has ended before the next request is read on.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dfcp::{RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::message::{self, Body, Request, Response, Wrong};
use super::{CONNECT, MAX_HEAD, response};
use crate::account::{Turn, Way};
use crate::client::Client;
use crate::event::Event;
use crate::local::{REQUEST_LIMIT, part};
use crate::relay::{CHUNK, Toll, read_some};
use crate::status::{Refusal, Status};
use crate::target::Target;
use crate::traffic::Kind;
use crate::wire::{RESET, Tunnel};

/// How long a program's connection is kept between requests: browsers keep theirs for a minute or more,
/// and who waits costs a socket.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// Longest head of an answer, bytes: cookies may take more than requests do.
const MAX_ANSWER_HEAD: usize = 64 << 10;
/// Longest line that tells the length of a chunk, with extensions, which are dropped.
const MAX_CHUNK_LINE: usize = 4096;
/// Bytes of trailers that are read, and dropped.
const MAX_TRAILERS: usize = 16 << 10;

/// How an exchange went.
enum Ended {
    /// A further request may come.
    Whole,
    /// All was said, and the connection ends by that.
    Last,
}

/// Why it went wrong.
enum Fault {
    /// What the program asks is wrong, and it is told so.
    Asked(Wrong),
    /// The host could not be asked, or gave no answer; the program is told, who has nothing of one yet.
    Refused(Target, Refusal),
    /// It cannot be told: its connection breaks, so that half of an answer is not taken for one.
    Broken,
}

impl From<io::Error> for Fault {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

/// Which side ended a body before its time.
enum Cut {
    From,
    To,
}

impl From<Cut> for Fault {
    fn from(_: Cut) -> Self {
        Self::Broken
    }
}

/// What a program says next.
enum Next {
    Request(Box<Request>),
    /// It wants a connection (CONNECT), and asks no more after that.
    Connect,
    Nothing,
}

/// What a program or a host has said, and nobody has read yet.
struct Reader<R> {
    from: R,
    bytes: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Waits for more; false at the end.
    async fn more(&mut self) -> io::Result<bool> {
        if self.bytes.is_empty() {
            // Whoever waits for the next message holds no buffer.
            self.bytes = Vec::new();
            self.bytes = read_some(&mut self.from, CHUNK).await?;
            return Ok(!self.bytes.is_empty());
        }
        Ok(self.from.read_buf(&mut self.bytes).await? > 0)
    }

    /// The next bytes, `most` of them.
    async fn some(&mut self, most: u64) -> io::Result<Vec<u8>> {
        if self.bytes.is_empty() && !self.more().await? {
            return Ok(Vec::new());
        }
        let most = usize::try_from(most)
            .unwrap_or(usize::MAX)
            .min(self.bytes.len());
        let rest = self.bytes.split_off(most);
        Ok(std::mem::replace(&mut self.bytes, rest))
    }

    /// A line without its end, `most` bytes long.
    async fn line(&mut self, most: usize) -> io::Result<Vec<u8>> {
        loop {
            if let Some(at) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.bytes.drain(..=at).collect();
                line.pop();
                return match line.pop() {
                    Some(b'\r') => Ok(line),
                    _ => Err(io::ErrorKind::InvalidData.into()),
                };
            }
            if self.bytes.len() > most {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if !self.more().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// A program: what it says, and where it is answered.
struct Program<R, W> {
    read: Reader<R>,
    write: W,
}

/// A connection to a host, kept for the next request.
struct Upstream {
    target: Target,
    tunnel: Tunnel,
}

/// Serves a program that has begun with `first` to the end of its connection, or until it asks for a
/// connection: then there is what it said.
pub(crate) async fn serve(
    client: &Client,
    mut tcp: TcpStream,
    first: Vec<u8>,
) -> Option<(TcpStream, Vec<u8>)> {
    let _open = client.traffic().open(Kind::Tcp);
    let (mut kept, mut connects) = (None, None);
    let fault = {
        let (from, write) = tcp.split();
        let bytes = first;
        let read = Reader { from, bytes };
        let mut program = Program { read, write };
        let mut limit = REQUEST_LIMIT;
        loop {
            let request = match next_request(&mut program.read, limit).await {
                Ok(Next::Request(request)) => request,
                Ok(Next::Connect) => {
                    connects = Some(std::mem::take(&mut program.read.bytes));
                    break None;
                }
                Ok(Next::Nothing) => break None,
                Err(fault) => break Some(fault),
            };
            match exchange(client, &mut program, &request, &mut kept).await {
                Ok(Ended::Whole) => limit = IDLE_LIMIT,
                Ok(Ended::Last) => break None,
                Err(fault) => break Some(fault),
            }
        }
    };
    if let Some(Upstream { mut tunnel, .. }) = kept {
        tunnel.reset(RESET);
    }
    if let Some(bytes) = connects {
        return Some((tcp, bytes));
    }
    match fault {
        None => part(tcp, &[]).await,
        Some(Fault::Asked(Wrong { status, why })) => {
            client.report(Event::Misled(why.to_owned()));
            part(tcp, &response(status, "", why)).await;
        }
        Some(Fault::Refused(target, refusal)) => {
            let answer = super::answer(Err(&refusal));
            client.failed(target, refusal);
            part(tcp, &answer).await;
        }
        Some(Fault::Broken) => drop(tcp.set_zero_linger()),
    }
    None
}

/// The next request. Its first byte may take `limit`, and all of its head ten seconds.
async fn next_request<R: AsyncRead + Unpin>(
    program: &mut Reader<R>,
    limit: Duration,
) -> Result<Next, Fault> {
    if program.bytes.is_empty() {
        match timeout(limit, program.more()).await {
            Ok(Ok(true)) => {}
            // Who says nothing any more needs no answer.
            Ok(Ok(false)) | Err(_) => return Ok(Next::Nothing),
            Ok(Err(_)) => return Err(Fault::Broken),
        }
    }
    let head = async {
        loop {
            if program.bytes.starts_with(CONNECT) {
                return Ok(Next::Connect);
            }
            // Empty lines before a request are passed over (RFC 9112 §2.2).
            let read = message::request(&program.bytes).map_err(Fault::Asked)?;
            if let Some((request, len)) = read.filter(|(_, len)| *len <= MAX_HEAD) {
                program.bytes.drain(..len);
                return Ok(Next::Request(Box::new(request)));
            }
            if program.bytes.len() > MAX_HEAD {
                return Err(Fault::Asked(Wrong {
                    status: "431 Request Header Fields Too Large",
                    why: "the head of its request is longer than 16 KiB",
                }));
            }
            if !program.more().await? {
                return Err(Fault::Broken);
            }
        }
    };
    let late = Wrong {
        status: "408 Request Timeout",
        why: "it did not say what it wants within 10 s",
    };
    let heard = timeout(REQUEST_LIMIT, head).await;
    heard.unwrap_or(Err(Fault::Asked(late)))
}

/// Carries a request and its answer.
async fn exchange<R, W>(
    client: &Client,
    program: &mut Program<R, W>,
    request: &Request,
    kept: &mut Option<Upstream>,
) -> Result<Ended, Fault>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    // A host that was asked before, and may have ended its connection meanwhile.
    if let Some(mut upstream) = kept.take() {
        if upstream.target == request.target && request.may_repeat {
            let asked = ask(client, program, request, &mut upstream.tunnel).await;
            // Where nothing of an answer came it is asked again.
            if let Some(ended) = settle(asked, upstream, kept)? {
                return Ok(ended);
            }
        } else {
            upstream.tunnel.reset(RESET);
        }
    }
    let refused = |refusal| Fault::Refused(request.target.clone(), refusal);
    let tunnel = client.connect(&request.target).await.map_err(refused)?;
    let target = request.target.clone();
    client.report(Event::Opened(target.clone()));
    let mut upstream = Upstream { target, tunnel };
    let asked = ask(client, program, request, &mut upstream.tunnel).await;
    let silent = || Refusal::new(Status::Failed, "the host ended without an answer");
    settle(asked, upstream, kept)?.ok_or_else(|| refused(silent()))
}

/// Keeps a connection that may be asked more, and ends others.
fn settle(
    asked: Result<Option<(Ended, bool)>, Fault>,
    mut upstream: Upstream,
    kept: &mut Option<Upstream>,
) -> Result<Option<Ended>, Fault> {
    match asked {
        Ok(Some((ended, true))) => {
            *kept = Some(upstream);
            Ok(Some(ended))
        }
        ended => {
            upstream.tunnel.reset(RESET);
            Ok(ended?.map(|(ended, _)| ended))
        }
    }
}

/// Asks, and passes the answer on: how it ended, and whether the host may be asked more. `None` where the
/// host ended before it said anything.
async fn ask<R, W>(
    client: &Client,
    program: &mut Program<R, W>,
    request: &Request,
    tunnel: &mut Tunnel,
) -> Result<Option<(Ended, bool)>, Fault>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (toll, Program { read, write }) = (client.toll(), program);
    let Tunnel { send, recv, .. } = tunnel;
    let mut host = Reader {
        from: recv,
        bytes: Vec::new(),
    };
    let sent = AtomicBool::new(false);
    let answered = {
        let mut up = pin!(async {
            say(read, send, request, toll).await?;
            sent.store(true, Ordering::Relaxed);
            // A program that breaks its connection wants no answer; one that ends its direction does.
            while read.bytes.len() < CHUNK && read.more().await.map_err(|_| Cut::From)? {}
            Ok::<_, Cut>(())
        });
        let mut down = pin!(hear(&mut host, write, request, toll));
        // An answer may come before all of the request is there, and is the last then.
        tokio::select! {
            answered = &mut down => answered,
            said = &mut up => match said {
                // Why the host takes no more it may say.
                Ok(()) | Err(Cut::To) => down.await,
                Err(Cut::From) => Err(Fault::Broken),
            },
        }
    };
    let sent = sent.into_inner();
    let Some(answer) = answered? else {
        return Ok(None);
    };
    let ended = match request.persists && answer.body != Body::Rest && sent {
        true => Ended::Whole,
        false => Ended::Last,
    };
    // What a host says that nobody asked for is no answer to the next request.
    let persists = answer.persists && sent && host.bytes.is_empty();
    Ok(Some((ended, persists)))
}

/// Passes a request on.
async fn say<R: AsyncRead + Unpin>(
    program: &mut Reader<R>,
    send: &mut SendStream,
    request: &Request,
    toll: Toll<'_>,
) -> Result<(), Cut> {
    pay(toll, Way::Out, request.head.len()).await?;
    write_to(send, &request.head).await?;
    pass(program, send, (request.body, true), (Way::Out, toll)).await
}

/// Passes an answer on; `None` where none came.
async fn hear<W: AsyncWrite + Unpin>(
    host: &mut Reader<&mut RecvStream>,
    write: &mut W,
    request: &Request,
    toll: Toll<'_>,
) -> Result<Option<Response>, Fault> {
    loop {
        let Some(answer) = next_response(host, request).await? else {
            return Ok(None);
        };
        pay(toll, Way::In, answer.head.len()).await?;
        write.write_all(&answer.head).await?;
        if answer.is_interim {
            continue;
        }
        let body = (answer.body, !request.is_old);
        pass(host, write, body, (Way::In, toll)).await?;
        write.flush().await?;
        return Ok(Some(answer));
    }
}

/// The head of an answer; `None` at the end before there was any of it.
async fn next_response(
    host: &mut Reader<&mut RecvStream>,
    request: &Request,
) -> Result<Option<Response>, Fault> {
    loop {
        if !host.bytes.is_empty() {
            let none = |why| {
                let refusal = Refusal::new(Status::Failed, why);
                Fault::Refused(request.target.clone(), refusal)
            };
            let read = message::response(&host.bytes, request);
            let read = read.map_err(|wrong| none(wrong.why))?;
            if let Some((answer, len)) = read {
                host.bytes.drain(..len);
                return Ok(Some(answer));
            }
            if host.bytes.len() > MAX_ANSWER_HEAD {
                return Err(none("the head of the host's answer is longer than 64 KiB"));
            }
        }
        match host.more().await {
            Ok(true) => {}
            _ if host.bytes.is_empty() => return Ok(None),
            _ => return Err(Fault::Broken),
        }
    }
}

async fn pay(toll: Toll<'_>, way: Way, bytes: usize) -> Result<(), Cut> {
    toll.pay(way, bytes, Turn::First).await.map_err(|_| Cut::To)
}

async fn write_to(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), Cut> {
    to.write_all(bytes).await.map_err(|_| Cut::To)
}

/// Passes a body on, with whether one of chunks goes in chunks, or as what it carries.
async fn pass<R, W>(
    from: &mut Reader<R>,
    to: &mut W,
    (body, in_chunks): (Body, bool),
    toll: (Way, Toll<'_>),
) -> Result<(), Cut>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    match body {
        Body::Nothing => Ok(()),
        Body::Bytes(n) => pass_bytes(from, to, n, toll).await,
        Body::Rest => loop {
            let bytes = from.some(u64::MAX).await.map_err(|_| Cut::From)?;
            if bytes.is_empty() {
                return Ok(());
            }
            pay(toll.1, toll.0, bytes.len()).await?;
            write_to(to, &bytes).await?;
        },
        Body::Chunks => {
            while let size @ 1.. = chunk_size(from).await? {
                if in_chunks {
                    write_to(to, format!("{size:x}\r\n").as_bytes()).await?;
                }
                pass_bytes(from, to, size, toll).await?;
                match from.line(2).await {
                    Ok(line) if line.is_empty() => {}
                    _ => return Err(Cut::From),
                }
                if in_chunks {
                    write_to(to, b"\r\n").await?;
                }
            }
            pass_over_trailers(from).await?;
            match in_chunks {
                true => write_to(to, b"0\r\n\r\n").await,
                false => Ok(()),
            }
        }
    }
}

/// How long the next chunk is; the last has nothing.
async fn chunk_size<R: AsyncRead + Unpin>(from: &mut Reader<R>) -> Result<u64, Cut> {
    let mut line = from.line(MAX_CHUNK_LINE).await.map_err(|_| Cut::From)?;
    // A line without digits would be taken for the last chunk: half of a body would look whole.
    if !line.first().is_some_and(u8::is_ascii_hexdigit) {
        return Err(Cut::From);
    }
    line.extend(b"\r\n");
    match httparse::parse_chunk_size(&line) {
        Ok(httparse::Status::Complete((_, size))) => Ok(size),
        _ => Err(Cut::From),
    }
}

/// Trailers are for who asked for them by TE, which was not passed on.
async fn pass_over_trailers<R: AsyncRead + Unpin>(from: &mut Reader<R>) -> Result<(), Cut> {
    let mut trailers = 0;
    loop {
        let line = from.line(MAX_CHUNK_LINE).await.map_err(|_| Cut::From)?;
        trailers += line.len();
        match line.is_empty() {
            true => return Ok(()),
            false if trailers > MAX_TRAILERS => return Err(Cut::From),
            false => {}
        }
    }
}

async fn pass_bytes<R, W>(
    from: &mut Reader<R>,
    to: &mut W,
    mut left: u64,
    (way, toll): (Way, Toll<'_>),
) -> Result<(), Cut>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    while left > 0 {
        let bytes = from.some(left).await.map_err(|_| Cut::From)?;
        if bytes.is_empty() {
            return Err(Cut::From);
        }
        left -= bytes.len() as u64;
        pay(toll, way, bytes.len()).await?;
        write_to(to, &bytes).await?;
    }
    Ok(())
}
