//! Requests of plain HTTP through the local port: `GET http://host/path`, as browsers and package managers
//! send them for URLs without TLS. One connection of a program may ask for one thing after the other, of
//! several hosts; each answer has ended before the next request is read on.

mod body;

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use dfcp::{RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::message::{self, Request, Response, Wrong};
use super::{CONNECT, MAX_HEAD, end_of_head, response};
use crate::account::Way;
use crate::client::Client;
use crate::event::Event;
use crate::local::{REQUEST_LIMIT, part};
use crate::relay::{CHUNK, Toll, read_some};
use crate::status::{Refusal, Status};
use crate::target::Target;
use crate::traffic::Kind;
use crate::wire::{RESET, Tunnel};
use body::{Cut, pass, pay, write_to};

/// How long a program's connection is kept between requests: browsers keep theirs for a minute or more,
/// and who waits costs a socket.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// Longest head of an answer, bytes: cookies may take more than requests do.
const MAX_ANSWER_HEAD: usize = 64 << 10;
/// How long the head of an answer may take from its first byte on: it may be lost several times on the way to
/// the server, where each repeat of TCP's waits twice as long as the one before (1, 3, 7 and 15 s).
const ANSWER_HEAD_LIMIT: Duration = Duration::from_secs(30);
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
struct Reader<'a, R> {
    from: R,
    bytes: BytesMut,
    /// Whether whoever waits for it has said its last, and perhaps left: then a long silence is the end.
    impatient: Option<&'a AtomicBool>,
}

