//! From results to the curves of an item.

use std::collections::BTreeMap;

use dfcp_command::{Failure, Kind};

use super::catalogue::{Change, Item, Panels, Source, Theory, UnitName};
use super::playback::{self, VIDEO};
use super::runs::Results;
use super::theory;
use crate::sim::plot::{Data, Estimate, Panel, Quantity, Query, Sample, Unit, select as group};
use crate::sim::table::{Cell, Table};

/// Bytes of a web object and of a DVD (DFCP-J §7.3).
const OBJECT: f64 = 150e3;
const DVD: f64 = 4.7e9;

/// Parameter that names the curves of a scenario.
const TITLE: &str = "title";

/// Names of the columns that an item's rows are reduced to; swept parameters follow them.
const COLUMNS: [&str; 5] = ["point", "curve", "panel", "x", "y"];
const X: usize = 3;
const Y: usize = 4;

/// A horizontal axis that is no column: the place among the values of a run.
const RANK: &str = "rank";

/// Curves of an item, ready to draw and to check.
#[derive(Clone, Debug)]
pub struct Curves {
    /// What is drawn; every curve has a name.
    pub data: Data,
    /// Values of the panels' column, one for each panel; one empty name without panels.
    pub panels: Vec<String>,
}

impl Curves {
    /// The samples of a curve in a panel.
    pub fn samples(&self, panel: usize, curve: &str) -> &[Sample] {
        let index = self.data.curves.iter().position(|name| name == curve);
        let samples = index.and_then(|index| self.data.panels[panel].curves.get(index));
        samples.map_or(&[], Vec::as_slice)
    }
}

/// The curves of an item; `column` is what stands along the vertical axis.
pub fn select(item: &Item, results: &Results, column: &str) -> Result<Curves, Failure> {
    let rows = rows(item, results, column)?;
    let text = |name: &str| Some(name.to_owned());
    let query = Query {
        x: text("x"),
        y: text("y"),
        by: text("curve"),
        facet: text("panel"),
        parameters: results.parameters.clone(),
        combine: item.y.combine,
        typical: item.y.typical,
        window: item.y.average,
        ..Query::default()
    };
    let panels = rows.panels;
    let mut data = group(rows.table, &query)?;
    data.curves = rows.curves;
    // Panels are ordered by their values.
    let value = |panel: &Panel| {
        let title = panel.title.as_deref().unwrap_or_default();
        title.strip_prefix("Panel: ").unwrap_or(title).to_owned()
    };
    let values: Vec<_> = data.panels.iter().map(value).collect();
    if let Some(change) = item.y.change.as_ref().filter(|_| column == item.y.column) {
        let names = data.curves.clone();
        for panel in &mut data.panels {
            apply(change, &names, &mut panel.curves);
        }
    }
    if let Some(factor) = item.x.factor {
        let curves = data.panels.iter_mut().flat_map(|panel| &mut panel.curves);
        curves.flatten().for_each(|sample| sample.x *= factor);
    }
    let panels = match panels {
        true => values,
        false => vec![String::new()],
    };
    Ok(finished(Curves { data, panels }, item, column))
}

/// Curves of measurements with the names and units of their axes, and beside them those of formulas
/// and of the paper.
pub fn finished(mut curves: Curves, item: &Item, column: &str) -> Curves {
    let Data { x, y, .. } = &mut curves.data;
    x.name.clone_from(&item.x.label);
    if x.unit == Unit::Count("") {
        let unit = item.x.unit.map(unit);
        x.unit = unit.unwrap_or_else(|| Unit::of_column(&item.x.column));
    }
    y.name.clone_from(&item.y.label);
    let unit = item.y.unit.map(unit);
    y.unit = unit.unwrap_or_else(|| Unit::of_column(column));
    for (panel, value) in curves.data.panels.iter_mut().zip(&curves.panels) {
        let titled = |panels: &Panels| titled(panels, value, item);
        panel.title = item.panels.as_ref().map(titled);
    }
    add_theory(&mut curves, item);
    add_given(&mut curves, item);
    curves
}

/// What stands above a panel.
fn titled(panels: &Panels, value: &str, item: &Item) -> String {
    let named = match value.parse::<f64>() {
        // A share of one, as a parameter: 0.001.
        Ok(share) if panels.share => format!("{} %", super::check::short(share * 100.0)),
        _ => item
            .names
            .get(value)
            .cloned()
            .unwrap_or_else(|| value.to_owned()),
    };
    format!("{}{named}", panels.label)
}

