//! What programs and people are told while a session runs, and what happens where it cannot be said.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use crate::common;
use crate::common::{Bench, bytes, finish, wait};
use serde_json::Value;

/// Lines of JSON of a process that ended, and its exit code.
fn stream(command: &mut Command) -> (i32, Vec<Value>) {
    let mut child = command.spawn().unwrap();
    let mut text = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    let code = wait(&mut child).code().unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (code, lines.collect())
}

fn of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events
        .iter()
        .filter(|event| event["event"] == kind)
        .collect()
}

#[test]
fn every_event_is_a_line_and_the_report_is_the_last() {
    let bench = Bench::new();
    let receiver = bench.receiver(&["--once"]);
    let tree = bench.write("tree/large", 3_000_000);
    bench.write("tree/small", 1000);
    let mut sender = bench.program();
    sender.args(["send", "--json=stream", "--peer-key", &bench.receiver_key]);
    sender.arg("--key").arg(bench.path("sender.key"));
    // Slow enough for some progress to be told of.
    sender.args(["-b", "10M"]).arg(tree.parent().unwrap());
    let (code, events) = stream(sender.arg(receiver.address.to_string()));
    assert_eq!((code, receiver.end().0), (0, 0), "{events:?}");
    let offer = of(&events, "offer");
    assert_eq!(
        (offer[0]["files"].as_u64(), offer[0]["bytes"].as_u64()),
        (Some(2), Some(3_001_000))
    );
    let mut files = of(&events, "file");
    files.sort_by_key(|file| file["path"].to_string());
    for (file, (name, size)) in files
        .iter()
        .zip([("tree/large", 3_000_000), ("tree/small", 1000)])
    {
        let hash = blake3::hash(&bytes(name, size)).to_hex();
        assert_eq!(
            (&file["path"], &file["status"]),
            (&name.into(), &"done".into())
        );
        assert_eq!(file["blake3"], hash.as_str(), "{file}");
    }
    let arrived = of(&events, "progress")
        .into_iter()
        .map(|event| event["bytes"].as_u64().unwrap());
    assert!(arrived.is_sorted() && of(&events, "progress")[0]["total"] == 3_001_000);
    let last = events.last().unwrap();
    assert_eq!(
        (&last["event"], &last["useful_bytes"]),
        (&"end".into(), &3_001_000.into())
    );
}

#[test]
fn both_sides_tell_of_all_kinds_of_entries() {
    let bench = Bench::new();
    let mut receiver = bench.program();
    receiver.args(["recv", "--once", "--json=stream", "--listen", "127.0.0.1:0"]);
    receiver
        .args(["--allow", &bench.sender_key, "--key"])
        .arg(bench.path("receiver.key"));
    receiver.arg("-o").arg(bench.path("received"));
    let receiver = common::Receiver::start(receiver);
    let tree = bench.write("tree/file", 1000);
    let tree = tree.parent().unwrap();
    bench.write("tree/empty", 0);
    bench.write("tree/large", 400_000);
    std::fs::create_dir(tree.join("dir")).unwrap();
    std::os::unix::fs::symlink("file", tree.join("symbolic")).unwrap();
    std::fs::hard_link(tree.join("large"), tree.join("other name")).unwrap();
    // In the way of a link, and of a directory.
    bench.write("received/tree/symbolic", 5);
    bench.write("received/tree/dir", 5);
    let mut sender = bench.program();
    sender.args([
        "send",
        "-l",
        "--json=stream",
        "--peer-key",
        &bench.receiver_key,
    ]);
    sender.arg("--key").arg(bench.path("sender.key")).arg(tree);
    let (code, sent) = stream(sender.arg(receiver.address.to_string()));
    assert_eq!(code, 3);
    let (code, received) = receiver.end_stream();
    assert_eq!(code, 3);
    for events in [sent, received] {
        let mut files: Vec<_> = of(&events, "file")
            .iter()
            .map(|file| {
                (
                    file["path"].as_str().unwrap(),
                    file["status"].as_str().unwrap(),
                )
            })
            .collect();
        files.sort_unstable();
        let expected = [
            ("tree/dir", "error"),
            ("tree/empty", "done"),
            ("tree/file", "done"),
            ("tree/large", "done"),
            ("tree/other name", "done"),
            ("tree/symbolic", "error"),
        ];
        assert_eq!(files, expected);
    }
}

