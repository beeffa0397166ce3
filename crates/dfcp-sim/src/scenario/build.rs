//! From a parsed document to a validated scenario, and to its text with every default written
//! out.

use dfcp_proto::profile::{ChameleonParameters, CtcpParameters};
use dfcp_proto::{Duration, Instant};

use super::changes::changes;
use super::document::Document;
use super::fields::{Section, Text, did_you_mean, unknown_key};
use super::flows::Flows;
use super::model::*;
use super::network::Network;
use super::settings::{
    FlowSettings, LinkSettings, RunSettings, TRANSPORTS, TcpSettings, TopologySettings, UdpSettings,
};
use super::tree::{Entry, Fault, Node, Place, Table, Value};
use super::{SCHEMA, Scenario, units};

const SECTIONS: [&str; 17] = [
    "schema",
    "title",
    "run",
    "topology",
    "link",
    "tcp",
    "dfcp",
    "ctcp",
    "chameleon",
    "coded",
    "published",
    "rc_udp",
    "udp",
    "flow",
    "controller",
    "change",
    "sweep",
];

/// Reads and checks everything.
pub(super) fn build(document: &Document) -> Result<Scenario, Fault> {
    let root = &document.root;
    check_head(root)?;
    let run = run(root)?;
    let topology = section(root, "topology", TopologySettings::default())?;
    let network = Network::build(document, &topology, run.spec.seed)?;
    let mut flows = Flows::read(root, &network, &run.spec)?;
    let rtt = run.rtt.unwrap_or_else(|| flows.first_rtt());
    let mut links = Vec::with_capacity(network.wires.len());
    for wire in &network.wires {
        links.push(LinkSpec {
            name: wire.name.clone(),
            from: wire.hop.from,
            to: wire.hop.to,
            config: wire.config(&wire.settings, rtt, document)?,
            weights: wire.settings.queue.weights.clone(),
        });
    }
    flows.settle(&links)?;
    check_weights(&network, &links, &flows.flows)?;
    let controller = match root.get("controller") {
        Some(_) => Some(section(root, "controller", ControllerSpec::default())?),
        None => None,
    };
    flows.check_orders(controller.is_some())?;
    let changes = changes(document, &network, rtt, &run.spec)?;
    let canonical = canonical(document)?.to_string();
    Ok(Scenario {
        title: title(root)?,
        run: run.spec,
        nodes: (network.graph.nodes.into_iter())
            .map(|node| NodeSpec { name: node.name })
            .collect(),
        links,
        flows: flows.flows,
        controller,
        changes,
        hash: document.hash(&canonical),
        canonical,
    })
}

/// Reads a section of the file over its defaults.
fn section<T: Section>(root: &Table, key: &str, defaults: T) -> Result<T, Fault> {
    match root.get(key) {
        Some(node) => defaults.read(node, &format!("[{key}]")),
        None => Ok(defaults),
    }
}

/// Writes a section with its defaults.
fn put<T: Section>(out: &mut Table, root: &Table, key: &str, defaults: T) -> Result<(), Fault> {
    let section = section(root, key, defaults)?;
    out.put(key, Value::Table(section.write()));
    Ok(())
}

fn check_head(root: &Table) -> Result<(), Fault> {
    if let Some(entry) = (root.0.iter()).find(|entry| !SECTIONS.contains(&entry.key.as_str())) {
        return Err(unknown_key(
            &entry.key,
            entry.place,
            "a scenario",
            &SECTIONS,
        ));
    }
    let right = format!("write `schema = {SCHEMA}` as the first line");
    match root.get("schema") {
        None => Err(Fault::new(
            Place::default(),
            format!("the schema is missing: {right}"),
        )),
        Some(node) if node.value == Value::Integer(SCHEMA) => Ok(()),
        Some(node) => Err(Fault::new(
            node.place,
            format!("schema {node} is not the one this program knows: {right}"),
        )),
    }
}

pub(super) fn title(root: &Table) -> Result<String, Fault> {
    use super::fields::Codec;
    root.get("title")
        .map_or(Ok(String::new()), |node| Text.read(node))
}

