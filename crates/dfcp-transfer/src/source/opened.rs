//! How a file that is offered is opened, and what has become of it since it was listed.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use super::Source;

impl Source {
    /// Opens the file if it is still the one that was offered.
    pub(crate) fn open(&self) -> Result<File, Unread> {
        let file = self.open_path()?;
        self.check(&file)?;
        Ok(file)
    }

    fn open_path(&self) -> Result<File, Unread> {
        // Never waits for the other end of a pipe that took the file's place.
        let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
        let file = File::options()
            .read(true)
            .custom_flags(flags)
            .open(&self.path);
        file.map_err(|error| not_opened(&error))
    }

    /// Opens the file as it is by now, and lists that: what has taken its place, or was made of it. What is kept
    /// of a file stays as it was offered.
    pub(crate) fn open_changed(&self) -> Result<(Self, File), Unread> {
        let file = match &self.above {
            Some(above) => self.open_in(**above)?,
            None => self.open_path()?,
        };
        let metadata = file.metadata()?;
        let mut now = Self::new(self.path.clone(), self.entry.clone());
        now.entry.size = metadata.len();
        now.entry.mtime = metadata.mtime();
        now.entry.mtime_nanos = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
        now.identity = (metadata.dev(), metadata.ino());
        if self.several && now.identity != self.identity {
            return Err(Unread::because(REPLACED_LINK));
        }
        now.check(&file)?;
        Ok((now, file))
    }

    /// Opens what is called so in the directory that the file was listed in. Whoever may write there could put a
    /// link in the place of either, to what is not to be sent.
    fn open_in(&self, above: (u64, u64)) -> Result<File, Unread> {
        use rustix::fs::{Mode, OFlags, openat};
        let (Some(parent), Some(name)) = (self.path.parent(), self.path.file_name()) else {
            return Err(Unread::Changed);
        };
        let directory = nix::fcntl::OFlag::O_DIRECTORY.bits();
        let parent = File::options()
            .read(true)
            .custom_flags(directory)
            .open(parent);
        let parent = parent.map_err(|error| not_opened(&error))?;
        let metadata = parent.metadata()?;
        if (metadata.dev(), metadata.ino()) != above {
            return Err(Unread::because(
                "another directory took the place of the one that it was in",
            ));
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match openat(&parent, name, flags, Mode::empty()) {
            Ok(file) => Ok(file.into()),
            Err(rustix::io::Errno::LOOP) => Err(Unread::because("a symbolic link took its place")),
            Err(error) => Err(not_opened(&error.into())),
        }
    }

    /// Whether an open file is as it was offered: it was before it was read, or is still. One to which was
    /// only added, as to logs, has all that was offered. That a program wrote elsewhere in it, too, cannot be
    /// told; into holes it would have, and so they are not to be there.
    pub(crate) fn check(&self, file: &File) -> Result<Still, Unread> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(Unread::because("it is no file any more"));
        }
        let time = (
            metadata.mtime(),
            u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
        );
        let same =
            metadata.len() == self.entry.size && time == (self.entry.mtime, self.entry.mtime_nanos);
        if !same {
            let is_it = (metadata.dev(), metadata.ino()) == self.identity;
            let grew = is_it && metadata.len() > self.entry.size;
            return match grew && self.data.is_none() {
                true => Ok(Still::There),
                false => Err(Unread::Changed),
            };
        }
        // Files of /proc and of some network file systems have content, and no size.
        let first = match self.entry.size {
            0 => file.read_at(&mut [0], 0)?,
            _ => 0,
        };
        match first > 0 {
            true => Err(Unread::because(SIZELESS)),
            false => Ok(Still::Same),
        }
    }

    /// Why reading it failed.
    pub(crate) fn unread(&self, file: &File, error: std::io::Error) -> Unread {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => match self.check(file) {
                Ok(_) => Unread::because(SHORT),
                Err(reason) => reason,
            },
            _ => error.into(),
        }
    }
}

/// What an open file is beside what was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Still {
    /// The same.
    Same,
    /// All that was offered is there, and more behind it.
    There,
}

/// Why a file is not sent as it was offered.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unread {
    /// It is another version by now.
    #[error("it changed while it was being sent; copy it again when nobody writes to it")]
    Changed,
    /// Anything else, in words.
    #[error("{0}")]
    Because(String),
}

impl Unread {
    fn because(why: &str) -> Self {
        Self::Because(why.to_owned())
    }
}

impl From<std::io::Error> for Unread {
    fn from(error: std::io::Error) -> Self {
        Self::Because(error.to_string())
    }
}

impl From<Unread> for String {
    fn from(why: Unread) -> Self {
        why.to_string()
    }
}

fn not_opened(error: &std::io::Error) -> Unread {
    Unread::Because(match error.kind() {
        std::io::ErrorKind::NotFound => "it was removed while it was to be sent".to_owned(),
        _ => error.to_string(),
    })
}

/// Its other names still are the file that was listed, and would become links to another one.
const REPLACED_LINK: &str =
    "it was one of several names of a file, and another file took its place; copy it again";
const SIZELESS: &str = "it has content, but says that its size is 0, as files of /proc do; `dfcp send - HOST --name NAME` \
     sends what can be read of it";
const SHORT: &str = "it ends before the size that it says, as files of /sys do; `dfcp send - HOST --name NAME` \
     sends what can be read of it";
