//! `dfcp cp` with a remote shell of the test's own, which runs what ssh would run on another machine
//! with another home.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::machines::{Machines, PROGRAM};
use crate::common::terminal::Terminal;
use crate::common::{finish, run};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
#[test]
fn files_go_there_and_come_back_under_the_names_that_cp_gives_them() {
    let machines = Machines::new("echo this login talks; printf 'and ends without a line end'");
    let content = machines.write(&machines.here("a b"), 300_000);
    let report = machines.copies(&["a b", "there:"]);
    assert_eq!(report["via"], "udp");
    assert_eq!(fs::read(machines.there("a b")).unwrap(), content);
    machines.copies(&["a b", "there:new name"]);
    assert_eq!(fs::read(machines.there("new name")).unwrap(), content);
    machines.copies(&["there:a b", "back"]);
    assert_eq!(fs::read(machines.here("back")).unwrap(), content);
    // What is there is overwritten, as cp does.
    let other = machines.write(&machines.here("other"), 1000);
    machines.copies(&["other", "there:a b"]);
    assert_eq!(fs::read(machines.there("a b")).unwrap(), other);
    // Several things go into a directory, made if its name ends with a slash.
    machines.copies(&["other", "back", "there:in/"]);
    assert_eq!(fs::read(machines.there("in/back")).unwrap(), content);
    machines.write(&machines.there(".x.log"), 4);
    machines.write(&machines.there("x1.log"), 5);
    machines.write(&machines.there("x2.log"), 6);
    fs::create_dir(machines.here("logs")).unwrap();
    machines.copies(&["there:~/*.log", "there:in/other", "logs"]);
    assert_eq!(fs::read_dir(machines.here("logs")).unwrap().count(), 3);
}

#[test]
fn trees_keep_modes_and_times_and_leave_out_what_they_are_told_to() {
    let machines = Machines::new("");
    machines.write(&machines.here("tree/.hidden"), 10);
    machines.write(&machines.here("tree/src/a.c"), 2000);
    machines.write(&machines.here("tree/src/a.o"), 2000);
    let script = machines.here("tree/src/a.c");
    // Privileges are kept with -a alone, as cp and scp have it, and nobody misses them else.
    fs::set_permissions(&script, fs::Permissions::from_mode(0o6751)).unwrap();
    let src = machines.here("tree/src");
    fs::set_permissions(src, fs::Permissions::from_mode(0o2755)).unwrap();
    let before = fs::metadata(&script).unwrap();
    machines.copies(&["-r", "--exclude", "*.o", "tree", "there:copy"]);
    let after = fs::metadata(machines.there("copy/src/a.c")).unwrap();
    assert_eq!(after.mode() & 0o7777, 0o751);
    assert_eq!(after.mtime(), before.mtime());
    let src = fs::metadata(machines.there("copy/src")).unwrap();
    assert_eq!(src.mode() & 0o7777, 0o755);
    assert!(machines.there("copy/.hidden").exists());
    assert!(!machines.there("copy/src/a.o").exists());
    // A directory that is there gets the tree into it.
    machines.copies(&["-a", "there:copy", "."]);
    assert!(machines.here("copy/src/a.c").exists());
    let out = machines
        .cp(&["-n", "-r", "--remote-path", PROGRAM, "there:copy", "new"])
        .output()
        .unwrap();
    let listed = String::from_utf8(out.stdout).unwrap();
    let plan: Value = serde_json::from_str(&listed).unwrap();
    let sizes = plan["plan"]["send"].as_array().unwrap().iter();
    let sizes: Vec<_> = sizes
        .map(|each| (each["path"].as_str().unwrap(), &each["size"]))
        .collect();
    assert!(sizes.contains(&("new/src/a.c", &2000.into())), "{listed}");
    assert!(!machines.here("new").exists());
}

