//! A scenario cut at its switches: each hop of a flow is a flow of its own on the path, from the port
//! where packets enter a link to the one where they leave it. What joins the hops again are switches.

use std::ops::Range;

use dfcp_sim::FlowId;
use dfcp_sim::engine::Direction;
use dfcp_sim::report::{FlowReport, RunReport};
use dfcp_sim::scenario::{FlowSpec, LinkIndex, NodeIndex, Scenario};

use super::FlowHosts;
use crate::net::cable::Classify;
use crate::net::frame::Header;
use crate::net::host::host_number;

/// A cable between two nodes: the two one-way links of one hop.
#[derive(Clone, Debug)]
pub(super) struct Cable {
    /// What it joins.
    pub ends: [NodeIndex; 2],
    /// From the first end to the second, and back.
    pub links: [LinkIndex; 2],
}

/// One hop of a flow.
#[derive(Clone, Copy, Debug)]
struct Hop {
    cable: usize,
    /// Towards the flow's sink.
    ends: [NodeIndex; 2],
}

/// A port of the path: an end of a cable at a switch, or a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub node: NodeIndex,
    /// None for a host, whatever it is joined to.
    pub cable: Option<usize>,
}

/// A scenario cut into hops.
#[derive(Clone, Debug)]
pub(super) struct Hops {
    /// Each hop a flow.
    pub scenario: Scenario,
    pub cables: Vec<Cable>,
    hops: Vec<Hop>,
    /// For each flow of the whole scenario, its hops.
    of_flow: Vec<Range<usize>>,
}

impl Hops {
    /// Cuts a scenario.
    ///
    /// # Errors
    /// The name of a flow that comes back on another way: its switches have no cables both ways.
    pub fn of(whole: &Scenario) -> Result<Self, String> {
        let mut scenario = whole.clone();
        scenario.flows.clear();
        scenario.controller = None;
        let mut cut = Self {
            scenario,
            cables: Vec::new(),
            hops: Vec::new(),
            of_flow: Vec::new(),
        };
        for flow in &whole.flows {
            let first = cut.hops.len();
            cut.add(whole, flow).ok_or_else(|| flow.name.clone())?;
            cut.of_flow.push(first..cut.hops.len());
        }
        Ok(cut)
    }

    fn add(&mut self, whole: &Scenario, flow: &FlowSpec) -> Option<()> {
        if flow.forward.len() != flow.backward.len() {
            return None;
        }
        for (&there, &back) in flow.forward.iter().zip(flow.backward.iter().rev()) {
            let link = |index: LinkIndex| &whole.links[index.0];
            let ends = [link(there).from, link(there).to];
            if [link(back).to, link(back).from] != ends {
                return None;
            }
            let links = [there, back];
            let known = self
                .cables
                .iter()
                .position(|cable| cable.links.contains(&there));
            let cable = known.unwrap_or_else(|| {
                self.cables.push(Cable { ends, links });
                self.cables.len() - 1
            });
            self.hops.push(Hop { cable, ends });
            self.scenario.flows.push(FlowSpec {
                name: format!("{} on {}", flow.name, link(there).name),
                from: ends[0],
                to: ends[1],
                forward: vec![there],
                backward: vec![back],
                others: Vec::new(),
                ..flow.clone()
            });
        }
        Some(())
    }

    /// For each hop, the ports at its ends.
    pub fn ends(&self, places: &[Place]) -> Vec<[usize; 2]> {
        let port = |hop: &Hop, node: NodeIndex| {
            let is = |place: &Place| {
                place.node == node && place.cable.is_none_or(|cable| cable == hop.cable)
            };
            places.iter().position(is).unwrap_or(0)
        };
        let ends = self
            .hops
            .iter()
            .map(|hop| hop.ends.map(|node| port(hop, node)));
        ends.collect()
    }

    /// The figures of the flows, from those of their hops: what was sent is what entered the first,
    /// what arrived is what left the last.
    pub fn join(&self, whole: &[FlowSpec], report: &mut RunReport) {
        let hops = std::mem::take(&mut report.flows);
        let all = self.of_flow.iter().zip(whole);
        report.flows = all
            .map(|(range, flow)| joined(&flow.name, &hops[range.clone()]))
            .collect();
        report.summary.packets = report.flows.iter().map(|flow| flow.packets_sent).sum();
        let links = report
            .series
            .split_off(self.hops.len().min(report.series.len()));
        let series = std::mem::take(&mut report.series);
        if !series.is_empty() {
            let all = self.of_flow.iter().zip(whole);
            let first = all.map(|(range, flow)| {
                let mut first = series[range.start].clone();
                first.name.clone_from(&flow.name);
                first
            });
            report.series = first.collect();
        }
        report.series.extend(links);
    }
}

fn joined(name: &str, hops: &[FlowReport]) -> FlowReport {
    let mut joined = hops[0].clone();
    joined.name = name.to_owned();
    let mut passed = 1.0 - joined.loss;
    for hop in &hops[1..] {
        joined.drops.add(&hop.drops);
        joined.throughput_bps = hop.throughput_bps;
        let limits = [joined.limit_bps, hop.limit_bps].into_iter().flatten();
        joined.limit_bps = limits.reduce(f64::min);
        passed *= 1.0 - hop.loss;
    }
    joined.loss = 1.0 - passed;
    joined
}

/// Which hop a packet is on.
pub(super) struct HopFlows {
    pub flows: FlowHosts,
    pub hops: Hops,
    pub places: Vec<Place>,
}

impl HopFlows {
    fn hop(&self, port: usize, range: Range<usize>, direction: Direction) -> Option<FlowId> {
        let place = self.places.get(port)?;
        let is = |hop: &Hop| {
            let enters = match direction {
                Direction::Forward => hop.ends[0],
                Direction::Backward => hop.ends[1],
            };
            enters == place.node && place.cable.is_none_or(|cable| cable == hop.cable)
        };
        let found = self.hops.hops[range.clone()].iter().position(is)?;
        Some(FlowId((range.start + found) as u32))
    }
}

impl Classify for HopFlows {
    fn classify(&self, from: usize, header: &Header) -> Option<(FlowId, Direction)> {
        let source = host_number(header.source)?;
        let (flow, direction) = self.flows.classify(source, header)?;
        let range = self.hops.of_flow.get(flow.0 as usize)?.clone();
        Some((self.hop(from, range, direction)?, direction))
    }

    /// On the cable of a switch's port, with the first flow there.
    fn classify_link_frame(&self, from: usize) -> Option<(FlowId, Direction)> {
        let place = self.places.get(from)?;
        let cable = place.cable?;
        let found = self.hops.hops.iter().position(|hop| hop.cable == cable)?;
        let direction = match self.hops.hops[found].ends[0] == place.node {
            true => Direction::Forward,
            false => Direction::Backward,
        };
        Some((FlowId(found as u32), direction))
    }
}
