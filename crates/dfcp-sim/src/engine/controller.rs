//! A network controller (DFCP-J §3.2, §7.6): it knows the links and the flows, computes what is
//! available to each flow, and orders senders that listen to send a little more than that.
//!
//! Available is the flow's max-min fair share over its route, by weight, counted in the framing of
//! each link (Bertsekas and Gallager, "Data Networks", §6.5.2). Flows that obey no orders count as
//! elastic, except that a UDP flow takes no more than it sends; ACKs count as nothing.
//!
//! A change (a flow starts, stops or is done, a link changes) reaches the senders after the
//! response time. A flow begins with what its route would give it alone, which the controller
//! knows beforehand; so what others still send beside it is the overload of one response time.

use crate::packet::FlowId;
use dfcp_proto::{Duration, Instant, Rate};

/// A network controller.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerConfig {
    /// Time from a change until senders follow it.
    pub response: Duration,
    /// By how much it over-estimates what is available, as a fraction.
    pub error: f64,
    /// Weights of the classes, in order of their numbers; one if not there. Flows of a class share
    /// its weight.
    pub weights: Vec<f64>,
}

/// What a flow asks of the network.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Its share in proportion to others'.
    pub weight: f64,
    /// Links that it crosses, and what a bit of its packets costs there: one and the framing.
    pub links: Vec<(usize, f64)>,
    /// Most that it can use, bit/s; infinite for an elastic flow.
    pub most: f64,
}

/// Max-min fair rates, bit/s: no flow can have more but at the cost of one with less for its
/// weight. A flow that nothing limits has an infinite rate.
pub fn max_min(capacities: &[f64], claims: &[Claim]) -> Vec<f64> {
    let mut rates = vec![f64::INFINITY; claims.len()];
    let mut left = capacities.to_vec();
    let mut open: Vec<usize> = (0..claims.len()).collect();
    while !open.is_empty() {
        let mut asked = vec![0.0; capacities.len()];
        for claim in open.iter().map(|&flow| &claims[flow]) {
            for &(link, cost) in &claim.links {
                asked[link] += claim.weight * cost;
            }
        }
        // The rate for a weight of one at which each link is full.
        let levels: Vec<f64> = (left.iter().zip(&asked))
            .map(|(left, asked)| {
                if *asked > 0.0 {
                    left / asked
                } else {
                    f64::INFINITY
                }
            })
            .collect();
        let level_of = |claim: &Claim| {
            let links = claim.links.iter().map(|&(link, _)| levels[link]);
            links.fold(claim.most / claim.weight, f64::min)
        };
        let level =
            (open.iter().map(|&flow| level_of(&claims[flow]))).fold(f64::INFINITY, f64::min);
        if level.is_infinite() {
            break;
        }
        let rounding = level * 1e-9;
        open.retain(|&flow| {
            let claim = &claims[flow];
            if level_of(claim) > level + rounding {
                return true;
            }
            rates[flow] = level * claim.weight;
            for &(link, cost) in &claim.links {
                left[link] = (left[link] - rates[flow] * cost).max(0.0);
            }
            false
        });
    }
    rates
}

/// What the controller knows of a flow.
#[derive(Clone, Debug)]
pub(super) struct Client {
    /// Weight of its class among `class`.
    pub class: u32,
    pub links: Vec<usize>,
    pub start: Instant,
    pub stop: Option<Instant>,
    /// Bytes of its full packets.
    pub packet: u32,
    /// Of these, headers that its pacer does not count.
    pub headers: u32,
    /// bit/s of IP packets; infinite if elastic.
    pub most: f64,
    /// Whether it follows orders.
    pub listens: bool,
    /// Whether it has all it wanted.
    pub finished: bool,
    /// The last order.
    pub told: Option<Rate>,
}

/// What a link gives, bit/s, and the bytes it adds to a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    pub rate: f64,
    pub framing: u32,
}

#[derive(Debug)]
pub(super) struct Controller {
    config: ControllerConfig,
    clients: Vec<Client>,
}

impl Controller {
    pub fn new(config: ControllerConfig, clients: Vec<Client>) -> Self {
        Self { config, clients }
    }

    pub fn response(&self) -> Duration {
        self.config.response
    }

    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// Whether it would be news that this flow is done.
    pub fn awaits(&self, flow: FlowId) -> bool {
        !self.clients[flow.0 as usize].finished
    }

    pub fn finished(&mut self, flow: FlowId) {
        self.clients[flow.0 as usize].finished = true;
    }

    /// What a flow is told when it begins: what its route would give it alone.
    pub fn greet(&mut self, flow: FlowId, capacities: &[Capacity]) -> Option<Rate> {
        let client = &self.clients[flow.0 as usize];
        let claim = client.claim(1.0, capacities);
        let alone = max_min(&rates(capacities), &[claim])[0];
        self.order(flow.0 as usize, alone)
    }

