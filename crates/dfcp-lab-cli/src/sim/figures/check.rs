//! Whether what the papers say holds.

use std::collections::BTreeMap;

use dfcp_command::Failure;
use serde::Serialize;

use super::catalogue::Item;
use super::select::{Curves, is_same};
use super::statement::{Basis, Check, Take};
use crate::sim::plot::{Estimate, Sample};

/// What came of a check.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// What was looked at, in words.
    pub what: String,
    /// On whose word it should hold.
    pub basis: Basis,
    /// What was expected, and how far off it may be.
    pub tolerance: String,
    /// The number that is furthest off, or nearest to it; none where nothing was measured.
    pub measured: Option<f64>,
    /// Half of its 95 % confidence interval over seeds; none of a single run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
    /// Where that number is.
    pub at: String,
    /// Whether it holds.
    pub pass: bool,
    /// Whether other seeds might have decided otherwise: a bound lies within the interval.
    pub within_spread: bool,
    /// Why not, if somebody found out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A number taken from curves.
struct Number {
    value: Estimate,
    at: String,
}

/// Checks an item; `columns` has its curves over other columns than its own, by name.
pub fn verdicts(
    item: &Item,
    curves: &Curves,
    columns: &BTreeMap<String, Curves>,
) -> Result<Vec<Verdict>, Failure> {
    let verdict = |check: &Check| match &check.y {
        None => Ok(verdict(check, item, curves)),
        Some(column) => match columns.get(column) {
            Some(others) => Ok(verdict(check, item, others)),
            None => Err(Failure::usage(format!(
                "{}: no curves of {column}",
                item.id
            ))),
        },
    };
    item.checks.iter().map(verdict).collect()
}

fn verdict(check: &Check, item: &Item, curves: &Curves) -> Verdict {
    let numbers = numbers(check, item, curves);
    let excess = |number: &Number| check.excess(number.value.mean);
    // What other seeds might have given: the ends of the interval.
    let others = |number: &Number| {
        let reach = number.value.half_width.unwrap_or(0.0);
        let least = check.take.least();
        [
            check.excess((number.value.mean - reach).max(least)),
            check.excess(number.value.mean + reach),
        ]
    };
    let worst = numbers
        .iter()
        .max_by(|a, b| excess(a).total_cmp(&excess(b)));
    let pass = worst.is_some_and(|worst| excess(worst) <= 0.0);
    // The farthest number decides as it stands; with other seeds any might that comes as near.
    let within_spread = match pass {
        true => numbers.iter().flat_map(others).any(|excess| excess > 0.0),
        false => worst.is_some_and(|worst| others(worst).iter().any(|excess| *excess <= 0.0)),
    };
    Verdict {
        what: check.what.clone(),
        basis: check.basis.clone(),
        tolerance: check.tolerance(),
        measured: worst.map(|worst| worst.value.mean),
        half_width: worst.and_then(|worst| worst.value.half_width),
        at: worst.map_or_else(|| "nothing measured".to_owned(), |worst| worst.at.clone()),
        pass,
        within_spread,
        reason: None,
    }
}

fn numbers(check: &Check, item: &Item, curves: &Curves) -> Vec<Number> {
    let mut numbers = Vec::new();
    for (index, panel) in curves.panels.iter().enumerate() {
        if check.panel.as_ref().is_some_and(|only| only != panel) {
            continue;
        }
        if check.take == Take::Apart {
            numbers.extend(apart(check, curves, index));
            continue;
        }
        for curve in &check.curves {
            let points = points(check, curves, index, curve);
            let taken = |take| match (take, &check.over) {
                // Of a quotient the mean is that of the means: one of quotients would be made by
                // the places where there is next to nothing below.
                (Take::Mean, Some(over)) => {
                    let alone = |name: &str| mean(&within(check, curves.samples(index, name)));
                    (!points.is_empty()).then(|| quotient(alone(curve), alone(over)))
                }
                _ => taken(take, &points),
            };
            let mut place = match panel.is_empty() {
                true => curve.clone(),
                false => format!("{curve}, {panel}"),
            };
            if let Some(other) = check.over.as_ref().or(check.minus.as_ref()) {
                let sign = if check.over.is_some() { '/' } else { '−' };
                place = place.replacen(curve.as_str(), &format!("{curve} {sign} {other}"), 1);
            }
            match check.take {
                Take::Each => numbers.extend(each(&points, &place, item)),
                take => numbers.extend(taken(take).map(|value| Number {
                    value,
                    at: place.clone(),
                })),
            }
        }
    }
    numbers
}

