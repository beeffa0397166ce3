//! Stochastic fairness queueing: McKenney, "Stochastic Fairness Queueing", INFOCOM 1990. Flows are
//! hashed into buckets that take turns; turns are counted in bytes by deficit round robin, as in
//! Linux, so that a flow of large packets gains nothing.

use dfcp_proto::Instant;

use super::backlog::Backlog;
use super::config::{Limit, SfqConfig};
use super::drr::RoundRobin;
use super::hash::Buckets;
use crate::packet::{DropCause, Packet, Queued};
use crate::random::Random;

#[derive(Clone, Debug)]
pub(super) struct Sfq<P> {
    buckets: Buckets,
    quantum: u32,
    robin: RoundRobin<P>,
}

impl<P: Packet> Sfq<P> {
    pub(super) fn new(config: SfqConfig, random: Random) -> Self {
        Self {
            buckets: Buckets::new(config.buckets, config.perturb, random),
            quantum: config.quantum,
            robin: RoundRobin::new(config.drop_from),
        }
    }

    pub(super) fn enqueue(
        &mut self,
        now: Instant,
        item: Queued<P>,
        limit: Limit,
        dropped: &mut impl FnMut(P, DropCause),
    ) {
        self.buckets.advance(now);
        let bucket = self.buckets.of(item.packet.flow());
        self.robin.enqueue(bucket, item, limit, dropped);
    }

    pub(super) fn dequeue(&mut self) -> Option<Queued<P>> {
        let quantum = u64::from(self.quantum);
        self.robin.dequeue(|_| quantum)
    }

    pub(super) fn backlog(&self) -> &Backlog<P> {
        self.robin.backlog()
    }
}
