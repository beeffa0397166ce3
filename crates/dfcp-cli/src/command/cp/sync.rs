//! The end of `dfcp sync --delete`: what the source has not is removed.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use dfcp_command::{Failure, Kind};
use rustix::fs::{Mode, OFlags};

use dfcp_transfer::{JOURNAL, Outcome, PARTIAL, Received, Store, name};

use super::Choice;
use super::choice::Removal;

/// What is removed where.
#[derive(Clone, Debug)]
pub struct Tidy {
    /// The copy.
    pub root: PathBuf,
    /// How it is called in offers.
    pub name: String,
    /// What its patterns leave out stays; in a dry run everything does.
    pub choice: Choice,
    /// What it was received in, which may have removed something already.
    pub store: Arc<Store>,
}

impl Tidy {
    /// Removes what is beneath the root and was not offered; nothing if not everything arrived. Parts of
    /// files stay. The paths that are gone.
    pub fn after(&self, received: &Received) -> Result<Vec<String>, Failure> {
        let whole = is_whole(received)
            // A list without the root says nothing of what is in it.
            && received.entries.iter().any(|entry| entry.directory && entry.path == self.name);
        let mut removed = self.store.swapped();
        // Where it would be made only now there is nothing to remove.
        if !whole || (self.choice.dry_run && !self.root.is_dir()) {
            return Ok(removed);
        }
        let entries = received.entries.iter();
        let offered = entries.map(|entry| (entry.path.as_str(), entry.directory));
        let offered = offered.collect();
        let look = Self {
            choice: Choice {
                dry_run: true,
                ..self.choice.clone()
            },
            ..self.clone()
        };
        let surplus = look.tidy(&offered, children)?;
        match removed.len() + surplus.paths.len() {
            0 => return Ok(removed),
            count => self.check_amount(&offered, count)?,
        }
        if !surplus.paths.is_empty() {
            self.check_names(&offered, &surplus)?;
        }
        let gone = match self.choice.dry_run {
            true => surplus,
            false => self.tidy(&offered, children)?,
        };
        removed.extend(gone.paths);
        Ok(removed)
    }

    /// Fails where more would go than whoever asked for it has probably meant.
    fn check_amount(&self, offered: &Offered<'_>, count: usize) -> Result<(), Failure> {
        let Removal {
            allow_empty,
            max_delete,
        } = self.choice.removal;
        // Of a disk that is not mounted, or a tree of such, there are directories at most.
        let empty = offered.values().all(|directory| *directory);
        let what = match count {
            1 => "the one file or directory that it has not".to_owned(),
            n => format!("{n} files and directories that it has not"),
        };
        let root = self.root.display();
        match max_delete {
            _ if empty && !allow_empty => Err(would_remove(format!(
                "the source has no file in it, and --delete would remove {what} from {root}: is a disk \
                 not mounted? --allow-empty removes them"
            ))),
            Some(most) if count > most => Err(would_remove(format!(
                "--delete would remove {what} from {root}, more than --max-delete {most}: nothing was \
                 removed"
            ))),
            _ => Ok(()),
        }
    }

    /// Fails where something that was offered is there under another name than it was offered: on a file system that
    /// does not tell upper from lower case, or composes letters otherwise. It may be what is to go.
    fn check_names(&self, offered: &Offered<'_>, surplus: &Surplus) -> Result<(), Failure> {
        let is_unlisted = |path: &&&str| {
            let Some((above, _)) = path.rsplit_once('/') else {
                return false;
            };
            let beneath = path.strip_prefix(&self.name).unwrap_or_default();
            let beneath = name::decode(beneath.trim_start_matches('/')).unwrap_or_default();
            // Beneath a link to a directory nothing was looked at, and nothing goes.
            surplus.searched.contains(above)
                && !surplus.listed.contains(**path)
                && self.root.join(beneath).symlink_metadata().is_ok()
        };
        let Some(path) = offered.keys().find(is_unlisted) else {
            return Ok(());
        };
        Err(would_remove(format!(
            "{path} is there under another name, since the file system there does not tell upper from lower case: \
             --delete might remove it, and removed nothing; rename what differs"
        )))
    }

