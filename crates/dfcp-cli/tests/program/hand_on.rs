//! `dfcp sim`, `dfcp lab` and `dfcp demo` become `dfcp-lab`, wherever that is. Here it is a script.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use tempfile::TempDir;

/// Says where it is and what it is told; ends by a signal if that is asked for.
const SCRIPT: &str = "#!/bin/sh\necho \"$0|$*\"\ntest \"$2\" = die && kill -TERM $$\nexit 42\n";

/// The script, written before any test starts a process: a process that is being started would
/// hold it open, and what is open for writing cannot be run.
fn script() -> &'static Path {
    static SCRIPT_FILE: OnceLock<PathBuf> = OnceLock::new();
    SCRIPT_FILE.get_or_init(|| {
        let name = format!("dfcp-lab-{}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::write(&path, SCRIPT).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    })
}

/// A folder with `dfcp`, `dfcp-lab`, both or none.
fn folder(programs: &[&str]) -> TempDir {
    let script = script();
    // Links need the file system of what they link to.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for program in programs {
        let original = match *program {
            "dfcp" => Path::new(env!("CARGO_BIN_EXE_dfcp")),
            _ => script,
        };
        fs::hard_link(original, folder.path().join(program)).unwrap();
    }
    folder
}

fn dfcp(folder: &Path, path: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(folder.join("dfcp"));
    let command = command.args(arguments).env("PATH", path).current_dir("/");
    command.output().unwrap()
}

/// What the script said, which was run from `folder`.
fn told(output: &Output, folder: &Path) -> String {
    assert_eq!(output.status.code(), Some(42), "{output:?}");
    let said = String::from_utf8(output.stdout.clone()).unwrap();
    let (place, arguments) = said.trim_end().split_once('|').unwrap();
    assert_eq!(Path::new(place), folder.join("dfcp-lab"));
    arguments.to_owned()
}

#[test]
fn it_is_found_beside_the_program_with_all_its_arguments() {
    let both = folder(&["dfcp", "dfcp-lab"]);
    for line in [
        "sim run a.toml --seed 3",
        "demo -- --fixed-rate",
        "lab --help",
        "help sim run",
    ] {
        let arguments: Vec<_> = line.split(' ').collect();
        let output = dfcp(both.path(), "", &arguments);
        assert_eq!(told(&output, both.path()), line);
    }
    let output = dfcp(both.path(), "", &["sim", "die"]);
    assert_eq!(output.status.signal(), Some(15), "{output:?}");
}

#[test]
fn it_is_found_behind_a_link_and_in_path() {
    let both = folder(&["dfcp", "dfcp-lab"]);
    let linked = folder(&[]);
    symlink(both.path().join("dfcp"), linked.path().join("dfcp")).unwrap();
    let output = dfcp(linked.path(), "", &["demo"]);
    assert_eq!(told(&output, both.path()), "demo");

    let (alone, lab) = (folder(&["dfcp"]), folder(&["dfcp-lab"]));
    let path = format!("/nowhere:{}", lab.path().display());
    let output = dfcp(alone.path(), &path, &["demo"]);
    assert_eq!(told(&output, lab.path()), "demo");
}

#[test]
fn without_it_the_program_says_how_to_get_it_and_does_the_rest() {
    let alone = folder(&["dfcp"]);
    let lab = folder(&["dfcp-lab"]);
    // What lies in the current directory is not run, whatever PATH says.
    let mut command = Command::new(alone.path().join("dfcp"));
    let command = command.args(["sim", "run"]).env("PATH", ":.");
    let output = command.current_dir(lab.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    for part in [
        "`sim` is a command of dfcp-lab",
        alone.path().to_str().unwrap(),
        "PATH",
        "cargo build --release -p dfcp-lab-cli",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let help = dfcp(alone.path(), "", &["--help"]);
    let help = String::from_utf8(help.stdout).unwrap();
    for part in ["send", "recv", "keygen", "dfcp-lab", "sim", "lab", "demo"] {
        assert!(help.contains(part), "{help}");
    }
}