/// One number of a curve; none of a curve without points.
fn taken(take: Take, points: &[Sample]) -> Option<Estimate> {
    let by_mean = |a: &&Sample, b: &&Sample| a.y.mean.total_cmp(&b.y.mean);
    let greatest = points.iter().max_by(by_mean)?.y;
    let least = points.iter().min_by(by_mean)?.y;
    // Steps of a curve, each as what it is more than no step at all.
    let steepest = |rising: bool| {
        let sign = if rising { 1.0 } else { -1.0 };
        let steps = points.windows(2).map(|pair| {
            let step = quotient(pair[1].y, pair[0].y);
            Estimate {
                mean: sign * (step.mean - 1.0),
                half_width: step.half_width,
            }
        });
        let none = Estimate {
            mean: 0.0,
            half_width: None,
        };
        steps.fold(none, |a, b| if b.mean > a.mean { b } else { a })
    };
    Some(match take {
        Take::Each | Take::Apart | Take::Greatest => greatest,
        Take::Mean => mean(points),
        Take::Spread => quotient(greatest, least),
        Take::Ends => quotient(points.last()?.y, points.first()?.y),
        Take::Rise => steepest(true),
        Take::Fall => steepest(false),
    })
}

/// How far the means of a check's curves are apart; none where one of them has no points.
fn apart(check: &Check, curves: &Curves, panel: usize) -> Option<Number> {
    let mut means = Vec::new();
    for curve in &check.curves {
        let points = points(check, curves, panel, curve);
        if points.is_empty() {
            return None;
        }
        means.push((mean(&points), curve));
    }
    means.sort_by(|(a, _), (b, _)| a.mean.total_cmp(&b.mean));
    let ((least, low), (greatest, high)) = (means.first()?, means.last()?);
    let panel = &curves.panels[panel];
    let of = if panel.is_empty() { "" } else { ", " };
    Some(Number {
        value: quotient(*greatest, *least),
        at: format!("{high} / {low}{of}{panel}"),
    })
}

/// The mean of a curve. Its values are of the same runs, so their intervals are taken to go together.
fn mean(points: &[Sample]) -> Estimate {
    let count = points.len() as f64;
    let widths = points.iter().map(|point| point.y.half_width);
    let known: Option<Vec<f64>> = widths.collect();
    Estimate {
        mean: points.iter().map(|point| point.y.mean).sum::<f64>() / count,
        half_width: known.map(|widths| widths.iter().sum::<f64>() / count),
    }
}

/// A quotient of numbers that are independent: relative errors add up as squares.
fn quotient(a: Estimate, b: Estimate) -> Estimate {
    let mean = a.mean / b.mean;
    let relative = |number: Estimate| number.half_width.map(|width| width / number.mean);
    Estimate {
        mean,
        half_width: together(relative(a), relative(b)).map(|width| width * mean.abs()),
    }
}

/// A difference of numbers that are independent.
fn difference(a: Estimate, b: Estimate) -> Estimate {
    Estimate {
        mean: a.mean - b.mean,
        half_width: together(a.half_width, b.half_width),
    }
}

/// Independent half widths as one. What has none beside one that has is exact: a paper's number.
fn together(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0.0).hypot(b.unwrap_or(0.0))),
    }
}

fn each(points: &[Sample], place: &str, item: &Item) -> Vec<Number> {
    let named = item.x.column.rsplit('.').next().unwrap_or_default();
    let number = |sample: &Sample| Number {
        value: sample.y,
        at: format!("{place}, {named} {}", short(sample.x)),
    };
    points.iter().map(number).collect()
}

/// Those of a curve's points where a check looks.
fn within(check: &Check, samples: &[Sample]) -> Vec<Sample> {
    let is_within = |sample: &&Sample| {
        let x = sample.x;
        check.x.is_none_or(|only| is_same(x, only))
            && check.from.is_none_or(|from| x >= from || is_same(x, from))
            && check.to.is_none_or(|to| x <= to || is_same(x, to))
    };
    samples.iter().filter(is_within).copied().collect()
}

/// The points of a curve that a check is about, compared with another's where it says so.
fn points(check: &Check, curves: &Curves, panel: usize, curve: &str) -> Vec<Sample> {
    let other = |name: &Option<String>, x: f64| {
        let samples = name.as_ref().map(|name| curves.samples(panel, name))?;
        let here = samples.iter().find(|sample| is_same(sample.x, x));
        Some(here.map(|sample| sample.y))
    };
    let value = |x: f64, mut y: Estimate| {
        // Where the other curve has no value there, neither has their ratio.
        if let Some(over) = other(&check.over, x) {
            y = quotient(y, over?);
        }
        if let Some(minus) = other(&check.minus, x) {
            y = difference(y, minus?);
        }
        Some(Sample { x, y })
    };
    let samples = within(check, curves.samples(panel, curve)).into_iter();
    samples
        .filter_map(|sample| value(sample.x, sample.y))
        .collect()
}

/// A number in four digits.
pub fn short(value: f64) -> String {
    let prefixes = [(1e9, " G"), (1e6, " M"), (1e4, " k")];
    let large = prefixes
        .into_iter()
        .find(|(factor, _)| value.abs() >= *factor);
    let (value, suffix) = match large {
        Some((1e4, suffix)) => (value / 1e3, suffix),
        Some((factor, suffix)) => (value / factor, suffix),
        None => (value, ""),
    };
    if value == 0.0 || !value.is_finite() {
        return format!("{value}{suffix}");
    }
    let decimals = (3 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.decimals$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{text}{suffix}")
}