#[test]
fn an_archive_keeps_names_holes_links_and_modes() {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::FileExt;
    let machines = Machines::new("umask 077");
    let odd = std::ffi::OsStr::from_bytes(b"caf\xe9\n\\");
    let tree = machines.here("tree");
    fs::create_dir_all(tree.join("dir")).unwrap();
    fs::write(tree.join("dir").join(odd), "content").unwrap();
    fs::set_permissions(tree.join("dir"), fs::Permissions::from_mode(0o1775)).unwrap();
    fs::set_permissions(
        tree.join("dir").join(odd),
        fs::Permissions::from_mode(0o646),
    )
    .unwrap();
    std::os::unix::fs::symlink(odd, tree.join("dir/link")).unwrap();
    let size = 200_000_000;
    let sparse = fs::File::create(tree.join("disk")).unwrap();
    sparse.set_len(size).unwrap();
    sparse.write_all_at(b"data", size / 2).unwrap();
    let is_sparse = |file: &Path| fs::metadata(file).unwrap().blocks() * 512 < size / 10;
    let report = machines.copies(&["-a", "tree", "there:copy"]);
    assert_eq!(report["left_out"].as_array().unwrap().len(), 0);
    let copy = machines.there("copy");
    let mode = |path: PathBuf| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(mode(copy.join("dir").join(odd)), 0o646);
    assert_eq!(mode(copy.join("dir")), 0o1775);
    assert_eq!(
        fs::read_link(copy.join("dir/link")).unwrap().as_os_str(),
        odd
    );
    let times = |path: PathBuf| fs::symlink_metadata(path).unwrap().mtime_nsec();
    assert_eq!(times(copy.join("dir/link")), times(tree.join("dir/link")));
    if is_sparse(&tree.join("disk")) {
        assert!(is_sparse(&copy.join("disk")));
        assert!(
            report["wire_bytes"].as_u64().unwrap() < size / 10,
            "{report}"
        );
    }
    // Modes that have changed since are as in the source again, nothing else is copied.
    fs::set_permissions(copy.join("dir"), fs::Permissions::from_mode(0o700)).unwrap();
    let report = machines.copies(&["-a", "tree", "there:"]);
    assert_eq!(report["files"], 3);
    let report = machines.copies(&["-a", "tree/dir", "there:copy"]);
    assert_eq!(
        (&report["files"], &report["files_there"]),
        (&0.into(), &2.into())
    );
    assert_eq!(mode(copy.join("dir")), mode(tree.join("dir")));
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(tree.join("dir"), Some(54_321), Some(54_322)).unwrap();
        machines.copies(&["-a", "tree/dir", "there:copy"]);
        assert_eq!(fs::metadata(copy.join("dir")).unwrap().uid(), 54_321);
    }
}

