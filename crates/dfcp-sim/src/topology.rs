//! Ready-made graphs: which nodes there are, which duplex links join them, which pairs talk.
//!
//! A graph says nothing about queues; where the topology itself fixes delays and rates (ESnet),
//! its links carry them. Every link has a name of its own and the names of the roles it
//! plays (`access`, `bottleneck`, …), so that a scenario can address one link or a group.
//!
//! Invariants: names are unique, links join different nodes, every graph is connected.

use dfcp_proto::{Duration, Rate};

mod esnet;
mod random;
#[cfg(test)]
mod tests;

pub use esnet::esnet;
pub use random::{ErdosRenyiError, erdos_renyi};

/// A graph of nodes and duplex links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// Hosts and routers.
    pub nodes: Vec<Node>,
    /// Duplex links.
    pub links: Vec<DuplexLink>,
    /// Source and destination of the flows that the topology is made for, as indices of nodes.
    pub pairs: Vec<(usize, usize)>,
}

/// A node of a [`Graph`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Unique.
    pub name: String,
    /// What it is for.
    pub kind: NodeKind,
}

/// What a node is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Flows may begin and end here.
    Host,
    /// Only forwards.
    Router,
}

/// A duplex link of a [`Graph`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplexLink {
    /// Unique.
    pub name: String,
    /// Groups it belongs to, the widest first.
    pub roles: Vec<&'static str>,
    /// One end, as an index of nodes: the forward direction starts here.
    pub from: usize,
    /// The other end.
    pub to: usize,
    /// The propagation delay where the topology fixes it.
    pub delay: Option<Duration>,
    /// The rate where the topology fixes it.
    pub rate: Option<Rate>,
}

impl Graph {
    /// Adds a node and gives its index.
    pub fn node(&mut self, name: impl Into<String>, kind: NodeKind) -> usize {
        let name = name.into();
        self.nodes.push(Node { name, kind });
        self.nodes.len() - 1
    }

    /// Adds a duplex link between two nodes.
    pub fn link(&mut self, name: impl Into<String>, roles: &[&'static str], ends: (usize, usize)) {
        self.links.push(DuplexLink {
            name: name.into(),
            roles: roles.to_vec(),
            from: ends.0,
            to: ends.1,
            delay: None,
            rate: None,
        });
    }

    /// Adds a source behind `left` and a sink behind `right`, joined by access links.
    fn pair(&mut self, left: usize, right: usize) {
        let number = self.pairs.len() + 1;
        let source = self.node(format!("source-{number}"), NodeKind::Host);
        let sink = self.node(format!("sink-{number}"), NodeKind::Host);
        self.link(
            format!("access-left-{number}"),
            &["access", "access-left"],
            (source, left),
        );
        self.link(
            format!("access-right-{number}"),
            &["access", "access-right"],
            (right, sink),
        );
        self.pairs.push((source, sink));
    }
}

/// `pairs` sources and sinks around one bottleneck (DFCP-J Fig. 7).
///
/// Nodes `left`, `right`, `source-1`, `sink-1`, …; links `bottleneck`, `access-left-1`,
/// `access-right-1`, …; roles `access`, `access-left`, `access-right`.
pub fn dumbbell(pairs: usize) -> Graph {
    let mut graph = Graph::default();
    let left = graph.node("left", NodeKind::Router);
    let right = graph.node("right", NodeKind::Router);
    graph.link("bottleneck", &[], (left, right));
    for _ in 0..pairs {
        graph.pair(left, right);
    }
    graph
}

/// Two bottlenecks in a row and three pairs (DFCP-J Fig. 8): flow 1 crosses both, flow 2 only
/// the first, flow 3 only the second.
///
/// Nodes `router-1` to `router-3` and the pairs' as in [`dumbbell`]; links `bottleneck-1`,
/// `bottleneck-2` with the role `bottleneck`, and access links as in [`dumbbell`].
pub fn parking_lot() -> Graph {
    let mut graph = Graph::default();
    let [first, middle, last] =
        [1, 2, 3].map(|n| graph.node(format!("router-{n}"), NodeKind::Router));
    graph.link("bottleneck-1", &["bottleneck"], (first, middle));
    graph.link("bottleneck-2", &["bottleneck"], (middle, last));
    graph.pair(first, last);
    graph.pair(first, middle);
    graph.pair(middle, last);
    graph
}

/// Two sources, two sinks, one shared link (Chameleon Fig. 3): a [`dumbbell`] of two pairs, by
/// the paper's name.
pub fn butterfly() -> Graph {
    dumbbell(2)
}

/// The sizes of a [`flower`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flower {
    /// Loops around the core.
    pub loops: usize,
    /// Routers of a loop, its core router among them.
    pub routers: usize,
    /// DSLAMs of each router that is no core router.
    pub dslams: usize,
    /// Hosts of each DSLAM.
    pub hosts: usize,
}