/// Whether a curve of an item is of a formula or of the paper, and not measured.
pub fn is_beside(item: &Item, curve: &str) -> bool {
    let mut formulas = item.theory.iter().map(|theory| name(*theory));
    formulas.any(|own| own == curve) || item.given.iter().any(|given| given.name == curve)
}

fn unit(name: UnitName) -> Unit {
    match name {
        UnitName::Share => Unit::Share,
        UnitName::Seconds => Unit::Seconds,
        UnitName::Bytes => Unit::Bytes,
        UnitName::Number => Unit::Count(""),
    }
}

/// Rows that an item is made of.
struct Rows {
    table: Table,
    /// Names of the curves, in the item's order.
    curves: Vec<String>,
    /// Whether there are panels.
    panels: bool,
}

fn rows(item: &Item, results: &Results, column: &str) -> Result<Rows, Failure> {
    let table = match item.source {
        Source::Flows => &results.flows,
        Source::Links => &results.links,
        Source::Series => &results.series,
    };
    let row = Row {
        table,
        item,
        series: &results.series,
    };
    let mut found: Vec<(usize, String, Vec<Cell>)> = Vec::new();
    for cells in table.rows() {
        let is_wanted = |(name, values): (&String, &Vec<String>)| {
            values.contains(&row.cell(cells, name).to_string())
        };
        let title = row.cell(cells, TITLE).to_string();
        let place = item.curves.iter().position(|curve| *curve == title);
        let (Some(place), true) = (place, item.only.iter().all(is_wanted)) else {
            continue;
        };
        let y = row.figure(cells, column, &title);
        if y == Cell::Missing {
            continue;
        }
        let panel = item.panels.as_ref();
        let titled = panel.is_some_and(|panels| panels.column == TITLE);
        let name = match item.split.as_slice() {
            [] if item.x.column == TITLE => "measured".to_owned(),
            [] => title,
            split => {
                let values = split.iter().map(|name| row.cell(cells, name).to_string());
                let own = (!titled).then_some(title);
                own.into_iter().chain(values).collect::<Vec<_>>().join(", ")
            }
        };
        let panel = panel.map_or(Cell::Missing, |panels| row.cell(cells, &panels.column));
        let x = binned(last_of_list(row.cell(cells, &item.x.column)), item.x.bin);
        let mut reduced = vec![row.cell(cells, "point"), name.as_str().into(), panel, x, y];
        let parameters = results.parameters.iter();
        reduced.extend(parameters.map(|name| row.cell(cells, name)));
        found.push((place, name, reduced));
    }
    if found.is_empty() {
        let message = format!("{}: no row has {column:?} of it", item.id);
        return Err(Failure::new(Kind::Failure, message));
    }
    found.sort_by_key(|(place, ..)| *place);
    if item.x.column == RANK {
        rank(&mut found);
    }
    let mut reduced = Table::untyped(
        COLUMNS
            .into_iter()
            .chain(results.parameters.iter().map(String::as_str)),
    );
    let mut curves = Vec::new();
    for (_, name, cells) in found {
        if !curves.contains(&name) {
            curves.push(name);
        }
        reduced.push(cells);
    }
    Ok(Rows {
        table: reduced,
        curves,
        panels: item.panels.is_some(),
    })
}

/// Puts rows along the horizontal axis by how great their value is among those of their run, from 1.
fn rank(rows: &mut [(usize, String, Vec<Cell>)]) {
    let value = |cells: &[Cell]| cells[Y].number().unwrap_or(f64::NAN);
    let run = |(_, name, cells): &(usize, String, Vec<Cell>)| (name.clone(), cells[0].to_string());
    let mut counts: BTreeMap<_, u64> = BTreeMap::new();
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|&a, &b| value(&rows[a].2).total_cmp(&value(&rows[b].2)));
    for index in order {
        let count = counts.entry(run(&rows[index])).or_default();
        *count += 1;
        rows[index].2[X] = Cell::from(*count);
    }
}

/// How cells of a table's row are found.
struct Row<'a> {
    table: &'a Table,
    item: &'a Item,
    /// Time series of all runs.
    series: &'a Table,
}

