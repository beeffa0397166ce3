//! The list of files: cut into messages by the sender, checked as a whole by the receiver before
//! it touches its disk.

mod limits;
mod path;

pub use limits::{Limits, Refused};
pub use path::{check_link, check_path};

use std::collections::BTreeMap;

use crate::memory::{Holding, Memory};
use crate::message::{
    Entry, FromSender, Link, MAX_MESSAGE, Meta, People, Rejection, RejectionKind, VERSION, Wishes,
};

/// Most entries of an offer, twice the million that people have in one tree: with paths of 100 bytes they
/// take half a gigabyte of memory.
pub(crate) const MAX_ENTRIES: usize = 2_000_000;
/// Most bytes of all paths of an offer: about 100 for each of these.
const MAX_PATHS: usize = 256 << 20;
/// Users and groups with names: what a machine has of them that share files, many times over.
const MAX_PEOPLE: usize = 10_000;
/// Those in one message, with names of 32 bytes (`LOGIN_NAME_MAX` of most systems) or somewhat more.
const LISTED_PEOPLE: usize = 500;
/// What the allocator adds to a path.
const HEAP: usize = 16;

/// Cuts an offer into messages.
pub fn split(entries: &[Entry], wishes: Wishes, people: &People) -> Vec<FromSender> {
    let mut parts = vec![Vec::new()];
    let mut used = 0;
    for entry in entries {
        used += cost(entry);
        if used > MAX_MESSAGE - 200 {
            parts.push(Vec::new());
            used = cost(entry);
        }
        parts
            .last_mut()
            .expect("starts with one part")
            .push(entry.clone());
    }
    let named = people.users.chunks(LISTED_PEOPLE).map(|users| People {
        users: users.to_vec(),
        ..People::default()
    });
    let named = named.chain(people.groups.chunks(LISTED_PEOPLE).map(|groups| People {
        groups: groups.to_vec(),
        ..People::default()
    }));
    let parts = named.map(|people| (Vec::new(), people)).chain(
        parts
            .into_iter()
            .map(|entries| (entries, People::default())),
    );
    let parts: Vec<_> = parts.collect();
    let last = parts.len() - 1;
    let message = |(i, (entries, people))| FromSender::Offer {
        version: VERSION,
        entries,
        more: i < last,
        wishes: if i == 0 { wishes } else { Wishes::default() },
        people,
    };
    parts.into_iter().enumerate().map(message).collect()
}

/// Bytes of a message that an entry takes at most: 250 without texts, and escapes at most double those.
fn cost(entry: &Entry) -> usize {
    let link = match &entry.link {
        Some(Link::Symbolic(to)) => to.len(),
        _ => 0,
    };
    let meta = entry
        .meta
        .as_ref()
        .map_or(0, |meta| meta.text_bytes() + 8 * meta.attributes.len());
    250 + 2 * (entry.path.len() + link + meta)
}

/// Bytes of a message that these take at most.
pub(crate) fn most_bytes(entries: &[Entry], people: &People) -> u64 {
    let names = people.users.iter().chain(&people.groups);
    // A number of 32 bits, quotes, brackets and commas, and escapes.
    let names = names.map(|(_, name)| 16 + 2 * name.len()).sum::<usize>();
    // What says of a part that it is one, with its wishes.
    (entries.iter().map(cost).sum::<usize>() + names + 200) as u64
}

/// Whether an entry fits into a message.
pub(crate) fn fits(entry: &Entry) -> bool {
    cost(entry) <= MAX_MESSAGE - 200
}

/// An offer that is being received.
#[derive(Debug)]
pub struct Offer {
    limits: Limits,
    entries: Vec<Entry>,
    people: People,
    path_bytes: usize,
    /// Bytes of all files so far.
    offered: u64,
    holding: Holding,
}

/// What is known of a path while an offer is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A file or a link.
    File,
    /// A directory that is offered.
    Directory,
    /// A directory whose path leads through directories.
    Passed,
}

/// An offer that was checked.
#[derive(Debug)]
pub struct Offered {
    /// What is offered.
    pub entries: Vec<Entry>,
    /// What of it is not taken.
    pub refused: Refused,
    /// Names of owners.
    pub people: People,
    /// What the list takes of memory.
    pub holding: Holding,
}

impl Offer {
    /// Nothing has come yet; no more than `limits` is taken, nor than other offers leave of memory.
    pub fn new(limits: Limits, memory: &Memory) -> Self {
        Self {
            limits,
            entries: Vec::new(),
            people: People::default(),
            path_bytes: 0,
            offered: 0,
            holding: memory.share().nothing(),
        }
    }