    /// Goes through the copy, and removes what was not `offered`; what that is. A path has room for two thousand
    /// directories, more than a thread's stack may have room for.
    fn tidy<'a>(&self, offered: &Offered<'a>, list: List) -> Result<Surplus<'a>, Failure> {
        let mut surplus = Surplus::default();
        let root = Level::open(list, self.root.clone(), self.name.clone(), true)?;
        surplus.searched.insert(self.name.clone());
        let mut levels = vec![root];
        while let Some(level) = levels.last_mut() {
            let Some((place, directory)) = level.children.next() else {
                let done = levels.pop().expect("there is a last one");
                let Some(above) = levels.last_mut() else {
                    done.restore_time();
                    break;
                };
                if done.stays {
                    done.restore_time();
                    above.stays = true;
                    continue;
                }
                if !self.choice.dry_run {
                    above.note_time();
                    let failed = |error| too_deep(&done.at, &above.path, error);
                    removed(&done.at, |at| fs::remove_dir(at)).map_err(failed)?;
                }
                surplus.paths.push(done.path);
                continue;
            };
            let file_name = place.file_name().unwrap_or_default();
            let name = format!("{}/{}", level.path, name::encode(file_name));
            let offered_as = offered.get_key_value(name.as_str());
            surplus.listed.extend(offered_as.map(|(path, _)| *path));
            let part = name.ends_with(PARTIAL) || name.ends_with(JOURNAL);
            if part || !self.choice.keeps(&name, directory) {
                level.stays = true;
                continue;
            }
            // Only a dry run finds another kind still there.
            let differs = self.choice.dry_run && offered_as.is_some_and(|(_, is)| *is != directory);
            let stays = offered_as.is_some() && !differs;
            if directory {
                surplus.searched.insert(name.clone());
                levels.push(Level::open(list, place, name, stays)?);
            } else if stays {
                level.stays = true;
            } else {
                if !self.choice.dry_run {
                    level.note_time();
                    let failed = |error| too_deep(&place, &level.path, error);
                    removed(&place, |at| fs::remove_file(at)).map_err(failed)?;
                }
                surplus.paths.push(name);
            }
        }
        Ok(surplus)
    }
}

/// Removes what is at `place`, also from a directory of this user's that is read-only, as `rsync` does; the mode of that
/// is as before then.
fn removed(place: &Path, remove: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    let denied = match remove(place) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => error,
        done => return done,
    };
    let Some(above) = place.parent() else {
        return Err(denied);
    };
    // Opened first: what is changed and changed back is one directory.
    let above = open_directory(above)?;
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&above)?.st_mode);
    if rustix::fs::fchmod(&above, mode | Mode::RWXU).is_err() {
        return Err(denied);
    }
    let done = remove(place);
    rustix::fs::fchmod(&above, mode)?;
    done
}

fn would_remove(why: String) -> Failure {
    Failure::new(Kind::WouldRemove, why)
}

/// Of what was offered whether it is a directory.
type Offered<'a> = BTreeMap<&'a str, bool>;

/// What a copy has that was not offered, and what was found beside it.
#[derive(Default)]
struct Surplus<'a> {
    /// That, in the order in which it can be removed.
    paths: Vec<String>,
    /// What was offered and is there.
    listed: HashSet<&'a str>,
    /// Directories that were looked into.
    searched: HashSet<String>,
}

/// How a directory is listed: what is in it, and which of that are directories.
type List = fn(&Path) -> io::Result<Vec<(PathBuf, bool)>>;

/// A directory that is gone through.
struct Level {
    at: PathBuf,
    /// The same in offers.
    path: String,
    children: std::vec::IntoIter<(PathBuf, bool)>,
    /// Whether it, or something in it, stays.
    stays: bool,
    /// Its time of change before something was removed from it: it may be that of the source.
    modified: Option<SystemTime>,
}

impl Level {
    fn open(list: List, at: PathBuf, path: String, stays: bool) -> Result<Self, Failure> {
        let children = list(&at).map_err(|error| too_deep(&at, &path, error))?;
        Ok(Self {
            at,
            path,
            children: children.into_iter(),
            stays,
            modified: None,
        })
    }

    /// Notes its time before something is removed from it.
    fn note_time(&mut self) {
        if self.modified.is_none() {
            let is = fs::symlink_metadata(&self.at);
            self.modified = is.and_then(|is| is.modified()).ok();
        }
    }

    /// Gives it the time again that it had. Another user's directory cannot get one, and has none of the source.
    fn restore_time(&self) {
        if let Some(modified) = self.modified
            && let Ok(directory) = open_directory(&self.at)
        {
            let _ = fs::File::from(directory).set_modified(modified);
        }
    }
}

/// Opens a directory, and none that a link leads to.
fn open_directory(at: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(at, flags, Mode::empty())?)
}

/// Whether all that was offered is there.
pub fn is_whole(received: &Received) -> bool {
    let mut outcomes = received.outcomes.values();
    received.failure.is_none() && !outcomes.any(|outcome| matches!(outcome, Outcome::Error(_)))
}

/// What is in a directory, by name, and which of it are directories. It is not held open: of as many as may
/// be above one another a process may not have so many open.
fn children(at: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
    let child = |child: io::Result<fs::DirEntry>| {
        let child = child?;
        Ok((child.path(), child.file_type()?.is_dir()))
    };
    let mut children: Vec<_> = fs::read_dir(at)?.map(child).collect::<io::Result<_>>()?;
    children.sort();
    Ok(children)
}

