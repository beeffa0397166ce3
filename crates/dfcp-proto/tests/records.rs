//! What a peer has kept or looked through that no credit pays for: it is bounded.

use dfcp_proto::wire::{Frame, write_varint};
use dfcp_proto::{ChannelId, ChannelKind, CloseCode, ConnectionError, Duration, Role};
use raw::RawClient;
use std::collections::BTreeSet;

#[path = "../../../fuzz/src/raw.rs"]
#[allow(dead_code)]
mod raw;

const LIMIT: Option<ConnectionError> = Some(ConnectionError::Violation(CloseCode::LIMIT));

fn id(kind: ChannelKind, index: u64) -> ChannelId {
    ChannelId::new(Role::Client, kind, index)
}

/// Nothing of them was sent, so they use no credit.
#[test]
fn gaps_are_bounded_over_all_channels() {
    let mut raw = RawClient::connect();
    // Each channel alone is within its bound.
    for index in 0..5 {
        for first in (0..10_000).step_by(100) {
            let gaps = (first..first + 100).map(|i| Frame::Skip {
                channel: id(ChannelKind::Object, index).0,
                offset: 2 * i + 1,
                len: 1,
                charged: 0,
            });
            raw.send_frames(&gaps.collect::<Vec<_>>());
        }
    }
    assert_eq!(raw.closed(), LIMIT);
}

/// The channels that are named in the next reports, each of which asks for one.
fn reported(raw: &mut RawClient, reports: u64) -> BTreeSet<u64> {
    let mut named = BTreeSet::new();
    for _ in 0..reports {
        raw.now += Duration::from_millis(5);
        raw.send_frames(&[Frame::ImmediateAck]);
        raw.receive(|_, frame| {
            if let Frame::Blocks(report) = frame {
                named.insert(report.channel);
            }
        });
    }
    named
}

/// Each channel that waits for a report takes time with every packet.
#[test]
fn channels_that_are_over_do_not_all_wait_for_a_report() {
    const ENDED: u64 = 5000;
    let mut raw = RawClient::connect();
    let uni = |index| id(ChannelKind::Uni, index);
    for index in 0..ENDED {
        let reset = Frame::Reset {
            channel: uni(index).0,
            code: 0.into(),
            charged: 0,
        };
        raw.send_frames(&[reset]);
        raw.connection().end_recv(uni(index));
    }
    assert_eq!(raw.closed(), None);
    let name = |raw: &mut RawClient, indices: std::ops::Range<u64>| {
        let fins = indices.map(|index| Frame::Fin {
            channel: uni(index).0,
            size: 0,
        });
        raw.send_frames(&fins.collect::<Vec<_>>());
    };
    for first in (0..ENDED).step_by(100) {
        name(&mut raw, first..first + 100);
    }
    // Four times those that may be open.
    assert_eq!(reported(&mut raw, ENDED).len(), 1024);
    // When these were reported there is room for others.
    name(&mut raw, ENDED - 1..ENDED);
    assert!(reported(&mut raw, 10).contains(&uni(ENDED - 1).0));
}

/// An answer is remembered until one after it is acknowledged.
#[test]
fn a_peer_that_acknowledges_nothing_is_not_answered_for_ever() {
    let ask = |acknowledges: bool| {
        let mut raw = RawClient::connect();
        for _ in 0..80_000 {
            raw.now += Duration::from_millis(1);
            raw.send_frames(&[Frame::ImmediateAck]);
            let mut answer = None;
            raw.receive(|pn, _| answer = Some(pn));
            if let Some(number) = answer.filter(|number| acknowledges && number % 64 == 0) {
                let mut ack = vec![0x02];
                for value in [number, 0, 0, 0, 1, 0] {
                    write_varint(&mut ack, value);
                }
                raw.send(&ack);
            }
        }
        raw.closed()
    };
    assert_eq!(ask(false), LIMIT);
    assert_eq!(ask(true), None, "one in 64 is enough");
}
