//! WFQ against the fluid system that it imitates.

use super::*;

struct Arrival {
    time: f64,
    class: usize,
    size: f64,
}

/// When each arrival ends under generalised processor sharing, in seconds. Independent of the code
/// under test: it follows the bytes of each class in real time and knows no virtual time.
fn fluid_finish(arrivals: &[Arrival], weights: &[f64], bytes_per_second: f64) -> Vec<f64> {
    let mut finish = vec![0.0; arrivals.len()];
    let mut waiting: Vec<VecDeque<(usize, f64)>> = vec![VecDeque::new(); weights.len()];
    let mut now = 0.0;
    let mut next = 0;
    loop {
        let busy = |c: &usize| !waiting[*c].is_empty();
        let share: f64 = (0..weights.len()).filter(busy).map(|c| weights[c]).sum();
        let speed = |c: usize| bytes_per_second * weights[c] / share;
        let first_end = (0..weights.len())
            .filter(busy)
            .map(|c| now + waiting[c][0].1 / speed(c))
            .fold(f64::INFINITY, f64::min);
        let arrival = arrivals.get(next).map_or(f64::INFINITY, |a| a.time);
        if first_end.is_infinite() && arrival.is_infinite() {
            return finish;
        }
        let event = first_end.min(arrival);
        for (c, line) in waiting.iter_mut().enumerate() {
            if let Some((packet, left)) = line.front_mut() {
                *left -= speed(c) * (event - now);
                if *left <= 1e-6 {
                    finish[*packet] = event;
                    line.pop_front();
                }
            }
        }
        now = event;
        if arrival <= first_end {
            waiting[arrivals[next].class].push_back((next, arrivals[next].size));
            next += 1;
        }
    }
}

/// Packets of random classes in bursts, at a load of about one.
fn random_arrivals(seed: u64, classes: usize, bytes_per_second: f64) -> Vec<Arrival> {
    let mut random = Seed(seed).stream("arrivals");
    let mut nanos = 0;
    let mut burst = 0;
    let mut class = 0;
    (0..400)
        .map(|_| {
            if burst == 0 {
                burst = 1 + random.below(12);
                class = random.below(classes as u64) as usize;
                let mean_burst_nanos = 6.5 * 775.0 / bytes_per_second * 1e9;
                nanos += random.below((2.0 * mean_burst_nanos) as u64);
            }
            burst -= 1;
            Arrival {
                time: nanos as f64 * 1e-9,
                class,
                size: (50 + random.below(1451)) as f64,
            }
        })
        .collect()
}

/// How much later than in the fluid system the packets leave, at most, in seconds.
fn worst_lag(discipline: Discipline, seed: u64) -> f64 {
    let bytes_per_second = 1e6;
    let mut random = Seed(seed).stream("weights");
    let classes = 2 + random.below(7) as usize;
    let weights: Vec<u32> = (0..classes).map(|_| 1 + random.below(9) as u32).collect();
    let shares = weights
        .iter()
        .zip(0..)
        .fold(Shares::equal(), |shares, (&w, flow)| {
            shares.weight(FlowId(flow), w)
        });
    let config = QueueConfig {
        discipline,
        limit: Limit::Unlimited,
        ..QueueConfig::default()
    };
    let queue = Queue::new(&config, shares, Seed(seed).stream("queue"));
    let mut server = Server::new(queue, Rate::from_bps(8 * bytes_per_second as u64));
    let arrivals = random_arrivals(seed, classes, bytes_per_second);
    for (arrival, id) in arrivals.iter().zip(0..) {
        let nanos = (arrival.time * 1e9).round() as u64;
        let packet = parcel(id, arrival.class as u32, arrival.size as u32);
        server.arrive(at(nanos), packet);
    }
    server.run(at(u64::MAX));
    assert_eq!(server.departed.len(), arrivals.len());
    let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
    let finish = fluid_finish(&arrivals, &weights, bytes_per_second);
    let lags = server
        .departed
        .iter()
        .map(|(left, packet)| left.as_nanos() as f64 * 1e-9 - finish[packet.id as usize]);
    lags.fold(f64::NEG_INFINITY, f64::max)
}

/// Parekh and Gallager 1993, Theorem 1: a packet leaves at most `L_max / r` after the fluid.
#[test]
fn packets_leave_at_most_one_packet_after_the_fluid() {
    // 1500 bytes at 1 MB/s, and a nanosecond for the rounding of times.
    let bound = 1500e-6 + 1e-8;
    let mut fifo_breaks = 0;
    for seed in 0..200 {
        let lag = worst_lag(Discipline::Wfq(WfqConfig::default()), seed);
        assert!(lag <= bound, "seed {seed}: {lag} s");
        fifo_breaks += u32::from(worst_lag(Discipline::Fifo, seed) > bound);
    }
    assert!(
        fifo_breaks > 150,
        "the bound asks too little: {fifo_breaks}"
    );
}

/// Without a rate the tags still order the classes by weight (self-clocked fair queueing).
#[test]
fn shares_follow_weights_without_a_rate() {
    let config = QueueConfig {
        discipline: Discipline::Wfq(WfqConfig::default()),
        limit: Limit::Unlimited,
        ..QueueConfig::default()
    };
    let shares = Shares::equal().weight(FlowId(0), 3);
    let mut queue = Queue::new(&config, shares, Seed(1).stream("queue"));
    let mut dropped = |_, _| unreachable!("the buffer is unlimited");
    for id in 0..800 {
        let packet = parcel(id, (id % 2) as u32, 1000);
        queue.enqueue(at(0), queued(at(0), packet), &mut dropped);
    }
    let mut served = [0, 0];
    for _ in 0..400 {
        let item = queue.dequeue(at(0), None, &mut dropped);
        served[item.expect("800 wait").packet.flow as usize] += 1;
    }
    assert_eq!(served, [300, 100]);
}
