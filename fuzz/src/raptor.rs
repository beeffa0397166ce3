//! The published Raptor code.

use super::Input;
use dfcp_fec::raptor::{Degrees, LdpcDegrees, RaptorCode, RaptorParameters, State};

/// Any parameters, any states, any symbols into the published code. With the lowest bit of the first
/// byte set symbols come from an encoder, and a block that says it is solved is the source. The
/// decoder without bytes always agrees.
pub fn decoder(data: &[u8]) {
    let mut input = Input(data);
    let mode = input.byte();
    let degrees = match mode >> 1 & 3 {
        0 => Degrees::IdealSoliton,
        1 => Degrees::RobustSoliton {
            c_millionths: input.word(),
            delta_millionths: input.word(),
        },
        _ => Degrees::Shokrollahi,
    };
    // Mostly small blocks, so that some are solved; as large as the bytes say otherwise.
    let large = mode & 0x80 != 0;
    let mut size = |limit: u32| {
        if large {
            input.word()
        } else {
            u32::from(input.byte()) % limit
        }
    };
    let k = size(40);
    let n = k.saturating_add(size(16));
    let symbol_size = (input.number() % 20) as u16;
    let ldpc_degrees = match input.byte() % 40 {
        degree @ 0..=33 => LdpcDegrees::Constant(degree),
        many => {
            let list = (33..many).map(|_| (input.byte() % 40, u16::from(input.byte())));
            LdpcDegrees::Weighted(list.collect())
        }
    };
    let Some(precode) = State::new(input.word(), input.word(), input.word()) else {
        return;
    };
    let Ok(code) = RaptorCode::new(RaptorParameters {
        k,
        n,
        symbol_size,
        ldpc_degrees,
        degrees,
        precode,
    }) else {
        return;
    };
    let honest = mode & 1 == 1;
    let len = k as usize * usize::from(symbol_size);
    let source: Vec<u8> = (0..len).map(|i| (i * 7 + i / 256) as u8).collect();
    let encoder = code.encoder(source.clone()).expect("its length is right");
    let mut real = code.decoder(Vec::new());
    let mut bare = code.structural_decoder();
    for index in 0..200 {
        if input.is_empty() {
            break;
        }
        let op = input.byte();
        let given = State::new(input.word(), input.word(), input.word());
        let state = match given {
            Some(state) if op & 1 == 0 => state,
            _ => precode.of_packet(0, index),
        };
        let symbols = u32::from(op >> 1) % 20;
        let mut payload = vec![op; symbols as usize * usize::from(symbol_size)];
        if honest {
            encoder.write_symbols(state, &mut payload);
        } else if op & 0x80 != 0 {
            payload = input.bytes(usize::from(op)).to_vec();
        }
        let whole = payload.len() == symbols as usize * usize::from(symbol_size);
        let pushed = real.push(state, symbols, &payload);
        if whole {
            assert_eq!(pushed, bare.push(state, symbols, &[]));
        } else {
            assert!(pushed.is_err());
        }
        assert_eq!(real.received(), bare.received());
        let solved = real.solve();
        assert_eq!(solved, bare.solve());
        if honest && solved {
            assert_eq!(real.source(), source);
        }
    }
}
