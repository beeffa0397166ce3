//! What the sender announces, and the objects that come for it, in the same order.

use std::collections::BTreeSet;

use super::super::files::Part;
use super::{Event, Incoming, Session, State};
use crate::ledger::violation;
use crate::message::Hash;
use crate::{Error, MAX_PACK, MAX_PACK_FILES, MAX_PENDING, sparse};

/// Files whose last word has not been said: four times those that a sender reads at a time. Each may be open, with
/// its journal, and have a list of its groups in memory.
const MAX_BEGUN: usize = 16;

/// An object that was announced.
pub(super) enum Announcement {
    /// An object that nobody wants.
    Nothing,
    Pack(Vec<(u64, Hash)>),
    Part(u64, Vec<(u64, u64)>),
    Stream(u64),
}

impl Session<'_> {
    fn announce(&mut self, announcement: Announcement) -> Result<(), Error> {
        if self.announced.len() >= MAX_PENDING {
            return Err(violation("too many objects at a time"));
        }
        self.announced.push_back(announcement);
        self.pair();
        Ok(())
    }

    pub(super) fn announce_pack(&mut self, files: Vec<(u64, Hash)>) -> Result<(), Error> {
        let mut bytes = 0_u64;
        for (index, _) in &files {
            self.check(*index)?;
            if self.files.entry(*index).stream {
                return Err(violation("a stream in a pack"));
            }
            bytes = bytes.saturating_add(self.files.entry(*index).size);
        }
        if bytes > MAX_PACK || files.len() > MAX_PACK_FILES {
            return Err(violation("a pack that is too large"));
        }
        self.announce(Announcement::Pack(files))
    }

    pub(super) fn announce_part(
        &mut self,
        index: u64,
        extents: Vec<(u64, u64)>,
    ) -> Result<(), Error> {
        let bytes = self.check_extents(index, &extents)?;
        self.begin_incoming(index)?;
        let room = self.files.store.room_for(self.files.entry(index));
        if let Some(State::Incoming(incoming)) = self.states.get_mut(&index) {
            // All of it, and what turned out to differ: more would only be work.
            incoming.bytes = incoming.bytes.saturating_add(bytes);
            if incoming.bytes > room.saturating_mul(2) {
                return Err(violation("a file again and again"));
            }
        }
        // What is announced while the file is held comes for nothing, also where its object arrives
        // when the file comes anew.
        self.announce(match self.states.get(&index) {
            Some(State::Incoming(_)) => Announcement::Part(index, extents),
            _ => Announcement::Nothing,
        })
    }

    /// Parts of a file that read as zeros, and do not come.
    pub(super) fn on_holes(&mut self, index: u64, extents: Vec<(u64, u64)>) -> Result<(), Error> {
        let bytes = self.check_extents(index, &extents)?;
        if !self.files.store.keep.holes {
            return Err(violation("holes, which are not taken here"));
        }
        self.begin_incoming(index)?;
        let size = self.files.entry(index).size;
        let Some(State::Incoming(incoming)) = self.states.get_mut(&index) else {
            return Ok(());
        };
        incoming.holes = incoming.holes.saturating_add(bytes);
        if incoming.holes > size.saturating_mul(2) {
            return Err(violation("holes again and again"));
        }
        self.meter.spare(bytes);
        self.holes += 1;
        let (files, partial) = (self.files.clone(), incoming.partial.clone());
        self.tasks.spawn(async move {
            let part = Part {
                index,
                extents,
                partial,
            };
            Event::Holes(index, files.take_holes(part).await)
        });
        Ok(())
    }

    /// Whether there is such a file with such parts; how many bytes they are.
    fn check_extents(&self, index: u64, extents: &[(u64, u64)]) -> Result<u64, Error> {
        self.check(index)?;
        let entry = self.files.entry(index);
        if entry.stream {
            return Err(violation("parts of a stream"));
        }
        if extents.len() > sparse::LISTED {
            return Err(violation("more parts than a message names"));
        }
        let mut bytes = 0_u64;
        for &(offset, length) in extents {
            bytes = bytes.saturating_add(length);
            if offset
                .checked_add(length)
                .is_none_or(|end| end > entry.size)
                || bytes > entry.size
            {
                return Err(violation("parts beyond the size that was offered"));
            }
        }
        // But for the one at the end of the file.
        if extents.len() as u64 > bytes / sparse::BLOCK + 1 {
            return Err(violation("parts of a few bytes each"));
        }
        Ok(bytes)
    }

    /// A pipe, or a file that is another version by now than was offered.
    pub(super) fn announce_stream(&mut self, index: u64) -> Result<(), Error> {
        self.check(index)?;
        let entry = self.files.entry(index);
        if matches!(self.states.get(&index), Some(State::Incoming(_))) {
            return Err(violation("a file that is on its way"));
        }
        if entry.stream {
            if self.is_known(index) {
                return Err(violation("a stream that was announced before"));
            }
        } else if matches!(self.states.get(&index), Some(State::Held(held)) if held.told) {
            // What is there of the version that was offered is of no use.
            self.states.remove(&index);
        }
        if self.is_known(index) {
            return self.announce(Announcement::Nothing);
        }
        self.meter.spare(entry.size);
        self.begin_incoming(index)?;
        self.announce(Announcement::Stream(index))
    }

    /// An object of the file is to come.
    fn begin_incoming(&mut self, index: u64) -> Result<(), Error> {
        if !self.is_known(index) {
            // A sender has no more on their way; those that are held are as many at most.
            let begun = self
                .states
                .values()
                .filter(|state| state.is_begun())
                .count();
            if self.states.len() >= 2 * MAX_PENDING || begun >= MAX_BEGUN {
                return Err(violation("too many files at a time"));
            }
            self.states
                .insert(index, State::Incoming(Incoming::default()));
        }
        if let Some(State::Incoming(incoming)) = self.states.get_mut(&index) {
            incoming.objects += 1;
        }
        Ok(())
    }

    /// Hands objects that were announced and have come to their tasks.
    pub(super) fn pair(&mut self) {
        while !self.announced.is_empty() && !self.come.is_empty() {
            let (Some(announced), Some(object)) =
                (self.announced.pop_front(), self.come.pop_front())
            else {
                return;
            };
            let files = self.files.clone();
            match announced {
                Announcement::Pack(list) => {
                    // What is settled, held or named twice comes for nothing.
                    let mut taken = BTreeSet::new();
                    let mut is_wanted = |i| !self.is_known(i) && taken.insert(i);
                    let list = list.into_iter();
                    let list: Vec<_> = list.map(|(i, hash)| (i, hash, is_wanted(i))).collect();
                    // Dropped, the object tells the sender to stop.
                    if taken.is_empty() {
                        continue;
                    }
                    self.packed.extend(taken);
                    // No credit holds back objects without bytes, and a sender may open only so many:
                    // dropped at once, they do not wait for the disk.
                    let empty = list.iter().all(|(i, ..)| self.files.entry(*i).size == 0);
                    match empty {
                        true => {
                            drop(object);
                            let put = files.put_empty(list);
                            self.tasks
                                .spawn(async move { Event::Packed(put.await.into()) });
                        }
                        false => {
                            let unpacked = files.unpack(object, list);
                            self.tasks
                                .spawn(async move { Event::Packed(unpacked.await) });
                        }
                    }
                }
                // Dropped, the object tells the sender to stop.
                Announcement::Nothing => {}
                Announcement::Stream(index) => {
                    if let Some(State::Incoming(incoming)) = self.states.get(&index) {
                        let partial = incoming.partial.clone();
                        self.tasks.spawn(async move {
                            Event::Part(index, files.take_stream(object, index, partial).await)
                        });
                    }
                }
                Announcement::Part(index, extents) => {
                    if let Some(State::Incoming(incoming)) = self.states.get(&index) {
                        let part = Part {
                            index,
                            extents,
                            partial: incoming.partial.clone(),
                        };
                        self.tasks.spawn(async move {
                            Event::Part(index, files.take_part(object, part).await)
                        });
                    }
                }
            }
        }
    }
}
