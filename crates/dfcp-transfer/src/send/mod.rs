//! The sender's side of a session.
//!
//! Nothing waits for the receiver: files follow their list at once, small ones packed together, and
//! what the receiver says that it has changes what comes next. One task reads what it says and keeps
//! the [`Board`] of what is to be done; the other does it.

mod board;
mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dfcp::{Connection, SendStream};
use tokio::io::AsyncRead;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::Error;
use crate::message::{self, Change, FromReceiver, FromSender, Hash, Outcome, Reader};
use crate::meter::Meter;
use crate::offer;
use crate::read::Holes;
use crate::source::{LeftOut, Sources};
use crate::tree::Shape;
use board::Board;
use objects::Objects;

/// The offer and what is said of files go before the files themselves.
const CONTROL_PRIORITY: i32 = 1;

/// What the receiver said became of the files.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    /// By place in the offer; directories only when they failed.
    pub outcomes: BTreeMap<u64, Outcome>,
    /// In a dry run: what would change of what is there, beside content.
    pub changes: BTreeMap<u64, Vec<Change>>,
    /// Goodput after the first tenth of the bytes, as the receiver saw it.
    pub steady_bps: Option<u64>,
    /// What of files was not kept.
    pub left_out: Vec<LeftOut>,
}

/// Messages about what was not kept: reasons that a receiver tells apart, twice over.
const MAX_LEFT_OUT: usize = 200;

/// Sends the files and waits for the receiver's word on all of them; `meter` counts the bytes that
/// arrive. Closing the connection is left to the caller.
///
/// # Errors
/// What ends the session as a whole; a file that fails is among the outcomes.
pub async fn send(
    connection: &Connection,
    sources: &Arc<Sources>,
    meter: &Meter,
) -> Result<Sent, Error> {
    let (mut control, replies) = connection.open_bi().await?;
    control.set_priority(CONTROL_PRIORITY)?;
    meter.expect(sources.bytes());
    let entries = Arc::new(sources.entries());
    meter.diary().offered(entries.clone());
    let (say, said) = mpsc::unbounded_channel();
    let board = Arc::new(Board::new(sources));
    let objects = Objects::new(connection, sources, &board, say);
    let work = async {
        for part in offer::split(&entries, sources.wishes, &sources.people()) {
            message::write(&mut control, &part).await?;
        }
        if sources.wishes.dry_run {
            // The receiver says what is there, and then the end.
            return pending().await;
        }
        tokio::try_join!(objects.send_all(), write_all(control, said, meter))
    };
    let (mut told, start) = (0, Instant::now());
    let replies = read_replies(Reader::new(replies), sources, |reply| {
        match &reply {
            Reply::Progress(bytes) => {
                // No more has arrived than was sent, whatever a receiver says.
                let bytes = (*bytes).min(connection.stats().bytes_sent);
                meter.progress().add(bytes.saturating_sub(told));
                told = told.max(bytes);
            }
            Reply::There(index, bytes) => {
                meter.spare(*bytes);
                meter.diary().settled(*index, &Outcome::There);
            }
            Reply::Check(index, _) => meter.diary().compares(*index),
            Reply::Have(index, _, bytes) => {
                meter.diary().compared(*index);
                meter.spare(*bytes);
            }
            Reply::Accepted(accepted) => {
                meter.diary().agrees();
                // Nor has anybody been asked for longer than this takes.
                meter.diary().asks(accepted.asked.min(start.elapsed()));
                if accepted.holes == Holes::Told {
                    meter.spare(sources.bytes() - sources.data_bytes());
                }
            }
            Reply::Settled(index, outcome) => meter.diary().settled(*index, outcome),
            _ => {}
        }
        board.on_reply(reply);
    });
    tokio::select! {
        biased;
        sent = replies => sent,
        failure = async {
            match work.await {
                Err(failure) => failure,
                Ok(_) => pending().await,
            }
        } => Err(failure),
    }
}

async fn write_all(
    mut control: SendStream,
    mut said: UnboundedReceiver<FromSender>,
    meter: &Meter,
) -> Result<(), Error> {
    while let Some(message) = said.recv().await {
        meter.diary().said(&message);
        message::write(&mut control, &message).await?;
    }
    control.finish()?;
    control.delivered().await?;
    Ok(())
}

/// What a receiver wants to know of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Its hash.
    Hash,
    /// The values of its groups, too.
    Groups,
}

/// What a receiver agrees to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accepted {
    /// What becomes of holes.
    pub holes: Holes,
    /// What it takes of a file that changed after it was offered.
    pub versions: Versions,
    /// How long a person was asked.
    pub asked: Duration,
}

