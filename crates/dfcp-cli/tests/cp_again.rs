//! `dfcp cp` interrupted, killed, and started again.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::machines::{Machines, PROGRAM};
use common::run;

#[test]
fn a_copy_whose_terminal_goes_away_ends_as_one_that_is_interrupted() {
    use nix::sys::signal::{Signal, kill};
    common::hear_hang_ups();
    let machines = Machines::new("");
    let content = machines.write(&machines.here("file"), 30_000_000);
    let hang_up = |target: &str, prelude: &str| {
        let there = format!("there:{target}");
        let arguments = ["file", &there, "-b", "40M", "--remote-path", PROGRAM];
        let mut command = Command::new("sh");
        command
            .current_dir(machines.dir.path())
            .args(["-c", &format!("{prelude} exec \"$0\" \"$@\""), PROGRAM])
            .args(machines.cp(&arguments).get_args())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let partial = machines.there(&format!("{target}.dfcp-partial"));
        common::eventually("some of it is there", || {
            fs::metadata(&partial).is_ok_and(|partial| partial.len() > 0)
        });
        let id = nix::unistd::Pid::from_raw(child.id() as i32);
        kill(id, Signal::SIGHUP).unwrap();
        common::finish(child)
    };
    let (code, report, said) = hang_up("lost", "");
    assert_eq!((code, &report["exit_code"]), (129, &129.into()), "{said}");
    assert!(machines.there("lost.dfcp-partial").exists());
    // Nobody holds it any more.
    machines.copies(&["file", "there:lost"]);
    assert!(fs::read(machines.there("lost")).unwrap() == content);
    // What nohup does.
    let (code, _, said) = hang_up("kept", "trap '' HUP;");
    assert_eq!(code, 0, "{said}");
    assert!(fs::read(machines.there("kept")).unwrap() == content);
}

/// ssh is interrupted by the same key, and ends first.
#[test]
fn a_copy_that_is_interrupted_before_it_begins_says_so() {
    let machines = Machines::new("kill -INT $PPID; kill -INT $$; kill -KILL $$");
    machines.write(&machines.here("file"), 10);
    for _ in 0..5 {
        let (code, report, said) = run(machines.cp(&["file", "there:"]).args(["-q"]));
        assert_eq!((code, &report["exit_code"]), (130, &130.into()), "{said}");
    }
}

#[test]
fn a_tree_that_is_there_is_not_sent_again_even_in_part() {
    let machines = Machines::new("");
    for i in 0..100 {
        machines.write(&machines.here(&format!("tree/{i}")), 2000);
    }
    machines.copies(&["-r", "tree", "there:"]);
    fs::create_dir(machines.here("back")).unwrap();
    machines.copies(&["-r", "there:tree", "back"]);
    for arguments in [
        &["-r", "tree", "there:"][..],
        &["-r", "tree/.", "there:tree"],
        &["-r", "there:tree", "back"],
    ] {
        let report = machines.copies(arguments);
        assert_eq!(report["files_there"], 100, "{report}");
        let [sent, received] =
            ["wire_bytes", "wire_bytes_received"].map(|key| report[key].as_u64().unwrap());
        // The list of the names is a tenth of that, and 200 kB are the files.
        assert!(sent + received < 100_000, "{report}");
    }
}

