//! Messages of the control stream: JSON objects; `frame` has how they go over a stream.

mod frame;

pub(crate) use frame::read;
pub use frame::{MAX_MESSAGE, Reader, write};

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::source::LeftOut;

/// The version of the protocol of files.
pub const VERSION: u32 = 4;

/// A file or directory that is offered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Where it goes, relative, with `/` between the components; the text of the name
    /// ([`name`](crate::name)).
    pub path: String,
    /// Whether it is a directory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub directory: bool,
    /// Bytes; zero for directories.
    #[serde(default)]
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Time of the last change: seconds since 1970.
    pub mtime: i64,
    /// And nanoseconds.
    #[serde(default)]
    pub mtime_nanos: u32,
    /// Whether its size is not known yet, as of what comes from a pipe; the one that is given is 0.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stream: bool,
    /// If it is a link: it has no bytes of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// Bytes of a file with holes that are in none: these alone are sent, and take room, where the
    /// receiver takes holes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<u64>,
    /// What else the sender was asked to send along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Box<Meta>>,
}

/// What belongs to a file beside its content, mode and time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Meta {
    /// Numbers of its user and group at the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<(u32, u32)>,
    /// Extended attributes, access control lists among them: names and values, both as the text of
    /// their bytes ([`name`](crate::name)).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<(String, String)>,
    /// Whether attributes of the file are missing here, because they could not be read or are too long:
    /// nothing that the receiver's file has is to go then ([`Exact`]).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub incomplete: bool,
}

/// Kinds of attributes of which the entries of an offer have all: what else of these kinds is at a file
/// of the receiver goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Exact {
    /// Extended attributes of the namespace `user`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub user: bool,
    /// Extended attributes of the namespace `trusted`, which only superusers see.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub trusted: bool,
    /// Access control lists.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub acls: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Meta {
    /// Bytes that its texts take.
    pub(crate) fn text_bytes(&self) -> usize {
        let each = self.attributes.iter();
        each.map(|(name, value)| name.len() + value.len()).sum()
    }
}

/// What the sender calls the users and groups whose numbers are in an offer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct People {
    /// By number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<(u32, String)>,
    /// By number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<(u32, String)>,
}

impl People {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.users.len() + self.groups.len()
    }

    /// Whether nobody has a name.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a link leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// A path, from where the link is.
    Symbolic(String),
    /// A file that was offered before, by its place: it is the same file.
    Hard(u64),
}

impl Entry {
    /// Whether bytes of it come: it is neither a directory nor a link.
    pub fn is_file(&self) -> bool {
        !self.directory && self.link.is_none()
    }
}

/// From sender to receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromSender {
    /// A part of the list of files.
    Offer {
        /// Of the protocol.
        version: u32,
        /// Files and directories.
        entries: Vec<Entry>,
        /// Whether another part follows.
        more: bool,
        /// In the first part: how the sender would have it.
        #[serde(default, skip_serializing_if = "is_default")]
        wishes: Wishes,
        /// Names of owners.
        #[serde(default, skip_serializing_if = "People::is_empty")]
        people: People,
    },
    /// The next object is these files, one after the other; all of each.
    Pack {
        /// Place in the offer and hash of each.
        files: Vec<(u64, Hash)>,
        /// Those of them that have more by now than was offered, and sent.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        grown: Vec<u64>,
    },
    /// The next object is these parts of one file, one after the other.
    Part {
        /// Its place in the offer.
        index: u64,
        /// Offsets and lengths in the file.
        extents: Vec<(u64, u64)>,
    },
    /// These parts of a file are holes: they read as zeros, and do not come.
    Holes {
        /// Its place in the offer.
        index: u64,
        /// Offsets and lengths in the file.
        extents: Vec<(u64, u64)>,
    },
    /// The next object is this file, whose size is not known yet, or is another one than was offered.
    Stream {
        /// Its place in the offer.
        index: u64,
    },
    /// A file that was held follows now, as far as it is not there. What was said of it before was
    /// said without knowing.
    Resume {
        /// Its place in the offer.
        index: u64,
    },
    /// The hash of a file, that the receiver asked for.
    Hash {
        /// Its place in the offer.
        index: u64,
        /// Of the whole.
        blake3: Hash,
    },
    /// Values of the next groups of a file, from the first one on, that the receiver asked for. Its hash
    /// follows them.
    Groups {
        /// Its place in the offer.
        index: u64,
        /// Of its hash tree.
        values: Vec<Hash>,
    },
    /// Over one stream: the bytes of a file follow this message, as many as were offered.
    Content {
        /// Its place in the offer.
        index: u64,
    },
    /// A file was read to its end.
    Sent {
        /// Its place in the offer.
        index: u64,
        /// Bytes.
        size: u64,
        /// Hash of the whole, in hexadecimal digits.
        blake3: Hash,
        /// Whether it has more by now than was offered, and sent.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        grown: bool,
    },
    /// A file could not be read as it was offered.
    Failed {
        /// Its place in the offer.
        index: u64,
        /// In words.
        message: String,
    },
}

