//! From `[topology]` and `[link.…]` to one-way links.
//!
//! Settings of a link are layered, the later over the earlier: built-in defaults,
//! `[link.default]`, what the topology fixes, the link's roles (`[link.access]`, the widest
//! first), the link itself (`[link.access-left-1]`). Its way back is the same with the `reverse`
//! tables of those layers on top.

use std::collections::{BTreeMap, BTreeSet};

use dfcp_proto::Duration;

use super::document::Document;
use super::fields::{Fields, ListOf, Section, Text, did_you_mean};
use super::model::*;
use super::route::Hop;
use super::settings::{LimitSettings, LinkSettings, RateSettings, TopologySettings};
use super::tree::{Fault, Node, Place, Table};
use crate::link::{AckThinning, LinkConfig, LinkConfigError, LinkRate, TokenBucket};
use crate::queue::Limit;
use crate::random::Seed;
use crate::topology::{DuplexLink, Graph, NodeKind};

/// The word that stands for any host.
pub(super) const RANDOM: &str = "random";

/// The nodes, and the links not yet measured in bandwidth-delay products.
pub(super) struct Network<'a> {
    pub graph: Graph,
    /// Two for each link of the graph: forward and back.
    pub wires: Vec<Wire<'a>>,
    /// Roles that exist even where no link plays them.
    roles: &'static [&'static str],
}

/// A one-way link.
pub(super) struct Wire<'a> {
    pub name: String,
    pub hop: Hop,
    pub settings: LinkSettings,
    /// Where within its tolerance the clock is, from −1 to 1.
    clock: f64,
    /// Where the layers that made it are written, the most specific last.
    layers: Vec<&'a Node>,
}

/// `[link.NAME]`.
#[derive(Clone, Default)]
struct LinkSection {
    between: Vec<String>,
    settings: LinkSettings,
}

impl Section for LinkSection {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("between", &mut self.between, ListOf(Text));
        f.known("reverse");
        self.settings.fields(f);
    }
}

impl<'a> Network<'a> {
    pub fn build(
        document: &'a Document,
        topology: &TopologySettings,
        seed: Seed,
    ) -> Result<Self, Fault> {
        const NONE: &Table = &Table(Vec::new());
        let place = document
            .root
            .entry("topology")
            .map_or(Place::default(), |e| e.place);
        let links = match document.root.get("link") {
            Some(node) => node.table()?,
            None => NONE,
        };
        let graph = topology.graph(seed).map_err(|why| Fault::new(place, why))?;
        let mut network = Self {
            graph,
            wires: Vec::new(),
            roles: topology.roles(),
        };
        network.add_listed(links)?;
        if network.graph.links.is_empty() {
            return Err(Fault::new(
                place,
                "there are no links: write [topology] kind = \"dumbbell\", or list them as \
                 [link.NAME] with between = [\"a\", \"b\"]",
            ));
        }
        network.check_names(links)?;
        let fixed = RttLayer::new(topology, &network.graph);
        for index in 0..network.graph.links.len() {
            network.add_wires(index, links, &fixed, seed)?;
        }
        network.apply_rtt(document, topology)?;
        Ok(network)
    }

    /// Adds the links that the file lists with their ends.
    fn add_listed(&mut self, links: &Table) -> Result<(), Fault> {
        for entry in &links.0 {
            let Some(between) = entry.node.table()?.get("between") else {
                continue;
            };
            let section = LinkSection::default().read(&entry.node, "a link")?;
            let [from, to] = section.between.as_slice() else {
                let message = "a link has two ends: write between = [\"a\", \"b\"]";
                return Err(Fault::new(between.place, message));
            };
            let taken = self
                .graph
                .links
                .iter()
                .any(|link| link.name == entry.key || link.roles.contains(&entry.key.as_str()));
            let why = if entry.key == "default" || taken {
                format!(
                    "the topology has a link `{}` already: leave out `between`",
                    entry.key
                )
            } else if entry.key.contains('.') {
                format!("`{}`: the name of a link has no dots", entry.key)
            } else if [from, to].iter().any(|node| *node == RANDOM) {
                format!("`{RANDOM}` is the word for any host: call the node something else")
            } else if from == to {
                format!("link `{}` joins `{from}` with itself", entry.key)
            } else {
                let ends = (self.node(from), self.node(to));
                self.graph.link(entry.key.clone(), &[], ends);
                continue;
            };
            return Err(Fault::new(entry.place, why));
        }
        Ok(())
    }

