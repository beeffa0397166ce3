//! Packets that wait until their connection's task, or whoever else has the connection in hand, takes them.

use dfcp_proto::Instant;
use std::net::SocketAddr;
use std::ops::Range;

/// Bytes that packets take which wait for all tasks of an endpoint, at most: as many as its socket is asked to
/// hold. What comes then is lost, as in a full socket.
const MAX_WAITING: usize = 4 << 20;
/// Those that wait for one task in any case: a batch of one system call.
const OWN_WAITING: usize = 64 << 10;

/// A packet that arrived, and where in the inbox its bytes are.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) at: Instant,
    pub(crate) remote: SocketAddr,
    pub(crate) ecn: u8,
    pub(crate) bytes: Range<usize>,
}

/// Packets that wait for their connection's task.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    pub(crate) packets: Vec<Arrived>,
    pub(crate) bytes: Vec<u8>,
}

impl Inbox {
    /// Bytes that a packet takes: of a short one most is what is noted of it.
    pub(crate) fn cost(packet: &[u8]) -> usize {
        packet.len() + size_of::<Arrived>()
    }

    /// Bytes that what waits takes.
    pub(crate) fn held(&self) -> usize {
        self.bytes.len() + self.packets.len() * size_of::<Arrived>()
    }

    /// Whether there is room for another packet while so much waits for all tasks.
    pub(crate) fn has_room(&self, waiting: usize) -> bool {
        waiting <= MAX_WAITING || self.held() <= OWN_WAITING
    }

    pub(crate) fn push(&mut self, at: Instant, remote: SocketAddr, ecn: u8, packet: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(packet);
        let bytes = start..self.bytes.len();
        self.packets.push(Arrived {
            at,
            remote,
            ecn,
            bytes,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is noted of each takes memory, too: counted by their bytes alone there would be no end of them.
    #[test]
    fn packets_without_bytes_fill_an_inbox() {
        let remote = SocketAddr::from(([127, 0, 0, 1], 1));
        for len in [0, 1, 1500] {
            let (mut inbox, packet) = (Inbox::default(), vec![0; len]);
            let (mut waiting, most) = (MAX_WAITING + 1, OWN_WAITING);
            for _ in 0..=most {
                if inbox.has_room(waiting) {
                    waiting += Inbox::cost(&packet);
                    inbox.push(Instant::ZERO, remote, 0, &packet);
                }
            }
            let takes = inbox.packets.len() * size_of::<Arrived>() + inbox.bytes.len();
            assert!(takes <= most + Inbox::cost(&packet), "{takes} of {len}");
            // What is counted is what goes when it is taken out.
            assert_eq!(inbox.held(), waiting - MAX_WAITING - 1);
        }
    }
}