/// How a sender would have it, as far as the receiver lets senders decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Wishes {
    /// Compare what is there by its content, also where size and time of change are the same.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub checksum: bool,
    /// Send everything from the beginning, whatever parts are there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub anew: bool,
    /// Send all of a file that is there in another version, not only the groups that differ.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
    /// Only say what is there: nothing is sent, and nothing changes at the receiver.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// What to do where names are taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_conflict: Option<OnConflict>,
    /// Have no other attributes of these kinds than the entries say.
    #[serde(skip_serializing_if = "is_default")]
    pub exact: Exact,
}

/// What to do with a file whose name is taken by one with other content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnConflict {
    /// Report it as failed and keep what is there.
    Error,
    /// Keep what is there.
    Skip,
    /// Give the new file a free name: `NAME.1` and so on.
    Rename,
    /// Put the new file in its place.
    Overwrite,
    /// Put the new file in its place if it was changed later, and else keep what is there.
    Newer,
}

impl OnConflict {
    /// Whether what is there may be replaced.
    pub fn replaces(self) -> bool {
        matches!(self, Self::Overwrite | Self::Newer)
    }
}

/// A BLAKE3 hash, or the chaining value of a part; 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hash(pub [u8; 32]);

impl From<blake3::Hash> for Hash {
    fn from(hash: blake3::Hash) -> Self {
        Self(*hash.as_bytes())
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        let hash = blake3::Hash::from_hex(&*text).map_err(serde::de::Error::custom)?;
        Ok(Self(*hash.as_bytes()))
    }
}

/// From receiver to sender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromReceiver {
    /// The offer is welcome.
    Accept {
        /// How long a person was asked about it, milliseconds: no time of the path's.
        #[serde(default, skip_serializing_if = "is_default")]
        asked_ms: u64,
        /// Whether holes are taken as such.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        holes: bool,
        /// Whether a file that was offered may come in another version.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        changed: bool,
    },
    /// The offer is not; nothing was written.
    Reject(Rejection),
    /// These files are there already; nothing of them is needed.
    There {
        /// First places in the offer, and how many from there.
        ranges: Vec<(u64, u64)>,
    },
    /// Something of these files may be there: nothing of them is needed until more is said.
    Hold {
        /// Their places in the offer.
        files: Vec<u64>,
    },
    /// A file of its name is there; its hash would tell whether it is the same.
    Check {
        /// Its place in the offer.
        index: u64,
        /// Whether the values of its groups are wanted, too: they would tell how much of it is.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        groups: bool,
    },
    /// What is there of a file; the rest is needed.
    Have {
        /// Its place in the offer.
        index: u64,
        /// Groups of its hash tree that are there, with their values.
        groups: Vec<(u64, Hash)>,
        /// Whether more of them follow.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        more: bool,
    },
    /// Something that was offered with a file was not kept.
    LeftOut(LeftOut),
    /// These files are in their places, verified.
    Done {
        /// First places in the offer, and how many from there.
        ranges: Vec<(u64, u64)>,
    },
    /// How much has arrived of all files in this session.
    Progress {
        /// Bytes.
        bytes: u64,
    },
    /// What became of a file.
    File {
        /// Its place in the offer.
        index: u64,
        /// The outcome.
        #[serde(flatten)]
        outcome: Outcome,
        /// In a dry run, of what is there: what else of it would change.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        changes: Vec<Change>,
    },
    /// Every file is done, one way or the other.
    Summary {
        /// Goodput after the first tenth of the bytes, bits per second.
        steady_bps: Option<u64>,
    },
}

