//! One graph for all blocks decides and decodes as a graph of each block's own does.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::graph::{Graph, MISSING};
use super::rows::Packet;
use super::*;

/// Peeling as anybody would write it down: every row's symbols, over and over again.
fn peels(code: &RaptorCode, packets: &[(State, u32)]) -> bool {
    let (p, mut rows) = (code.parameters(), Vec::new());
    for &(mut state, symbols) in packets {
        for _ in 0..symbols {
            let degree = code.0.degrees.draw(state.next_u32());
            rows.push((0..degree).map(|_| state.below(p.n)).collect::<Vec<_>>());
        }
    }
    let checks = 0..code.0.precode.checks();
    rows.extend(checks.map(|check| {
        let nodes = code.0.precode.nodes(check).iter();
        nodes.map(|&v| u32::from(v)).collect()
    }));
    let mut unknown: BTreeSet<u32> = (0..p.n).collect();
    loop {
        let before = unknown.len();
        for row in &rows {
            let left: Vec<_> = row.iter().filter(|v| unknown.contains(v)).collect();
            if let [one] = left[..] {
                unknown.remove(one);
            }
        }
        if unknown.len() == before {
            return unknown.iter().all(|&v| v >= p.k);
        }
    }
}

/// A receiver that keeps graphs from block to block and one that does not.
struct Receivers {
    kept: RaptorCode,
    parameters: RaptorParameters,
    source: Vec<u8>,
    random: State,
}

impl Receivers {
    fn new(k: u32, n: u32, symbol_size: u16, seed: u32) -> Self {
        let parameters = RaptorParameters {
            k,
            n,
            symbol_size,
            ..RaptorParameters::published(State::from_seed(seed))
        };
        let mut random = State::from_seed(seed ^ 0x5eed);
        let len = k as usize * usize::from(symbol_size);
        Self {
            kept: RaptorCode::new(parameters.clone()).unwrap(),
            source: (0..len).map(|_| random.next_u32() as u8).collect(),
            parameters,
            random,
        }
    }

    /// A few packets in any order, some twice, some shorter than others, some of another sender's.
    fn packets(&mut self, block: u32, per_packet: u32, foreign: u32) -> Vec<(State, u32)> {
        let count = (2 * self.parameters.k).div_ceil(per_packet) + 1;
        let mut packets: Vec<_> = (0..count)
            .filter_map(|index| {
                let lost = self.random.below(5) == 0;
                let own = self.random.below(100) < foreign;
                let state = State::from_seed(2).of_packet(if own { block + 1 } else { 0 }, index);
                let symbols = match self.random.below(8) {
                    0 => 1 + self.random.below(per_packet),
                    _ => per_packet,
                };
                (!lost).then_some((state, symbols))
            })
            .collect();
        for at in (1..packets.len()).rev() {
            packets.swap(at, self.random.below(at as u32 + 1) as usize);
        }
        packets.extend(packets.first().copied());
        packets
    }