#[test]
fn a_dry_run_names_what_would_change_beside_contents() {
    let machines = Machines::new("");
    for name in ["tree/file", "tree/dir/same"] {
        machines.write(&machines.here(name), 10);
    }
    std::os::unix::fs::symlink("file", machines.here("tree/link")).unwrap();
    machines.copies(&["-a", "tree", "there:copy"]);
    let copy = |name: &str| machines.there("copy").join(name);
    let mode = |path: PathBuf, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let plan = |arguments: &[&str]| {
        let dry = [&["-n"], arguments, &["tree/.", "there:copy"]].concat();
        machines.copies(&dry)["plan"].clone()
    };
    let change = |path: &str, kind: &str, what: &[&str]| serde_json::json!({"path": path, "kind": kind, "what": what});
    assert_eq!(plan(&["-a"])["change"], serde_json::json!([]));
    mode(machines.here("tree/file"), 0o600);
    mode(machines.here("tree/dir"), 0o711);
    fs::File::open(copy("dir"))
        .unwrap()
        .set_modified(std::time::UNIX_EPOCH)
        .unwrap();
    let expected = serde_json::json!([
        change("copy/dir", "directory", &["mode", "time"]),
        change("copy/file", "file", &["mode"]),
    ]);
    let told = plan(&["-a"]);
    assert_eq!(
        (&told["send"], &told["change"]),
        (&serde_json::json!([]), &expected)
    );
    assert_eq!(
        fs::metadata(copy("dir")).unwrap().mtime(),
        0,
        "nothing changes"
    );
    // Without -a none of it would.
    assert_eq!(plan(&["-rl"])["change"], serde_json::json!([]));
    // People read it, too, from either side; and in a line what it comes to.
    let told = |option: &str, places: [&str; 2]| {
        let mut command = Command::new(PROGRAM);
        command
            .current_dir(machines.dir.path())
            .args(["cp", option, "-e", "./shell", "--remote-path", PROGRAM])
            .args(places);
        let output = command.output().unwrap();
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap())
    };
    let [_, said] = told("-rln", ["tree/.", "there:copy"]);
    assert_eq!(said, "dfcp: dry run: nothing to do, 3 there already\n");
    for places in [["tree/.", "there:copy"], ["there:copy/.", "tree"]] {
        let [listed, said] = told("-an", places);
        assert_eq!(said, "dfcp: dry run: 2 to change, 3 there already\n");
        let lines: Vec<_> = listed.lines().map(str::trim_start).collect();
        assert_eq!(lines.len(), 2, "{listed}");
        assert!(
            lines[0].starts_with("mode,time ") && lines[0].ends_with("/dir/"),
            "{listed}"
        );
        assert!(
            lines[1].starts_with("mode ") && lines[1].ends_with("/file"),
            "{listed}"
        );
    }
    // What was said is what is done.
    machines.copies(&["-a", "tree/.", "there:copy"]);
    assert_eq!(fs::metadata(copy("file")).unwrap().mode() & 0o777, 0o600);
    assert_eq!(plan(&["-a"])["change"], serde_json::json!([]));
}

