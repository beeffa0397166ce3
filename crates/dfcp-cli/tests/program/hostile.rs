//! Senders that speak the protocol of files wrongly, on purpose.

use std::fs::File;
use std::io::Write;

use crate::common;
use crate::common::{Bench, Receiver, bytes};
use dfcp::{Connection, Endpoint, EndpointConfig, Progress, PublicKey, RecvStream, SendStream};
use dfcp_transfer::message::VERSION;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

struct Sender {
    connection: Connection,
    send: SendStream,
    recv: RecvStream,
    endpoint: Endpoint,
}

impl Sender {
    async fn connect(bench: &Bench, receiver: &Receiver) -> Self {
        let key: PublicKey = bench.receiver_key.parse().unwrap();
        let endpoint = Endpoint::bind(EndpointConfig::client(dfcp::generate_key().unwrap()));
        let endpoint = endpoint.unwrap();
        let connection = endpoint.connect(receiver.address, Some(key)).await.unwrap();
        let (send, recv) = connection.open_bi().await.unwrap();
        Self {
            connection,
            send,
            recv,
            endpoint,
        }
    }

    async fn leave(self) {
        drop((self.send, self.recv, self.connection));
        self.endpoint.wait_idle().await;
    }

    async fn say(&mut self, message: Value) {
        let json = message.to_string();
        self.send
            .write_all(&(json.len() as u32).to_be_bytes())
            .await
            .unwrap();
        self.send.write_all(json.as_bytes()).await.unwrap();
    }

    async fn offer(&mut self, paths: &[&str]) {
        let entry = |path| json!({"path": path, "size": 3, "mode": 420, "mtime": 0});
        let entries: Vec<_> = paths.iter().map(entry).collect();
        self.say(json!({"type": "offer", "version": VERSION, "entries": entries, "more": false}))
            .await;
    }

    async fn hear(&mut self) -> Option<Value> {
        let mut length = [0; 4];
        for byte in &mut length {
            self.read(std::slice::from_mut(byte)).await?;
        }
        let mut json = vec![0; u32::from_be_bytes(length) as usize];
        self.read(&mut json).await?;
        Some(serde_json::from_slice(&json).unwrap())
    }

    /// The next message that does not only tell how much has arrived.
    async fn hear_of_files(&mut self) -> Option<Value> {
        loop {
            let heard = self.hear().await?;
            if heard["type"] != "progress" {
                return Some(heard);
            }
        }
    }

    async fn read(&mut self, out: &mut [u8]) -> Option<()> {
        let mut filled = 0;
        while filled < out.len() {
            match self.recv.read(&mut out[filled..]).await {
                Ok(0) | Err(_) => return None,
                Ok(n) => filled += n,
            }
        }
        Some(())
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(future)
}

#[test]
fn offers_that_lead_elsewhere_are_rejected() {
    for paths in [&["ok", "../x"][..], &["/x"], &["a", "a/b"], &["a", "a"]] {
        let bench = Bench::new();
        let receiver = bench.receiver(&["--once", "--allow-any"]);
        let reply = block_on(async {
            let mut sender = Sender::connect(&bench, &receiver).await;
            sender.offer(paths).await;
            sender.hear().await
        });
        assert_eq!(reply.unwrap()["type"], "reject", "{paths:?}");
        assert_eq!(receiver.end().0, 1);
        assert_eq!(bench.received(), [""; 0]);
    }
}

#[test]
fn nonsense_ends_the_session() {
    let nonsense = [
        json!({"type": "bogus"}),
        json!([1]),
        json!({"type": "offer", "version": 9,
        "entries": [], "more": false}),
        json!({"type": "sent", "index": 0, "size": 0,
        "blake3": ""}),
    ];
    for message in nonsense {
        let bench = Bench::new();
        let receiver = bench.receiver(&["--once", "--allow-any"]);
        block_on(async {
            let mut sender = Sender::connect(&bench, &receiver).await;
            sender.say(message.clone()).await;
            sender.connection.closed().await
        });
        assert_eq!(receiver.end().0, 1, "{message}");
    }
}

#[test]
fn a_wrong_hash_is_an_integrity_failure() {
    let bench = Bench::new();
    let receiver = bench.receiver(&["--once", "--allow-any"]);
    block_on(async {
        let mut sender = Sender::connect(&bench, &receiver).await;
        sender.offer(&["x"]).await;
        let hash = blake3::hash(b"abd").to_hex().to_string();
        sender
            .say(json!({"type": "pack", "files": [[0, hash]]}))
            .await;
        let path = bench.path("source");
        File::create(&path).unwrap().write_all(b"abc").unwrap();
        let file = File::open(path).unwrap();
        let progress = Progress::default();
        sender
            .connection
            .send_object(file, 3, &progress)
            .await
            .unwrap();
        assert_eq!(sender.hear().await.unwrap()["type"], "accept");
        let reply = sender.hear_of_files().await.unwrap();
        assert_eq!(
            (&reply["status"], &reply["kind"]),
            (&json!("error"), &json!("integrity"))
        );
        assert_eq!(sender.hear_of_files().await.unwrap()["type"], "summary");
        sender.leave().await;
    });
    let (code, report) = receiver.end();
    assert_eq!((code, &report["error"]["kind"]), (6, &json!("integrity")));
    assert_eq!(bench.received(), [""; 0]);
}

#[test]
fn a_client_without_a_word_is_no_session() {
    let bench = Bench::new();
    let receiver = bench.receiver(&["--once", "--allow-any"]);
    block_on(async {
        let key: PublicKey = bench.receiver_key.parse().unwrap();
        let endpoint = Endpoint::bind(EndpointConfig::client(dfcp::generate_key().unwrap()));
        let endpoint = endpoint.unwrap();
        drop(endpoint.connect(receiver.address, Some(key)).await.unwrap());
        endpoint.wait_idle().await;
    });
    let mut sender = bench.sender();
    sender
        .arg(bench.write("x", 1))
        .arg(receiver.address.to_string());
    assert_eq!(common::run(&mut sender).0, 0);
    assert_eq!(receiver.end().0, 0);
    bench.assert_received("x", &bytes("x", 1));
}

#[test]
fn what_a_sender_says_does_not_act_on_the_terminal() {
    let bench = Bench::new();
    let receiver = bench.receiver(&["--once", "--allow-any"]);
    // Clears the screen, pretends a line, and turns the direction of what follows.
    let reason = "\u{1b}[2Jgone\ndfcp: all is well \u{202e}txt.exe";
    block_on(async {
        let mut sender = Sender::connect(&bench, &receiver).await;
        sender.offer(&["x"]).await;
        assert_eq!(sender.hear().await.unwrap()["type"], "accept");
        let code = dfcp::CloseCode::from(300);
        sender.connection.close(code, reason);
        sender.leave().await;
    });
    let line = receiver.says("gone");
    assert!(
        line.contains("\\u{1b}[2Jgone\\u{a}dfcp: all is well \\u{202e}txt.exe"),
        "{line:?}"
    );
    assert!(!line.contains(['\u{1b}', '\u{202e}']), "{line:?}");
    let (_, report) = receiver.end();
    let message = report["error"]["message"].as_str().unwrap();
    assert!(
        message.contains(reason),
        "in JSON it is what was said: {message:?}"
    );
}
