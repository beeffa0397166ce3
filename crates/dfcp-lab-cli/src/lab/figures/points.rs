//! The two worlds side by side: which points of an item's curves agree, and on what path.

use std::collections::BTreeMap;

use dfcp_command::Failure;

use super::real::Truth;
use crate::sim::figures::catalogue::{Item, Source};
use crate::sim::figures::runs::Results;
use crate::sim::figures::select::{self, Curves};
use crate::sim::plot::{Data, Estimate, Panel, Sample};
use crate::sim::table::{Cell, Table};

/// How far apart simulated and real may be, as a share of the simulated.
pub const TOLERANCE: f64 = 0.1;

/// A place of a curve in both worlds.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Its panel, as the catalogue has it; empty where there is one.
    pub panel: String,
    /// Its curve, as the catalogue has it.
    pub curve: String,
    /// Where along the horizontal axis; of a curve's mean over time, where that begins.
    pub x: f64,
    /// The name of that place, where places are names.
    pub place: Option<String>,
    /// What the simulator says.
    pub simulated: Option<Estimate>,
    /// What was measured.
    pub real: Option<Estimate>,
    /// Why what was measured does not count, if it does not.
    pub untrue: Option<String>,
}

impl Point {
    /// The real figure's part of the simulated one.
    pub fn ratio(&self) -> Option<f64> {
        let (simulated, real) = (self.simulated?.mean, self.real?.mean);
        (simulated != 0.0).then(|| real / simulated)
    }

    /// Whether the two worlds are near enough.
    pub fn is_near(&self) -> bool {
        self.differ_by(|simulated, _| TOLERANCE * simulated.mean.abs())
    }

    /// Whether they are no farther apart than their 95 % confidence intervals over seeds reach: then
    /// other seeds might have them together. Of a single seed nothing is known.
    pub fn is_within_spread(&self) -> bool {
        let width = |estimate: Estimate| estimate.half_width.unwrap_or(0.0);
        self.differ_by(|simulated, real| width(simulated) + width(real))
    }

    /// Whether both worlds have a figure, and by no more than this is it another.
    fn differ_by(&self, most: impl Fn(Estimate, Estimate) -> f64) -> bool {
        match (self.simulated, self.real) {
            (Some(simulated), Some(real)) => {
                (real.mean - simulated.mean).abs() <= most(simulated, real)
            }
            _ => false,
        }
    }
}

/// What results say of an item in both worlds.
#[derive(Debug)]
pub struct Compared {
    /// What is drawn: three curves for each of the item's, simulated, real, and real on a path that
    /// was not true.
    pub data: Data,
    /// What stands above each panel.
    pub titles: BTreeMap<String, String>,
    /// The points.
    pub points: Vec<Point>,
}

/// Both worlds of a scenario, and how true the real one was at each point of the sweep.
pub struct Worlds {
    /// The simulator's results.
    pub simulated: Results,
    /// The real path's.
    pub real: Results,
    /// How true it was, by point.
    pub truths: Vec<Truth>,
}

/// Where a sample is: panel, curve, place. Places are compared as text, since both worlds have them
/// from the same settings.
type Key = (String, String, String);

/// Sets the two worlds of an item side by side; `mean_from` is where a time series begins to count.
pub fn compare(item: &Item, worlds: &Worlds, mean_from: f64) -> Result<Compared, Failure> {
    // Simulated first: where nothing was measured there still is something to compare with.
    let simulated = select::select(item, &worlds.simulated, &item.y.column)?;
    // Flows that did not run measured nothing.
    let ran = kept(&worlds.real, |point| {
        let truth = worlds.truths.get(point);
        truth.is_none_or(|truth| truth.failures.is_empty())
    });
    let real = selected(item, &ran);
    let untrue = untrue(item, worlds);
    let both = Both {
        item,
        simulated: &simulated,
        real: real.as_ref(),
        untrue: &untrue,
    };
    let points = match (item.source == Source::Series, &item.y.change) {
        (true, _) => both.means(mean_from),
        (false, None) => both.points(),
        // A share of the best hides how far the best are apart.
        (false, Some(_)) => {
            let mut plain = item.clone();
            plain.y.change = None;
            let simulated = select::select(&plain, &worlds.simulated, &plain.y.column)?;
            let real = selected(&plain, &ran);
            let both = Both {
                item: &plain,
                simulated: &simulated,
                real: real.as_ref(),
                untrue: &untrue,
            };
            both.points()
        }
    };
    let data = both.drawn();
    let titles = simulated.panels.iter().zip(&simulated.data.panels);
    let titles = titles.filter_map(|(value, panel)| Some((value.clone(), panel.title.clone()?)));
    Ok(Compared {
        data,
        titles: titles.collect(),
        points,
    })
}

