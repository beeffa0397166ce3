//! The examples really run, over loopback.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// An example, which `cargo test` has built beside this test; before `cargo test --test examples` alone,
/// `cargo build --examples` does so.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().expect("has a path");
    let built = test.parent().and_then(|deps| deps.parent());
    let path: PathBuf = built.expect("is in deps").join("examples").join(name);
    Command::new(path)
}

fn output(name: &str) -> String {
    let output = example(name).output().expect("is built");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {error}");
    String::from_utf8(output.stdout).expect("is text")
}

#[test]
fn a_file_goes_from_one_example_to_the_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let data: Vec<u8> = (0..1_000_003_u32).map(|i| (i / 7) as u8).collect();
    std::fs::write(&from, &data).expect("writes");
    let mut receiver = example("receive")
        .arg(&to)
        .arg("127.0.0.1:0")
        .stdout(Stdio::piped())
        .spawn()
        .expect("is built");
    let mut said = BufReader::new(receiver.stdout.take().expect("is piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("says where it is");
    let (address, key) = line.trim().split_once(' ').expect("and its key");
    let sent = example("send_file")
        .arg(&from)
        .args([address, key])
        .stdout(Stdio::null())
        .status();
    assert!(sent.expect("is built").success());
    said.read_to_string(&mut line).expect("says what came");
    assert!(receiver.wait().expect("ends").success());
    assert!(line.contains("received 1000003 bytes"), "{line}");
    assert!(
        std::fs::read(&to).expect("is there") == data,
        "bytes differ"
    );
}

#[test]
fn the_live_stream_accounts_for_every_byte() {
    let text = output("live");
    let saw = text.lines().find(|line| line.starts_with("saw"));
    let words = saw.expect("says what it saw").split([' ', ',']);
    let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
    assert_eq!(numbers[0] + numbers[1], 625_000, "{text}");
}

#[test]
fn requests_are_answered() {
    let text = output("request");
    assert_eq!(text, "you asked what is slow\nyou asked what is urgent\n");
}

#[test]
fn files_come_by_their_names() {
    let text = output("fetch");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["large has 1000000 bytes", "small has 1000 bytes"]);
}
