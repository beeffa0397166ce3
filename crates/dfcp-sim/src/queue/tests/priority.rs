//! Signalling before data (DFCP-J §4.3).

use super::*;

fn control(id: u64) -> Parcel {
    Parcel {
        priority: Priority::Control,
        ..parcel(id, 9, 40)
    }
}

fn control_first(discipline: Discipline, limit: Limit) -> Queue<Parcel> {
    let config = QueueConfig {
        discipline,
        limit,
        priority: PriorityMode::ControlFirst,
    };
    Queue::new(&config, Shares::equal(), Seed(1).stream("queue"))
}

/// A full buffer neither delays nor drops signalling: it waits for the packet in the transmitter
/// at most, and leaves in order.
#[test]
fn signalling_overtakes_a_full_buffer() {
    for discipline in all_disciplines() {
        let queue = control_first(discipline, Limit::Packets(4));
        // A millisecond for each packet of data, 40 µs for each of signalling.
        let mut server = Server::new(queue, Rate::from_bps(8_000_000));
        for id in 0..20 {
            server.arrive(at(id), parcel(id, id as u32 % 3, 1000));
        }
        for id in 100..103 {
            server.arrive(at(id), control(id));
        }
        server.run(at(u64::MAX));
        let order: Vec<u64> = server.departed.iter().map(|(_, p)| p.id).collect();
        assert_eq!(order[1..4], [100, 101, 102], "{discipline:?}");
        let lost = server.dropped.iter();
        assert_eq!(lost.filter(|(_, p, _)| p.id >= 100).count(), 0);
        let (last, _) = server.departed[3];
        assert_eq!(last, at(1_000_000 + 3 * 40_000), "{discipline:?}");
    }
}

/// Without the line of its own, signalling waits and is dropped like everything else.
#[test]
fn signalling_waits_its_turn_unless_told_otherwise() {
    let queue = queue(Discipline::Fifo, Limit::Packets(4), 1);
    let mut server = Server::new(queue, Rate::from_bps(8_000_000));
    for id in 0..5 {
        server.arrive(at(id), parcel(id, 0, 1000));
    }
    server.arrive(at(5), control(100));
    server.run(at(u64::MAX));
    assert_eq!(server.dropped.len(), 1);
    assert_eq!(server.dropped[0].1.id, 100);
}

/// The line has a limit too: whoever calls everything signalling gets no endless buffer.
#[test]
fn the_line_for_signalling_is_bounded() {
    let mut queue = control_first(Discipline::Fifo, Limit::Packets(4));
    let mut dropped = 0;
    for id in 0..10 {
        queue.enqueue(at(0), queued(at(0), control(id)), &mut |_, _| dropped += 1);
    }
    assert_eq!((queue.packets(), queue.bytes(), dropped), (4, 160, 6));
    assert_eq!(queue.packets_of(FlowId(9)), 4);
}