#[test]
fn a_copy_under_a_new_name_that_broke_off_goes_on_with_the_same_command() {
    let machines = Machines::new("");
    machines.write(&machines.here("tree/a"), 1000);
    let content = machines.write(&machines.here("tree/z"), 30_000_000);
    let break_off = |arguments: &[&str], partial: PathBuf| {
        let mut copy = machines.cp(arguments);
        copy.args(["-r", "-b", "40M", "--remote-path", PROGRAM]);
        let mut copy = copy.spawn().unwrap();
        common::eventually("some of it is there", || {
            fs::metadata(&partial).is_ok_and(|partial| partial.len() > 5_000_000)
        });
        copy.kill().unwrap();
        copy.wait().unwrap();
    };
    break_off(&["tree", "there:new"], machines.there("new/z.dfcp-partial"));
    let (code, report, said) =
        run(&mut machines.cp(&["-r", "tree", "there:new", "--remote-path", PROGRAM]));
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("broke off"), "{said}");
    assert!(!machines.there("new/tree").exists());
    assert!(fs::read(machines.there("new/z")).unwrap() == content);
    assert!(
        report["moved_bytes"].as_u64().unwrap() < 27_000_000,
        "{report}"
    );
    // It has ended: from now on the name is a directory's to copy into.
    machines.copies(&["-r", "tree", "there:new"]);
    assert!(machines.there("new/tree/z").exists());
    break_off(
        &["there:new/tree", "here"],
        machines.here("here/z.dfcp-partial"),
    );
    // Another thing, or a name with a slash, means another place.
    machines.copies(&["-r", "there:new", "here"]);
    machines.copies(&["-r", "there:new/tree", "here/"]);
    assert!(machines.here("here/new/z").exists() && machines.here("here/tree/z").exists());
    machines.copies(&["-r", "there:new/tree", "here"]);
    assert!(fs::read(machines.here("here/z")).unwrap() == content);
}

#[test]
fn a_copy_that_was_killed_goes_on_where_it_was() {
    let machines = Machines::new("");
    let size: u64 = 200_000_000;
    let content = machines.write(&machines.here("file"), size as usize);
    let arguments = ["file", "there:", "--remote-path", PROGRAM];
    let mut killed = machines.cp(&arguments).spawn().unwrap();
    let journal = machines.there("file.dfcp-journal");
    common::eventually("a quarter is there", || {
        // 40 bytes for each of the groups of 64 KiB.
        fs::metadata(&journal).is_ok_and(|journal| journal.len() > 40 * (size >> 18))
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(!machines.there("file").exists());
    let report = machines.copies(&["file", "there:"]);
    let moved = report["moved_bytes"].as_u64().unwrap();
    assert!(moved < size - size / 5, "{report}");
    assert!(fs::read(machines.there("file")).unwrap() == content);
    // What is there is not sent again.
    let report = machines.copies(&["file", "there:"]);
    assert_eq!(
        (&report["files_there"], &report["moved_bytes"]),
        (&1.into(), &0.into())
    );
}

#[test]
fn of_a_file_that_changed_the_rest_comes_also_after_a_kill() {
    let machines = Machines::new("");
    let size: usize = 40_000_000;
    let mut content = machines.write(&machines.here("file"), size);
    machines.copies(&["file", "there:"]);
    // The first half is another one now, and so is a byte near the end.
    content[..size / 2].reverse();
    content[size - 1000] ^= 1;
    fs::write(machines.here("file"), &content).unwrap();
    let arguments = ["file", "there:", "-b", "40M", "--remote-path", PROGRAM];
    let mut killed = machines.cp(&arguments).spawn().unwrap();
    let journal = machines.there("file.dfcp-journal");
    common::eventually("a part of what is new is there", || {
        // 40 bytes for each of the groups of 64 KiB: those of the second half, and some of the first.
        fs::metadata(&journal)
            .is_ok_and(|journal| journal.len() > 40 * ((size as u64 >> 16) * 3 / 4))
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(fs::read(machines.there("file")).unwrap() != content);
    let report = machines.copies(&["file", "there:"]);
    let [moved, kept] = ["moved_bytes", "kept_bytes"].map(|key| report[key].as_u64().unwrap());
    assert_eq!(moved + kept, size as u64, "{report}");
    assert!(moved < size as u64 * 3 / 10, "{report}");
    assert!(fs::read(machines.there("file")).unwrap() == content);
    // In the other direction, and all of it where that is wanted.
    content[size / 2] ^= 1;
    fs::write(machines.there("file"), &content).unwrap();
    let report = machines.copies(&["there:file", "."]);
    assert_eq!(report["moved_bytes"], 1 << 16, "{report}");
    assert!(fs::read(machines.here("file")).unwrap() == content);
    content[size / 2] ^= 1;
    fs::write(machines.here("file"), &content).unwrap();
    let report = machines.copies(&["-W", "file", "there:"]);
    assert_eq!(
        (&report["moved_bytes"], &report["kept_bytes"]),
        (&size.into(), &0.into())
    );
}
