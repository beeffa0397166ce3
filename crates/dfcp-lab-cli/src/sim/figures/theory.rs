//! Formulas that curves are compared with.

use super::catalogue::Theory;

/// Bytes of a published block (DFCP-J §4.4).
const BLOCK: f64 = 63536.0;
/// Coded bytes in a packet of 1500 bytes: less 20 of IPv4 and 24 of DFCP.
const SYMBOLS: f64 = 1456.0;
/// Bytes that a packet of 1500 bytes takes on Ethernet.
const FRAME: f64 = 1538.0;
/// Rate of the bottleneck where a formula stands beside measurements.
const RATE: f64 = 1e9;
/// Redundancy unless it is swept (DFCP-J §7).
const REDUNDANCY: f64 = 0.1;
/// Packets of a block of CTCP.
const CODED_BLOCK: f64 = 32.0;
/// Packets of 1500 bytes that 25 Mbit/s carry in 25 ms.
const TESTBED: f64 = 25e6 * 0.025 / 12_000.0;

/// Goodput on a link of `rate` where blocks take whole packets of Ethernet, in bits a second.
pub fn goodput(rate: f64, redundancy: f64) -> f64 {
    let symbols = ((1.0 + redundancy) * BLOCK).ceil();
    rate * BLOCK / ((symbols / SYMBOLS).ceil() * FRAME)
}

/// A formula's value.
pub fn value(theory: Theory, x: f64) -> f64 {
    match theory {
        Theory::GoodputOfRedundancy => RATE * SYMBOLS / FRAME / (1.0 + x),
        Theory::GoodputOfWholePackets => goodput(RATE, x),
        Theory::CostOfRedundancy => x / (1.0 + x),
        Theory::GoodputOfLoss => (1.0 - x) * goodput(RATE, REDUNDANCY),
        Theory::PadhyeOfLoss => ((1.5 / x).sqrt() / TESTBED).min(1.0),
        Theory::CodedOfLoss => coded(x),
    }
}

/// CTCP eq. (7): blocks of N packets, n = ⌊N/(1−p)⌋ − N more of each at once; those that turn out
/// not to be needed are wasted.
fn coded(p: f64) -> f64 {
    let extra = (CODED_BLOCK / (1.0 - p) + 1e-9).floor() - CODED_BLOCK;
    // C(N, k) p^k (1 − p)^(N − k), from the one before.
    let mut probability = (1.0 - p).powf(CODED_BLOCK);
    let (mut wasted, mut lost) = (0.0, 0.0);
    while lost < extra {
        wasted += (extra - lost) * probability;
        probability *= (CODED_BLOCK - lost) / (lost + 1.0) * p / (1.0 - p);
        lost += 1.0;
    }
    1.0 - wasted / CODED_BLOCK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_takes_whole_packets() {
        // DFCP-J Table 3: 842 Mbit/s on a gigabit link, 49 packets of 1538 bytes a block.
        let table = goodput(1e9, 0.1);
        assert!((table - 842e6).abs() < 2e6, "{table}");
        assert!(value(Theory::GoodputOfRedundancy, 0.1) > table);
        // CTCP Fig. 3: TCP has a fifth of the link at 1 %; redundancy begins at one loss in 33.
        assert!((value(Theory::PadhyeOfLoss, 0.01) - 0.235).abs() < 0.001);
        assert_eq!(value(Theory::PadhyeOfLoss, 0.0), 1.0);
        assert_eq!(value(Theory::CodedOfLoss, 0.03), 1.0);
        let one = (
            1.0 - 0.95f64.powi(32) / 32.0,
            value(Theory::CodedOfLoss, 0.05),
        );
        assert!((one.0 - one.1).abs() < 1e-12, "{one:?}");
        assert!((value(Theory::CostOfRedundancy, 0.5) - 1.0 / 3.0).abs() < 1e-12);
    }
}
