//! Room on the receiver's disk. An offer is held against what is free before its first byte is
//! written, and so is what sessions that are running still have to bring.

use std::io;
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
}

/// The claims of sessions that are running.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<Vec<Weak<Claim>>>);

/// Bytes of a file system.
#[derive(Clone, Copy, Debug)]
struct Space {
    total: u64,
    free: u64,
}

impl Space {
    /// What stays free when `outstanding` and `needed` more bytes are written, as a reserve and
    /// what was asked for; an error says what is missing.
    fn check(self, outstanding: u64, needed: u64) -> Result<(), Rejection> {
        let reserve = (self.total / RESERVE_PART).min(MOST_RESERVE);
        let usable = self
            .free
            .saturating_sub(reserve)
            .saturating_sub(outstanding);
        // Some file systems do not tell their size; who sends nothing but names needs no room.
        if self.total == 0 || needed == 0 || needed <= usable {
            return Ok(());
        }
        let message = format!(
            "no space left at the receiver: {needed} bytes are offered, {} are free, {reserve} of \
             them stay free and {outstanding} are for other transfers; make room there, or send less",
            self.free
        );
        Err(Rejection::new(RejectionKind::Space, message))
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
        let mut claims = self.claims.0.lock().unwrap_or_else(PoisonError::into_inner);
        claims.retain(|claim| claim.strong_count() > 0);
        let running = claims.iter().filter_map(Weak::upgrade);
        let outstanding = running
            .map(|claim| claim.bytes.saturating_sub(claim.progress.bytes()))
            .fold(0, u64::saturating_add);
        space.check(outstanding, bytes)?;
        let claim = Arc::new(Claim {
            bytes,
            progress: progress.clone(),
        });
        claims.push(Arc::downgrade(&claim));
        Ok(claim)
    }

    /// Bytes that a file of unknown size may have: what the user takes of a session, and the disk has.
    pub(crate) fn room(&self) -> u64 {
        let space = self.space().map_or(u64::MAX, |space| match space.total {
            0 => u64::MAX,
            total => space
                .free
                .saturating_sub((total / RESERVE_PART).min(MOST_RESERVE)),
        });
        space.min(self.limits.bytes)
    }

    /// Bytes that an entry may take of the disk.
    pub(crate) fn room_for(&self, entry: &Entry) -> u64 {
        match entry.data {
            Some(data) if self.keep.holes => data.min(entry.size),
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
        let [unit, total, free] = [
            stat.fragment_size() as u64,
            stat.blocks() as u64,
            stat.blocks_available() as u64,
        ];
        Ok(Space {
            total: total.saturating_mul(unit),
            free: free.saturating_mul(unit),
        })
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
            let space = Space { total, free };
            space.check(outstanding, needed).is_ok()
        };
        // A large disk keeps a gigabyte, a small one its twentieth.
        assert!(fits(1000 * GB, 11 * GB, 0, 10 * GB));
        assert!(!fits(1000 * GB, 11 * GB, 0, 10 * GB + 1));
        assert!(fits(2000, 600, 0, 500) && !fits(2000, 600, 0, 501));
        // What others are still to bring is not free.
        assert!(fits(1000 * GB, 11 * GB, 4 * GB, 6 * GB));
        assert!(!fits(1000 * GB, 11 * GB, 5 * GB, 6 * GB));
        assert!(!fits(2000, 50, 0, 1) && fits(2000, 50, 0, 0) && fits(0, 0, 0, 1));
    }

    #[test]
    fn a_claim_shrinks_as_bytes_come_and_ends_with_its_session() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), OnConflict::Error).unwrap();
        let space = store.space().unwrap();
        let reserve = (space.total / RESERVE_PART).min(MOST_RESERVE);
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
        progress.add(most);
        assert!(store.claim(&entries, &[], &Progress::default()).is_ok());
        drop(first);
        let again = store.claim(&entries, &[], &Progress::default()).unwrap();
        assert!(store.claim(&entries, &[], &Progress::default()).is_err());
        drop(again);
        assert!(store.claim(&entries, &[], &Progress::default()).is_ok());
    }

    #[test]
    fn a_stream_has_what_the_user_allows_and_the_disk_has_beyond_its_reserve() {
        let dir = tempfile::tempdir().unwrap();
        let with = |bytes| {
            let store = Store::open(dir.path(), OnConflict::Error).unwrap();
            store.with_limits(crate::Limits {
                bytes,
                ..crate::Limits::default()
            })
        };
        assert_eq!(with(1000).room(), 1000);
        let store = with(u64::MAX);
        let (space, room) = (store.space().unwrap(), store.room());
        let reserve = (space.total / RESERVE_PART).min(MOST_RESERVE);
        // Others use this disk too.
        let expected = space.free.saturating_sub(reserve);
        assert!(room.abs_diff(expected) < reserve / 2, "{room}, {expected}");
    }
}
