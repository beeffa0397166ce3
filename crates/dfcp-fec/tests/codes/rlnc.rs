//! Network coding through its public interface: exact degrees of freedom, recoding, hostile
//! vectors.

use dfcp_fec::gf256::{Kernel, inv, mul};
use dfcp_fec::{
    BlockDecoder, BlockSpec, DenseScheme, FecError, FecScheme, Push, Recoder, RlncDecoder,
    RlncScheme, coefficient_vector, structural,
};
use proptest::prelude::*;

const T: usize = 21;

fn spec(k: usize, seed: u64) -> BlockSpec {
    BlockSpec::new(k as u32, T as u16, seed).unwrap()
}

fn source(k: usize) -> Vec<u8> {
    (0..k * T)
        .map(|i| (i * 37 + (i >> 8) * 11) as u8 ^ 0x5a)
        .collect()
}

/// The symbol with these coefficients, by the definition.
fn combination(source: &[u8], vector: &[u8]) -> Vec<u8> {
    let mut out = vec![0; T];
    for (symbol, &c) in source.chunks(T).zip(vector) {
        for (out, &byte) in out.iter_mut().zip(symbol) {
            *out ^= mul(c, byte);
        }
    }
    out
}

/// Rank of a matrix, by textbook elimination.
fn rank(mut rows: Vec<Vec<u8>>, k: usize) -> usize {
    let mut rank = 0;
    for column in 0..k {
        let Some(pivot) = (rank..rows.len()).find(|&row| rows[row][column] != 0) else {
            continue;
        };
        rows.swap(rank, pivot);
        let lead = rows[rank].clone();
        for row in &mut rows[rank + 1..] {
            let factor = mul(row[column], inv(lead[column]));
            for (entry, &above) in row.iter_mut().zip(&lead) {
                *entry ^= mul(factor, above);
            }
        }
        rank += 1;
    }
    rank
}

/// A pseudo-random sequence, for what need not shrink.
fn draws(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 20
    }
}

