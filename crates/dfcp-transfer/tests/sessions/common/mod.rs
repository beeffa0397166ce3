//! What several test binaries use.
#![allow(dead_code)] // no test file uses all of this

use std::collections::BTreeMap;
use std::sync::Arc;

use dfcp::{Connection, Endpoint, EndpointConfig, RecvStream, TransportConfig};
use dfcp_transfer::message::{FromReceiver, Reader};
use dfcp_transfer::{DONE, Error, Meter, Outcome, Received, Sent, Sources, Store};

/// Two endpoints and the connection between them, seen from both ends.
pub async fn connected() -> ([Endpoint; 2], Connection, Connection) {
    connected_with(&TransportConfig::default()).await
}

/// The same, with this at both ends.
pub async fn connected_with(
    transport: &TransportConfig,
) -> ([Endpoint; 2], Connection, Connection) {
    let key = || dfcp::generate_key().unwrap();
    let address = "127.0.0.1:0".parse().unwrap();
    let server = EndpointConfig::server(key(), address).transport(transport.clone());
    let server = Endpoint::bind(server).unwrap();
    let client = EndpointConfig::client(key()).transport(transport.clone());
    let client = Endpoint::bind(client).unwrap();
    let connect = client.connect(server.local_addr(), Some(server.public_key()));
    let (near, far) = tokio::join!(connect, server.accept());
    ([client, server], near.unwrap(), far.unwrap().accept())
}

/// What a transfer came to, as both ends saw it.
pub struct Transfer {
    pub sent: Result<Sent, Error>,
    pub received: Received,
    pub sending: Arc<Meter>,
    pub receiving: Arc<Meter>,
    /// All that the sender sent.
    pub bytes_sent: u64,
}

/// Sends files into a directory, over a connection of its own.
pub async fn transfer(sources: &Arc<Sources>, store: Store) -> Transfer {
    let (_endpoints, near, far) = connected().await;
    let [sending, receiving] = [Meter::start(), Meter::start()];
    let send = async {
        let sent = dfcp_transfer::send(&near, sources, &sending).await;
        let bytes = near.stats().bytes_sent;
        near.close(DONE, "");
        (sent, bytes)
    };
    let receive = dfcp_transfer::receive(&far, Arc::new(store), &receiving, async |_| Ok(()));
    let ((sent, bytes_sent), received) = tokio::join!(send, receive);
    Transfer {
        sent,
        received: received.unwrap(),
        sending,
        receiving,
        bytes_sent,
    }
}

impl Transfer {
    /// What became of each file, of which both say the same.
    pub fn outcomes(&self) -> &BTreeMap<u64, Outcome> {
        let (sent, received) = (self.sent.as_ref().unwrap(), &self.received);
        assert!(received.failure.is_none(), "{received:?}");
        assert_eq!(sent.outcomes, received.outcomes);
        &sent.outcomes
    }
}

/// Hears a receiver until it has said the last word.
pub async fn hear_out(replies: RecvStream) {
    let mut replies = Reader::new(replies);
    while let Ok(Some(reply)) = replies.next().await {
        if matches!(
            reply,
            FromReceiver::Summary { .. } | FromReceiver::Reject(_)
        ) {
            break;
        }
    }
}
