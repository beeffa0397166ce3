//! Every kernel of this machine against the scalar one, and that one against the definition.

use proptest::prelude::*;

use super::*;

#[test]
fn scalar_is_the_definition() {
    let data: Vec<u8> = (0..=255).chain(0..=255).collect();
    let mut out = [7u8; 200];
    let rows = Rows::new(&data, 56, &[4, 1]);
    Kernel::SCALAR.combine(&mut out, &[0x53, 1], rows);
    for (i, &byte) in out.iter().enumerate() {
        assert_eq!(byte, mul(0x53, data[4 * 56 + i]) ^ data[56 + i]);
    }
    let mut all = data.clone();
    Kernel::SCALAR.accumulate_within(&mut all, 64, &[192], &[0x53, 1], &[4, 1]);
    for i in 0..64 {
        let sum = data[192 + i] ^ mul(0x53, data[256 + i]) ^ data[64 + i];
        assert_eq!(all[192 + i], sum);
    }
}

#[test]
fn no_rows_no_targets_no_bytes() {
    for kernel in Kernel::available() {
        let mut out = [9u8; 70];
        kernel.accumulate_within(&mut out, 70, &[0], &[], &[]);
        kernel.combine_into(&mut out, 70, &[], &[], Rows::new(&[], 70, &[]));
        assert_eq!(out, [9; 70], "{}", kernel.name());
        kernel.combine(&mut out, &[], Rows::new(&[], 70, &[]));
        assert_eq!(out, [0; 70], "{}", kernel.name());
        kernel.combine(&mut [], &[3], Rows::new(&[], 0, &[0]));
    }
}

#[test]
#[should_panic]
fn rows_beyond_the_buffer_are_refused() {
    Kernel::best().combine(&mut [0; 10], &[1], Rows::new(&[0; 19], 10, &[1]));
}

#[test]
#[should_panic]
fn strides_that_overflow_are_refused() {
    Kernel::best().combine(
        &mut [0; 10],
        &[1],
        Rows::new(&[0; 19], usize::MAX / 2 + 1, &[2]),
    );
}

#[test]
#[should_panic]
fn targets_beyond_the_buffer_are_refused() {
    let rows = Rows::new(&[0; 20], 10, &[1]);
    Kernel::best().combine_into(&mut [0; 20], 10, &[0, 11], &[1, 1], rows);
}

#[test]
#[should_panic]
fn target_among_the_rows_is_refused() {
    Kernel::best().accumulate_within(&mut [0; 20], 10, &[10], &[1], &[1]);
}

#[test]
#[should_panic]
fn targets_that_overlap_are_refused() {
    let rows = Rows::new(&[0; 20], 10, &[1]);
    Kernel::best().combine_into(&mut [0; 20], 10, &[0, 9], &[1, 1], rows);
}

#[test]
#[should_panic]
fn missing_coefficients_are_refused() {
    Kernel::best().accumulate_within(&mut [0; 30], 10, &[0, 10], &[1], &[2]);
}

fn coefficient() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0u8), Just(1u8), any::<u8>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn kernels_agree(
        len in 0usize..1500,
        gap in 0usize..70,
        offset in 0usize..64,
        outputs in 1usize..10,
        index in prop::collection::vec(0u16..20, 0..40),
        pool in prop::collection::vec(coefficient(), 10 * 40),
        seed in any::<u8>(),
    ) {
        let stride = len + gap;
        let data: Vec<u8> = (0..offset + 20 * stride + len)
            .map(|i| ((i * 31) >> 3) as u8 ^ (i as u8).wrapping_mul(seed))
            .collect();
        let rows = Rows::new(&data[offset..], stride, &index);
        let coeffs = &pool[..outputs * index.len()];
        let targets: Vec<usize> = (0..outputs).map(|t| offset + t * stride).collect();
        let start = vec![seed; offset + outputs * stride];
        // One output at a time with the scalar kernel is what all have to match.
        let mut expected = start.clone();
        for (t, &at) in targets.iter().enumerate() {
            let coeffs = &coeffs[t * index.len()..][..index.len()];
            Kernel::SCALAR.combine(&mut expected[at..at + len], coeffs, rows);
        }
        for kernel in Kernel::available() {
            let mut out = start.clone();
            kernel.combine_into(&mut out, len, &targets, coeffs, rows);
            prop_assert!(out == expected, "{}", kernel.name());
        }
    }

    #[test]
    fn within_one_buffer(
        len in 1usize..300,
        targets in prop::sample::subsequence((0..9usize).collect::<Vec<_>>(), 0..9).prop_shuffle(),
        index in prop::collection::vec(0u16..9, 0..20),
        pool in prop::collection::vec(coefficient(), 9 * 20),
    ) {
        let index: Vec<u16> =
            index.into_iter().filter(|&row| !targets.contains(&usize::from(row))).collect();
        let coeffs = &pool[..targets.len() * index.len()];
        let data: Vec<u8> = (0..9 * len).map(|i| ((i * 37) >> 2) as u8).collect();
        let rows = Rows::new(&data, len, &index);
        let mut expected = data.clone();
        for (t, &target) in targets.iter().enumerate() {
            let mut sum = vec![0; len];
            Kernel::SCALAR.combine(&mut sum, &coeffs[t * index.len()..][..index.len()], rows);
            for (byte, sum) in expected[target * len..].iter_mut().zip(sum) {
                *byte ^= sum;
            }
        }
        let targets: Vec<usize> = targets.into_iter().map(|row| row * len).collect();
        for kernel in Kernel::available() {
            let mut all = data.clone();
            kernel.accumulate_within(&mut all, len, &targets, coeffs, &index);
            prop_assert!(all == expected, "{}", kernel.name());
        }
    }
}
