//! The sections of a scenario file and their defaults, each default with its reason.

use dfcp_proto::Duration;

use super::fields::{
    Codec, Count, Fields, ListOf, Number, OneOf, OrWord, PROBABILITY, Section, Time,
};
use super::model::*;
use super::tree::{Fault, Node, Value};
use crate::random::Seed;
use crate::topology::{self, Graph};

mod chameleon;
mod clock;
mod coded;
mod ctcp;
mod flow;
mod jitter;
mod limits;
mod link;
mod loss;
mod outage;
mod published;
mod queue;
mod rc_udp;
mod transport;

pub(super) use flow::{FlowSettings, ProtocolName, SizeSettings, StartSettings, TRANSPORTS};
pub(super) use link::{LinkSettings, RateSettings};
pub(super) use queue::{LimitSettings, QueueSettings};
pub(super) use transport::{TcpSettings, UdpSettings};

/// `[run]`.
#[derive(Clone, Debug)]
pub(super) struct RunSettings {
    pub spec: RunSpec,
    /// What a buffer in `bdp` is measured with; `None` for the first flow's path.
    pub rtt: Option<Duration>,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            // The papers' runs: 60 s, of which the first 15 s do not count.
            spec: RunSpec {
                duration: Duration::from_secs(60),
                warmup: Duration::ZERO,
                seed: Seed(1),
                sample: None,
                end: EndSpec::Duration,
            },
            rtt: None,
        }
    }
}

impl Section for RunSettings {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let ends = [
            ("duration", EndSpec::Duration),
            ("finished", EndSpec::Finished),
        ];
        f.item("duration", &mut self.spec.duration, Time);
        f.item("warmup", &mut self.spec.warmup, Time);
        f.item("end", &mut self.spec.end, OneOf(&ends));
        f.item("seed", &mut self.spec.seed.0, Count(0, i64::MAX as u64));
        f.item("sample", &mut self.spec.sample, OrWord("off", Time));
        f.item("rtt", &mut self.rtt, OrWord("first flow", Time));
    }
}

impl Default for ControllerSpec {
    /// DFCP-J §7.6, Fig. 26.
    fn default() -> Self {
        Self {
            kind: ControllerKind::MaxMin,
            response: Duration::from_millis(50),
            error: 0.05,
        }
    }
}

impl Section for ControllerSpec {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let kinds = [("max-min", ControllerKind::MaxMin)];
        f.item("kind", &mut self.kind, OneOf(&kinds));
        f.item("response", &mut self.response, Time);
        f.item("error", &mut self.error, Number(-0.99, 10.0));
    }
}

/// `[topology]`.
#[derive(Clone, Debug)]
pub(super) struct TopologySettings {
    kind: TopologyKind,
    pairs: usize,
    /// Round-trip propagation delays of a dumbbell's pairs, in turn.
    pub rtt: Vec<Duration>,
    nodes: usize,
    links: usize,
    /// Probability that a random graph's link has the role `marked`.
    marked: f64,
    /// `None` for the run's.
    seed: Option<u64>,
    flower: topology::Flower,
    rate_scale: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TopologyKind {
    Graph,
    Dumbbell,
    ParkingLot,
    Butterfly,
    Flower,
    Esnet,
    ErdosRenyi,
}

impl Default for TopologySettings {
    fn default() -> Self {
        Self {
            kind: TopologyKind::Graph,
            pairs: 1,
            rtt: Vec::new(),
            nodes: 50, // RC-UDP Table I
            links: 100,
            marked: 0.0,
            seed: None,
            flower: topology::Flower::default(),
            rate_scale: 1.0,
        }
    }
}

impl Section for TopologySettings {
    fn fields(&mut self, f: &mut Fields<'_>) {
        use TopologyKind::{Butterfly, Dumbbell, ErdosRenyi, Esnet, Flower, Graph, ParkingLot};
        let kinds = [
            ("graph", Graph),
            ("dumbbell", Dumbbell),
            ("parking-lot", ParkingLot),
            ("butterfly", Butterfly),
            ("flower", Flower),
            ("esnet", Esnet),
            ("erdos-renyi", ErdosRenyi),
        ];
        f.item("kind", &mut self.kind, OneOf(&kinds));
        match self.kind {
            Graph | ParkingLot => {}
            Dumbbell => {
                f.item("pairs", &mut self.pairs, Size(10_000));
                f.item("rtt", &mut self.rtt, ListOf(Time));
            }
            Butterfly => f.item("rtt", &mut self.rtt, ListOf(Time)),
            Flower => {
                f.item("loops", &mut self.flower.loops, Size(100));
                f.item("routers", &mut self.flower.routers, Size(100));
                f.item("dslams", &mut self.flower.dslams, Size(100));
                f.item("hosts", &mut self.flower.hosts, Size(100));
            }
            Esnet => f.item("rate_scale", &mut self.rate_scale, Number(1e-6, 1e3)),
            ErdosRenyi => {
                f.item("nodes", &mut self.nodes, Size(1000));
                f.item("links", &mut self.links, Size(100_000));
                f.item("marked", &mut self.marked, PROBABILITY);
                let seed = OrWord("run", Count(0, i64::MAX as u64));
                f.item("seed", &mut self.seed, seed);
            }
        }
    }
}

impl TopologySettings {
    /// Roles that a file may speak of even where chance gave them to no link.
    pub fn roles(&self) -> &'static [&'static str] {
        match self.kind {
            TopologyKind::ErdosRenyi => &[MARKED],
            _ => &[],
        }
    }

    /// The graph of a ready-made kind; an empty one for a free graph.
    ///
    /// # Errors
    /// Says which numbers make no graph.
    pub fn graph(&self, run: Seed) -> Result<Graph, String> {
        let mut graph = match self.kind {
            TopologyKind::Graph => Graph::default(),
            TopologyKind::Dumbbell => topology::dumbbell(self.pairs),
            TopologyKind::ParkingLot => topology::parking_lot(),
            TopologyKind::Butterfly => topology::butterfly(),
            TopologyKind::Flower => {
                let hosts = self.flower.host_count();
                if hosts > MAX_HOSTS {
                    return Err(format!("a flower of {hosts} hosts exceeds {MAX_HOSTS}"));
                }
                topology::flower(self.flower)
            }
            TopologyKind::Esnet => topology::esnet(),
            TopologyKind::ErdosRenyi => self.random_graph(self.seed.map_or(run, Seed))?,
        };
        for link in &mut graph.links {
            link.rate = link.rate.map(|rate| rate.mul_f64(self.rate_scale));
        }
        Ok(graph)
    }

    fn random_graph(&self, seed: Seed) -> Result<Graph, String> {
        let graph = topology::erdos_renyi(self.nodes, self.links, seed);
        let mut graph = graph.map_err(|error| error.to_string())?;
        let mut random = seed.stream("topology.marked");
        for link in &mut graph.links {
            if random.chance(self.marked) {
                link.roles.push(MARKED);
            }
        }
        Ok(graph)
    }
}

/// The role of links drawn at random.
const MARKED: &str = "marked";

/// More would take longer to build than to simulate anything in.
const MAX_HOSTS: usize = 100_000;

/// A number of things in a topology, at least one.
struct Size(u64);

impl Codec<usize> for Size {
    fn read(&self, node: &Node) -> Result<usize, Fault> {
        let size: u64 = Count(1, self.0).read(node)?;
        Ok(size as usize)
    }

    fn write(&self, value: &usize) -> Option<Value> {
        Count(1, self.0).write(&(*value as u64))
    }
}
