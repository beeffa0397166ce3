//! Thinning of acknowledgements on their way back, as cable modems and satellite gateways do it:
//! RFC 3449 §5.2.1 (ACK filtering) and §5.2.2 (ACK decimation).
//!
//! A device that sees an acknowledgement come while an older one of the same flow waits lets the
//! new one take its place. So nothing is thinned where nothing waits: it takes a slow way back, or
//! one that sends in grants. Acknowledgements are told by their size, which is all that shows of
//! encrypted ones; like those devices' rules it is a guess that fits TCP and may hurt others.

use std::collections::BTreeMap;

use crate::packet::{FlowId, Packet, Queued};
use crate::queue::Queue;

/// Which acknowledgements a link passes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AckThinning {
    /// All.
    #[default]
    Off,
    /// Of those of a flow that wait, one for each so many.
    Every(u32),
    /// Of those of a flow that wait, the newest.
    Newest,
}

/// Largest packet that is taken for an acknowledgement, bytes of IP: TCP's have at most 100 (IPv6
/// with all options), feedback of `dfcp` up to about 250.
const ACK: u32 = 256;

/// What became of a packet.
pub(super) enum Thinned<P> {
    /// It is to be queued.
    Kept(Queued<P>),
    /// It waits in the place of this older one.
    Replaced(P),
}

/// For each flow, how many acknowledgements its newest waiting one stands for.
#[derive(Clone, Debug, Default)]
pub(super) struct AckThinner(BTreeMap<FlowId, u32>);

impl AckThinner {
    /// Lets a packet that comes to a busy link take the place of an older one.
    pub(super) fn thin<P: Packet>(
        &mut self,
        rule: AckThinning,
        queue: &mut Queue<P>,
        item: Queued<P>,
    ) -> Thinned<P> {
        let most = match rule {
            AckThinning::Every(count) => count,
            AckThinning::Newest => u32::MAX,
            AckThinning::Off => return Thinned::Kept(item),
        };
        if item.packet.size() > ACK {
            return Thinned::Kept(item);
        }
        let stands_for = self.0.entry(item.packet.flow()).or_insert(0);
        let kept = if *stands_for < most {
            match queue.replace_newest(item, ACK) {
                Ok(old) => {
                    *stands_for += 1;
                    return Thinned::Replaced(old);
                }
                Err(item) => item,
            }
        } else {
            item
        };
        *stands_for = 1;
        Thinned::Kept(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Datagram, Link, LinkConfig};
    use dfcp_proto::{Instant, Rate};

    fn packet(flow: u32, tag: u64, size: usize) -> Datagram {
        Datagram {
            flow: FlowId(flow),
            tag,
            ..Datagram::new(vec![0; size])
        }
    }

    /// Tags of what a link delivers that got a full packet and, while that is in the transmitter,
    /// nine acknowledgements of each of two flows and a full packet between the fifth and the sixth.
    fn delivered(ack_thinning: AckThinning) -> Vec<u64> {
        let config = LinkConfig {
            rate: Rate::from_bps(1_000_000).into(),
            ack_thinning,
            ..LinkConfig::default()
        };
        let mut link = Link::new(config, 1);
        link.send(Instant::ZERO, packet(0, 100, 1500));
        for ack in 1..=9 {
            link.send(Instant::ZERO, packet(1, ack, 64));
            link.send(Instant::ZERO, packet(2, 10 + ack, 64));
            if ack == 5 {
                link.send(Instant::ZERO, packet(1, 101, 1500));
            }
        }
        let end = Instant::from_nanos(1_000_000_000);
        let tags = std::iter::from_fn(|| link.poll(end)).map(|packet| packet.tag);
        let tags: Vec<u64> = tags.collect();
        assert_eq!(link.stats().drops.early as usize, 20 - tags.len());
        assert_eq!(link.queued_packets(), 0);
        tags
    }

    #[test]
    fn of_those_that_wait_one_in_so_many_passes_or_the_newest() {
        let all = delivered(AckThinning::Off);
        assert_eq!(all.len(), 20);
        assert_eq!(delivered(AckThinning::Every(1)), all);
        // The place in the queue is that of the first of each group.
        let fourth = [100, 4, 14, 8, 18, 101, 9, 19];
        assert_eq!(delivered(AckThinning::Every(4)), fourth);
        assert_eq!(delivered(AckThinning::Newest), [100, 9, 19, 101]);
    }

    #[test]
    fn a_link_that_keeps_up_thins_nothing() {
        let config = LinkConfig {
            rate: Rate::from_bps(10_000_000).into(),
            ack_thinning: AckThinning::Newest,
            ..LinkConfig::default()
        };
        let mut link = Link::new(config, 1);
        for ack in 0..100 {
            link.send(Instant::from_nanos(ack * 1_000_000), packet(1, ack, 64));
        }
        let end = Instant::from_nanos(1_000_000_000);
        assert_eq!(std::iter::from_fn(|| link.poll(end)).count(), 100);
    }
}
