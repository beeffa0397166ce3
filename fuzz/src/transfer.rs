//! Targets of `dfcp-transfer`, replayed by its tests: what a hostile sender says, and a whole session
//! with one, over one stream of bytes.

#[path = "live.rs"]
mod live;

use dfcp_transfer::memory::Memory;
use dfcp_transfer::message::{self, FromSender, Link, Reader, VERSION};
use dfcp_transfer::offer::{Offer, check_path};
use dfcp_transfer::{Entry, Limits, Meter, OnConflict, People, Store, Wishes, serial};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// The body of a target.
pub type Body = fn(&[u8]);

/// The targets by name.
pub const TARGETS: [(&str, Body); 2] = [
    ("offers", offers),
    ("session", |data| {
        session(data);
    }),
];

const LIMITS: Limits = Limits {
    bytes: 50_000,
    files: 12,
    hidden: false,
    any_names: false,
};
/// Names that have led somewhere they should not, in some program or other.
const NAMES: [&str; 16] = [
    "a",
    "b",
    "a/b",
    "a/b/c",
    "../outside",
    "/outside",
    "a/../../outside",
    ".",
    "",
    "link/x",
    "link",
    "there",
    ".hidden",
    "a\0b",
    "a//b",
    "a.dfcp-partial",
];
const BEFORE: &[u8] = b"what was there";

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build().expect("a runtime");
    runtime.block_on(future)
}

/// Any bytes as messages, and all offers among them as one: what is accepted is within limits.
pub fn offers(data: &[u8]) {
    // Messages are read whole, and what is kept of an offer counts as 640 bytes for each file.
    let watch = live::Watch::allow(4 * data.len() + (1 << 18));
    let mut offer = Offer::new(LIMITS, &Memory::default());
    block_on(async {
        let mut reader = Reader::new(data);
        while let Ok(Some(message)) = reader.next::<FromSender>().await {
            watch.check();
            if let FromSender::Offer {
                version,
                entries,
                people,
                ..
            } = message
                && offer.add(version, entries, people).is_err()
            {
                return;
            }
        }
    });
    let Ok(offered) = offer.finish() else {
        return;
    };
    let entries = offered.entries;
    let paths: BTreeSet<_> = entries.iter().map(|entry| &entry.path).collect();
    assert_eq!(paths.len(), entries.len(), "a path twice");
    assert!(entries.len() as u64 <= LIMITS.files);
    assert!(entries.iter().map(|entry| entry.size).sum::<u64>() <= LIMITS.bytes);
    assert!(paths.iter().all(|path| check_path(path).is_ok()));
}

/// Takes bytes off the front; zeros when they are used up.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let (&byte, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        byte
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        let (head, tail) = self.0.split_at(n.min(self.0.len()));
        self.0 = tail;
        head.to_vec()
    }
}

/// What a sender says, message by message, and how many bytes it offers.
async fn script(input: &mut Input<'_>) -> (Vec<u8>, u64) {
    let (mut said, mut offered) = (Vec::new(), 0u64);
    let mut content = Vec::new();
    while !input.0.is_empty() {
        let message = match input.byte() % 6 {
            0 => {
                let n = input.byte().into();
                said.extend(input.bytes(n));
                offered = u64::MAX; // what these bytes say is not read here
                continue;
            }
            1 | 2 => {
                let entries: Vec<_> = (0..input.byte() % 8).map(|_| entry(input)).collect();
                offered = entries
                    .iter()
                    .fold(offered, |sum, e| sum.saturating_add(e.size));
                let more = input.byte() & 1 == 1;
                FromSender::Offer {
                    version: VERSION,
                    entries,
                    more,
                    wishes: Wishes::default(),
                    people: People::default(),
                }
            }
            3 => {
                let (index, n) = (u64::from(input.byte() % 8), input.byte().into());
                content = vec![input.byte(); n];
                let message = FromSender::Content { index };
                message::write(&mut said, &message).await.expect("short");
                said.extend(&content);
                continue;
            }
            4 => FromSender::Sent {
                index: u64::from(input.byte() % 8),
                size: content.len() as u64,
                blake3: blake3::hash(&content).into(),
            },
            _ => FromSender::Failed {
                index: u64::from(input.byte() % 8),
                message: "x".repeat(input.byte().into()),
            },
        };
        message::write(&mut said, &message).await.expect("short");
    }
    (said, offered)
}

fn entry(input: &mut Input<'_>) -> Entry {
    let shift = input.byte() % 64;
    let name = |byte: u8| NAMES[usize::from(byte) % NAMES.len()].to_owned();
    let path = name(input.byte());
    let link = match shift & 0b0011_0000 {
        0b0001_0000 => Some(Link::Symbolic(name(input.byte()))),
        0b0010_0000 => Some(Link::Hard(u64::from(input.byte() % 8))),
        _ => None,
    };
    Entry {
        path,
        link,
        directory: shift & 8 == 8,
        size: u64::from(input.byte()) << if shift > 56 { shift } else { 0 },
        mode: u32::from(input.byte()) << 4,
        ..Entry::default()
    }
}

/// Bytes of all files beneath a directory; no link is followed.
fn bytes_beneath(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).expect("a directory");
    entries
        .map(|entry| {
            let path = entry.expect("readable").path();
            let data = path.symlink_metadata().expect("it is there");
            match data.is_dir() {
                true => bytes_beneath(&path),
                false if data.is_symlink() => 0,
                // A file with several names has its bytes once.
                false => data.len() / data.nlink(),
            }
        })
        .sum()
}

/// A whole session with a hostile sender: nothing outside the directory changes, what was in it stays,
/// and no more bytes come into it than were offered. Gives how many came.
pub fn session(data: &[u8]) -> u64 {
    let place = tempfile::tempdir().expect("a directory");
    let root = place.path().join("received");
    let outside = place.path().join("outside");
    fs::create_dir(&root).expect("it is new");
    fs::create_dir(&outside).expect("it is new");
    fs::write(root.join("there"), BEFORE).expect("writable");
    fs::write(outside.join("x"), BEFORE).expect("writable");
    #[cfg(unix)]
    std::os::unix::fs::symlink("../outside", root.join("link")).expect("a link");
    let offered = block_on(async {
        let (said, offered) = script(&mut Input(data)).await;
        let store = Store::open(&root, OnConflict::Error).expect("a directory");
        let store = Arc::new(store.with_limits(LIMITS));
        let meter = Meter::start();
        serial::receive(&said[..], Vec::new(), store, &meter).await;
        offered
    });
    let names: BTreeSet<_> = fs::read_dir(place.path())
        .expect("a directory")
        .map(|entry| entry.expect("readable").file_name())
        .collect();
    assert_eq!(names, BTreeSet::from(["outside".into(), "received".into()]));
    assert_eq!(bytes_beneath(&outside), BEFORE.len() as u64);
    assert_eq!(fs::read(outside.join("x")).expect("it stays"), BEFORE);
    assert_eq!(fs::read(root.join("there")).expect("it stays"), BEFORE);
    let received = bytes_beneath(&root) - BEFORE.len() as u64;
    assert!(
        received <= offered.min(LIMITS.bytes),
        "{received} of {offered} bytes"
    );
    received
}
