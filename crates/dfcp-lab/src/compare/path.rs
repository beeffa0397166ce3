//! The paths of a comparison: a bottleneck, a path that a scenario names, or the bare cable; and
//! what they allow at most.

use std::fmt;
use std::time::Duration;

use dfcp_sim::scenario::Document;
use serde::{Deserialize, Serialize};

/// IP bytes of a full packet.
pub const PACKET: f64 = 1500.0;
/// What of it is of use at most: UDP's payload over IPv4.
pub const PAYLOAD: f64 = 1472.0;
/// Shorter queues keep this many packets: what "10 packets" is the least of.
const LEAST_QUEUE: u64 = 10;

/// Length of the bottleneck's queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Queue {
    /// Packets.
    Packets(u64),
    /// Products of rate and round-trip time, at least 10 packets.
    Bdp(f64),
}

/// What lies between the hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Path {
    /// One bottleneck of the lab, in both directions alike.
    Bottleneck(Bottleneck),
    /// A path that a scenario describes.
    Named(Named),
    /// A cable without anything emulated.
    Direct {
        /// Always `true`.
        direct: bool,
    },
}

/// A bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bottleneck {
    /// Bits of IP packets a second.
    pub rate_bps: u64,
    /// Round-trip time without queueing, seconds.
    pub rtt_s: f64,
    /// Probability that a packet is lost, each way.
    pub loss: f64,
    /// Packets that may wait.
    pub queue_packets: u64,
}

impl Bottleneck {
    /// A bottleneck whose queue may be given in products of rate and round-trip time.
    pub fn new(rate_bps: u64, round_trip: Duration, loss: f64, queue: Queue) -> Self {
        let rtt_s = round_trip.as_secs_f64();
        let queue_packets = match queue {
            Queue::Packets(packets) => packets,
            Queue::Bdp(share) => {
                let packets = share * rate_bps as f64 / 8.0 * rtt_s / PACKET;
                (packets.round() as u64).max(LEAST_QUEUE)
            }
        };
        Self {
            rate_bps,
            rtt_s,
            loss,
            queue_packets,
        }
    }

    /// Useful bits a second that full UDP packets over IPv4 could carry: (1−p)·C·1472/1500.
    pub fn limit_bps(&self) -> f64 {
        (1.0 - self.loss) * self.rate_bps as f64 * PAYLOAD / PACKET
    }

    /// IP bytes that must be sent for a useful byte to arrive: 1500/1472 ÷ (1−p).
    pub fn least_wire(&self) -> f64 {
        PACKET / PAYLOAD / (1.0 - self.loss)
    }

    /// A dumbbell with this bottleneck and one flow.
    ///
    /// # Errors
    /// In words, where the simulator refuses these settings.
    pub fn document(&self) -> Result<Document, String> {
        let Self {
            rate_bps,
            rtt_s,
            loss,
            queue_packets,
        } = self;
        let rtt_us = (rtt_s * 1e6).round() as u64;
        let text = format!(
            "schema = 1\n\
             [topology]\nkind = \"dumbbell\"\nrtt = \"{rtt_us} us\"\n\
             [link.default]\nrate = \"unlimited\"\n\
             [link.bottleneck]\nrate = \"{rate_bps} bit/s\"\nloss = {loss:?}\n\
             queue = {{ limit = \"{queue_packets} packets\" }}\n\
             [[flow]]\nname = \"peer\"\nprotocol = \"auto\"\n"
        );
        let document = Document::parse(&text, "comparison");
        document.map_err(|error| error.to_string())
    }
}

/// A path that a scenario describes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// What it is, in words.
    pub title: String,
    /// Bits of IP packets a second: what senders that must know the rate are told.
    pub rate_bps: u64,
    /// Round-trip time without queueing, at the beginning, seconds.
    pub rtt_s: f64,
    /// Useful bits a second that a perfect sender would reach over the scenario's time.
    pub limit_bps: f64,
    /// That time.
    pub seconds: f64,
}

