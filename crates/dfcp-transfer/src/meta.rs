//! What belongs to a file beside its content: its owner, extended attributes and access control
//! lists; what a sender reads of them, and what a receiver takes and can keep.
//!
//! Nothing of it is taken that the receiver was not told to take. As with rsync: of extended
//! attributes the namespace `user`, and between superusers `trusted`; owners by their names where the
//! receiver knows these, else by their numbers, and the superuser never by name. Capabilities
//! (`security.capability`) are taken as little as set-user-ID bits.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use nix::unistd::{Gid, Group, Uid, User};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::message::{Entry, Meta, People};
use crate::name;
use crate::source::LeftOut;

/// Access control lists of POSIX.1e, as Linux keeps them.
const ACLS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];
/// Privileges of a program.
const CAPABILITIES: &str = "security.capability";
/// Longest list of names of attributes, and longest value (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX` of
/// Linux).
const MAX_VALUE: usize = 64 << 10;
/// Different reasons that are told apart.
const MAX_NOTES: usize = 100;

/// What of a file is kept beside its bytes and times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// User and group.
    pub owners: Owners,
    /// Extended attributes.
    pub attributes: bool,
    /// Access control lists.
    pub acls: bool,
    /// Holes, which take no room on the disk.
    pub holes: bool,
    /// Permission bits as they are, whatever the umask says; also of directories that are there.
    pub modes: bool,
}

/// Whose files become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owners {
    /// The receiver's; a sender that says others is told so.
    #[default]
    Receiver,
    /// The receiver's, whatever is said.
    Ignored,
    /// Those of the same name, or else number.
    Names,
    /// Those of the same number.
    Numbers,
}

/// Whether this process may give files away.
fn is_superuser() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Reads what is to be kept of the file at `path`; of a symbolic link only its owner.
pub(crate) fn read(
    path: &Path,
    metadata: &Metadata,
    keep: Keep,
    mut leave_out: impl FnMut(String),
) -> Option<Box<Meta>> {
    let mut meta = Meta::default();
    if keep.owners != Owners::Receiver {
        meta.owner = Some((metadata.uid(), metadata.gid()));
    }
    if (keep.attributes || keep.acls) && !metadata.is_symlink() {
        match attributes(path, keep, &mut leave_out) {
            Ok(attributes) => meta.attributes = attributes,
            Err(error) => leave_out(format!(
                "its extended attributes: {}",
                io::Error::from(error)
            )),
        }
    }
    (meta != Meta::default()).then(|| Box::new(meta))
}

fn attributes(
    path: &Path,
    keep: Keep,
    leave_out: &mut impl FnMut(String),
) -> Result<Vec<(String, String)>, Errno> {
    let mut list = vec![0; MAX_VALUE];
    let length = match rustix::fs::listxattr(path, &mut list[..]) {
        Err(Errno::NOTSUP) => 0,
        length => length?,
    };
    let mut attributes = Vec::new();
    let mut value = vec![0; MAX_VALUE];
    for name in list[..length].split(|byte| *byte == 0) {
        let name = OsStr::from_bytes(name);
        if keep.attributes && name == CAPABILITIES {
            leave_out("its capabilities; the file is sent".into());
        }
        if !is_kept(&name.to_string_lossy(), keep) {
            continue;
        }
        let length = match rustix::fs::getxattr(path, name, &mut value[..]) {
            Err(Errno::NODATA) => continue,
            length => length?,
        };
        let value = name::encode(OsStr::from_bytes(&value[..length]));
        attributes.push((name::encode(name), value));
    }
    Ok(attributes)
}

/// Whether an attribute of this name is taken along.
fn is_kept(name: &str, keep: Keep) -> bool {
    let open = name.starts_with("user.") || (name.starts_with("trusted.") && is_superuser());
    (keep.attributes && open) || (keep.acls && ACLS.contains(&name))
}

