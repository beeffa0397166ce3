//! Shares, isolation and who gives way, in the disciplines that keep flows apart.

use super::*;

fn fair_disciplines(drop_from: DropFrom) -> [Discipline; 3] {
    [
        Discipline::Drr(DrrConfig {
            drop_from,
            ..DrrConfig::default()
        }),
        Discipline::Wfq(WfqConfig { drop_from }),
        Discipline::Sfq(SfqConfig {
            drop_from,
            ..SfqConfig::default()
        }),
    ]
}

/// Shreedhar and Varghese 1996: while a class is backlogged, `m` turns send between
/// `m · quantum · w - Max` and `m · quantum · w + Max` bytes (Lemma 2), and the turns of two
/// classes differ by one at most, so that over any interval
/// `|S_i / w_i - S_j / w_j| <= quantum + Max / w_i + Max / w_j` (Theorem 2 has `2 Max + quantum`).
#[test]
fn drr_keeps_its_fairness_bound() {
    const FLOWS: usize = 6;
    for seed in 0..50 {
        let mut random = Seed(seed).stream("drr");
        let max = 1500;
        let quantum = 200 + random.below(4000) as u32;
        let weights: [u64; FLOWS] = std::array::from_fn(|_| 1 + random.below(5));
        let shares = (0..FLOWS).fold(Shares::equal(), |shares, flow| {
            shares.weight(FlowId(flow as u32), weights[flow] as u32)
        });
        let discipline = Discipline::Drr(DrrConfig {
            quantum,
            ..DrrConfig::default()
        });
        let limit = Limit::Unlimited;
        let config = QueueConfig {
            discipline,
            limit,
            ..QueueConfig::default()
        };
        let mut queue = Queue::new(&config, shares, Seed(seed).stream("queue"));
        let mut dropped = |_, _| unreachable!("the buffer is unlimited");
        let mut add = |queue: &mut Queue<Parcel>, flow: u32| {
            // Flows of large packets and of small ones.
            let largest = if flow.is_multiple_of(2) { max } else { max / 4 };
            let packet = parcel(0, flow, 1 + random.below(largest) as u32);
            queue.enqueue(at(0), queued(at(0), packet), &mut |_, _| unreachable!());
        };
        for flow in 0..FLOWS as u32 {
            add(&mut queue, flow);
            add(&mut queue, flow);
        }
        let mut served = [0.0; FLOWS];
        // Least and greatest lead of each flow over each other.
        let mut leads = [[(0.0_f64, 0.0_f64); FLOWS]; FLOWS];
        for _ in 0..5_000 {
            let item = queue.dequeue(at(0), None, &mut dropped);
            let packet = item.expect("every flow is backlogged").packet;
            add(&mut queue, packet.flow);
            served[packet.flow as usize] += f64::from(packet.size);
            for i in 0..FLOWS {
                for j in 0..FLOWS {
                    let lead = served[i] / weights[i] as f64 - served[j] / weights[j] as f64;
                    let (least, most) = &mut leads[i][j];
                    *least = least.min(lead);
                    *most = most.max(lead);
                    let bound = f64::from(quantum)
                        + max as f64 / weights[i] as f64
                        + max as f64 / weights[j] as f64;
                    assert!(
                        *most - *least <= bound + 1e-6,
                        "seed {seed}, flows {i}, {j}"
                    );
                }
            }
        }
    }
}

