//! Carries a TCP connection over a stream: bytes, ends and resets, each way by itself.
//!
//! Whoever does not read holds back the other end: what waits is a buffer here, the transport's windows
//! and the kernel's. A connection that carries nothing holds no buffer.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dfcp::{Chunk, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, sleep_until};

use crate::account::{Account, Turn, Way};
use crate::status::Refusal;
use crate::traffic::{Kind, Traffic};
use crate::wire::{RESET, Tunnel, read_answer};

/// Bytes that are read at once: large enough that system calls cost little beside the bytes, small
/// enough that five hundred stalled connections hold 32 MB.
pub(crate) const CHUNK: usize = 64 << 10;
/// Smallest piece, bytes: a system call for three packets or more.
pub(crate) const SMALLEST_PIECE: usize = 4 << 10;
/// What all connections may hold, bytes, of pieces that were read at one end and wait to be taken by the other.
/// Each may have a part of what the others leave, of a half of it whole ones; beyond all of it the smallest.
const PIECES: u64 = 64 << 20;

/// Priority of a stream that has sent little.
const SMALL: i32 = 1;
/// Bytes after which a stream is a large one and waits for the small ones (two priorities of PIAS, Bai
/// et al. 2015): requests, keystrokes and most pages are below it.
const SMALL_BYTES: f64 = 100_000.0;
/// Silence after which a stream begins anew as a small one: the initial RTO of TCP (RFC 6298 §2.1),
/// after which its congestion window would begin anew, too (RFC 5681 §4.1).
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes a second that do not count: what a telephone call makes (64 kbit/s in packets of 20 ms, with their
/// headers). Who types or plays sends less, and pauses for no second.
const TRICKLE: f64 = 10_000.0;

/// How long a direction that broke waits for the other one to say why: the far end's reason left there
/// with the news that it takes no more, and is repeated within a round trip if it was lost. As long
/// after its last bytes a stream is reset whose TCP connection was: they are as long on their way.
pub(crate) const REASON_LIMIT: Duration = Duration::from_secs(1);

/// How a carried connection ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// The far end made no connection.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// What is carried here, a TCP connection or standard input and output, failed or was reset.
    #[error("{0}")]
    Here(#[source] io::Error),
    /// The far end's did, or the path between.
    #[error("{0}")]
    There(#[source] dfcp::Error),
}

/// What there is to know of a carried connection beside its two ends.
pub(crate) struct Carriage<'a> {
    /// What was read of it already.
    pub first: Vec<u8>,
    pub toll: Toll<'a>,
}

/// Who counts what is carried, and who pays for it; at a client nobody does.
#[derive(Clone, Copy)]
pub(crate) struct Toll<'a> {
    pub traffic: &'a Traffic,
    pub account: Option<&'a Account>,
}

impl Toll<'_> {
    pub async fn pay(&self, way: Way, bytes: usize, turn: Turn) -> Result<(), Refusal> {
        if let Some(account) = self.account {
            account.pay(way, bytes, turn).await?;
        }
        self.traffic.carried(Kind::Tcp, way, bytes);
        Ok(())
    }

    /// Bytes that are read at once.
    fn piece(&self) -> usize {
        let left = PIECES.saturating_sub(self.traffic.held());
        let share = left / (PIECES / 2 / CHUNK as u64);
        let most = self.account.map_or(CHUNK, Account::piece);
        most.min(share.max(SMALLEST_PIECE as u64) as usize)
    }
}

/// Carries `tcp` until both directions ended; calls `opened` once the far end has said that it is
/// connected. If one direction breaks both are reset, on both sides.
pub(crate) async fn relay(
    mut tcp: TcpStream,
    mut tunnel: Tunnel,
    Carriage { first, toll }: Carriage<'_>,
    opened: impl FnOnce() + Send,
) -> Result<(), Broken> {
    let _open = toll.traffic.open(Kind::Tcp);
    // Also the end of this process resets it.
    let linger = |tcp: &TcpStream, time| socket2::SockRef::from(tcp).set_linger(time);
    let _ = linger(&tcp, Some(Duration::ZERO));
    let (read, write) = tcp.split();
    let Tunnel {
        send,
        recv,
        answered,
    } = &mut tunnel;
    let is_open = AtomicBool::new(*answered);
    let down = async {
        if !*answered {
            read_answer(recv).await?;
            is_open.store(true, Ordering::Relaxed);
        }
        opened();
        let ended = download(recv, write, toll).await;
        if matches!(ended, Err(Broken::Here(_))) {
            // What the program said before it reset the connection is still read, by the other
            // direction, which ends before that.
            sleep(2 * REASON_LIMIT).await;
        }
        ended
    };
    let up = async {
        let ended = upload(read, send, Carriage { first, toll }).await;
        if matches!(ended, Err(Broken::There(_))) && !is_open.load(Ordering::Relaxed) {
            sleep(REASON_LIMIT).await; // the other direction ends before that, with the reason
        }
        ended
    };
    let result = tokio::try_join!(up, down);
    match result {
        Ok(((), ())) => {
            let _ = linger(&tcp, None);
            Ok(())
        }
        Err(broken) => {
            tunnel.reset(RESET);
            // The program at this end gets a RST, as it would have from the far one.
            Err(broken)
        }
    }
}

/// What a direction has sent lately.
struct Lately {
    /// Beyond a trickle.
    bytes: f64,
    /// When the last of it had been taken: the time that a stream waits for its turn is no pause of the
    /// program, or streams that waited for long would go before all others with what waited.
    last: Instant,
}

