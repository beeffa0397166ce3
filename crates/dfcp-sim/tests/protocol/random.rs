//! Random plans: operations, impairments and blackouts in any order. Whatever happens, no byte is
//! wrong, state stays bounded, and once the path is good again everything finished completes.

use crate::common::{Flow, MS, SECOND, has_event};
use dfcp_proto::{ChannelKind, Event, Rate, TransportConfig};
use dfcp_sim::{Limit, LinkConfig, Pair, PairConfig, Side};
use proptest::prelude::*;

const BUDGET: u64 = 1 << 20;

#[derive(Clone, Debug)]
enum Op {
    Open(bool, bool, u32),
    /// Lets the reader of one flow have at most so many bytes.
    Read(u8, u32),
    Reset(u8),
    Stop(u8),
    Wait(u16),
    Links(Impairments),
    Blackout(u16),
    Move(u8),
}

#[derive(Clone, Debug)]
struct Impairments {
    mbit: u8,
    delay_ms: u8,
    queue: u16,
    loss: u8,
    jitter_ms: u8,
    reorder: u8,
    duplicate: u8,
    corrupt: u8,
    marks: bool,
}

impl Impairments {
    fn config(&self) -> LinkConfig {
        let share = |percent: u8| f64::from(percent) / 100.0;
        LinkConfig {
            rate: (Rate::from_bps(u64::from(self.mbit) * 1_000_000)).into(),
            delay: MS(self.delay_ms.into()),
            queue: Limit::Packets(self.queue.into()).into(),
            loss: share(self.loss).into(),
            jitter: MS(self.jitter_ms.into()).into(),
            reorder: share(self.reorder),
            reorder_delay: MS(u64::from(self.delay_ms) / 2),
            duplicate: share(self.duplicate),
            corrupt: share(self.corrupt),
            ecn_threshold: self.marks.then_some(MS(3)),
            ..LinkConfig::default()
        }
    }
}

fn impairments() -> impl Strategy<Value = Impairments> {
    let shape = (1u8..100, 0u8..100, 1u16..300);
    let faults = (0u8..60, 0u8..20, 0u8..20, 0u8..20, 0u8..20, any::<bool>());
    (shape, faults).prop_map(|((mbit, delay_ms, queue), faults)| {
        let (loss, jitter_ms, reorder, duplicate, corrupt, marks) = faults;
        Impairments {
            mbit,
            delay_ms,
            queue,
            loss,
            jitter_ms,
            reorder,
            duplicate,
            corrupt,
            marks,
        }
    })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (any::<bool>(), any::<bool>(), 0u32..400_000).prop_map(|(s, k, n)| Op::Open(s, k, n)),
        4 => (any::<u8>(), 1u32..200_000).prop_map(|(i, n)| Op::Read(i, n)),
        1 => any::<u8>().prop_map(Op::Reset),
        1 => any::<u8>().prop_map(Op::Stop),
        6 => (1u16..400).prop_map(Op::Wait),
        2 => impairments().prop_map(Op::Links),
        1 => (1u16..5000).prop_map(Op::Blackout),
        1 => any::<u8>().prop_map(Op::Move),
    ]
}

/// A pair in the middle of a plan.
struct Run {
    pair: Pair,
    flows: Vec<Flow>,
    /// Reset or stopped: need not complete.
    dead: Vec<bool>,
    path: LinkConfig,
}

impl Run {
    fn new(path: &Impairments, ops: &[Op], seed: u64) -> Self {
        // A client whose address changes while it has nothing to say is found only if it asks now and then:
        // all that the server sends goes to where it was.
        let moves = ops.iter().any(|op| matches!(op, Op::Move(_)));
        let transport = TransportConfig::default()
            .receive_budget(BUDGET)
            .keep_alive(moves.then_some(10 * SECOND));
        let path = path.config();
        let clean = LinkConfig {
            loss: 0.0.into(),
            corrupt: 0.0,
            ..path.clone()
        };
        let mut pair = Pair::new(PairConfig {
            client: transport.clone(),
            server: transport,
            ..PairConfig::symmetric(clean, seed)
        });
        assert!(pair.establish(8 * SECOND), "handshake");
        // Until the client has heard of it a handshake may still time out.
        pair.run_until(SECOND, |_| false);
        let mut run = Self {
            pair,
            flows: Vec::new(),
            dead: Vec::new(),
            path,
        };
        run.set_links(&run.path.clone());
        run
    }

    fn set_links(&mut self, path: &LinkConfig) {
        let now = self.pair.now;
        self.pair
            .links
            .iter_mut()
            .for_each(|link| link.set_config(now, path.clone()));
    }

