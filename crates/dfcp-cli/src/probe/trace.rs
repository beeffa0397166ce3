//! What a path does while it is filled: counters of a connection, looked at again and again.

use std::time::{Duration, Instant};

use dfcp::{Connection, ConnectionStats, RecvStream, SendStream, VarInt};
use serde::{Deserialize, Serialize};

use tokio::io::AsyncWriteExt;

use super::MAX_BYTES;

/// Between two looks at the counters: 20 in a second, as a policer's bucket lasts for tenths of one.
const LOOK: Duration = Duration::from_millis(50);
/// Looks over which a rate is taken, so that the groups in which packets come do not count.
const SPAN: usize = 4;
/// What is written at a time.
const CHUNK: usize = 64 << 10;

/// What the sending side of a direction saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Packets.
    pub packets: u64,
    /// UDP payload bytes.
    pub bytes: u64,
    /// Share of the packets that were lost, of all.
    pub loss: f64,
    /// And in the second half, when the rate was found.
    pub steady_loss: f64,
    /// By how much the round trip rose above its minimum at most, milliseconds.
    pub queue_ms: f64,
}

/// What the receiving side of a direction saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Carried {
    /// UDP payload bytes.
    pub bytes: u64,
    /// What came in the second half, UDP payload bits per second.
    pub rate_bps: u64,
    /// The most that came in a fifth of a second, likewise.
    pub peak_bps: u64,
}

/// More than any path has, bits per second, and longer than any queue, milliseconds: what the other
/// side says beyond these is not believed.
const MAX_RATE_BPS: u64 = 1_000_000_000_000;
const MAX_QUEUE_MS: f64 = 60_000.0;

impl Sent {
    /// The same within what can be: for figures of the other side.
    pub fn plausible(self) -> Self {
        Self {
            loss: self.loss.clamp(0.0, 1.0),
            steady_loss: self.steady_loss.clamp(0.0, 1.0),
            queue_ms: self.queue_ms.clamp(0.0, MAX_QUEUE_MS),
            ..self
        }
    }
}

impl Carried {
    /// The same within what can be: for figures of the other side.
    pub fn plausible(self) -> Self {
        Self {
            rate_bps: self.rate_bps.min(MAX_RATE_BPS),
            peak_bps: self.peak_bps.min(MAX_RATE_BPS),
            ..self
        }
    }
}

/// A look at the counters.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Duration,
    sent: u64,
    lost: u64,
    received: u64,
}

impl Look {
    fn new(at: Duration, stats: &ConnectionStats) -> Self {
        Self {
            at,
            sent: stats.packets_sent,
            lost: stats.packets_lost.saturating_sub(stats.spurious_losses),
            received: stats.bytes_received,
        }
    }
}

/// Looks at the counters until `work` ends.
async fn watched<T>(connection: &Connection, work: impl Future<Output = T>) -> (T, Vec<Look>, f64) {
    let start = Instant::now();
    let mut looks = vec![Look::new(Duration::ZERO, &connection.stats())];
    let mut queue = 0.0_f64;
    tokio::pin!(work);
    loop {
        let ended = tokio::select! {
            ended = &mut work => Some(ended),
            () = tokio::time::sleep(LOOK) => None,
        };
        let stats = connection.stats();
        looks.push(Look::new(start.elapsed(), &stats));
        let above = stats.rtt.saturating_sub(stats.min_rtt).as_secs_f64();
        queue = queue.max(above * 1e3);
        if let Some(ended) = ended {
            return (ended, looks, queue);
        }
    }
}

