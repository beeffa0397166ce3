//! Observers, and connections that one of them holds up.

use crate::{PATIENCE, bytes, client, pair_of, server_at, within};
use dfcp::observe::{Instant, Observation, Observe, Role};
use dfcp::{Progress, TransportConfig};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Counts packets sent, with nothing but what the library names.
#[derive(Debug)]
struct Meter(Arc<AtomicU64>);

impl Observe for Meter {
    fn observe(&mut self, _: Instant, event: &Observation<'_>) {
        if let Observation::Sent(_) = event {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[tokio::test]
async fn an_observer_of_ones_own_sees_one_end() {
    within(async {
        let sent = Arc::new(AtomicU64::new(0));
        let meter = sent.clone();
        let transport = TransportConfig::default().observer(move |vantage| {
            let is_client = vantage.role == Role::Client;
            is_client.then(|| Box::new(Meter(meter.clone())) as Box<dyn Observe>)
        });
        let (client, server) = (client(), server_at("127.0.0.1:0"));
        let connect = client.connect_with(transport, server.local_addr(), None);
        let (near, far) = tokio::join!(connect, server.accept());
        let (near, _far) = (near.expect("connects"), far.expect("comes").accept());
        let mut out = near.open_uni().await.expect("opens");
        out.write_all(&bytes(500_000)).await.expect("fits");
        out.shutdown().await.expect("arrives");
        let (seen, counted) = (sent.load(Ordering::Relaxed), near.stats().packets_sent);
        assert!(seen >= 350 && seen <= counted, "{seen} of {counted}");
    })
    .await;
}

/// Holds a connection up, in the middle of whatever it does.
#[derive(Clone, Debug, Default)]
struct Gate(Arc<(Mutex<Phase>, Condvar)>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    /// Closed to the next packet that is sent.
    Closed,
    /// It came.
    Holding,
    Left,
}

impl Gate {
    fn set(&self, phase: Phase) {
        *self.0.0.lock().expect("no test failed with it") = phase;
        self.0.1.notify_all();
    }

    /// Waits for a phase; false if it does not come.
    fn reaches(&self, phase: Phase) -> bool {
        let now = self.0.0.lock().expect("no test failed with it");
        let waited = self
            .0
            .1
            .wait_timeout_while(now, PATIENCE, |now| *now != phase);
        !waited.expect("no test failed with it").1.timed_out()
    }
}

impl Observe for Gate {
    fn observe(&mut self, _: Instant, event: &Observation<'_>) {
        let closed = *self.0.0.lock().expect("no test failed with it") == Phase::Closed;
        if closed && matches!(event, Observation::Sent(_)) {
            self.set(Phase::Holding);
            if !self.reaches(Phase::Open) {
                self.set(Phase::Left);
            }
        }
    }
}

/// One that is held up with its state in hand, and one that is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn connections_do_not_wait_for_each_other() {
    let (client, server, gate) = (client(), server_at("127.0.0.1:0"), Gate::default());
    let observer = gate.clone();
    let observed = TransportConfig::default().observer(move |_| Some(Box::new(observer.clone())));
    let address = server.local_addr();
    let connect = client.connect_with(observed, address, server.public_key());
    let (held, held_far) = tokio::join!(connect, server.accept());
    let (held, held_far) = (held.expect("connects"), held_far.expect("comes").accept());
    let (near, far) = pair_of(&client, &server).await;

    let mut out = held.open_uni().await.expect("opens");
    gate.set(Phase::Closed);
    out.write_all(b"held up").await.expect("fits");
    let arrived = gate.clone();
    let holds = tokio::task::spawn_blocking(move || arrived.reaches(Phase::Holding));
    assert!(holds.await.expect("waits"), "nothing was sent");

    // Both ways, new ones and old ones, as if nothing were.
    let (third, third_far) = pair_of(&client, &server).await;
    for (near, far) in [(&near, &far), (&third_far, &third)] {
        let data = bytes(3_000_000);
        let progress = Progress::default();
        let send = near.send_object_from(&data[..], &progress);
        let receive = async {
            let object = far.accept_object().await.expect("comes");
            let mut got = Vec::new();
            let received = object.recv_object_into(&mut got, u64::MAX, &progress);
            received.await.expect("receives");
            got
        };
        let (sent, got) = within(async { tokio::join!(send, receive) }).await;
        sent.expect("sends");
        assert!(got == data, "bytes differ");
    }
    let phase = *gate.0.0.lock().expect("no test failed with it");
    assert_eq!(phase, Phase::Holding, "they waited for it");
    gate.set(Phase::Open);
    within(async {
        out.finish().expect("ends");
        let mut inside = held_far.accept_uni().await.expect("comes");
        let mut text = String::new();
        inside.read_to_string(&mut text).await.expect("is whole");
        assert_eq!(text, "held up");
    })
    .await;
}
