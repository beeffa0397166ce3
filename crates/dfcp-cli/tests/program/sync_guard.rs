//! What `dfcp sync --delete` does not remove, although the source has it not.

use std::fs;
use std::path::PathBuf;

use crate::common::machines::Machines;
use crate::common::run;
use serde_json::Value;

/// Ends with this code; the report.
fn sync(machines: &Machines, arguments: &[&str], expected: i32) -> Value {
    let (code, report, said) = run(machines.sync().args(["--delete"]).args(arguments));
    assert_eq!(code, expected, "{arguments:?}: {said}");
    assert_eq!(report["exit_code"], expected, "{report}");
    assert_eq!(report["role"], "sync", "{report}");
    report
}

fn message(report: &Value) -> &str {
    report["error"]["message"].as_str().unwrap()
}

/// Before anything is written there.
#[test]
fn a_home_directory_is_refused_also_where_nothing_would_be_removed_in_the_end() {
    let machines = Machines::new("");
    machines.write(&machines.here("tree/file"), 10);
    std::os::unix::fs::symlink("/etc/passwd", machines.here("tree/link")).unwrap();
    let report = sync(&machines, &["tree", "there:"], 2);
    assert!(message(&report).contains("--allow-home"), "{report}");
    assert!(!machines.there("file").exists());
    sync(&machines, &["tree", "there:", "--allow-home"], 3);
}

#[test]
fn the_copy_of_a_disk_that_is_not_mounted_stays() {
    let machines = Machines::new("");
    for (source, target, disk, copy) in [
        (
            "disk",
            "there:copy",
            machines.here("disk"),
            machines.there("copy"),
        ),
        (
            "there:disk",
            "copy",
            machines.there("disk"),
            machines.here("copy"),
        ),
    ] {
        machines.write(&copy.join("photos/cat"), 10);
        machines.write(&copy.join("letter"), 10);
        // No disk has been mounted, or that of the photos only.
        for mount_point in ["", "photos"] {
            fs::create_dir_all(disk.join(mount_point)).unwrap();
            for more in [
                &[][..],
                &["-n"],
                &["--max-delete", "9"],
                &["--include", "*"],
            ] {
                let report = sync(&machines, &[&[source, target], more].concat(), 8);
                assert_eq!(report["error"]["kind"], "would_remove", "{report}");
                assert!(message(&report).contains("--allow-empty"), "{report}");
            }
        }
        assert!(copy.join("photos/cat").exists() && copy.join("letter").exists());
        // What patterns leave out does not go anyway.
        sync(
            &machines,
            &["--exclude", "letter", "--exclude", "photos", source, target],
            0,
        );
        // There is nothing to lose yet.
        sync(&machines, &[source, &format!("{target}-2")], 0);
        let report = sync(&machines, &["-n", "--allow-empty", source, target], 0);
        assert!(
            !report["plan"]["remove"].as_array().unwrap().is_empty(),
            "{report}"
        );
        sync(&machines, &["--allow-empty", source, target], 0);
        assert_eq!(fs::read_dir(&copy).unwrap().count(), 1);
        // A source that is not there at all.
        machines.write(&copy.join("letter"), 10);
        fs::remove_dir_all(&disk).unwrap();
        let report = sync(&machines, &["--allow-empty", source, target], 7);
        assert!(message(&report).contains("No such file"), "{report}");
        assert!(copy.join("letter").exists());
    }
}

#[test]
fn what_cannot_be_read_is_not_taken_for_nothing() {
    use std::os::unix::fs::PermissionsExt;
    if nix::unistd::geteuid().is_root() {
        eprintln!("skipped: the superuser reads everything");
        return;
    }
    let machines = Machines::new("");
    machines.write(&machines.here("disk/a"), 10);
    machines.write(&machines.there("copy/letter"), 10);
    let mode = |mode| {
        fs::set_permissions(machines.here("disk"), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0);
    let (code, report, said) =
        run(machines
            .sync()
            .args(["--delete", "--allow-empty", "disk", "there:copy"]));
    mode(0o755);
    assert!(code != 0 && report["exit_code"] == code, "{said}");
    assert!(machines.there("copy/letter").exists());
}

/// A tree and its copy, as they are named and where they are, to there and from there.
fn both_ways(machines: &Machines) -> [(&'static str, &'static str, PathBuf, PathBuf); 2] {
    let (here, there) = (|name| machines.here(name), |name| machines.there(name));
    [
        ("tree", "there:copy", here("tree"), there("copy")),
        ("there:tree", "copy", there("tree"), here("copy")),
    ]
}

#[test]
fn no_more_goes_than_was_allowed() {
    let machines = Machines::new("");
    for (source, target, tree, copy) in both_ways(&machines) {
        machines.write(&tree.join("new"), 10);
        machines.write(&copy.join("old/file"), 10);
        machines.write(&copy.join("older"), 10);
        for more in [&[][..], &["-n"]] {
            let arguments = [&["--max-delete", "2", source, target], more].concat();
            let report = sync(&machines, &arguments, 8);
            assert!(
                message(&report).contains("remove 3 files and directories"),
                "{report}"
            );
        }
        // All else went well.
        assert!(copy.join("new").exists() && copy.join("old/file").exists());
        // A directory with what is in it does not make way for a file either.
        machines.write(&tree.join("old"), 10);
        sync(&machines, &["--max-delete", "3", source, target], 3);
        assert!(copy.join("old/file").exists() && copy.join("older").exists());
        fs::remove_file(tree.join("old")).unwrap();
        sync(&machines, &["--max-delete", "3", source, target], 0);
        assert!(!copy.join("old").exists() && !copy.join("older").exists());
    }
}

/// Something of another kind stays where nothing is removed. Why is told, and not that --delete would replace it.
#[test]
fn what_delete_does_not_replace_is_not_told_to_use_delete() {
    let machines = Machines::new("");
    for (source, target, tree, copy) in both_ways(&machines) {
        machines.write(&tree.join("file"), 10);
        machines.write(&tree.join("directory/file"), 10);
        machines.write(&copy.join("file/in/it"), 10);
        fs::create_dir_all(copy.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", copy.join("directory")).unwrap();
        let why = |report: &Value| {
            let problems = report["problems"].to_string();
            assert!(problems.contains("file on one side"), "{report}");
            assert!(
                problems.contains("symbolic link at the receiver"),
                "{report}"
            );
            assert!(!problems.contains("sync --delete"), "{report}");
            problems
        };
        let report = sync(&machines, &["--max-delete", "9", source, target], 7);
        assert!(why(&report).contains("no --max-delete"), "{report}");
        // Not everything can be sent.
        std::os::unix::fs::symlink("/etc/passwd", tree.join("link")).unwrap();
        let report = sync(&machines, &[source, target], 7);
        assert!(why(&report).contains("nothing is removed"), "{report}");
        assert!(copy.join("file/in/it").exists());
    }
}
