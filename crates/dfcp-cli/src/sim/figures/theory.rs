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
    }
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
        assert!((value(Theory::CostOfRedundancy, 0.5) - 1.0 / 3.0).abs() < 1e-12);
    }
}
