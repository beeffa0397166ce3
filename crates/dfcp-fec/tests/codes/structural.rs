//! Blocks without bytes need what blocks with bytes need.

use dfcp_fec::{BlockSpec, FecError, MAX_ESI, Push, SchemeId, scheme, structural};
use proptest::prelude::*;

/// A block of one of the schemes and the ESIs that arrive, in order. Small K: there dependent
/// symbols are frequent.
fn arrivals() -> impl Strategy<Value = (SchemeId, BlockSpec, Vec<u32>)> {
    let geometry = prop_oneof![
        (Just(SchemeId::Arq), Just(1u32)),
        (Just(SchemeId::Dense), prop_oneof![1u32..4, 1u32..=256]),
        (Just(SchemeId::Rlnc), prop_oneof![1u32..4, 1u32..=256]),
        (Just(SchemeId::RaptorQ), prop_oneof![1u32..20, 1u32..100]),
        (Just(SchemeId::Raptor), prop_oneof![1u32..20, 1u32..300]),
    ];
    (geometry, 1u16..40, any::<u64>()).prop_flat_map(|((id, k), size, seed)| {
        let esi = prop_oneof![4 => 0..k * 2, 1 => 0..=MAX_ESI];
        let spec = BlockSpec::new(k, size, seed).unwrap();
        let esis = prop::collection::vec(esi, 0..3 * k as usize + 2);
        (Just(id), Just(spec), esis)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn agrees_with_the_code_itself((id, spec, esis) in arrivals()) {
        let source = vec![5; spec.source_len()];
        let mut encoder = scheme(id).encoder(spec, source).unwrap();
        let mut real = scheme(id).decoder(spec, Vec::new()).unwrap();
        let mut bare = structural::scheme(id).decoder(spec, Vec::new()).unwrap();
        let mut symbol = vec![0; spec.symbol_size()];
        for esi in esis {
            encoder.write_symbol(esi, &mut symbol).unwrap();
            prop_assert_eq!(real.push(esi, &symbol), bare.push(esi, &[]));
            prop_assert_eq!(real.needed(), bare.needed());
            prop_assert_eq!(real.prefix(), bare.prefix());
            prop_assert_eq!(real.solve_operations(), bare.solve_operations());
            if real.needed() == 0 {
                let (real_solved, bare_solved) = (real.solve().unwrap(), bare.solve().unwrap());
                // Only RaptorQ draws its failures.
                prop_assert!(real_solved == bare_solved || id == SchemeId::RaptorQ);
                if !real_solved || !bare_solved {
                    break;
                }
            }
            prop_assert_eq!(real.is_complete(), bare.is_complete());
        }
        prop_assert_eq!(bare.spec(), spec);
        prop_assert!(bare.source().is_empty() && bare.into_buffer().capacity() == 0);
    }
}

#[test]
fn raptorq_fails_as_often_as_it_should() {
    let failures = |extra: u32| {
        (0..20_000)
            .filter(|&seed| {
                let spec = BlockSpec::new(10, 8, seed).unwrap();
                let code = structural::scheme(SchemeId::RaptorQ);
                let mut decoder = code.decoder(spec, Vec::new()).unwrap();
                for esi in 10..20 + extra {
                    decoder.push(esi, &[]).unwrap();
                    if esi >= 19 && decoder.solve().unwrap() {
                        return false;
                    }
                }
                assert_eq!(decoder.needed(), 1);
                true
            })
            .count()
    };
    assert!((150..=250).contains(&failures(0)), "{}", failures(0));
    assert!(failures(1) <= 10, "{}", failures(1));
    assert_eq!(failures(2), 0);
}

#[test]
fn bytes_are_refused() {
    let spec = BlockSpec::new(1, 8, 1).unwrap();
    for id in [
        SchemeId::Arq,
        SchemeId::Dense,
        SchemeId::RaptorQ,
        SchemeId::Rlnc,
    ] {
        let code = structural::scheme(id);
        let wrong = Err(FecError::SymbolLength {
            expected: 0,
            actual: 8,
        });
        assert!(code.encoder(spec, vec![0; 8]).is_err());
        let mut encoder = code.encoder(spec, Vec::new()).unwrap();
        assert_eq!(encoder.write_symbol(0, &mut [0; 8]), wrong);
        assert_eq!(
            encoder.write_symbol(MAX_ESI + 1, &mut []),
            Err(FecError::Esi(1 << 24))
        );
        assert_eq!(encoder.write_symbol(0, &mut []), Ok(()));
        let mut decoder = code.decoder(spec, Vec::new()).unwrap();
        assert_eq!(decoder.push(0, &[0; 8]), wrong.map(|()| Push::Redundant));
        assert_eq!(decoder.push(0, &[]), Ok(Push::Innovative));
    }
}
