//! Degree distributions as integer tables, so that both peers draw alike on any machine.
//!
//! A distribution is a list of integer weights; its cumulative table has one 32-bit threshold for
//! each degree but the last: ⌊2³² · (sum of weights up to it) ÷ (sum of all)⌋. A draw is the first
//! degree whose threshold is above the generator's output, the last one if there is none.

use crate::error::FecError;

/// Degree distribution of the LT code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Degrees {
    /// Table I of Shokrollahi's "Raptor Codes", the column of k = 65536.
    Shokrollahi,
    /// Ideal soliton (Luby, LT codes).
    IdealSoliton,
    /// Robust soliton (Luby, LT codes), its constants in millionths: integers, so that peers agree.
    RobustSoliton {
        /// The constant c · 10⁶, 1 to 10⁶.
        c_millionths: u32,
        /// The probability of failure δ · 10⁶, 1 to 10⁶ − 1.
        delta_millionths: u32,
    },
}

/// Degree and probability in millionths. The published numbers sum to 999,998.
const SHOKROLLAHI: [(u32, u64); 10] = [
    (1, 7_969),
    (2, 493_570),
    (3, 166_220),
    (4, 72_646),
    (5, 82_558),
    (8, 56_058),
    (9, 37_229),
    (19, 55_590),
    (65, 25_023),
    (66, 3_135),
];

/// Fraction bits of soliton weights.
const WEIGHT_BITS: u32 = 48;

/// ⌊ln 2 · 2³²⌋.
const LN_2: u128 = 2_977_044_471;

/// Upper bits of an output by which the search for its degree starts.
const GUIDE_BITS: u32 = 10;

/// Thresholds that are compared with all at once.
const MOST_STEPS: usize = 12;

impl Degrees {
    /// Whether the constants are within limits.
    pub(super) fn check(self) -> Result<(), FecError> {
        match self {
            Self::Shokrollahi | Self::IdealSoliton => Ok(()),
            Self::RobustSoliton {
                c_millionths,
                delta_millionths,
            } => {
                let million = 1_000_000;
                if !(1..=million).contains(&c_millionths) {
                    return Err(FecError::Parameter("c of the robust soliton"));
                }
                if !(1..million).contains(&delta_millionths) {
                    return Err(FecError::Parameter("δ of the robust soliton"));
                }
                Ok(())
            }
        }
    }

    /// Degrees and weights over `n` intermediate symbols.
    fn weights(self, n: u32) -> Vec<(u32, u64)> {
        match self {
            Self::Shokrollahi => SHOKROLLAHI.to_vec(),
            Self::IdealSoliton => (1..=n).map(|d| (d, ideal(n, d))).collect(),
            Self::RobustSoliton {
                c_millionths,
                delta_millionths,
            } => robust(n, c_millionths.into(), delta_millionths.into()),
        }
    }
}

/// ρ(d) of the ideal soliton, in units of 2⁻⁴⁸.
fn ideal(n: u32, d: u32) -> u64 {
    let pairs = u64::from(d) * u64::from(d - 1);
    (1 << WEIGHT_BITS) / if d == 1 { n.into() } else { pairs }
}

/// ρ(d) + τ(d) of the robust soliton. R = c · ln(n ÷ δ) · √n has 16 fraction bits; the spike of τ is
/// at ⌊n ÷ R⌋, at least 1 and at most n.
fn robust(n: u32, c: u128, delta: u128) -> Vec<(u32, u64)> {
    let wide = u128::from(n);
    let root = u128::from((u64::from(n) << 32).isqrt()); // √n, 16 fraction bits
    let log = natural_log(((wide * 1_000_000) << 32) / delta); // 32 fraction bits
    let r = ((c * log * root / 1_000_000) >> 32).max(1);
    let spike = ((wide << 16) / r).clamp(1, wide) as u32;
    let tau = |d: u32| match d.cmp(&spike) {
        std::cmp::Ordering::Less => (r << (WEIGHT_BITS - 16)) / (u128::from(d) * wide),
        // R · ln(R ÷ δ) ÷ n, nothing where R is below δ.
        std::cmp::Ordering::Equal => {
            let log = natural_log(((r << 16) * 1_000_000 / delta).max(1 << 32));
            ((r * log) >> (48 - WEIGHT_BITS)) / wide
        }
        std::cmp::Ordering::Greater => 0,
    };
    (1..=n).map(|d| (d, ideal(n, d) + tau(d) as u64)).collect()
}

