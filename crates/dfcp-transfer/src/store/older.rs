//! A file that is there in another version: groups of the offered one that it has need not come.
//!
//! The sender says the values of the groups first, and hears only which of them are here: whoever may
//! replace a file learns no hash of what is in it.

use std::fs::File;
use std::ops::Range;

use super::Store;
use crate::message::{Entry, Hash, Wishes};
use crate::partial::Partial;
use crate::sparse;
use crate::tree::{Shape, Value};
use crate::turns::Going;

/// An older version of a file, open, and what was found when it was read.
#[derive(Debug)]
pub(crate) struct Older {
    file: File,
    /// Where it has data, if it has holes that are kept.
    data: Option<Vec<Range<u64>>>,
    shape: Shape,
    /// Of those groups, from the first one on, that it has all bytes of.
    values: Vec<Value>,
    /// Whether it has the size that is offered.
    alike: bool,
    /// Ends with the session.
    pub(super) session: Going,
}

impl Store {
    /// Whether the file that is there may be read to see which of its groups are those of `entry`: the
    /// sender may replace it, and it is long enough to have one.
    pub(super) fn may_take_over(
        &self,
        there: &cap_std::fs::Metadata,
        entry: &Entry,
        wishes: Wishes,
    ) -> bool {
        self.on_conflict.replaces()
            && there.is_file()
            && entry.size > crate::MAX_SMALL
            && Shape::new(entry.size).shared(there.len()) > 0
            && !(wishes.anew || wishes.whole)
    }

    /// Reads what is there of a file; `None` if it cannot be read. Ends early with its session.
    pub(crate) fn older(&self, entry: &Entry, session: &Going) -> Option<Older> {
        let file = self.open_there(entry).ok()?;
        let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let (shape, size) = (Shape::new(entry.size), metadata.len());
        let (mut values, reading) = (Vec::new(), session.read());
        for i in 0..shape.shared(size) {
            // A file that was cut off meanwhile, or a disk that fails: the rest comes.
            let Ok(value) = shape.value_while(&file, i, || reading.go_on()) else {
                break;
            };
            values.push(value);
        }
        let holes = self.keep.holes.then(|| sparse::data_of(&file, size));
        Some(Older {
            data: holes.flatten(),
            file,
            shape,
            values,
            alike: size == entry.size,
            session: session.clone(),
        })
    }
}

impl Older {
    /// Whether it is the file with this hash.
    pub fn is(&self, hash: &Hash) -> bool {
        let whole = self.alike && self.values.len() == self.shape.count();
        whole && self.shape.root(&self.values).as_bytes() == &hash.0
    }

    /// Which of these groups, from the first one on, it has.
    pub fn has(&self, values: &[Hash]) -> Vec<(usize, Value)> {
        let pairs = self.values.iter().zip(values).enumerate();
        pairs
            .filter(|(_, (ours, theirs))| **ours == theirs.0)
            .map(|(i, (ours, _))| (i, *ours))
            .collect()
    }

    /// Copies these groups.
    pub(super) fn give(&self, partial: &Partial, groups: &[(usize, Value)]) {
        let from = (&self.file, self.data.as_deref());
        let reading = self.session.read();
        partial.take_over(from, groups, || reading.go_on());
    }
}