/// The names of everybody whose number is in these entries.
pub(crate) fn people<'a>(entries: impl Iterator<Item = &'a Entry>) -> People {
    let (mut users, mut groups) = (BTreeMap::new(), BTreeMap::new());
    let mut user = |id: u32| {
        users.entry(id).or_insert_with(|| {
            User::from_uid(Uid::from_raw(id))
                .ok()
                .flatten()
                .map(|user| user.name)
        });
    };
    let mut group = |id: u32| {
        groups.entry(id).or_insert_with(|| {
            Group::from_gid(Gid::from_raw(id))
                .ok()
                .flatten()
                .map(|group| group.name)
        });
    };
    for meta in entries.filter_map(|entry| entry.meta.as_ref()) {
        if let Some((uid, gid)) = meta.owner {
            user(uid);
            group(gid);
        }
        for (name, value) in &meta.attributes {
            if ACLS.contains(&name.as_str())
                && let Some(value) = name::decode(value)
            {
                for (tag, id) in named(value.as_bytes()) {
                    match tag {
                        Tag::User => user(id),
                        Tag::Group => group(id),
                    }
                }
            }
        }
    }
    let named = |all: BTreeMap<u32, Option<String>>| {
        let known = all.into_iter().filter_map(|(id, name)| Some((id, name?)));
        known.filter(|(_, name)| name::is_plain(name)).collect()
    };
    People {
        users: named(users),
        groups: named(groups),
    }
}

/// Whom an entry of an access control list names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    User,
    Group,
}

/// Entries of an access control list that name somebody: `posix_acl_xattr_entry` of Linux, after a
/// version of 4 bytes a tag and permissions of 2 bytes each, and a number of 4, little-endian.
fn named(acl: &[u8]) -> impl Iterator<Item = (Tag, u32)> {
    places(acl.len()).filter_map(|at| {
        let tag = tag_at(acl, at)?;
        let id = acl.get(at + 4..at + 8)?.try_into().ok()?;
        Some((tag, u32::from_le_bytes(id)))
    })
}

fn places(length: usize) -> impl Iterator<Item = usize> {
    (4..length).step_by(8)
}

fn tag_at(acl: &[u8], at: usize) -> Option<Tag> {
    match acl.get(at..at + 2)? {
        [2, 0] => Some(Tag::User),
        [8, 0] => Some(Tag::Group),
        _ => None,
    }
}

/// What the numbers of a sender are here.
#[derive(Debug, Default)]
pub(crate) struct Known {
    people: People,
    found: Mutex<BTreeMap<(bool, u32), u32>>,
}

impl Known {
    /// Numbers whose names the sender told.
    pub fn new(people: &People) -> Self {
        Self {
            people: people.clone(),
            found: Mutex::default(),
        }
    }

    fn user(&self, id: u32) -> u32 {
        let look = |name: &str| Some(User::from_name(name).ok()??.uid.as_raw());
        self.find((false, id), &self.people.users, look)
    }

    fn group(&self, id: u32) -> u32 {
        let look = |name: &str| Some(Group::from_name(name).ok()??.gid.as_raw());
        self.find((true, id), &self.people.groups, look)
    }

    fn find(
        &self,
        key: (bool, u32),
        names: &[(u32, String)],
        look: impl FnOnce(&str) -> Option<u32>,
    ) -> u32 {
        let id = key.1;
        if id == 0 {
            return 0;
        }
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        *found.entry(key).or_insert_with(|| {
            let name = names.iter().find(|(of, _)| *of == id);
            let here = name.and_then(|(_, name)| look(name));
            // A name that means the superuser here means somebody else there.
            here.filter(|here| *here != 0).unwrap_or(id)
        })
    }

    /// Whose a file becomes that belongs to `owner` at the sender.
    pub fn owner(&self, (uid, gid): (u32, u32), owners: Owners) -> Option<(u32, u32)> {
        match owners {
            Owners::Receiver | Owners::Ignored => None,
            Owners::Names => Some((self.user(uid), self.group(gid))),
            Owners::Numbers => Some((uid, gid)),
        }
    }

