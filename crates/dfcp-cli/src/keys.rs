//! Key files, and where they are kept.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use dfcp::StaticKey;
use dfcp_command::{Failure, Kind};

const A_DIRECTORY: &str = "a directory, not a key file; name a file";
/// Longest key file that is read.
const MAX_KEY_FILE: u64 = 4096;

/// A file of the user's configuration: `$XDG_CONFIG_HOME/dfcp/NAME` or `~/.config/dfcp/NAME`.
pub fn config_file(name: &str) -> Result<PathBuf, Failure> {
    absolute("XDG_CONFIG_HOME")
        .or_else(|| Some(absolute("HOME")?.join(".config")))
        .map(|base| base.join("dfcp").join(name))
        .ok_or_else(|| {
            Failure::usage(
                "neither XDG_CONFIG_HOME nor HOME is set to a whole path: set HOME, or name the files (--key, \
                 --known-hosts, --allow)",
            )
        })
}

/// Where what is to be remembered for a while is kept: `$XDG_STATE_HOME/dfcp` or `~/.local/state/dfcp`.
pub fn state_directory() -> Option<PathBuf> {
    let base = absolute("XDG_STATE_HOME");
    let base = base.or_else(|| Some(absolute("HOME")?.join(".local/state")));
    Some(base?.join("dfcp"))
}

/// An absolute path in the environment.
fn absolute(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

/// A key that may have no file yet: what cannot start is to leave none.
pub struct Own {
    key: StaticKey,
    /// Where it is to be written.
    missing: Option<PathBuf>,
}

impl Own {
    /// The key of `path`, or the default key; a new one if that is missing.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn load(path: Option<&Path>) -> Result<Self, Failure> {
        let path = match path {
            Some(path) => path.to_owned(),
            None => {
                let path = config_file("key")?;
                if !path.exists() {
                    let key = dfcp::generate_key().map_err(|error| Failure::io(&path, error))?;
                    let missing = Some(path);
                    return Ok(Self { key, missing });
                }
                path
            }
        };
        let (key, missing) = (load(&path)?, None);
        Ok(Self { key, missing })
    }

    /// The key.
    pub fn key(&self) -> &StaticKey {
        &self.key
    }

    /// Writes its file, if there is none, and says so.
    ///
    /// # Errors
    /// When it cannot be written; also when another process has made a key meanwhile.
    pub fn keep(self) -> Result<StaticKey, Failure> {
        self.keep_and_tell(|line| dfcp_command::tell!("dfcp: {line}"))
    }

    /// The same for who says what happens in another way.
    ///
    /// # Errors
    /// As [`Own::keep`].
    pub fn keep_and_tell(self, tell: impl FnOnce(String)) -> Result<StaticKey, Failure> {
        if let Some(path) = &self.missing {
            write(path, &self.key, Existing::Refuse).map_err(|failure| match path.exists() {
                true => Failure::io(path, "another process has made it meanwhile; start again"),
                // Users of services often have a home that is not there.
                false => Failure {
                    message: format!(
                        "{failure}: the new key has no place; name a key (--key FILE, which `dfcp keygen --out FILE` \
                         makes), or set HOME to a directory that this user may write in"
                    ),
                    ..failure
                },
            })?;
            tell(format!("made a new key, {}", path.display()));
        }
        Ok(self.key)
    }
}

/// Reads the key of `path`, or the default key, which is made when missing.
pub fn load_or_create(path: Option<&Path>) -> Result<StaticKey, Failure> {
    match Own::load(path)?.keep() {
        // Another process may have been quicker.
        Err(_) if path.is_none() && config_file("key")?.exists() => load(&config_file("key")?),
        kept => kept,
    }
}