    /// Decodes a block in both ways, after each packet. What it took, if it was solved.
    fn block(&mut self, packets: &[(State, u32)], inactive: u16) -> Option<Vec<(State, u32)>> {
        let alone = RaptorCode::new(self.parameters.clone()).unwrap();
        let encoder = alone.encoder(self.source.clone()).unwrap();
        let mut decoders = [self.kept.decoder(Vec::new()), alone.decoder(Vec::new())];
        let mut bare = self.kept.structural_decoder();
        bare.limit_inactivation(inactive);
        decoders
            .iter_mut()
            .for_each(|decoder| decoder.limit_inactivation(inactive));
        let mut taken = Vec::new();
        for &(state, symbols) in packets {
            let size = usize::from(self.parameters.symbol_size);
            let mut bytes = vec![0; symbols as usize * size];
            encoder.write_symbols(state, &mut bytes);
            if !taken.iter().any(|&(other, _)| other == state) {
                taken.push((state, symbols));
            }
            let solved = decoders.each_mut().map(|decoder| {
                decoder.push(state, symbols, &bytes).unwrap();
                // Every attempt counts, not only those that are worth while.
                decoder.solve()
            });
            bare.push(state, symbols, &[]).unwrap();
            assert_eq!(solved[0], solved[1]);
            assert_eq!(solved[0], bare.solve());
            if inactive == 0 && decoders[0].received() >= self.parameters.k && !solved[0] {
                assert!(bare.needed() > 0);
            }
            if solved[0] {
                assert!(
                    decoders
                        .iter()
                        .all(|decoder| decoder.source() == self.source)
                );
                return Some(taken);
            }
        }
        None
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn a_kept_graph_changes_nothing(
        k in 1u32..300, checks in 0u32..20, symbol_size in 1u16..4, seed in any::<u32>(),
        per_packet in 1u32..40, foreign in prop_oneof![Just(0u32), Just(10), Just(60), Just(100)],
        peeling in any::<bool>(), repeats in any::<bool>(),
    ) {
        let mut receivers = Receivers::new(k, k + checks, symbol_size, seed);
        let mut before = Vec::new();
        for block in 0..6 {
            let mut packets = receivers.packets(block, per_packet, foreign);
            // Some blocks have the same packets.
            if block % 3 > 0 && repeats {
                packets = before;
            }
            before = packets.clone();
            let inactive = if peeling { 0 } else { 1000 };
            let taken = receivers.block(&packets, inactive);
            if let (true, Some(taken)) = (peeling, taken) {
                prop_assert!(peels(&receivers.kept, &taken));
            }
        }
    }

    /// The verdict of peeling is the plain one for any packets, also where it is no.
    #[test]
    fn peeling_decides_as_plainly_written(
        k in 1u32..200, checks in 0u32..20, seed in any::<u32>(), more in 0u32..100,
    ) {
        let receivers = Receivers::new(k, k + checks, 1, seed);
        for block in 0..3 {
            let packets = [(State::from_seed(seed).of_packet(block, 0), k + k * more / 100)];
            let mut decoder = receivers.kept.structural_decoder();
            decoder.limit_inactivation(0);
            decoder.push(packets[0].0, packets[0].1, &[]).unwrap();
            prop_assert_eq!(decoder.solve(), peels(&receivers.kept, &packets));
        }
    }
}

/// At full size: every block loses others of its packets, and one comes from elsewhere.
#[test]
fn the_published_code_keeps_its_graph() {
    let mut receivers = Receivers::new(63_536, 65_536, 1, 8);
    for block in 0..5 {
        let initial = State::from_seed(2);
        let mut packets: Vec<_> = (0..52)
            .filter(|_| receivers.random.below(20) != 0)
            .map(|index| (initial.of_packet(u32::from(block == 3), index), 1456))
            .collect();
        packets.rotate_left(block as usize);
        packets[7].0 = initial.of_packet(9, block);
        assert!(receivers.block(&packets, 1000).is_some(), "block {block}");
    }
    let tables = receivers.kept.memory();
    assert!(tables < 24 << 20, "{tables} bytes are kept for one code");
}

/// Blocks that have the same packets, in whatever order they came, are decoded by a plan from the third
/// one on; those that lost another one are not, nor does it harm the plan.
#[test]
fn the_same_packets_are_decoded_by_a_plan() {
    let mut receivers = Receivers::new(3000, 3100, 1, 8);
    let all: Vec<_> = (0..34)
        .map(|index| (State::from_seed(2).of_packet(0, index), 100))
        .collect();
    let mut plans = Vec::new();
    for (lost, turned) in [(9, 0), (9, 1), (9, 2), (9, 0), (4, 0), (9, 3)] {
        let mut packets = all.clone();
        packets.remove(lost);
        packets.rotate_left(turned);
        let (kept, source) = (receivers.kept.clone(), receivers.source.clone());
        let encoder = kept.encoder(source.clone()).unwrap();
        let mut decoder = kept.decoder(Vec::new());
        for &(state, symbols) in &packets {
            let mut bytes = vec![0; symbols as usize];
            encoder.write_symbols(state, &mut bytes);
            decoder.push(state, symbols, &bytes).unwrap();
        }
        assert!(decoder.solve());
        assert!(decoder.source() == source);
        plans.push(kept.0.pool.with(|w| w.graphs[0].plans.first().is_some()));
        // Other bytes by the same plan.
        receivers.source.iter_mut().for_each(|byte| *byte ^= 0x5a);
    }
    assert_eq!(plans, [false, true, true, true, true, true]);
}

/// A plan outlives the growth of its graph. What its check nodes are equal to was zero at a place that a symbol
/// of a later packet takes then: of a block without it the last block's was read there, and the source that
/// came out was wrong.
#[test]
fn a_plan_is_right_after_its_graph_has_grown() {
    let mut receivers = Receivers::new(3000, 3100, 1, 8);
    let all: Vec<_> = (0..40)
        .map(|index| (State::from_seed(2).of_packet(0, index), 100))
        .collect();
    for (block, packets) in [33, 33, 33, 40, 40, 40, 33, 40, 33].into_iter().enumerate() {
        let (kept, source) = (receivers.kept.clone(), receivers.source.clone());
        let encoder = kept.encoder(source.clone()).unwrap();
        let mut decoder = kept.decoder(Vec::new());
        for &(state, symbols) in &all[..packets] {
            let mut bytes = vec![0; symbols as usize];
            encoder.write_symbols(state, &mut bytes);
            decoder.push(state, symbols, &bytes).unwrap();
        }
        assert!(decoder.solve());
        assert!(decoder.source() == source, "block {block}");
        let change = 0x11 * (block as u8 + 1);
        receivers.source.iter_mut().for_each(|byte| *byte ^= change);
    }
}

#[test]
fn a_graph_covers_what_it_has_seen() {
    let receivers = Receivers::new(1000, 1042, 1, 1);
    let (code, mut draws, mut graph) = (&receivers.kept, Default::default(), Graph::default());
    let packets: Vec<_> = (0..12)
        .map(|index| Packet {
            state: State::from_seed(2).of_packet(0, index),
            symbols: 100,
        })
        .collect();
    let mut missing = |packets: &[Packet]| {
        assert!(graph.cover(code, &mut draws, packets, 2340));
        let mut block = graph::Block::default();
        block.arrange(&graph, packets, &[]);
        block.sides.iter().filter(|&&side| side == MISSING).count()
    };
    assert_eq!(missing(&packets[..10]), 0);
    // Two that are new, two that are not there any more.
    assert_eq!(missing(&packets[2..]), 200);
    assert_eq!(missing(&packets), 0);
    // Of so few packets, most of the graph would be missing.
    assert_eq!(missing(&packets[..5]), 0);
    let others: Vec<_> = (0..10)
        .map(|index| Packet {
            state: State::from_seed(3).of_packet(0, index),
            symbols: 100,
        })
        .collect();
    assert_eq!(missing(&others), 0);
}
