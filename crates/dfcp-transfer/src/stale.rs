//! Partial files that nobody came back for.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cap_std::fs::{OpenOptions, OpenOptionsExt};
use nix::fcntl::OFlag;

use crate::partial::JOURNAL;
use crate::store::{PARTIAL, Store, cap_identity};

impl Store {
    /// Removes partial files, and journals of such, that were last written longer ago than `age`, anywhere beneath the
    /// directory, and returns their names.
    ///
    /// A partial file is recognised by what this library gives it: the ending of its name, which
    /// no offer may use, mode 0600, the owner that this process runs as, a single name. One that
    /// another process is writing is locked, and stays. Links are not followed, other file systems
    /// not entered. What cannot be read or removed is left alone.
    pub fn remove_stale(&self, age: Duration) -> Vec<String> {
        let mut removed = Vec::new();
        let Ok(root) = self.dir.dir_metadata() else {
            return removed;
        };
        let device = cap_identity(&root).0;
        let mut directories = vec![PathBuf::from(".")];
        while let Some(directory) = directories.pop() {
            for entry in self
                .dir
                .read_dir(&directory)
                .into_iter()
                .flatten()
                .flatten()
            {
                let path = directory.join(entry.file_name());
                let kind = entry.file_type();
                let is_dir = kind.is_ok_and(|kind| kind.is_dir());
                if is_dir && entry.metadata().is_ok_and(|m| cap_identity(&m).0 == device) {
                    directories.push(path);
                } else if !is_dir && self.remove_if_stale(&path, age).unwrap_or(false) {
                    let name = path.strip_prefix(".").unwrap_or(&path);
                    removed.push(name.display().to_string());
                }
            }
        }
        removed
    }

    fn remove_if_stale(&self, path: &Path, age: Duration) -> io::Result<bool> {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let ends = |end: &str| name.ends_with(end.as_bytes()) && name.len() > end.len();
        if !ends(PARTIAL) && !ends(JOURNAL) {
            return Ok(false);
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        // Neither follows a link nor waits for the other end of a pipe.
        options.custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits());
        let file = self.dir.open_with(path, &options)?.into_std();
        // Whoever writes it holds the lock; without locks nobody can tell.
        if file.try_lock().is_err() || !is_ours(&file)? {
            return Ok(false);
        }
        let metadata = file.metadata()?;
        // A time that is still to come is no age.
        let old = metadata.modified()?.elapsed().is_ok_and(|past| past > age);
        let named = cap_identity(&self.dir.symlink_metadata(path)?);
        if !old || named != (metadata.dev(), metadata.ino()) {
            return Ok(false);
        }
        self.dir.remove_file(path)?;
        Ok(true)
    }
}

fn is_ours(file: &File) -> io::Result<bool> {
    let metadata = file.metadata()?;
    Ok(metadata.is_file()
        && metadata.mode() & 0o7777 == 0o600
        && metadata.nlink() == 1
        && metadata.uid() == nix::unistd::geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::SystemTime;

    use super::*;
    use crate::OnConflict;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn only_old_partial_files_of_ours_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("received");
        let make = |name: &str, mode: u32, old: bool| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "something").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            if old {
                file.set_modified(SystemTime::UNIX_EPOCH + DAY).unwrap();
            }
            file
        };
        make("received/old.dfcp-partial", 0o600, true);
        make("received/deep/er/old.dfcp-partial", 0o600, true);
        make("received/new.dfcp-partial", 0o600, false);
        make("received/other.dfcp-partial", 0o644, true);
        make("received/old", 0o600, true);
        make("received/.dfcp-partial", 0o600, true);
        make("received/linked.dfcp-partial", 0o600, true);
        fs::hard_link(root.join("linked.dfcp-partial"), root.join("name")).unwrap();
        make("received/deep/old.dfcp-journal", 0o600, true);
        let later = make("received/later.dfcp-partial", 0o600, false);
        later
            .set_modified(SystemTime::UNIX_EPOCH + 100_000 * DAY)
            .unwrap();
        make("received/theirs.dfcp-partial", 0o600, true);
        // Only the superuser can give files away.
        let theirs = root.join("theirs.dfcp-partial");
        if std::os::unix::fs::chown(&theirs, Some(65_534), None).is_err() {
            fs::remove_file(&theirs).unwrap();
        }
        let busy = make("received/busy.dfcp-partial", 0o600, true);
        busy.try_lock().unwrap();
        make("outside/x.dfcp-partial", 0o600, true);
        symlink(dir.path().join("outside"), root.join("away")).unwrap();
        let target = dir.path().join("outside/x.dfcp-partial");
        symlink(&target, root.join("link.dfcp-partial")).unwrap();

        let store = Store::open(&root, OnConflict::Error).unwrap();
        let mut removed = store.remove_stale(7 * DAY);
        removed.sort();
        let old = [
            "deep/er/old.dfcp-partial",
            "deep/old.dfcp-journal",
            "old.dfcp-partial",
        ];
        assert_eq!(removed, old);
        assert!(removed.iter().all(|name| !root.join(name).exists()));
        assert!(target.exists() && root.join("new.dfcp-partial").exists());
        drop(busy);
        assert_eq!(store.remove_stale(7 * DAY), ["busy.dfcp-partial"]);
        assert_eq!(store.remove_stale(7 * DAY), [""; 0]);
    }
}
