//! Receivers that say what cannot be.

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use dfcp_transfer::message::{self, FromReceiver};
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
