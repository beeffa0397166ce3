//! Receivers that say what cannot be.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dfcp_transfer::message::{self, FromReceiver, Hash};
use dfcp_transfer::{DONE, Meter, Outcome, Sources};

use crate::common::connected;

/// Whoever adds such figures up, of several attempts for example, has no room for them.
#[tokio::test]
async fn a_receiver_has_no_more_bytes_than_were_sent_and_asks_no_longer_than_it_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    fs::write(&path, "content").unwrap();
    let sources = Arc::new(Sources::scan(&[path]).unwrap());
    let (_endpoints, near, far) = connected().await;
    let (meter, start) = (Meter::start(), Instant::now());
    let receive = async {
        let (mut control, _words) = far.accept_bi().await.unwrap();
        for reply in [
            FromReceiver::Accept {
                asked_ms: u64::MAX,
                holes: false,
                changed: false,
            },
            FromReceiver::Progress { bytes: u64::MAX },
            FromReceiver::File {
                index: 0,
                outcome: Outcome::Done,
                changes: Vec::new(),
            },
            FromReceiver::Summary { steady_bps: None },
        ] {
            message::write(&mut control, &reply).await.unwrap();
        }
        far.closed().await;
    };
    let send = async {
        let sent = dfcp_transfer::send(&near, &sources, &meter).await;
        near.close(DONE, "");
        sent.unwrap()
    };
    let (sent, ()) = tokio::join!(send, receive);
    assert_eq!(sent.outcomes[&0], Outcome::Done);
    let (bytes, most) = (meter.progress().bytes(), near.stats().bytes_sent);
    assert!(bytes <= most, "{bytes} of {most}");
    let asked = meter.diary().asked();
    assert!(asked <= start.elapsed(), "{asked:?}");
}

/// A person who waits is shown that both sides read, and that what is there does not come.
#[tokio::test]
async fn a_sender_shows_that_files_are_compared_and_expects_less_of_what_is_there_in_part() {
    const SIZE: usize = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    fs::write(&path, vec![7; SIZE]).unwrap();
    let sources = Arc::new(Sources::scan(&[path]).unwrap());
    let (_endpoints, near, far) = connected().await;
    let meter = Meter::start();
    let until = async |reached: &dyn Fn() -> bool| {
        let wait = async {
            while !reached() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), wait).await;
        waited.is_ok()
    };
    let receive = async {
        let (mut control, _words) = far.accept_bi().await.unwrap();
        let accept = FromReceiver::Accept {
            asked_ms: 0,
            holes: false,
            changed: false,
        };
        let hold = FromReceiver::Hold { files: vec![0] };
        let check = FromReceiver::Check {
            index: 0,
            groups: false,
        };
        for reply in [&accept, &hold, &check] {
            message::write(&mut control, reply).await.unwrap();
        }
        assert!(until(&|| meter.diary().is_comparing()).await);
        assert_eq!(meter.total(), SIZE as u64);
        let have = FromReceiver::Have {
            index: 0,
            groups: vec![(0, Hash([0; 32]))],
            more: false,
        };
        message::write(&mut control, &have).await.unwrap();
        assert!(until(&|| !meter.diary().is_comparing()).await);
        assert!(until(&|| meter.total() < SIZE as u64).await);
    };
    tokio::select! {
        sent = dfcp_transfer::send(&near, &sources, &meter) => panic!("{sent:?}"),
        () = receive => {}
    }
}
