//! Rank deficiency, late source symbols, kernels and the coefficients in `docs/spec/codes.md`.

use super::*;
use crate::block::Push;

fn block(spec: BlockSpec) -> Vec<u8> {
    (0..spec.source_len())
        .map(|i| (i * 7 + (i >> 8) * 3) as u8)
        .collect()
}

fn symbol(encoder: &mut dyn BlockEncoder, esi: u32) -> Vec<u8> {
    let mut out = vec![0; encoder.spec().symbol_size()];
    encoder.write_symbol(esi, &mut out).unwrap();
    out
}

fn coefficients(seed: u64, esi: u32, k: usize) -> Vec<u8> {
    let mut out = vec![0; k];
    repair_coefficients(seed, esi, &mut out);
    out
}

/// A seed for which the first `n` repair symbols of K = 2 are multiples of one another.
fn deficient_seed(n: u32) -> u64 {
    let ratio = |seed, esi| {
        let c = coefficients(seed, esi, 2);
        crate::gf256::mul(c[0], crate::gf256::inv(c[1]))
    };
    (0..u64::MAX)
        .find(|&seed| (3..2 + n).all(|esi| ratio(seed, esi) == ratio(seed, 2)))
        .unwrap()
}

#[test]
fn coefficient_vectors_of_the_specification() {
    let spec = include_str!("../../../../docs/spec/codes.md");
    let mut seen = 0;
    for line in spec.lines().filter(|line| line.starts_with("| 0x")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let seed = u64::from_str_radix(&cells[1][2..], 16).unwrap();
        let esi: u32 = cells[2].parse().unwrap();
        let byte = |text| u8::from_str_radix(text, 16).unwrap();
        let expected: Vec<u8> = cells[3].split(' ').map(byte).collect();
        assert_eq!(coefficients(seed, esi, expected.len()), expected, "{line}");
        seen += 1;
    }
    assert_eq!(seen, 5);
}

#[test]
fn coefficients_are_never_zero_and_streams_differ() {
    let mut first = std::collections::BTreeSet::new();
    for esi in 0..2000 {
        let coeffs = coefficients(9, esi, 256);
        assert!(coeffs.iter().all(|&c| c != 0));
        assert_eq!(
            coeffs[..100],
            coefficients(9, esi, 100),
            "K cuts the stream"
        );
        assert!(first.insert(coeffs[..16].to_vec()));
        assert_ne!(coeffs, coefficients(10, esi, 256));
    }
}

#[test]
fn dependent_repair_symbols_are_not_counted() {
    let spec = BlockSpec::new(2, 40, deficient_seed(3)).unwrap();
    let source = block(spec);
    let mut encoder = DenseScheme::AUTO.encoder(spec, source.clone()).unwrap();
    let mut decoder = DenseScheme::AUTO.decoder(spec, Vec::new()).unwrap();
    assert_eq!(
        decoder.push(2, &symbol(&mut *encoder, 2)),
        Ok(Push::Innovative)
    );
    for esi in [3, 4, 3] {
        let push = decoder.push(esi, &symbol(&mut *encoder, esi));
        assert_eq!(push, Ok(Push::Redundant));
        assert_eq!((decoder.needed(), decoder.solve()), (1, Ok(false)));
    }
    decoder.push(1, &symbol(&mut *encoder, 1)).unwrap();
    assert_eq!((decoder.needed(), decoder.is_complete()), (0, false));
    assert_eq!(decoder.solve(), Ok(true));
    assert_eq!(decoder.source(), source);
}

#[test]
fn late_source_symbols_push_repair_symbols_out() {
    let spec = BlockSpec::new(70, 24, 11).unwrap();
    let source = block(spec);
    let mut encoder = DenseScheme::AUTO.encoder(spec, source.clone()).unwrap();
    // Repair symbols take the last slots, then source symbols come for those very slots.
    for order in [(35..70u32).collect::<Vec<_>>(), (35..70).rev().collect()] {
        let mut decoder = DenseScheme::AUTO.decoder(spec, vec![1; 5000]).unwrap();
        for esi in 70..105 {
            let push = decoder.push(esi, &symbol(&mut *encoder, esi));
            assert_eq!(push, Ok(Push::Innovative));
        }
        for (got, esi) in order.into_iter().enumerate() {
            assert_eq!(decoder.needed() as usize, 35 - got);
            let push = decoder.push(esi, &symbol(&mut *encoder, esi));
            assert_eq!(push, Ok(Push::Innovative));
        }
        assert_eq!((decoder.needed(), decoder.prefix()), (0, 0));
        assert_eq!(decoder.solve(), Ok(true));
        assert_eq!(decoder.source(), source);
    }
}

#[test]
fn nothing_but_repair_symbols() {
    for k in [1, 2, 63, 64, 65, 255, 256] {
        // Beyond one strip of the final solve.
        let spec = BlockSpec::new(k, 2100, 3).unwrap();
        let source = block(spec);
        let mut encoder = DenseScheme::AUTO.encoder(spec, source.clone()).unwrap();
        let mut decoder = DenseScheme::AUTO.decoder(spec, Vec::new()).unwrap();
        let mut esi = k;
        while decoder.needed() > 0 {
            decoder.push(esi, &symbol(&mut *encoder, esi)).unwrap();
            esi += 1;
        }
        assert_eq!(decoder.solve(), Ok(true));
        assert!(decoder.source() == source, "K = {k}");
    }
}

#[test]
fn kernels_are_interchangeable() {
    let spec = BlockSpec::new(20, 201, 77).unwrap();
    let source = block(spec);
    let mut reference = DenseScheme::with_kernel(&Kernel::SCALAR)
        .encoder(spec, source.clone())
        .unwrap();
    for kernel in Kernel::available() {
        let code = DenseScheme::with_kernel(kernel);
        let mut encoder = code.encoder(spec, source.clone()).unwrap();
        let mut decoder = code.decoder(spec, Vec::new()).unwrap();
        for esi in (0..15).chain(20..25) {
            let made = symbol(&mut *encoder, esi);
            assert_eq!(made, symbol(&mut *reference, esi), "{}", kernel.name());
            decoder.push(esi, &made).unwrap();
        }
        assert_eq!(decoder.solve(), Ok(true), "{}", kernel.name());
        assert_eq!(decoder.source(), source, "{}", kernel.name());
    }
}