/// Versions of a file that a receiver takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Versions {
    /// That which was offered.
    Offered,
    /// Any, whatever its size.
    Any,
}

/// What a receiver says that changes what a sender does next.
#[derive(Debug)]
pub(crate) enum Reply {
    /// It agrees, and has said what it has.
    Accepted(Accepted),
    /// This file is there, of so many bytes.
    There(u64, u64),
    /// Something of this file may be there.
    Hold(u64),
    /// It asks for the hash of this file, and perhaps for the values of its groups.
    Check(u64, Asked),
    /// These groups of this file are there, of so many bytes.
    Have(u64, Vec<(u64, Hash)>, u64),
    /// So many bytes have arrived.
    Progress(u64),
    /// The outcome of this file is known.
    Settled(u64, Outcome),
}

/// What a receiver has said so far.
#[derive(Default)]
struct Heard {
    sent: Sent,
    /// Files that it has asked about.
    asked: BTreeSet<u64>,
    /// Files that it has said what it has of.
    had: BTreeSet<u64>,
    /// Groups of a file whose list comes in several messages.
    having: Option<(u64, Vec<(u64, Hash)>)>,
}

impl Heard {
    /// What became of a file of `size` bytes.
    fn outcome(&mut self, (index, size): (u64, u64), outcome: Outcome) -> Result<Reply, Error> {
        let known = self.sent.outcomes.insert(index, outcome.clone());
        once(known.is_none())?;
        Ok(match outcome {
            Outcome::There => Reply::There(index, size),
            outcome => Reply::Settled(index, outcome),
        })
    }

    /// Groups that are there of a file of `size` bytes; what they mean once the list is whole.
    fn have(
        &mut self,
        (index, size): (u64, u64),
        groups: Vec<(u64, Hash)>,
        more: bool,
    ) -> Result<Option<Reply>, Error> {
        let mut all = match self.having.take() {
            Some((of, all)) if of == index => all,
            _ => Vec::new(),
        };
        all.extend(groups);
        let shape = Shape::new(size);
        let count = shape.count() as u64;
        if all.len() as u64 > count || all.iter().any(|(i, _)| *i >= count) {
            return Err(violation("has more of a file than there is"));
        }
        if more {
            self.having = Some((index, all));
            return Ok(None);
        }
        once(self.had.insert(index))?;
        let ranges = all.iter().map(|(i, _)| shape.range(*i as usize));
        let bytes = ranges.map(|range| range.end - range.start).sum();
        Ok(Some(Reply::Have(index, all, bytes)))
    }
}

fn violation(what: &str) -> Error {
    Error::Protocol(format!("the receiver {what}"))
}

/// Each thing is said of a file once: what a receiver can have done has an end, and so has what waits to be
/// done.
fn once(is_first: bool) -> Result<(), Error> {
    match is_first {
        true => Ok(()),
        false => Err(violation("speaks of a file twice")),
    }
}

