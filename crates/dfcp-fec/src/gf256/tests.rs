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

#[test]
#[should_panic]
fn sums_with_the_target_are_refused() {
    Kernel::best().sum_within(&mut [0; 30], 10, 1, Start::Out, &[0, 1]);
}

#[test]
#[should_panic]
fn sums_of_rows_beyond_the_buffer_are_refused() {
    Kernel::best().sum_within(&mut [0; 29], 10, 1, Start::Out, &[0, 2]);
}

#[test]
#[should_panic]
fn sums_into_rows_beyond_the_buffer_are_refused() {
    Kernel::best().sum_within(&mut [0; 29], 10, 2, Start::Out, &[0]);
}

#[test]
#[should_panic]
fn sums_of_rows_beyond_another_buffer_are_refused() {
    let rows = Rows::new(&[0; 19], 10, &[1]);
    Kernel::best().sum(&mut [0; 10], Start::Zero, rows);
}

#[test]
#[should_panic]
fn sums_from_too_few_bytes_are_refused() {
    let rows = Rows::new(&[0; 20], 10, &[1]);
    Kernel::best().sum(&mut [0; 10], Start::Bytes(&[0; 9]), rows);
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

    /// Rows at any offset from a cache line: of whole lines, or not.
    #[test]
    fn sums_are_combinations_by_ones(
        len in prop_oneof![1usize..1500, (1usize..40).prop_map(|lines| lines * 64)],
        offset in 0usize..64,
        index in prop::collection::vec(0u16..9, 0..20),
        target in 0u16..9,
        start in 0..3usize,
    ) {
        let data: Vec<u8> = (0..offset + 10 * len).map(|i| ((i * 37) >> 2) as u8).collect();
        let index: Vec<u16> = index.into_iter().filter(|&row| row != target).collect();
        let ones = vec![1; index.len()];
        let (rows, other) = data[offset..].split_at(9 * len);
        let at = usize::from(target) * len;
        let mut expected = vec![0; len];
        let picked = Rows::new(rows, len, &index);
        Kernel::SCALAR.combine(&mut expected, &ones, picked);
        let start = [Start::Zero, Start::Out, Start::Bytes(other)][start];
        let first = match start {
            Start::Zero => &vec![0; len],
            Start::Out => &rows[at..at + len],
            Start::Bytes(bytes) => bytes,
        };
        expected.iter_mut().zip(first).for_each(|(sum, first)| *sum ^= first);
        for kernel in Kernel::available() {
            let mut out = rows[at..at + len].to_vec();
            kernel.sum(&mut out, start, picked);
            prop_assert!(out == expected, "{}", kernel.name());
            let mut all = data.clone();
            kernel.sum_within(&mut all[offset..][..9 * len], len, target, start, &index);
            prop_assert!(all[offset + at..][..len] == expected, "{} within", kernel.name());
            all[offset + at..][..len].copy_from_slice(&rows[at..at + len]);
            prop_assert!(all == data, "{} wrote elsewhere", kernel.name());
        }
    }
}