impl<R: AsyncRead + Unpin> Reader<'_, R> {
    /// Waits for more; false at the end.
    async fn more(&mut self) -> io::Result<bool> {
        loop {
            match timeout(IDLE_LIMIT, self.read()).await {
                Ok(read) => return read,
                Err(late) => {
                    if self.impatient.is_some_and(|is| is.load(Ordering::Relaxed)) {
                        return Err(late.into());
                    }
                }
            }
        }
    }

    /// The same; may be cancelled.
    async fn read(&mut self) -> io::Result<bool> {
        if self.bytes.is_empty() {
            // Whoever waits for the next message holds no buffer.
            self.bytes = BytesMut::new();
            let read = read_some(&mut self.from, CHUNK).await?;
            // Nobody else has a part of it: it is not copied.
            self.bytes = Bytes::from(read).into();
            return Ok(!self.bytes.is_empty());
        }
        Ok(self.from.read_buf(&mut self.bytes).await? > 0)
    }

    /// The next bytes, `most` of them.
    async fn some(&mut self, most: u64) -> io::Result<Bytes> {
        if self.bytes.is_empty() && !self.more().await? {
            return Ok(Bytes::new());
        }
        let most = usize::try_from(most)
            .unwrap_or(usize::MAX)
            .min(self.bytes.len());
        Ok(self.bytes.split_to(most).freeze())
    }

    /// A line without its end, `most` bytes long.
    async fn line(&mut self, most: usize) -> io::Result<BytesMut> {
        let mut seen = 0;
        loop {
            let end = self.bytes[seen..].iter().position(|byte| *byte == b'\n');
            if let Some(at) = end {
                let mut line = self.bytes.split_to(seen + at + 1);
                if !line.ends_with(b"\r\n") {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                line.truncate(line.len() - 2);
                return Ok(line);
            }
            seen = self.bytes.len();
            if seen > most {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if !self.more().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Reads the head of a message, which has `most` bytes at most and is known by `parse`; `None` at the end
    /// before there was any of it.
    async fn head<T>(
        &mut self,
        most: usize,
        parse: impl Fn(&[u8]) -> message::Read<T>,
    ) -> Result<Option<T>, Unread> {
        // What has come is looked through once for an end; all of it is read again only where there is one, or
        // it has doubled: then what is no head at all is known early.
        let (mut seen, mut parsed) = (0, 0);
        loop {
            self.skip_empty_lines();
            let len = self.bytes.len();
            let from = usize::min(seen, len).saturating_sub(2);
            if len >= 2 * parsed || end_of_head(&self.bytes[from..]).is_some() {
                if let Some((head, len)) = parse(&self.bytes).map_err(Unread::Wrong)?
                    && len <= most
                {
                    self.bytes.advance(len);
                    return Ok(Some(head));
                }
                parsed = len;
            }
            seen = len;
            if len > most {
                return Err(Unread::TooLong);
            }
            match self.more().await {
                Ok(true) => {}
                Ok(false) if self.bytes.is_empty() => return Ok(None),
                _ => return Err(Unread::Cut),
            }
        }
    }

    /// Empty lines before a message are passed over (RFC 9112 §2.2).
    fn skip_empty_lines(&mut self) {
        while self.bytes.starts_with(b"\r\n") || self.bytes.starts_with(b"\n") {
            let len = 1 + usize::from(self.bytes[0] == b'\r');
            self.bytes.advance(len);
        }
    }
}

/// Why there is no head.
enum Unread {
    Wrong(Wrong),
    TooLong,
    /// The connection ended in it, or broke.
    Cut,
}

/// A program: what it says, and where it is answered.
struct Program<'a, R, W> {
    read: Reader<'a, R>,
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
        let bytes = BytesMut::from(&first[..]);
        drop(first);
        let impatient = None;
        let read = Reader {
            from,
            bytes,
            impatient,
        };
        let mut program = Program { read, write };
        let mut limit = REQUEST_LIMIT;
        loop {
            let request = match next_request(&mut program.read, limit).await {
                Ok(Next::Request(request)) => request,
                Ok(Next::Connect) => {
                    connects = Some(program.read.bytes.to_vec());
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
    program: &mut Reader<'_, R>,
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
        let parse = |bytes: &[u8]| match bytes.starts_with(CONNECT) {
            true => Ok(Some((Next::Connect, 0))),
            false => {
                let read = message::request(bytes)?;
                Ok(read.map(|(request, len)| (Next::Request(Box::new(request)), len)))
            }
        };
        match program.head(MAX_HEAD, parse).await {
            Ok(Some(next)) => Ok(next),
            Ok(None) => Ok(Next::Nothing),
            Err(Unread::Wrong(wrong)) => Err(Fault::Asked(wrong)),
            Err(Unread::TooLong) => Err(Fault::Asked(Wrong {
                status: "431 Request Header Fields Too Large",
                why: "the head of its request is longer than 16 KiB",
            })),
            Err(Unread::Cut) => Err(Fault::Broken),
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
    program: &mut Program<'_, R, W>,
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
    program: &mut Program<'_, R, W>,
    request: &Request,
    tunnel: &mut Tunnel,
) -> Result<Option<(Ended, bool)>, Fault>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (toll, Program { read, write }) = (client.toll(), program);
    let Tunnel { send, recv, .. } = tunnel;
    let (sent, said_all) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut host = Reader {
        from: recv,
        bytes: BytesMut::new(),
        impatient: Some(&said_all),
    };
    let answered = {
        let mut up = pin!(async {
            say(read, send, request, toll).await?;
            sent.store(true, Ordering::Relaxed);
            // A program that breaks its connection wants no answer. One that ends its direction may, and the
            // host hears of that end, as without a proxy; of a program that has gone no more is seen.
            while read.bytes.len() < CHUNK {
                if !read.more().await.map_err(|_| Cut::From)? {
                    said_all.store(true, Ordering::Relaxed);
                    send.finish().map_err(|_| Cut::To)?;
                    break;
                }
            }
            Ok::<_, Cut>(())
        });
        let mut down = pin!(hear(&mut host, write, (request, &sent), toll));
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
    let ended = match answer.closes {
        true => Ended::Last,
        false => Ended::Whole,
    };
    // What a host says that nobody asked for is no answer to the next request.
    let persists =
        answer.persists && sent && host.bytes.is_empty() && !said_all.load(Ordering::Relaxed);
    Ok(Some((ended, persists)))
}

/// Passes a request on.
async fn say<R: AsyncRead + Unpin>(
    program: &mut Reader<'_, R>,
    send: &mut SendStream,
    request: &Request,
    toll: Toll<'_>,
) -> Result<(), Cut> {
    pay(toll, Way::Out, request.head.len()).await?;
    write_to(send, &request.head).await?;
    pass(program, send, (request.body, true), (Way::Out, toll)).await
}

/// Passes an answer on to a request of which all may be `sent`; `None` where none came.
async fn hear<W: AsyncWrite + Unpin>(
    host: &mut Reader<'_, &mut RecvStream>,
    write: &mut W,
    (request, sent): (&Request, &AtomicBool),
    toll: Toll<'_>,
) -> Result<Option<Response>, Fault> {
    loop {
        let Some(mut answer) = next_response(host, request).await? else {
            return Ok(None);
        };
        // An answer that comes before all of the request is there is the last: who made it may leave the rest
        // away, and what follows is another request or that.
        if !answer.is_interim && !sent.load(Ordering::Relaxed) {
            answer.close();
        }
        pay(toll, Way::In, answer.head.len()).await?;
        if answer.is_interim {
            // Programs of HTTP/1.0 know of none (RFC 9110 §15.2).
            if !request.is_old {
                write.write_all(&answer.head).await?;
            }
            continue;
        }
        write.write_all(&answer.head).await?;
        let body = (answer.body, !request.is_old);
        pass(host, write, body, (Way::In, toll)).await?;
        write.flush().await?;
        return Ok(Some(answer));
    }
}

/// The head of an answer; `None` at the end before there was any of it. Its first byte may take as long as the
/// host thinks, and all of it no longer than [`ANSWER_HEAD_LIMIT`].
async fn next_response(
    host: &mut Reader<'_, &mut RecvStream>,
    request: &Request,
) -> Result<Option<Response>, Fault> {
    let none = |why| {
        let refusal = Refusal::new(Status::Failed, why);
        Fault::Refused(request.target.clone(), refusal)
    };
    if host.bytes.is_empty() && !host.more().await.unwrap_or(false) {
        return Ok(None);
    }
    let head = host.head(MAX_ANSWER_HEAD, |bytes| message::response(bytes, request));
    let late = || none("the head of the host's answer did not end within 30 s");
    let head = timeout(ANSWER_HEAD_LIMIT, head).await.map_err(|_| late())?;
    head.map_err(|unread| match unread {
        Unread::Wrong(wrong) => none(wrong.why),
        Unread::TooLong => none("the head of the host's answer is longer than 64 KiB"),
        Unread::Cut => Fault::Broken,
    })
}
