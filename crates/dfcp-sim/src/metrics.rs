//! The figures of merit of the papers, as plain formulas over measured numbers.
//!
//! Short names: DFCP-J is "Living with congestion: Digital Fountain based Communication Protocol"
//! (2016), Chameleon is "Design and Validation of a Reliable Rate Based Transport Protocol"
//! (2009). Every function is total: where a formula divides by nothing it returns `None`.

use dfcp_proto::{Duration, Instant, Rate};

/// Goodput: useful bytes over time. Useful means delivered to the application once, without
/// headers and without redundancy (DFCP-J §5.1).
pub fn goodput(useful_bytes: u64, time: Duration) -> Option<Rate> {
    (!time.is_zero()).then(|| Rate::from_transfer(useful_bytes, time))
}

/// Jain's fairness index, (Σx)² / (n Σx²) (DFCP-J eq. (3); Chiu and Jain 1989): 1 when all are
/// equal, 1/n when one has everything. `None` where nobody has anything.
pub fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|x| x * x).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// Overhead: bytes sent beyond the useful ones, as a share of the useful ones (RC-UDP Fig. 8).
pub fn overhead(sent_bytes: u64, useful_bytes: u64) -> Option<f64> {
    (useful_bytes > 0).then(|| sent_bytes as f64 / useful_bytes as f64 - 1.0)
}

/// Utilisation of a link: bytes it carried, framing included, over what its rate allowed.
pub fn utilisation(carried_bytes: u64, rate: Rate, time: Duration) -> Option<f64> {
    let possible = rate.as_bps() as f64 / 8.0 * time.as_secs_f64();
    (possible > 0.0).then(|| carried_bytes as f64 / possible)
}

/// Drop rate: packets dropped over packets offered (DFCP-J Fig. 26, Table 5).
pub fn drop_rate(dropped: u64, offered: u64) -> Option<f64> {
    (offered > 0).then(|| dropped as f64 / offered as f64)
}

/// Stability S (Chameleon eq. (4)): the coefficient of variation of each flow's throughput over
/// intervals of equal length, with the unbiased variance, averaged over the flows. Zero is
/// perfectly smooth. `None` without two intervals or where a flow moved nothing.
pub fn stability(flows: &[Vec<f64>]) -> Option<f64> {
    let variations: Option<Vec<f64>> = flows.iter().map(|x| variation(x)).collect();
    mean(&variations?)
}

/// Standard deviation over mean.
fn variation(samples: &[f64]) -> Option<f64> {
    let mean = mean(samples).filter(|mean| *mean > 0.0)?;
    let squares: f64 = samples.iter().map(|x| (x - mean) * (x - mean)).sum();
    (samples.len() > 1).then(|| (squares / (samples.len() - 1) as f64).sqrt() / mean)
}

/// Friendliness T (Chameleon eq. (3)): mean throughput of the protocol's flows over mean
/// throughput of the TCP flows beside them. Below 1 the protocol yields; RFC 5348 calls a factor
/// of two reasonable.
pub fn friendliness(protocol: &[f64], tcp: &[f64]) -> Option<f64> {
    let tcp = mean(tcp).filter(|mean| *mean > 0.0)?;
    Some(mean(protocol)? / tcp)
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Trailing moving average over `window` samples (DFCP-J Fig. 17 takes ten seconds); the first
/// ones average what there is. A window of zero counts as one.
pub fn moving_average(samples: &[f64], window: usize) -> Vec<f64> {
    let window = window.max(1);
    let average = |end: usize| {
        let recent = &samples[end.saturating_sub(window)..end];
        recent.iter().sum::<f64>() / recent.len() as f64
    };
    (1..=samples.len()).map(average).collect()
}

/// What counts as having converged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Convergence {
    /// Time between samples.
    pub interval: Duration,
    /// Samples of the moving average.
    pub window: usize,
    /// The share that is fair.
    pub fair: f64,
    /// How far from it still counts, as a share of it: 0.1 is ±10 %.
    pub tolerance: f64,
}

