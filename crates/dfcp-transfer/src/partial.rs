//! A file that is not whole, and the journal beside it that says which of its groups are.
//!
//! The journal is a hint. A group counts as there after a restart only if its bytes, read back, have
//! the value that the journal gives, so neither a kill between two writes nor a power failure that
//! lost some of them can make a wrong byte pass; they lose groups. A group's line is written after
//! its bytes, so a kill loses what was not whole and no more.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::tenants::Hold;
use crate::tree::{GroupHasher, Shape, Value, check};
use crate::turns::Going;

/// Follows the name of a journal.
pub const JOURNAL: &str = ".dfcp-journal";
/// The first bytes of a journal.
const MAGIC: [u8; 16] = *b"dfcp-journal-2\n\0";
/// What a journal begins with: magic, the sender's key, size of the file.
const HEADER: usize = 16 + 32 + 8;
/// A group: its number and value.
const LINE: usize = 8 + 32;
/// Longest journal that is read: every group four times over, which resends would need.
const MAX_JOURNAL: u64 = (HEADER + 4 * 4096 * LINE) as u64;
/// Longest journal that is gone on with: what a session adds leaves it one that is read.
const LONG_JOURNAL: u64 = MAX_JOURNAL / 2;
/// Groups that are hashed as their bytes come, at most: two KiB each, and more than are open where blocks
/// complete nearly in order. Others are read back.
const MAX_RUNNING: usize = 32;

/// A file that is being received.
#[derive(Debug)]
pub struct Partial {
    /// The open file, locked.
    pub file: File,
    /// Its name.
    pub name: String,
    /// How it is cut into groups.
    pub shape: Shape,
    groups: Mutex<Groups>,
    /// Ends after the lock does.
    _hold: Hold,
}

#[derive(Debug)]
struct Groups {
    /// Bytes of each that have not come.
    left: Vec<u64>,
    /// Of those that are whole.
    values: BTreeMap<usize, Value>,
    /// Of those whose bytes came in order so far: hashed up to an offset in the file.
    running: BTreeMap<usize, (GroupHasher, u64)>,
    /// Where they are noted, if they are.
    journal: Option<File>,
    /// Whether a part of it was said to be a hole: a group may have more bytes than came for it.
    has_holes: bool,
}

impl Partial {
    /// An empty one, whose groups are noted in `journal`.
    pub fn new(file: File, name: String, size: u64, journal: Option<File>, hold: Hold) -> Self {
        let shape = Shape::new(size);
        let length = |i| shape.range(i).end - shape.range(i).start;
        let groups = Groups {
            left: (0..shape.count()).map(length).collect(),
            values: BTreeMap::new(),
            running: BTreeMap::new(),
            journal,
            has_holes: false,
        };
        Self {
            file,
            name,
            shape,
            groups: Mutex::new(groups),
            _hold: hold,
        }
    }

    /// Finds the groups that are there: those whose bytes have the value that `journal` gives.
    ///
    /// # Errors
    /// When the journal cannot be read or written, or `go_on` says that nobody wants to know any more.
    pub fn recover(
        &self,
        journal: &File,
        owner: &Value,
        go_on: impl Fn() -> bool,
    ) -> io::Result<()> {
        let length = journal.metadata()?.len();
        if length > MAX_JOURNAL {
            return Ok(());
        }
        let mut text = vec![0; length as usize];
        journal.read_exact_at(&mut text, 0)?;
        let Some((header, lines)) = text.split_at_checked(HEADER) else {
            return Ok(());
        };
        if header[..48] != header_of(owner, 0)[..48] {
            return Ok(());
        }
        // A file of another size is cut alike, or what is noted will not be found there.
        let mut noted: BTreeMap<usize, Vec<Value>> = BTreeMap::new();
        for (i, value) in lines.chunks_exact(LINE).filter_map(group_of) {
            if i < self.shape.count() && !self.groups().values.contains_key(&i) {
                noted.entry(i).or_default().push(value);
            }
        }
        // Each is read once, however often a sender had it noted: it may have a quarter of a gigabyte.
        for (i, values) in noted {
            self.find(i, &values, &go_on);
            check(&go_on)?;
        }
        Ok(())
    }

    /// Group `i` is there if its bytes, read back, have one of these values. What cannot be read is not there.
    fn find(&self, i: usize, values: &[Value], go_on: impl Fn() -> bool) {
        let found = self.shape.value_while(&self.file, i, go_on);
        if let Some(value) = found.ok().filter(|found| values.contains(found)) {
            let mut groups = self.groups();
            groups.values.insert(i, value);
            groups.left[i] = 0;
        }
    }

    /// Takes over these groups of an older version of the file, which has holes outside of `data` if that
    /// is known, as far as their bytes are found here afterwards to have the values that are wanted: what
    /// happens to that file meanwhile does no harm. Ends early when `go_on` says so.
    pub fn take_over(
        &self,
        (older, data): (&File, Option<&[Range<u64>]>),
        wanted: &[(usize, Value)],
        go_on: impl Fn() -> bool,
    ) {
        for &(i, value) in wanted.iter().take_while(|_| go_on()) {
            if self.groups().values.get(&i) == Some(&value) {
                continue;
            }
            let range = self.shape.range(i);
            self.forget(&range);
            if crate::sparse::copy(older, &self.file, &range, data).is_ok() {
                self.find(i, &[value], &go_on);
            }
        }
    }

