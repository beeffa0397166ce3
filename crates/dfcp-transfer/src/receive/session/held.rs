//! Files of which something is there already: they are held while it is looked at, and the sender is told.

use std::sync::Arc;

use tokio::sync::OnceCell;

use super::{Event, Incoming, LISTED, MAX_ACTIVE, Session, State};
use crate::ledger::violation;
use crate::memory::Holding;
use crate::message::{FromReceiver, Hash, Outcome};
use crate::partial::Partial;
use crate::receive::Known;
use crate::receive::files::Examined;
use crate::store::{Ask, Older, Survey};
use crate::tree::Shape;
use crate::{Error, MAX_PENDING, MAX_SMALL, VALUES_MEMORY};

/// What is known of a file that is held. The values of groups, 256 KiB at most of 128 files at a time, take
/// of the memory that all sessions have for them ([`VALUES_MEMORY`]).
#[derive(Default)]
pub(super) struct Held {
    /// What is there.
    ours: Ours,
    /// Whether the sender was asked for the values of its groups.
    asked_for_groups: bool,
    /// Those that it has told, from the first one on.
    values: Vec<Hash>,
    /// The memory that they take, and those of what is there.
    memory: Option<Holding>,
    /// Its hash, if it has told it.
    theirs: Option<Hash>,
    /// The part that the sender was told of.
    pub(super) partial: Option<Arc<Partial>>,
    /// Whether the sender was told what is there of it.
    pub(super) told: bool,
}

