//! What TCP would get: the throughput equation (RFC 5348 §3.1), with b = 1 and t_RTO = 4R, and its
//! inverse (§6.3.1).

use crate::time::Duration;

/// Loss event rates that the inverse tells apart: below, the first interval would be absurdly long.
const LEAST_RATE: f64 = 1e-8;

/// Bytes per second that TCP with packets of `packet` bytes gets at loss event rate `p` in (0, 1].
pub fn tcp_throughput(packet: f64, rtt: Duration, p: f64) -> f64 {
    let p = p.clamp(LEAST_RATE, 1.0);
    let timeouts = 12.0 * (3.0 * p / 8.0).sqrt() * p * (1.0 + 32.0 * p * p);
    packet / (rtt.as_secs_f64().max(1e-9) * ((2.0 * p / 3.0).sqrt() + timeouts))
}

/// The loss event rate at which TCP gets `throughput` bytes per second.
pub fn loss_event_rate(packet: f64, rtt: Duration, throughput: f64) -> f64 {
    let (mut low, mut high) = (LEAST_RATE.ln(), 0.0_f64);
    // The throughput falls as p grows; 50 halvings of ln p leave less than rounding does.
    for _ in 0..50 {
        let middle = f64::midpoint(low, high);
        if tcp_throughput(packet, rtt, middle.exp()) > throughput {
            low = middle;
        } else {
            high = middle;
        }
    }
    high.exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    #[test]
    fn the_equation_gives_what_it_gives_by_hand() {
        // p = 0.01: sqrt(0.02/3) = 0.0816497; 12 · sqrt(0.00375) · 0.01 · 1.0032 = 0.0073721;
        // 1000 / (0.1 · 0.0890218) = 112332.
        assert!((tcp_throughput(1000.0, RTT, 0.01) - 112_332.0).abs() < 2.0);
        // p = 1: 0.8164966 + 12 · 0.6123724 · 33 = 243.3160; 1000 / 24.3316 = 41.099.
        assert!((tcp_throughput(1000.0, RTT, 1.0) - 41.099).abs() < 0.001);
    }

    #[test]
    fn the_inverse_undoes_the_equation() {
        for p in [1e-6, 1e-3, 0.02, 0.3, 1.0] {
            let throughput = tcp_throughput(1460.0, RTT, p);
            let found = loss_event_rate(1460.0, RTT, throughput);
            assert!((found / p - 1.0).abs() < 1e-6, "{p}: {found}");
        }
        assert_eq!(loss_event_rate(1000.0, RTT, 0.0), 1.0);
        assert!(loss_event_rate(1000.0, RTT, f64::INFINITY) <= 1.1e-8);
    }
}