/// ln x for x ≥ 1, argument and result with 32 fraction bits, rounded down: the integer part of the
/// binary logarithm from the leading bit, its fraction bit by bit from repeated squaring.
fn natural_log(x: u128) -> u128 {
    let whole = x.ilog2() - 32;
    let mut mantissa = x >> whole; // in [1, 2)
    let mut log = u128::from(whole) << 32;
    for bit in (0..32).rev() {
        mantissa = (mantissa * mantissa) >> 32;
        if mantissa >> 33 != 0 {
            mantissa >>= 1;
            log |= 1 << bit;
        }
    }
    (log * LN_2) >> 32
}

/// A distribution ready to draw from.
#[derive(Debug)]
pub(super) struct DegreeTable {
    /// Thresholds of all degrees but the last.
    thresholds: Vec<u32>,
    degrees: Vec<u32>,
    /// By an output's upper bits: the first degree it may be.
    guide: Vec<u32>,
    mean: f64,
}

impl DegreeTable {
    pub(super) fn new(distribution: Degrees, n: u32) -> Self {
        Self::of_weights(distribution.weights(n))
    }

    /// From degrees, ascending, and weights, of which one at least is above zero.
    pub(super) fn of_weights(mut weights: Vec<(u32, u64)>) -> Self {
        weights.retain(|&(_, weight)| weight > 0);
        let total: u128 = weights.iter().map(|&(_, weight)| u128::from(weight)).sum();
        let mut sum = 0u128;
        let mut thresholds: Vec<u32> = weights
            .iter()
            .map(|&(_, weight)| {
                sum += u128::from(weight);
                ((sum << 32) / total).min(u32::MAX.into()) as u32
            })
            .collect();
        thresholds.pop();
        let first = |bucket: u32| {
            let least = bucket << (32 - GUIDE_BITS);
            thresholds.partition_point(|&t| t <= least) as u32
        };
        let mut guide: Vec<u32> = (0..1 << GUIDE_BITS).map(first).collect();
        guide.push(thresholds.len() as u32);
        let degrees: Vec<u32> = weights.iter().map(|&(degree, _)| degree).collect();
        let ends = thresholds.iter().map(|&t| t.into()).chain([2f64.powi(32)]);
        let (mut below, mut mean) = (0f64, 0f64);
        for (&degree, upto) in degrees.iter().zip(ends) {
            mean += f64::from(degree) * (upto - below);
            below = upto;
        }
        Self {
            mean: mean / 2f64.powi(32),
            guide,
            degrees,
            thresholds,
        }
    }

    /// The degree that `output` draws.
    #[inline(always)]
    pub(super) fn draw(&self, output: u32) -> u32 {
        let bucket = (output >> (32 - GUIDE_BITS)) as usize;
        let (mut at, end) = (self.guide[bucket] as usize, self.guide[bucket + 1] as usize);
        if at < end {
            at += self.thresholds[at..end].partition_point(|&t| t <= output);
        }
        self.degrees[at]
    }

    /// Thresholds and by how much the degree grows from one to the next, if these are so few that
    /// comparing with all of them is cheaper than a search, and degrees fit eight bits.
    pub(super) fn steps(&self) -> Option<Vec<(u32, u32)>> {
        let few = self.thresholds.len() <= MOST_STEPS && self.max() <= u8::MAX.into();
        let grow = self.degrees.windows(2).map(|pair| pair[1] - pair[0]);
        few.then(|| self.thresholds.iter().copied().zip(grow).collect())
    }

    /// The threshold of a degree.
    #[cfg(test)]
    pub(super) fn threshold(&self, degree: u32) -> Option<u32> {
        let at = self.degrees.iter().position(|&d| d == degree)?;
        self.thresholds.get(at).copied()
    }

    /// All degrees, ascending.
    pub(super) fn degrees(&self) -> &[u32] {
        &self.degrees
    }