    fn pick(&self, index: u8) -> Option<usize> {
        (!self.flows.is_empty()).then(|| usize::from(index) % self.flows.len())
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Open(server, stream, size) => {
                let side = if server { Side::Server } else { Side::Client };
                let kind = if stream {
                    ChannelKind::Stream
                } else {
                    ChannelKind::Object
                };
                if let Some(id) = self.pair.connection(side).open(kind) {
                    self.flows.push(Flow::new(id, side, size.into()));
                    self.dead.push(false);
                }
            }
            Op::Read(index, limit) => {
                if let Some(i) = self.pick(index)
                    && !self.dead[i]
                {
                    self.flows[i].read_some(&mut self.pair, limit as usize);
                }
            }
            Op::Reset(index) => {
                if let Some(i) = self.pick(index) {
                    let (from, id) = (self.flows[i].from, self.flows[i].channel);
                    self.pair.connection(from).reset_channel(id, 1.into());
                    self.dead[i] = true;
                }
            }
            Op::Stop(index) => {
                if let Some(i) = self.pick(index) {
                    let (to, id) = (self.flows[i].from.other(), self.flows[i].channel);
                    self.pair.connection(to).end_recv(id);
                    self.dead[i] = true;
                }
            }
            Op::Wait(ms) => self.wait(ms),
            Op::Links(ref path) => {
                self.path = path.config();
                self.set_links(&self.path.clone());
            }
            Op::Blackout(ms) => {
                self.set_links(&LinkConfig {
                    loss: 1.0.into(),
                    ..self.path.clone()
                });
                self.wait(ms);
                self.set_links(&self.path.clone());
            }
            Op::Move(port) => self.pair.hosts[0].address.set_port(5000 + u16::from(port)),
        }
        self.check();
    }

    fn wait(&mut self, ms: u16) {
        let (flows, dead) = (&mut self.flows, &self.dead);
        self.pair.run_until(MS(ms.into()), |pair| {
            for (flow, dead) in flows.iter_mut().zip(dead) {
                if !dead {
                    flow.write(pair);
                }
            }
            false
        });
    }

    /// What must hold at any time.
    fn check(&mut self) {
        for side in Side::BOTH {
            let held = self.pair.connection(side).credit_in_use();
            assert!(held <= BUDGET, "{side:?} holds {held} of {BUDGET}");
            let host = &self.pair.hosts[side as usize];
            let closed = host.events.iter().find(|e| matches!(e, Event::Closed(_)));
            assert_eq!(closed, None, "{side:?} closed");
            assert!(host.ip_bytes < 1 << 30);
        }
    }

    /// Ends channels that were given up, at both ends, then lets the rest complete.
    fn finish(&mut self) {
        self.path = LinkConfig {
            rate: (Rate::from_bps(50_000_000)).into(),
            delay: MS(10),
            loss: 0.02.into(),
            ..LinkConfig::default()
        };
        self.set_links(&self.path.clone());
        let (flows, dead) = (&mut self.flows, &self.dead);
        let done = self.pair.run_until(120 * SECOND, |pair| {
            let mut all = true;
            for (flow, dead) in flows.iter_mut().zip(dead) {
                if *dead {
                    let id = flow.channel;
                    pair.connection(flow.from).reset_channel(id, 1.into());
                    pair.connection(flow.from.other()).end_recv(id);
                    pair.flush();
                } else if !flow.is_done(pair) {
                    all &= flow.poll(pair);
                }
            }
            all
        });
        let alive: Vec<_> = flows.iter().zip(dead).filter(|(_, dead)| !**dead).collect();
        let seen = Side::BOTH.map(|side| {
            let timer = self.pair.hosts[side as usize].endpoint.poll_timeout();
            let stats = self.pair.try_connection(side).map(|c| c.stats());
            (self.pair.hosts[side as usize].events.clone(), timer, stats)
        });
        assert!(
            done,
            "stalled at {:?}: {alive:#?}\n{seen:#?}",
            self.pair.now
        );
        for (flow, _) in alive {
            assert!(has_event(
                &self.pair,
                flow.from,
                &Event::Acknowledged(flow.channel)
            ));
        }
        // Nothing is held for channels that are over.
        self.pair.run_until(5 * SECOND, |_| false);
        for side in Side::BOTH {
            let held = self.pair.connection(side).credit_in_use();
            assert_eq!(held, 0, "{side:?} still holds credit");
            assert_eq!(self.pair.connection(side).unacknowledged(), 0, "{side:?}");
        }
    }
}

/// Runs a plan to its end and gives a digest of all that was sent and when.
fn run(path: &Impairments, ops: &[Op], seed: u64) -> u64 {
    let mut run = Run::new(path, ops, seed);
    ops.iter().for_each(|op| run.apply(op));
    run.finish();
    run.pair.hosts[0].digest ^ run.pair.hosts[1].digest.rotate_left(1)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_plan_ends_well(
        path in impairments(),
        ops in prop::collection::vec(op(), 1..40),
        seed in any::<u64>(),
    ) {
        run(&path, &ops, seed);
    }

    #[test]
    fn the_same_seed_sends_the_same_packets(
        path in impairments(),
        ops in prop::collection::vec(op(), 1..12),
        seed in any::<u64>(),
    ) {
        prop_assert_eq!(run(&path, &ops, seed), run(&path, &ops, seed));
    }
}