    /// Whether nothing of it has come.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.people.is_empty()
    }

    /// Takes a part in.
    ///
    /// # Errors
    /// When the version is not known here, or the offer gets too long.
    pub fn add(
        &mut self,
        version: u32,
        entries: Vec<Entry>,
        people: People,
    ) -> Result<(), Rejection> {
        if version != VERSION {
            let who = match version < VERSION {
                true => "the sender's dfcp is older than the receiver's",
                false => "the receiver's dfcp is older than the sender's",
            };
            return Err(Rejection::offer(format!(
                "version {version} of the protocol of files is not known here, {VERSION} is: {who}"
            )));
        }
        let sizes = entries.iter().map(|entry| entry.size);
        self.offered = sizes.fold(self.offered, u64::saturating_add);
        self.limits.check_bytes(self.offered)?;
        let paths = entries.iter().map(|entry| entry.path.len()).sum::<usize>();
        self.path_bytes += paths;
        let link = |entry: &Entry| match &entry.link {
            Some(Link::Symbolic(to)) => to.len() + HEAP,
            _ => 0,
        };
        let links = entries.iter().map(link).sum::<usize>();
        let metas = entries.iter().filter_map(|entry| entry.meta.as_ref());
        let each = |meta: &Meta| {
            size_of::<Meta>() + meta.text_bytes() + meta.attributes.len() * (48 + 2 * HEAP)
        };
        let metas = metas.map(|meta| each(meta)).sum::<usize>();
        let names = people.users.iter().chain(&people.groups);
        let names = names.map(|(_, name)| 32 + name.len() + HEAP).sum::<usize>();
        // Room for further entries counts as well; a list that doubled as it grows would have twice as much.
        let (had, needed) = (self.entries.capacity(), self.entries.len() + entries.len());
        let capacity = match needed > had {
            true => needed.max(had + had / 8),
            false => had,
        };
        let list = (capacity - had) * size_of::<Entry>() + entries.len() * HEAP;
        let bytes = paths + links + metas + names + list;
        if !self.holding.grow(bytes as u64, self.limits.held()) {
            return Err(Rejection::new(
                RejectionKind::Limit,
                "the list of files is too long beside those of other senders; send less at a time, \
                 or later; the receiver may raise --max-files",
            ));
        }
        self.entries.reserve_exact(capacity - self.entries.len());
        self.entries.extend(entries);
        self.people.users.extend(people.users);
        self.people.groups.extend(people.groups);
        if self.people.len() > MAX_PEOPLE {
            return Err(Rejection::offer("too many names of owners"));
        }
        self.limits.check_count(self.entries.len())?;
        match self.entries.len() > MAX_ENTRIES || self.path_bytes > MAX_PATHS {
            true => Err(Rejection::offer(
                "more than 2,000,000 files and directories, or too long names of so many: send them \
                 in parts",
            )),
            false => Ok(()),
        }
    }

    /// The whole list, checked, and what it takes of memory.
    ///
    /// # Errors
    /// When a path could lead outside the receiver's directory, is there twice or through a file,
    /// sizes are impossible, or it is more than the receiver takes, or nothing that it takes.
    pub fn finish(self) -> Result<Offered, Rejection> {
        let mut places = BTreeMap::new();
        let mut total: u64 = 0;
        for entry in &self.entries {
            check_path(&entry.path)
                .map_err(|reason| format!("{}: {reason}", entry.path))
                .map_err(Rejection::offer)?;
            let place = match entry.directory {
                true => Place::Directory,
                false => Place::File,
            };
            if places.insert(entry.path.as_str(), place).is_some() {
                return Err(Rejection::offer(format!("{} is offered twice", entry.path)));
            }
            total = total
                .checked_add(entry.size)
                .ok_or_else(|| Rejection::offer("impossible sizes"))?;
            let sized = entry.is_file() && !entry.stream;
            if i64::try_from(total).is_err()
                || (!sized && entry.size > 0)
                || entry.data.is_some_and(|data| data > entry.size)
            {
                return Err(Rejection::offer("impossible sizes"));
            }
        }
        self.check_links()?;
        for entry in &self.entries {
            self.check_parents(&entry.path, &mut places)?;
        }
        self.limits.check_bytes(total)?;
        Ok(Offered {
            refused: self.limits.refused(&self.entries)?,
            entries: self.entries,
            people: self.people,
            holding: self.holding,
        })
    }

    /// A path leads through directories, those that are only parts of paths among them, which are made as well.
    /// How many of them were looked at.
    fn check_parents<'a>(
        &self,
        path: &'a str,
        places: &mut BTreeMap<&'a str, Place>,
    ) -> Result<usize, Rejection> {
        let mut looks = 0;
        for (at, _) in path.rmatch_indices('/') {
            looks += 1;
            match places.insert(&path[..at], Place::Passed) {
                Some(Place::File) => {
                    let message = format!("{path} leads through a file");
                    return Err(Rejection::offer(message));
                }
                // So does what is above it: a hundred directories are looked at once, not for each file in them.
                Some(Place::Passed) => break,
                Some(Place::Directory) | None => self.limits.check_count(places.len())?,
            }
        }
        Ok(looks)
    }

    /// Links lead to what is offered before, or to beneath the tree that they are in.
    fn check_links(&self) -> Result<(), Rejection> {
        for (i, entry) in self.entries.iter().enumerate() {
            let wrong = match &entry.link {
                None => None,
                Some(_) if entry.directory => Some("it is a directory and a link"),
                Some(Link::Symbolic(to)) => check_link(&entry.path, to).err(),
                Some(Link::Hard(to)) => {
                    let to = usize::try_from(*to).ok().filter(|to| *to < i);
                    let first = to.and_then(|to| self.entries.get(to));
                    match first.is_some_and(Entry::is_file) {
                        true => None,
                        false => Some("it is another name of no file"),
                    }
                }
            };
            if let Some(reason) = wrong {
                let message = format!("{}: {reason}", entry.path);
                return Err(Rejection::offer(message));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
