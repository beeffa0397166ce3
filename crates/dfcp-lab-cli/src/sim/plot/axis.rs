//! Axes: their range, ticks and labels.

use super::quantity::Unit;

/// How values map to positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal distances for equal differences.
    Linear,
    /// Equal distances for equal ratios; values are positive.
    Log,
}

/// What an axis shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantities {
    /// What it is called.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// How it is scaled.
    pub scale: Scale,
    /// Names of the values 0, 1, 2, …, where values are names.
    pub categories: Vec<String>,
}

/// An axis, ready to draw.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Name and unit.
    pub label: String,
    /// Marks with labels, by value.
    pub major: Vec<(f64, String)>,
    /// Marks without.
    pub minor: Vec<f64>,
    scale: Scale,
    low: f64,
    high: f64,
}

/// About so many labelled ticks.
const TICKS: f64 = 5.0;
/// Values that vary less than this share of the largest need no zero beside them.
const NEEDS_ZERO: f64 = 0.25;
/// Share of an axis beyond its outermost values.
const EDGE: f64 = 0.03;

impl Axis {
    /// The axis for values, all finite.
    pub fn new(quantities: &Quantities, values: impl Iterator<Item = f64>, zero: Zero) -> Self {
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let (low, high) = match low <= high {
            true => (low, high),
            false => (0.0, 1.0),
        };
        if !quantities.categories.is_empty() {
            return Self::categories(quantities);
        }
        match quantities.scale {
            Scale::Linear => Self::linear(quantities, low, high, zero),
            Scale::Log => Self::log(quantities, low.clamp(1e-100, 1e100), high.min(1e100)),
        }
    }

    fn categories(quantities: &Quantities) -> Self {
        let names = quantities.categories.iter().enumerate();
        Self {
            label: quantities.name.clone(),
            major: names.map(|(at, name)| (at as f64, name.clone())).collect(),
            minor: Vec::new(),
            scale: Scale::Linear,
            low: -0.5,
            high: quantities.categories.len() as f64 - 0.5,
        }
    }

    fn linear(quantities: &Quantities, mut low: f64, mut high: f64, zero: Zero) -> Self {
        let size = low.abs().max(high.abs());
        let (edge, needed) = match zero {
            Zero::IfNear => (0.0, NEEDS_ZERO),
            Zero::IfVeryNear => (EDGE * (high - low), 1.0 - NEEDS_ZERO),
        };
        let from_zero = low >= 0.0 && high - low > needed * high;
        if high - low <= 1e-12 * size || high == low {
            // One value: its axis starts at zero, or lies around it.
            (low, high) = match (size == 0.0, zero) {
                (true, _) => (0.0, 1.0),
                (false, Zero::IfNear) => (low.min(0.0), high.max(0.0)),
                (false, Zero::IfVeryNear) => (low - size / 2.0, high + size / 2.0),
            };
        }
        low = if from_zero { low.min(0.0) } else { low - edge };
        high += edge;
        let (prefix, factor) = quantities.unit.prefix(size);
        let step = nice((high - low) / factor / TICKS) * factor;
        if zero == Zero::IfNear {
            low = (low / step + 1e-9).floor() * step;
            high = (high / step - 1e-9).ceil() * step;
        }
        let decimals = (-(step / factor).log10() - 1e-9).ceil().max(0.0) as usize;
        // A step such as 2.5 needs a digit more than its size tells.
        let decimals = match is_whole(step / factor * 10f64.powi(decimals as i32)) {
            true => decimals,
            false => decimals + 1,
        };
        let first = (low / step - 1e-9).ceil() as i64;
        let last = (high / step + 1e-9).floor() as i64;
        let tick = |index: i64| {
            let value = index as f64 * step;
            (value, number(value / factor, decimals))
        };
        Self {
            label: with_unit(&quantities.name, &quantities.unit.symbol(prefix)),
            major: (first..=last).map(tick).collect(),
            minor: Vec::new(),
            scale: Scale::Linear,
            low,
            high,
        }
    }

    fn log(quantities: &Quantities, low: f64, high: f64) -> Self {
        let factor = match quantities.unit {
            Unit::Share => 0.01,
            _ => 1.0,
        };
        let decades = |value: f64| (value / factor).log10();
        let (mut from, mut to) = (low, high.max(low * 1.01));
        let margin = (to / from).powf(0.03);
        (from, to) = (from / margin, to * margin);
        let first = decades(from).floor() as i32;
        let last = decades(to).ceil() as i32;
        // Few decades have room for more labels, and one label alone would give no scale.
        let tens = decades(to).floor() - decades(from).ceil() + 1.0;
        let labelled: &[i32] = match decades(to) - decades(from) {
            span if span < 1.5 || tens < 2.0 => &[1, 2, 5],
            _ => &[1],
        };
        // Many decades have not even room for one each.
        let every = ((last - first) / 8 + 1).max(1);
        let mut axis = Self {
            label: String::new(),
            major: Vec::new(),
            minor: Vec::new(),
            scale: Scale::Log,
            low: from,
            high: to,
        };
        let common = quantities.unit.prefix((from * to).sqrt());
        let shared = decades(to) - decades(from) < 4.0;
        let (prefix, divisor) = match quantities.unit {
            Unit::Share => ("", factor),
            _ if shared => common,
            _ => ("", 1.0),
        };
        for decade in first..=last {
            for digit in 1..=9 {
                let value = f64::from(digit) * 10f64.powi(decade) * factor;
                if value < from || value > to {
                    continue;
                }
                match labelled.contains(&digit) && decade.rem_euclid(every) == 0 {
                    true => axis.major.push((value, log_number(value / divisor, digit))),
                    false => axis.minor.push(value),
                }
            }
        }
        axis.label = with_unit(&quantities.name, &quantities.unit.symbol(prefix));
        axis
    }

