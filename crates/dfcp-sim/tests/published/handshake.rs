use crate::common::{MS, lossy, pair, small};
use dfcp_proto::published::State;

#[test]
fn a_clean_handshake_takes_one_round_trip_and_a_half() {
    let mut pair = pair(crate::common::link(20), small(), 1);
    let begun = pair.now;
    assert!(pair.establish(MS(40)));
    assert_eq!(pair.states(), [State::Established; 2]);
    let took = pair.now.saturating_since(begun);
    assert!(took >= MS(30) && took < MS(31), "{took:?}");
    let _ = lossy;
}
