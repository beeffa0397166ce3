//! The target `resume`: a whole session with a hostile sender, whose receiver finds something of the files in
//! its directory, left by an earlier session of the same sender, by another one, or by whoever may write there.

use super::{BEFORE, IN_FLIGHT, Input, LIMITS, OBJECTS_HOLD, block_on, connected, extents, live};
use blake3::hazmat::HasherExt;
use dfcp::Connection;
use dfcp_transfer::message::{self, FromReceiver, FromSender, Hash, Reader};
use dfcp_transfer::{
    Entry, Error, Keep, Limits, Meter, OnConflict, Outcome, People, Received, Store, Wishes, offer,
};
use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// Large enough for files that are taken up again, with groups of 64 KiB, and one that is not.
const SIZES: [u64; 4] = [262_145, 300_000, 327_680, 70_000];
const GROUP: usize = 64 << 10;
const ALL: Limits = Limits {
    bytes: 1 << 21,
    ..LIMITS
};
/// What journals begin with (`partial.rs`).
const MAGIC: &[u8] = b"dfcp-journal-2\n\0";
/// Whose parts are taken up, and somebody else.
const SENDER: [u8; 32] = [7; 32];
const STRANGER: [u8; 32] = [8; 32];

/// Bytes of file `index`, of which no two groups are alike.
fn content(index: u64, size: u64) -> Vec<u8> {
    (0..size)
        .map(|at| (at >> 11) as u8 ^ (index as u8) << 6 ^ 0x15)
        .collect()
}

/// The value of each group in the file's BLAKE3 tree.
fn values(content: &[u8]) -> Vec<[u8; 32]> {
    let groups = content.chunks(GROUP).enumerate();
    let value = |(i, group): (usize, &[u8])| {
        let mut hasher = blake3::Hasher::new();
        hasher.set_input_offset((i * GROUP) as u64);
        hasher.update(group).finalize_non_root()
    };
    groups.map(value).collect()
}

/// Changes some bytes, if there are any.
fn damage(bytes: &mut [u8], input: &mut Input<'_>) {
    for _ in 0..input.byte() % 4 {
        let at = usize::from(input.byte()) * bytes.len() / 256;
        let change = input.byte() | 1;
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= change;
        }
    }
}

/// A journal of groups that are there, and of what else somebody may have written.
fn journal(content: &[u8], kind: u8, input: &mut Input<'_>) -> Vec<u8> {
    let owner = if kind % 8 == 3 { STRANGER } else { SENDER };
    let mut text = [MAGIC, &owner, &(content.len() as u64).to_le_bytes()].concat();
    let said = input.byte();
    for (i, value) in values(content).iter().enumerate() {
        if said >> i & 1 == 0 {
            text.extend((i as u64).to_le_bytes());
            text.extend(value);
        }
    }
    match kind % 8 {
        4 => {
            let number = u64::from(input.byte()) << (input.byte() % 64);
            text.extend(number.to_le_bytes());
            text.extend([input.byte(); 32]);
            text.extend(vec![input.byte(); usize::from(input.byte()) << 4]);
        }
        5 => text.truncate(usize::from(input.byte()) * 2),
        6 => damage(&mut text, input),
        _ => {}
    }
    text
}