    /// The value at its beginning.
    pub fn low(&self) -> f64 {
        self.low
    }

    /// Where a value lies, from 0 at the axis' beginning to 1 at its end.
    pub fn position(&self, value: f64) -> f64 {
        let position = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        // An error bar may reach below what a logarithm can show.
        match position.is_nan() {
            true => 0.0,
            false => position.clamp(0.0, 1.0),
        }
    }
}

/// Whether an axis shall begin at zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zero {
    /// Where values vary enough; the axis ends at ticks.
    IfNear,
    /// Where the values span most of the way to it; the axis ends a little beyond its values.
    IfVeryNear,
}

fn with_unit(name: &str, unit: &str) -> String {
    match unit {
        "" => name.to_owned(),
        unit => format!("{name} ({unit})"),
    }
}

fn is_whole(value: f64) -> bool {
    (value - value.round()).abs() < 1e-6 * value.abs().max(1.0)
}

/// 1, 2, 2.5 or 5 times a power of ten, near `step`.
fn nice(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    let near = |a: &f64| (step / power / a).ln().abs();
    let best = steps.into_iter().min_by(|a, b| near(a).total_cmp(&near(b)));
    power * best.unwrap_or(1.0)
}

/// A number with a true minus sign.
fn number(value: f64, decimals: usize) -> String {
    let value = if value == 0.0 { 0.0 } else { value };
    format!("{value:.decimals$}").replace('-', "−")
}

/// A tick of a logarithmic axis: plain where short, a power of ten elsewhere.
fn log_number(value: f64, digit: i32) -> String {
    let exponent = value.log10().floor();
    let exponent = match value / 10f64.powf(exponent) > 9.999_999 {
        true => exponent as i32 + 1,
        false => exponent as i32,
    };
    if (-3..4).contains(&exponent) {
        return number(value, (-exponent).max(0) as usize);
    }
    let digits = exponent.to_string();
    let superscript = digits.chars().map(|c| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        c => char::from_u32(c as u32 - '0' as u32 + '⁰' as u32).unwrap_or(c),
    });
    let superscript: String = superscript.collect();
    match digit {
        1 => format!("10{superscript}"),
        digit => format!("{digit}·10{superscript}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(unit: Unit, scale: Scale, values: &[f64]) -> Axis {
        let quantities = Quantities {
            name: "Y".into(),
            unit,
            scale,
            categories: Vec::new(),
        };
        Axis::new(&quantities, values.iter().copied(), Zero::IfNear)
    }

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.major.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn linear_ticks_are_short_numbers() {
        let rate = axis(Unit::BitsPerSecond, Scale::Linear, &[3e6, 842e6]);
        assert_eq!(rate.label, "Y (Mbit/s)");
        assert_eq!(labels(&rate), ["0", "200", "400", "600", "800", "1000"]);
        let index = axis(Unit::Count(""), Scale::Linear, &[0.95, 0.99]);
        assert_eq!(labels(&index), ["0.95", "0.96", "0.97", "0.98", "0.99"]);
        let loss = axis(Unit::Share, Scale::Linear, &[0.0, 0.01]);
        assert_eq!((loss.label.as_str(), labels(&loss)[1]), ("Y (%)", "0.2"));
        let delay = axis(Unit::Seconds, Scale::Linear, &[-0.005, 0.01]);
        assert_eq!(labels(&delay)[0], "−5.0");
    }

    #[test]
    fn logarithmic_ticks_are_decades() {
        let loss = axis(Unit::Share, Scale::Log, &[1e-4, 0.5]);
        assert_eq!(labels(&loss), ["0.01", "0.1", "1", "10"]);
        let rate = axis(Unit::BitsPerSecond, Scale::Log, &[1.0, 1e9]);
        assert_eq!(labels(&rate).last(), Some(&"10⁸"));
        let narrow = axis(Unit::Seconds, Scale::Log, &[0.01, 0.09]);
        assert_eq!(narrow.label, "Y (ms)");
        assert_eq!(labels(&narrow), ["10", "20", "50"]);
        let one_ten = axis(Unit::Seconds, Scale::Log, &[1.5, 80.0]);
        assert_eq!(labels(&one_ten), ["2", "5", "10", "20", "50"]);
    }

    #[test]
    fn any_values_give_an_axis() {
        for scale in [Scale::Linear, Scale::Log] {
            for values in [
                &[][..],
                &[0.0],
                &[5.0],
                &[-3.0],
                &[1e-300, 1e300],
                &[f64::MIN, f64::MAX],
            ] {
                let axis = axis(Unit::Seconds, scale, values);
                assert!(axis.major.len() < 60, "{scale:?} {values:?}");
                for value in values {
                    assert!((0.0..=1.0).contains(&axis.position(*value)));
                }
            }
        }
    }
}
