//! An address that nobody has shown to receive what is sent there.

/// Most bytes that go there for each that came from there (RFC 9000 §8.1).
const FACTOR: u64 = 3;

/// Bytes of the handshake so far, from the DFCP header on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unproven {
    received: u64,
    sent: u64,
}

impl Unproven {
    pub fn new(received: usize) -> Self {
        Self {
            received: received as u64,
            sent: 0,
        }
    }

    pub fn on_received(&mut self, len: usize) {
        self.received += len as u64;
    }

    /// Whether so many bytes may go there; counts them if they may.
    pub fn admit(&mut self, len: usize) -> bool {
        let sent = self.sent + len as u64;
        let may = sent <= FACTOR * self.received;
        if may {
            self.sent = sent;
        }
        may
    }
}
