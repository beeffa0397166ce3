//! The demo's path: the same rate, delay and loss in both directions.

use dfcp_proto::{Duration, Instant, Rate};
use dfcp_sim::engine::{FlowConfig, LinkId, Network, NetworkError, Simulation, Traffic};
use dfcp_sim::{Limit, LinkConfig, LinkStats};

/// Parameters of a path.
#[derive(Clone, Debug, PartialEq)]
pub struct PathConfig {
    /// Rate of IP packets, each way.
    pub rate: Rate,
    /// Round-trip time of an idle path.
    pub rtt: Duration,
    /// Probability that a packet is lost, each way.
    pub loss: f64,
    /// Packets that wait for the transmitter before the tail is dropped, each way.
    pub queue_packets: usize,
    /// Seed of the losses.
    pub seed: u64,
}

impl Default for PathConfig {
    /// 100 Mbit/s, 60 ms, 5 % lost.
    fn default() -> Self {
        Self::new(
            Rate::from_bps(100_000_000),
            Duration::from_millis(60),
            0.05,
            1,
        )
    }
}

impl PathConfig {
    /// A path whose queues hold one bandwidth-delay product, the usual size of a router's buffer.
    pub fn new(rate: Rate, rtt: Duration, loss: f64, seed: u64) -> Self {
        // At least 50 packets, so that a burst fits on short paths too.
        let packets = usize::try_from(rate.bytes_in(rtt) / 1500).unwrap_or(usize::MAX);
        Self {
            rate,
            rtt,
            loss,
            queue_packets: packets.max(50),
            seed,
        }
    }

    /// The path as a network of two links, whose only flow is that of hosts outside it.
    ///
    /// # Errors
    /// When a parameter is out of range.
    pub fn network(&self) -> Result<Simulation, NetworkError> {
        let config = LinkConfig {
            rate: self.rate.into(),
            delay: self.rtt / 2,
            queue: Limit::Packets(self.queue_packets).into(),
            framing: 0,
            loss: self.loss.into(),
            ..LinkConfig::default()
        };
        let mut network = Network::new(self.seed);
        let forward = vec![network.add_link("path.forward", config.clone())];
        let backward = vec![network.add_link("path.backward", config)];
        network.add_flow(FlowConfig {
            name: "transfer".into(),
            class: 0,
            forward,
            backward,
            start: Instant::ZERO,
            stop: None,
            size: None,
            traffic: Traffic::External,
        });
        network.build()
    }

    /// What the links of such a network counted: towards the server, and back.
    pub fn links(network: &Simulation) -> [LinkStats; 2] {
        [0, 1].map(|link| network.link(LinkId(link)).stats().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_is_one_bandwidth_delay_product() {
        assert_eq!(PathConfig::default().queue_packets, 500);
        let short = PathConfig::new(Rate::from_bps(1_000_000), Duration::from_millis(1), 0.0, 1);
        assert_eq!(short.queue_packets, 50);
    }

    #[test]
    fn nonsense_is_refused() {
        let path =
            |rate, loss| PathConfig::new(Rate::from_bps(rate), Duration::ZERO, loss, 1).network();
        assert!(path(0, 0.0).is_err());
        assert!(path(1, 2.0).is_err());
        assert!(path(1, 1.0).is_ok());
    }
}
