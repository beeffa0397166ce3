//! Seeded random numbers: xoshiro256++ (Blackman and Vigna, "Scrambled Linear Pseudorandom Number
//! Generators", ACM TOMS 47(4), 2021), seeded by SplitMix64 as its authors recommend.
//!
//! Invariant: every component draws from a stream of its own ([`Seed::stream`]), so switching one
//! impairment on leaves the draws of all others as they were. The core is integer only: the same
//! seed gives the same numbers on every machine. Not for cryptography.

/// The seed of a run, from which named streams are derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seed(pub u64);

impl Seed {
    /// The stream called `name`, such as `"bottleneck.loss"`; the same name gives the same stream.
    pub fn stream(self, name: &str) -> Random {
        // The name enters by FNV-1a (64 bit): short, stable, and mixed further by SplitMix64.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut state = split_mix(&mut { self.0 }) ^ hash;
        Random {
            state: std::array::from_fn(|_| split_mix(&mut state)),
        }
    }
}

/// One step of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
pub(crate) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stream of random numbers (xoshiro256++).
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// A uniform 64-bit number.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A uniform number below `bound`; zero when `bound` is zero.
    ///
    /// Multiply and shift: the bias is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A uniform number in `0.0..1.0`, a multiple of 2⁻⁵³.
    pub fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// An exponentially distributed number with this mean, rounded down.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        // The argument is above zero: the logarithm is finite.
        (-(1.0 - self.next_f64()).ln() * mean as f64) as u64
    }

    /// A gamma-distributed number of this shape and of scale one, so that its mean is the shape.
    ///
    /// Marsaglia and Tsang, "A Simple Method for Generating Gamma Variables", ACM TOMS 26(3), 2000.
    /// Of a shape that is no number above zero it is zero.
    pub fn gamma(&mut self, shape: f64) -> f64 {
        if shape.is_nan() || shape <= 0.0 {
            return 0.0;
        }
        if shape < 1.0 {
            // Their §6.
            let power = (1.0 - self.next_f64()).powf(1.0 / shape);
            return self.gamma(shape + 1.0) * power;
        }
        let d = shape - 1.0 / 3.0;
        let c = (9.0 * d).sqrt().recip();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            let u = 1.0 - self.next_f64();
            if v > 0.0 && u.ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }

    /// A normally distributed number of mean zero and deviation one, by Marsaglia's polar method.
    fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.next_f64() - 1.0, 2.0 * self.next_f64() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * (-2.0 * square.ln() / square).sqrt();
            }
        }
    }

    /// A Poisson-distributed number, for means of some tens: it takes as many draws.
    pub fn poisson(&mut self, mean: f64) -> u32 {
        let bound = (-mean.clamp(0.0, 100.0)).exp();
        let mut product = self.next_f64();
        let mut count = 0;
        while product > bound {
            product *= self.next_f64();
            count += 1;
        }
        count
    }

    /// Another stream that starts from a draw of this one.
    #[must_use]
    pub fn split(&mut self) -> Self {
        let mut state = self.next_u64();
        Self {
            state: std::array::from_fn(|_| split_mix(&mut state)),
        }
    }

    /// True with this probability: never at zero or less or NaN, always at one or more.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.next_f64() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_reference_implementation() {
        // First outputs of the authors' C code from the state 1, 2, 3, 4.
        let mut random = Random {
            state: [1, 2, 3, 4],
        };
        let drawn: [u64; 4] = std::array::from_fn(|_| random.next_u64());
        assert_eq!(
            drawn,
            [41943041, 58720359, 3588806011781223, 3591011842654386]
        );
        // First output of SplitMix64 from zero.
        assert_eq!(split_mix(&mut 0), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn streams_are_repeatable_and_apart() {
        let draw = |seed, name| Seed(seed).stream(name).next_u64();
        assert_eq!(draw(1, "loss"), draw(1, "loss"));
        assert_ne!(draw(1, "loss"), draw(1, "jitter"));
        assert_ne!(draw(1, "loss"), draw(2, "loss"));
    }

    #[test]
    fn draws_stay_in_range_and_centre() {
        let mut random = Seed(7).stream("range");
        let draws = 100_000;
        let mut sum = 0;
        for _ in 0..draws {
            let n = random.below(10);
            assert!(n < 10);
            sum += n;
        }
        // Mean 4.5, standard deviation 2.87: five standard errors are 0.045.
        let mean = sum as f64 / f64::from(draws);
        assert!((mean - 4.5).abs() < 0.05, "mean {mean}");
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn exponential_draws_have_their_mean_and_no_memory() {
        let mut random = Seed(8).stream("exponential");
        let draws: Vec<u64> = (0..100_000)
            .map(|_| random.exponential(1_000_000))
            .collect();
        // The standard deviation is the mean: five standard errors are 1.6 %.
        let mean = draws.iter().sum::<u64>() as f64 / 1e5;
        assert!((mean / 1e6 - 1.0).abs() < 0.016, "mean {mean}");
        let longer = |than: u64| draws.iter().filter(|&&d| d > than).count() as f64;
        let half = 693_147; // ln 2 of the mean
        for from in [0, half, 2 * half] {
            let share = longer(from + half) / longer(from);
            assert!((share - 0.5).abs() < 0.02, "{share} of those above {from}");
        }
        assert_eq!(random.exponential(0), 0);
    }

    #[test]
    fn chance_is_total() {
        let mut random = Seed(7).stream("chance");
        for _ in 0..1000 {
            assert!(!random.chance(0.0) && !random.chance(-1.0) && !random.chance(f64::NAN));
            assert!(random.chance(1.0) && random.chance(f64::INFINITY));
        }
    }
}