    /// The node of this name, made where there is none.
    fn node(&mut self, name: &str) -> usize {
        let known = self.graph.nodes.iter().position(|node| node.name == name);
        known.unwrap_or_else(|| self.graph.node(name, NodeKind::Host))
    }

    /// Names of links and roles, as a file may use them.
    fn names(&self) -> BTreeSet<&str> {
        let links = self.graph.links.iter();
        links
            .flat_map(|link| std::iter::once(link.name.as_str()).chain(link.roles.iter().copied()))
            .chain(self.roles.iter().copied())
            .collect()
    }

    fn check_names(&self, links: &Table) -> Result<(), Fault> {
        let names = self.names();
        let unknown = |key: &str| key != "default" && !names.contains(key);
        match links.0.iter().find(|entry| unknown(&entry.key)) {
            Some(entry) => Err(Fault::new(entry.place, self.unknown_link(&entry.key))),
            None => Ok(()),
        }
    }

    fn unknown_link(&self, name: &str) -> String {
        let names = self.names();
        let hint = did_you_mean(name, names.iter().copied(), '`');
        let shown: Vec<_> = names.into_iter().take(12).collect();
        let shown = shown.join("`, `");
        format!(
            "there is no link `{name}`.{hint} Links and their roles are `{shown}`, …; a new link \
             needs between = [\"a\", \"b\"]"
        )
    }

    /// The indices of the wires that a change means by `name`, forward ones first.
    pub fn wires_called(&self, name: &str) -> Result<Vec<usize>, String> {
        let links = self.graph.links.iter().enumerate();
        let called = links.filter(|(_, link)| link.name == name || link.roles.contains(&name));
        let found: Vec<usize> = called.map(|(index, _)| index).collect();
        if found.is_empty() && !self.roles.contains(&name) {
            return Err(self.unknown_link(name));
        }
        Ok(found)
    }

    /// Both directions of the `index`-th link of the graph.
    fn add_wires(
        &mut self,
        index: usize,
        links: &'a Table,
        fixed: &RttLayer,
        seed: Seed,
    ) -> Result<(), Fault> {
        let link = &self.graph.links[index];
        let mut settings = LinkSettings::default();
        let mut layers = Vec::new();
        if let Some(default) = links.get("default") {
            settings = read_layer(settings, default)?;
            layers.push(default);
        }
        if let Some(rate) = link.rate {
            settings.rate = Some(RateSettings::Constant(rate));
        }
        if let Some(delay) = link.delay.or_else(|| fixed.delay(link)) {
            settings.rest.delay = delay;
        }
        let names = link.roles.iter().copied().chain([link.name.as_str()]);
        for overlay in names.filter_map(|name| links.get(name)) {
            if fixed.computes(link)
                && let Some(delay) = overlay.table()?.get("delay")
            {
                let message = "the topology's `rtt` fixes this delay: leave one of them out";
                return Err(Fault::new(delay.place, message));
            }
            settings = read_layer(settings, overlay)?;
            layers.push(overlay);
        }
        let mut back = settings.clone();
        let mut back_layers = layers.clone();
        for layer in &layers {
            if let Some(reverse) = layer.table()?.get("reverse") {
                back = back.read(reverse, "a link")?;
                back_layers.push(reverse);
            }
        }
        let (from, to) = (NodeIndex(link.from), NodeIndex(link.to));
        let name = link.name.clone();
        self.wires.push(Wire::new(
            back_name(&name, false),
            (from, to),
            settings,
            layers,
        ));
        self.wires.push(Wire::new(
            back_name(&name, true),
            (to, from),
            back,
            back_layers,
        ));
        for wire in self.wires.iter_mut().rev().take(2) {
            let mut random = seed.stream(&format!("{}.clock", wire.name));
            wire.clock = 2.0 * random.next_f64() - 1.0;
        }
        Ok(())
    }