#[test]
fn what_cannot_be_done_is_said_with_its_class() {
    let machines = Machines::new("");
    machines.write(&machines.here("file"), 10);
    machines.write(&machines.here("tree/file"), 10);
    machines.fails(&["file", "elsewhere:"], 5, "make `./shell elsewhere` work");
    machines.fails(&["none", "there:"], 7, "none");
    machines.fails(&["there:none", "."], 7, "none");
    let both = ["there:*.none", "there:?.nor", "."];
    machines.fails(&both, 7, "?.nor: nothing matches");
    machines.fails(&["tree", "there:"], 2, "-r");
    machines.fails(&["file", "shell", "there:new"], 2, "new/ makes it");
    machines.fails(&["there:file", "there:shell", "two"], 2, "two/ makes it");
    machines.fails(&["file", "there:no/new"], 2, "make it first");
    machines.fails(&["file", "copy"], 2, "local paths");
    // No pipe, and no file of that name that is there afterwards.
    machines.fails(&["-", "there:new"], 2, "dfcp send - ");
    machines.fails(&["there:shell", "-"], 2, "dfcp recv -o - ");
    let long = format!("there:{}", "x".repeat(300));
    machines.fails(&["file", &long], 7, "too long");
    // What is there and is no directory is not told as missing.
    machines.write(&machines.there("plain"), 10);
    nix::unistd::mkfifo(&machines.there("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let stays = "is a device, a pipe or a socket, which stays; name another target";
    machines.fails(&["-r", "tree", "there:/dev/null"], 7, stays);
    machines.fails(&["-r", "tree", "there:fifo"], 7, stays);
    machines.fails(&["file", "there:fifo"], 7, stays);
    machines.fails(
        &["-r", "tree", "there:plain/new"],
        2,
        "plain: not a directory",
    );
    machines.fails(&["file", "there:fifo/new/x"], 2, "fifo: not a directory");
    let several = ["file", "shell", "there:plain/new"];
    machines.fails(&several, 2, "plain: not a directory");
    machines.fails(&["file", "there:plain/new/"], 2, "plain: not a directory");
    let (code, _, said) = run(machines.sync().args(["file", "there:new"]));
    assert!(
        code == 2 && said.contains("`dfcp cp` copies files"),
        "{said}"
    );
    let mut sync = machines.sync();
    let (code, _, said) = run(sync.args(["tree", "there:plain/new"]));
    assert!(
        code == 2 && said.contains("plain: not a directory"),
        "{said}"
    );
    machines.fails(&["", "there:"], 2, "empty name");
    let taken = std::net::UdpSocket::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let arguments = ["--port-range", &port, "file", "there:"];
    machines.fails(&arguments, 7, "name others (--port-range)");
    let (code, _, said) = run(&mut machines.cp(&["file", "there:"]));
    assert_eq!(code, 1);
    assert!(said.contains("--install"), "{said}");
}

#[test]
fn an_agent_of_another_version_or_none_at_all_is_told_from_one_that_works() {
    for (agent, words) in [
        ("echo DFCP-AGENT 999", "same version"),
        ("exit 2", "did not start"),
        ("yes noise | head -c 1000000", "did not start"),
        (
            "echo DFCP-AGENT 4; printf '\\0\\377\\377\\377\\377'",
            "frame",
        ),
        ("echo DFCP-AGENT 4", "without a word"),
        ("echo DFCP-AGENT 4; exec sleep 10", "says nothing"),
    ] {
        let machines = Machines::new("");
        machines.write(&machines.here("file"), 10);
        let path = machines.here("agent");
        fs::write(&path, format!("#!/bin/sh\n{agent}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let path = path.to_str().unwrap();
        let arguments = ["file", "--timeout", "2s", "there:", "--remote-path", path];
        let (code, _, said) = run(&mut machines.cp(&arguments));
        assert!(code != 0 && said.contains(words), "{agent}: {code} {said}");
    }
}

#[test]
fn the_program_is_installed_where_it_is_missing() {
    let machines = Machines::new("");
    let content = machines.write(&machines.here("file"), 1000);
    let (code, _, said) = run(&mut machines.cp(&["file", "there:", "--install"]));
    assert!(code == 1 && said.contains("--yes"), "{code} {said}");
    for _ in 0..2 {
        let (code, _, said) = run(&mut machines.cp(&["file", "there:", "--install", "--yes"]));
        assert_eq!(code, 0, "{said}");
    }
    assert_eq!(fs::read(machines.there("file")).unwrap(), content);
    assert!(machines.there(".local/bin/dfcp").exists());
}

#[test]
fn the_question_before_an_installation_can_be_interrupted() {
    let machines = Machines::new("");
    machines.write(&machines.here("file"), 1000);
    let mut command = machines.cp(&["file", "there:", "--install"]);
    let mut terminal = Terminal::new(&mut command);
    let copy = command.spawn().unwrap();
    terminal.wait_for("(y, N)? ");
    kill(Pid::from_raw(copy.id() as i32), Signal::SIGINT).unwrap();
    let (code, report, _) = finish(copy);
    assert_eq!(code, 130, "{report}");
    assert!(!machines.there(".local").exists());
}

#[test]
fn where_udp_does_not_get_through_files_go_over_the_shell() {
    let isolated = "exec unshare -rn sh -c \"ip link set lo up; $2\"";
    let possible = Command::new("unshare")
        .args(["-rn", "ip", "link", "set", "lo", "up"])
        .status();
    if !possible.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no network namespaces here");
        return;
    }
    let machines = Machines::new(isolated);
    let content = machines.write(&machines.here("file"), 3_000_000);
    machines.fails(&["file", "there:", "--fallback", "fail"], 5, "--port-range");
    let report = machines.copies(&["file", "there:"]);
    assert_eq!(report["via"], "ssh");
    assert_eq!(fs::read(machines.there("file")).unwrap(), content);
    // The pipe is slow at times, and loses nothing.
    assert!(report["loss"].as_f64().unwrap() < 0.05, "{report}");
    let report = machines.copies(&["there:file", "back"]);
    assert_eq!(report["via"], "ssh");
    assert_eq!(fs::read(machines.here("back")).unwrap(), content);
}

#[test]
fn a_file_that_is_taken_for_a_host_is_told_of() {
    let machines = Machines::new("");
    let content = machines.write(&machines.here("12:30.log"), 10);
    machines.fails(&["12:30.log", "there:log"], 5, "./12:30.log");
    machines.copies(&["./12:30.log", "there:log"]);
    assert!(fs::read(machines.there("log")).unwrap() == content);
}

#[test]
fn what_is_in_a_directory_goes_into_the_target_as_with_cp() {
    let machines = Machines::new("");
    let content = machines.write(&machines.here("tree/dir/file"), 10);
    std::os::unix::fs::symlink("dir", machines.here("tree/link")).unwrap();
    machines.write(&machines.there("there/old"), 10);
    machines.copies(&["-a", "tree/.", "there:there"]);
    assert_eq!(fs::read(machines.there("there/dir/file")).unwrap(), content);
    assert!(machines.there("there/link").is_symlink() && machines.there("there/old").exists());
    machines.copies(&["-rl", "tree/", "there:there"]);
    assert!(machines.there("there/tree/dir/file").exists());
    machines.copies(&["-rl", "there:there/.", "new"]);
    assert!(machines.here("new/tree/dir/file").exists());
    machines.fails(&["-r", "tree/.", "new", "there:"], 2, "DIR/.");
    // One source that is missing, or a directory, does not stop the others.
    machines.write(&machines.here("a"), 10);
    let mut command = machines.cp(&[
        "none",
        "tree",
        "a",
        "there:",
        "--remote-path",
        PROGRAM,
        "-q",
    ]);
    let (code, report, said) = run(&mut command);
    assert_eq!(code, 3, "{said}");
    assert!(
        said.contains("none") && said.contains("-r copies it"),
        "{said}"
    );
    assert_eq!(report["left_out"].as_array().unwrap().len(), 2);
    assert!(machines.there("a").exists());
    let mut command = machines.cp(&["there:no*", "there:a", "back", "--remote-path", PROGRAM]);
    fs::create_dir(machines.here("back")).unwrap();
    let (code, _, said) = run(&mut command);
    assert_eq!(code, 3, "{said}");
    assert!(machines.here("back/a").exists());
}

/// A limit of files' sizes is an error as a full disk is one, and no signal that ends the program unheard.
#[test]
fn a_file_beyond_the_limit_of_sizes_fails_with_a_sentence() {
    let machines = Machines::new("");
    machines.write(&machines.there("large"), 3_000_000);
    machines.write(&machines.there("small"), 1000);
    let files = ["there:large", "there:small", "."];
    let copy = machines.cp(&[&["--remote-path", PROGRAM], &files[..]].concat());
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -f 1000 && exec \"$0\" \"$@\""])
        .arg(copy.get_program())
        .args(copy.get_args())
        .current_dir(copy.get_current_dir().unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for (name, value) in copy.get_envs() {
        value.map(|value| limited.env(name, value));
    }
    let (code, report, _) = run(&mut limited);
    let message = report["problems"][0]["message"].as_str().unwrap();
    assert!(code == 3 && message.contains("ulimit -f"), "{report}");
    assert!(machines.here("small").exists());
}

/// A login that waits for something (a menu, a disk that does not answer) and a question of ssh look alike from
/// here, but for what ssh does to ask.
#[test]
fn a_login_that_never_greets_is_given_up_and_a_question_is_waited_for() {
    let machines = Machines::new("exec sleep 1000");
    machines.write(&machines.here("file"), 1000);
    let copy = machines.cp(&["file", "there:", "--timeout", "1s"]).spawn();
    let (code, report, _) = finish(copy.unwrap());
    assert_eq!(code, 5, "{report}");
    let error = report["error"]["message"].as_str().unwrap();
    assert!(
        error.starts_with("there: ./shell has not started dfcp there"),
        "{error}"
    );
    // Longer than that.
    let asks = "printf '#!/bin/sh\\nsleep 6; :\\n' > askpass; chmod 700 askpass; ./askpass";
    let machines = Machines::new(asks);
    machines.write(&machines.here("file"), 1000);
    machines.copies(&["file", "there:", "--timeout", "1s"]);
}
