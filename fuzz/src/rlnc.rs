//! Progressive decoder and recoder of network coding.

use super::Input;
use dfcp_fec::{BlockDecoder, BlockSpec, Recoder, RlncDecoder, coefficient_vector, structural};
use dfcp_fec::{SchemeId, gf256, scheme};

/// Any vectors, any symbols, in any order, into decoder and recoder. With the lowest bit of the
/// first byte set symbols are what their vectors say, and every source symbol said to be known is
/// right. Rank and verdicts of decoder, recoder and their twins without bytes always agree.
pub fn vectors(data: &[u8]) {
    let mut input = Input(data);
    let (mode, seed) = (input.byte(), input.wide());
    let (k, size) = (usize::from(input.byte()), usize::from(input.byte()) % 20);
    let Ok(spec) = BlockSpec::new(k as u32, size as u16, seed) else {
        return;
    };
    let mut decoder = RlncDecoder::new(spec, Vec::new()).expect("K is below 256");
    let mut bare = structural::rlnc_decoder(spec).expect("K is below 256");
    let mut relay = Recoder::new(spec, seed).expect("K is below 256");
    let honest = mode & 1 == 1;
    let source: Vec<u8> = (0..k * size).map(|i| (i * 7 + i / 256) as u8).collect();
    let mut encoder = scheme(SchemeId::Rlnc)
        .encoder(spec, source.clone())
        .expect("its length is right");
    let mut pushed = 0;
    for _ in 0..150 {
        if input.is_empty() {
            break;
        }
        let op = input.byte();
        let (mut vector, mut symbol) = (vec![0; k], vec![op; size]);
        let before = decoder.rank();
        let verdict = match op & 3 {
            0 => {
                let esi = u32::from(input.byte()) << (input.byte() % 20);
                let _ = encoder.write_symbol(esi, &mut symbol);
                let verdict = decoder.push(esi, &symbol);
                assert_eq!(bare.push(esi, &[]), verdict);
                assert_eq!(relay.push(esi, &symbol), verdict);
                assert_eq!(
                    coefficient_vector(seed, esi, &mut vector).is_ok(),
                    verdict.is_ok()
                );
                verdict
            }
            1 => {
                let recoded = relay.recode(&mut vector, &mut symbol);
                assert_eq!(recoded.is_ok(), relay.rank() > 0);
                let verdict = decoder.push_coded(&vector, &symbol);
                assert_eq!(verdict.is_ok(), recoded.is_ok());
                assert_eq!(decoder.rank(), before, "the relay holds the same symbols");
                assert_eq!(bare.push_coded(&vector, &[]), verdict);
                assert_eq!(relay.push_coded(&vector, &symbol), verdict);
                verdict
            }
            _ => {
                let len = usize::from(input.byte());
                vector = input.bytes(len).to_vec();
                if op & 4 == 0 {
                    vector.resize(k, op >> 3);
                }
                symbol = combination(&source, &vector, size);
                if !honest {
                    symbol = input.bytes(usize::from(op >> 3)).to_vec();
                }
                let verdict = decoder.push_coded(&vector, &symbol);
                assert_eq!(relay.push_coded(&vector, &symbol), verdict);
                if symbol.len() == size {
                    assert_eq!(bare.push_coded(&vector, &[]), verdict);
                }
                verdict
            }
        };
        pushed += u64::from(verdict.is_ok());
        assert_eq!(decoder.rank(), bare.rank());
        assert_eq!(decoder.rank(), relay.rank());
        assert_eq!(pushed, u64::from(decoder.rank()) + decoder.redundant());
        assert_eq!(decoder.needed() + decoder.rank(), k as u32);
        // Rows and vectors grow by doubling.
        assert!(decoder.memory() < 4096 + k * size + 2 * k * (k + 4));
        assert!(relay.memory() < 4096 + 2 * k * (size + 2 * k + 8));
        if honest {
            let symbols = source.chunks(size).zip(decoder.source().chunks(size));
            for (i, (sent, received)) in symbols.enumerate() {
                assert!(!decoder.is_known(i) || sent == received);
            }
        }
    }
}

fn combination(source: &[u8], vector: &[u8], size: usize) -> Vec<u8> {
    let mut out = vec![0; size];
    for (symbol, &c) in source.chunks(size).zip(vector) {
        for (out, &byte) in out.iter_mut().zip(symbol) {
            *out ^= gf256::mul(c, byte);
        }
    }
    out
}
