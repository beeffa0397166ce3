//! How far a sender may be ahead of its reader.

use super::*;

#[test]
fn a_stream_s_limit_follows_its_reader() {
    let mut pair = Pair::new(ChannelKind::Stream, SchemeId::Dense, Reliability::Reliable);
    let config = TransportConfig::default().initial_stream_window(65_536);
    pair.recv = RecvChannel::new(pair.id, &config);
    assert_eq!(pair.recv.limit(), 65_536);
    assert_eq!(pair.recv.new_limit(&mut pair.credit), None);
    pair.write(&bytes(40_000));
    pair.round(|_| false);
    assert_eq!(pair.recv.skip(3000, &mut pair.credit), 3000);
    assert_eq!(pair.recv.new_limit(&mut pair.credit), None, "hardly moved");
    assert_eq!(pair.recv.skip(17_000, &mut pair.credit), 17_000);
    pair.recv.on_read(START, ROUND_TRIP);
    // Eight times what was read in a round trip ahead of the reader.
    assert_eq!(pair.recv.new_limit(&mut pair.credit), Some(180_000));
    assert_eq!(pair.recv.new_limit(&mut pair.credit), None);
    assert_eq!(pair.recv.limit(), 180_000);
    assert_eq!(pair.recv.skip(20_000, &mut pair.credit), 20_000);
    pair.recv.on_fin(170_000).expect("its size");
    assert_eq!(
        pair.recv.new_limit(&mut pair.credit),
        None,
        "it ends before"
    );
}

/// A stream that was carried for long does not have a large window for that.
#[test]
fn a_slow_reader_has_a_small_window() {
    let mut pair = Pair::new(ChannelKind::Stream, SchemeId::Dense, Reliability::Reliable);
    let config = TransportConfig::default().initial_stream_window(65_536);
    pair.recv = RecvChannel::new(pair.id, &config);
    let mut now = START;
    for round in 0..60 {
        pair.write(&bytes(5000));
        pair.round(|_| false);
        assert_eq!(pair.recv.skip(5000, &mut pair.credit), 5000);
        pair.recv.on_read(now, ROUND_TRIP);
        pair.recv.new_limit(&mut pair.credit);
        let ahead = pair.recv.limit() - 5000 * (round + 1);
        assert!(ahead <= 65_536, "{ahead} after {round} rounds");
        now += ROUND_TRIP;
    }
}

#[test]
fn a_receive_window_counts_blocks_and_holes() {
    let mut pair = Pair::new(ChannelKind::Stream, SchemeId::Dense, Reliability::Reliable);
    let data = [0; 500];
    let symbol = SymbolIn {
        scheme: SchemeId::Dense,
        offset: 10_001,
        block_len: 5000,
        esi: 0,
        len: 500,
        data: &data,
    };
    assert_eq!(pair.recv.occupancy(), 0);
    pair.recv
        .on_symbol(&symbol, &mut pair.credit)
        .expect("honest");
    // The block, and 10,001 bytes in blocks of 5000 before it.
    assert_eq!(pair.recv.occupancy(), 4);
}