/// Reads what the receiver says to the end; calls `on_reply` for what is more than an outcome.
pub(crate) async fn read_replies<R: AsyncRead + Unpin>(
    mut replies: Reader<R>,
    sources: &Sources,
    mut on_reply: impl FnMut(Reply),
) -> Result<Sent, Error> {
    let mut heard = Heard::default();
    // A file with its size.
    let find = |index: u64| -> Result<(u64, u64), Error> {
        let source = usize::try_from(index).ok();
        let source = source.and_then(|i| sources.list.get(i));
        let source = source.ok_or_else(|| violation("speaks of files that are not"))?;
        Ok((index, source.entry.size))
    };
    let each = |(first, count): (u64, u64)| first..first.saturating_add(count);
    while let Some(reply) = replies.next().await? {
        match reply {
            FromReceiver::Accept {
                asked_ms,
                holes,
                changed,
            } => on_reply(Reply::Accepted(Accepted {
                holes: match holes {
                    true => Holes::Told,
                    false => Holes::Sent,
                },
                versions: match changed {
                    true => Versions::Any,
                    false => Versions::Offered,
                },
                asked: Duration::from_millis(asked_ms),
            })),
            FromReceiver::Reject(rejection) => return Err(Error::Rejected(rejection)),
            FromReceiver::File {
                index,
                outcome,
                changes,
            } => {
                let file = find(index)?;
                if !changes.is_empty() {
                    heard.sent.changes.insert(index, changes);
                }
                on_reply(heard.outcome(file, outcome)?);
            }
            FromReceiver::There { ranges } => {
                for index in ranges.into_iter().flat_map(each) {
                    on_reply(heard.outcome(find(index)?, Outcome::There)?);
                }
            }
            FromReceiver::Done { ranges } => {
                for index in ranges.into_iter().flat_map(each) {
                    on_reply(heard.outcome(find(index)?, Outcome::Done)?);
                }
            }
            FromReceiver::LeftOut(left_out) => {
                if heard.sent.left_out.len() >= MAX_LEFT_OUT {
                    return Err(violation("leaves out too much"));
                }
                heard.sent.left_out.push(left_out);
            }
            FromReceiver::Hold { files } => {
                for index in files {
                    find(index)?;
                    on_reply(Reply::Hold(index));
                }
            }
            FromReceiver::Check { index, groups } => {
                find(index)?;
                once(heard.asked.insert(index))?;
                let asked = if groups { Asked::Groups } else { Asked::Hash };
                on_reply(Reply::Check(index, asked));
            }
            FromReceiver::Have {
                index,
                groups,
                more,
            } => {
                if let Some(reply) = heard.have(find(index)?, groups, more)? {
                    on_reply(reply);
                }
            }
            FromReceiver::Progress { bytes } => on_reply(Reply::Progress(bytes)),
            FromReceiver::Summary { steady_bps } => {
                heard.sent.steady_bps = steady_bps;
                return Ok(heard.sent);
            }
        }
    }
    Err(violation("ended the session early"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a receiver could have a file read, or sent, as often as it likes.
    #[tokio::test]
    async fn a_receiver_asks_about_a_file_once_and_says_once_what_it_has() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), vec![7; 1_000_000]).unwrap();
        let sources = Sources::scan(&[folder.path().join("file")]).unwrap();
        let have = |more| FromReceiver::Have {
            index: 0,
            groups: vec![(u64::from(more), Hash([7; 32]))],
            more,
        };
        let check = |groups| FromReceiver::Check { index: 0, groups };
        for (said, heard) in [
            (vec![check(true), have(true), have(false)], 2),
            (vec![check(true), check(false)], 1),
            (vec![have(false), have(true), have(false)], 1),
        ] {
            let mut bytes = Vec::new();
            for reply in &said {
                message::write(&mut bytes, reply).await.unwrap();
            }
            let mut replies = 0;
            let ended = read_replies(Reader::new(&bytes[..]), &sources, |_| replies += 1).await;
            let failure = ended.unwrap_err().to_string();
            let expected = if heard == 2 { "early" } else { "twice" };
            assert!(failure.contains(expected), "{failure}");
            assert_eq!(replies, heard);
        }
    }

    #[test]
    fn what_a_receiver_has_of_one_file_it_has_of_no_other() {
        let mut heard = Heard::default();
        let hash = |i| (i, Hash([7; 32]));
        let size = 5 * crate::tree::MIN_GROUP;
        let mut have = |index, i, more| heard.have((index, size), vec![hash(i)], more).unwrap();
        assert!(have(0, 1, true).is_none());
        assert!(have(1, 2, true).is_none());
        let Some(Reply::Have(1, groups, bytes)) = have(1, 3, false) else {
            panic!("it is whole")
        };
        assert_eq!(groups, [hash(2), hash(3)]);
        assert_eq!(bytes, 2 * crate::tree::MIN_GROUP);
    }

    #[test]
    fn nobody_has_more_of_a_file_than_there_is() {
        let hash = |i| (i, Hash([7; 32]));
        let size = 3 * crate::tree::MIN_GROUP;
        let have = |groups: &[u64]| {
            let groups = groups.iter().map(|i| hash(*i)).collect();
            Heard::default().have((0, size), groups, false).is_ok()
        };
        assert!(have(&[]) && have(&[2]) && have(&[0, 1, 2]));
        assert!(!have(&[3]) && !have(&[0, u64::MAX]) && !have(&[0, 1, 2, 2]));
    }

    /// What a receiver that says this makes of two files.
    async fn heard(said: &[FromReceiver]) -> (Result<Sent, Error>, Vec<Reply>) {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a", "b"].map(|name| folder.path().join(name));
        for file in &files {
            std::fs::write(file, "content").unwrap();
        }
        let sources = Sources::scan(&files).unwrap();
        let (mut bytes, mut replies) = (Vec::new(), Vec::new());
        for reply in said {
            message::write(&mut bytes, reply).await.unwrap();
        }
        let ended = read_replies(Reader::new(&bytes[..]), &sources, |reply| {
            replies.push(reply)
        });
        (ended.await, replies)
    }

    const END: FromReceiver = FromReceiver::Summary {
        steady_bps: Some(7),
    };

    #[tokio::test]
    async fn what_a_receiver_says_of_files_that_are_not_ends_the_session() {
        let file = |index| FromReceiver::File {
            index,
            outcome: Outcome::Done,
            changes: Vec::new(),
        };
        let have = |index| FromReceiver::Have {
            index,
            groups: Vec::new(),
            more: false,
        };
        let check = |index| FromReceiver::Check {
            index,
            groups: false,
        };
        let hold = |index| FromReceiver::Hold { files: vec![index] };
        let there = |index| FromReceiver::There {
            ranges: vec![(index, 1)],
        };
        let done = |index| FromReceiver::Done {
            ranges: vec![(index, 1)],
        };
        let all: [&dyn Fn(u64) -> FromReceiver; 6] = [&file, &have, &check, &hold, &there, &done];
        for say in all {
            let (ended, replies) = heard(&[say(1), END]).await;
            assert_eq!((ended.unwrap().steady_bps, replies.len()), (Some(7), 1));
            for index in [2, u64::MAX - 1] {
                let (ended, replies) = heard(&[say(index), END]).await;
                let failure = ended.unwrap_err().to_string();
                assert!(failure.contains("files that are not"), "{failure}");
                assert!(replies.is_empty());
            }
        }
        // Nor is more than one of them said at a time.
        let ranges = vec![(0, u64::MAX)];
        let (ended, replies) = heard(&[FromReceiver::Done { ranges }, END]).await;
        assert!(ended.is_err());
        assert_eq!(replies.len(), 2);
    }

    #[tokio::test]
    async fn what_became_of_a_file_is_said_once() {
        let done = |ranges: &[(u64, u64)]| FromReceiver::Done {
            ranges: ranges.to_vec(),
        };
        let there = |ranges: &[(u64, u64)]| FromReceiver::There {
            ranges: ranges.to_vec(),
        };
        let (ended, replies) = heard(&[done(&[(1, 1)]), there(&[(0, 1)]), END]).await;
        let outcomes = BTreeMap::from([(0, Outcome::There), (1, Outcome::Done)]);
        assert_eq!(ended.unwrap().outcomes, outcomes);
        assert!(matches!(
            replies[..],
            [Reply::Settled(1, Outcome::Done), Reply::There(0, 7)]
        ));
        for twice in [
            [done(&[(0, 2)]), there(&[(1, 1)])],
            [there(&[(0, 1)]), done(&[(0, 1)])],
        ] {
            let (ended, _) = heard(&[&twice[..], &[END]].concat()).await;
            assert!(ended.unwrap_err().to_string().contains("twice"));
        }
        let (ended, _) = heard(&[done(&[(0, 2)])]).await;
        assert!(ended.unwrap_err().to_string().contains("early"));
    }

    #[tokio::test]
    async fn what_was_not_kept_is_told_as_far_as_a_person_reads() {
        let left_out = |i: usize| {
            FromReceiver::LeftOut(LeftOut {
                path: i.to_string(),
                why: String::new(),
            })
        };
        for (count, is_taken) in [(MAX_LEFT_OUT, true), (MAX_LEFT_OUT + 1, false)] {
            let said = (0..count).map(left_out).chain([END]);
            let (ended, _) = heard(&said.collect::<Vec<_>>()).await;
            match ended {
                Ok(sent) => assert!(is_taken && sent.left_out.len() == count),
                Err(failure) => assert!(!is_taken && failure.to_string().contains("too much")),
            }
        }
    }

    #[tokio::test]
    async fn a_receiver_agrees_or_says_why_not() {
        for (yes, holes, versions) in [
            (true, Holes::Told, Versions::Any),
            (false, Holes::Sent, Versions::Offered),
        ] {
            let accept = FromReceiver::Accept {
                asked_ms: 1500,
                holes: yes,
                changed: yes,
            };
            let (ended, replies) = heard(&[accept, END]).await;
            ended.unwrap();
            let [Reply::Accepted(accepted)] = replies[..] else {
                panic!("{replies:?}")
            };
            assert_eq!((accepted.holes, accepted.versions), (holes, versions));
            assert_eq!(accepted.asked, Duration::from_millis(1500));
        }
        let no = crate::Rejection::offer("no");
        let (ended, _) = heard(&[FromReceiver::Reject(no.clone()), END]).await;
        assert!(matches!(ended, Err(Error::Rejected(why)) if why == no));
    }
}
