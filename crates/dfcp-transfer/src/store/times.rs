//! Times of change on file systems that keep them less exactly than they are offered, such as FAT: in steps of
//! two seconds. What was received there would never have its time else, and be read each time it is offered.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use cap_std::fs::{Metadata, MetadataExt};
use rustix::fs::{Timespec, Timestamps};

use crate::message::Entry;

const SECOND: i128 = 1_000_000_000;
/// The longest step of a file system in use: that of FAT.
const LONGEST: i128 = 2 * SECOND;
/// Steps that are told from exact times, in nanoseconds: of FAT, of file systems of whole seconds (HFS+, NFS 2),
/// of exFAT, and of those of milliseconds.
const STEPS: [i128; 4] = [LONGEST, SECOND, 10_000_000, 1_000_000];
/// A time of no whole step. No file has it but one whose probe was killed, which is then read as if changed.
const PROBE: Timespec = Timespec {
    tv_sec: 1_000_000_001,
    tv_nsec: 987_654_321,
};

/// The steps of the file systems that were probed, by their devices; 1 where times are exact.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps(Arc<Mutex<BTreeMap<u64, i128>>>);

impl Steps {
    /// Whether what is there has the time that is offered, as exactly as the file system keeps it. `find` is asked
    /// for its step where that has to be found out.
    pub fn are_equal(
        &self,
        there: &Metadata,
        entry: &Entry,
        find: impl FnOnce() -> Option<i128>,
    ) -> bool {
        let shown = nanoseconds(there.mtime(), there.mtime_nsec());
        let difference = (shown - nanoseconds(entry.mtime, i64::from(entry.mtime_nanos))).abs();
        let coarse = STEPS.iter().any(|step| shown % step == 0);
        if difference == 0 || difference >= LONGEST || !coarse {
            return difference == 0;
        }
        let known = self.known(there);
        let step = known.or_else(|| {
            let step = find()?;
            let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            steps.insert(there.dev(), step);
            Some(step)
        });
        step.is_some_and(|step| difference < step)
    }

    fn known(&self, there: &Metadata) -> Option<i128> {
        let steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        steps.get(&there.dev()).copied()
    }
}

fn nanoseconds(seconds: i64, nanoseconds: i64) -> i128 {
    i128::from(seconds) * SECOND + i128::from(nanoseconds)
}

/// The step of the file system where nothing may be written. Of kinds that are not known, such as those over FUSE,
/// there is none to tell.
pub(super) fn known_of_kind(file: &File) -> Option<i128> {
    #[cfg(target_os = "linux")]
    return step_of_kind(rustix::fs::fstatfs(file).ok()?.f_type as i64);
    #[cfg(not(target_os = "linux"))]
    return None;
}

/// By the number of a kind in linux/magic.h.
#[cfg(target_os = "linux")]
fn step_of_kind(kind: i64) -> Option<i128> {
    const MSDOS_SUPER_MAGIC: i64 = 0x4d44;
    const EXFAT_SUPER_MAGIC: i64 = 0x2011_bab0;
    match kind {
        MSDOS_SUPER_MAGIC => Some(LONGEST),
        EXFAT_SUPER_MAGIC => Some(10_000_000),
        _ => None,
    }
}

/// Finds the step by a time that is set, read and taken back.
pub(super) fn probe(file: &File, there: &Metadata) -> io::Result<i128> {
    set(file, PROBE)?;
    let shown = file.metadata();
    set(
        file,
        Timespec {
            tv_sec: there.mtime(),
            tv_nsec: there.mtime_nsec(),
        },
    )?;
    let shown = shown?;
    Ok(step_of(shown_nanoseconds(&shown)))
}

fn shown_nanoseconds(shown: &std::fs::Metadata) -> i128 {
    use std::os::unix::fs::MetadataExt;
    nanoseconds(shown.mtime(), shown.mtime_nsec())
}

/// The step of a file system that shows the probe like this.
fn step_of(shown: i128) -> i128 {
    let steps = STEPS.into_iter();
    steps.filter(|step| shown % step == 0).max().unwrap_or(1)
}

/// Sets the time of a file's last change. The time of its last access is set to what it is: file systems over
/// libfuse 2 (`fuse_lib_setattr`) take no notice of one time without the other, and report no error.
pub(super) fn set(file: &File, time: Timespec) -> io::Result<()> {
    let there = file.metadata()?;
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: std::os::unix::fs::MetadataExt::atime(&there),
            tv_nsec: std::os::unix::fs::MetadataExt::atime_nsec(&there),
        },
        last_modification: time,
    };
    Ok(rustix::fs::futimens(file, &times)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_seen_at_what_is_left_of_the_probe() {
        let whole = |step: i128| {
            #[allow(clippy::useless_conversion)] // they have fewer bits on other platforms
            let probe = nanoseconds(PROBE.tv_sec.into(), PROBE.tv_nsec.into());
            probe / step * step
        };
        for step in STEPS {
            assert_eq!(step_of(whole(step)), step);
        }
        // Rounded up, too; and where nothing is lost, or less than a millisecond.
        assert_eq!(step_of(whole(LONGEST) + LONGEST), LONGEST);
        for exact in [1, 100, 1000] {
            assert_eq!(step_of(whole(exact)), 1);
        }
    }

    /// A dry run writes nothing, and is told of files that a copy would find unchanged all the same.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_kind_of_a_file_system_says_its_step() {
        assert_eq!(step_of_kind(0x4d44), Some(LONGEST));
        assert_eq!(step_of_kind(0x2011_bab0), Some(SECOND / 100));
        assert_eq!(step_of_kind(0xef53), None); // ext4
    }

    #[test]
    fn equal_is_what_the_file_system_cannot_tell_apart_and_nothing_changes_by_finding_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let file = File::create(&path).unwrap();
        // Neither time is that of this test, so that one that is set anew is another.
        let at = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
        let times = Timestamps {
            last_access: at(1_600_000_000, 5),
            last_modification: at(1_700_000_000, 0),
        };
        rustix::fs::futimens(&file, &times).unwrap();
        let authority = cap_std::ambient_authority();
        let shown = cap_std::fs::Dir::open_ambient_dir(dir.path(), authority).unwrap();
        let there = shown.metadata("a").unwrap();
        let entry = |seconds, nanoseconds| Entry {
            mtime: seconds,
            mtime_nanos: nanoseconds,
            ..Entry::default()
        };
        let steps = Steps::default();
        let found = || probe(&File::open(&path).ok()?, &there).ok();
        let equal = |entry: Entry| steps.are_equal(&there, &entry, found);
        // Files of this directory have exact times, so this one is another's.
        assert!(equal(entry(1_700_000_000, 0)) && !equal(entry(1_700_000_001, 5)));
        assert_eq!(steps.known(&there), Some(1));
        let after = file.metadata().unwrap();
        assert_eq!(shown_nanoseconds(&after), 1_700_000_000 * SECOND);
        let accessed = {
            use std::os::unix::fs::MetadataExt;
            (after.atime(), after.atime_nsec())
        };
        assert_eq!(accessed, (1_600_000_000, 5));
        // As on FAT.
        steps.0.lock().unwrap().insert(there.dev(), LONGEST);
        assert!(equal(entry(1_700_000_001, 999_999_999)));
        assert!(!equal(entry(1_700_000_002, 0)) && !equal(entry(1_699_999_998, 0)));
    }
}