/// What is at a name where none of the sender's files is.
fn obstacle(at: &Path, kind: u8) {
    match kind % 3 {
        0 => symlink("../outside/x", at).expect("a link"),
        1 => fs::create_dir(at).expect("it is new"),
        _ => rustix::fs::mknodat(
            rustix::fs::CWD,
            at,
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .expect("a pipe"),
    }
}

/// A directory with what is left of files, and another one beside it.
struct Place {
    folder: tempfile::TempDir,
    /// What is under the final name of each, and whether it is a file.
    older: Vec<Option<Vec<u8>>>,
}

impl Place {
    fn lay(entries: &[Entry], input: &mut Input<'_>) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let root = folder.path().join("received");
        fs::create_dir(&root).expect("it is new");
        fs::create_dir(folder.path().join("outside")).expect("it is new");
        fs::write(folder.path().join("outside/x"), BEFORE).expect("writable");
        let mut older = Vec::new();
        for (index, entry) in (0..).zip(entries) {
            let at = |suffix: &str| root.join(format!("{}{suffix}", entry.path));
            let whole = content(index, entry.size);
            let (there, part, noted) = (input.byte(), input.byte(), input.byte());
            older.push(match there % 8 {
                0..4 => None,
                4 => {
                    obstacle(&at(""), there >> 3);
                    None
                }
                _ => {
                    let mut version = whole.clone();
                    damage(&mut version, input);
                    if there % 8 == 5 {
                        version.resize(usize::from(input.byte()) << 11, 1);
                    }
                    fs::write(at(""), &version).expect("writable");
                    Some(version)
                }
            });
            if part % 8 == 7 {
                obstacle(&at(".dfcp-partial"), part >> 3);
            } else if part % 8 != 0 {
                let mut bytes = whole.clone();
                if part % 8 > 2 {
                    damage(&mut bytes, input);
                }
                if part % 8 > 4 {
                    bytes.resize(usize::from(input.byte()) << 11, 2);
                }
                fs::write(at(".dfcp-partial"), bytes).expect("writable");
            }
            if noted % 8 == 7 {
                obstacle(&at(".dfcp-journal"), noted >> 3);
            } else if noted % 8 != 0 {
                let text = journal(&whole, noted, input);
                fs::write(at(".dfcp-journal"), text).expect("writable");
            }
        }
        Self { folder, older }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("received")
    }

    /// Nothing outside has changed; what is under a final name is what was there, or what was offered, and that
    /// it is if that was told. Gives how many files are as they were offered.
    fn check(&self, entries: &[Entry], received: Option<&Received>) -> usize {
        let outside = self.folder.path().join("outside");
        let names = |of: &Path| fs::read_dir(of).expect("a directory").count();
        assert_eq!((names(self.folder.path()), names(&outside)), (2, 1));
        let data = outside.join("x").symlink_metadata().expect("it stays");
        assert_eq!((data.nlink(), data.len()), (1, BEFORE.len() as u64));
        assert_eq!(fs::read(outside.join("x")).expect("it stays"), BEFORE);
        let mut whole = 0;
        for ((index, entry), older) in (0..).zip(entries).zip(&self.older) {
            let offered = content(index, entry.size);
            let there = |name: String| {
                let path = self.root().join(name);
                let is_file = path.symlink_metadata().is_ok_and(|data| data.is_file());
                is_file.then(|| fs::read(path).expect("readable"))
            };
            let [found, beside] = [entry.path.clone(), format!("{}.1", entry.path)].map(there);
            let is_whole = [&found, &beside].map(|bytes| bytes.as_ref() == Some(&offered));
            assert!(is_whole[0] || &found == older, "{index}: other bytes");
            assert!(
                is_whole[1] || beside.is_none(),
                "{index}: other bytes under a new name"
            );
            let outcome = received.and_then(|received| received.outcomes.get(&index));
            if matches!(outcome, Some(Outcome::Done | Outcome::There)) {
                assert!(is_whole.contains(&true), "{index}: {received:?}");
                whole += 1;
            }
            let part = self.root().join(format!("{}.dfcp-partial", entry.path));
            let longest = entry.size.max(255 << 11);
            assert!(
                part.symlink_metadata()
                    .is_ok_and(|part| part.len() <= longest)
                    || !part.exists()
            );
        }
        whole
    }
}

/// See the module's text. Gives how many files were received whole, or found so. A session of which nothing
/// was heard for `patience` ends.
pub fn resume(data: &[u8], patience: Duration) -> usize {
    let sent = Cell::new(0);
    let mut watch = live::Watch::allow(OBJECTS_HOLD);
    let input = &mut Input(data);
    let how = input.byte();
    let on_conflict = [
        OnConflict::Overwrite,
        OnConflict::Error,
        OnConflict::Rename,
        OnConflict::Newer,
    ][usize::from(how % 4)];
    let entry = |i: u8| Entry {
        path: i.to_string(),
        size: SIZES[usize::from(input.byte() % 4)],
        // Later than anything that is there.
        mtime: 4_000_000_000,
        mode: 0o644,
        ..Entry::default()
    };
    let entries: Vec<_> = (0..=how >> 2 & 3).map(entry).collect();
    let place = Place::lay(&entries, input);
    let received = block_on(&watch, async {
        let keep = Keep {
            holes: how & 16 != 0,
            ..Keep::default()
        };
        let store = Store::open(&place.root(), on_conflict).expect("a directory");
        let store = store.with_limits(ALL).keeping(keep).kept_for(SENDER);
        let (_endpoints, near, far) = connected().await;
        let meter = Meter::start();
        let play = async {
            // The receiver ends it as soon as something is wrong.
            let _ = play(&near, &entries, input, patience, &sent).await;
            near.close(dfcp_transfer::DONE, "");
        };
        let receive = dfcp_transfer::receive(&far, Arc::new(store), &meter, async |_| Ok(()));
        tokio::join!(play, receive).1
    });
    watch.raise(IN_FLIGHT * sent.get());
    watch.check();
    if let Some(received) = &received {
        assert!(
            !matches!(received.failure, Some(Error::Task(_))),
            "{received:?}"
        );
    }
    place.check(&entries, received.as_ref())
}

async fn play(
    near: &Connection,
    entries: &[Entry],
    input: &mut Input<'_>,
    patience: Duration,
    sent: &Cell<usize>,
) -> Result<(), Error> {
    let wishes = Wishes {
        anew: input.byte() % 16 == 1,
        ..Wishes::default()
    };
    let (mut control, replies) = near.open_bi().await?;
    for part in offer::split(entries, wishes, &People::default()) {
        message::write(&mut control, &part).await?;
    }
    let (mut replies, mut objects) = (Reader::new(replies), Vec::new());
    // Answers that came, in some order.
    let mut is_over = false;
    for _ in 0..32 {
        if input.0.is_empty() || is_over {
            break;
        }
        let what = input.byte();
        let index = u64::from(input.byte()) % entries.len() as u64;
        let whole = content(index, entries[index as usize].size);
        let (size, blake3) = (whole.len() as u64, blake3::hash(&whole).into());
        let said = match what % 12 {
            // As senders do, and not all the time: what is there is looked at meanwhile.
            0 | 1 => {
                let next = tokio::time::timeout(patience, replies.next()).await;
                is_over = match next {
                    Ok(reply) => matches!(reply?, None | Some(FromReceiver::Summary { .. })),
                    Err(_) => false,
                };
                continue;
            }
            2 | 3 => FromSender::Resume { index },
            4 => FromSender::Hash { index, blake3 },
            5 => {
                let mut values: Vec<_> = values(&whole).into_iter().map(Hash).collect();
                if what & 64 != 0 {
                    values.rotate_left(1);
                }
                FromSender::Groups { index, values }
            }
            6..9 => {
                let extents = match input.byte() {
                    byte if byte % 8 < 6 => {
                        // Of groups, as senders have them.
                        let group = u64::from(byte % 8) * GROUP as u64;
                        let start = group.min(size);
                        vec![(start, (GROUP as u64).min(size - start))]
                    }
                    byte if byte % 8 == 6 => vec![(0, size)],
                    _ => extents(size, input),
                };
                let part = |&(offset, length): &(u64, u64)| {
                    let range = offset as usize..offset.saturating_add(length).min(size) as usize;
                    whole.get(range).unwrap_or_default().to_vec()
                };
                let mut bytes: Vec<u8> = extents.iter().flat_map(part).collect();
                if what & 16 != 0 {
                    damage(&mut bytes, input);
                }
                if what & 32 != 0 {
                    bytes.truncate(bytes.len() / 2);
                }
                message::write(&mut control, &FromSender::Part { index, extents }).await?;
                sent.set(sent.get() + bytes.len());
                let mut object = near.open_object().await?;
                let _ = object.write_all(&bytes).await;
                let _ = object.finish();
                objects.push(object);
                continue;
            }
            9 => FromSender::Holes {
                index,
                extents: extents(size, input),
            },
            10 => FromSender::Failed {
                index,
                message: "gone".into(),
            },
            _ => FromSender::Sent {
                index,
                size,
                blake3,
                grown: false,
            },
        };
        message::write(&mut control, &said).await?;
    }
    for index in 0..entries.len() as u64 {
        let message = String::new();
        message::write(&mut control, &FromSender::Failed { index, message }).await?;
    }
    control.finish()?;
    // A session that waits for something that does not come says nothing any more.
    while let Ok(reply) = tokio::time::timeout(patience, replies.next()).await {
        if matches!(reply?, None | Some(FromReceiver::Summary { .. })) {
            break;
        }
    }
    Ok(())
}
