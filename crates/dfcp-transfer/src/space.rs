//! Room on the receiver's disk. An offer is held against what is free before its first byte is
//! written, and so is what sessions that are running still have to bring.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use dfcp::Progress;
use nix::sys::statvfs::fstatvfs;

use crate::message::{Entry, Rejection, RejectionKind};
use crate::name;
use crate::store::{PARTIAL, Store, Survey};

/// What stays free: a twentieth of the file system, as ext4 keeps back for its own health, but no
/// more than this. So much lets the machine log, mail and swap for a while; on large disks a
/// twentieth would only be space that nobody may use.
const MOST_RESERVE: u64 = 1 << 30;
/// The part of a smaller file system that stays free.
const RESERVE_PART: u64 = 20;

/// A session's claim to the disk. What has arrived is no longer claimed, but taken.
#[derive(Debug)]
pub(crate) struct Claim {
    bytes: u64,
    progress: Progress,
    /// Bytes of all that is offered, but for what comes of streams.
    offered: u64,
    /// Bytes of streams that have come. `bytes` has none of them.
    streamed: AtomicU64,
}

impl Claim {
    /// Bytes that are still to come.
    fn outstanding(&self) -> u64 {
        let streamed = self.streamed.load(Ordering::Relaxed);
        let came = self.progress.bytes().saturating_sub(streamed);
        self.bytes.saturating_sub(came)
    }
}

/// The claims of sessions that are running.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<Vec<Weak<Claim>>>);

/// Bytes of a file system, and how many files it can hold.
#[derive(Clone, Copy, Debug)]
struct Space {
    total: u64,
    free: u64,
    /// None where the file system makes inodes as they are needed.
    free_inodes: Option<u64>,
}

impl Space {
    fn reserve(self) -> u64 {
        (self.total / RESERVE_PART).min(MOST_RESERVE)
    }

    /// Bytes that are free beyond the reserve and what is `outstanding`.
    fn room(self, outstanding: u64) -> u64 {
        // Some file systems do not tell their size.
        match self.total {
            0 => u64::MAX,
            _ => self
                .free
                .saturating_sub(self.reserve())
                .saturating_sub(outstanding),
        }
    }

    /// What stays free when `outstanding` and `needed` more bytes are written, as a reserve and
    /// what was asked for; an error says what is missing.
    fn check(self, outstanding: u64, needed: u64) -> Result<(), Rejection> {
        let reserve = self.reserve();
        // Who sends nothing but names needs no room.
        if needed == 0 || needed <= self.room(outstanding) {
            return Ok(());
        }
        let message = format!(
            "no space left at the receiver: {needed} bytes are offered, {} are free, {reserve} of \
             them stay free and {outstanding} are for other transfers; make room there, or send less",
            self.free
        );
        Err(Rejection::new(RejectionKind::Space, message))
    }

    /// Whether so many more files can be made; `df` shows bytes and would send who reads it astray.
    fn check_inodes(self, files: u64) -> Result<(), Rejection> {
        match self.free_inodes {
            Some(free) if free < files => {
                let message = format!(
                    "no inodes left at the receiver: {files} files are to be made, its file system takes \
                     {free} more, whatever their size (`df -i` there shows it); remove files there, or \
                     send fewer, as in one archive"
                );
                Err(Rejection::new(RejectionKind::Space, message))
            }
            _ => Ok(()),
        }
    }
}

