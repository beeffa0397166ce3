//! A fixed rate divided by the share of packets that arrive: our rendition, for quinn, of the
//! published idea of hysteria2's "Brutal" congestion control. It is not hysteria's code.
//!
//! The sender is told the bandwidth. Whatever is lost it makes up for by sending more, down to an
//! observed share of [`LEAST_ACKED`]; it never yields. quinn paces at 1.25 windows a round trip, so
//! here the window itself, the told rate times the round-trip time, keeps the rate.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::congestion::{Controller, ControllerFactory};
use quinn_proto::RttEstimator;

/// The share of acknowledged packets is taken over so long, as hysteria does.
const MEMORY: Duration = Duration::from_secs(5);
const SLOT: Duration = Duration::from_secs(1);
/// Fewer packets than this in that time say nothing.
const LEAST_PACKETS: u64 = 50;
/// At most 1 ÷ 0.8 of the told rate is sent.
const LEAST_ACKED: f64 = 0.8;
/// Packets in flight before the first round trip is measured.
const INITIAL_PACKETS: u64 = 10;

/// Makes controllers that send at a told rate.
#[derive(Clone, Copy, Debug)]
pub struct BrutalConfig {
    /// Bytes of UDP payload a second.
    pub bytes_per_second: f64,
}

impl ControllerFactory for BrutalConfig {
    fn build(self: Arc<Self>, _: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Brutal {
            bytes_per_second: self.bytes_per_second,
            mtu: u64::from(current_mtu),
            round_trip: None,
            slots: VecDeque::new(),
        })
    }
}

/// What became of the packets whose fate was learnt within a second.
#[derive(Clone, Copy, Debug)]
struct Slot {
    begin: Instant,
    acked: u64,
    lost: u64,
}

#[derive(Clone, Debug)]
struct Brutal {
    bytes_per_second: f64,
    mtu: u64,
    round_trip: Option<Duration>,
    slots: VecDeque<Slot>,
}

impl Brutal {
    fn count(&mut self, now: Instant, acked: u64, lost: u64) {
        while let Some(slot) = self.slots.front()
            && now.saturating_duration_since(slot.begin) > MEMORY
        {
            self.slots.pop_front();
        }
        match self.slots.back_mut() {
            Some(slot) if now.saturating_duration_since(slot.begin) < SLOT => {
                slot.acked += acked;
                slot.lost += lost;
            }
            _ => self.slots.push_back(Slot {
                begin: now,
                acked,
                lost,
            }),
        }
    }

    /// The share of bytes that arrived, as far as it is believed.
    fn acked_share(&self) -> f64 {
        let acked: u64 = self.slots.iter().map(|slot| slot.acked).sum();
        let lost: u64 = self.slots.iter().map(|slot| slot.lost).sum();
        match acked + lost {
            known if known < LEAST_PACKETS * self.mtu => 1.0,
            known => (acked as f64 / known as f64).max(LEAST_ACKED),
        }
    }
}

impl Controller for Brutal {
    fn on_ack(&mut self, now: Instant, _: Instant, bytes: u64, _: bool, rtt: &RttEstimator) {
        self.round_trip = Some(rtt.get());
        self.count(now, bytes, 0);
    }

    fn on_congestion_event(&mut self, now: Instant, _: Instant, _: bool, lost_bytes: u64) {
        self.count(now, 0, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = u64::from(new_mtu);
    }

    fn window(&self) -> u64 {
        match self.round_trip {
            None => self.initial_window(),
            Some(rtt) => {
                let window = self.bytes_per_second * rtt.as_secs_f64() / self.acked_share();
                (window as u64).max(self.initial_window())
            }
        }
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        INITIAL_PACKETS * self.mtu
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u64 = 1472;

    fn brutal(rtt: Duration) -> (Brutal, Instant) {
        let brutal = Brutal {
            bytes_per_second: 12.5e6,
            mtu: MTU,
            round_trip: Some(rtt),
            slots: VecDeque::new(),
        };
        let now = Instant::now();
        (brutal, now)
    }

    #[test]
    fn makes_up_for_what_is_lost_and_no_more_than_a_quarter() {
        let (mut brutal, now) = brutal(Duration::from_millis(50));
        assert_eq!(brutal.window(), 625_000); // 100 Mbit/s · 50 ms
        for packet in 0..1000 {
            let at = now + Duration::from_millis(packet);
            match packet % 10 {
                0 => brutal.count(at, 0, MTU),
                _ => brutal.count(at, MTU, 0),
            }
        }
        assert_eq!(brutal.window(), (625_000.0 / 0.9) as u64);
        brutal.count(now + SLOT, 0, 2000 * MTU);
        assert_eq!(brutal.window(), (625_000.0 / 0.8) as u64);
    }

    #[test]
    fn forgets_old_losses_and_needs_packets_to_believe() {
        let (mut brutal, now) = brutal(Duration::from_millis(50));
        brutal.count(now, 0, 10 * MTU);
        assert_eq!(brutal.window(), 625_000);
        brutal.count(now, 0, 1000 * MTU);
        assert!(brutal.window() > 700_000);
        brutal.count(now + MEMORY + SLOT, 100 * MTU, 0);
        assert_eq!(brutal.window(), 625_000);
    }
}