impl Lately {
    fn start() -> Self {
        let (bytes, last) = (0.0, Instant::now());
        Self { bytes, last }
    }

    /// Whether it goes first with these bytes.
    fn turn(&mut self, now: Instant, bytes: usize) -> Turn {
        let since = now.duration_since(self.last);
        let left = match since > PAUSE {
            true => 0.0,
            false => self.bytes - TRICKLE * since.as_secs_f64(),
        };
        self.bytes = left.max(0.0) + bytes as f64;
        match self.bytes <= SMALL_BYTES {
            true => Turn::First,
            false => Turn::Last,
        }
    }

    /// These bytes have been taken.
    fn taken(&mut self, now: Instant) {
        self.last = now;
    }
}

/// Sends `first` and all of `input`, and ends the stream. Of an input that fails, what came before is
/// given time to arrive: whoever resets the stream takes back what the far end has not read yet.
pub(crate) async fn upload(
    mut input: impl AsyncRead + Unpin,
    send: &mut SendStream,
    Carriage { first, toll }: Carriage<'_>,
) -> Result<(), Broken> {
    let (mut lately, mut turn) = (Lately::start(), Turn::First);
    // Of a stream that is over nothing waits for its turn.
    let _ = send.set_priority(SMALL);
    toll.pay(Way::Out, first.len(), turn).await?;
    send.write_all(&first)
        .await
        .map_err(|error| Broken::There(error.into()))?;
    drop(first);
    let mut stopped = pin!(send.stopped());
    loop {
        let read = tokio::select! {
            read = read_some(&mut input, toll.piece()) => read,
            // The far end takes no more, though nothing is written just now.
            end = &mut stopped => {
                let code = end.map_err(Broken::There)?;
                return Err(Broken::There(dfcp::Error::Reset(code.unwrap_or(RESET))));
            }
        };
        match read {
            Ok(bytes) if bytes.is_empty() => return send.finish().map_err(Broken::There),
            Ok(mut bytes) => {
                if bytes.len() <= bytes.capacity() / 2 {
                    bytes.shrink_to_fit();
                }
                let _held = toll.traffic.hold(bytes.len());
                let before = std::mem::replace(&mut turn, lately.turn(Instant::now(), bytes.len()));
                if turn != before {
                    let _ = send.set_priority(if turn == Turn::First { SMALL } else { 0 });
                }
                toll.pay(Way::Out, bytes.len(), turn).await?;
                send.write_all(&bytes)
                    .await
                    .map_err(|error| Broken::There(error.into()))?;
                lately.taken(Instant::now());
            }
            Err(error) => {
                sleep_until((lately.last + REASON_LIMIT).into()).await;
                return Err(Broken::Here(error));
            }
        }
    }
}

/// Reads what is there, `most` bytes, and waits for something without a buffer; nothing at the end.
pub(crate) async fn read_some(
    input: &mut (impl AsyncRead + Unpin),
    most: usize,
) -> io::Result<Vec<u8>> {
    poll_fn(|context| {
        let mut buffer = Vec::with_capacity(most);
        let read = pin!(input.read_buf(&mut buffer)).poll(context);
        read.map_ok(|_| ()).map(|read| read.map(|()| buffer))
    })
    .await
}

/// Hands all that comes to `output`, each piece before the next is waited for, and then its end.
pub(crate) async fn download(
    recv: &mut RecvStream,
    mut output: impl AsyncWrite + Unpin,
    toll: Toll<'_>,
) -> Result<(), Broken> {
    let mut lately = Lately::start();
    loop {
        match recv.read_chunk(toll.piece()).await.map_err(Broken::There)? {
            Chunk::Data(bytes) => {
                let _held = toll.traffic.hold(bytes.len());
                toll.pay(
                    Way::In,
                    bytes.len(),
                    lately.turn(Instant::now(), bytes.len()),
                )
                .await?;
                output.write_all(&bytes).await.map_err(Broken::Here)?;
                output.flush().await.map_err(Broken::Here)?;
                lately.taken(Instant::now());
            }
            Chunk::Gap(n) => return Err(Broken::There(dfcp::Error::Gap(n))),
            Chunk::End => return output.shutdown().await.map_err(Broken::Here),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that has sent much, of which the last was taken just now.
    fn large() -> Lately {
        Lately {
            bytes: 10.0 * SMALL_BYTES,
            last: Instant::now(),
        }
    }

    #[test]
    fn a_program_that_paused_goes_first_again_and_one_that_waited_for_its_turn_does_not() {
        let mut paused = large();
        let later = paused.last + 2 * PAUSE;
        assert_eq!(paused.turn(later, 1000), Turn::First);
        paused.taken(later);
        assert_eq!(paused.turn(later, SMALL_BYTES as usize), Turn::Last);
        // Its last piece was read two seconds ago, and there was no room for it until now.
        let mut waited = large();
        waited.taken(later);
        assert_eq!(waited.turn(later, 1000), Turn::Last);
    }

    #[test]
    fn who_says_a_little_all_the_time_goes_first_for_ever() {
        let (mut typing, tick) = (Lately::start(), PAUSE / 50);
        let mut loading = Lately::start();
        let start = typing.last;
        for n in 1..=50 * 600 {
            let now = start + n * tick;
            assert_eq!(typing.turn(now, 64), Turn::First, "{n}");
            // A hundred kilobytes each second.
            let turn = loading.turn(now, 2000);
            assert!(turn == Turn::Last || n < 100, "{n}");
            typing.taken(now);
            loading.taken(now);
        }
    }
}
