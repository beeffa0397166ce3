use crate::common::{SECOND, link, pair, small};
use dfcp_proto::published::{Event, State};
use dfcp_sim::{PublishedTransfer, Side};

#[test]
fn data_arrive_and_both_sides_close_in_order() {
    let mut pair = pair(link(20), small(), 1);
    assert!(pair.establish(SECOND));
    let mut up = PublishedTransfer::new(Side::Client, 500_000);
    let mut down = PublishedTransfer::new(Side::Server, 300_000);
    assert!(pair.run_until(5 * SECOND, |pair| {
        let (up, down) = (up.poll(pair), down.poll(pair));
        up && down
    }));
    assert!(pair.run_until(20 * SECOND, |pair| pair.states() == [State::Closed; 2]));
    for side in Side::BOTH {
        assert!(pair.saw(side, &Event::Closed(None)), "{side:?}");
        assert!(pair.saw(side, &Event::PeerFinished), "{side:?}");
    }
}
