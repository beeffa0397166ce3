//! `dfcp cp` interrupted, killed, and started again.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nix::unistd::Pid;

use crate::common;
use crate::common::machines::{Machines, PROGRAM};
use crate::common::run;

#[test]
fn a_copy_whose_terminal_goes_away_ends_as_one_that_is_interrupted() {
    use nix::sys::signal::{Signal, kill};
    common::hear_hang_ups();
    let machines = Machines::new("");
    let content = machines.write(&machines.here("file"), 4_000_000);
    let hang_up = |target: &str, prelude: &str| {
        let there = format!("there:{target}");
        let arguments = ["file", &there, "-b", "8M", "--remote-path", PROGRAM];
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

/// Nor is then said that the copy goes on without ssh.
#[test]
fn a_copy_that_is_interrupted_on_its_way_says_that_alone() {
    let machines = Machines::new(
        "copy=$PPID; (until [ -s file.dfcp-partial ]; do sleep 0.1; done; kill -KILL $$; kill -INT $copy) \
         >/dev/null 2>&1 &",
    );
    machines.write(&machines.here("file"), 4_000_000);
    let arguments = ["file", "there:", "-b", "8M", "--remote-path", PROGRAM];
    let (code, _, said) = run(&mut machines.cp(&arguments));
    assert_eq!((code, said.trim_end()), (130, "dfcp: interrupted"));
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

/// The other machine counts logins, lets nobody in while there is a file `down` and counts whom it turned
/// away, and knows its agent and what stands for the ssh that runs it.
pub(super) fn watched() -> Machines {
    use std::os::unix::fs::PermissionsExt;
    let machines = Machines::new(
        "echo >> logins; if test -e down; then echo >> refused; exit 255; fi; echo $$ > login",
    );
    let program = machines.there("program");
    let script = format!("#!/bin/sh\necho $$ > agent\nexec {PROGRAM} \"$@\"\n");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    machines
}

pub(super) fn agent(machines: &Machines) -> Pid {
    process(machines, "agent")
}

fn login(machines: &Machines) -> Pid {
    process(machines, "login")
}

fn process(machines: &Machines, name: &str) -> Pid {
    let process = fs::read_to_string(machines.there(name)).unwrap();
    Pid::from_raw(process.trim().parse().unwrap())
}

#[test]
fn with_retry_a_copy_goes_on_by_itself_when_the_other_side_was_killed() {
    use nix::sys::signal::{Signal, kill};
    let machines = watched();
    let program = machines.there("program");
    let program = ["--remote-path", program.to_str().unwrap()];
    let size: u64 = 12_000_000;
    let push = machines.write(&machines.here("push/file"), size as usize);
    let pull = machines.write(&machines.there("pull/file"), size as usize);
    for (source, target, made, content) in [
        ("push", "there:copy", machines.there("copy"), push),
        ("there:pull", "copy", machines.here("copy"), pull),
    ] {
        let refused = machines.there("refused");
        let _ = fs::remove_file(&refused);
        let arguments = ["-r", source, target, "-b", "20M", "--retry", "10m"];
        let child = machines.cp(&arguments).args(program).spawn().unwrap();
        let journal = made.join("file.dfcp-journal");
        common::eventually("a quarter is there", || {
            // 40 bytes for each of the groups of 64 KiB.
            fs::metadata(&journal).is_ok_and(|journal| journal.len() > 40 * (size >> 18))
        });
        // Nor can it be reached for a while.
        fs::write(machines.there("down"), "").unwrap();
        kill(agent(&machines), Signal::SIGKILL).unwrap();
        common::eventually("it is not let in", || refused.exists());
        fs::remove_file(machines.there("down")).unwrap();
        let (code, report, said) = common::finish(child);
        assert_eq!(code, 0, "{said}");
        assert!(said.contains("trying again"), "{said}");
        assert!(report["attempts"].as_u64().unwrap() >= 3, "{report}");
        assert_eq!(report["files"], 1, "{report}");
        let moved = report["moved_bytes"].as_u64().unwrap();
        assert!(moved < size + size / 5, "{report}");
        assert!(fs::read(made.join("file")).unwrap() == content);
        assert!(!made.join(source.trim_start_matches("there:")).exists());
    }
    // What could not even begin is not tried again.
    fs::write(machines.there("down"), "").unwrap();
    let arguments = ["push/file", "there:", "--retry", "1m"];
    let (code, report, said) = run(machines.cp(&arguments).args(program));
    assert_eq!((code, &report["attempts"]), (5, &1.into()), "{said}");
}

/// Of the two, the other machine's ssh would have said that the agent is gone.
#[test]
fn an_agent_that_ends_together_with_ssh_is_missed_and_one_that_outlives_it_goes_on() {
    use nix::sys::signal::{Signal, kill};
    let machines = watched();
    let program = machines.there("program");
    let content = machines.write(&machines.here("file"), 1_000_000);
    let there = machines.there("file");
    // The limit of a path that went silent is far beyond what this test waits for.
    let arguments = ["file", "there:", "-b", "1M", "--timeout", "10m"];
    let end_ssh = |retry: &[&str], with_agent: bool| {
        let mut copy = machines.cp(&arguments);
        copy.args(retry).arg("--remote-path").arg(&program);
        let child = copy.spawn().unwrap();
        let partial = machines.there("file.dfcp-partial");
        common::eventually("it has begun", || partial.exists());
        kill(login(&machines), Signal::SIGKILL).unwrap();
        if with_agent {
            kill(agent(&machines), Signal::SIGKILL).unwrap();
        }
        common::finish(child)
    };
    let (code, report, said) = end_ssh(&[], true);
    assert_eq!(code, 5, "{said}");
    let message = report["error"]["message"].as_str().unwrap();
    assert!(message.contains("ssh has ended"), "{message}");
    fs::remove_file(machines.there("file.dfcp-partial")).unwrap();
    let (code, report, said) = end_ssh(&["--retry", "1m"], true);
    assert_eq!((code, &report["attempts"]), (0, &2.into()), "{said}");
    assert!(said.contains("trying again"), "{said}");
    assert!(fs::read(&there).unwrap() == content);
    fs::remove_file(&there).unwrap();
    let (code, _, said) = end_ssh(&[], false);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("going on over UDP"), "{said}");
    assert!(fs::read(&there).unwrap() == content);
}

/// Percentages that lines of progress begin with.
fn shares(said: &str) -> Vec<u32> {
    let shares = said.lines().filter_map(|line| {
        let (before, _) = line.split_once('%')?;
        before.rsplit(' ').next()?.parse().ok()
    });
    shares.collect()
}

#[test]
fn with_retry_the_bar_goes_on_from_what_is_there() {
    use nix::sys::signal::{Signal, kill};
    let machines = watched();
    let program = machines.there("program");
    let size: usize = 12_000_000;
    machines.write(&machines.here("push"), size);
    machines.write(&machines.there("pull"), size);
    for (source, target, made) in [
        ("push", "there:", machines.there("push")),
        ("there:pull", ".", machines.here("pull")),
    ] {
        let mut copy = machines.cp(&[source, target, "-b", "20M", "--retry", "10m"]);
        copy.args(["--progress", "always", "--remote-path"])
            .arg(&program);
        let child = copy.spawn().unwrap();
        let journal = PathBuf::from(format!("{}.dfcp-journal", made.display()));
        common::eventually("half of it is there", || {
            // 40 bytes for each of the groups of 64 KiB.
            fs::metadata(&journal).is_ok_and(|journal| journal.len() > 40 * (size as u64 >> 17))
        });
        kill(agent(&machines), Signal::SIGKILL).unwrap();
        let (code, _, said) = common::finish(child);
        assert_eq!(code, 0, "{said}");
        let (before, after) = said.split_once("trying again").expect(&said);
        let (before, after) = (shares(before), shares(after));
        assert!(!before.is_empty() && !after.is_empty(), "{said}");
        assert!(after[0] >= *before.last().unwrap(), "{said}");
        assert!(after[0] >= 40 && after.is_sorted(), "{said}");
    }
}

/// The other machine was suspended, and takes its time to notice that this side has given it up.
#[test]
fn with_retry_a_copy_waits_for_the_attempt_before_to_be_given_up() {
    use nix::sys::signal::{Signal, kill};
    let machines = watched();
    let content = machines.write(&machines.here("tree/file"), 5_000_000);
    let program = machines.there("program");
    let arguments = [
        "-r",
        "tree",
        "there:new",
        "-b",
        "10M",
        "--retry",
        "10m",
        "--timeout",
        "2s",
    ];
    let mut command = machines.cp(&arguments);
    command.args(["--remote-path", program.to_str().unwrap()]);
    let child = command.spawn().unwrap();
    let journal = machines.there("new/file.dfcp-journal");
    common::eventually("some of it is there", || {
        fs::metadata(&journal).is_ok_and(|journal| journal.len() > 1000)
    });
    let first = agent(&machines);
    kill(first, Signal::SIGSTOP).unwrap();
    let logins = || fs::read(machines.there("logins")).unwrap().len();
    common::eventually("the second attempt meets the first", || logins() > 2);
    kill(first, Signal::SIGCONT).unwrap();
    let (code, _, said) = common::finish(child);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("has not given up"), "{said}");
    assert!(fs::read(machines.there("new/file")).unwrap() == content);
    assert!(!machines.there("new/tree").exists());
}

/// A laptop gets another address from its network while it copies.
#[cfg(target_os = "linux")]
#[test]
fn a_copy_goes_on_when_the_address_here_changes() {
    use crate::common::namespace::{Namespace, privileged};
    privileged("true", || {
        let [home, away] = [Namespace::new(), Namespace::new()];
        home.cable(("eth0", "10.7.0.1/24"), &away, ("eth0", "10.7.0.2/24"));
        let into = |host: &Namespace| format!("nsenter -n -t {}", host.place().unwrap());
        let machines = Machines::new(&format!("exec {} sh -c \"$2\"", into(&away)));
        let size = 12_000_000;
        let push = machines.write(&machines.here("push"), size);
        let pull = machines.write(&machines.there("pull"), size);
        for (source, target, made, content, address) in [
            ("push", "there:", machines.there("push"), push, 1),
            ("there:pull", ".", machines.here("pull"), pull, 3),
        ] {
            let copy = machines.cp(&[source, target, "-b", "30M", "--remote-path", PROGRAM]);
            let mut inside = Command::new("nsenter");
            inside.args(into(&home).split(' ').skip(1));
            inside.arg(copy.get_program()).args(copy.get_args());
            inside.env("XDG_STATE_HOME", machines.here("state"));
            let inside = inside.current_dir(machines.dir.path()).stdin(Stdio::null());
            let child = inside.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
            let child = child.unwrap();
            let journal = PathBuf::from(format!("{}.dfcp-journal", made.display()));
            common::eventually("some of it is there", || {
                fs::metadata(&journal).is_ok_and(|journal| journal.len() > 1000)
            });
            home.run(&format!(
                "ip addr del 10.7.0.{address}/24 dev eth0\nip addr add 10.7.0.{}/24 dev eth0",
                address + 2
            ));
            let (code, report, said) = common::finish(child);
            assert_eq!((code, &report["via"]), (0, &"udp".into()), "{said}");
            assert!(fs::read(made).unwrap() == content);
        }
    });
}