    /// New orders, for what has changed by `now`.
    pub fn survey(&mut self, now: Instant, capacities: &[Capacity]) -> Vec<(FlowId, Rate)> {
        let active: Vec<usize> = (0..self.clients.len())
            .filter(|&flow| self.clients[flow].is_active(now))
            .collect();
        let mut members: Vec<u32> = Vec::new();
        for &flow in &active {
            let class = self.clients[flow].class as usize;
            members.resize(members.len().max(class + 1), 0);
            members[class] += 1;
        }
        let claims: Vec<Claim> = (active.iter().map(|&flow| &self.clients[flow]))
            .map(|client| {
                let class = client.class as usize;
                let weight = self.config.weights.get(class).copied().unwrap_or(1.0);
                client.claim(weight / f64::from(members[class]), capacities)
            })
            .collect();
        let shares = max_min(&rates(capacities), &claims);
        let orders = active.into_iter().zip(shares);
        orders
            .filter_map(|(flow, share)| Some((FlowId(flow as u32), self.order(flow, share)?)))
            .collect()
    }

    /// The order for a flow whose IP packets have `share`, if it is a new one.
    fn order(&mut self, flow: usize, share: f64) -> Option<Rate> {
        let client = &mut self.clients[flow];
        if !client.listens || share.is_infinite() {
            return None;
        }
        let counted = f64::from(client.packet - client.headers) / f64::from(client.packet);
        let rate = Rate::from_bps((share * (1.0 + self.config.error) * counted).round() as u64);
        (client.told.replace(rate) != Some(rate)).then_some(rate)
    }
}

fn rates(capacities: &[Capacity]) -> Vec<f64> {
    capacities.iter().map(|capacity| capacity.rate).collect()
}

impl Client {
    fn is_active(&self, now: Instant) -> bool {
        self.start <= now && self.stop.is_none_or(|stop| now < stop) && !self.finished
    }

    fn claim(&self, weight: f64, capacities: &[Capacity]) -> Claim {
        let packet = f64::from(self.packet);
        let cost = |&link: &usize| {
            let framing = f64::from(capacities[link].framing);
            (link, (packet + framing) / packet)
        };
        Claim {
            weight,
            links: self.links.iter().map(cost).collect(),
            most: self.most,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elastic(links: &[usize]) -> Claim {
        Claim {
            weight: 1.0,
            links: links.iter().map(|&link| (link, 1.0)).collect(),
            most: f64::INFINITY,
        }
    }

    #[test]
    fn shares_are_those_of_the_paper() {
        // DFCP-J §7.6: B1 1 Gbit/s, B2 400 Mbit/s; flow 1 crosses both, 2 the first, 3 the second.
        let capacities = [1e9, 400e6];
        let flows = [elastic(&[0, 1]), elastic(&[0]), elastic(&[1])];
        assert_eq!(max_min(&capacities, &flows[..2]), [400e6, 600e6]);
        assert_eq!(max_min(&capacities, &flows), [200e6, 800e6, 200e6]);
    }

    #[test]
    fn weights_limits_and_framing_count() {
        let heavy = Claim {
            weight: 3.0,
            ..elastic(&[0])
        };
        assert_eq!(max_min(&[100.0], &[heavy, elastic(&[0])]), [75.0, 25.0]);
        let modest = Claim {
            most: 10.0,
            ..elastic(&[0])
        };
        let shares = max_min(&[100.0], &[modest, elastic(&[0]), elastic(&[0])]);
        assert_eq!(shares, [10.0, 45.0, 45.0]);
        let framed = Claim {
            links: vec![(0, 1.25)],
            ..elastic(&[])
        };
        assert_eq!(max_min(&[100.0], &[framed]), [80.0]);
        // Nothing limits it.
        assert_eq!(max_min(&[], &[elastic(&[])]), [f64::INFINITY]);
    }

    /// On random networks no link is overloaded, and each flow crosses a full link on which nobody
    /// has more than it: the definition of max-min fairness.
    #[test]
    fn every_flow_has_a_bottleneck() {
        for seed in 0..200 {
            let mut random = crate::random::Seed(seed).stream("max-min");
            let links = 1 + random.below(6) as usize;
            let capacities: Vec<f64> = (0..links).map(|_| 1.0 + random.next_f64()).collect();
            let claims: Vec<Claim> = (0..1 + random.below(12))
                .map(|_| Claim {
                    weight: 0.5 + random.next_f64(),
                    links: (0..links)
                        .filter(|_| random.chance(0.5))
                        .map(|link| (link, 1.0))
                        .collect(),
                    most: f64::INFINITY,
                })
                .filter(|claim| !claim.links.is_empty())
                .collect();
            let rates = max_min(&capacities, &claims);
            let load = |link: usize| -> f64 {
                let crossing = claims.iter().zip(&rates);
                let crossing = crossing.filter(|(c, _)| c.links.iter().any(|l| l.0 == link));
                crossing.map(|(_, rate)| rate).sum()
            };
            let full = |link: usize| load(link) > capacities[link] - 1e-6;
            for (flow, (claim, rate)) in claims.iter().zip(&rates).enumerate() {
                let most_on = |link: usize| {
                    let others = claims.iter().zip(&rates);
                    let others = others.filter(|(c, _)| c.links.iter().any(|l| l.0 == link));
                    others.map(|(c, r)| r / c.weight).fold(0.0, f64::max)
                };
                let held = claim
                    .links
                    .iter()
                    .any(|&(link, _)| full(link) && rate / claim.weight >= most_on(link) - 1e-6);
                assert!(held, "seed {seed}: flow {flow} could have more");
            }
            for (link, capacity) in capacities.iter().enumerate() {
                assert!(load(link) <= capacity + 1e-6, "seed {seed}: overload");
            }
        }
    }
}
