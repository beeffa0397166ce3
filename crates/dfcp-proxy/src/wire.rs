//! What goes over the streams (docs/spec/proxy.md): each begins with a request of the side that opened
//! it and an answer of the other one; after both it is the bytes of a TCP connection.

use std::io;
use std::time::Duration;

use dfcp::{Connection, RecvStream, SendStream, VarInt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::status::{Refusal, Status};
use crate::target::Target;

/// The TCP connection was reset, or its stream broke.
pub(crate) const RESET: VarInt = VarInt::from_u32(1);
/// What came was no request.
pub(crate) const MALFORMED: VarInt = VarInt::from_u32(2);

/// How long a request may be on its way once its stream is open: it is in the first packets, and a path
/// that repeats them takes a few round trips.
pub(crate) const REQUEST_LIMIT: Duration = Duration::from_secs(10);

const CONNECT: u8 = 1;
const LISTEN: u8 = 2;
const ACCEPTED: u8 = 3;
const ASSOCIATE: u8 = 4;

/// What a stream is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Connect to a host, and carry the connection.
    Connect(Target),
    /// Listen at an address; `id` names the listener, as long as the stream is open.
    Listen { id: u32, bind: Target },
    /// Somebody came to the listener.
    Accepted { id: u32, from: Target },
    /// Carry datagrams, of which each begins with `id`, as long as the stream is open.
    Associate { id: u32 },
}

impl Request {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let target = match self {
            Self::Connect(target) => {
                out.push(CONNECT);
                target
            }
            Self::Listen { id, bind } => {
                out.push(LISTEN);
                out.extend(id.to_be_bytes());
                bind
            }
            Self::Accepted { id, from } => {
                out.push(ACCEPTED);
                out.extend(id.to_be_bytes());
                from
            }
            Self::Associate { id } => {
                out.push(ASSOCIATE);
                out.extend(id.to_be_bytes());
                return out;
            }
        };
        target.encode(&mut out);
        out
    }

    /// Reads what the peer asks for; the error says what is wrong.
    pub async fn read(recv: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let kind = recv.read_u8().await?;
        let id = match kind {
            CONNECT => 0,
            LISTEN | ACCEPTED | ASSOCIATE => recv.read_u32().await?,
            _ => return Err(malformed("an unknown request")),
        };
        if kind == ASSOCIATE {
            return Ok(Self::Associate { id });
        }
        let target = read_target(recv).await?;
        Ok(match kind {
            LISTEN => Self::Listen { id, bind: target },
            ACCEPTED => Self::Accepted { id, from: target },
            _ => Self::Connect(target),
        })
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

async fn read_target(recv: &mut (impl AsyncRead + Unpin)) -> io::Result<Target> {
    let mut bytes = vec![0; 2];
    recv.read_exact(&mut bytes).await?;
    let len = Target::encoded_len(bytes[0], bytes[1]);
    bytes.resize(
        len.ok_or_else(|| malformed("an unknown kind of address"))?,
        0,
    );
    recv.read_exact(&mut bytes[2..]).await?;
    match Target::decode(&bytes) {
        Ok(Some((target, _))) => Ok(target),
        _ => Err(malformed("a name that is none")),
    }
}

/// Both halves of a stream that carries a TCP connection, and whether its answer has come.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub send: SendStream,
    pub recv: RecvStream,
    pub answered: bool,
}

impl Tunnel {
    /// Asks the peer of `connection` for a stream; what follows the request may be written at once.
    pub async fn open(connection: &Connection, request: &Request) -> Result<Self, dfcp::Error> {
        let (mut send, recv) = connection.open_bi().await?;
        send.write_chunk(request.encode().into()).await?;
        let answered = false;
        Ok(Self {
            send,
            recv,
            answered,
        })
    }

    /// One that the peer opened, once its request was read.
    pub fn accepted(send: SendStream, recv: RecvStream) -> Self {
        let answered = true;
        Self {
            send,
            recv,
            answered,
        }
    }

    /// Waits for the peer's answer, if it has not come before.
    pub async fn answer(&mut self) -> Result<(), Refusal> {
        if !self.answered {
            read_answer(&mut self.recv).await?;
            self.answered = true;
        }
        Ok(())
    }

    /// Says that there is a connection.
    pub async fn confirm(&mut self) -> io::Result<()> {
        self.send.write_all(&[Status::Connected.byte()]).await
    }

    /// Says that there is none, and why.
    pub async fn refuse(mut self, refusal: &Refusal) -> io::Result<()> {
        self.send.write_all(&encode_refusal(refusal)).await?;
        self.send.finish()?;
        Ok(())
    }

    /// Breaks both directions.
    pub fn reset(&mut self, code: VarInt) {
        self.send.reset(code);
        self.recv.stop(code);
    }
}

/// How long the peer's answer may take: what connecting there may ([`crate::dial`]), and some round trips.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(15);

/// Reads a status, and of a failure its reason, within [`ANSWER_LIMIT`].
pub(crate) async fn read_answer(recv: &mut RecvStream) -> Result<(), Refusal> {
    let late = |_| Refusal::new(Status::TimedOut, "the other side does not answer");
    timeout(ANSWER_LIMIT, hear_answer(recv))
        .await
        .map_err(late)?
}

/// The same, whenever it comes.
pub(crate) async fn hear_answer(recv: &mut (impl AsyncRead + Unpin)) -> Result<(), Refusal> {
    let lost = |error: io::Error| {
        Refusal::new(
            Status::Failed,
            format_args!("the other side gave no answer: {error}"),
        )
    };
    let status = Status::from_byte(recv.read_u8().await.map_err(lost)?);
    if status == Status::Connected {
        return Ok(());
    }
    let len = recv.read_u8().await.map_err(lost)?;
    let mut message = vec![0; len.into()];
    recv.read_exact(&mut message).await.map_err(lost)?;
    // It goes to terminals, and into the headers of HTTP.
    let message = String::from_utf8_lossy(&message).replace(char::is_control, " ");
    Err(Refusal { status, message })
}

fn encode_refusal(refusal: &Refusal) -> Vec<u8> {
    let mut end = refusal.message.len().min(usize::from(u8::MAX));
    while !refusal.message.is_char_boundary(end) {
        end -= 1;
    }
    let mut out = vec![refusal.status.byte(), end as u8];
    out.extend(&refusal.message.as_bytes()[..end]);
    out
}
