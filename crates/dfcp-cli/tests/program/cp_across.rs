//! Copies from one other machine to another, which the first of them makes.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::machines::{Machines, PROGRAM};
use crate::common::{eventually, run};
use serde_json::Value;

/// A machine `there`, whose ssh reaches `other`; `dfcp` is on both if that is wanted.
fn three(with_program: bool) -> Machines {
    let login = "echo this login talks; printf 'and ends without a line end'";
    let way = "echo $$ >>pids; PATH=$HOME/bin:$PATH; export PATH";
    let machines = Machines::new(&format!("{login}; {way}"));
    let (bin, other) = (machines.there("bin"), machines.here("other"));
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(other.join("bin")).unwrap();
    let script = format!(
        "#!/bin/sh\ntest \"$1\" = other || exit 255\nHOME={0}; export HOME\ncd \"$HOME\"\n\
         PATH=$HOME/bin:/usr/bin:/bin\nexec sh -c \"$2\"\n",
        other.display()
    );
    fs::write(bin.join("ssh"), script).unwrap();
    fs::set_permissions(bin.join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
    if with_program {
        symlink(PROGRAM, bin.join("dfcp")).unwrap();
        symlink(PROGRAM, other.join("bin/dfcp")).unwrap();
    }
    machines
}

/// As ssh does, which says nothing of what it cannot print.
#[test]
fn output_that_is_lost_here_makes_its_exit_code() {
    let machines = three(true);
    let shell = fs::read_to_string(machines.here("shell")).unwrap();
    let relaying = shell.replace(
        "exec sh -c \"$2\"",
        "sh -c \"$2\" | (trap '' PIPE; cat 2>&-; true)",
    );
    fs::write(machines.here("shell"), relaying).unwrap();
    machines.write(&machines.there("file"), 1000);
    let mut outputs = vec![std::process::Stdio::from(std::io::pipe().unwrap().1)];
    let full = fs::File::options().write(true).open("/dev/full");
    outputs.extend(full.ok().map(Into::into));
    for output in outputs {
        let copied = machines
            .cp(&["there:file", "other:"])
            .stdout(output)
            .output();
        let copied = copied.unwrap();
        let said = String::from_utf8_lossy(&copied.stderr);
        assert_eq!(copied.status.code(), Some(7), "{said}");
        assert!(said.contains("standard output"), "{said}");
        assert!(at_other(&machines, "file").exists());
    }
}

fn copy(machines: &Machines, arguments: &[&str]) -> (i32, Value, String) {
    run(&mut machines.cp(arguments))
}

/// Where `other` has a file.
fn at_other(machines: &Machines, name: &str) -> PathBuf {
    machines.here("other").join(name)
}

#[test]
fn files_go_from_one_machine_to_another() {
    let machines = three(true);
    let content = machines.write(&machines.there("tree/a file"), 300_000);
    let odd = machines.write(&machines.there("it's: 1*.txt"), 1000);
    machines.write(&machines.there("2.txt"), 1000);
    let (code, report, said) = copy(&machines, &["-r", "there:tree", "other:copy"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(
        (&report["files"], &report["via"]),
        (&1.into(), &"udp".into())
    );
    assert!(fs::read(at_other(&machines, "copy/a file")).unwrap() == content);
    // From the root, and as many as match.
    let absolute = format!("there:{}", machines.there("tree").display());
    let (code, _, said) = copy(&machines, &["-r", &absolute, "there:*.txt", "other:new/"]);
    assert_eq!(code, 0, "{said}");
    assert!(fs::read(at_other(&machines, "new/tree/a file")).unwrap() == content);
    assert!(fs::read(at_other(&machines, "new/it's: 1*.txt")).unwrap() == odd);
    assert!(at_other(&machines, "new/2.txt").exists());
    // What became of it is what the first machine says, also of each event.
    let (code, report, _) = copy(&machines, &["there:none", "other:"]);
    assert_eq!((code, &report["exit_code"]), (7, &7.into()), "{report}");
    let (code, _, said) = copy(&machines, &["there:2.txt", "nobody:"]);
    assert!(
        code == 5 && said.contains("that was at there, whose own ssh"),
        "{said}"
    );
    let mut told = Command::new(PROGRAM);
    told.current_dir(machines.dir.path()).args([
        "cp",
        "--json=stream",
        "-e",
        "./shell",
        "there:2.txt",
        "other:3",
    ]);
    let output = told.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let events: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events.last().unwrap()["event"], "end", "{said}");
    assert!(events.len() > 2, "{said}");
}

#[test]
fn a_machine_without_the_program_or_none_at_all_is_no_success() {
    let machines = three(false);
    machines.write(&machines.there("file"), 1000);
    let arguments = ["there:file", "other:"];
    let (code, report, _) = copy(&machines, &arguments);
    let message = report["error"]["message"].as_str().unwrap();
    assert!(code == 1 && message.contains("--install"), "{report}");
    let (code, report, _) = copy(&machines, &["elsewhere:file", "other:"]);
    assert_eq!((code, &report["error"]["kind"]), (5, &"unreachable".into()));
    // Both get it where that is wanted.
    let (code, _, said) = copy(&machines, &["there:file", "other:", "--install", "--yes"]);
    assert_eq!(code, 0, "{said}");
    let [first, second] = [machines.here("home"), machines.here("other")];
    let file = |machine: &Path| fs::read(machine.join("file")).unwrap();
    assert!(file(&first) == file(&second));
}

#[test]
fn a_login_that_never_greets_is_given_up_at_the_first_machine_too() {
    let machines = Machines::new("echo please approve >&2; exec sleep 1000");
    for progress in ["--progress=always", "--progress=never"] {
        let arguments = ["there:file", "other:", "--timeout", "1s", progress];
        let (code, report, said) = copy(&machines, &arguments);
        let error = report["error"]["message"].as_str().unwrap();
        let hint = "there: ./shell has not started dfcp there";
        assert!(code == 5 && error.starts_with(hint), "{report}");
        assert!(said.contains("please approve"), "{said}");
    }
}

#[test]
fn the_progress_of_a_copy_elsewhere_is_shown_here() {
    let machines = three(true);
    machines.write(&machines.there("a file"), 3_000_000);
    let shown = ["--progress=always", "-b", "8M", "there:a file", "other:"];
    let (code, _, said) = copy(&machines, &shown);
    assert_eq!(code, 0, "{said}");
    let moving = |line: &str| line.starts_with("dfcp: ") && line.contains("bit/s eta ");
    assert!(said.lines().any(moving), "{said}");
    assert!(!said.contains("DFCP-PROGRESS"), "{said}");
    // What else is said there is still heard.
    machines.write(&machines.there("dir/file"), 1000);
    let (code, _, said) = copy(&machines, &["--progress=always", "there:dir", "other:"]);
    assert!(code == 2 && said.contains("-r"), "{code}: {said}");
    let (code, _, said) = copy(&machines, &["-q", "there:a file", "other:again"]);
    assert_eq!((code, said.as_str()), (0, ""));
}

#[test]
fn a_copy_ends_with_who_asked_for_it() {
    let machines = three(true);
    machines.write(&machines.there("file"), 30_000_000);
    let mut asking = machines.cp(&["-b", "8M", "there:file", "other:"]);
    let mut asking = asking.spawn().unwrap();
    let partial = at_other(&machines, "file.dfcp-partial");
    eventually("it is on its way", || partial.exists());
    asking.kill().unwrap();
    asking.wait().unwrap();
    let pids = fs::read_to_string(machines.there("pids")).unwrap();
    let process = Path::new("/proc").join(pids.lines().last().unwrap());
    eventually("the other machine ends it too", || !process.exists());
    assert!(!at_other(&machines, "file").exists());
}