/// What is there under the name of a file.
#[derive(Default)]
enum Ours {
    /// It is being looked at, or was.
    #[default]
    Unknown,
    /// A file of its size, with this hash.
    File(blake3::Hash),
    /// A file that may have some of its groups.
    Older(Older),
}

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
                Survey::Examine(ask) => {
                    self.unexamined.insert(index, ask);
                }
            }
        }
        for ranges in there.chunks(LISTED) {
            let ranges = ranges.to_vec();
            self.ledger.say(&FromReceiver::There { ranges }).await?;
        }
        let held: Vec<u64> = self.unexamined.keys().copied().collect();
        for files in held.chunks(LISTED) {
            let files = files.to_vec();
            self.ledger.say(&FromReceiver::Hold { files }).await?;
        }
        Ok(())
    }

    /// Looks at the next files, unless as many are open, or being asked about, as may be. The sender is
    /// asked first, so that both sides read at the same time.
    pub(super) async fn examine_next(&mut self) -> Result<(), Error> {
        let places = self.files.session.places_for_each(MAX_ACTIVE);
        while self.states.len() < MAX_PENDING
            && let Some((&index, &ask)) = self.unexamined.first_key_value()
            && let Ok(permit) = self.looking.clone().try_acquire_many_owned(places)
            && let Some((ask, memory)) = self.with_memory(index, ask)
        {
            self.unexamined.remove(&index);
            let groups = ask == Ask::Groups;
            let held = Held {
                asked_for_groups: groups,
                memory,
                ..Held::default()
            };
            self.states.insert(index, State::Held(held));
            if ask != Ask::Nothing {
                self.meter.diary().compares(index);
                let check = FromReceiver::Check { index, groups };
                self.ledger.say(&check).await?;
            }
            let files = self.files.clone();
            self.tasks.spawn(async move {
                let examined = files.examine(index, ask).await;
                drop(permit);
                Event::Examined(index, examined)
            });
        }
        Ok(())
    }

    /// What is asked about a file, with the memory that the answer takes; `None` while that is to be had
    /// once another file of this session needs it no more. Where other sessions have it all a file is
    /// compared as a whole, and sent as a whole if it differs.
    fn with_memory(&self, index: u64, ask: Ask) -> Option<(Ask, Option<Holding>)> {
        if ask != Ask::Groups {
            return Some((ask, None));
        }
        let count = Shape::new(self.files.entry(index).size).count();
        let bytes = 2 * (count * size_of::<Hash>()) as u64;
        match self.values.take(bytes, VALUES_MEMORY) {
            Some(memory) => Some((Ask::Groups, Some(memory))),
            None if self.values.is_empty() => Some((Ask::Hash, None)),
            None => None,
        }
    }

    /// From now on what comes of the file is what is missing.
    pub(super) fn on_resume(&mut self, index: u64) -> Result<(), Error> {
        self.check(index)?;
        if let Some(State::Held(held)) = self.states.get_mut(&index) {
            let partial = OnceCell::new_with(held.partial.take());
            let incoming = Incoming {
                partial: Arc::new(partial),
                ..Incoming::default()
            };
            self.states.insert(index, State::Incoming(incoming));
        }
        Ok(())
    }

    /// Values of the next groups of a file that may be there in another version.
    pub(super) fn on_groups(&mut self, index: u64, values: Vec<Hash>) -> Result<(), Error> {
        self.check(index)?;
        let count = Shape::new(self.files.entry(index).size).count();
        if let Some(State::Held(held)) = self.states.get_mut(&index)
            && held.asked_for_groups
        {
            held.values.extend(values);
            if held.values.len() > count {
                return Err(violation("more groups of a file than there are"));
            }
        }
        Ok(())
    }

    /// The hash of a file that may be the one that is there.
    pub(super) fn on_hash(&mut self, index: u64, theirs: Hash) -> Result<(), Error> {
        self.check(index)?;
        if let Some(State::Held(held)) = self.states.get_mut(&index) {
            held.theirs = Some(theirs);
            self.compare(index);
        }
        Ok(())
    }

    /// Compares what is there with what the sender has, when both are known.
    fn compare(&mut self, index: u64) {
        let Some(State::Held(held)) = self.states.get_mut(&index) else {
            return;
        };
        let Some(theirs) = held.theirs else {
            return;
        };
        let same = match &held.ours {
            Ours::Unknown => return,
            Ours::File(hash) => hash.as_bytes() == &theirs.0,
            Ours::Older(older) => older.is(&theirs),
        };
        let files = self.files.clone();
        if same {
            self.meter.spare(self.files.entry(index).size);
            self.states.insert(index, State::Finishing);
            self.tasks
                .spawn(async move { Event::Finished(index, files.confirm(index).await) });
            return;
        }
        let (values, memory) = (std::mem::take(&mut held.values), held.memory.take());
        let older = match std::mem::take(&mut held.ours) {
            Ours::Older(older) => {
                let groups = older.has(&values);
                Some((older, groups))
            }
            Ours::Unknown | Ours::File(_) => None,
        };
        let looking = self.looking.clone();
        self.tasks.spawn(async move {
            let places = files.session.places_for_each(MAX_ACTIVE);
            let _permit = looking.acquire_many_owned(places).await;
            let examined = files.differs(index, older).await;
            drop(memory);
            Event::Examined(index, examined)
        });
    }

    /// Says what is there of a file.
    pub(super) async fn on_examined(
        &mut self,
        index: u64,
        examined: Examined,
    ) -> Result<(), Error> {
        let Some(State::Held(held)) = self.states.get_mut(&index) else {
            return Ok(()); // the sender could not read it
        };
        match examined {
            Examined::Same(ours) => {
                held.ours = Ours::File(ours);
                self.compare(index);
                Ok(())
            }
            Examined::Older(older) => {
                held.ours = Ours::Older(older);
                self.compare(index);
                Ok(())
            }
            Examined::Partial(partial) => {
                let groups = partial.have();
                self.meter.spare(partial.bytes_there());
                self.meter.diary().compared(index);
                (held.partial, held.told) = (Some(partial), true);
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
                held.told = true;
                self.meter.diary().compared(index);
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

#[cfg(test)]
mod tests {
    use dfcp::{Endpoint, EndpointConfig, generate_key};
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::ledger::Ledger;
    use crate::message::{Entry, OnConflict, Wishes};
    use crate::meter::Meter;
    use crate::store::{Begin, How, Store};
    use crate::tenants::Tenant;
    use crate::tree::MIN_GROUP;
    use crate::turns::crowd::{assert_one_is_free, crowded, with_two_threads};

    const FILES: u64 = 4;

    /// Has a session among many, of which none gets a turn, begin with files of which there is a part of this
    /// tenant: it may wait on one thread.
    fn waits_on_one_thread(begin: impl AsyncFnOnce(&mut Session<'_>, &Store, &Arc<Tenant>)) {
        with_two_threads(async {
            let dir = tempfile::tempdir().unwrap();
            let store = Arc::new(Store::open(dir.path(), OnConflict::Overwrite).unwrap());
            let tenant = Tenant::new([1; 32]);
            let key = || generate_key().unwrap();
            let server = EndpointConfig::server(key(), "127.0.0.1:0".parse().unwrap());
            let server = Endpoint::bind(server).unwrap();
            let client = Endpoint::bind(EndpointConfig::client(key())).unwrap();
            let connect = client.connect(server.local_addr(), Some(server.public_key()));
            let (near, far) = tokio::join!(connect, server.accept());
            let (near, far) = (near.unwrap(), far.unwrap().accept());
            let (mut words, _replies) = near.open_bi().await.unwrap();
            words.write_all(&[0]).await.unwrap();
            let (control, _words) = far.accept_bi().await.unwrap();
            let file = |i: u64| Entry {
                path: i.to_string(),
                size: 5 * MIN_GROUP,
                ..Entry::default()
            };
            let ledger = Ledger::new(
                store.clone(),
                Arc::new((0..FILES).map(file).collect()),
                control,
            );
            let meter = Meter::start();
            let claim = store.claim(&[], &[], meter.progress()).unwrap();
            let sender = (tenant.clone(), Wishes::default(), claim);
            let _crowd = crowded(&store.sessions);
            let alive = store.sessions.begin();
            let mut session = Session::new(&far, ledger, &meter, sender, alive);
            begin(&mut session, &store, &tenant).await;
            assert_one_is_free(&store.sessions).await;
        });
    }

    /// Of each a group has come before.
    fn leave_parts(session: &Session<'_>, store: &Store, tenant: &Arc<Tenant>) {
        for i in 0..FILES {
            let begun = store.begin(session.files.entry(i), tenant, How::Anew);
            let Ok(Begin::Receive(partial)) = begun else {
                panic!("it is free")
            };
            let group = vec![7; MIN_GROUP as usize];
            partial.write(&group, 0, || true).unwrap();
        }
    }

    #[test]
    fn files_of_a_session_among_many_are_looked_at_on_one_thread() {
        waits_on_one_thread(async |session, store, tenant| {
            leave_parts(session, store, tenant);
            session.unexamined = (0..FILES).map(|i| (i, Ask::Nothing)).collect();
            session.examine_next().await.unwrap();
            assert!(!session.states.is_empty());
        });
    }

    #[test]
    fn files_of_a_session_among_many_that_differ_are_looked_at_on_one_thread() {
        waits_on_one_thread(async |session, store, tenant| {
            leave_parts(session, store, tenant);
            for i in 0..FILES {
                let ours = Ours::File(blake3::hash(b"ours"));
                let held = Held {
                    ours,
                    ..Held::default()
                };
                session.states.insert(i, State::Held(held));
                let theirs = Hash(blake3::hash(b"theirs").into());
                session.on_hash(i, theirs).unwrap();
            }
        });
    }
}