impl Row<'_> {
    fn cell(&self, cells: &[Cell], name: &str) -> Cell {
        let renamed = format!("parameter.{name}");
        let column = self.table.column(&renamed).or(self.table.column(name));
        column.map_or(Cell::Missing, |column| cells[column].clone())
    }

    fn number(&self, cells: &[Cell], name: &str) -> Option<f64> {
        Some(Quantity::of(&self.cell(cells, name))?.value)
    }

    /// A measured or derived figure.
    fn figure(&self, cells: &[Cell], name: &str, curve: &str) -> Cell {
        match self.table.column(name) {
            Some(column) => cells[column].clone(),
            None if ["playback_s", "underruns"].contains(&name) => self.playback(cells, name),
            None => {
                let number = |name: &str| self.number(cells, name);
                let efficiency = self.item.efficiency.get(curve).copied();
                derived(name, number, efficiency).into()
            }
        }
    }
}

impl Row<'_> {
    /// What the viewer of [`VIDEO`] saw of a flow.
    fn playback(&self, cells: &[Cell], figure: &str) -> Cell {
        let columns =
            ["point", "name", "time_s", "goodput_bps"].map(|name| self.series.column(name));
        let [Some(point), Some(name), Some(time), Some(goodput)] = columns else {
            return Cell::Missing;
        };
        let (own, flow) = (self.cell(cells, "point"), self.cell(cells, "flow"));
        let samples = self.series.rows().iter();
        let samples = samples.filter(|row| row[point] == own && row[name] == flow);
        let samples = samples.filter_map(|row| Some((row[time].number()?, row[goodput].number()?)));
        let Some(seen) = playback::play(VIDEO, samples) else {
            return Cell::Missing;
        };
        match figure {
            "underruns" => i64::from(seen.underruns).into(),
            _ => seen.time_s.into(),
        }
    }
}

/// Figures that follow from others; `efficiency` is the curve's share of payload.
///
/// - `end_s`: when the flow was done, since the start of the run.
/// - `received_s`: from the first packet received to the last, of a transfer that shakes hands: its
///   first data arrive one and a half round trips after its start.
/// - `object_s`, `dvd_s`: flow completion time of 150 kB and 4.7 GB. Where the transfer itself was
///   not run to its end, size over steady goodput, as in DFCP-J §7.3.
/// - `block_megabyte_s`: RC-UDP's mean time from a block's first byte until enough of it has arrived
///   (§V-B, blocks of a megabyte); of what has no blocks, the transfer's time for each megabyte.
/// - `occupancy`: mean queue over the buffer of the bottleneck.
/// - `share_of_link`: goodput over the rate of the bottleneck (CTCP §6.2).
/// - `share_of_maximum`: goodput over what a single flow could have of the bottleneck.
/// - `share_of_received`: goodput over what all packets received would have carried.
pub fn derived(
    name: &str,
    number: impl Fn(&str) -> Option<f64>,
    efficiency: Option<f64>,
) -> Option<f64> {
    let steady = |size: f64| {
        let goodput = number("goodput_bps").filter(|goodput| *goodput > 0.0)?;
        Some(size * 8.0 / goodput)
    };
    match name {
        "end_s" => Some(number("start_s")? + number("fct_s")?),
        "received_s" => Some(number("fct_s")? - 1.5 * number("topology.rtt")?),
        "object_s" => number("fct_s").or_else(|| steady(OBJECT)),
        "dvd_s" => steady(DVD),
        "block_megabyte_s" => match number("block_time_s") {
            None => Some(number("fct_s")? / (number("bytes")? / 1e6)),
            block => block,
        },
        "occupancy" => Some(number("queue_mean_packets")? / number("link.bottleneck.queue.limit")?),
        "share_of_maximum" => {
            Some(number("goodput_bps")? / (number("link.bottleneck.rate")? * efficiency?))
        }
        "share_of_link" => Some(number("goodput_bps")? / number("link.bottleneck.rate")?),
        "share_of_received" => {
            Some(number("goodput_bps")? / (number("throughput_bps")? * efficiency?))
        }
        _ => None,
    }
}

/// The middle of the bin that a number falls into; without bins the number itself.
fn binned(cell: Cell, bin: Option<f64>) -> Cell {
    match (bin, cell.number()) {
        (Some(bin), Some(number)) => (((number / bin).floor() + 0.5) * bin).into(),
        _ => cell,
    }
}