impl Store {
    /// Claims room for what is offered, which `progress` will count as it comes. The claim ends
    /// when it is dropped.
    pub(crate) fn claim(
        &self,
        entries: &[Entry],
        known: &[(u64, Survey)],
        progress: &Progress,
    ) -> Result<Arc<Claim>, Rejection> {
        let space = self.space().map_err(|error| {
            let message = format!("receiver: how much space is free cannot be found out: {error}");
            Rejection::new(RejectionKind::Space, message)
        })?;
        let all: u64 = entries.iter().map(|entry| self.room_for(entry)).sum();
        let there: u64 = known
            .iter()
            .map(|known| self.room_taken(entries, known))
            .sum();
        let bytes = all.saturating_sub(there);
        // Of what is not known there is nothing. Directories and links are not looked at before they come.
        let files = entries.iter().filter(|entry| entry.is_file()).count();
        space.check_inodes(files.saturating_sub(known.len()) as u64)?;
        let mut claims = self.claims.0.lock().unwrap_or_else(PoisonError::into_inner);
        claims.retain(|claim| claim.strong_count() > 0);
        if let Err(mut rejection) = space.check(outstanding(&claims), bytes) {
            let has_holes = |entry: &Entry| entry.data.is_some_and(|data| data < entry.size);
            if !self.keep.holes && entries.iter().any(has_holes) {
                rejection.message += "; with --sparse there, holes of files take no room";
            }
            return Err(rejection);
        }
        let sizes = entries.iter().map(|entry| entry.size);
        let claim = Arc::new(Claim {
            bytes,
            progress: progress.clone(),
            offered: sizes.fold(0, u64::saturating_add),
            streamed: AtomicU64::new(0),
        });
        claims.push(Arc::downgrade(&claim));
        Ok(claim)
    }

    /// Bytes that streams of a session may have in all: what the user takes of it, but for its files.
    pub(crate) fn most_streamed(&self, claim: &Claim) -> u64 {
        self.limits.bytes.saturating_sub(claim.offered)
    }

    /// Bytes that the disk has for what nobody claimed, beyond what stays free.
    fn room(&self) -> u64 {
        let claims = self.claims.0.lock().unwrap_or_else(PoisonError::into_inner);
        let space = self.space();
        space.map_or(u64::MAX, |space| space.room(outstanding(&claims)))
    }

    /// Bytes that an entry may take of the disk. Files of packs come with all their bytes, which nobody
    /// counts against what they say of holes.
    pub(crate) fn room_for(&self, entry: &Entry) -> u64 {
        match entry.data {
            Some(data) if self.keep.holes && entry.size > crate::MAX_PACK => data.min(entry.size),
            _ => entry.size,
        }
    }

    /// Bytes that an entry needs no room for: it will not come, or has some already.
    fn room_taken(&self, entries: &[Entry], (index, survey): &(u64, Survey)) -> u64 {
        let entry = &entries[*index as usize];
        match survey {
            Survey::Absent => 0,
            Survey::There(_) | Survey::Settled(_) => self.room_for(entry),
            Survey::Examine(_) => {
                let partial = self
                    .dir
                    .symlink_metadata(name::path(&name::beside(&entry.path, PARTIAL)));
                let blocks =
                    partial.map_or(0, |partial| cap_std::fs::MetadataExt::blocks(&partial));
                // Blocks of 512 bytes, whatever the file system (POSIX).
                blocks.saturating_mul(512).min(self.room_for(entry))
            }
        }
    }

    fn space(&self) -> io::Result<Space> {
        let stat = fstatvfs(&self.dir)?;
        // Their types differ between systems.
        #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
        let [unit, total, free, inodes, free_inodes] = [
            stat.fragment_size() as u64,
            stat.blocks() as u64,
            stat.blocks_available() as u64,
            stat.files() as u64,
            stat.files_available() as u64,
        ];
        Ok(Space {
            total: total.saturating_mul(unit),
            free: free.saturating_mul(unit),
            free_inodes: (inodes > 0).then_some(free_inodes),
        })
    }
}

fn outstanding(claims: &[Weak<Claim>]) -> u64 {
    let running = claims.iter().filter_map(Weak::upgrade);
    let each = running.map(|claim| claim.outstanding());
    each.fold(0, u64::saturating_add)
}

