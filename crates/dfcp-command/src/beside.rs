//! Where the other program is. `dfcp` and `dfcp-lab` are separate, so that who moves files need not
//! install a laboratory, and run each other: beside the one that runs, or else in `PATH`, as git
//! finds its subcommands.

use std::env;
use std::path::{Path, PathBuf};

/// Directories in which a program of this project is looked for, in this order.
pub fn directories() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    // Whatever lies in the directory that a user happens to be in is not run.
    let path = env::split_paths(&path).filter(|directory| directory.is_absolute());
    own_directories().into_iter().chain(path).collect()
}

/// The directory of the program that runs, and that of the file behind it where links lead there.
fn own_directories() -> Vec<PathBuf> {
    let Ok(program) = env::current_exe() else {
        return Vec::new();
    };
    let file = program.canonicalize().unwrap_or_else(|_| program.clone());
    let mut found: Vec<PathBuf> = Vec::new();
    for directory in [&program, &file].into_iter().filter_map(|p| p.parent()) {
        if !found.iter().any(|known| known == directory) {
            found.push(directory.to_owned());
        }
    }
    found
}

/// The program `name`, if it is there.
pub fn find(name: &str) -> Option<PathBuf> {
    let candidates = directories().into_iter().map(|dir| dir.join(name));
    candidates.into_iter().find(|path| is_program(path))
}

/// What people who are where this program was started type for the program `name`: what stands beside
/// this one need not be in `PATH`, as after a build.
pub fn typed(name: &str) -> String {
    let Some(program) = find(name) else {
        return name.to_owned();
    };
    let path = env::var_os("PATH").unwrap_or_default();
    let mut known = env::split_paths(&path).map(|directory| directory.join(name));
    let first = known.find(|path| is_program(path));
    let same = |other: PathBuf| other.canonicalize().ok() == program.canonicalize().ok();
    if first.is_some_and(same) {
        return name.to_owned();
    }
    let here = env::current_dir().ok();
    match here.and_then(|here| program.strip_prefix(here).ok()) {
        Some(below) => format!("./{}", below.display()),
        None => program.display().to_string(),
    }
}

/// The sentence that says where a program was looked for.
pub fn looked_for(name: &str) -> String {
    let own = own_directories();
    let own = own.first().map_or(Path::new("?"), PathBuf::as_path);
    format!("{name} is neither in {} nor in PATH", own.display())
}

/// Whether it is a file that somebody may run.
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path)
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
