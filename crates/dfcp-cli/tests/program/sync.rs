//! `dfcp sync`, beside [`crate::cp`], which has what both do.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::common::machines::{Machines, PROGRAM};
use crate::common::run;

#[test]
fn sync_makes_a_directory_like_another_and_sends_only_what_differs() {
    let machines = Machines::new("");
    for name in ["same", "deep/changes", "deep/keep.log", ".hidden"] {
        machines.write(&machines.here("tree").join(name), 50_000);
    }
    let sync = |arguments: &[&str]| {
        let mut command = machines.cp(&[]);
        let mut all = vec!["sync", "--json", "-e", "./shell", "--remote-path", PROGRAM];
        all.extend(arguments);
        let mut fresh = Command::new(PROGRAM);
        fresh.current_dir(command.get_current_dir().unwrap());
        command = fresh;
        command
            .env_remove("SSH_CONNECTION")
            .args(all)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let (code, report, said) = run(&mut command);
        assert_eq!(code, 0, "{said}");
        (report, said)
    };
    let (report, _) = sync(&["tree", "there:copy"]);
    assert_eq!(report["files"], 4);
    machines.write(&machines.here("tree/deep/changes"), 60_000);
    fs::remove_file(machines.here("tree/same")).unwrap();
    machines.write(&machines.there("copy/extra/file"), 10);
    machines.write(&machines.there("copy/extra.log"), 10);
    let (report, _) = sync(&["tree", "there:copy"]);
    assert_eq!(
        (&report["files"], &report["files_there"]),
        (&1.into(), &2.into())
    );
    assert!(machines.there("copy/same").exists());
    let (_, said) = sync(&["--delete", "--exclude", "*.log", "tree", "there:copy"]);
    assert!(said.contains("copy/extra"), "{said}");
    for (name, stays) in [
        ("same", false),
        ("extra", false),
        ("extra.log", true),
        ("deep/keep.log", true),
        (".hidden", true),
    ] {
        assert_eq!(machines.there("copy").join(name).exists(), stays, "{name}");
    }
    // What an anchored pattern names is neither sent nor removed, whatever the tree is called there.
    machines.write(&machines.here("tree/raw/here"), 10);
    machines.write(&machines.there("copy/raw/there"), 10);
    sync(&["tree", "--delete", "--exclude", "/raw", "there:copy"]);
    assert!(machines.there("copy/raw/there").exists());
    assert!(!machines.there("copy/raw/here").exists());
    fs::remove_dir_all(machines.here("tree/raw")).unwrap();
    // What would be done is said as it will be, and not done.
    machines.write(&machines.here("tree/new"), 77);
    machines.write(&machines.there("copy/old"), 10);
    let (report, _) = sync(&[
        "-n",
        "--delete",
        "--filter",
        "- *.log",
        "tree",
        "there:copy",
    ]);
    let plan = &report["plan"];
    assert_eq!(plan["send"][0]["path"], "copy/new");
    assert_eq!(
        (plan["send"].as_array().unwrap().len(), &plan["bytes"]),
        (1, &77.into())
    );
    assert!(
        plan["remove"]
            .as_array()
            .unwrap()
            .contains(&"copy/old".into()),
        "{plan}"
    );
    assert!(machines.there("copy/old").exists() && !machines.there("copy/new").exists());
    fs::remove_file(machines.here("tree/new")).unwrap();
    // And back, where the copy has become the source.
    fs::remove_file(machines.there("copy/.hidden")).unwrap();
    let (_, said) = sync(&["--delete", "there:copy", "tree"]);
    assert!(said.contains("removed tree/.hidden"), "{said}");
    assert!(!machines.here("tree/.hidden").exists());
}

/// A target without a path is the home directory, and who forgot the path would lose what is in it.
#[test]
fn a_home_directory_is_not_cleared_by_mistake() {
    let machines = Machines::new("");
    machines.write(&machines.here("tree/new"), 10);
    machines.write(&machines.there("letters"), 10);
    let sync = |arguments: &[&str]| {
        let mut command = machines.sync();
        run(command.args(arguments))
    };
    for target in ["there:", "there:.", "there:.."] {
        let (code, report, said) = sync(&["--delete", "tree", target]);
        assert_eq!(code, 2, "{said}");
        let message = report["error"]["message"].as_str().unwrap();
        assert!(message.contains("--allow-home"), "{message}");
    }
    assert!(machines.there("letters").exists() && !machines.there("new").exists());
    // The other way, where the home directory of this side is meant.
    let mut back = machines.sync();
    back.env("HOME", machines.dir.path());
    let (code, _, said) = run(back.args(["--delete", "there:.", "."]));
    assert!(code == 2 && machines.here("tree/new").exists(), "{said}");
    // What takes nothing away goes there, and whoever says so clears it.
    assert_eq!(sync(&["tree", "there:"]).0, 0);
    assert!(machines.there("letters").exists() && machines.there("new").exists());
    let (code, _, said) = sync(&["--delete", "--allow-home", "tree", "there:"]);
    assert_eq!(code, 0, "{said}");
    assert!(!machines.there("letters").exists());
}

