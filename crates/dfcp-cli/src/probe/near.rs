//! The side that asks.

use std::time::Duration;

use dfcp::{Connection, Profile, Rate};
use dfcp_command::{Failure, Kind};
use dfcp_transfer::DONE;
use serde::Serialize;

use super::finding::{LOSS, Limit, limit};
use super::trace::{Carried, Sent, drain, fill};
use super::{Answer, Request, VERSION, clock_ms, hear, say};

/// What the other side's answer may take beyond the time that the path is filled: some round trips of
/// a bad path.
const ANSWER: Duration = Duration::from_secs(5);
/// Of the time that there is: for each direction at full rate, and for half of what was found there.
/// The rest is for handshakes and answers.
const FULL: f64 = 0.3;
const HALF: f64 = 0.15;
/// A packet a second, or so.
const MIN_RATE_BPS: u64 = 10_000;

/// A path in one direction.
#[derive(Clone, Debug, Serialize)]
pub struct Direction {
    /// What it carries: bits of UDP payload per second that arrived in the second half.
    pub rate_bps: u64,
    /// The most that arrived in a fifth of a second.
    pub peak_bps: u64,
    /// Share of packets lost in the second half.
    pub loss: f64,
    /// Share of packets lost from the beginning, while the rate was still being found.
    pub loss_of_all: f64,
    /// Share of packets lost at half the rate, if that was tried.
    pub loss_at_half: Option<f64>,
    /// By how much packets waited at most: the queue that the path has holds that at least.
    pub queue_ms: f64,
    /// The same in bytes.
    pub queue_bytes: u64,
    /// UDP payload bytes that this took.
    pub bytes: u64,
    /// What limits it.
    pub limit: Limit,
}

impl Direction {
    pub(super) fn new(sent: Sent, carried: Carried, at_half: Option<f64>) -> Self {
        let rate = Rate::from_bps(carried.rate_bps);
        let queue = Duration::from_secs_f64(sent.queue_ms / 1e3);
        Self {
            rate_bps: carried.rate_bps,
            peak_bps: carried.peak_bps,
            loss: sent.steady_loss,
            loss_of_all: sent.loss,
            loss_at_half: at_half,
            queue_ms: sent.queue_ms,
            queue_bytes: rate.bytes_in(queue),
            bytes: sent.bytes,
            limit: limit(&sent, &carried, at_half),
        }
    }
}

/// A path, both ways.
#[derive(Clone, Debug, Serialize)]
pub struct Path {
    /// Smallest round-trip time.
    pub min_rtt_ms: f64,
    /// Largest datagram that is known to pass, UDP payload bytes.
    pub datagram_bytes: usize,
    /// From here to there.
    pub there: Direction,
    /// From there to here.
    pub back: Option<Direction>,
    /// The other side's clock less this one's, known to half a round trip.
    pub clock_offset_ms: i64,
}

/// Measures the path of `connection` in so much time; `again` opens another one with the profile that it
/// is given.
///
/// # Errors
/// When the other side does not measure, or the connection ends.
pub async fn measure<C>(time: Duration, connection: &Connection, again: C) -> Result<Path, Failure>
where
    C: AsyncFnOnce(Profile) -> Result<Connection, Failure>,
{
    let full = time.mul_f64(FULL);
    let (sent, answer, offset) = there(connection, full, full).await?;
    let back = back(connection, full).await?;
    let stats = connection.stats();
    connection.close(DONE, "");
    let lossy = sent.loss > LOSS || sent.steady_loss > LOSS;
    let at_half = match lossy && answer.there.rate_bps > 0 {
        true => {
            let half = Rate::from_bps((answer.there.rate_bps / 2).max(MIN_RATE_BPS));
            let second = again(Profile::auto().with_rate_cap(half)).await?;
            let (sent, ..) = there(&second, time.mul_f64(HALF), Duration::ZERO).await?;
            second.close(DONE, "");
            Some(sent.loss)
        }
        false => None,
    };
    Ok(Path {
        min_rtt_ms: stats.min_rtt.as_secs_f64() * 1e3,
        datagram_bytes: stats.datagram_size,
        there: Direction::new(sent, answer.there, at_half),
        back: Some(Direction::new(back.0, back.1, None)),
        clock_offset_ms: offset,
    })
}

/// Fills the way there; the answer, and how far the other clock is off.
async fn there(
    connection: &Connection,
    time: Duration,
    back: Duration,
) -> Result<(Sent, Answer, i64), Failure> {
    let mut stream = connection.open_uni().await?;
    let request = Request {
        version: VERSION,
        back_ms: back.as_millis() as u64,
    };
    say(&mut stream, &request).await?;
    let sent = fill(connection, &mut stream, time).await;
    let answer = within(async { hear::<Answer>(&mut connection.accept_uni().await?).await });
    let mut answer = answer.await?;
    answer.there = answer.there.plausible();
    if answer.version != VERSION {
        return Err(super::nonsense());
    }
    let age = i64::try_from(connection.stats().min_rtt.as_millis() / 2).unwrap_or(0);
    let offset = answer
        .clock_ms
        .saturating_add(age)
        .saturating_sub(clock_ms());
    Ok((sent, answer, offset))
}

/// Has the way back filled.
async fn back(connection: &Connection, time: Duration) -> Result<(Sent, Carried), Failure> {
    let mut stream = within(async { Ok(connection.accept_uni().await?) }).await?;
    let carried = drain(connection, &mut stream, time + ANSWER).await;
    drop(stream);
    let sent = within(async { hear::<Sent>(&mut connection.accept_uni().await?).await });
    Ok((sent.await?.plausible(), carried))
}

async fn within<T>(answer: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let silent =
        "the other side does not measure: it runs an older version, or the path fell silent";
    let silent = |_| Failure::new(Kind::Unreachable, silent);
    tokio::time::timeout(ANSWER, answer).await.map_err(silent)?
}
