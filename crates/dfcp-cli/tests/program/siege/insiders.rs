//! Senders that were let in and speak the protocol of files to do harm.

use std::cell::Cell;
use std::net::SocketAddr;

use dfcp::{Connection, Endpoint, EndpointConfig, RecvStream, SendStream};
use dfcp_transfer::message::VERSION;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::Siege;

pub(super) struct Insider {
    pub connection: Connection,
    pub send: SendStream,
    pub recv: RecvStream,
}

impl Insider {
    pub async fn connect(siege: &Siege<'_>, net: u8, host: u8) -> Option<Self> {
        let from = SocketAddr::from(([127, 0, net, host], 0));
        let config = EndpointConfig::client(dfcp::generate_key().unwrap()).bind(from);
        let key = siege.key.parse().unwrap();
        let endpoint = Endpoint::bind(config).unwrap();
        let connection = endpoint.connect(siege.receiver, Some(key)).await.ok()?;
        let (send, recv) = connection.open_bi().await.ok()?;
        Some(Self {
            connection,
            send,
            recv,
        })
    }

    /// Whether the receiver still listens.
    pub async fn say(&mut self, message: &Value) -> bool {
        let json = message.to_string();
        let mut framed = (json.len() as u32).to_be_bytes().to_vec();
        framed.extend(json.into_bytes());
        self.send.write_all(&framed).await.is_ok()
    }
}

pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(future)
}

/// What counts, until it has ended or the siege has.
fn until_over(siege: &Siege<'_>, attack: impl AsyncFnOnce(&Cell<u64>)) -> u64 {
    let count = Cell::new(0);
    block_on(async {
        tokio::select! {
            () = attack(&count) => {}
            () = siege.ended() => {}
        }
    });
    count.get()
}

pub(super) fn offer(names: impl Iterator<Item = String>, size: u64, more: bool) -> Value {
    let entry = |path: String| json!({"path": path, "size": size, "mode": 420, "mtime": 0});
    let entries: Vec<_> = names.map(entry).collect();
    json!({"type": "offer", "version": VERSION, "entries": entries, "more": more})
}

/// Lists of files that never end, or that no disk holds.
pub fn endless_offers(siege: &Siege<'_>) -> u64 {
    until_over(siege, async |count| {
        for round in siege.rounds(40) {
            let Some(mut insider) = Insider::connect(siege, 9, (round % 8) as u8 + 1).await else {
                continue;
            };
            for part in 0..2000 {
                let names = (0..400).map(|i| format!("{part}/{i}/{}", "n".repeat(60)));
                let size = u64::from(round % 2) << 50;
                if !insider.say(&offer(names, size, true)).await {
                    break;
                }
                count.update(|count| count + 1);
                tokio::time::sleep(siege.ahead(count.get())).await;
            }
        }
    })
}

/// One small file is offered, and then far more said of it than there is to say.
pub fn message_floods(siege: &Siege<'_>) -> u64 {
    until_over(siege, async |count| {
        for round in siege.rounds(40) {
            let Some(mut insider) = Insider::connect(siege, 9, (round % 8) as u8 + 9).await else {
                continue;
            };
            let name = format!("flood-{round}");
            insider.say(&offer([name].into_iter(), 3, false)).await;
            let mut reply = [0; 64];
            let _ = insider.recv.read(&mut reply).await;
            let message = "m".repeat(1000);
            for index in 0..20_000 {
                let failed = json!({"type": "failed", "index": index, "message": message});
                if !insider.say(&failed).await {
                    break;
                }
                count.update(|count| count + 1);
                tokio::time::sleep(siege.ahead(count.get())).await;
            }
        }
    })
}