/// Fills a stream for so long, or until the peer has enough of it.
pub async fn fill(connection: &Connection, stream: &mut SendStream, time: Duration) -> Sent {
    let before = connection.stats();
    let writing = async {
        let nothing = [0; CHUNK];
        // What is written and what has left differ by what waits here.
        while connection.stats().bytes_sent - before.bytes_sent < MAX_BYTES {
            if stream.write_all(&nothing).await.is_err() {
                return;
            }
        }
    };
    let (_, looks, queue_ms) = watched(connection, tokio::time::timeout(time, writing)).await;
    // Nobody wants the rest.
    stream.reset(VarInt::from_u32(0));
    let after = connection.stats();
    let share = |from: &Look, to: &Look| {
        (to.lost - from.lost.min(to.lost)) as f64 / (to.sent - from.sent).max(1) as f64
    };
    let (first, middle, last) = (&looks[0], &looks[looks.len() / 2], &looks[looks.len() - 1]);
    Sent {
        packets: after.packets_sent - before.packets_sent,
        bytes: after.bytes_sent - before.bytes_sent,
        loss: share(first, last).clamp(0.0, 1.0),
        steady_loss: share(middle, last).clamp(0.0, 1.0),
        queue_ms,
    }
}

/// Reads a stream to its end, or until time is up.
pub async fn drain(connection: &Connection, stream: &mut RecvStream, limit: Duration) -> Carried {
    let reading = async {
        let mut waste = vec![0; CHUNK];
        while matches!(stream.read(&mut waste).await, Ok(n) if n > 0) {}
    };
    let (_, looks, _) = watched(connection, tokio::time::timeout(limit, reading)).await;
    carried(&looks)
}

fn carried(looks: &[Look]) -> Carried {
    // The end of the stream takes a while to come, and nothing else comes meanwhile.
    let grows = |pair: &[Look]| pair[1].received > pair[0].received;
    let start = looks.windows(2).position(grows).unwrap_or(0);
    let end = looks.windows(2).rposition(grows).map_or(0, |last| last + 1);
    let busy = &looks[start..=end];
    // The last interval ended when the bytes did, not when it was looked at.
    let whole = match busy {
        [whole @ .., _] if whole.len() >= 2 => whole,
        _ => busy,
    };
    let rate = |from: &Look, to: &Look| match to.received - from.received {
        0 => 0,
        bytes => dfcp::Rate::from_transfer(bytes, to.at.saturating_sub(from.at)).as_bps(),
    };
    let (first, middle) = (&whole[0], &whole[whole.len() / 2]);
    let last = &whole[whole.len() - 1];
    let rate_bps = match whole.len() > SPAN {
        true => rate(middle, last),
        // Too short for halves.
        false => rate(first, last),
    };
    let spans = whole.windows(SPAN + 1);
    let peak = spans.map(|span| rate(&span[0], &span[SPAN])).max();
    Carried {
        bytes: busy[busy.len() - 1].received - busy[0].received,
        rate_bps,
        peak_bps: peak.unwrap_or(0).max(rate_bps),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at bytes that come so many in each interval.
    fn looks(intervals: &[u64]) -> Vec<Look> {
        let look = |n: usize| Look {
            at: LOOK * n as u32,
            sent: 0,
            lost: 0,
            received: intervals[..n].iter().sum(),
        };
        (0..=intervals.len()).map(look).collect()
    }

    #[test]
    fn a_rate_is_that_of_the_second_half_without_silence() {
        let mut intervals = vec![0; 3];
        intervals.extend([50_000; 10]); // 8 Mbit/s
        intervals.extend([25_000; 20]); // 4 Mbit/s
        intervals.extend([3_000]);
        intervals.extend([0; 5]);
        let seen = carried(&looks(&intervals));
        assert_eq!((seen.rate_bps, seen.peak_bps), (4_000_000, 8_000_000));
        assert_eq!(seen.bytes, 1_003_000);
    }

    #[test]
    fn little_or_nothing_is_no_reason_to_panic() {
        for intervals in [
            &[][..],
            &[0],
            &[0, 0, 0],
            &[7],
            &[7, 0],
            &[0, 7],
            &[7, 7],
            &[7, 7, 7],
        ] {
            let seen = carried(&looks(intervals));
            assert_eq!(seen.bytes, intervals.iter().sum::<u64>(), "{intervals:?}");
        }
    }
}