/// A failure at a path, which is `path` in offers. Of one that is longer than the system takes only the
/// beginning tells anything.
fn too_deep(at: &Path, path: &str, error: io::Error) -> Failure {
    if error.kind() != io::ErrorKind::InvalidFilename {
        return Failure::io(at, error);
    }
    let mut beneath = path.splitn(3, '/');
    let top = [beneath.next(), beneath.next()].map(Option::unwrap_or_default);
    let message = format!(
        "{}: what is in it has longer paths than can be removed here; remove it there (`rm -r`), and \
         what else is to go goes next time",
        top.join("/")
    );
    Failure::new(Kind::LocalIo, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dfcp_transfer::OnConflict;

    /// As a file system lists a directory that kept the name that was there before.
    fn in_capitals(at: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
        let capitals = |(place, directory): (PathBuf, bool)| {
            let name = place.file_name().unwrap().to_str().unwrap();
            (at.join(name.to_uppercase()), directory)
        };
        Ok(children(at)?.into_iter().map(capitals).collect())
    }

    /// Also what is in directories that are to go themselves.
    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_in_read_only_directories_of_this_user_s_goes() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("copy");
        fs::create_dir_all(root.join("kept")).unwrap();
        fs::create_dir_all(root.join("gone/in")).unwrap();
        for file in ["kept/a", "kept/b", "gone/in/c"] {
            fs::write(root.join(file), "").unwrap();
        }
        for of in ["gone/in", "gone", "kept"] {
            fs::set_permissions(root.join(of), fs::Permissions::from_mode(0o555)).unwrap();
        }
        let tidy = Tidy {
            store: Arc::new(Store::open(dir.path(), OnConflict::Overwrite).unwrap()),
            name: "copy".to_owned(),
            choice: Choice::default(),
            root: root.clone(),
        };
        let all = [
            dir.path().to_owned(),
            root.clone(),
            root.join("kept"),
            root.join("gone"),
        ];
        let all = all.into_iter().chain([root.join("gone/in")]);
        let somebody = nix::unistd::Uid::from_raw(65_534);
        let is_root = nix::unistd::geteuid().is_root();
        for path in all.filter(|_| is_root) {
            std::os::unix::fs::chown(path, Some(somebody.as_raw()), None).unwrap();
        }
        // Rights to files are a thread's own.
        let superuser = is_root.then(|| nix::unistd::setfsuid(somebody));
        let offered = [("copy", true), ("copy/kept", true), ("copy/kept/a", false)];
        let surplus = tidy.tidy(&offered.into_iter().collect(), children);
        superuser.map(nix::unistd::setfsuid);
        let removed = surplus.map(|surplus| surplus.paths);
        let gone = ["copy/gone/in/c", "copy/gone/in", "copy/gone", "copy/kept/b"];
        assert_eq!(removed.unwrap(), gone);
        let mode = fs::metadata(root.join("kept")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o555, "as it was");
    }

    #[test]
    fn what_is_listed_under_another_name_is_not_taken_for_something_else() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("copy");
        fs::create_dir_all(root.join("SUB")).unwrap();
        fs::write(root.join("SUB/x"), "").unwrap();
        // What is beneath a link to a directory is not listed at all.
        std::os::unix::fs::symlink("SUB", root.join("LINK")).unwrap();
        let tidy = Tidy {
            store: Arc::new(Store::open(dir.path(), OnConflict::Overwrite).unwrap()),
            name: "copy".to_owned(),
            choice: Choice {
                dry_run: true,
                ..Choice::default()
            },
            root,
        };
        let judge = |paths: &[&'static str], list: List| {
            let is_directory = |path: &str| path == "copy" || path.ends_with("SUB");
            let offered = paths.iter().map(|path| (*path, is_directory(path)));
            let offered = offered.collect();
            let surplus = tidy.tidy(&offered, list).unwrap();
            let checked = tidy.check_names(&offered, &surplus);
            (surplus.paths, checked.map_err(|failure| failure.kind))
        };
        let x = || vec!["copy/SUB/X".to_owned()];
        let offered = ["copy", "copy/LINK", "copy/LINK/x", "copy/SUB", "copy/SUB/x"];
        assert_eq!(judge(&offered, children), (vec![], Ok(())));
        assert_eq!(judge(&offered, in_capitals), (x(), Err(Kind::WouldRemove)));
        // What was offered and did not come is under no name.
        let absent = ["copy", "copy/LINK", "copy/SUB", "copy/SUB/y"];
        assert_eq!(judge(&absent, in_capitals), (x(), Ok(())));
    }
}
