//! FIFO with DropTail against the M/M/1/K queue.

use super::*;
use crate::random::Random;

/// An exponential variate of this mean.
fn exponential(random: &mut Random, mean: f64) -> f64 {
    -(1.0 - random.next_f64()).ln() * mean
}

/// Mean and standard error by batch means, as successive packets are not independent.
fn batch_means(batches: &[f64]) -> (f64, f64) {
    let n = batches.len() as f64;
    let mean = batches.iter().sum::<f64>() / n;
    let variance = batches.iter().map(|b| (b - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, (variance / n).sqrt())
}

/// With Poisson arrivals and exponential sizes at load `rho` and room for `k` packets in all, the
/// probability of `n` in the system is proportional to `rho^n`, for arrivals as for the time
/// (PASTA): Kleinrock, Queueing Systems vol. 1, §3.6.
#[test]
fn loss_and_occupancy_are_those_of_mm1k() {
    const BATCHES: usize = 100;
    const BATCH: usize = 2_000;
    for (load, buffer, seed) in [(0.5, 3, 1), (0.8, 9, 2), (0.95, 19, 3), (1.2, 9, 4)] {
        // A byte takes a nanosecond, so sizes of a million hide that they are whole numbers.
        let mean_size = 1e6;
        let limit = Limit::Packets(buffer);
        let fifo = queue(Discipline::Fifo, limit, seed);
        let mut server = Server::new(fifo, Rate::from_bps(8_000_000_000));
        let mut random = Seed(seed).stream("arrivals");
        let mut now = 0.0;
        let (mut losses, mut occupancies) = (Vec::new(), Vec::new());
        for batch in 0..BATCHES + 1 {
            server.dropped.clear();
            server.departed.clear();
            let mut occupancy = 0;
            for id in 0..BATCH as u64 {
                now += exponential(&mut random, mean_size / load);
                let size = exponential(&mut random, mean_size).ceil() as u32;
                server.run(at(now as u64));
                occupancy += server.packets();
                server.arrive(at(now as u64), parcel(id, 0, size));
            }
            // The first batch starts empty.
            if batch > 0 {
                losses.push(server.dropped.len() as f64 / BATCH as f64);
                occupancies.push(occupancy as f64 / BATCH as f64);
            }
        }
        let k = buffer as i32 + 1;
        let total: f64 = (0..=k).map(|n| load.powi(n)).sum();
        let blocking = load.powi(k) / total;
        let mean = (0..=k).map(|n| f64::from(n) * load.powi(n)).sum::<f64>() / total;
        for (what, batches, expected) in [
            ("loss", &losses, blocking),
            ("occupancy", &occupancies, mean),
        ] {
            let (measured, error) = batch_means(batches);
            assert!(
                (measured - expected).abs() < 3.0 * error,
                "seed {seed}, load {load}: {what} {measured} ± {error}, expected {expected}"
            );
            assert!(error < 0.1 * expected, "the test is too weak to tell");
        }
    }
}
