//! A file as groups, each with its chaining value in the file's BLAKE3 tree: a group that is there
//! can be checked by itself, and the hash of the whole follows from the values of its groups.
//!
//! A group is a whole subtree of the tree (a power of two of its chunks of 1024 bytes), as in Bao
//! (O'Connor), which calls it a chunk group. The values are those of `blake3::hazmat`.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use blake3::hazmat::{HasherExt, Mode, left_subtree_len, merge_subtrees_non_root};

use crate::sparse::ZEROS;

/// Smallest group, and what a group of most files is. What a kill costs of a file that is on its way is
/// what came of groups that are not whole: at each end of what has come half a group on average. Blocks of
/// the transport (183,040 bytes) come nearly in order, of up to four files at a time. So 64 KiB cost some
/// 130 kB, a twentieth of 2.6 MB; groups of 256 KiB cost four times that, of 16 KiB a quarter, for four
/// times as many values: 70 bytes of each travel when a transfer goes on, a thousandth of what they are for.
pub const MIN_GROUP: u64 = 64 << 10;
/// Most groups of a file: their values take 128 KiB then.
const MAX_GROUPS: u64 = 4096;
/// Bytes that are read at a time.
const BUFFER: u64 = 256 << 10;

/// The chaining value of a group; of a file that is one group, its hash.
pub type Value = [u8; 32];

/// An error once nobody wants any more what takes long to find out.
pub(crate) fn check(go_on: impl Fn() -> bool) -> io::Result<()> {
    match go_on() {
        true => Ok(()),
        false => Err(io::Error::other("the session is over")),
    }
}

/// How a file of some size is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    size: u64,
    group: u64,
}

impl Shape {
    /// The groups of a file of `size` bytes.
    pub fn new(size: u64) -> Self {
        let least = size.div_ceil(MAX_GROUPS).max(MIN_GROUP);
        // No file has more than 2^63 - 1 bytes.
        let group = least.checked_next_power_of_two().unwrap_or(1 << 63);
        Self { size, group }
    }

    /// Bytes of the file.
    pub fn size(self) -> u64 {
        self.size
    }

    /// How many there are; an empty file has none.
    pub fn count(self) -> usize {
        // At most MAX_GROUPS.
        self.size.div_ceil(self.group) as usize
    }

    /// How many groups, from the first one on, another version of `size` bytes may be compared in: all of
    /// them if it has this size, else whole ones. A last group that is shorter would tell whoever offers one
    /// size after the other a byte at a time of what is there.
    pub fn shared(self, size: u64) -> usize {
        match size == self.size {
            true => self.count(),
            false => (size.min(self.size) / self.group) as usize,
        }
    }

    /// The bytes of group `i`.
    pub fn range(self, i: usize) -> Range<u64> {
        let start = i as u64 * self.group;
        start..(start + self.group).min(self.size)
    }

    /// The groups that `bytes` touch, which are not none.
    pub fn groups(self, bytes: &Range<u64>) -> Range<usize> {
        (bytes.start / self.group) as usize..bytes.end.div_ceil(self.group) as usize
    }

    /// A hasher for what is in group `i`.
    pub fn hasher(self, i: usize) -> GroupHasher {
        let mut hasher = blake3::Hasher::new();
        let root = self.count() <= 1;
        if !root {
            hasher.set_input_offset(self.range(i).start);
        }
        GroupHasher { hasher, root }
    }

    /// The value of group `i` of `file`.
    ///
    /// # Errors
    /// When it cannot be read, or is shorter.
    pub fn value(self, file: &File, i: usize) -> io::Result<Value> {
        self.value_while(file, i, || true)
    }

    /// The same as long as `go_on` says so.
    ///
    /// # Errors
    /// When it cannot be read, or is shorter, or nobody wants it any more.
    pub fn value_while(self, file: &File, i: usize, go_on: impl Fn() -> bool) -> io::Result<Value> {
        let range = self.range(i);
        let mut hasher = self.hasher(i);
        let mut buffer = vec![0; BUFFER.min(range.end - range.start) as usize];
        let mut at = range.start;
        while at < range.end {
            check(&go_on)?;
            let n = BUFFER.min(range.end - at) as usize;
            file.read_exact_at(&mut buffer[..n], at)?;
            hasher.update(&buffer[..n]);
            at += n as u64;
        }
        Ok(hasher.finish())
    }

    /// The value of group `i` of a file that has nothing but zeros there.
    ///
    /// # Errors
    /// When `go_on` says that nobody wants it any more.
    pub fn value_of_zeros(self, i: usize, go_on: impl Fn() -> bool) -> io::Result<Value> {
        let range = self.range(i);
        let mut hasher = self.hasher(i);
        let mut left = range.end - range.start;
        while left > 0 {
            check(&go_on)?;
            let n = left.min(ZEROS.len() as u64);
            hasher.update(&ZEROS[..n as usize]);
            left -= n;
        }
        Ok(hasher.finish())
    }

    /// The hash of the whole file, from the values of all its groups.
    pub fn root(self, values: &[Value]) -> blake3::Hash {
        match values {
            [] => blake3::hash(b""),
            [one] => blake3::Hash::from_bytes(*one),
            _ => {
                let left = self.left(self.size);
                let [left, right] = self.sides(values, left);
                blake3::hazmat::merge_subtrees_root(&left, &right, Mode::Hash)
            }
        }
    }

    /// Groups in the left subtree of a tree over `len` bytes, which are more than one group.
    fn left(self, len: u64) -> usize {
        (left_subtree_len(len) / self.group) as usize
    }