    /// The smallest degree.
    pub(super) fn min(&self) -> u32 {
        self.degrees.first().copied().unwrap_or(1)
    }

    /// The largest degree.
    pub(super) fn max(&self) -> u32 {
        self.degrees.last().copied().unwrap_or(1)
    }

    /// Mean degree, for sizing only.
    pub(super) fn mean(&self) -> f64 {
        self.mean
    }

    pub(super) fn memory(&self) -> usize {
        (self.thresholds.capacity() + self.degrees.capacity() + self.guide.capacity())
            * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probability(table: &DegreeTable, at: usize) -> f64 {
        let upto = |at: usize| {
            table
                .thresholds
                .get(at)
                .map_or(2f64.powi(32), |&t| t.into())
        };
        let below = at.checked_sub(1).map_or(0.0, upto);
        (upto(at) - below) / 2f64.powi(32)
    }

    #[test]
    fn natural_log_is_right_to_nine_digits() {
        for x in [1.0, 1.5, 2.0, 10.0, 65536.0, 1e9, 6.5e10] {
            let fixed = natural_log((x * 2f64.powi(32)) as u128) as f64 / 2f64.powi(32);
            assert!((fixed - f64::ln(x)).abs() < 1e-8, "{x}: {fixed}");
        }
    }

    #[test]
    fn solitons_have_their_probabilities() {
        let n = 1000;
        let table = DegreeTable::new(Degrees::IdealSoliton, n);
        for d in 1..=n {
            let expected = if d == 1 {
                1.0 / f64::from(n)
            } else {
                1.0 / f64::from(d * (d - 1))
            };
            assert!((probability(&table, d as usize - 1) - expected).abs() < 1e-8);
        }
        let (c, delta) = (0.03, 0.5);
        let r = c * (f64::from(n) / delta).ln() * f64::from(n).sqrt();
        let spike = (f64::from(n) / r).floor() as u32;
        let exact = |d: u32| {
            let rho = if d == 1 {
                1.0 / f64::from(n)
            } else {
                1.0 / (f64::from(d) * f64::from(d - 1))
            };
            rho + match d.cmp(&spike) {
                std::cmp::Ordering::Less => r / f64::from(d * n),
                std::cmp::Ordering::Equal => r * (r / delta).ln() / f64::from(n),
                std::cmp::Ordering::Greater => 0.0,
            }
        };
        let beta: f64 = (1..=n).map(exact).sum();
        let robust = Degrees::RobustSoliton {
            c_millionths: 30_000,
            delta_millionths: 500_000,
        };
        let table = DegreeTable::new(robust, n);
        for d in 1..=n {
            let got = probability(&table, d as usize - 1);
            assert!((got - exact(d) / beta).abs() < 1e-5, "{d}: {got}");
        }
    }

    #[test]
    fn the_published_column_has_its_mean() {
        let table = DegreeTable::new(Degrees::Shokrollahi, 65536);
        assert!((table.mean() - 5.87).abs() < 0.01);
        assert_eq!(table.max(), 66);
    }

    #[test]
    fn the_guide_finds_what_a_search_finds() {
        let robust = Degrees::RobustSoliton {
            c_millionths: 100_000,
            delta_millionths: 10_000,
        };
        for distribution in [Degrees::Shokrollahi, Degrees::IdealSoliton, robust] {
            let table = DegreeTable::new(distribution, 300);
            let edges = table
                .thresholds
                .iter()
                .flat_map(|&t| [t - 1, t, t.saturating_add(1)]);
            for output in edges.chain([0, u32::MAX, 1 << 22, (1 << 22) - 1]) {
                let plain = table.thresholds.partition_point(|&t| t <= output);
                assert_eq!(table.draw(output), table.degrees[plain]);
            }
        }
    }

    #[test]
    fn extremes_make_a_table() {
        for n in [1, 2, 65536] {
            for c_millionths in [1, 1_000_000] {
                for delta_millionths in [1, 999_999] {
                    let robust = Degrees::RobustSoliton {
                        c_millionths,
                        delta_millionths,
                    };
                    assert_eq!(robust.check(), Ok(()));
                    let table = DegreeTable::new(robust, n);
                    assert!(table.max() <= n && table.mean() < 40.0);
                }
            }
        }
    }
}
