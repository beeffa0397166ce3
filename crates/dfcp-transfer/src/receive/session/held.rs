//! Files of which something is there already: they are held while it is looked at, and the sender is told.

use std::sync::Arc;

use tokio::sync::OnceCell;

use super::{Event, Incoming, LISTED, Session, State};
use crate::message::{FromReceiver, Hash, Outcome};
use crate::receive::Known;
use crate::receive::files::Examined;
use crate::store::Survey;
use crate::{Error, MAX_PENDING, MAX_SMALL};

impl Session<'_> {
    /// Says what is there of the offer as far as names, sizes and times tell.
    pub(super) async fn tell_known(&mut self, known: Known) -> Result<(), Error> {
        let mut there: Vec<(u64, u64)> = Vec::new();
        for (index, survey) in known {
            match survey {
                Survey::Absent => {}
                Survey::There(changes) => {
                    self.meter.spare(self.files.entry(index).size);
                    self.meter.diary().settled(index, &Outcome::There);
                    self.left = self.left.saturating_sub(1);
                    if !changes.is_empty() {
                        self.ledger.settle_changing(index, changes).await?;
                        continue;
                    }
                    self.ledger.outcomes.insert(index, Outcome::There);
                    match there.last_mut() {
                        Some((first, n)) if *first + *n == index => *n += 1,
                        _ => there.push((index, 1)),
                    }
                }
                Survey::Settled(outcome) => self.settle(index, outcome).await?,
                Survey::Examine => {
                    self.unexamined.insert(index);
                }
            }
        }
        for ranges in there.chunks(LISTED) {
            let ranges = ranges.to_vec();
            self.ledger.say(&FromReceiver::There { ranges }).await?;
        }
        let held: Vec<u64> = self.unexamined.iter().copied().collect();
        for files in held.chunks(LISTED) {
            let files = files.to_vec();
            self.ledger.say(&FromReceiver::Hold { files }).await?;
        }
        Ok(())
    }

    /// Looks at the next files, unless as many are open, or being asked about, as may be.
    pub(super) fn examine_next(&mut self) {
        while self.states.len() < MAX_PENDING
            && let Some(&index) = self.unexamined.first()
            && let Ok(permit) = self.looking.clone().try_acquire_owned()
        {
            self.unexamined.remove(&index);
            let held = State::Held {
                ours: None,
                partial: None,
            };
            self.states.insert(index, held);
            let files = self.files.clone();
            self.tasks.spawn(async move {
                let examined = files.examine(index).await;
                drop(permit);
                Event::Examined(index, examined)
            });
        }
    }

    /// From now on what comes of the file is what is missing.
    pub(super) fn on_resume(&mut self, index: u64) -> Result<(), Error> {
        self.check(index)?;
        if let Some(State::Held { partial, .. }) = self.states.get_mut(&index) {
            let partial = OnceCell::new_with(partial.take());
            let incoming = Incoming {
                partial: Arc::new(partial),
                ..Incoming::default()
            };
            self.states.insert(index, State::Incoming(incoming));
        }
        Ok(())
    }

    /// The hash of a file that may be the one that is there.
    pub(super) async fn on_hash(&mut self, index: u64, theirs: Hash) -> Result<(), Error> {
        self.check(index)?;
        let Some(State::Held {
            ours: Some(ours), ..
        }) = self.states.get(&index)
        else {
            return Ok(());
        };
        if ours.as_bytes() != &theirs.0 {
            self.tasks.spawn({
                let files = self.files.clone();
                async move { Event::Examined(index, files.differs(index).await) }
            });
            return Ok(());
        }
        self.states.remove(&index);
        self.meter.spare(self.files.entry(index).size);
        let files = self.files.clone();
        self.states.insert(index, State::Finishing);
        self.tasks
            .spawn(async move { Event::Finished(index, files.confirm(index).await) });
        Ok(())
    }

    /// Says what is there of a file.
    pub(super) async fn on_examined(
        &mut self,
        index: u64,
        examined: Examined,
    ) -> Result<(), Error> {
        if !matches!(self.states.get(&index), Some(State::Held { .. })) {
            return Ok(()); // the sender could not read it
        }
        match examined {
            Examined::Same(ours) => {
                let held = State::Held {
                    ours: Some(ours),
                    partial: None,
                };
                self.states.insert(index, held);
                self.ledger.say(&FromReceiver::Check { index }).await
            }
            Examined::Partial(partial) => {
                let groups = partial.have();
                self.meter.spare(partial.bytes_there());
                let held = State::Held {
                    ours: None,
                    partial: Some(partial),
                };
                self.states.insert(index, held);
                let hashes = groups.into_iter().map(|(i, value)| (i, Hash(value)));
                let hashes = hashes.collect::<Vec<_>>();
                let mut parts = hashes.chunks(LISTED).peekable();
                while let Some(groups) = parts.next() {
                    let have = FromReceiver::Have {
                        index,
                        groups: groups.to_vec(),
                        more: parts.peek().is_some(),
                    };
                    self.ledger.say(&have).await?;
                }
                Ok(())
            }
            Examined::Nothing => {
                // A small file is one like any other now. Of a large one more may be on its way of what
                // was sent unasked, up to the sender's `resume`.
                if self.files.entry(index).size <= MAX_SMALL {
                    self.states.remove(&index);
                }
                let have = FromReceiver::Have {
                    index,
                    groups: Vec::new(),
                    more: false,
                };
                self.ledger.say(&have).await
            }
            Examined::Settled(outcome) => self.settle(index, outcome).await,
        }
    }
}
