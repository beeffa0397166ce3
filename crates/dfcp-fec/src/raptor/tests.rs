//! The code as a whole.

use proptest::prelude::*;

use super::*;

/// Bytes that look random, the same for the same arguments.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(next).collect()
}

fn degrees() -> impl Strategy<Value = Degrees> {
    prop_oneof![
        3 => Just(Degrees::Shokrollahi),
        1 => Just(Degrees::IdealSoliton),
        1 => (1_000u32..200_000, 10_000u32..900_000).prop_map(|(c, delta)| {
            Degrees::RobustSoliton { c_millionths: c, delta_millionths: delta }
        }),
    ]
}

/// Constant, as the published code has it, or drawn.
fn ldpc_degrees() -> impl Strategy<Value = LdpcDegrees> {
    let weights = prop::collection::btree_map(1u8..=MAX_LDPC_DEGREE, 1u16.., 1..=MAX_LDPC_DEGREES);
    prop_oneof![
        (1u8..6).prop_map(LdpcDegrees::Constant),
        weights.prop_map(|map| LdpcDegrees::Weighted(map.into_iter().collect())),
    ]
}

prop_compose! {
    fn parameters()(
        k in prop_oneof![1u32..8, 1u32..80, 1u32..1500],
        checks in prop_oneof![Just(0u32), 1u32..60],
        symbol_size in prop_oneof![Just(1u16), 2u16..40],
        ldpc_degrees in ldpc_degrees(),
        degrees in degrees(),
        seed in any::<u32>(),
    ) -> RaptorParameters {
        RaptorParameters {
            k, n: k + checks, symbol_size, ldpc_degrees, degrees,
            precode: State::from_seed(seed),
        }
    }
}

/// The degree of a message node as the specification says it: no output is spent where there is but one.
fn plain_draw(list: &[(u8, u16)], state: &mut State) -> u8 {
    let total: u64 = list.iter().map(|&(_, weight)| u64::from(weight)).sum();
    let [(last, _)] = list else {
        let (output, mut sum) = (u64::from(state.next_u32()), 0);
        let above = list.iter().find(|&&(_, weight)| {
            sum += u64::from(weight);
            output < (sum << 32) / total
        });
        return above.expect("the last threshold is 2³²").0;
    };
    *last
}