/// The last value of a list, such as `["10 ms", "50 ms"]`.
pub fn last_of_list(cell: Cell) -> Cell {
    let Cell::Text(text) = &cell else { return cell };
    let inner = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let last = inner.and_then(|inner| inner.rsplit(',').find(|part| !part.trim().is_empty()));
    match last {
        Some(last) => Cell::parse(last.trim().trim_matches('"')),
        None => cell,
    }
}

fn apply(change: &Change, names: &[String], curves: &mut [Vec<Sample>]) {
    let reference = match change {
        Change::Over(name) => names.iter().position(|own| own == name),
        _ => None,
    };
    let reference = reference.map(|index| curves[index].clone());
    for curve in curves {
        let means = || curve.iter().map(|sample| sample.y.mean);
        let best = means().fold(f64::MIN, f64::max);
        let first = means().next().unwrap_or(f64::NAN);
        let (mut before, mut total) = (0.0, 0.0);
        for sample in curve.iter_mut() {
            sample.y = match change {
                Change::OfBest => scaled(sample.y, 1.0 / best),
                Change::LostOfFirst => {
                    let share = scaled(sample.y, 1.0 / first);
                    Estimate {
                        mean: 1.0 - share.mean,
                        ..share
                    }
                }
                Change::Over(_) => {
                    let same = |other: &&Sample| is_same(other.x, sample.x);
                    let other = reference.as_ref().and_then(|all| all.iter().find(same));
                    scaled(sample.y, 1.0 / other.map_or(f64::NAN, |other| other.y.mean))
                }
                Change::Total => {
                    total += sample.y.mean * (sample.x - before) / 8.0;
                    before = sample.x;
                    Estimate {
                        mean: total,
                        half_width: None,
                    }
                }
            };
        }
        curve.retain(|sample| sample.y.mean.is_finite());
    }
}

fn scaled(estimate: Estimate, factor: f64) -> Estimate {
    Estimate {
        mean: estimate.mean * factor,
        half_width: estimate.half_width.map(|width| width * factor.abs()),
    }
}

/// Whether two places along an axis are one.
pub fn is_same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

/// Curves of formulas, at the places where there are measurements; behind these, which they shall
/// not hide.
fn add_theory(curves: &mut Curves, item: &Item) {
    for (index, &theory) in item.theory.iter().enumerate() {
        for panel in &mut curves.data.panels {
            let measured = panel.curves[index..].iter().flatten();
            let mut places: Vec<f64> = measured.map(|sample| sample.x).collect();
            places.sort_by(f64::total_cmp);
            places.dedup();
            let sample = |x| exact(x, theory::value(theory, x));
            let samples = places.into_iter().map(sample).collect();
            panel.curves.insert(index, samples);
        }
        curves.data.curves.insert(index, name(theory).to_owned());
    }
}

fn name(theory: Theory) -> &'static str {
    match theory {
        Theory::GoodputOfRedundancy => "eq. (2) less headers",
        Theory::GoodputOfWholePackets => "eq. (2), whole packets",
        Theory::CostOfRedundancy => "ε/(1+ε)",
        Theory::GoodputOfLoss => "ideal code",
        Theory::PadhyeOfLoss => "√(1.5/p)/RTT",
        Theory::CodedOfLoss => "eq. (7)",
    }
}

fn add_given(curves: &mut Curves, item: &Item) {
    for given in &item.given {
        for (panel, name) in curves.data.panels.iter_mut().zip(&curves.panels) {
            let is_here = given.panel.as_ref().is_none_or(|panel| panel == name);
            let points = given.points.iter().filter(|_| is_here);
            let mut points: Vec<_> = points.map(|(x, y)| exact(*x, *y)).collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            let index = curves.data.curves.iter().position(|own| *own == given.name);
            match index {
                Some(index) if index < panel.curves.len() => {
                    panel.curves[index].extend::<Vec<_>>(points);
                    // A line follows its points.
                    panel.curves[index].sort_by(|a, b| a.x.total_cmp(&b.x));
                }
                _ => panel.curves.push(points),
            }
        }
        if !curves.data.curves.contains(&given.name) {
            curves.data.curves.push(given.name.clone());
        }
    }
}

fn exact(x: f64, mean: f64) -> Sample {
    let y = Estimate {
        mean,
        half_width: None,
    };
    Sample { x, y }
}