    /// Has the groups noted that come, and those that are there. A journal of this part is gone on with: at
    /// no moment does it say less than before, so that a kill while a transfer begins again loses nothing.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn start_journal(&self, mut journal: File, owner: &Value) -> io::Result<()> {
        let header = header_of(owner, self.shape.size());
        let mut groups = self.groups();
        let mut there = groups.values.clone();
        let length = journal.metadata()?.len();
        let whole = length.saturating_sub(length.saturating_sub(HEADER as u64) % LINE as u64);
        let mut begins = [0; HEADER];
        let is_ours = !there.is_empty()
            && whole <= LONG_JOURNAL
            && journal.read_exact_at(&mut begins, 0).is_ok()
            && begins == header;
        let mut text = Vec::new();
        if is_ours {
            let mut noted = vec![0; whole as usize - HEADER];
            journal.read_exact_at(&mut noted, HEADER as u64)?;
            for (i, value) in noted.chunks_exact(LINE).filter_map(group_of) {
                if there.get(&i) == Some(&value) {
                    there.remove(&i);
                }
            }
            // But for a line that was cut off.
            journal.set_len(whole)?;
        } else {
            journal.set_len(0)?;
            text.extend(header);
        }
        for (i, value) in &there {
            text.extend(line_of(*i, value));
        }
        journal.seek(SeekFrom::End(0))?;
        journal.write_all(&text)?;
        groups.journal = Some(journal);
        Ok(())
    }

    /// The groups that are there, with their values.
    pub fn have(&self) -> Vec<(u64, Value)> {
        let groups = self.groups();
        let there = groups.values.iter();
        there.map(|(i, value)| (*i as u64, *value)).collect()
    }

    /// Bytes of the groups that are there.
    pub fn bytes_there(&self) -> u64 {
        let groups = self.groups();
        self.shape.size() - groups.left.iter().sum::<u64>()
    }

    /// Groups with some of these bytes are to come again if they are whole: what is there of them is not
    /// what is wanted.
    pub fn forget(&self, bytes: &Range<u64>) {
        if bytes.is_empty() {
            return;
        }
        let mut groups = self.groups();
        for i in self.shape.groups(bytes) {
            if groups.left[i] == 0 {
                let range = self.shape.range(i);
                groups.left[i] = range.end - range.start;
                groups.values.remove(&i);
            }
        }
    }

    /// Writes bytes in place; notes the groups that are whole by that. Beside holes a byte may complete a quarter of
    /// a gigabyte, which is read back while `go_on` says so.
    ///
    /// # Errors
    /// When the file cannot be written, read back, or is offered smaller, or nobody wants it any more.
    pub fn write(&self, bytes: &[u8], at: u64, go_on: impl Fn() -> bool) -> io::Result<()> {
        let end = at.checked_add(bytes.len() as u64);
        let end = end.filter(|end| *end <= self.shape.size());
        let Some(end) = end else {
            return Err(io::Error::other("more came than was offered"));
        };
        if bytes.is_empty() {
            return Ok(());
        }
        // Before it is written, so that a kill between that and its note is a rare one.
        let hashed = self.hash(bytes, &(at..end));
        self.file.write_all_at(bytes, at)?;
        let mut whole = Vec::new();
        for i in self.count(&(at..end)) {
            let known = hashed.iter().find(|(group, _)| *group == i);
            let value = match known {
                Some((_, value)) => *value,
                None if self.groups().has_holes => self.shape.value_while(&self.file, i, &go_on)?,
                None => self.shape.value(&self.file, i)?,
            };
            whole.push((i, value));
        }
        self.note(&whole);
        Ok(())
    }

    /// Hashes bytes that were written as far as their groups came in order, which saves reading them back;
    /// the values of groups that end with them.
    fn hash(&self, bytes: &[u8], range: &Range<u64>) -> Vec<(usize, Value)> {
        let mut ended = Vec::new();
        for i in self.shape.groups(range) {
            let group = self.shape.range(i);
            let part = range.start.max(group.start)..range.end.min(group.end);
            // Whoever writes into the group meanwhile finds none, and goes on with none.
            let running = self.groups().running.remove(&i);
            let hasher = match running {
                _ if part.start == group.start => Some(self.shape.hasher(i)),
                Some((hasher, next)) if part.start == next => Some(hasher),
                _ => None,
            };
            let Some(mut hasher) = hasher else { continue };
            let start = (part.start - range.start) as usize;
            hasher.update(&bytes[start..start + (part.end - part.start) as usize]);
            if part.end == group.end {
                ended.push((i, hasher.finish()));
                continue;
            }
            let mut groups = self.groups();
            if groups.running.remove(&i).is_none() && groups.running.len() < MAX_RUNNING {
                groups.running.insert(i, (hasher, part.end));
            }
        }
        ended
    }

    /// Makes `range`, which was checked, a hole; notes the groups that are whole by that. A few words make
    /// one of any size, whose zeros take hours to hash: `go_on` says whether anybody wants to know.
    ///
    /// # Errors
    /// When the file cannot be changed, or read back, or nobody wants it any more.
    pub fn hole(&self, range: &Range<u64>, go_on: impl Fn() -> bool) -> io::Result<()> {
        // What is written later makes a file longer; without anything there is only the hole.
        if self.file.metadata()?.len() < self.shape.size() {
            self.file.set_len(self.shape.size())?;
        }
        crate::sparse::make_hole(&self.file, range)?;
        let touched = self.shape.groups(range);
        {
            let mut groups = self.groups();
            groups.has_holes = true;
            groups.running.retain(|i, _| !touched.contains(i));
        }
        for i in self.count(range) {
            let group = self.shape.range(i);
            let value = match range.start <= group.start && group.end <= range.end {
                true => self.shape.value_of_zeros(i, &go_on)?,
                false => self.shape.value_while(&self.file, i, &go_on)?,
            };
            self.note(&[(i, value)]);
        }
        Ok(())
    }

    /// Counts bytes that have come; the groups that are whole by that.
    fn count(&self, bytes: &Range<u64>) -> Vec<usize> {
        let mut whole = Vec::new();
        if bytes.is_empty() {
            return whole;
        }
        let mut groups = self.groups();
        for i in self.shape.groups(bytes) {
            let range = self.shape.range(i);
            let part = bytes.end.min(range.end) - bytes.start.max(range.start);
            // Bytes that come twice count twice: the hash of the whole will tell.
            let left = groups.left[i].saturating_sub(part);
            if left == 0 && groups.left[i] > 0 {
                whole.push(i);
            }
            groups.left[i] = left;
        }
        whole
    }

    /// These groups are whole.
    fn note(&self, whole: &[(usize, Value)]) {
        if whole.is_empty() {
            return;
        }
        let mut lines = Vec::with_capacity(whole.len() * LINE);
        let mut groups = self.groups();
        for (i, value) in whole {
            groups.values.insert(*i, *value);
            groups.running.remove(i);
            lines.extend(line_of(*i, value));
        }
        if let Some(journal) = &mut groups.journal
            && journal.write_all(&lines).is_err()
        {
            // Without a journal nothing is wrong, only less is kept.
            groups.journal = None;
        }
    }

    /// The hash of the whole, if all of it is there.
    pub fn root(&self) -> Option<blake3::Hash> {
        let groups = self.groups();
        if groups.values.len() < self.shape.count() {
            return None;
        }
        let values: Vec<Value> = groups.values.values().copied().collect();
        Some(self.shape.root(&values))
    }

    fn groups(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn header_of(owner: &Value, size: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..16].copy_from_slice(&MAGIC);
    header[16..48].copy_from_slice(owner);
    header[48..].copy_from_slice(&size.to_le_bytes());
    header
}