/// The deficit of a class that has nothing more to send is forgotten (§3 of the paper).
#[test]
fn idle_classes_save_nothing_up() {
    let mut queue = queue(Discipline::Drr(DrrConfig::default()), Limit::Unlimited, 1);
    let mut dropped = |_, _| unreachable!("the buffer is unlimited");
    for id in 0..10 {
        let item = queued(at(0), parcel(id, 0, 100));
        assert!(queue.pass(at(0), None, item, &mut dropped).is_some());
    }
    for id in 0..10 {
        let item = queued(at(0), parcel(id, (id % 2) as u32, 1500));
        queue.enqueue(at(0), item, &mut dropped);
    }
    let order = std::iter::from_fn(|| queue.dequeue(at(0), None, &mut dropped));
    let flows: Vec<u32> = order.map(|item| item.packet.flow).collect();
    assert_eq!(flows, [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
}

/// Flows that send too much of different packets, and more the less they are due.
#[test]
fn overloaded_link_is_shared_by_weight() {
    let sources = [
        Constant {
            flow: 0,
            size: 1500,
            every: Duration::from_micros(1000),
        },
        Constant {
            flow: 1,
            size: 400,
            every: Duration::from_micros(300),
        },
        Constant {
            flow: 2,
            size: 900,
            every: Duration::from_micros(800),
        },
    ];
    for drop_from in [DropFrom::Head, DropFrom::Tail] {
        for discipline in &fair_disciplines(drop_from)[..2] {
            let shares = Shares::equal().weight(FlowId(1), 2).weight(FlowId(2), 5);
            let config = QueueConfig {
                discipline: *discipline,
                limit: Limit::Packets(60),
                ..QueueConfig::default()
            };
            let queue = Queue::new(&config, shares, Seed(1).stream("queue"));
            // 1 MB/s: flow 0 is due 1/8 of it and sends 12 times that.
            let mut server = Server::new(queue, Rate::from_bps(8_000_000));
            feed(&mut server, &sources, at(20_000_000_000));
            for (flow, share) in [(0, 0.125), (1, 0.25), (2, 0.625)] {
                let measured = server.served(flow) as f64 / 20e6;
                assert!(
                    (measured / share - 1.0).abs() < 0.005,
                    "{discipline:?}: flow {flow} has {measured} instead of {share}"
                );
            }
        }
    }
}

/// A class of many flows gets the share of one.
#[test]
fn flows_of_a_class_share_its_weight() {
    let sources = [0, 1, 2].map(|flow| Constant {
        flow,
        size: 1000,
        every: Duration::from_micros(1100),
    });
    for discipline in &fair_disciplines(DropFrom::Head)[..2] {
        let shares = Shares::equal().class(1, [FlowId(0), FlowId(1)]);
        let config = QueueConfig {
            discipline: *discipline,
            limit: Limit::Packets(30),
            ..QueueConfig::default()
        };
        let queue = Queue::new(&config, shares, Seed(1).stream("queue"));
        let mut server = Server::new(queue, Rate::from_bps(8_000_000));
        feed(&mut server, &sources, at(5_000_000_000));
        let together = (server.served(0) + server.served(1)) as f64;
        let ratio = together / server.served(2) as f64;
        assert!((ratio - 1.0).abs() < 0.01, "{discipline:?}: {ratio}");
    }
}

/// One flow sends ten times what the link carries, the other a hundredth of it.
fn flooded(discipline: Discipline) -> Server {
    let sources = [
        Constant {
            flow: 0,
            size: 1000,
            every: Duration::from_micros(100),
        },
        Constant {
            flow: 1,
            size: 100,
            every: Duration::from_micros(9_973),
        },
    ];
    let queue = queue(discipline, Limit::Packets(50), 1);
    let mut server = Server::new(queue, Rate::from_bps(8_000_000));
    feed(&mut server, &sources, at(5_000_000_000));
    server
}

#[test]
fn longest_queue_gives_way_to_a_small_flow() {
    let losses = |server: &Server| {
        server
            .dropped
            .iter()
            .filter(|(_, p, _)| p.flow == 1)
            .count()
    };
    for drop_from in [DropFrom::Head, DropFrom::Tail] {
        for discipline in fair_disciplines(drop_from) {
            assert_eq!(losses(&flooded(discipline)), 0, "{discipline:?}");
        }
    }
    let fq_codel = Discipline::FqCoDel(FqCoDelConfig::default());
    assert_eq!(losses(&flooded(fq_codel)), 0);
    // DropTail takes from both.
    assert!(losses(&flooded(Discipline::Fifo)) > 250);
}

#[test]
fn flooder_loses_the_oldest_or_the_newest_as_configured() {
    for (drop_from, kept) in [(DropFrom::Head, [7, 8, 9]), (DropFrom::Tail, [0, 1, 2])] {
        for discipline in fair_disciplines(drop_from) {
            let mut queue = queue(discipline, Limit::Packets(3), 1);
            for id in 0..10 {
                let item = queued(at(0), parcel(id, 0, 1000));
                queue.enqueue(at(0), item, &mut |_, _| ());
            }
            let ids: Vec<u64> = std::iter::from_fn(|| queue.dequeue(at(0), None, &mut |_, _| ()))
                .map(|item| item.packet.id)
                .collect();
            assert_eq!(ids, kept, "{discipline:?}");
        }
    }
}

/// McKenney 1990: flows in buckets of their own are served in turn, those in one bucket together.
#[test]
fn sfq_separates_flows_by_their_bucket() {
    let delay = |buckets| {
        let sfq = SfqConfig {
            buckets,
            ..SfqConfig::default()
        };
        let mut queue = queue(Discipline::Sfq(sfq), Limit::Unlimited, 1);
        for id in 0..100 {
            let item = queued(at(0), parcel(id, 0, 1500));
            queue.enqueue(at(0), item, &mut |_, _| ());
        }
        let item = queued(at(0), parcel(100, 1, 1500));
        queue.enqueue(at(0), item, &mut |_, _| ());
        (0..)
            .find(|_| {
                let item = queue.dequeue(at(0), None, &mut |_, _| ());
                item.expect("the packet is still there").packet.flow == 1
            })
            .expect("it comes")
    };
    assert_eq!(delay(1024), 1);
    assert_eq!(delay(1), 100);
}