/// Vectors of which many are sparse, small and dependent.
fn vectors() -> impl Strategy<Value = (usize, Vec<Vec<u8>>)> {
    (1usize..24).prop_flat_map(|k| {
        let entry = prop_oneof![4 => Just(0u8), 2 => 1u8..4, 1 => any::<u8>()];
        let vector = prop::collection::vec(entry, k);
        (Just(k), prop::collection::vec(vector, 0..3 * k))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn degrees_of_freedom_are_exact_after_every_symbol((k, vectors) in vectors()) {
        let source = source(k);
        let mut decoder = RlncDecoder::new(spec(k, 1), Vec::new()).unwrap();
        let mut bare = structural::rlnc_decoder(spec(k, 1)).unwrap();
        let mut recoder = Recoder::new(spec(k, 1), 9).unwrap();
        let mut received = Vec::new();
        let mut redundant = 0;
        for vector in vectors {
            let symbol = combination(&source, &vector);
            let push = decoder.push_coded(&vector, &symbol);
            prop_assert_eq!(bare.push_coded(&vector, &[]), push);
            prop_assert_eq!(recoder.push_coded(&vector, &symbol), push);
            if vector.iter().all(|&c| c == 0) {
                prop_assert_eq!(push, Err(FecError::ZeroVector));
                continue;
            }
            let before = decoder.rank() - u32::from(push == Ok(Push::Innovative));
            received.push(vector);
            let expected = rank(received.clone(), k);
            prop_assert_eq!(decoder.rank() as usize, expected);
            prop_assert_eq!(push == Ok(Push::Innovative), decoder.rank() > before);
            redundant += u64::from(push == Ok(Push::Redundant));
            prop_assert_eq!(decoder.redundant(), redundant);
            prop_assert_eq!(decoder.needed() as usize, k - expected);
            prop_assert_eq!(decoder.is_complete(), expected == k);
            for i in 0..k {
                // Known exactly if its unit vector is in the span.
                let mut with_unit = received.clone();
                with_unit.push((0..k).map(|j| u8::from(i == j)).collect());
                prop_assert_eq!(decoder.is_known(i), rank(with_unit, k) == expected);
                prop_assert_eq!(bare.is_known(i), decoder.is_known(i));
                let at = i * T..(i + 1) * T;
                prop_assert!(!decoder.is_known(i) || decoder.source()[at.clone()] == source[at]);
            }
        }
        let (mut vector, mut symbol) = (vec![0; k], vec![0; T]);
        let recoded = recoder.recode(&mut vector, &mut symbol);
        prop_assert_eq!(recoded.is_err(), received.is_empty());
        if recoded.is_ok() {
            prop_assert!(vector.iter().any(|&c| c != 0));
            prop_assert_eq!(symbol, combination(&source, &vector));
        }
    }

    #[test]
    fn recoded_through_relays_decodes_with_k_independent_symbols(
        k in prop_oneof![1usize..20, 30usize..70],
        relays in 1usize..=3,
        loss in 0u64..60,
        seed in any::<u64>(),
    ) {
        let (block, source) = (spec(k, seed), source(k));
        let mut encoder = RlncScheme::AUTO.encoder(block, source.clone()).unwrap();
        let mut chain: Vec<Recoder> =
            (0..relays as u64).map(|i| Recoder::new(block, seed ^ (i + 1)).unwrap()).collect();
        let mut decoder = RlncDecoder::new(block, Vec::new()).unwrap();
        let mut draw = draws(seed);
        let mut lost = || draw() % 100 < loss;
        let (mut vector, mut symbol) = (vec![0; k], vec![0; T]);
        let mut esi = 0;
        // One symbol into every hop per turn, so that each is used at its full rate.
        while !decoder.is_complete() {
            prop_assert!(esi < 100 * k as u32 + 1000, "no progress, seed {}", seed);
            for hop in (0..relays).rev() {
                if chain[hop].recode(&mut vector, &mut symbol).is_err() || lost() {
                    continue;
                }
                prop_assert_eq!(&symbol, &combination(&source, &vector));
                let held = chain[hop].rank();
                match chain.get_mut(hop + 1) {
                    Some(next) => drop(next.push_coded(&vector, &symbol).unwrap()),
                    None => drop(decoder.push_coded(&vector, &symbol).unwrap()),
                }
                let next = chain.get(hop + 1).map_or(decoder.rank(), Recoder::rank);
                prop_assert!(next <= held, "more degrees of freedom than the relay has");
            }
            encoder.write_symbol(esi, &mut symbol).unwrap();
            if !lost() {
                chain[0].push(esi, &symbol).unwrap();
            }
            esi += 1;
        }
        prop_assert!(decoder.source() == source);
    }
}

#[test]
fn dependent_floods_cost_no_memory() {
    let (k, block) = (40, spec(40, 3));
    let source = source(k);
    let mut encoder = RlncScheme::AUTO.encoder(block, source.clone()).unwrap();
    let mut relay = Recoder::new(block, 4).unwrap();
    let mut decoder = RlncDecoder::new(block, Vec::new()).unwrap();
    let mut symbol = vec![0; T];
    for esi in 35..35 + 20 {
        encoder.write_symbol(esi, &mut symbol).unwrap();
        relay.push(esi, &symbol).unwrap();
        decoder.push(esi, &symbol).unwrap();
    }
    let mut vector = vec![0; k];
    let held = (decoder.memory(), relay.memory());
    for n in 1..=5000 {
        relay.recode(&mut vector, &mut symbol).unwrap();
        assert_eq!(decoder.push_coded(&vector, &symbol), Ok(Push::Redundant));
        assert_eq!(relay.push_coded(&vector, &symbol), Ok(Push::Redundant));
        assert_eq!((decoder.redundant(), relay.redundant()), (n, n));
    }
    assert_eq!((decoder.rank(), relay.rank()), (20, 20));
    // Room for one vector more, at most twice what is used.
    let slack = 2 * 21 * k;
    assert!(decoder.memory() <= held.0 + slack && relay.memory() <= held.1 + slack);
    for esi in 0..35 {
        encoder.write_symbol(esi, &mut symbol).unwrap();
        decoder.push(esi, &symbol).unwrap();
    }
    assert!(decoder.is_complete() && decoder.source() == source);
}

#[test]
fn bad_vectors_are_refused_and_change_nothing() {
    let block = spec(8, 1);
    let mut decoder = RlncDecoder::new(block, Vec::new()).unwrap();
    let mut relay = Recoder::new(block, 1).unwrap();
    let (zeros, ones) = ([0; 9], [1; 9]);
    let mut out = ([0; 8], [0; T]);
    assert_eq!(
        relay.recode(&mut out.0, &mut out.1),
        Err(FecError::Empty),
        "nothing to combine"
    );
    for (vector, symbol) in [
        (&ones[..7], &[0; T][..]),
        (&ones[..], &[0; T]),
        (&[], &[0; T]),
        (&zeros[..8], &[0; T]),
        (&ones[..8], &[0; T - 1]),
        (&ones[..8], &[0; T + 1]),
    ] {
        let refusal = decoder.push_coded(vector, symbol);
        let expected = match vector.len() {
            8 if vector[0] == 0 => FecError::ZeroVector,
            8 => FecError::SymbolLength {
                expected: T,
                actual: symbol.len(),
            },
            actual => FecError::VectorLength {
                expected: 8,
                actual,
            },
        };
        assert_eq!(refusal, Err(expected));
        assert_eq!(relay.push_coded(vector, symbol), Err(expected));
    }
    assert_eq!((decoder.rank(), decoder.redundant()), (0, 0));
    assert_eq!((relay.rank(), relay.redundant()), (0, 0));
    let long = BlockSpec::new(257, 1, 0).unwrap();
    assert!(RlncDecoder::new(long, Vec::new()).is_err() && Recoder::new(long, 0).is_err());
    relay.push(3, &[7; T]).unwrap();
    assert!(relay.recode(&mut out.0[..7], &mut out.1).is_err());
    assert!(relay.recode(&mut out.0, &mut out.1[1..]).is_err());
    assert!(coefficient_vector(0, 1 << 24, &mut out.0).is_err());
    assert!(coefficient_vector(0, 0, &mut []).is_err());
}

#[test]
fn every_kernel_decodes_what_the_dense_code_decodes() {
    for k in [2usize, 31, 32, 33, 64, 256] {
        let block = BlockSpec::new(k as u32, 1300, 77).unwrap();
        let source: Vec<u8> = (0..k * 1300).map(|i| (i * 7 + (i >> 8)) as u8).collect();
        let mut encoder = DenseScheme::with_kernel(&Kernel::SCALAR)
            .encoder(block, source.clone())
            .unwrap();
        for kernel in Kernel::available() {
            let mut dense = DenseScheme::with_kernel(kernel)
                .decoder(block, Vec::new())
                .unwrap();
            let mut rlnc = RlncScheme::with_kernel(kernel)
                .decoder(block, vec![9; 77])
                .unwrap();
            let mut draw = draws(k as u64);
            let mut symbol = vec![0; 1300];
            // Repair symbols among source symbols, in no order.
            while rlnc.needed() > 0 {
                let esi = (draw() % (2 * k as u64)) as u32;
                encoder.write_symbol(esi, &mut symbol).unwrap();
                rlnc.push(esi, &symbol).unwrap();
                dense.push(esi, &symbol).unwrap();
            }
            assert_eq!(dense.solve(), Ok(true), "{}, K = {k}", kernel.name());
            assert!(rlnc.is_complete() && dense.source() == source);
            assert!(rlnc.into_buffer() == source, "{}, K = {k}", kernel.name());
        }
    }
}

#[test]
fn recoded_symbols_of_the_specification() {
    let text = include_str!("../../../../docs/spec/codes.md");
    let bytes = |cell: &str| -> Vec<u8> {
        let byte = |hex| u8::from_str_radix(hex, 16).unwrap();
        cell.trim().split(' ').map(byte).collect()
    };
    let source: Vec<u8> = (0..32).collect();
    let mut seen = 0;
    for line in text.lines().filter(|line| line.starts_with("| recoded |")) {
        let cells: Vec<&str> = line.split('|').collect();
        let (vector, symbol) = (bytes(cells[2]), bytes(cells[3]));
        // The symbol and three source symbols give the fourth.
        let block = BlockSpec::new(4, 8, 1).unwrap();
        let mut decoder = RlncDecoder::new(block, Vec::new()).unwrap();
        assert_eq!(decoder.push_coded(&vector, &symbol), Ok(Push::Innovative));
        for (esi, symbol) in source.chunks(8).enumerate().take(3) {
            decoder.push(esi as u32, symbol).unwrap();
        }
        assert!(
            decoder.is_complete() && decoder.source() == source,
            "{line}"
        );
        seen += 1;
    }
    assert_eq!(seen, 2);
}

#[test]
fn symbols_are_known_as_soon_as_they_are_determined() {
    let (k, source) = (10, source(10));
    let mut decoder = RlncDecoder::new(spec(k, 1), Vec::new()).unwrap();
    let mut push = |terms: &[(usize, u8)]| {
        let mut vector = vec![0; k];
        terms.iter().for_each(|&(i, c)| vector[i] = c);
        let push = decoder.push_coded(&vector, &combination(&source, &vector));
        assert_eq!(push, Ok(Push::Innovative));
        (0..k)
            .filter(|&i| decoder.is_known(i))
            .collect::<Vec<usize>>()
    };
    assert_eq!(push(&[(0, 1)]), [0]);
    assert_eq!(push(&[(0, 5), (3, 2)]), [0, 3]);
    assert_eq!(push(&[(1, 1), (2, 1), (4, 1)]), [0, 3]);
    assert_eq!(push(&[(1, 1), (2, 3), (4, 1)]), [0, 2, 3]);
    // Source symbol 1, in whose slot a combination waits.
    assert_eq!(push(&[(1, 1)]), [0, 1, 2, 3, 4]);
    assert_eq!(decoder.prefix(), 5 * T);
    assert_eq!(decoder.source()[..5 * T], source[..5 * T]);
}
