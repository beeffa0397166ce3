//! What users of the published code rely on: with ε = 10 % every block decodes, and peeling alone
//! needs about 4 %.

use dfcp_fec::raptor::{RaptorCode, RaptorParameters, State};

#[test]
fn the_published_code_decodes_with_its_redundancy() {
    let code = RaptorCode::new(RaptorParameters::published(State::from_seed(1))).unwrap();
    let initial = State::from_seed(77);
    let (k, packet) = (63_536, 1456);
    let blocks = 30;
    let mut extra = 0;
    for block in 0..blocks {
        let mut peeling = code.structural_decoder();
        peeling.limit_inactivation(0);
        // Every other packet is lost: which ones does not matter.
        let mut packets = (0..)
            .step_by(2)
            .map(|index| initial.of_packet(block, index));
        let mut receive = |symbols| {
            let state = packets.next().unwrap();
            peeling.push(state, symbols, &[]).unwrap();
            peeling.solve()
        };
        while !receive(packet) {}
        let symbols = peeling.received();
        extra += symbols - k;
        assert!(symbols <= k + k / 10, "block {block}: {symbols} symbols");
    }
    // The last packet brings half a packet too much on average.
    let mean = (f64::from(extra / blocks) - f64::from(packet) / 2.0) / f64::from(k);
    assert!((0.035..0.045).contains(&mean), "mean overhead {mean}");
}

#[test]
fn inactivation_saves_most_of_the_overhead() {
    let code = RaptorCode::new(RaptorParameters::published(State::from_seed(1))).unwrap();
    let mut decoder = code.structural_decoder();
    decoder
        .push(State::from_seed(5), 63_536 * 102 / 100, &[])
        .unwrap();
    assert!(decoder.solve());
}