    /// Gives each pair's left access link what its round-trip time leaves.
    fn apply_rtt(&mut self, document: &Document, topology: &TopologySettings) -> Result<(), Fault> {
        let Some(node) = document.root.get("topology") else {
            return Ok(());
        };
        let wires = self.wires.iter().enumerate();
        let indices: BTreeMap<String, usize> = wires
            .map(|(index, wire)| (wire.name.clone(), index))
            .collect();
        for (pair, rtt) in (1..=self.graph.pairs.len()).zip(topology.rtt.iter().cycle()) {
            let wire = |name: &str| indices.get(name).map(|index| &self.wires[*index]);
            let of = |name: &str| wire(name).map_or(Duration::ZERO, |wire| wire.hop.delay);
            let rest = of("bottleneck") + of(&format!("access-right-{pair}"));
            let Some(left) = (*rtt / 2).checked_sub(rest) else {
                return Err(Fault::new(
                    node.place_of("rtt"),
                    format!(
                        "`rtt`: {rtt:?} of pair {pair} is less than the delays {rest:?} there and \
                         {rest:?} back that are stated for its other links"
                    ),
                ));
            };
            for reverse in [false, true] {
                let name = back_name(&format!("access-left-{pair}"), reverse);
                if let Some(index) = indices.get(&name) {
                    let wire = &mut self.wires[*index];
                    wire.settings.rest.delay = left;
                    wire.hop.delay = left;
                }
            }
        }
        Ok(())
    }
}

fn read_layer(settings: LinkSettings, layer: &Node) -> Result<LinkSettings, Fault> {
    let section = LinkSection {
        between: Vec::new(),
        settings,
    };
    Ok(section.read(layer, "a link")?.settings)
}

fn back_name(name: &str, reverse: bool) -> String {
    if reverse {
        format!("{name}.reverse")
    } else {
        name.to_owned()
    }
}

/// The delays that follow from a dumbbell's round-trip times: the bottleneck has all of the
/// shortest, unless it is stated; the left access links have what is left.
struct RttLayer {
    bottleneck: Option<Duration>,
}

impl RttLayer {
    fn new(topology: &TopologySettings, graph: &Graph) -> Self {
        let used = topology.rtt.iter().take(graph.pairs.len().max(1));
        Self {
            bottleneck: used.min().map(|rtt| *rtt / 2),
        }
    }

    /// Whether the delay of `link` is computed rather than stated.
    fn computes(&self, link: &DuplexLink) -> bool {
        self.bottleneck.is_some() && link.roles.contains(&"access-left")
    }

    fn delay(&self, link: &DuplexLink) -> Option<Duration> {
        let bottleneck = self.bottleneck?;
        match link.name.as_str() {
            "bottleneck" => Some(bottleneck),
            _ if link.roles.contains(&"access") => Some(Duration::ZERO),
            _ => None,
        }
    }
}

impl<'a> Wire<'a> {
    fn new(
        name: String,
        (from, to): (NodeIndex, NodeIndex),
        settings: LinkSettings,
        layers: Vec<&'a Node>,
    ) -> Self {
        let delay = settings.rest.delay;
        Self {
            name,
            hop: Hop { from, to, delay },
            settings,
            clock: 0.0,
            layers,
        }
    }

