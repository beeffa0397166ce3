//! What both sides have to do with a server: its cookie, and that answers come from it.

use std::net::SocketAddr;

use dfcp_proto::{Duration, Instant, SecretRng};

use crate::machine::Datagram;
use crate::wire::{Allowance, Id, Request, Response};

/// A new cookie is answered at once, but not oftener than this: two programs that answer each other
/// at once must not do so for ever.
const AT_ONCE: Duration = Duration::from_millis(100);

/// A server as one side knows it.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    /// In each request, and in what answers it: who does not see the requests cannot forge answers.
    nonce: u64,
    cookie: Id,
    asked: Option<Instant>,
    /// This side's address as the server sees it.
    pub seen: Option<SocketAddr>,
    /// What it relays.
    pub relay: Option<Allowance>,
}

impl Link {
    /// Nothing is sent yet.
    pub fn new(address: SocketAddr, rng: &mut SecretRng) -> Self {
        Self {
            address,
            nonce: u64::from_be_bytes(rng.array()),
            cookie: [0; 16],
            asked: None,
            seen: None,
            relay: None,
        }
    }

    /// The server's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The datagram of a request.
    pub fn request(&self, request: &Request) -> Datagram {
        (self.address, request.encode(self.nonce, &self.cookie))
    }

    /// Whether a response is the server's.
    pub fn is_genuine(&self, from: SocketAddr, nonce: u64, response: &Response) -> bool {
        // Letters that a server passes on answer no request; what is in them proves itself.
        let pushed = matches!(
            response,
            Response::Delivered { .. } | Response::Answer { .. }
        );
        from == self.address && (pushed || nonce == self.nonce)
    }

    /// Takes a cookie; whether to ask again at once.
    pub fn take_cookie(&mut self, now: Instant, cookie: Id) -> bool {
        let recent = self
            .asked
            .is_some_and(|asked| now.saturating_since(asked) < AT_ONCE);
        let again = self.cookie != cookie && !recent;
        self.cookie = cookie;
        if again {
            self.asked = Some(now);
        }
        again
    }
}
