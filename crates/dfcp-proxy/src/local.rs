//! A program at the local port: SOCKS 5, SOCKS 4 or HTTP, told apart by the first byte.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::client::Client;
use crate::event::Event;
use crate::status::Refusal;
use crate::target::Target;
use crate::{http, socks, udp};

/// How long a program may take to say what it wants. It is on this machine, or near it.
pub(crate) const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// Programs that may take so long at once: what they say, of 16 KiB each, is memory, and each has an open file, of
/// which systems give a process a thousand at least.
const UNHEARD: usize = 256;
/// How long a program that was refused may take to read that (RFC 1928 §6: no more than 10 s).
const FAREWELL_LIMIT: Duration = Duration::from_secs(2);

/// What a program speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speech {
    Socks,
    Socks4,
    Http,
}

impl Speech {
    /// What it hears once it is connected, or of why it is not.
    fn answer(self, outcome: Result<(), &Refusal>) -> Vec<u8> {
        match self {
            Self::Socks => socks::answer(outcome),
            Self::Socks4 => socks::v4::answer(outcome),
            Self::Http => http::answer(outcome),
        }
    }
}

/// What a program wants, and what it said after that already.
#[derive(Debug)]
pub(crate) struct Wish {
    pub speech: Speech,
    pub target: Target,
    pub rest: Vec<u8>,
}

/// What a program asks for.
#[derive(Debug)]
pub(crate) enum Asked {
    Connection(Wish),
    /// For URLs (HTTP); what it said so far.
    Requests(Vec<u8>),
    /// To send datagrams (RFC 1928 §7).
    Datagrams,
}

/// Why a program gets no connection, and what it hears of that.
#[derive(Debug)]
pub(crate) struct Mistake {
    pub why: String,
    pub answer: Vec<u8>,
}

impl Mistake {
    pub fn new(why: impl Into<String>, answer: impl Into<Vec<u8>>) -> Self {
        Self {
            why: why.into(),
            answer: answer.into(),
        }
    }

    /// For those who would not understand any answer.
    pub fn silent(why: impl Into<String>) -> Self {
        Self::new(why, [])
    }
}

impl From<io::Error> for Mistake {
    fn from(error: io::Error) -> Self {
        Self::silent(format!("it left: {error}"))
    }
}

/// A program's connection.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// What a program has said and nobody has read yet.
pub(crate) struct Inbox<'a> {
    stream: &'a mut dyn Stream,
    pub bytes: Vec<u8>,
}

impl<'a> Inbox<'a> {
    /// Of a program that has said these bytes.
    pub fn new(stream: &'a mut dyn Stream, bytes: Vec<u8>) -> Self {
        Self { stream, bytes }
    }

    /// Waits for more.
    pub async fn more(&mut self) -> Result<(), Mistake> {
        match self.stream.read_buf(&mut self.bytes).await? {
            0 => Err(Mistake::silent("it left")),
            _ => Ok(()),
        }
    }

    /// Waits until there are so many bytes, and takes them.
    pub async fn take(&mut self, len: usize) -> Result<Vec<u8>, Mistake> {
        while self.bytes.len() < len {
            self.more().await?;
        }
        let rest = self.bytes.split_off(len);
        Ok(std::mem::replace(&mut self.bytes, rest))
    }

    pub async fn say(&mut self, answer: &[u8]) -> Result<(), Mistake> {
        Ok(self.stream.write_all(answer).await?)
    }
}

/// Programs that have come to a port and not said yet what they want.
#[derive(Default)]
pub(crate) struct Lobby(VecDeque<(Weak<()>, AbortHandle)>);

/// Held for a program until it has said that.
pub(crate) type Unheard = Arc<()>;

impl Lobby {
    /// Has the next one served. One too many takes the place of the oldest, which has had the time of all others.
    pub fn admit(&mut self, serve: impl FnOnce(Unheard) -> AbortHandle) {
        self.0.retain(|(unheard, _)| unheard.strong_count() > 0);
        if self.0.len() >= UNHEARD
            && let Some((_, oldest)) = self.0.pop_front()
        {
            oldest.abort();
        }
        let unheard = Arc::new(());
        let entry = Arc::downgrade(&unheard);
        self.0.push_back((entry, serve(unheard)));
    }
}