    /// Where the key was stated that decides; the section where it is missing.
    pub fn place(&self, key: &str) -> Place {
        let stated = self.layers.iter().rev();
        stated
            .filter_map(|layer| layer.table().ok()?.get(key))
            .map(|node| node.place)
            .next()
            .or_else(|| self.layers.last().map(|layer| layer.place))
            .unwrap_or_default()
    }

    /// What the link does, with traces read and buffers in packets or bytes.
    pub fn config(
        &self,
        settings: &LinkSettings,
        rtt: Duration,
        document: &Document,
    ) -> Result<LinkConfig, Fault> {
        let wrong = |key: &str, why: String| {
            Fault::new(self.place(key), format!("link `{}`: {why}", self.name))
        };
        let Some(rate) = &settings.rate else {
            let why = "it has no rate: write for example rate = \"1 Gbit/s\", here or in \
                       [link.default]";
            return Err(wrong("rate", why.to_owned()));
        };
        let rate = rate.link_rate(&document.files);
        let loss = settings.loss.model(&document.files);
        let rate = rate.map_err(|why| wrong("rate", why))?;
        let drift = 1.0 + settings.clock_tolerance * self.clock;
        let mut config = LinkConfig {
            rate: match &rate {
                LinkRate::Constant(rate) => LinkRate::Constant(rate.mul_f64(drift)),
                other => other.clone(),
            },
            loss: loss.map_err(|why| wrong("loss", why))?,
            mtu: Some(settings.mtu),
            ..settings.rest.clone()
        };
        let limit = match settings.queue.limit {
            LimitSettings::Fixed(limit) => limit,
            LimitSettings::Bdp(share) => {
                let limit = bdp(&rate, settings.mtu, share, rtt);
                limit.map_err(|why| wrong("queue", why.to_owned()))?
            }
        };
        let packet = u64::from(settings.mtu) + u64::from(config.framing);
        let buckets = [("shaper", config.shaper), ("policer", config.policer)];
        for (key, bucket) in buckets {
            if let Some(TokenBucket { burst, .. }) = bucket
                && burst < packet
            {
                let why = format!(
                    "a {key} with a burst of {burst} B lets no packet of {packet} B through"
                );
                return Err(wrong(key, why));
            }
        }
        if config.grants.is_some() && matches!(rate, LinkRate::Trace(_)) {
            let why = "the trace of its rate says when it may send: leave out `grants`";
            return Err(wrong("grants", why.to_owned()));
        }
        if let Limit::Bytes(bytes @ 1..) = limit
            && bytes < packet
        {
            let why = format!("a limit of {bytes} B holds no packet of {packet} B");
            return Err(wrong("queue", why));
        }
        let queue = settings.queue.config(limit);
        config.queue = queue.map_err(|why| wrong("queue", why))?;
        if config.ack_thinning != AckThinning::Off && !config.queue.has_one_line() {
            let why = LinkConfigError::AckThinning.to_string();
            return Err(wrong("ack_thinning", why));
        }
        Ok(config)
    }
}

/// `share` millionths of the bandwidth-delay product, in packets of the link's MTU.
fn bdp(rate: &LinkRate, mtu: u32, share: u64, rtt: Duration) -> Result<Limit, &'static str> {
    let LinkRate::Constant(rate) = rate else {
        return Err("a limit in `bdp` needs a constant rate: write for example \"1000 packets\"");
    };
    if rtt.is_zero() {
        return Err(
            "a limit in `bdp` needs a round-trip time: write for example [run] \
                    rtt = \"100 ms\"",
        );
    }
    // bit/s × ns × millionths, over 8 × 10⁹ × 10⁶ and the packet's bytes; rounded to nearest.
    let bits = u128::from(rate.as_bps()).saturating_mul(rtt.as_nanos());
    let scaled = bits.saturating_mul(u128::from(share));
    let unit = 8_000_000_000_000_000 * u128::from(mtu);
    let packets = scaled.saturating_add(unit / 2) / unit;
    Ok(Limit::packets(u64::try_from(packets).unwrap_or(u64::MAX)))
}