/// A file of unknown size, which nothing was claimed for: each of its bytes has to find room.
#[derive(Debug)]
pub(crate) struct Streamed {
    pub file: File,
    pub store: Arc<Store>,
    pub claim: Arc<Claim>,
}

impl dfcp::WriteAt for Streamed {
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let more = bytes.len() as u64;
        let all = self.claim.streamed.fetch_add(more, Ordering::Relaxed);
        let most = self.store.most_streamed(&self.claim);
        if all.saturating_add(more) > most {
            let why = format!("no more than {most} bytes of streams are taken of a session");
            return Err(io::Error::other(why));
        }
        if more > self.store.room() {
            let why = "no space left but for what stays free and for other transfers";
            return Err(io::Error::new(io::ErrorKind::StorageFull, why));
        }
        FileExt::write_all_at(&self.file, bytes, offset)
    }

    fn read_exact_at(&mut self, out: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(&self.file, out, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OnConflict;

    const GB: u64 = 1 << 30;

    #[test]
    fn a_reserve_stays_free() {
        let fits = |total, free, outstanding, needed| {
            let space = Space {
                total,
                free,
                free_inodes: None,
            };
            space.check(outstanding, needed).is_ok()
        };
        // A large disk keeps a gigabyte, a small one its twentieth.
        assert!(fits(1000 * GB, 11 * GB, 0, 10 * GB));
        assert!(!fits(1000 * GB, 11 * GB, 0, 10 * GB + 1));
        assert!(fits(2000, 600, 0, 500) && !fits(2000, 600, 0, 501));
        // What others are still to bring is not free.
        assert!(fits(1000 * GB, 11 * GB, 4 * GB, 6 * GB));
        assert!(!fits(1000 * GB, 11 * GB, 5 * GB, 6 * GB));
        let untold = Space {
            total: 0,
            free: 0,
            free_inodes: None,
        };
        assert_eq!(untold.room(5), u64::MAX, "it tells nothing");
        assert!(!fits(2000, 50, 0, 1) && fits(2000, 50, 0, 0) && fits(0, 0, 0, 1));
    }

    #[test]
    fn a_claim_shrinks_as_bytes_come_and_ends_with_its_session() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), OnConflict::Error).unwrap();
        let space = store.space().unwrap();
        let reserve = space.reserve();
        // Others use this disk too: two of these do not fit, one does by far.
        let most = (space.free - reserve) / 3 * 2;
        let entries = [Entry {
            path: "x".into(),
            size: most,
            ..Entry::default()
        }];
        let progress = Progress::default();
        let first = store.claim(&entries, &[], &progress).unwrap();
        let refused = store.claim(&entries, &[], &progress).unwrap_err();
        assert_eq!(refused.kind, RejectionKind::Space);
        assert!(!refused.message.contains("--sparse"), "{refused:?}");
        let hollow = entries.clone().map(|entry| Entry {
            data: Some(1),
            ..entry
        });
        let refused = store.claim(&hollow, &[], &progress).unwrap_err();
        assert!(refused.message.contains("--sparse"), "{refused:?}");
        progress.add(most);
        assert!(store.claim(&entries, &[], &Progress::default()).is_ok());
        drop(first);
        let again = store.claim(&entries, &[], &Progress::default()).unwrap();
        assert!(store.claim(&entries, &[], &Progress::default()).is_err());
        drop(again);
        assert!(store.claim(&entries, &[], &Progress::default()).is_ok());
    }

    /// Files of packs come with all their bytes, whatever they say of holes, and a sender that says there is
    /// nothing else would have the reserve, and what others are still to bring.
    #[test]
    fn small_files_need_room_for_all_their_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), OnConflict::Error).unwrap();
        let keep = crate::Keep {
            holes: true,
            ..crate::Keep::default()
        };
        let store = store.keeping(keep);
        for (size, room) in [
            (1, 1),
            (crate::MAX_PACK, crate::MAX_PACK),
            (crate::MAX_PACK + 1, 0),
        ] {
            let entry = Entry {
                size,
                data: Some(0),
                ..Entry::default()
            };
            assert_eq!(store.room_for(&entry), room);
        }
    }

    #[test]
    fn a_stream_has_what_the_disk_has_beyond_its_reserve_and_what_others_bring() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), OnConflict::Error).unwrap();
        let space = store.space().unwrap();
        let reserve = space.reserve();
        let free = space.free.saturating_sub(reserve);
        // Others use this disk too.
        let is_about = |expected: u64| {
            let room = store.room();
            assert!(room.abs_diff(expected) < free / 8, "{room}, {expected}");
        };
        is_about(free);
        let progress = Progress::default();
        let entry = Entry {
            path: "x".into(),
            size: free / 2,
            ..Entry::default()
        };
        let claim = store.claim(&[entry], &[], &progress).unwrap();
        is_about(free - free / 2);
        // What comes of streams makes what is yet to come of files no less.
        progress.add(free / 2);
        claim.streamed.fetch_add(free / 4, Ordering::Relaxed);
        is_about(free - free / 4);
        drop(claim);
        is_about(free);
    }

    /// What is there needs no room, and of what is there in part only the rest.
    #[test]
    fn what_is_there_is_not_claimed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), OnConflict::Error).unwrap();
        let size = 10 << 20;
        let entry = |path: &str| Entry {
            path: path.into(),
            size,
            ..Entry::default()
        };
        let entries = ["a", "b", "c", "d"].map(entry);
        let partial = dir.path().join("d.dfcp-partial");
        let write = |bytes: usize| {
            let file = File::create(&partial).unwrap();
            // Nothing that a file system makes shorter.
            let mut content = vec![0; bytes];
            blake3::Hasher::new().finalize_xof().fill(&mut content);
            FileExt::write_all_at(&file, &content, 0).unwrap();
            file.sync_all().unwrap();
            512 * std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap())
        };
        let there = write(4 << 20);
        let ask = crate::store::Ask::Nothing;
        for (survey, left) in [
            (Survey::Absent, size),
            (Survey::There(Vec::new()), 0),
            (Survey::Settled(crate::Outcome::Skipped), 0),
            (Survey::Examine(ask), size - there),
        ] {
            let known = [(3, survey)];
            let claim = store.claim(&entries, &known, &Progress::default()).unwrap();
            assert_eq!(claim.outstanding(), 3 * size + left, "{known:?}");
        }
        // More than all of it is not there.
        assert!(write(11 << 20) > size);
        let known = [(3, Survey::Examine(ask))];
        let claim = store.claim(&entries, &known, &Progress::default()).unwrap();
        assert_eq!(claim.outstanding(), 3 * size);
    }

    #[test]
    fn streams_bring_what_files_leave_of_the_limit_to_the_byte() {
        use dfcp::WriteAt;
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), OnConflict::Error).unwrap();
        let store = store.with_limits(crate::Limits {
            bytes: 1000,
            ..crate::Limits::default()
        });
        let entries = [300, 600].map(|size| Entry {
            size,
            ..Entry::default()
        });
        let claim = store.claim(&entries, &[], &Progress::default()).unwrap();
        assert_eq!(store.most_streamed(&claim), 100);
        let mut streams = [(); 2].map(|()| Streamed {
            file: tempfile::tempfile().unwrap(),
            store: Arc::new(store.clone()),
            claim: claim.clone(),
        });
        streams[0].write_all_at(&[7; 60], 40).unwrap();
        streams[1].write_all_at(&[7; 40], 0).unwrap();
        streams[1].write_all_at(&[7; 1], 40).unwrap_err();
        let mut read = [0; 60];
        streams[0].read_exact_at(&mut read, 40).unwrap();
        assert_eq!(read, [7; 60]);
        assert_eq!(streams[1].file.metadata().unwrap().len(), 40);
    }
}