fn line_of(i: usize, value: &Value) -> [u8; LINE] {
    let mut line = [0; LINE];
    line[..8].copy_from_slice(&(i as u64).to_le_bytes());
    line[8..].copy_from_slice(value);
    line
}

/// The group and its value that a line notes.
fn group_of(line: &[u8]) -> Option<(usize, Value)> {
    let (number, value) = line.split_first_chunk::<8>()?;
    let i = usize::try_from(u64::from_le_bytes(*number)).ok()?;
    Some((i, value.try_into().ok()?))
}

/// Some ranges of a file's bytes one after the other, as the target of an object.
#[derive(Debug)]
pub struct Extents {
    partial: Arc<Partial>,
    /// Offset in the object, offset in the file, length.
    extents: Vec<(u64, u64, u64)>,
    session: Going,
}

impl Extents {
    /// `extents` are offsets and lengths in the file, which were checked.
    pub fn new(partial: Arc<Partial>, extents: &[(u64, u64)], session: Going) -> Self {
        let mut at = 0;
        let extents = extents.iter().map(|&(offset, length)| {
            let extent = (at, offset, length);
            at += length;
            extent
        });
        Self {
            partial,
            extents: extents.collect(),
            session,
        }
    }
}

impl dfcp::WriteAt for Extents {
    fn write_all_at(&mut self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        let first = self
            .extents
            .partition_point(|(at, _, length)| at + length <= offset);
        let reading = LazyCell::new(|| self.session.read());
        for &(at, place, length) in &self.extents[first..] {
            if bytes.is_empty() {
                break;
            }
            let within = offset - at;
            let n = (length - within).min(bytes.len() as u64);
            let (now, later) = bytes.split_at(n as usize);
            self.partial
                .write(now, place + within, || reading.go_on())?;
            (bytes, offset) = (later, offset + n);
        }
        match bytes.is_empty() {
            true => Ok(()),
            false => Err(io::Error::other("more came than was announced")),
        }
    }

    fn read_exact_at(&mut self, _: &mut [u8], _: u64) -> io::Result<()> {
        Err(io::Error::other("groups are hashed as they are written"))
    }
}

#[cfg(test)]
mod tests;