    /// An access control list with the numbers that its names have here.
    fn acl(&self, acl: &[u8], owners: Owners) -> Vec<u8> {
        let mut mapped = acl.to_vec();
        if owners == Owners::Numbers {
            return mapped;
        }
        for at in places(acl.len()) {
            let Some((tag, id)) = tag_at(acl, at).zip(acl.get(at + 4..at + 8)) else {
                continue;
            };
            let id = u32::from_le_bytes(id.try_into().unwrap_or_default());
            let here = match tag {
                Tag::User => self.user(id),
                Tag::Group => self.group(id),
            };
            mapped[at + 4..at + 8].copy_from_slice(&here.to_le_bytes());
        }
        mapped
    }
}

/// Gives a file its attributes, and says of those that are not taken or cannot be kept why.
pub(crate) fn write_attributes(
    file: &File,
    meta: &Meta,
    (keep, known): (Keep, &Known),
    mut leave_out: impl FnMut(String),
) {
    for (name, value) in &meta.attributes {
        let Some((plain, value)) = name::decode(name).zip(name::decode(value)) else {
            continue;
        };
        let acl = ACLS.contains(&name.as_str());
        if !is_kept(name, keep) {
            leave_out(match acl {
                true if !keep.acls => {
                    "its access control lists, which the receiver takes with -A".into()
                }
                false if !keep.attributes => {
                    "its extended attributes, which the receiver takes with -X".into()
                }
                _ => format!("its extended attribute {name}, which only superusers take"),
            });
            continue;
        }
        let value = match acl {
            true => known.acl(value.as_bytes(), keep.owners),
            false => value.as_bytes().to_vec(),
        };
        if let Err(error) = rustix::fs::fsetxattr(file, &*plain, &value, XattrFlags::empty()) {
            let what = if acl {
                "its access control list"
            } else {
                "its extended attribute"
            };
            leave_out(format!("{what} {name}: {}", io::Error::from(error)));
        }
    }
}

/// What could not be kept of files, by reason: the first file, and how many there are.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<BTreeMap<String, (String, u64)>>);

impl Notes {
    /// Notes that something of the file at `path` was not kept.
    pub fn add(&self, path: &str, why: String) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() >= MAX_NOTES && !notes.contains_key(&why) {
            return;
        }
        notes.entry(why).or_insert_with(|| (path.to_owned(), 0)).1 += 1;
    }

    /// All of it.
    pub fn take(&self) -> Vec<LeftOut> {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = std::mem::take(&mut *notes).into_iter();
        all.map(|(why, (path, files))| LeftOut {
            path,
            why: match files {
                1 => why,
                n => format!("{why} (and so of {} more)", n - 1),
            },
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_linux_writes_them_and_damaged_ones_too() {
        let mut acl = vec![2, 0, 0, 0];
        for (tag, id) in [
            (1_u16, u32::MAX),
            (2, 1000),
            (4, u32::MAX),
            (8, 50),
            (16, u32::MAX),
        ] {
            acl.extend(tag.to_le_bytes());
            acl.extend(7_u16.to_le_bytes());
            acl.extend(id.to_le_bytes());
        }
        let ids: Vec<_> = named(&acl).map(|(_, id)| id).collect();
        assert_eq!(ids, [1000, 50]);
        let known = Known::default();
        for cut in 0..=acl.len() {
            assert_eq!(known.acl(&acl[..cut], Owners::Names), &acl[..cut]);
        }
    }

    #[test]
    fn a_name_never_makes_a_superuser() {
        let people = People {
            users: vec![(1234, "root".into())],
            groups: vec![],
        };
        let known = Known::new(&people);
        assert_eq!(known.owner((1234, 0), Owners::Names), Some((1234, 0)));
        assert_eq!(known.owner((0, 7), Owners::Numbers), Some((0, 7)));
        assert_eq!(known.owner((0, 7), Owners::Receiver), None);
    }
}