fn run(root: &Table) -> Result<RunSettings, Fault> {
    let run = section(root, "run", RunSettings::default())?;
    let place = |key: &str| {
        root.get("run")
            .map_or(Place::default(), |run| run.place_of(key))
    };
    let RunSpec {
        duration,
        warmup,
        sample,
        ..
    } = run.spec;
    if warmup >= duration {
        let message = format!("the warm-up {warmup:?} is not shorter than the run, {duration:?}");
        return Err(Fault::new(place("warmup"), message));
    }
    if sample == Some(Duration::ZERO) {
        let message = "`sample`: the interval is zero: write for example \"1 s\" or \"off\"";
        return Err(Fault::new(place("sample"), message));
    }
    Ok(run)
}

/// Weights are given to classes that exist.
fn check_weights(
    network: &Network<'_>,
    links: &[LinkSpec],
    flows: &[FlowSpec],
) -> Result<(), Fault> {
    for (wire, link) in network.wires.iter().zip(links) {
        for class in link.weights.keys() {
            if !flows.iter().any(|flow| flow.class == *class) {
                let classes = flows.iter().map(|flow| flow.class.as_str());
                let hint = did_you_mean(class, classes, '`');
                let message = format!("`weights`: no flow is of class `{class}`.{hint}");
                return Err(Fault::new(wire.place("queue"), message));
            }
        }
    }
    Ok(())
}

/// The file with every default written out. Overrides (of one link, of one flow's transport,
/// changes) stay as they are: what they do not say is in the section they override.
pub(super) fn canonical(document: &Document) -> Result<Table, Fault> {
    let root = &document.root;
    let mut out = Table::default();
    out.put("schema", Value::Integer(SCHEMA));
    let title = title(root)?;
    if !title.is_empty() {
        out.put("title", Value::String(title));
    }
    put(&mut out, root, "run", RunSettings::default())?;
    put(&mut out, root, "topology", TopologySettings::default())?;
    out.put("link", Value::Table(canonical_links(root)?));
    put(&mut out, root, "tcp", TcpSettings::default())?;
    put(&mut out, root, "dfcp", DfcpSpec::default())?;
    put(&mut out, root, "ctcp", CtcpParameters::default())?;
    put(&mut out, root, "chameleon", ChameleonParameters::default())?;
    put(&mut out, root, "coded", CodedSpec::default())?;
    put(&mut out, root, "published", PublishedSpec::default())?;
    put(&mut out, root, "rc_udp", RcUdpSpec::default())?;
    put(&mut out, root, "udp", UdpSettings::default())?;
    let flows = root.list("flow")?.iter().enumerate().map(canonical_flow);
    out.put("flow", Value::Array(flows.collect::<Result<_, _>>()?));
    if root.get("controller").is_some() {
        put(&mut out, root, "controller", ControllerSpec::default())?;
    }
    if let Some(changes) = root.entry("change") {
        out.set(changes.clone());
    }
    Ok(out)
}

fn canonical_links(root: &Table) -> Result<Table, Fault> {
    let mut out = Table::default();
    out.put("default", Value::Table(LinkSettings::default().write()));
    let Some(links) = root.get("link") else {
        return Ok(out);
    };
    for entry in &links.table()?.0 {
        if entry.key != "default" {
            out.set(entry.clone());
            continue;
        }
        let mut bare = entry.node.clone();
        let mut reverse = None;
        if let Value::Table(table) = &mut bare.value {
            reverse = table.entry("reverse").cloned();
            table.0.retain(|entry| entry.key != "reverse");
        }
        let mut full = LinkSettings::default()
            .read(&bare, "[link.default]")?
            .write();
        if let Some(reverse) = reverse {
            full.set(reverse);
        }
        out.put("default", Value::Table(full));
    }
    Ok(out)
}

fn canonical_flow((index, node): (usize, &Node)) -> Result<Node, Fault> {
    let mut flow = FlowSettings::new(index).read(node, "[[flow]]")?.write();
    let overrides = |entry: &&Entry| TRANSPORTS.contains(&entry.key.as_str());
    for entry in node.table()?.0.iter().filter(overrides) {
        flow.set(entry.clone());
    }
    Ok(Node {
        value: Value::Table(flow),
        place: node.place,
    })
}

/// A time in the words of an error.
pub(super) fn show(time: Instant) -> String {
    units::format(time.as_nanos(), units::TIME)
}
