//! Which nodes a flow joins, and the routes between them.

use super::fields::did_you_mean;
use super::flows::Transport;
use super::model::*;
use super::network::{Network, RANDOM};
use super::route::Routes;
use super::settings::FlowSettings;
use super::tree::{Fault, Node};
use crate::random::Random;
use crate::topology::NodeKind;

/// Finds end points and routes for one entry.
pub(super) struct Ends<'a> {
    pub network: &'a Network<'a>,
    pub node: &'a Node,
    pub random: Random,
}

/// The links of a way, in order.
pub(super) type Route = Vec<LinkIndex>;

impl Ends<'_> {
    /// The ends of a replica. Flows that name none take the topology's pairs in turn.
    pub fn pick(
        &mut self,
        settings: &FlowSettings,
        replica: usize,
        flow: usize,
    ) -> Result<(NodeIndex, NodeIndex), Fault> {
        let pairs = &self.network.graph.pairs;
        match (settings.from.as_slice(), settings.to.as_slice()) {
            ([], []) if !pairs.is_empty() => {
                let (from, to) = pairs[flow % pairs.len()];
                Ok((NodeIndex(from), NodeIndex(to)))
            }
            ([], _) | (_, []) => Err(Fault::new(
                self.node.place,
                format!(
                    "flow `{}` needs both `from` and `to`: write for example from = \"{}\", or \
                     \"random\" for any host",
                    settings.name,
                    self.network
                        .graph
                        .nodes
                        .first()
                        .map_or("a", |node| &node.name)
                ),
            )),
            (from, to) => {
                let (from, to) = (&from[replica % from.len()], &to[replica % to.len()]);
                self.named(settings, from, to)
            }
        }
    }

    fn named(
        &mut self,
        settings: &FlowSettings,
        from: &str,
        to: &str,
    ) -> Result<(NodeIndex, NodeIndex), Fault> {
        let hosts = self.network.graph.nodes.iter().enumerate();
        let hosts: Vec<usize> = hosts
            .filter(|(_, node)| node.kind == NodeKind::Host)
            .map(|(index, _)| index)
            .collect();
        let source = match from {
            RANDOM => None,
            name => Some(self.find(name, "from")?),
        };
        let target = match to {
            RANDOM => None,
            name => Some(self.find(name, "to")?),
        };
        let mut draw = |other: Option<usize>| {
            let free: Vec<_> = hosts.iter().filter(|host| Some(**host) != other).collect();
            free.get(self.random.below(free.len() as u64) as usize)
                .map(|host| **host)
        };
        let source = source.or_else(|| draw(target));
        let target = target.or_else(|| draw(source));
        match (source, target) {
            (Some(from), Some(to)) if from != to => Ok((NodeIndex(from), NodeIndex(to))),
            _ => Err(Fault::new(
                self.node.place_of("to"),
                format!("flow `{}` ends where it begins, at `{from}`", settings.name),
            )),
        }
    }

    fn find(&self, name: &str, key: &str) -> Result<usize, Fault> {
        let nodes = &self.network.graph.nodes;
        if let Some(index) = nodes.iter().position(|node| node.name == name) {
            return Ok(index);
        }
        let names = || nodes.iter().map(|node| node.name.as_str());
        let hint = did_you_mean(name, names(), '`');
        let shown = names().take(8).collect::<Vec<_>>().join("`, `");
        Err(Fault::new(
            self.node.place_of(key),
            format!("`{key}`: there is no node `{name}`.{hint} Nodes are `{shown}`, …"),
        ))
    }

    /// The routes there and back: one, or those of all paths.
    pub fn routes(
        &self,
        settings: &FlowSettings,
        transport: &Transport,
        routes: &mut Routes<'_>,
        ends: [NodeIndex; 2],
    ) -> Result<Vec<(Route, Route)>, Fault> {
        let paths = match transport {
            Transport::Coded(spec) => &spec.paths[..],
            _ => &[],
        };
        if paths.is_empty() {
            return Ok(vec![self.route(settings, routes, ends)?]);
        }
        if !settings.via.is_empty() {
            let message = "`via`: a flow with `paths` goes through those: leave one of both out";
            return Err(Fault::new(self.node.place_of("via"), message));
        }
        let [from, to] = ends;
        let path = |name: &String| {
            let via = NodeIndex(self.find(name, "paths")?);
            let both = routes.past(from, via, to).zip(routes.past(to, via, from));
            both.filter(|_| via != from && via != to)
                .ok_or_else(|| self.no_route(settings, ends))
        };
        paths.iter().map(path).collect()
    }

    fn route(
        &self,
        settings: &FlowSettings,
        routes: &mut Routes<'_>,
        [from, to]: [NodeIndex; 2],
    ) -> Result<(Route, Route), Fault> {
        let mut stops = vec![from];
        for name in &settings.via {
            stops.push(NodeIndex(self.find(name, "via")?));
        }
        stops.push(to);
        let forward = routes.through(&stops);
        stops.reverse();
        match (forward, routes.through(&stops)) {
            (Some(forward), Some(backward)) => Ok((forward, backward)),
            _ => Err(self.no_route(settings, [from, to])),
        }
    }

    fn no_route(&self, settings: &FlowSettings, ends: [NodeIndex; 2]) -> Fault {
        let [from, to] = ends.map(|node| &self.network.graph.nodes[node.0].name);
        Fault::new(
            self.node.place_of("to"),
            format!(
                "flow `{}` has no route from `{from}` to `{to}`: add a [link.NAME] with \
                 `between` that joins their parts of the network",
                settings.name
            ),
        )
    }
}
