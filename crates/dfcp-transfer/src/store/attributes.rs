//! Modes, times, owners and attributes of what is received.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use cap_std::fs::MetadataExt;
use nix::unistd::{Gid, Uid};
use rustix::fs::{Mode, Timespec, Timestamps, UTIME_OMIT};

use super::Store;
use crate::message::Entry;
use crate::meta::{self, Owners};

/// Bits of a mode that are taken over: no set-user-ID.
const MODE: u32 = 0o777;
/// Only its owner may remove a file from such a directory.
const STICKY: u32 = 0o1000;
/// What is made in such a directory has its group: it stays as it is there.
const SET_GROUP: u32 = 0o2000;

/// Bits that are taken over where modes are kept.
fn kept(entry: &Entry) -> u32 {
    match entry.directory {
        true => entry.mode & (MODE | STICKY),
        false => entry.mode & MODE,
    }
}

impl Store {
    /// The mode that what is offered gets.
    pub(super) fn mode_of(&self, entry: &Entry) -> u32 {
        match self.keep.modes {
            true => kept(entry),
            false => entry.mode & MODE & !self.umask,
        }
    }

    /// Gives a file or directory what was offered with it: its owner first, since that takes
    /// privileges away; its time last, since all else changes that.
    pub(super) fn apply(&self, file: &File, entry: &Entry) -> io::Result<()> {
        self.change_owner(file, entry);
        #[allow(clippy::useless_conversion)] // modes have 16 bits on other platforms
        let mut mode = Mode::from_bits_truncate(self.mode_of(entry).try_into().unwrap_or(0));
        if entry.directory {
            mode |= Mode::from_raw_mode(rustix::fs::fstat(file)?.st_mode) & Mode::SGID;
        }
        rustix::fs::fchmod(file, mode)?;
        self.apply_rest(file, entry);
        Ok(())
    }

    /// Gives a file that has its mode what else was offered with it.
    pub(super) fn apply_rest(&self, file: &File, entry: &Entry) {
        if let Some(meta) = &entry.meta {
            let leave_out = |why| self.notes.add(&entry.path, why);
            meta::write_attributes(file, meta, (self.keep, &self.known), leave_out);
        }
        let omitted = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        };
        let times = Timestamps {
            last_access: omitted,
            last_modification: Timespec {
                tv_sec: entry.mtime,
                tv_nsec: entry.mtime_nanos.min(999_999_999).into(),
            },
        };
        // Not every file system keeps every time.
        let _ = rustix::fs::futimens(file, &times);
    }

    pub(super) fn change_owner(&self, file: &File, entry: &Entry) {
        if let Some((user, group)) = self.owner_of(entry) {
            let changed = nix::unistd::fchown(file.as_fd(), Some(user), Some(group));
            self.note_owner(entry, changed.map_err(io::Error::from));
        }
    }

    /// Whose it is to be.
    pub(super) fn owner_of(&self, entry: &Entry) -> Option<(Uid, Gid)> {
        let owner = entry.meta.as_ref()?.owner?;
        if self.keep.owners == Owners::Receiver {
            let why = "its owner and group, which the receiver takes with --owner";
            self.notes.add(&entry.path, why.to_owned());
        }
        let (user, group) = self.known.owner(owner, self.keep.owners)?;
        Some((Uid::from_raw(user), Gid::from_raw(group)))
    }

    pub(super) fn note_owner(&self, entry: &Entry, changed: io::Result<()>) {
        if let Err(error) = changed {
            let why = format!("its owner and group: {error}");
            self.notes.add(&entry.path, why);
        }
    }

    /// Whether what is there has what would be kept of it, as far as its metadata tell.
    pub(super) fn has_kept(&self, there: &cap_std::fs::Metadata, entry: &Entry) -> bool {
        let mode = there.mode() & 0o7777 & !(SET_GROUP * u32::from(entry.directory));
        let mode = !self.keep.modes || mode == kept(entry);
        let rest = entry.meta.as_ref().is_none_or(|meta| {
            let owner = meta
                .owner
                .and_then(|owner| self.known.owner(owner, self.keep.owners));
            let same = owner.is_none_or(|owner| owner == (there.uid(), there.gid()));
            let refused = meta.owner.is_some() && self.keep.owners == Owners::Receiver;
            meta.attributes.is_empty() && same && !refused
        });
        mode && rest
    }
}
