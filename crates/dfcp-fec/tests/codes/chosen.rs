//! Symbols that somebody chose so that they never make up a block: solving them is given up.

use dfcp_fec::{BlockSpec, SchemeId, scheme};
use raptorq::{EncodingPacket, ObjectTransmissionInformation, PayloadId, SourceBlockDecoder};

const K: u32 = 10;
const SIZE: u16 = 4;

/// Whether the symbols `esis` make up a block of zeros.
fn suffice(esis: &[u32]) -> bool {
    let len = u64::from(K) * u64::from(SIZE);
    let config = ObjectTransmissionInformation::new(len, SIZE, 1, 1, 1);
    let zeros = vec![0; usize::from(SIZE)];
    let packet = |&esi: &u32| EncodingPacket::new(PayloadId::new(0, esi), zeros.clone());
    SourceBlockDecoder::new(0, &config, len)
        .decode(esis.iter().map(packet))
        .is_some()
}

/// Repair symbols of which any number from K on leaves the block undetermined: one in a hundred
/// adds nothing to those before it, and whoever chooses takes that one.
fn deficient(count: usize) -> Vec<u32> {
    let mut chosen: Vec<u32> = (K..2 * K - 1).collect();
    let mut next = 2 * K;
    while chosen.len() < count {
        chosen.push(next);
        next += 1;
        if chosen.len() >= K as usize && suffice(&chosen) {
            chosen.pop();
        }
    }
    chosen
}

#[test]
fn raptorq_symbols_that_never_suffice_cost_few_solves() {
    let code = scheme(SchemeId::RaptorQ);
    let spec = BlockSpec::new(K, SIZE, 0).expect("a geometry");
    let mut decoder = code.decoder(spec, Vec::new()).expect("a decoder");
    let (mut solves, mut gave_up) = (0, false);
    for esi in deficient(80) {
        decoder.push(esi, &[0; SIZE as usize]).expect("fits");
        if decoder.needed() == 0 {
            solves += 1;
            match decoder.solve() {
                Ok(solved) => assert!(!solved, "the symbols are not chosen well"),
                Err(_) => {
                    gave_up = true;
                    break;
                }
            }
        }
    }
    assert!(
        gave_up && solves <= 8,
        "{solves} solves of 80 symbols, given up: {gave_up}"
    );
}

/// What fails by chance must not be taken for an attack.
#[test]
fn honest_blocks_of_every_size_are_solved_all_the_same() {
    for id in [SchemeId::RaptorQ, SchemeId::Raptor] {
        for k in [1, 2, 5, 17, 64, 301] {
            for seed in 0..10 {
                let spec = BlockSpec::new(k, 16, seed).expect("a geometry");
                let source: Vec<u8> = (0..k * 16).map(|i| (i ^ seed as u32) as u8).collect();
                let mut encoder = scheme(id).encoder(spec, source.clone()).expect("encodes");
                let mut decoder = scheme(id).decoder(spec, Vec::new()).expect("decodes");
                let mut symbol = [0; 16];
                for esi in k.. {
                    encoder.write_symbol(esi, &mut symbol).expect("writes");
                    decoder.push(esi, &symbol).expect("takes it");
                    if decoder.needed() == 0 && decoder.solve().expect("by chance they suffice") {
                        break;
                    }
                }
                assert!(decoder.source() == source, "{id:?} {k} {seed}");
            }
        }
    }
}
