//! Means and their confidence intervals.
//!
//! Student's t for small samples; its distribution function for whole degrees of freedom is the
//! finite sum of Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.

use std::f64::consts::FRAC_2_PI;

/// A mean of independent runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half the width of the 95 % confidence interval; none for a single run.
    pub half_width: Option<f64>,
}

impl Estimate {
    /// The mean of samples; none of no samples.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let count = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / count;
        let squares = samples.iter().map(|sample| (sample - mean).powi(2));
        let half_width = (samples.len() > 1).then(|| {
            let deviation = (squares.sum::<f64>() / (count - 1.0)).sqrt();
            t_quantile(samples.len() - 1) * deviation / count.sqrt()
        });
        (!samples.is_empty()).then_some(Self { mean, half_width })
    }

    /// The median of samples in place of their mean; none of no samples. Its interval is half the way
    /// between the order statistics that enclose the median with 95 %, by the normal approximation of
    /// how many samples lie below it; none of fewer than six samples, whose extremes enclose it with
    /// less.
    pub fn median(samples: &[f64]) -> Option<Self> {
        const LEAST: usize = 6;
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let upper = *sorted.get(count / 2)?;
        let lower = sorted[(count - 1) / 2];
        let half_width = (count >= LEAST).then(|| {
            // The n/2 − 1.96 √n / 2nd from either end, counted from 1.
            let below = (count as f64 - 1.96 * (count as f64).sqrt()) / 2.0;
            let rank = below.max(1.0) as usize - 1;
            (sorted[count - 1 - rank] - sorted[rank]) / 2.0
        });
        Some(Self {
            mean: (lower + upper) / 2.0,
            half_width,
        })
    }
}

/// Above this, the expansion about the normal distribution is exact to six digits.
const MANY: usize = 200;

/// The 97.5 % quantile of Student's distribution: 95 % lie between it and its negative.
pub fn t_quantile(degrees: usize) -> f64 {
    if degrees > MANY {
        // Abramowitz and Stegun 26.7.5, with the normal quantile.
        let (z, n) = (1.959_963_984_540_054_f64, degrees as f64);
        let first = (z.powi(3) + z) / 4.0;
        let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
        return z + first / n + second / (n * n);
    }
    let (mut low, mut high) = (0.0, 20.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        match central_share(middle, degrees) < 0.95 {
            true => low = middle,
            false => high = middle,
        }
    }
    (low + high) / 2.0
}

/// Probability that a value lies between −`t` and `t`.
fn central_share(t: f64, degrees: usize) -> f64 {
    let angle = (t / (degrees as f64).sqrt()).atan();
    let (sin, cos) = angle.sin_cos();
    let odd = degrees % 2 == 1;
    let mut term = if odd { cos } else { 1.0 };
    let mut sum = if degrees == 1 { 0.0 } else { term };
    let mut power = if odd { 3 } else { 2 };
    while power + 2 <= degrees {
        term *= cos * cos * (power - 1) as f64 / power as f64;
        sum += term;
        power += 2;
    }
    match odd {
        true => FRAC_2_PI * (angle + sin * sum),
        false => sin * sum,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two-sided 95 % points as printed in tables.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        let table = [
            (1, 12.706),
            (2, 4.303),
            (3, 3.182),
            (4, 2.776),
            (5, 2.571),
            (9, 2.262),
            (10, 2.228),
            (29, 2.045),
            (30, 2.042),
            (60, 2.000),
            (120, 1.980),
            (1000, 1.962),
        ];
        for (degrees, expected) in table {
            let quantile = t_quantile(degrees);
            assert!((quantile - expected).abs() < 6e-4, "{degrees}: {quantile}");
        }
        assert!((t_quantile(MANY) - t_quantile(MANY + 1)).abs() < 1e-4);
    }

    #[test]
    fn an_interval_worked_by_hand() {
        // Squares of 4, 0, 0 and 4 over three degrees of freedom; n = 4.
        let estimate = Estimate::of(&[3.0, 5.0, 5.0, 7.0]).unwrap();
        let deviation = (8f64 / 3.0).sqrt();
        assert!((estimate.mean - 5.0).abs() < 1e-12);
        assert!((estimate.half_width.unwrap() - 3.1824 * deviation / 2.0).abs() < 1e-3);
        assert_eq!(Estimate::of(&[1.0]).unwrap().half_width, None);
        assert_eq!(Estimate::of(&[]), None);
    }

    #[test]
    fn a_median_ignores_what_is_far_off() {
        let median = |samples: &[f64]| Estimate::median(samples).map(|estimate| estimate.mean);
        assert_eq!(median(&[3.0, 1000.0, 1.0]), Some(3.0));
        assert_eq!(median(&[3.0, 1000.0, 1.0, 2.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        let width = |count: usize| {
            let samples: Vec<f64> = (1..=count).map(|sample| sample as f64).collect();
            Estimate::median(&samples).unwrap().half_width
        };
        // Conover, Practical Nonparametric Statistics: of 50 samples the 18th to the 33rd.
        assert_eq!(
            (width(5), width(6), width(50)),
            (None, Some(2.5), Some(7.5))
        );
    }
}