/// Encoding as the specification says it, one draw after the other.
fn plain_symbols(code: &RaptorCode, source: &[u8], mut state: State, out: &mut [u8]) {
    let (p, size) = (code.parameters().clone(), code.symbol_size());
    let mut symbols = source.to_vec();
    symbols.resize(code.n() * size, 0);
    let mut graph = p.precode;
    // A plain LT code has no graph.
    for message in 0..if p.n > p.k { p.k as usize } else { 0 } {
        let mut mine = Vec::new();
        let degree = match &p.ldpc_degrees {
            LdpcDegrees::Constant(degree) => *degree,
            LdpcDegrees::Weighted(list) => plain_draw(list, &mut graph),
        };
        while mine.len() < usize::from(degree).min((p.n - p.k) as usize) {
            let check = (p.k + graph.below(p.n - p.k)) as usize;
            if mine.contains(&check) {
                continue;
            }
            mine.push(check);
            for byte in 0..size {
                symbols[check * size + byte] ^= symbols[message * size + byte];
            }
        }
    }
    for out in out.chunks_exact_mut(size) {
        out.fill(0);
        for _ in 0..code.0.degrees.draw(state.next_u32()) {
            let at = state.below(p.n) as usize * size;
            out.iter_mut()
                .zip(&symbols[at..])
                .for_each(|(o, s)| *o ^= s);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Any parameters, packet sizes, losses and duplicates: what is solved is the source, the
    /// structural decoder says the same at every step, and enough symbols do solve.
    #[test]
    fn decodes_and_the_structural_decoder_agrees(
        p in parameters(), per_packet in 1u32..300, seed in any::<u32>(), inactive in 0u16..200,
    ) {
        let code = RaptorCode::new(p.clone()).unwrap();
        let source = bytes(seed.into(), code.k() * code.symbol_size());
        let encoder = code.encoder(source.clone()).unwrap();
        let mut real = code.decoder(bytes(9, 77));
        let mut bare = code.structural_decoder();
        let per_packet = per_packet.min(p.k.div_ceil(3));
        let mut packet = vec![0; per_packet as usize * code.symbol_size()];
        let mut expected = packet.clone();
        let initial = State::from_seed(seed);
        real.limit_inactivation(inactive);
        bare.limit_inactivation(inactive);
        for index in 0.. {
            let state = initial.of_packet(3, index - index % 5);
            encoder.write_symbols(state, &mut packet);
            if index < 3 {
                plain_symbols(&code, &source, state, &mut expected);
                prop_assert!(packet == expected, "symbols of packet {}", index);
            }
            let before = real.received();
            let pushed = real.push(state, per_packet, &packet);
            prop_assert_eq!(pushed, bare.push(state, per_packet, &[]));
            if pushed.is_err() {
                prop_assert_eq!(pushed, Err(FecError::Full { limit: real.limit() }));
                break;
            }
            prop_assert!(index % 5 == 0 || real.received() == before, "a repeated state counts");
            let solved = real.solve();
            prop_assert_eq!(bare.solve(), solved);
            prop_assert_eq!((real.received(), real.needed()), (bare.received(), bare.needed()));
            if solved {
                prop_assert!(real.source() == source);
                prop_assert!(bare.source().is_empty());
                prop_assert!(real.push(State::from_seed(1), per_packet, &packet).is_ok());
                prop_assert!(real.into_buffer() == source);
                break;
            }
        }
    }
}

#[test]
fn parameters_outside_limits_are_refused() {
    let good = RaptorParameters::published(State::from_seed(1));
    assert!(good.check().is_ok());
    let bad = [
        RaptorParameters {
            k: 0,
            ..good.clone()
        },
        RaptorParameters {
            k: u32::MAX,
            n: u32::MAX,
            ..good.clone()
        },
        RaptorParameters {
            n: 65_537,
            ..good.clone()
        },
        RaptorParameters {
            n: good.k - 1,
            ..good.clone()
        },
        RaptorParameters {
            symbol_size: 0,
            ..good.clone()
        },
    ];
    for parameters in bad {
        let refused = RaptorCode::new(parameters.clone());
        assert!(refused.is_err(), "{parameters:?}");
    }
    let nine = (1..=9).map(|degree| (degree, 1)).collect();
    let degrees = [
        LdpcDegrees::Constant(0),
        LdpcDegrees::Constant(33),
        LdpcDegrees::Weighted(vec![]),
        LdpcDegrees::Weighted(vec![(0, 1), (3, 1)]),
        LdpcDegrees::Weighted(vec![(3, 1), (33, 1)]),
        LdpcDegrees::Weighted(vec![(3, 0)]),
        LdpcDegrees::Weighted(vec![(3, 1), (4, 0)]),
        LdpcDegrees::Weighted(vec![(4, 1), (3, 1)]),
        LdpcDegrees::Weighted(vec![(4, 1), (4, 1)]),
        LdpcDegrees::Weighted(nine),
    ];
    for ldpc_degrees in degrees {
        let parameters = RaptorParameters {
            ldpc_degrees,
            ..good.clone()
        };
        let refused = RaptorCode::new(parameters.clone()).err();
        let expected = FecError::Parameter("LDPC degree");
        assert_eq!(refused, Some(expected), "{parameters:?}");
        // Without check nodes there is no such degree.
        let plain = RaptorParameters {
            n: 63_536,
            ..parameters
        };
        assert_eq!(plain.check(), Ok(()));
    }
    for (c_millionths, delta_millionths) in [(0, 1), (1_000_001, 1), (1, 0), (1, 1_000_000)] {
        let degrees = Degrees::RobustSoliton {
            c_millionths,
            delta_millionths,
        };
        assert!(
            RaptorCode::new(RaptorParameters {
                degrees,
                ..good.clone()
            })
            .is_err()
        );
    }
}

/// One degree draws nothing: the graph is that of the constant. Of several, each has its share.
#[test]
fn message_nodes_have_the_degrees_asked_for() {
    let with = |ldpc_degrees| {
        let parameters = RaptorParameters {
            ldpc_degrees,
            ..RaptorParameters::published(State::from_seed(1))
        };
        RaptorCode::new(parameters).unwrap()
    };
    let neighbours = |code: &RaptorCode| -> Vec<Vec<u16>> {
        let lists = (0..code.k()).map(|message| code.0.precode.checks_of(message).to_vec());
        lists.collect()
    };
    let constant = neighbours(&with(LdpcDegrees::Constant(4)));
    assert!(constant.iter().all(|list| list.len() == 4));
    for one in [vec![(4, 1)], vec![(4, 999)]] {
        assert!(neighbours(&with(LdpcDegrees::Weighted(one))) == constant);
    }
    let drawn = neighbours(&with(LdpcDegrees::Weighted(vec![(3, 6), (5, 3), (12, 1)])));
    for (degree, share) in [(3, 0.6), (5, 0.3), (12, 0.1)] {
        let have = drawn.iter().filter(|list| list.len() == degree).count();
        let got = have as f64 / drawn.len() as f64;
        // Five standard deviations are 0.01.
        assert!((got - share).abs() < 0.01, "degree {degree}: {got}");
    }
    assert_eq!(
        LdpcDegrees::uniform(3..=5),
        LdpcDegrees::Weighted(vec![(3, 1), (4, 1), (5, 1)])
    );
}

/// More rows of small degree than 16 bits name.
#[test]
fn far_more_symbols_than_needed_decode_too() {
    let code = RaptorCode::new(RaptorParameters::published(State::from_seed(4))).unwrap();
    let source = bytes(6, code.k());
    let encoder = code.encoder(source.clone()).unwrap();
    let mut decoder = code.decoder(Vec::new());
    let mut symbols = vec![0; 130_000];
    encoder.write_symbols(State::from_seed(5), &mut symbols);
    decoder
        .push(State::from_seed(5), 130_000, &symbols)
        .unwrap();
    decoder.limit_inactivation(0);
    assert!(decoder.solve());
    assert!(decoder.source() == source);
    let full = code
        .structural_decoder()
        .push(State::from_seed(5), 200_000, &[]);
    assert_eq!(full, Err(FecError::Full { limit: 131_328 }));
}

/// With no limit to speak of, blocks of any parameters decode with a few symbols to spare.
#[test]
fn inactivation_decodes_small_blocks() {
    for (k, n, most) in [(10, 20, 30), (100, 113, 115), (1000, 1042, 1030)] {
        let parameters = RaptorParameters {
            k,
            n,
            ..RaptorParameters::published(State::from_seed(1))
        };
        let code = RaptorCode::new(parameters).unwrap();
        let mut decoded = 0;
        for block in 0..50 {
            let mut decoder = code.structural_decoder();
            decoder
                .push(State::from_seed(2).of_packet(block, 0), most, &[])
                .unwrap();
            decoded += u32::from(decoder.solve());
        }
        assert!(
            decoded >= 49,
            "k = {k}: {decoded} of 50 with {most} symbols"
        );
    }
}

/// What is kept of a packet is its symbols, not their bytes nor their number; and not for good.
#[test]
fn packets_drawn_before_are_those_of_any_block() {
    let code = RaptorCode::new(RaptorParameters {
        k: 3000,
        n: 3100,
        ..RaptorParameters::published(State::from_seed(1))
    });
    let code = code.unwrap();
    let packet = |block, index| State::from_seed(2).of_packet(block, index);
    for (seed, symbols, block) in [
        (3, 200, 0),
        (4, 200, 1),
        (5, 300, 2),
        (6, 199, 3),
        (7, 200, 4),
    ] {
        let source = bytes(seed, 3000);
        let encoder = code.encoder(source.clone()).unwrap();
        let (mut out, mut expected) = (vec![0; symbols], vec![0; symbols]);
        for index in 0..20 {
            encoder.write_symbols(packet(block, index), &mut out);
            plain_symbols(&code, &source, packet(block, index), &mut expected);
            assert!(out == expected, "block {block}, packet {index}");
        }
    }
    let encoder = code.encoder(bytes(8, 3000)).unwrap();
    for block in 0..1000 {
        encoder.write_symbols(packet(block * 256, 0), &mut [0; 300]);
    }
    // Each of them takes 4 KB.
    assert!(code.memory() < 1 << 20, "{} bytes", code.memory());
}
