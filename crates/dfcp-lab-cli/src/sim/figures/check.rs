//! Whether what the papers say holds.

use dfcp_command::Failure;
use serde::Serialize;

use super::catalogue::{Check, Item, Take};
use super::runs::Results;
use super::select::{self, Curves, is_same};

/// What came of a check.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// What should hold, in words.
    pub what: String,
    /// What was expected, and how far off it may be.
    pub tolerance: String,
    /// The number that is furthest off, or nearest to it; none where nothing was measured.
    pub measured: Option<f64>,
    /// Where that number is.
    pub at: String,
    /// Whether it holds.
    pub pass: bool,
    /// Why not, if somebody found out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A number taken from curves.
struct Number {
    value: f64,
    at: String,
}

/// Checks an item.
pub fn verdicts(item: &Item, curves: &Curves, results: &Results) -> Result<Vec<Verdict>, Failure> {
    let verdict = |check: &Check| match &check.y {
        None => Ok(verdict(check, item, curves)),
        Some(column) => {
            let others = select::select(item, results, column)?;
            Ok(verdict(check, item, &others))
        }
    };
    item.checks.iter().map(verdict).collect()
}

fn verdict(check: &Check, item: &Item, curves: &Curves) -> Verdict {
    let numbers = numbers(check, item, curves);
    let worst = numbers.into_iter().max_by(|a, b| {
        let excess = |number: &Number| check.excess(number.value);
        excess(a).total_cmp(&excess(b))
    });
    Verdict {
        what: check.what.clone(),
        tolerance: check.tolerance(),
        pass: worst
            .as_ref()
            .is_some_and(|worst| check.excess(worst.value) <= 0.0),
        measured: worst.as_ref().map(|worst| worst.value),
        at: worst.map_or_else(|| "nothing measured".to_owned(), |worst| worst.at),
        reason: None,
    }
}

fn numbers(check: &Check, item: &Item, curves: &Curves) -> Vec<Number> {
    let mut numbers = Vec::new();
    for (index, panel) in curves.panels.iter().enumerate() {
        if check.panel.as_ref().is_some_and(|only| only != panel) {
            continue;
        }
        for curve in &check.curves {
            let points = points(check, curves, index, curve);
            let mut place = match panel.is_empty() {
                true => curve.clone(),
                false => format!("{curve}, {panel}"),
            };
            if let Some(other) = check.over.as_ref().or(check.minus.as_ref()) {
                let sign = if check.over.is_some() { '/' } else { '−' };
                place = place.replacen(curve.as_str(), &format!("{curve} {sign} {other}"), 1);
            }
            let values: Vec<f64> = points.iter().map(|(_, y)| *y).collect();
            let one = |value| {
                vec![Number {
                    value,
                    at: place.clone(),
                }]
            };
            let step = |sign: f64| {
                let steps = values
                    .windows(2)
                    .map(|pair| sign * (pair[1] / pair[0] - 1.0));
                steps.fold(0.0, f64::max)
            };
            let greatest = values.iter().copied().fold(f64::MIN, f64::max);
            let least = values.iter().copied().fold(f64::MAX, f64::min);
            numbers.extend(match check.take {
                _ if values.is_empty() => Vec::new(),
                Take::Each => each(points, &place, item),
                Take::Mean => one(values.iter().sum::<f64>() / values.len() as f64),
                Take::Greatest => one(greatest),
                Take::Spread => one(greatest / least),
                Take::Rise => one(step(1.0)),
                Take::Fall => one(step(-1.0)),
            });
        }
    }
    numbers
}

fn each(points: Vec<(f64, f64)>, place: &str, item: &Item) -> Vec<Number> {
    let number = |(x, value): (f64, f64)| Number {
        value,
        at: format!(
            "{place}, {} {}",
            item.x.column.rsplit('.').next().unwrap_or_default(),
            short(x)
        ),
    };
    points.into_iter().map(number).collect()
}

/// The points of a curve that a check is about.
fn points(check: &Check, curves: &Curves, panel: usize, curve: &str) -> Vec<(f64, f64)> {
    let is_near = |x: f64, bound: f64| is_same(x, bound);
    let within = |x: f64| {
        check.x.is_none_or(|only| is_near(x, only))
            && check.from.is_none_or(|from| x >= from || is_near(x, from))
            && check.to.is_none_or(|to| x <= to || is_near(x, to))
    };
    let other = |name: &Option<String>, x: f64| {
        let samples = name.as_ref().map(|name| curves.samples(panel, name))?;
        Some(
            samples
                .iter()
                .find(|sample| is_same(sample.x, x))
                .map(|sample| sample.y.mean),
        )
    };
    let value = |x: f64, mut y: f64| {
        // Where the other curve has no value there, neither has their ratio.
        if let Some(over) = other(&check.over, x) {
            y /= over?;
        }
        if let Some(minus) = other(&check.minus, x) {
            y -= minus?;
        }
        Some((x, y))
    };
    let samples = curves.samples(panel, curve).iter();
    let samples = samples.filter(|sample| within(sample.x));
    samples
        .filter_map(|sample| value(sample.x, sample.y.mean))
        .collect()
}

impl Check {
    /// How far a number is beyond what is allowed; at most zero if it is not.
    fn excess(&self, value: f64) -> f64 {
        let expected = self.expect.map(|expect| {
            let relative = self.within.map_or(0.0, |within| within * expect.abs());
            let allowed = relative.max(self.within_difference.unwrap_or(0.0));
            (value - expect).abs() - allowed
        });
        let below = self.at_least.map(|least| least - value);
        let above = self.at_most.map(|most| value - most);
        let all = [expected, below, above].into_iter().flatten();
        let excess = all.fold(f64::NEG_INFINITY, f64::max);
        // What is no number holds nothing.
        if value.is_nan() {
            f64::INFINITY
        } else {
            excess
        }
    }

    /// What is allowed, in words.
    fn tolerance(&self) -> String {
        let mut parts = Vec::new();
        if let Some(expect) = self.expect {
            let relative = self
                .within
                .map(|within| format!("{} %", short(within * 100.0)));
            let difference = self.within_difference.map(short);
            let allowed = relative.or(difference).unwrap_or_default();
            parts.push(format!("{} ± {allowed}", short(expect)));
        }
        parts.extend(self.at_least.map(|least| format!("≥ {}", short(least))));
        parts.extend(self.at_most.map(|most| format!("≤ {}", short(most))));
        parts.join(", ")
    }
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
