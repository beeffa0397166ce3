//! Targets of `dfcp-transfer`, replayed by its tests: what a hostile sender says, and a whole session
//! with one, over one stream of bytes and with objects.

#[path = "live.rs"]
mod live;
#[path = "resume.rs"]
mod resume;

use dfcp::{Connection, Endpoint, EndpointConfig};
use dfcp_transfer::memory::Memory;
use dfcp_transfer::message::{self, FromReceiver, FromSender, Link, Reader, VERSION};
use dfcp_transfer::offer::{Offer, check_path};
use dfcp_transfer::{
    Entry, Error, Keep, Limits, Meta, Meter, OnConflict, Outcome, Owners, People, Store, Wishes,
    offer, serial,
};
pub use resume::resume;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// The body of a target.
pub type Body = fn(&[u8]);

/// The targets by name.
pub const TARGETS: [(&str, Body); 4] = [
    ("offers", offers),
    ("session", |data| {
        session(data);
    }),
    ("objects", |data| {
        objects(data, PATIENCE);
    }),
    ("resume", |data| {
        resume(data, PATIENCE);
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
/// What a session holds of files of 50 kB beside its messages, and one of two endpoints beside its objects: 5 MB
/// were seen.
const SESSION_HOLDS: usize = 1 << 18;
const OBJECTS_HOLD: usize = 8 << 20;
/// Of each byte of an object its sender has one until it is acknowledged, and two in the symbols of its encoders at
/// most; the receiver one until it is written: how much that is at a time depends on who of them is how fast.
const IN_FLIGHT: usize = 4;
/// A message is read whole before it is looked at, into a buffer that may be twice as large, and then taken out of
/// it.
const WHOLE_MESSAGE: usize = 4;
const BEFORE: &[u8] = b"what was there";

/// Runs a body whose threads are all watched.
fn block_on<T>(watch: &live::Watch, future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.on_thread_start(watch.joiner()).enable_all();
    runtime.build().expect("a runtime").block_on(future)
}

/// Any bytes as messages, and all offers among them as one: what is accepted is within limits.
pub fn offers(data: &[u8]) {
    // What is kept of an offer counts as 640 bytes for each file.
    let watch = live::Watch::allow(WHOLE_MESSAGE * data.len() + (1 << 18));
    let mut offer = Offer::new(LIMITS, &Memory::default());
    block_on(&watch, async {
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
                grown: false,
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

/// A directory to receive in, with something in it, and another one beside it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a directory"));
        let (root, outside) = (place.root(), place.0.path().join("outside"));
        fs::create_dir(&root).expect("it is new");
        fs::create_dir(&outside).expect("it is new");
        fs::write(root.join("there"), BEFORE).expect("writable");
        fs::write(outside.join("x"), BEFORE).expect("writable");
        #[cfg(unix)]
        std::os::unix::fs::symlink("../outside", root.join("link")).expect("a link");
        place
    }

    fn root(&self) -> PathBuf {
        self.0.path().join("received")
    }

    fn store(&self, limits: Limits) -> Store {
        let store = Store::open(&self.root(), OnConflict::Error).expect("a directory");
        store.with_limits(limits)
    }

    /// Nothing outside the directory has changed, and what was in it is there; bytes that came into it.
    fn check(&self) -> u64 {
        let names: BTreeSet<_> = fs::read_dir(self.0.path())
            .expect("a directory")
            .map(|entry| entry.expect("readable").file_name())
            .collect();
        assert_eq!(names, BTreeSet::from(["outside".into(), "received".into()]));
        let outside = self.0.path().join("outside");
        assert_eq!(bytes_beneath(&outside), BEFORE.len() as u64);
        assert_eq!(fs::read(outside.join("x")).expect("it stays"), BEFORE);
        let root = self.root();
        assert_eq!(fs::read(root.join("there")).expect("it stays"), BEFORE);
        bytes_beneath(&root) - BEFORE.len() as u64
    }
}

/// A whole session with a hostile sender: nothing outside the directory changes, what was in it stays,
/// and no more bytes come into it than were offered. Gives how many came.
pub fn session(data: &[u8]) -> u64 {
    let mut watch = live::Watch::allow(SESSION_HOLDS);
    let place = Place::new();
    let (said, offered) = block_on(&watch, script(&mut Input(data)));
    watch.raise(WHOLE_MESSAGE * said.len());
    block_on(&watch, async {
        let store = Arc::new(place.store(LIMITS));
        let meter = Meter::start();
        serial::receive(&said[..], Vec::new(), store, &meter).await;
    });
    watch.check();
    let received = place.check();
    assert!(
        received <= offered.min(LIMITS.bytes),
        "{received} of {offered} bytes"
    );
    received
}

/// What a session with objects may bring.
const SESSION: Limits = Limits {
    bytes: 1 << 20,
    ..LIMITS
};
/// How long a fuzzer waits for the end of a session: that it waits itself for what does not come is usual.
pub const PATIENCE: Duration = Duration::from_millis(50);
/// Sizes of files that are offered, the first one of a stream: in packs, at their edge and beyond.
const SIZES: [u64; 8] = [0, 0, 1, 100, 5000, 70_000, 262_144, 300_000];

/// A whole session with a hostile sender over a connection: as [`session`], no task panics, no more comes
/// than a session may bring, and of what is in its place that is told. Gives how many files that are. A
/// session of which nothing was heard for `patience` ends.
pub fn objects(data: &[u8], patience: Duration) -> usize {
    let sent = Cell::new(0);
    let mut watch = live::Watch::allow(OBJECTS_HOLD);
    let place = Place::new();
    let input = &mut Input(data);
    let kinds: Vec<u8> = (0..=input.byte() % 8).map(|_| input.byte()).collect();
    let entry = |(i, kind): (usize, &u8)| Entry {
        path: i.to_string(),
        size: SIZES[usize::from(*kind % 8)],
        stream: *kind % 8 == 0,
        mode: if kind & 0x80 == 0 { 0o644 } else { 0o6755 },
        meta: belongings(*kind >> 3 & 15),
        ..Entry::default()
    };
    let entries: Vec<_> = kinds.iter().enumerate().map(entry).collect();
    let received = block_on(&watch, async {
        let keep = Keep {
            holes: true,
            owners: Owners::Numbers,
            attributes: true,
            acls: true,
            modes: false,
        };
        let store = Arc::new(place.store(SESSION).keeping(keep));
        let (_endpoints, near, far) = connected().await;
        let meter = Meter::start();
        let play = async {
            // The receiver ends it as soon as something is wrong.
            let _ = play(&near, &entries, input, patience, &sent).await;
            near.close(dfcp_transfer::DONE, "");
        };
        let receive = dfcp_transfer::receive(&far, store, &meter, async |_| Ok(()));
        tokio::join!(play, receive).1
    });
    watch.raise(IN_FLIGHT * sent.get());
    watch.check();
    assert!(place.check() <= SESSION.bytes);
    let Some(received) = received else { return 0 };
    assert!(
        !matches!(received.failure, Some(Error::Task(_))),
        "{received:?}"
    );
    let is_there = |i: &usize| place.root().join(i.to_string()).exists();
    let there: Vec<_> = (0..entries.len()).filter(is_there).collect();
    for i in &there {
        let outcome = received.outcomes.get(&(*i as u64));
        assert_eq!(outcome, Some(&Outcome::Done), "{i}: {received:?}");
        check_rights(&place.root().join(i.to_string()));
    }
    there.len()
}

/// Attributes that a sender gives its files: those that are taken along, such that nobody may set, none, and an
/// access control list that is cut short.
const ATTRIBUTES: [(&str, &str); 8] = [
    ("user.a", "b"),
    ("user.", "c"),
    ("security.capability", "d"),
    ("security.selinux", "e"),
    ("trusted.f", "g"),
    ("", "h"),
    ("system.posix_acl_access", "i"),
    ("system.j", "k"),
];

/// What else a sender says of a file.
fn belongings(pick: u8) -> Option<Box<Meta>> {
    let (name, value) = ATTRIBUTES[usize::from(pick % 8)];
    (pick != 0).then(|| {
        Box::new(Meta {
            owner: (pick & 8 != 0).then(|| (u32::from(pick), u32::MAX)),
            attributes: vec![(name.to_owned(), value.to_owned())],
            ..Meta::default()
        })
    })
}

/// Nobody's file has rights of others by what a sender said.
fn check_rights(path: &Path) {
    let mode = path.symlink_metadata().expect("it is there").mode();
    assert_eq!(mode & 0o6000, 0, "{path:?}: {mode:o}");
    for name in ["security.capability", "security.selinux", "system.j"] {
        let value = rustix::fs::getxattr(path, name, &mut [0; 64]);
        assert!(value.is_err(), "{path:?}: {name}");
    }
}

async fn connected() -> ([Endpoint; 2], Connection, Connection) {
    let key = || dfcp::generate_key().expect("a key");
    let address = "127.0.0.1:0".parse().expect("an address");
    let server = Endpoint::bind(EndpointConfig::server(key(), address)).expect("a port");
    let client = Endpoint::bind(EndpointConfig::client(key())).expect("a port");
    let connect = client.connect(server.local_addr(), Some(server.public_key()));
    let (near, far) = tokio::join!(connect, server.accept());
    let (near, far) = (near.expect("connected"), far.expect("connected"));
    ([client, server], near, far.accept())
}

/// Every file of an offer has its number in all its bytes.
fn content(entries: &[Entry], index: u64) -> Vec<u8> {
    let size = entries.get(index as usize).map_or(0, |entry| entry.size);
    vec![index as u8; size as usize]
}

async fn play(
    near: &Connection,
    entries: &[Entry],
    input: &mut Input<'_>,
    patience: Duration,
    sent: &Cell<usize>,
) -> Result<(), Error> {
    let (mut control, replies) = near.open_bi().await?;
    for part in offer::split(entries, Wishes::default(), &People::default()) {
        message::write(&mut control, &part).await?;
    }
    let mut objects = Vec::new();
    // A datagram and a task each: more of them take time and find no more.
    for _ in 0..24 {
        if input.0.is_empty() {
            break;
        }
        let what = input.byte();
        // One more than there are.
        let index = u64::from(input.byte()) % (entries.len() as u64 + 1);
        let whole = content(entries, index);
        let (size, hash) = (whole.len() as u64, blake3::hash(&whole).into());
        let mut bytes = None;
        let said = match what % 10 {
            0 | 1 => {
                let others = input.byte() % 4;
                let others = (0..others).map(|_| u64::from(input.byte()) % entries.len() as u64);
                let files: Vec<u64> = std::iter::once(index).chain(others).collect();
                let all: Vec<_> = files.iter().map(|i| content(entries, *i)).collect();
                bytes = Some(all.concat());
                let hashes = all.iter().map(|file| blake3::hash(file).into());
                FromSender::Pack {
                    files: files.into_iter().zip(hashes).collect(),
                    grown: Vec::new(),
                }
            }
            2 | 3 => {
                let extents = extents(size, input);
                let length: u64 = extents.iter().map(|(_, length)| length).sum();
                bytes = Some(vec![index as u8; length.min(SESSION.bytes) as usize]);
                FromSender::Part { index, extents }
            }
            4 => {
                let length = usize::from(input.byte()) << (input.byte() % 16);
                bytes = Some(vec![index as u8; length.min(SESSION.bytes as usize)]);
                FromSender::Stream { index }
            }
            5 => FromSender::Holes {
                index,
                extents: extents(size, input),
            },
            6 => FromSender::Failed {
                index,
                message: "gone".into(),
            },
            7 if what & 16 == 0 => FromSender::Resume { index },
            7 => FromSender::Hash {
                index,
                blake3: hash,
            },
            _ => FromSender::Sent {
                index,
                size,
                blake3: hash,
                grown: false,
            },
        };
        // Some are announced and do not come, some come and were not announced, some end early.
        if what & 32 == 0 || what & 64 == 0 {
            message::write(&mut control, &said).await?;
        }
        if let Some(mut bytes) = bytes.filter(|_| what & 32 == 0 || what & 64 != 0) {
            if what & 128 != 0 {
                bytes.truncate(bytes.len() / 2);
            }
            sent.set(sent.get() + bytes.len());
            let mut object = near.open_object().await?;
            let _ = object.write_all(&bytes).await;
            let _ = object.finish();
            objects.push(object);
        }
    }
    for index in 0..entries.len() as u64 {
        let message = String::new();
        message::write(&mut control, &FromSender::Failed { index, message }).await?;
    }
    control.finish()?;
    let mut replies = Reader::new(replies);
    // A session that waits for something that does not come says nothing any more.
    while let Ok(reply) = tokio::time::timeout(patience, replies.next()).await {
        if matches!(reply?, None | Some(FromReceiver::Summary { .. })) {
            break;
        }
    }
    Ok(())
}

fn extents(size: u64, input: &mut Input<'_>) -> Vec<(u64, u64)> {
    let mut one = || match input.byte() % 4 {
        0 => (0, size),
        1 => (0, size / 2),
        2 => (size / 2, size - size / 2),
        _ => (u64::from(input.byte()) << 8, u64::from(input.byte()) << 4),
    };
    (0..1 + size % 3).map(|_| one()).collect()
}