#[test]
fn files_and_directories_take_each_others_places_with_delete_only() {
    let machines = Machines::new("");
    let source = |path: &str| machines.here("tree").join(path);
    let copy = |path: &str| machines.there("copy").join(path);
    for (small, size) in [("small", 10), ("large", 500_000)] {
        machines.write(&source(&format!("{small} file")), size);
        machines.write(&source(&format!("{small} dir/in/it")), size);
        machines.write(&copy(&format!("{small} file/in/it")), 10);
        machines.write(&copy(&format!("{small} dir")), 10);
    }
    std::os::unix::fs::symlink("small file", source("link")).unwrap();
    machines.write(&copy("link/in/it"), 10);
    machines.write(&source("excluded"), 10);
    machines.write(&copy("excluded/in/kept.log"), 10);
    let there = machines.write(&source("there"), 10);
    fs::write(copy("there"), there).unwrap();
    let sync = |more: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command
            .current_dir(machines.dir.path())
            .env_remove("SSH_CONNECTION")
            .args(["sync", "--json", "-e", "./shell", "--remote-path", PROGRAM])
            .args(more)
            .args(["tree", "there:copy"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        run(&mut command)
    };
    let (code, report, said) = sync(&[]);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("sync --delete"), "{said}");
    assert_eq!(report["files_there"], 1);
    assert!(copy("small file/in/it").exists() && copy("large dir").is_file());
    // A dry run names all that goes.
    let (_, report, _) = sync(&["-n", "--delete", "--exclude", "*.log"]);
    let plan = report["plan"]["remove"].to_string();
    for gone in ["small dir", "large dir", "small file/in/it", "link/in/it"] {
        assert!(plan.contains(&format!("copy/{gone}\"")), "{gone}: {plan}");
    }
    assert!(!plan.contains("kept.log"), "{plan}");
    let (code, _, said) = sync(&["--delete", "--exclude", "*.log"]);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("removed copy/small file/in/it"), "{said}");
    for name in [
        "small file",
        "large file",
        "small dir/in/it",
        "large dir/in/it",
        "there",
    ] {
        assert_eq!(
            fs::read(source(name)).unwrap(),
            fs::read(copy(name)).unwrap(),
            "{name}"
        );
    }
    assert!(fs::symlink_metadata(copy("link")).unwrap().is_symlink());
    assert!(
        copy("excluded/in/kept.log").exists(),
        "what is excluded stays, and what it is in"
    );
}

/// It may lead out of the copy, or to another directory of it, whose files would be what was copied last.
#[test]
fn nothing_is_written_where_a_link_in_place_of_a_directory_leads() {
    let machines = Machines::new("");
    machines.write(&machines.here("tree/file"), 5);
    machines.write(&machines.here("tree/out/file"), 10);
    machines.write(&machines.here("tree/in/deep/file"), 20);
    machines.write(&machines.there("outside/file"), 30);
    machines.write(&machines.there("copy/other/deep/file"), 40);
    let copy = |path: &str| machines.there("copy").join(path);
    std::os::unix::fs::symlink("../outside", copy("out")).unwrap();
    std::os::unix::fs::symlink("other", copy("in")).unwrap();
    let sync = |more: &[&str]| run(machines.sync().args(more).args(["tree", "there:copy"]));
    let outside = fs::read(machines.there("outside/file")).unwrap();
    let (code, _, said) = sync(&[]);
    assert_eq!(code, 3, "{said}");
    assert!(
        said.contains("is a symbolic link at the receiver"),
        "{said}"
    );
    assert_eq!(fs::read(machines.there("outside/file")).unwrap(), outside);
    assert_eq!(fs::read(copy("other/deep/file")).unwrap().len(), 40);
    // As rsync does.
    let (code, _, said) = sync(&["--delete"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(fs::read(machines.there("outside/file")).unwrap(), outside);
    assert!(!copy("other").exists() && !copy("out").is_symlink());
    assert_eq!(fs::read(copy("out/file")).unwrap().len(), 10);
    assert_eq!(fs::read(copy("in/deep/file")).unwrap().len(), 20);
}

/// Also of those that nothing else came into: removing from a directory changes its time.
#[test]
fn directories_have_the_times_of_the_source_after_delete() {
    let machines = Machines::new("");
    for name in ["kept/file", "deep/er/file"] {
        machines.write(&machines.here("tree").join(name), 10);
    }
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let directories = ["deep/er", "deep", "kept", ""];
    for directory in directories {
        let directory = fs::File::open(machines.here("tree").join(directory)).unwrap();
        directory.set_modified(old).unwrap();
    }
    let sync = |arguments: &[&str]| {
        let mut command = machines.sync();
        let (code, report, said) = run(command.args(arguments).args(["-a", "tree", "there:copy"]));
        assert_eq!(code, 0, "{said}");
        report
    };
    sync(&[]);
    for name in ["kept/surplus", "deep/er/surplus", "gone/file", "surplus"] {
        machines.write(&machines.there("copy").join(name), 10);
    }
    sync(&["--delete"]);
    for directory in directories {
        let found = fs::metadata(machines.there("copy").join(directory)).unwrap();
        assert_eq!(found.modified().unwrap(), old, "{directory}");
    }
    assert_eq!(
        sync(&["-n", "--delete"])["plan"]["change"],
        serde_json::json!([])
    );
}