/// Convergence time: the end of the first interval from which the moving average of `samples`
/// stays within the tolerance of the fair share until the last sample. `None` where it does not.
pub fn convergence(samples: &[f64], what: Convergence) -> Option<Instant> {
    let averages = moving_average(samples, what.window);
    let near = |average: &f64| (average - what.fair).abs() <= what.tolerance * what.fair;
    let settled = averages
        .iter()
        .rev()
        .take_while(|average| near(average))
        .count();
    let intervals = u32::try_from(samples.len() - settled + 1).ok()?;
    (settled > 0).then(|| Instant::ZERO + what.interval.saturating_mul(intervals))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: Rate = Rate::from_bps(1_000_000_000);

    fn close(value: Option<f64>, expected: f64) {
        let value = value.expect("defined");
        assert!((value - expected).abs() < 1e-9, "{value} for {expected}");
    }

    #[test]
    fn goodput_is_bytes_over_time() {
        assert_eq!(goodput(125_000_000, Duration::from_secs(1)), Some(GIGABIT));
        assert_eq!(goodput(1, Duration::ZERO), None);
    }

    #[test]
    fn jain_is_one_for_equals_and_one_nth_for_a_monopoly() {
        close(jain(&[3.0, 3.0, 3.0]), 1.0);
        close(jain(&[5.0, 0.0, 0.0, 0.0]), 0.25);
        // (1+2+3)² / (3 · 14)
        close(jain(&[1.0, 2.0, 3.0]), 36.0 / 42.0);
        assert_eq!(jain(&[]), None);
        assert_eq!(jain(&[0.0, 0.0]), None);
    }

    #[test]
    fn ratios() {
        close(overhead(1_100, 1_000), 0.1);
        assert_eq!(overhead(1_100, 0), None);
        close(
            utilisation(125_000_000, GIGABIT, Duration::from_secs(2)),
            0.5,
        );
        assert_eq!(utilisation(1, GIGABIT, Duration::ZERO), None);
        close(drop_rate(1, 8), 0.125);
        assert_eq!(drop_rate(0, 0), None);
    }

    #[test]
    fn stability_is_the_mean_coefficient_of_variation() {
        // Mean 4, unbiased variance (4 + 0 + 4) / 2 = 4, so 2 / 4; and a constant flow.
        close(stability(&[vec![2.0, 4.0, 6.0], vec![3.0, 3.0, 3.0]]), 0.25);
        assert_eq!(stability(&[vec![1.0]]), None);
        assert_eq!(stability(&[vec![0.0, 0.0]]), None);
        assert_eq!(stability(&[]), None);
    }

    #[test]
    fn friendliness_compares_means() {
        close(friendliness(&[2.0, 4.0], &[4.0, 4.0, 4.0]), 0.75);
        assert_eq!(friendliness(&[1.0], &[]), None);
        assert_eq!(friendliness(&[1.0], &[0.0]), None);
    }

    #[test]
    fn moving_average_starts_with_what_there_is() {
        assert_eq!(
            moving_average(&[1.0, 3.0, 5.0, 7.0], 2),
            [1.0, 2.0, 4.0, 6.0]
        );
        assert_eq!(moving_average(&[1.0, 3.0], 0), [1.0, 3.0]);
        assert!(moving_average(&[], 3).is_empty());
    }

    #[test]
    fn convergence_is_where_it_stays() {
        let what = Convergence {
            interval: Duration::from_secs(1),
            window: 1,
            fair: 100.0,
            tolerance: 0.1,
        };
        let at = |samples: &[f64]| {
            convergence(samples, what).map(|instant| instant.as_nanos() / 1_000_000_000)
        };
        assert_eq!(at(&[20.0, 95.0, 60.0, 92.0, 105.0, 110.0]), Some(4));
        assert_eq!(at(&[100.0, 100.0]), Some(1));
        assert_eq!(at(&[100.0, 100.0, 111.0]), None);
        assert_eq!(at(&[]), None);
    }
}
