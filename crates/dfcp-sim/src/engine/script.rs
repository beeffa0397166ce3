//! What happens by the clock: changes of links, samples, the end of the warm-up, and what the
//! controller hears and orders.

use super::controller::{Capacity, Controller};
use super::{LinkId, LinkSample, Simulation};
use crate::link::LinkConfig;
use crate::packet::FlowId;
use dfcp_proto::Rate;

/// Something that happens by the clock.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// A link changes.
    SetLink(LinkId, Box<LinkConfig>),
    /// Counting begins anew.
    EndWarmUp,
    /// A flow starts: the controller greets it.
    Greet(FlowId),
    /// A flow stops: the controller looks again.
    Survey,
    /// An order of the controller reaches a flow's source.
    Order(FlowId, Rate),
}

impl Simulation {
    /// Does what the script has for now.
    pub(super) fn act(&mut self) {
        if self.next_sample == Some(self.now) {
            self.sample();
        }
        let mut changed = false;
        while let Some((_, act)) = self.script.pop_if(|(at, _)| *at <= self.now) {
            match act {
                Act::SetLink(id, config) => {
                    self.set_link(id, *config);
                    changed = true;
                }
                Act::EndWarmUp => self.end_warm_up(),
                Act::Greet(flow) => {
                    self.greet(flow);
                    changed = true;
                }
                Act::Survey => changed = true,
                Act::Order(flow, rate) => self.order(flow, rate),
            }
        }
        if changed {
            self.survey();
        }
        self.plan();
    }

    fn set_link(&mut self, id: LinkId, config: LinkConfig) {
        let link = &mut self.links[id.0 as usize];
        link.set_config_with(self.now, config, &mut self.ends);
        self.schedule.set(id.0, link.poll_at());
    }

    /// What the controller knows of the links.
    fn capacities(&self) -> Vec<Capacity> {
        let links = self.links.iter();
        links
            .map(|link| Capacity {
                rate: link
                    .rate()
                    .map_or(f64::INFINITY, |rate| rate.as_bps() as f64),
                framing: link.config().framing,
            })
            .collect()
    }

    fn greet(&mut self, flow: FlowId) {
        let capacities = self.capacities();
        let controller = self.controller.as_mut();
        if let Some(rate) = controller.and_then(|c| c.greet(flow, &capacities)) {
            self.order(flow, rate);
        }
    }

    /// The controller looks at the network, and its orders are on their way.
    fn survey(&mut self) {
        let capacities = self.capacities();
        let Some(controller) = &mut self.controller else {
            return;
        };
        let at = self.now + controller.response();
        for (flow, rate) in controller.survey(self.now, &capacities) {
            // Before what is later, after what was planned for the same time.
            let place = self.script.partition_point(|(other, _)| *other > at);
            self.script.insert(place, (at, Act::Order(flow, rate)));
        }
    }

    fn order(&mut self, flow: FlowId, rate: Rate) {
        let seat = 2 * flow.0 as usize;
        self.ends.seats[seat].agent.order_rate(self.now, rate);
        self.pump(seat);
    }

    /// Tells the controller when a flow is done.
    pub(super) fn watch(&mut self, flow: FlowId) {
        let sized = self.flows[flow.0 as usize].size.is_some();
        let awaits = |controller: &Controller| sized && controller.awaits(flow);
        if self.controller.as_ref().is_some_and(awaits)
            && self.sink(flow).progress().finished.is_some()
        {
            if let Some(controller) = &mut self.controller {
                controller.finished(flow);
            }
            self.survey();
            self.plan();
        }
    }

    /// Notes when the script goes on.
    pub(super) fn plan(&mut self) {
        let component = (self.links.len() + self.ends.seats.len()) as u32;
        let next = self.script.last().map(|(at, _)| *at);
        let next = next.into_iter().chain(self.next_sample).min();
        self.schedule.set(component, None);
        self.schedule.set(component, next);
    }

    fn sample(&mut self) {
        for flow in 0..self.flows.len() {
            let id = FlowId(flow as u32);
            let delivered = self.sink(id).progress().delivered;
            self.samples.delivered[flow].push(delivered);
            let arrived = self.counters(id).bytes_arrived;
            self.samples.arrived[flow].push(arrived);
        }
        for ((id, samples), before) in self.samples.links.iter_mut().zip(&mut self.sampled) {
            let link = &self.links[id.0 as usize];
            let now = (link.stats().packets_in, link.stats().drops.total());
            samples.push(LinkSample {
                packets_in: now.0 - before.0,
                dropped: now.1 - before.1,
                queued: link.queued_packets() as u64,
            });
            *before = now;
        }
        self.next_sample = Some(self.now + self.samples.interval);
    }

    fn end_warm_up(&mut self) {
        for link in &mut self.links {
            link.run(self.now, &mut self.ends);
            link.reset_stats(self.now);
        }
        self.sampled.fill((0, 0));
        let counters = self.flows.iter().map(|flow| self.counters(flow.id));
        self.warm = (self.now, counters.collect());
    }
}
