//! Counters over any number of connections, for monitoring.

use super::{Ending, Observation, Observe, PacketInfo, PathMetrics};
use crate::connection::ConnectionError;
use crate::published;
use crate::time::{Duration, Instant};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counters of the connections whose settings have its [observer](Self::observer). A clone is the same
/// counters.
///
/// ```
/// # use dfcp_proto::TransportConfig;
/// # use dfcp_proto::observe::Metrics;
/// let metrics = Metrics::default();
/// let watched = metrics.clone();
/// let settings = TransportConfig::default().observer(move |_| Some(watched.observer()));
/// // Later, and as often as wanted:
/// println!("{} bytes of whole blocks", metrics.counters().block_bytes);
/// # drop(settings);
/// ```
///
/// Strangers that an endpoint turned away never had a connection: they are in
/// [`EndpointStats`](crate::EndpointStats).
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Mutex<Registry>>);

/// Each connection counts for itself, so that none waits for another.
#[derive(Debug, Default)]
struct Registry {
    /// Sum over connections that are forgotten.
    past: Counters,
    live: BTreeMap<u64, Arc<Mutex<Counters>>>,
    next: u64,
}

/// What [`Metrics`] counted. All only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Connections begun, by either side.
    pub begun: u64,
    /// Of these, with a handshake that was completed.
    pub established: u64,
    /// Ended by one of the applications.
    pub closed: u64,
    /// Refused: the peer wants another key, version or parameters, or is full.
    pub refused: u64,
    /// Ended otherwise: silence, resets, violations.
    pub failed: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Their bytes ([`PacketInfo::size`]).
    pub bytes_sent: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Their bytes.
    pub bytes_received: u64,
    /// Of these, with a mark of congestion.
    pub marked_received: u64,
    /// Packets sent and taken for lost.
    pub packets_lost: u64,
    /// Their bytes.
    pub bytes_lost: u64,
    /// Bytes of symbols received.
    pub symbol_bytes: u64,
    /// Of these, such as taught nothing.
    pub redundant_bytes: u64,
    /// Bytes of blocks that became whole here: their growth is goodput.
    pub block_bytes: u64,
    /// Samples of round trips, each as far as it is above its connection's smallest.
    pub queueing_samples: u64,
    /// Their sum.
    pub queueing: Duration,
}

impl Metrics {
    /// An observer that counts one more connection.
    pub fn observer(&self) -> Box<dyn Observe> {
        let mut registry = lock(&self.0);
        let own = Arc::new(Mutex::new(Counters {
            begun: 1,
            ..Counters::default()
        }));
        let id = registry.next;
        registry.next += 1;
        registry.live.insert(id, own.clone());
        Box::new(Counting {
            metrics: self.clone(),
            id,
            own,
            path: PathMetrics::default(),
        })
    }

    /// The counters as they are now.
    pub fn counters(&self) -> Counters {
        let registry = lock(&self.0);
        let live = registry.live.values().map(|counters| *lock(counters));
        live.fold(registry.past, |sum, counters| sum.plus(&counters))
    }
}

/// Counters are whole whenever their lock is free, whoever panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Counters {
    /// Part of the packets sent that were taken for lost; none if none were sent.
    pub fn loss(&self) -> f64 {
        ratio(self.packets_lost, self.packets_sent)
    }

    /// Bytes of symbols received for each byte of whole blocks, beyond one: what the code and
    /// misjudged losses cost. Meaningful once blocks were received, and below it while some are open.
    pub fn coding_overhead(&self) -> f64 {
        (ratio(self.symbol_bytes, self.block_bytes) - 1.0).max(0.0)
    }

    /// Mean time that packets and their answers waited in queues, by the sender's round trips.
    pub fn mean_queueing(&self) -> Duration {
        let samples = u128::from(self.queueing_samples.max(1));
        let mean = self.queueing.as_nanos() / samples;
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    fn plus(mut self, other: &Self) -> Self {
        let mut other = *other;
        for (sum, number) in self.numbers().into_iter().zip(other.numbers()) {
            *sum += *number;
        }
        self.queueing = self.queueing.saturating_add(other.queueing);
        self
    }

    fn numbers(&mut self) -> [&mut u64; 16] {
        [
            &mut self.begun,
            &mut self.established,
            &mut self.closed,
            &mut self.refused,
            &mut self.failed,
            &mut self.packets_sent,
            &mut self.bytes_sent,
            &mut self.packets_received,
            &mut self.bytes_received,
            &mut self.marked_received,
            &mut self.packets_lost,
            &mut self.bytes_lost,
            &mut self.symbol_bytes,
            &mut self.redundant_bytes,
            &mut self.block_bytes,
            &mut self.queueing_samples,
        ]
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        _ => part as f64 / whole as f64,
    }
}

#[derive(Debug)]
struct Counting {
    metrics: Metrics,
    id: u64,
    own: Arc<Mutex<Counters>>,
    /// As told last: news of the same round trip are no sample.
    path: PathMetrics,
}

impl Observe for Counting {
    fn observe(&mut self, _: Instant, event: &Observation<'_>) {
        let counters = &mut *lock(&self.own);
        match event {
            Observation::Established { .. } => counters.established += 1,
            Observation::Sent(packet) => {
                counters.packets_sent += 1;
                counters.bytes_sent += packet.size;
            }
            Observation::Received(PacketInfo { size, ecn, .. }) => {
                counters.packets_received += 1;
                counters.bytes_received += size;
                counters.marked_received += u64::from(*ecn == 0b11);
            }
            Observation::Lost { packets, bytes, .. } => {
                counters.packets_lost += packets;
                counters.bytes_lost += bytes;
            }
            Observation::Symbols { bytes, redundant } => {
                counters.symbol_bytes += bytes;
                counters.redundant_bytes += bytes * u64::from(*redundant);
            }
            Observation::Blocks { bytes } => counters.block_bytes += bytes,
            Observation::Metrics(path) => {
                if path.latest_rtt != self.path.latest_rtt {
                    counters.queueing_samples += 1;
                    let queued = path.latest_rtt.saturating_sub(path.min_rtt);
                    counters.queueing = counters.queueing.saturating_add(queued);
                }
                self.path = *path;
            }
            Observation::Closed(ending) => match fate(ending) {
                Fate::Closed => counters.closed += 1,
                Fate::Refused => counters.refused += 1,
                Fate::Failed => counters.failed += 1,
            },
        }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let mut registry = lock(&self.metrics.0);
        registry.live.remove(&self.id);
        registry.past = registry.past.plus(&lock(&self.own));
    }
}

enum Fate {
    Closed,
    Refused,
    Failed,
}

fn fate(ending: &Ending<'_>) -> Fate {
    use ConnectionError as E;
    match ending {
        Ending::Sealed(E::LocallyClosed | E::PeerClosed { .. })
        | Ending::Published(None | Some(published::Error::Closed)) => Fate::Closed,
        Ending::Sealed(
            E::Refused | E::WrongKey { .. } | E::VersionMismatch | E::PayloadMismatch,
        )
        | Ending::Published(Some(published::Error::Parameters(_))) => Fate::Refused,
        Ending::Sealed(_) | Ending::Published(Some(_)) => Fate::Failed,
    }
}
