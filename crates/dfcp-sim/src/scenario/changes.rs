//! `[[change]]`: what a link does from some time on, once or again and again.

use dfcp_proto::{Duration, Instant};

use super::document::Document;
use super::fields::{Count, Fields, OneOf, Optional, Section, Text, Time};
use super::model::*;
use super::network::Network;
use super::settings::LinkSettings;
use super::tree::{Fault, Node, Value};

/// Keys of a link, and which link when.
#[derive(Clone)]
struct ChangeSection {
    at: Option<Instant>,
    /// From one time to the next, where it happens again and again.
    every: Option<Duration>,
    /// How often it happens at most; else as often as the run lasts.
    times: Option<u64>,
    link: Option<String>,
    direction: Direction,
    settings: LinkSettings,
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Forward,
    Reverse,
    Both,
}

impl Section for ChangeSection {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let directions = [
            ("both", Direction::Both),
            ("forward", Direction::Forward),
            ("reverse", Direction::Reverse),
        ];
        f.item("at", &mut self.at, Optional(Time));
        f.item("every", &mut self.every, Optional(Time));
        f.item("times", &mut self.times, Optional(Count(1, MOST_TIMES)));
        f.item("link", &mut self.link, Optional(Text));
        f.item("direction", &mut self.direction, OneOf(&directions));
        self.settings.fields(f);
    }
}

/// A change of each millisecond of a minute: more is a trace, or a mistake.
const MOST_TIMES: u64 = 60_000;

/// Keys that have lists as values.
const LISTS: [&str; 3] = ["loss", "outage", "jitter"];

/// A change that happens once.
struct Event {
    at: Instant,
    ways: &'static [usize],
    links: Vec<usize>,
    node: Node,
}

/// Scheduled changes in order of time, each laid over what the link was before.
pub(super) fn changes(
    document: &Document,
    network: &Network<'_>,
    rtt: Duration,
    run: &RunSpec,
) -> Result<Vec<ChangeSpec>, Fault> {
    let blank = ChangeSection {
        at: None,
        every: None,
        times: None,
        link: None,
        direction: Direction::Both,
        settings: LinkSettings::default(),
    };
    let mut ordered = Vec::new();
    for node in document.root.list("change")? {
        events(node, &blank, network, run, &mut ordered)?;
    }
    ordered.sort_by_key(|event| event.at);
    let mut now: Vec<LinkSettings> = network.wires.iter().map(|w| w.settings.clone()).collect();
    let mut changes = Vec::new();
    for Event {
        at,
        ways,
        links,
        node,
    } in ordered
    {
        for index in links
            .iter()
            .flat_map(|link| ways.iter().map(move |way| 2 * link + way))
        {
            let section = ChangeSection {
                settings: now[index].clone(),
                ..blank.clone()
            };
            now[index] = section.read(&node, "[[change]]")?.settings;
            let wire = &network.wires[index];
            let config = |settings| {
                let config = wire.config(settings, rtt, document);
                config.map_err(|fault| Fault::new(node.place, fault.message))
            };
            let (before, config) = (config(&wire.settings)?, config(&now[index])?);
            let same_weights = now[index].queue.weights == wire.settings.queue.weights;
            let same_kind = config.queue.discipline == before.queue.discipline
                && config.queue.priority == before.queue.priority;
            if !same_kind || !same_weights {
                let place = node.place_of("queue");
                let message = "a change cannot replace a queue's discipline, its parameters, \
                               priority or weights while packets wait in it, only its `limit`";
                return Err(Fault::new(place, message));
            }
            changes.push(ChangeSpec {
                at,
                link: LinkIndex(index),
                config,
            });
        }
    }
    Ok(changes)
}

/// The events of one entry of the file.
fn events(
    node: &Node,
    blank: &ChangeSection,
    network: &Network<'_>,
    run: &RunSpec,
    ordered: &mut Vec<Event>,
) -> Result<(), Fault> {
    let place = |key: &str| node.place_of(key);
    // Which values take turns hangs on whether it is repeated: so that first.
    let repeated = node.table()?.get("every").is_some();
    let turn = |number| {
        if repeated {
            turn(node, number)
        } else {
            node.clone()
        }
    };
    let head = blank.clone().read(&turn(0), "[[change]]")?;
    let (Some(first), Some(link)) = (head.at.or(head.every.map(after_start)), head.link) else {
        let message = "a change needs `at` and `link`: write for example at = \"10 s\", \
                       link = \"bottleneck\"";
        return Err(Fault::new(node.place, message));
    };
    let times = match (head.every, head.times) {
        (None, None) => 1,
        (None, Some(_)) => {
            let message = "`times` needs `every`: write for example every = \"15 s\"";
            return Err(Fault::new(place("times"), message));
        }
        (Some(Duration::ZERO), _) => {
            let message = "`every`: the interval is zero: write for example \"15 s\"";
            return Err(Fault::new(place("every"), message));
        }
        (Some(every), times) => {
            let rest = run
                .duration
                .saturating_sub(first.saturating_since(Instant::ZERO));
            let fits = u64::try_from(rest.as_nanos() / every.as_nanos()).unwrap_or(u64::MAX);
            fits.saturating_add(1).min(times.unwrap_or(u64::MAX))
        }
    };
    if times > MOST_TIMES {
        let message = format!(
            "`every`: it happens {times} times in the run, more than {MOST_TIMES}: write a longer \
             interval, or `times`"
        );
        return Err(Fault::new(place("every"), message));
    }
    let links = network
        .wires_called(&link)
        .map_err(|why| Fault::new(place("link"), why))?;
    let ways: &[usize] = match head.direction {
        Direction::Forward => &[0],
        Direction::Reverse => &[1],
        Direction::Both => &[0, 1],
    };
    let every = head.every.unwrap_or_default();
    ordered.extend((0..times).map(|number| Event {
        at: first + every.saturating_mul(number as u32),
        ways,
        links: links.clone(),
        node: turn(number),
    }));
    Ok(())
}

fn after_start(time: Duration) -> Instant {
    Instant::ZERO + time
}

/// The entry as it is for the `number`-th time: of lists of values, those whose turn it is.
fn turn(node: &Node, number: u64) -> Node {
    let mut node = node.clone();
    let Value::Table(table) = &mut node.value else {
        return node;
    };
    for entry in &mut table.0 {
        if let Value::Array(values) = &entry.node.value
            && !LISTS.contains(&entry.key.as_str())
            && let Some(value) = values.get((number % values.len().max(1) as u64) as usize)
        {
            entry.node = value.clone();
        }
    }
    node
}