/// The curves of an item, if the results have anything of it.
fn selected(item: &Item, results: &Results) -> Option<Curves> {
    select::select(item, results, &item.y.column).ok()
}

/// Results of some points of the sweep alone.
fn kept(results: &Results, keep: impl Fn(usize) -> bool) -> Results {
    let table = |table: &Table| {
        let mut kept = Table::new(table.columns().to_vec());
        let point = table.column("point");
        for row in table.rows() {
            let number = point.and_then(|point| row[point].number());
            if number.is_some_and(|number| keep(number as usize)) {
                kept.push(row.clone());
            }
        }
        kept
    };
    Results {
        flows: table(&results.flows),
        links: table(&results.links),
        series: table(&results.series),
        parameters: results.parameters.clone(),
    }
}

/// Why samples do not count, by where they are.
fn untrue(item: &Item, worlds: &Worlds) -> BTreeMap<Key, String> {
    let mut all: BTreeMap<Key, Vec<&str>> = BTreeMap::new();
    for (point, truth) in worlds.truths.iter().enumerate() {
        if truth.is_true() {
            continue;
        }
        let own = kept(&worlds.real, |other| other == point);
        let Some(curves) = selected(item, &own) else {
            continue;
        };
        for (key, _) in samples(item, &curves) {
            let reasons = truth.failures.iter().chain(&truth.reasons);
            let known = all.entry(key).or_default();
            for reason in reasons {
                if !known.contains(&reason.as_str()) {
                    known.push(reason);
                }
            }
        }
    }
    let told = |(key, reasons): (Key, Vec<&str>)| (key, reasons.join("; "));
    all.into_iter().map(told).collect()
}

/// Every measured sample of curves, with where it is.
fn samples<'a>(
    item: &'a Item,
    curves: &'a Curves,
) -> impl Iterator<Item = (Key, Sample)> + use<'a> {
    let panels = curves.data.panels.iter().zip(&curves.panels);
    panels.flat_map(move |(panel, value)| {
        let named = panel.curves.iter().zip(&curves.data.curves);
        let measured = named.filter(|(_, name)| !select::is_beside(item, name));
        measured.flat_map(move |(samples, name)| {
            samples
                .iter()
                .map(move |sample| (key(curves, value, name, sample.x), *sample))
        })
    })
}

/// The name of a place, where places are names.
fn place(curves: &Curves, x: f64) -> Option<String> {
    curves.data.x.categories.get(x as usize).cloned()
}

/// Where a place of a curve is.
fn key(curves: &Curves, panel: &str, curve: &str, x: f64) -> Key {
    let place = place(curves, x).unwrap_or_else(|| Cell::from(x).to_string());
    (panel.to_owned(), curve.to_owned(), place)
}

/// The curves of an item in both worlds.
struct Both<'a> {
    item: &'a Item,
    simulated: &'a Curves,
    /// None where nothing was measured.
    real: Option<&'a Curves>,
    /// Why samples do not count.
    untrue: &'a BTreeMap<Key, String>,
}

