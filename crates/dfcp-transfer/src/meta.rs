//! What belongs to a file beside its content: its owner, extended attributes and access control
//! lists; what a sender reads of them, and what a receiver takes and can keep.
//!
//! Nothing of it is taken that the receiver was not told to take. As with rsync: of extended
//! attributes the namespace `user`, and between superusers `trusted`; owners by their names where the
//! receiver knows these, else by their numbers, and the superuser never by name. Capabilities
//! (`security.capability`) are not taken.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use nix::unistd::{Gid, Group, Uid, User};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::message::{Change, Entry, Exact, Meta, People};
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
            Err(error) => {
                meta.incomplete = true;
                leave_out(format!(
                    "its extended attributes: {}",
                    io::Error::from(error)
                ));
            }
        }
    }
    (meta != Meta::default()).then(|| Box::new(meta))
}

fn attributes(
    path: &Path,
    keep: Keep,
    leave_out: &mut impl FnMut(String),
) -> Result<Vec<(String, String)>, Errno> {
    let list = |list: &mut [u8]| rustix::fs::listxattr(path, list);
    let get = |name: &OsStr, value: &mut [u8]| rustix::fs::getxattr(path, name, value);
    let is_wanted = |name: &OsStr| {
        if keep.attributes && name == CAPABILITIES {
            leave_out("its capabilities; the file is sent".into());
        }
        is_kept(&name.to_string_lossy(), keep)
    };
    let found = read_attributes(list, get, is_wanted)?;
    let text = |(name, value): (OsString, Vec<u8>)| {
        (name::encode(&name), name::encode(OsStr::from_bytes(&value)))
    };
    Ok(found.into_iter().map(text).collect())
}

/// Names and values of those attributes that are wanted; `list` and `get` are the system's calls.
fn read_attributes(
    list: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    get: impl Fn(&OsStr, &mut [u8]) -> Result<usize, Errno>,
    mut is_wanted: impl FnMut(&OsStr) -> bool,
) -> Result<Vec<(OsString, Vec<u8>)>, Errno> {
    let mut names = vec![0; MAX_VALUE];
    let length = match list(&mut names) {
        Err(Errno::NOTSUP) => 0,
        length => length?,
    };
    let (mut found, mut value) = (Vec::new(), Vec::new());
    for name in names[..length].split(|byte| *byte == 0) {
        let name = OsStr::from_bytes(name);
        if !is_wanted(name) {
            continue;
        }
        value.resize(MAX_VALUE, 0);
        match get(name, &mut value) {
            Err(Errno::NODATA) => {} // removed meanwhile
            length => found.push((name.to_owned(), value[..length?].to_vec())),
        }
    }
    Ok(found)
}

/// Whether an attribute of this name is taken along.
fn is_kept(name: &str, keep: Keep) -> bool {
    let open = name.starts_with("user.") || (name.starts_with("trusted.") && is_superuser());
    (keep.attributes && open) || (keep.acls && ACLS.contains(&name))
}