/// Why a receiver takes nothing of an offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Rejection {
    /// What stands against it.
    #[serde(default)]
    pub kind: RejectionKind,
    /// In words.
    pub message: String,
}

/// What stands against an offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RejectionKind {
    /// The sender's key: it is not allowed here.
    Key,
    /// More, or other names, than the receiver's settings allow.
    Limit,
    /// The receiver's disk has no room.
    Space,
    /// The offer itself, or what else the sender said; also what is not known here.
    #[default]
    #[serde(other)]
    Offer,
}

impl Rejection {
    /// A rejection, in at most a kilobyte of words.
    pub fn new(kind: RejectionKind, message: impl Into<String>) -> Self {
        let message = short(message.into());
        Self { kind, message }
    }

    /// The offer itself is at fault.
    pub(crate) fn offer(message: impl Into<String>) -> Self {
        Self::new(RejectionKind::Offer, message)
    }
}

/// What became of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// It is in its place, verified.
    Done,
    /// It was there already, with the same content.
    There,
    /// Another file has its name, and is left as it was.
    Skipped,
    /// It is not in its place.
    Error(Problem),
}

/// What changes of a file or directory that is there, beside its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Permission bits.
    Mode,
    /// User or group.
    Owner,
    /// Time of the last change.
    Time,
    /// Extended attributes.
    Xattrs,
    /// Access control lists.
    Acls,
    /// Something that is not known here.
    #[serde(other)]
    Other,
}

/// Why a file is not in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What failed.
    pub kind: ProblemKind,
    /// In words.
    pub message: String,
}

/// What failed about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// The sender's file: it cannot be read, or changed while it was.
    Source,
    /// The receiver's file or directory.
    Target,
    /// Another file has the name.
    Conflict,
    /// What arrived is not what was sent.
    Integrity,
    /// The connection ended first.
    Connection,
}

impl Problem {
    /// A problem, in at most a kilobyte of words.
    pub fn new(kind: ProblemKind, message: impl Into<String>) -> Self {
        let message = short(message.into());
        Self { kind, message }
    }
}

fn short(mut message: String) -> String {
    while message.len() > 1000 {
        message.pop();
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_look_as_specified() {
        let json = |message: &FromReceiver| serde_json::to_string(message).unwrap();
        let accept = FromReceiver::Accept {
            asked_ms: 0,
            holes: false,
            changed: false,
        };
        assert_eq!(json(&accept), r#"{"type":"accept"}"#);
        let done = FromReceiver::File {
            index: 3,
            outcome: Outcome::Done,
            changes: vec![],
        };
        assert_eq!(json(&done), r#"{"type":"file","index":3,"status":"done"}"#);
        let failed = FromReceiver::File {
            index: 3,
            outcome: Outcome::Error(Problem::new(ProblemKind::Target, "full")),
            changes: vec![],
        };
        let text = r#"{"type":"file","index":3,"status":"error","kind":"target","message":"full"}"#;
        assert_eq!(json(&failed), text);
        assert_eq!(serde_json::from_str::<FromReceiver>(text).unwrap(), failed);
        let reject = |kind| FromReceiver::Reject(Rejection::new(kind, "no"));
        let text = r#"{"type":"reject","kind":"space","message":"no"}"#;
        assert_eq!(json(&reject(RejectionKind::Space)), text);
        // Of receivers that name no kind, or one that is not known here.
        for text in [
            r#"{"type":"reject","message":"no"}"#,
            r#"{"type":"reject","kind":"mood","message":"no"}"#,
        ] {
            let read = serde_json::from_str::<FromReceiver>(text).unwrap();
            assert_eq!(read, reject(RejectionKind::Offer));
        }
    }

    #[test]
    fn words_are_bounded() {
        let problem = Problem::new(ProblemKind::Source, "ä".repeat(2000));
        assert_eq!(problem.message.len(), 1000);
    }
}
