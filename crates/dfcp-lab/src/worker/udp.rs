//! Datagrams without any control, numbered and with their time of sending.

use std::io::{self, Read};
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use dfcp_proto::{Instant, Rate};
use dfcp_sim::engine::{
    Agent, Buffers, FlowConfig, Traffic, UdpConfig, UdpPattern, UdpSource as Schedule,
};
use dfcp_sim::scenario::ProtocolSpec;

use super::job::{Ready, Sink, UdpLoad, UdpSource};
use super::progress::{Datagrams, Meter, Received, Sent};
use super::{in_time, print_line, sleep_until};
use crate::path::clock::monotonic_ns;
use crate::train::Trail;

/// How often a sink looks at the time.
const TICK: Duration = Duration::from_millis(20);

/// Number and time of sending.
const HEADER: usize = 16;

/// Takes datagrams until the time is up.
pub(super) fn sink(job: &Sink) -> io::Result<Received> {
    let socket = UdpSocket::bind(job.listen)?;
    socket.set_read_timeout(Some(TICK))?;
    // What does not fit is dropped, and the path would be blamed for it.
    let _ =
        nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::RcvBufForce, &(16 << 20));
    print_line(&Ready { ready: true });
    let mut meter = Meter::default();
    let mut seen = Seen::default();
    let mut buffer = [0; 1 << 16];
    while in_time(job.until_ns) {
        match socket.recv(&mut buffer) {
            // The source says that it is done with empty datagrams.
            Ok(0) => break,
            Ok(len) => {
                meter.add(len as u64);
                seen.note(&buffer[..len]);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Received {
        datagrams: Some(seen.datagrams),
        train: Some(seen.trail.figures()),
        ..meter.finish()
    })
}

/// Follows the numbers of datagrams.
#[derive(Default)]
struct Seen {
    datagrams: Datagrams,
    trail: Trail,
    /// One more than the greatest so far.
    next: u64,
    /// Which of the last numbers have come: bit `number % bits`.
    recent: Vec<u64>,
}

/// Numbers that duplicates are looked for among.
const RECENT: u64 = 1 << 16;

impl Seen {
    fn note(&mut self, mut datagram: &[u8]) {
        let mut word = || {
            let mut bytes = [0; 8];
            datagram.read_exact(&mut bytes).ok()?;
            Some(u64::from_be_bytes(bytes))
        };
        let (Some(number), Some(sent_ns)) = (word(), word()) else {
            return;
        };
        let now = monotonic_ns();
        let delay = now.saturating_sub(sent_ns);
        self.trail.note(number, delay, now);
        self.recent.resize((RECENT / 64) as usize, 0);
        let known = self.next.saturating_sub(number) < RECENT && self.is_marked(number);
        let all = &mut self.datagrams;
        all.delay_min_ns = match all.count {
            0 => delay,
            _ => all.delay_min_ns.min(delay),
        };
        all.delay_max_ns = all.delay_max_ns.max(delay);
        all.delay_sum_ns += delay;
        all.count += 1;
        if number < self.next {
            match known {
                true => all.duplicates += 1,
                false => all.reordered += 1,
            }
        } else {
            let gap = (number - self.next).min(RECENT - 1);
            (number - gap..number).for_each(|missed| self.mark(missed, false));
            self.next = number + 1;
        }
        self.mark(number, true);
    }

    fn is_marked(&self, number: u64) -> bool {
        let place = number % RECENT;
        self.recent[(place / 64) as usize] >> (place % 64) & 1 == 1
    }

    fn mark(&mut self, number: u64, come: bool) {
        let place = number % RECENT;
        let word = &mut self.recent[(place / 64) as usize];
        *word = *word & !(1 << (place % 64)) | u64::from(come) << (place % 64);
    }
}

/// Sends each datagram when the simulator's source would.
pub(super) fn source(job: &UdpSource) -> Result<Sent, String> {
    let text = |error: io::Error| error.to_string();
    let bind: IpAddr = match job.connect.is_ipv6() {
        true => std::net::Ipv6Addr::UNSPECIFIED.into(),
        false => std::net::Ipv4Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((bind, 0)).map_err(text)?;
    socket.connect(job.connect).map_err(text)?;
    let headers = if job.connect.is_ipv6() { 48 } else { 28 };
    sleep_until(job.time.start_ns);
    let start_ns = monotonic_ns();
    let mut schedule = schedule(job)?;
    let at = |now: u64| Instant::from_nanos(now.saturating_sub(start_ns));
    let mut buffers = Buffers::default();
    let (mut bytes, mut number) = (0, 0_u64);
    let mut datagram = vec![0; 1 << 16];
    while in_time(job.time.stop_ns) {
        if let Some(packet) = schedule.poll_transmit(at(monotonic_ns()), &mut buffers) {
            let len = (packet.size as usize).saturating_sub(headers).max(HEADER);
            datagram[..8].copy_from_slice(&number.to_be_bytes());
            datagram[8..16].copy_from_slice(&monotonic_ns().to_be_bytes());
            // What the kernel does not take is lost, as on any interface.
            let _ = socket.send(&datagram[..len]);
            bytes += len as u64;
            number += 1;
            continue;
        }
        match schedule.poll_timeout() {
            Some(due) => sleep_until((start_ns + due.as_nanos()).min(job.time.stop_ns)),
            None => break,
        }
    }
    let done_ns = monotonic_ns();
    if matches!(job.load, UdpLoad::Train { .. }) {
        for _ in 0..FAREWELLS {
            sleep_until(monotonic_ns() + 10_000_000);
            let _ = socket.send(&[]);
        }
    }
    Ok(Sent {
        bytes,
        start_ns,
        done_ns,
        datagrams: Some(number),
        ..Sent::default()
    })
}

/// Empty datagrams that say that a train is over: some may be lost.
const FAREWELLS: usize = 20;

fn schedule(job: &UdpSource) -> Result<Schedule, String> {
    let flow = |config: UdpConfig, size, stop| {
        let flow = FlowConfig {
            name: "udp".into(),
            class: 0,
            forward: Vec::new(),
            backward: Vec::new(),
            start: Instant::ZERO,
            stop,
            size,
            traffic: Traffic::Udp(config.clone()),
        };
        (config, flow)
    };
    let (config, flow, random) = match &job.load {
        UdpLoad::Train {
            rate_bps,
            packet,
            count,
        } => {
            let config = UdpConfig {
                rate: Rate::from_bps(*rate_bps),
                packet: *packet,
                pattern: UdpPattern::Constant,
            };
            let payload = u64::from(packet.saturating_sub(28));
            let (config, flow) = flow(config, Some(count * payload), None);
            (config, flow, dfcp_sim::Seed(1).stream("train"))
        }
        UdpLoad::Flow(source) => {
            let (scenario, spec) = source.open()?;
            let ProtocolSpec::Udp(udp) = &spec.protocol else {
                return Err("the flow is not of UDP".into());
            };
            let random = scenario.run.seed.stream(&spec.name);
            let (config, flow) = flow(udp.clone(), spec.size, None);
            (config, flow, random)
        }
    };
    Schedule::new(&config, &flow, random)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagrams(numbers: &[u64]) -> Datagrams {
        let mut seen = Seen::default();
        for number in numbers {
            let mut datagram = number.to_be_bytes().to_vec();
            datagram.extend(monotonic_ns().to_be_bytes());
            seen.note(&datagram);
        }
        seen.note(&[1, 2, 3]); // too short for a number
        seen.datagrams
    }

    #[test]
    fn numbers_tell_of_loss_order_and_copies() {
        let seen = datagrams(&[0, 1, 3, 2, 2, 6, 6, 6, 4, 7]);
        assert_eq!((seen.count, seen.duplicates, seen.reordered), (10, 3, 2));
    }

    #[test]
    fn numbers_may_jump_and_wrap_around_the_window() {
        let seen = datagrams(&[0, 10 * RECENT, 10 * RECENT + 1, RECENT, 10 * RECENT - 1]);
        assert_eq!((seen.count, seen.duplicates, seen.reordered), (5, 0, 2));
    }
}