/// Reads a key file that nobody else may read.
pub fn load(path: &Path) -> Result<StaticKey, Failure> {
    let file = File::open(path).map_err(|error| match error.kind() {
        // A path that is mistyped makes no key; only the usual one is made by itself.
        std::io::ErrorKind::NotFound => Failure::io(
            path,
            format_args!("{error}; `dfcp keygen --out {}` makes one", path.display()),
        ),
        _ => Failure::io(path, error),
    })?;
    let metadata = file.metadata().map_err(|error| Failure::io(path, error))?;
    if metadata.is_dir() {
        return Err(Failure::io(path, A_DIRECTORY));
    }
    // ssh's rule: only the owner's own files are held to this.
    let ours = metadata.uid() == nix::unistd::getuid().as_raw();
    if ours && metadata.mode() & 0o077 != 0 {
        return Err(Failure::new(
            Kind::Authentication,
            format!(
                "{path}: others may read this key (mode {mode:04o}); chmod 600 {path}, or make a new one",
                path = path.display(),
                mode = metadata.mode() & 0o7777
            ),
        ));
    }
    let mut text = zeroize::Zeroizing::new(String::new());
    file.take(MAX_KEY_FILE)
        .read_to_string(&mut text)
        .map_err(|error| Failure::io(path, error))?;
    text.parse()
        .map_err(|error| Failure::new(Kind::Authentication, format!("{}: {error}", path.display())))
}

/// What to do about a file that is there already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Leave it and fail.
    Refuse,
    /// Put the new one in its place.
    Replace,
}

/// Makes a key file, complete or not at all, readable by the owner only.
pub fn create(path: &Path, existing: Existing) -> Result<StaticKey, Failure> {
    let key = dfcp::generate_key().map_err(|error| Failure::io(path, error))?;
    write(path, &key, existing)?;
    Ok(key)
}

fn write(path: &Path, key: &StaticKey, existing: Existing) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::io(path, error);
    if path.is_dir() {
        return Err(failed(&A_DIRECTORY));
    }
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| failed(&error))?;
    // Temporary files have mode 0600.
    let mut file = tempfile::NamedTempFile::new_in(directory).map_err(|error| failed(&error))?;
    writeln!(file, "{}", *key.to_text()).map_err(|error| failed(&error))?;
    file.as_file().sync_all().map_err(|error| failed(&error))?;
    let put = match existing {
        Existing::Replace => file.persist(path),
        Existing::Refuse => file.persist_noclobber(path),
    };
    match put {
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(failed(
            &"a key is there already, which others may know: `dfcp key show` shows it, --out FILE makes \
              another, and --force replaces it",
        )),
        put => put.map(drop).map_err(|error| failed(&error.error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn keys_are_private_and_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/key");
        let key = create(&path, Existing::Refuse).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(load(&path).unwrap().public(), key.public());
        // Whoever asks for another one has to know what becomes of this one.
        let why = create(&path, Existing::Refuse).err().unwrap().message;
        assert!(
            why.contains("--out FILE") && why.contains("--force"),
            "{why}"
        );
        assert_eq!(load(&path).unwrap().public(), key.public());
        let new = create(&path, Existing::Replace).unwrap();
        assert_eq!(load(&path).unwrap().public(), new.public());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_new_key_has_a_file_once_it_is_kept_and_leaves_that_of_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/key");
        let new = || Own {
            key: dfcp::generate_key().unwrap(),
            missing: Some(path.clone()),
        };
        drop(new());
        assert!(!path.exists());
        let kept = new().keep().unwrap();
        assert_eq!(load(&path).unwrap().public(), kept.public());
        let why = new().keep().unwrap_err().message;
        assert!(why.contains("start again"), "{why}");
        assert_eq!(load(&path).unwrap().public(), kept.public());
        // A file is in the place of the directory.
        let nowhere = Own {
            key: dfcp::generate_key().unwrap(),
            missing: Some(path.join("key")),
        };
        let why = nowhere.keep().unwrap_err();
        assert_eq!(why.kind, Kind::LocalIo);
        assert!(
            why.message.contains("--key") && why.message.contains("HOME"),
            "{why}"
        );
        let there = Own::load(Some(&path)).unwrap();
        assert_eq!(there.keep().unwrap().public(), kept.public());
    }

    #[test]
    fn a_key_that_others_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        create(&path, Existing::Refuse).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(load(&path).unwrap_err().kind, Kind::Authentication);
        // Its mode is not what is wrong with a directory, and chmod 600 would make it useless.
        for why in [
            load(dir.path()).unwrap_err(),
            create(dir.path(), Existing::Refuse).err().unwrap(),
        ] {
            assert_eq!(why.kind, Kind::LocalIo, "{why}");
            assert!(
                !why.message.contains("chmod") && why.message.contains("key file"),
                "{why}"
            );
        }
    }
}
