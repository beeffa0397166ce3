//! Every kernel of this machine against the scalar one, and that one against the definition.

use proptest::prelude::*;

use super::*;

#[test]
fn scalar_is_the_definition() {
    let data: Vec<u8> = (0..=255).chain(0..=255).collect();
    let mut out = [7u8; 200];
    let rows = Rows::new(&data, 56, &[4, 1]);
    Kernel::SCALAR.accumulate(&mut out, &[0x53, 1], rows);
    for (i, &byte) in out.iter().enumerate() {
        assert_eq!(byte, 7 ^ mul(0x53, data[4 * 56 + i]) ^ data[56 + i]);
    }
}

#[test]
fn no_rows_and_no_bytes() {
    for kernel in Kernel::available() {
        let mut out = [9u8; 70];
        kernel.accumulate(&mut out, &[], Rows::new(&[], 70, &[]));
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
fn target_among_the_rows_is_refused() {
    Kernel::best().accumulate_within(&mut [0; 20], 10, 1, &[1], &[1]);
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
        picks in prop::collection::vec((0u16..20, coefficient()), 0..40),
        seed in any::<u8>(),
    ) {
        let (index, coeffs): (Vec<u16>, Vec<u8>) = picks.into_iter().unzip();
        let stride = len + gap;
        let data: Vec<u8> = (0..offset + 20 * stride + len)
            .map(|i| ((i * 31) >> 3) as u8 ^ (i as u8).wrapping_mul(seed))
            .collect();
        let rows = Rows::new(&data[offset..], stride, &index);
        let start: Vec<u8> = (0..len + offset).map(|i| (i as u8).wrapping_mul(seed)).collect();
        let mut expected = start.clone();
        Kernel::SCALAR.accumulate(&mut expected[offset..], &coeffs, rows);
        let mut overwritten = start.clone();
        Kernel::SCALAR.combine(&mut overwritten[offset..], &coeffs, rows);
        for kernel in Kernel::available() {
            let mut out = start.clone();
            kernel.accumulate(&mut out[offset..], &coeffs, rows);
            prop_assert!(out == expected, "{} accumulate", kernel.name());
            let mut out = start.clone();
            kernel.combine(&mut out[offset..], &coeffs, rows);
            prop_assert!(out == overwritten, "{} combine", kernel.name());
        }
    }

    #[test]
    fn within_one_buffer(
        len in 1usize..300,
        target in 0usize..9,
        picks in prop::collection::vec((0u16..9, coefficient()), 0..20),
    ) {
        let (index, coeffs): (Vec<u16>, Vec<u8>) =
            picks.into_iter().filter(|&(row, _)| usize::from(row) != target).unzip();
        let data: Vec<u8> = (0..9 * len).map(|i| ((i * 37) >> 2) as u8).collect();
        let mut expected = data[target * len..][..len].to_vec();
        Kernel::SCALAR.accumulate(&mut expected, &coeffs, Rows::new(&data, len, &index));
        for kernel in Kernel::available() {
            let mut all = data.clone();
            kernel.accumulate_within(&mut all, len, target, &coeffs, &index);
            prop_assert!(all[target * len..][..len] == expected, "{}", kernel.name());
            all[target * len..][..len].copy_from_slice(&data[target * len..][..len]);
            prop_assert!(all == data, "{} touched other rows", kernel.name());
        }
    }
}