    fn sides(self, values: &[Value], left: usize) -> [Value; 2] {
        // The last group may be shorter: of both sides only the right one has it.
        [&values[..left], &values[left..]].map(|side| match side {
            [one] => *one,
            _ => {
                // How full the last group is does not change where a tree of several is divided.
                let left = self.left(side.len() as u64 * self.group);
                let [left, right] = self.sides(side, left);
                merge_subtrees_non_root(&left, &right, Mode::Hash)
            }
        })
    }
}

/// Hashes a group.
#[derive(Debug)]
pub struct GroupHasher {
    hasher: blake3::Hasher,
    root: bool,
}

impl GroupHasher {
    /// The next bytes of the group.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// Its value.
    pub fn finish(&self) -> Value {
        match self.root {
            true => *self.hasher.finalize().as_bytes(),
            false => self.hasher.finalize_non_root(),
        }
    }
}

/// Hashes a file that is read in order, and knows the value of each of its groups.
#[derive(Debug)]
pub struct Sum {
    shape: Shape,
    values: Vec<Value>,
    hasher: GroupHasher,
    at: u64,
}

impl Sum {
    /// Nothing has been read.
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            values: Vec::with_capacity(shape.count()),
            hasher: shape.hasher(0),
            at: 0,
        }
    }

    /// The next bytes, which end where the file ends, or before.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.values.len() < self.shape.count() {
            let i = self.values.len();
            let end = self.shape.range(i).end;
            let (now, later) = bytes.split_at(bytes.len().min((end - self.at) as usize));
            self.hasher.update(now);
            self.at += now.len() as u64;
            if self.at == end {
                self.values.push(self.hasher.finish());
                self.hasher = self.shape.hasher(i + 1);
            }
            bytes = later;
        }
    }

    /// The values of the groups that were read.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// The hash of the whole, when all of it was read.
    pub fn root(&self) -> blake3::Hash {
        self.shape.root(&self.values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(size: u64) -> Vec<u8> {
        let mut bytes = vec![0; size as usize];
        blake3::Hasher::new().finalize_xof().fill(&mut bytes);
        bytes
    }

    #[test]
    fn the_groups_of_a_file_have_its_hash() {
        for groups in 0..12 {
            for more in [0, 1, 1024, 1025, MIN_GROUP - 1] {
                let all = bytes(groups * MIN_GROUP + more);
                let shape = Shape::new(all.len() as u64);
                // In pieces that end before, at and after the ends of groups.
                for piece in [MIN_GROUP / 3, MIN_GROUP, 3 * MIN_GROUP + 1] {
                    let mut sum = Sum::new(shape);
                    all.chunks(piece as usize).for_each(|part| sum.update(part));
                    assert_eq!(sum.root(), blake3::hash(&all), "{}", all.len());
                    assert_eq!(sum.values().len(), shape.count());
                }
            }
        }
    }

    #[test]
    fn files_of_any_size_have_few_groups() {
        for size in [0, 1, 1 << 30, (1 << 30) + 1, 1 << 40, i64::MAX as u64] {
            let shape = Shape::new(size);
            assert!(shape.count() as u64 <= MAX_GROUPS, "{size}");
            assert!(shape.group.is_power_of_two() && shape.group >= MIN_GROUP);
            if size > 0 {
                assert_eq!(shape.range(shape.count() - 1).end, size);
                assert_eq!(shape.groups(&(0..size)), 0..shape.count());
            }
        }
    }

    /// Whoever may replace a file learns of no more of it than whole groups, unless he has all of it.
    #[test]
    fn versions_of_other_sizes_share_whole_groups_alone() {
        let shape = Shape::new(3 * MIN_GROUP + 100);
        for (size, shared) in [
            (0, 0),
            (MIN_GROUP - 1, 0),
            (MIN_GROUP, 1),
            (2 * MIN_GROUP - 1, 1),
            (3 * MIN_GROUP + 99, 3),
            (3 * MIN_GROUP + 100, 4),
            (3 * MIN_GROUP + 101, 3),
            (u64::MAX, 3),
        ] {
            assert_eq!(shape.shared(size), shared, "{size}");
        }
    }

    #[test]
    fn zeros_have_the_value_that_they_have_when_they_are_read() {
        for size in [1, MIN_GROUP, 2 * MIN_GROUP + 1, 4097 * MIN_GROUP] {
            let (shape, file) = (Shape::new(size), tempfile::tempfile().unwrap());
            file.set_len(size).unwrap();
            for i in [0, shape.count() - 1] {
                let read = shape.value(&file, i).unwrap();
                assert_eq!(shape.value_of_zeros(i, || true).unwrap(), read, "{size}");
            }
            shape.value_of_zeros(0, || false).unwrap_err();
            shape.value_while(&file, 0, || false).unwrap_err();
            // What was cut off has no value.
            file.set_len(size - 1).unwrap();
            shape.value(&file, shape.count() - 1).unwrap_err();
        }
    }

    #[test]
    fn the_groups_that_bytes_touch_are_those_that_have_some_of_them() {
        let shape = Shape::new(4 * MIN_GROUP);
        for (bytes, groups) in [
            (0..1, 0..1),
            (0..MIN_GROUP, 0..1),
            (MIN_GROUP - 1..MIN_GROUP + 1, 0..2),
            (MIN_GROUP..MIN_GROUP + 1, 1..2),
            (2 * MIN_GROUP..4 * MIN_GROUP, 2..4),
        ] {
            assert_eq!(shape.groups(&bytes), groups, "{bytes:?}");
        }
    }
}
