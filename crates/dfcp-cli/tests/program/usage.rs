//! Command lines that say what cannot be, and what this machine does not let a program do.

use std::fs;
use std::process::{Command, Stdio};

use crate::common::{Bench, run};

#[test]
fn usage_and_local_mistakes() {
    let bench = Bench::new();
    let code = |command: &mut Command| command.output().unwrap().status.code();
    assert_eq!(code(bench.program().arg("send")), Some(2));
    // Without a host it would be sent by a code, if it were there.
    assert_eq!(code(bench.program().args(["send", "x"])), Some(7));
    assert_eq!(code(bench.program().args(["send", "x", "::1"])), Some(2));
    // Who reads JSON gets an object whatever is wrong.
    for wrong in [
        &["send", "--json"][..],
        &["send", "--json", "x", "::1"],
        &["send", "--json", "--no-such-option", "x", "h"],
        &["recv", "--json", "--listen", "nowhere"],
    ] {
        let (code, report, said) = run(bench.program().args(wrong));
        assert_eq!((code, &report["exit_code"]), (2, &2.into()), "{report}");
        assert_eq!(report["error"]["kind"], "usage", "{report}");
        assert_eq!(report["role"], wrong[0]);
        assert!(!said.is_empty());
    }
    // All that is said is in it, and who was asked.
    for (wrong, role, words) in [
        (&["cp", "--json"][..], "cp", "SRC"),
        (&["cp", "--json", "-P", "22", "x", "h:"], "cp", "ssh -p"),
        (&["send", "--json", "", "h"], "send", "an empty name"),
        (&["send", "--json", "-", "x", "h"], "send", "sent alone"),
        (
            &["send", "--json", "--retry", "1m", "x"],
            "send",
            "--retry wants a host",
        ),
        (&["sync", "--json", "x"], "sync", "SRC"),
        (
            &["sync", "--json", "--filter", "P kept", "x", "h:"],
            "sync",
            "P kept",
        ),
        (&["serve", "--json", "x"], "serve", "--json"),
        (&["no-such-command", "--json"], "dfcp", "no-such-command"),
    ] {
        let (code, report, _) = run(bench.program().args(wrong));
        assert_eq!((code, &report["role"]), (2, &role.into()), "{report}");
        let message = report["error"]["message"].as_str().unwrap();
        assert!(
            message.contains(words) && !message.contains("Usage"),
            "{message}"
        );
    }
    // Who knows scp and rsync is told what their options are here.
    for (option, advice) in [
        ("-P", "ssh -p"),
        ("-avz", "said in any case"),
        ("-p", "-a"),
        ("-H", "hard links"),
        ("--partial", "kept in any case"),
        ("--update", "--on-conflict newer"),
        ("--delete", "dfcp sync --delete"),
        ("-3", "two copies"),
        ("--inplace", "only what differs"),
        ("--progress", "leave it out"),
        // These are written like options that there are.
        ("--compress", "nothing is compressed"),
        ("--times", "-a"),
        ("--hard-links", "in any case"),
        ("--stats", "in any case"),
        ("--del", "dfcp sync"),
        ("--backup", "--on-conflict rename"),
    ] {
        let output = bench.program().args(["cp", option, "x", "h:"]).output();
        let said = String::from_utf8(output.unwrap().stderr).unwrap();
        let mut tips = said.lines().filter(|line| line.contains("tip: "));
        assert!(tips.any(|tip| tip.contains(advice)), "{said}");
        assert!(!said.contains("a similar"), "{said}");
        let usage = said.contains("SRC... DST");
        assert!(usage || option == "--progress", "{said}");
    }
    // Of all at once, and of none that there is.
    let line = ["sync", "--delete", "-avz", "--partial=x", "x", "h:"];
    let output = bench.program().args(line).output();
    let said = String::from_utf8(output.unwrap().stderr).unwrap();
    let tips = said
        .lines()
        .filter_map(|line| line.trim().strip_prefix("tip: "));
    let tips: Vec<_> = tips.filter_map(|tip| tip.split(':').next()).collect();
    assert_eq!(tips, ["-v", "-z", "--partial"], "{said}");
    let heard = ["recv", "7", "otter", "lamp"];
    let output = bench.program().args(heard).output();
    let said = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(said.contains("one word, as 7-otter-lamp"), "{said}");
    let (code, report, _) = run(bench.sender().arg(bench.path("none")).arg("127.0.0.1"));
    assert_eq!((code, &report["error"]["kind"]), (7, &"local_io".into()));
    let key = bench.path("sender.key");
    fs::set_permissions(key, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let (code, report, _) = run(bench.sender().arg(bench.write("x", 1)).arg("127.0.0.1"));
    assert_eq!(
        (code, &report["error"]["kind"]),
        (4, &"authentication".into())
    );
}

#[test]
fn what_is_no_text_or_no_directory_is_a_mistake_that_is_named() {
    use std::os::unix::ffi::OsStrExt;
    let bench = Bench::new();
    let no_text = std::ffi::OsStr::from_bytes(b"host:\xff");
    let mut copy = bench.program();
    let (code, report, _) = run(copy.args(["cp", "--json"]).arg(no_text).arg("there"));
    assert_eq!((code, &report["role"]), (2, &"cp".into()), "{report}");
    let file = bench.write("x", 1);
    let mut receive = bench.program();
    receive.args(["recv", "--json", "--allow-any", "-o"]);
    let mut log = bench.sender();
    log.arg(&file).args(["127.0.0.1", "--qlog"]);
    for command in [&mut receive, &mut log] {
        let (code, report, _) = run(command.arg(&file));
        let message = report["error"]["message"].as_str().unwrap();
        assert_eq!(code, 7, "{report}");
        assert!(message.contains("not a directory"), "{report}");
    }
}

#[test]
fn a_negative_number_is_a_wrong_value_of_its_option() {
    for (arguments, option) in [
        (&["send", "-b", "-1", "x", "h"][..], "--bwlimit"),
        (&["sync", "--max-delete", "-1", "a", "h:b"], "--max-delete"),
        (&["proxy", "serve", "--rate", "-1"], "--rate"),
    ] {
        let out = Bench::new().program().args(arguments).output().unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{said}");
        let words = format!("invalid value '-1' for '{option}");
        assert!(said.contains(&words), "{said}");
    }
    // These are no numbers.
    let mut sender = Bench::new().program();
    let out = sender.args(["send", "-b", "1M", "-4", "-q", "no-such-file", "h"]);
    assert_eq!(out.output().unwrap().status.code(), Some(7));
}

/// The name of the program passed for the server's, which was looked for.
#[cfg(target_os = "linux")]
#[test]
fn run_without_a_server_says_that_it_wants_one() {
    let bench = Bench::new();
    for (line, lacks) in [
        (&["--", "curl", "https://example.org/"][..], true),
        (&["-v", "--", "127.0.0.1:9", "-c", "exit"], true),
        (&["--", "bash"], true),
        (&["127.0.0.1:9", "--timeout", "1s", "true"], false),
        (&["127.0.0.1:9", "--timeout", "1s", "--", "true"], false),
        (
            &["--timeout", "1s", "127.0.0.1:9", "env", "--", "true"],
            false,
        ),
    ] {
        let mut command = bench.program();
        let key = bench.path("sender.key");
        command.args(["run", "--peer-key", &bench.receiver_key, "--key"]);
        let out = command.arg(key).args(line).output().unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        let code = if lacks { 2 } else { 5 };
        assert_eq!(out.status.code(), Some(code), "{line:?}: {said}");
        assert_eq!(said.contains("dfcp run HOST -- PROGRAM"), lacks, "{said}");
    }
}

/// Who may not raise the limit is told to; the superuser may.
#[test]
fn a_small_limit_of_the_stack_is_raised_or_told() {
    let bench = Bench::new();
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -s 64 && exec \"$0\" key show --key \"$1\""]);
    shell.arg(env!("CARGO_BIN_EXE_dfcp"));
    let out = shell.arg(bench.path("sender.key")).output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    match out.status.code() {
        Some(0) => {}
        code => {
            assert_eq!(code, Some(1), "{said}");
            assert!(said.contains("ulimit -s"), "{said}");
        }
    }
}

#[test]
fn a_standard_error_that_cannot_be_written_ends_nothing() {
    let code = |stderr: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dfcp"));
        command.args(["send", "no-such-file", "127.0.0.1:9"]);
        command.stdin(Stdio::null()).stderr(stderr);
        command.status().unwrap().code()
    };
    let full = std::fs::File::options().write(true).open("/dev/full");
    assert_eq!(code(full.unwrap().into()), code(Stdio::null()));
    assert_eq!(code(Stdio::null()), Some(7));
}