impl Path {
    /// The bare cable.
    pub const DIRECT: Self = Self::Direct { direct: true };

    /// The bottleneck, if there is one.
    pub fn bottleneck(&self) -> Option<&Bottleneck> {
        match self {
            Self::Bottleneck(bottleneck) => Some(bottleneck),
            Self::Named(_) | Self::Direct { .. } => None,
        }
    }

    /// The named path, if it is one.
    pub fn named(&self) -> Option<&Named> {
        match self {
            Self::Named(named) => Some(named),
            Self::Bottleneck(_) | Self::Direct { .. } => None,
        }
    }

    /// Bits of IP packets a second; none of a cable.
    pub fn rate_bps(&self) -> Option<u64> {
        match self {
            Self::Bottleneck(path) => Some(path.rate_bps),
            Self::Named(path) => Some(path.rate_bps),
            Self::Direct { .. } => None,
        }
    }

    /// Useful bits a second at most; none of a cable.
    pub fn limit_bps(&self) -> Option<f64> {
        match self {
            Self::Bottleneck(path) => Some(path.limit_bps()),
            Self::Named(path) => Some(path.limit_bps),
            Self::Direct { .. } => None,
        }
    }

    /// The round-trip time without queueing.
    pub fn round_trip(&self) -> Duration {
        let seconds = match self {
            Self::Bottleneck(path) => path.rtt_s,
            Self::Named(path) => path.rtt_s,
            Self::Direct { .. } => 0.0,
        };
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct { .. } => f.write_str("plain veth pair"),
            Self::Named(path) => write!(f, "{}: {}", path.name, path.title),
            Self::Bottleneck(path) => write!(
                f,
                "{} Mbit/s, {} ms, {} % loss, queue of {} packets",
                short(path.rate_bps as f64 / 1e6),
                short(path.rtt_s * 1e3),
                short(path.loss * 100.0),
                path.queue_packets
            ),
        }
    }
}

/// Without digits that rounding made.
fn short(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn queues_and_limits() {
        let path = Bottleneck::new(100_000_000, 50 * MS, 0.1, Queue::Bdp(1.0));
        assert_eq!(path.queue_packets, 417);
        assert!((path.limit_bps() - 88.32e6).abs() < 1.0);
        assert!((path.least_wire() - 1.13225).abs() < 1e-4);
        let short = Bottleneck::new(100_000_000, MS, 0.1, Queue::Bdp(0.1));
        assert_eq!(short.queue_packets, 10);
        let told = Bottleneck::new(100_000_000, MS, 0.1, Queue::Packets(3));
        assert_eq!(told.queue_packets, 3);
    }

    #[test]
    fn every_path_is_a_scenario() {
        for loss in [0.0, 1e-6, 0.5] {
            for rtt in [MS, 200 * MS] {
                let path = Bottleneck::new(1_000_000_000, rtt, loss, Queue::Bdp(1.0));
                let scenario = path.document().unwrap().scenario().unwrap();
                assert_eq!(scenario.flows.len(), 1, "{path:?}");
            }
        }
    }

    #[test]
    fn a_path_survives_its_line_of_json() {
        let path = Path::Bottleneck(Bottleneck::new(1, MS, 0.29, Queue::Packets(1)));
        let named = Path::Named(Named {
            name: "lte".into(),
            title: "a recorded link".into(),
            rate_bps: 10_000_000,
            rtt_s: 0.05,
            limit_bps: 9e6,
            seconds: 60.0,
        });
        assert_eq!(named.to_string(), "lte: a recorded link");
        for path in [path.clone(), named, Path::DIRECT] {
            let line = serde_json::to_string(&path).unwrap();
            assert_eq!(serde_json::from_str::<Path>(&line).unwrap(), path, "{line}");
        }
        assert!(path.to_string().contains("29 % loss"), "{path}");
    }
}