/// Serves a program to the end of its connection.
pub(crate) async fn serve(client: Client, mut tcp: TcpStream, unheard: Unheard) {
    let (mut said, mut unheard) = (Vec::new(), Some(unheard));
    let wish = loop {
        let mut inbox = Inbox::new(&mut tcp, said);
        let late = || Mistake::silent("it did not say what it wants within 10 s");
        // What is over once a connection is carried takes no room in its task.
        let wish = Box::pin(timeout(REQUEST_LIMIT, listen(&mut inbox))).await;
        drop(unheard.take());
        match wish.unwrap_or_else(|_| Err(late())) {
            Ok(Asked::Connection(wish)) => break wish,
            // Nor does what most programs do not ask for.
            Ok(Asked::Datagrams) => return Box::pin(udp::serve_program(client, tcp)).await,
            Ok(Asked::Requests(first)) => {
                // Whoever asked for URLs may ask for a connection after that.
                match Box::pin(http::plain::serve(&client, tcp, first)).await {
                    Some(more) => (tcp, said) = more,
                    None => return,
                }
            }
            Err(mistake) => {
                client.report(Event::Misled(mistake.why));
                return part(tcp, &mistake.answer).await;
            }
        }
    };
    let Wish {
        speech,
        target,
        rest,
    } = wish;
    let opened = async {
        match client.opens_fast(&target) {
            true => client.open(&target).await,
            false => client.connect(&target).await,
        }
    };
    match Box::pin(opened).await {
        Ok(tunnel) => {
            if tcp.write_all(&speech.answer(Ok(()))).await.is_ok() {
                client.carry_tcp(tcp, tunnel, rest, target).await;
            }
        }
        Err(refusal) => {
            let answer = speech.answer(Err(&refusal));
            client.failed(target, refusal);
            part(tcp, &answer).await;
        }
    }
}

/// Reads what a program asks for.
pub(crate) async fn listen(inbox: &mut Inbox<'_>) -> Result<Asked, Mistake> {
    if inbox.bytes.is_empty() {
        inbox.more().await?;
    }
    match inbox.bytes.first() {
        Some(&socks::VERSION) => socks::wish(inbox).await,
        Some(&socks::v4::VERSION) => socks::v4::wish(inbox).await,
        Some(byte) if byte.is_ascii_alphabetic() => http::wish(inbox).await,
        _ => Err(Mistake::silent("it speaks neither SOCKS nor HTTP")),
    }
}

/// Says `answer` and leaves. What the program says meanwhile is read, or the system would take the
/// answer back with a RST.
pub(crate) async fn part(mut tcp: TcpStream, answer: &[u8]) {
    let farewell = async {
        tcp.write_all(answer).await?;
        tcp.shutdown().await?;
        let mut ignored = vec![0; 4096];
        while tcp.read(&mut ignored).await? > 0 {}
        io::Result::Ok(())
    };
    // Whoever does not hear it has left.
    let _ = timeout(FAREWELL_LIMIT, farewell).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_says_nothing_makes_way_for_who_comes_after_so_many() {
        let mut lobby = Lobby::default();
        let mut tasks = Vec::new();
        let mut come = |says: bool| {
            lobby.admit(|unheard| {
                let unheard = Some(unheard).filter(|_| !says);
                let task = tokio::spawn(async move {
                    std::future::pending::<()>().await;
                    drop(unheard);
                });
                let handle = task.abort_handle();
                tasks.push(task);
                handle
            });
        };
        (0..3).for_each(|_| come(true));
        (0..UNHEARD).for_each(|_| come(false));
        // Who said what it wants is not among them.
        (0..2).for_each(|_| come(false));
        while !tasks[4].is_finished() {
            tokio::task::yield_now().await;
        }
        let left: Vec<_> = (0..tasks.len())
            .filter(|n| tasks[*n].is_finished())
            .collect();
        assert_eq!(left, [3, 4]);
    }
}