#[test]
fn a_failure_of_any_kind_is_the_last_event() {
    let bench = Bench::new();
    for (wrong, kind) in [
        (&["send", "--json=stream", "--no-such-option"][..], 2),
        (&["send", "--json=stream", "no-such-file", "h"], 7),
        (&["recv", "--json=stream", "--listen", "192.0.2.1:7"], 4),
    ] {
        let (code, events) = stream(bench.program().args(wrong));
        let last = events.last().unwrap();
        assert_eq!((code, &last["event"]), (kind, &"end".into()), "{last}");
        assert_eq!(last["exit_code"], kind);
        assert!(!last["error"]["message"].as_str().unwrap().is_empty());
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let Ok(full) = File::options().write(true).open("/dev/full") else {
        eprintln!("skipped: there is no /dev/full here");
        return;
    };
    let bench = Bench::new();
    let receiver = bench.receiver(&["--once"]);
    let mut sender = bench.sender();
    sender
        .arg(bench.write("x", 1000))
        .arg(receiver.address.to_string());
    let mut commands = vec![sender];
    for args in [
        &["doctor"][..],
        &["doctor", "--json"],
        &["completions", "bash"],
        &["--help"],
        &["--version"],
        &["key", "show"],
    ] {
        let mut command = bench.program();
        command.args(args);
        commands.push(command);
    }
    for mut command in commands {
        command.stdout(full.try_clone().unwrap());
        let output = command.stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{command:?}: {said}");
        assert!(said.contains("standard output"), "{command:?}: {said}");
    }
    assert_eq!(receiver.end().0, 0);
    bench.assert_received("x", &bytes("x", 1000));
}

/// What a terminal of so many columns shows of a transfer: its lines, without what only moves the
/// cursor.
fn screen(columns: u16) -> Vec<String> {
    let bench = Bench::new();
    let receiver = bench.receiver(&["--once"]);
    let size = nix::pty::Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = nix::pty::openpty(&size, None).unwrap();
    let mut sender = bench.sender();
    let name = format!("{}.bin", "long-name-".repeat(12));
    sender.args(["-b", "4M"]).arg(bench.write(&name, 400_000));
    sender.arg(receiver.address.to_string());
    let screen = std::thread::spawn(move || {
        let (mut master, mut seen) = (File::from(pty.master), Vec::new());
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = master.read(&mut buffer) {
            seen.extend_from_slice(&buffer[..n]);
        }
        String::from_utf8_lossy(&seen).into_owned()
    });
    let child = sender
        .env("NO_COLOR", "1")
        .stderr(pty.slave)
        .spawn()
        .unwrap();
    drop(sender);
    assert_eq!(finish(child).0, 0);
    assert_eq!(receiver.end().0, 0);
    let seen = screen.join().unwrap();
    let mut parts = seen.split("\x1b[");
    let mut text = parts.next().unwrap().to_owned();
    for part in parts {
        // A sequence ends with its first letter; that of colours is m.
        let end = part.find(|c: char| c.is_ascii_alphabetic()).unwrap();
        assert_ne!(&part[end..=end], "m", "{seen:?}");
        text += &part[end + 1..];
    }
    let lines = text.split(['\r', '\n']);
    let drawn = lines.filter(|line| line.contains('%') && !line.starts_with("dfcp:"));
    drawn.map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn a_bar_fits_any_terminal_and_cuts_nothing_in_two() {
    for columns in [3, 20, 40, 80, 200] {
        let lines = screen(columns);
        // What is drawn over stays within its line.
        for line in &lines {
            assert!(
                line.chars().count() < usize::from(columns),
                "{columns}: {line:?}"
            );
            let rate = line.contains("bit/s") || !line.contains("bit");
            assert!(rate, "{columns}: {line:?} is cut");
        }
        let shows = |what: &str| lines.iter().any(|line| line.contains(what));
        assert!(columns < 20 || shows("bit/s"), "{columns}: {lines:?}");
        assert!(
            columns < 40 || (shows("eta ") && shows(".bin")),
            "{columns}: {lines:?}"
        );
        assert!(
            columns < 200 || shows(" sent/byte, 127.0.0.1:"),
            "{columns}: {lines:?}"
        );
    }
}

#[test]
fn a_pipe_gets_lines_where_progress_is_wanted_there() {
    let bench = Bench::new();
    let receiver = bench.receiver(&["--once"]);
    let mut sender = bench.sender();
    sender.args(["--progress", "always", "-b", "2M"]);
    sender
        .arg(bench.write("x", 600_000))
        .arg(receiver.address.to_string());
    let (code, _, said) = finish(sender.spawn().unwrap());
    assert_eq!((code, receiver.end().0), (0, 0));
    let lines = said.lines().filter(|line| line.contains("% ")).count();
    assert!(lines > 0 && !said.contains('\x1b'), "{said:?}");
}