/// What the entries of a sender that keeps this have all of.
pub(crate) fn exact(keep: Keep) -> Exact {
    Exact {
        user: keep.attributes,
        trusted: keep.attributes && is_superuser(),
        acls: keep.acls,
    }
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

/// What of `mode` holds without the access control list `acl`. With it, the group's bits are the list's mask, the
/// most that anybody named in it may do; the group may do what its own entry says of that.
fn without(acl: &[u8], mode: u32) -> u32 {
    const GROUP: [u8; 2] = [4, 0];
    let entries = places(acl.len()).filter_map(|at| acl.get(at..at + 4));
    let mut group = entries.filter(|entry| entry[..2] == GROUP);
    let bits = group.next().map_or(7, |entry| u32::from(entry[2] & 7));
    mode & !(0o070 & !(bits << 3))
}

/// The mode to offer of the file at `path` whose list is not.
pub(crate) fn mode_without_list(path: &Path, mode: u32) -> u32 {
    // Most files have none, and are asked for no more than that.
    let Ok(length) = rustix::fs::getxattr_query(path, ACLS[0]) else {
        return mode;
    };
    let mut acl = vec![0; length];
    match rustix::fs::getxattr(path, ACLS[0], &mut acl) {
        Ok(_) => without(&acl, mode),
        // It has changed meanwhile.
        Err(_) => mode & !0o070,
    }
}

impl Meta {
    /// The list of who may do what, where it was offered.
    pub(crate) fn acl(&self) -> Option<&str> {
        let mut acls = self.attributes.iter().filter(|(name, _)| name == ACLS[0]);
        acls.next().map(|(_, value)| value.as_str())
    }
}

/// The mode of what is offered before it has its list, which brings the mask: some receivers do not take lists.
pub(crate) fn mode_before_list(entry: &Entry) -> u32 {
    let acl = entry.meta.as_ref().and_then(|meta| meta.acl());
    match acl.and_then(name::decode) {
        Some(acl) => without(acl.as_bytes(), entry.mode),
        None => entry.mode,
    }
}

/// What the numbers of a sender are here.
#[derive(Debug, Default)]
pub(crate) struct Known {
    users: Names,
    groups: Names,
}

/// Names by numbers, with what they mean here once that was looked for: an offer has millions of numbers, and of
/// most no name was told.
#[derive(Debug, Default)]
struct Names(BTreeMap<u32, (String, OnceLock<Option<u32>>)>);

impl Names {
    /// Of names that were told twice the first counts.
    fn of(told: &[(u32, String)]) -> Self {
        let last_first = told.iter().rev();
        Self(
            last_first
                .map(|(id, name)| (*id, (name.clone(), OnceLock::new())))
                .collect(),
        )
    }

    /// What `id` is here, where `look` says whose a name is.
    fn find(&self, id: u32, look: impl FnOnce(&str) -> Option<u32>) -> u32 {
        if id == 0 {
            return 0;
        }
        let named = self.0.get(&id);
        let here = named.and_then(|(name, here)| *here.get_or_init(|| look(name)));
        // A name that means the superuser here means somebody else there.
        here.filter(|here| *here != 0).unwrap_or(id)
    }
}

impl Known {
    /// Numbers whose names the sender told.
    pub fn new(people: &People) -> Self {
        Self {
            users: Names::of(&people.users),
            groups: Names::of(&people.groups),
        }
    }

    fn user(&self, id: u32) -> u32 {
        let look = |name: &str| Some(User::from_name(name).ok()??.uid.as_raw());
        self.users.find(id, look)
    }

    fn group(&self, id: u32) -> u32 {
        let look = |name: &str| Some(Group::from_name(name).ok()??.gid.as_raw());
        self.groups.find(id, look)
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

/// How the attributes of a sender's files become those of files here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taking<'a> {
    /// What is kept of files.
    pub keep: Keep,
    /// What the sender has said all of.
    pub exact: Exact,
    /// Whom it means.
    pub known: &'a Known,
}

impl Taking<'_> {
    /// Why an attribute that was offered is not taken.
    fn refusal(&self, name: &str) -> Option<String> {
        if is_kept(name, self.keep) {
            return None;
        }
        Some(match ACLS.contains(&name) {
            true => "its access control lists, which the receiver takes with -A".into(),
            false if !self.keep.attributes => {
                "its extended attributes, which the receiver takes with -X".into()
            }
            false => format!("its extended attribute {name}, which only superusers take"),
        })
    }

    /// Whether something was offered that is not taken.
    pub fn refuses(&self, meta: Option<&Meta>) -> bool {
        let mut names = meta.iter().flat_map(|meta| &meta.attributes);
        names.any(|(name, _)| self.refusal(name).is_some())
    }

    /// Whether an attribute goes that was not offered with a file.
    fn removes(&self, name: &str, meta: Option<&Meta>) -> bool {
        let exact = match name {
            name if ACLS.contains(&name) => self.exact.acls,
            name if name.starts_with("trusted.") => self.exact.trusted,
            _ => self.exact.user,
        };
        exact && is_kept(name, self.keep) && meta.is_none_or(|meta| !meta.incomplete)
    }

    /// Whether a file need not be looked at, since nothing is said of its attributes.
    pub fn says_nothing(&self, meta: Option<&Meta>) -> bool {
        let exact = Exact {
            user: self.exact.user && self.keep.attributes,
            trusted: self.exact.trusted && self.keep.attributes,
            acls: self.exact.acls && self.keep.acls,
        };
        exact == Exact::default() && meta.is_none_or(|meta| meta.attributes.is_empty())
    }

    /// The attributes that a file is to have.
    fn wanted(&self, meta: Option<&Meta>) -> BTreeMap<OsString, Vec<u8>> {
        let offered = meta.iter().flat_map(|meta| &meta.attributes);
        let taken = offered.filter(|(name, _)| is_kept(name, self.keep));
        let here = |(name, value): &(String, String)| {
            let (plain, value) = name::decode(name).zip(name::decode(value))?;
            let value = match ACLS.contains(&name.as_str()) {
                true => self.known.acl(value.as_bytes(), self.keep.owners),
                false => value.as_bytes().to_vec(),
            };
            Some((plain.into_owned(), value))
        };
        taken.filter_map(here).collect()
    }

    /// The attributes that a file has, of those that are kept.
    fn there(&self, file: &File) -> Result<BTreeMap<OsString, Vec<u8>>, Errno> {
        let list = |list: &mut [u8]| rustix::fs::flistxattr(file, list);
        let get = |name: &OsStr, value: &mut [u8]| rustix::fs::fgetxattr(file, name, value);
        let is_wanted = |name: &OsStr| is_kept(&name.to_string_lossy(), self.keep);
        Ok(read_attributes(list, get, is_wanted)?.into_iter().collect())
    }

    /// What of the attributes of a file that is there is to change.
    pub fn changes(&self, file: &File, meta: Option<&Meta>) -> Vec<Change> {
        let (wanted, there) = (self.wanted(meta), self.there(file).unwrap_or_default());
        let set = wanted
            .iter()
            .filter(|(name, value)| there.get(*name) != Some(*value))
            .map(|(name, _)| name);
        let gone = there.keys().filter(|name| {
            !wanted.contains_key(*name) && self.removes(&name.to_string_lossy(), meta)
        });
        let mut changes = Vec::new();
        for name in set.chain(gone) {
            let change = match ACLS.iter().any(|acl| name == acl) {
                true => Change::Acls,
                false => Change::Xattrs,
            };
            if !changes.contains(&change) {
                changes.push(change);
            }
        }
        changes
    }

    /// Gives a file its attributes, and takes those away that it has beside them; says of what is not
    /// taken or cannot be kept why.
    pub fn write(&self, file: &File, meta: Option<&Meta>, mut leave_out: impl FnMut(String)) {
        if self.says_nothing(meta) {
            return;
        }
        for (name, _) in meta.iter().flat_map(|meta| &meta.attributes) {
            if let Some(why) = self.refusal(name) {
                leave_out(why);
            }
        }
        let wanted = self.wanted(meta);
        let mut failed = |verb: &str, name: &OsStr, error: Errno| {
            let what = match ACLS.iter().any(|acl| name == *acl) {
                true => "access control list",
                false => "extended attribute",
            };
            let (name, error) = (name::encode(name), io::Error::from(error));
            leave_out(format!("its {what} {name}{verb}: {error}"));
        };
        for (name, value) in &wanted {
            if let Err(error) = rustix::fs::fsetxattr(file, name, value, XattrFlags::empty()) {
                failed("", name, error);
            }
        }
        for name in self.there(file).unwrap_or_default().keys() {
            if wanted.contains_key(name) || !self.removes(&name.to_string_lossy(), meta) {
                continue;
            }
            match rustix::fs::fremovexattr(file, name) {
                Ok(()) | Err(Errno::NODATA) => {}
                Err(error) => failed(", which is to go", name, error),
            }
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
mod tests;