impl Both<'_> {
    fn points(&self) -> Vec<Point> {
        let Self {
            item,
            simulated,
            real,
            untrue,
        } = *self;
        let mut all: Vec<(Key, Point)> = Vec::new();
        let mut put = |key: Key, x: f64, named: Option<String>, set: &dyn Fn(&mut Point)| {
            let known = all.iter().position(|(own, _)| *own == key);
            let index = known.unwrap_or_else(|| {
                let point = Point {
                    panel: key.0.clone(),
                    curve: key.1.clone(),
                    x,
                    place: named,
                    simulated: None,
                    real: None,
                    untrue: untrue.get(&key).cloned(),
                };
                all.push((key, point));
                all.len() - 1
            });
            set(&mut all[index].1);
        };
        for (key, Sample { x, y }) in samples(item, simulated) {
            put(key, x, place(simulated, x), &|point| {
                point.simulated = Some(y)
            });
        }
        if let Some(curves) = real {
            for (key, Sample { x, y }) in samples(item, curves) {
                put(key, x, place(curves, x), &|point| point.real = Some(y));
            }
        }
        all.into_iter().map(|(_, point)| point).collect()
    }

    /// Of time series a point each: its mean from a time on.
    fn means(&self, from: f64) -> Vec<Point> {
        let Self {
            item,
            simulated,
            real,
            untrue,
        } = *self;
        let mut all: Vec<Point> = Vec::new();
        // Of a shorter run the second half.
        let last = samples(item, simulated).map(|(_, sample)| sample.x);
        let from = from.min(last.fold(0.0, f64::max) / 2.0);
        let mean = |curves: &Curves| {
            let mut sums: BTreeMap<(String, String), (f64, f64)> = BTreeMap::new();
            for ((panel, curve, _), sample) in samples(item, curves) {
                if sample.x > from {
                    let (sum, count) = sums.entry((panel, curve)).or_default();
                    *sum += sample.y.mean;
                    *count += 1.0;
                }
            }
            let mean = |(key, (sum, count)): ((String, String), (f64, f64))| {
                let mean = sum / count;
                let half_width = None;
                (key, Estimate { mean, half_width })
            };
            sums.into_iter().map(mean).collect::<Vec<_>>()
        };
        let simulated = mean(simulated);
        let real: BTreeMap<_, _> = real.map(mean).unwrap_or_default().into_iter().collect();
        for ((panel, curve), estimate) in simulated {
            let key = (panel.clone(), curve.clone());
            let is_own = |(own, _): &(&Key, &String)| own.0 == panel && own.1 == curve;
            let untrue = untrue.iter().find(is_own);
            all.push(Point {
                untrue: untrue.map(|(_, reason)| reason.clone()),
                real: real.get(&key).copied(),
                simulated: Some(estimate),
                x: from,
                place: None,
                panel,
                curve,
            });
        }
        all
    }

    /// The curves of both worlds in one picture.
    fn drawn(&self) -> Data {
        let Self {
            item,
            simulated,
            real,
            untrue,
        } = *self;
        let is_measured = |name: &&String| !select::is_beside(item, name);
        let names: Vec<&String> = simulated.data.curves.iter().filter(is_measured).collect();
        let panel = |(panel, value): (&Panel, &String)| {
            let index = |curves: &Curves| curves.panels.iter().position(|own| own == value);
            let of = |curves: Option<&Curves>, name: &str| {
                let samples = curves.and_then(|curves| Some(curves.samples(index(curves)?, name)));
                samples.unwrap_or_default().to_vec()
            };
            let mut curves = Vec::new();
            for name in &names {
                let mut measured = of(real, name);
                // Names of places are numbered by what a world has of them.
                for sample in &mut measured {
                    let named = real.and_then(|real| place(real, sample.x));
                    let own = &mut simulated.data.x.categories.iter();
                    let index = named.and_then(|named| own.position(|own| *own == named));
                    sample.x = index.map_or(sample.x, |index| index as f64);
                }
                let is_untrue =
                    |sample: &Sample| untrue.contains_key(&key(simulated, value, name, sample.x));
                let (late, true_ones): (Vec<_>, Vec<_>) = match item.source == Source::Series {
                    // A line is of one kind.
                    true if measured.iter().any(is_untrue) => (measured, Vec::new()),
                    true => (Vec::new(), measured),
                    false => measured.into_iter().partition(is_untrue),
                };
                curves.extend([of(Some(simulated), name), true_ones, late]);
            }
            Panel {
                title: panel.title.clone(),
                curves,
            }
        };
        let panels = simulated.data.panels.iter().zip(&simulated.panels);
        let thrice = names.iter().flat_map(|name| {
            let name = item.readable(name);
            [
                name.clone(),
                format!("{name}, real"),
                format!("{name}, real, path late"),
            ]
        });
        Data {
            x: simulated.data.x.clone(),
            y: simulated.data.y.clone(),
            curves: thrice.collect(),
            panels: panels.map(panel).collect(),
            warnings: Vec::new(),
        }
    }
}
