//! The code as a whole.

use super::*;

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

#[test]
fn the_published_code_decodes() {
    let code = RaptorCode::new(RaptorParameters::published(State::from_seed(1))).unwrap();
    let source = bytes(5, 63_536);
    let encoder = code.encoder(source.clone()).unwrap();
    let mut decoder = code.decoder(Vec::new());
    let mut bare = code.structural_decoder();
    let mut packet = [0; 1456];
    for index in 0.. {
        let state = State::from_seed(9).of_packet(0, index);
        encoder.write_symbols(state, &mut packet);
        decoder.push(state, 1456, &packet).unwrap();
        bare.push(state, 1456, &[]).unwrap();
        let solved = decoder.solve();
        assert_eq!(bare.solve(), solved);
        if solved {
            break;
        }
    }
    println!("{}", decoder.received());
    assert!(decoder.source() == source);
}