impl Default for Flower {
    /// Chameleon, Table IV: five loops of eight routers, two DSLAMs, three hosts.
    fn default() -> Self {
        Self {
            loops: 5,
            routers: 8,
            dslams: 2,
            hosts: 3,
        }
    }
}

impl Flower {
    /// Hosts in all: 210 by default.
    pub fn host_count(self) -> usize {
        let routers = self.loops.saturating_mul(self.routers.saturating_sub(1));
        routers
            .saturating_mul(self.dslams)
            .saturating_mul(self.hosts)
    }
}

/// Loops of routers around a core, as an access provider builds them (Chameleon §V, Fig. 6).
///
/// The paper says neither how the core routers are joined nor whether they belong to the loops:
/// here each is one of its loop's routers, and they form a ring. The default has 40 routers (5 of
/// them core routers), 70 DSLAMs and 210 hosts. Roles: `core`, `loop`, `dslam`, `host`.
pub fn flower(sizes: Flower) -> Graph {
    let mut graph = Graph::default();
    let mut cores = Vec::new();
    for l in 1..=sizes.loops {
        let routers: Vec<usize> = (1..=sizes.routers)
            .map(|r| match r {
                1 => graph.node(format!("core-{l}"), NodeKind::Router),
                _ => graph.node(format!("router-{l}-{r}"), NodeKind::Router),
            })
            .collect();
        for (n, ends) in ring(&routers).into_iter().enumerate() {
            graph.link(format!("loop-{l}-{}", n + 1), &["loop"], ends);
        }
        cores.extend(routers.first());
        for (r, router) in routers.iter().enumerate().skip(1) {
            for d in 1..=sizes.dslams {
                leaf(
                    &mut graph,
                    *router,
                    &format!("{l}-{}-{d}", r + 1),
                    sizes.hosts,
                );
            }
        }
    }
    for (n, ends) in ring(&cores).into_iter().enumerate() {
        graph.link(format!("core-ring-{}", n + 1), &["core"], ends);
    }
    graph
}

/// A DSLAM with its hosts.
fn leaf(graph: &mut Graph, router: usize, name: &str, hosts: usize) {
    let dslam = graph.node(format!("dslam-{name}"), NodeKind::Router);
    graph.link(format!("dslam-{name}"), &["dslam"], (router, dslam));
    for h in 1..=hosts {
        let host = graph.node(format!("host-{name}-{h}"), NodeKind::Host);
        graph.link(format!("host-{name}-{h}"), &["host"], (dslam, host));
    }
}

/// The links of a ring; two nodes need only one.
fn ring(nodes: &[usize]) -> Vec<(usize, usize)> {
    let mut links: Vec<_> = nodes.windows(2).map(|ends| (ends[0], ends[1])).collect();
    if let (Some(first), Some(last), true) = (nodes.first(), nodes.last(), nodes.len() > 2) {
        links.push((*last, *first));
    }
    links
}
