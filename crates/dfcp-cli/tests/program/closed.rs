//! A receiver takes files from those only that it was told of, and as much as it was told to take.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::common::proxying::{http, metrics_in};
use crate::common::terminal::Terminal;
use crate::common::{Bench, Receiver, bytes, eventually, finish, run};
use serde_json::Value;

/// The list of keys that a receiver of `bench` looks at by itself.
fn list(bench: &Bench, content: &str, mode: u32) -> PathBuf {
    let path = bench.path("config/dfcp/authorized_keys");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

/// A receiver that does not start for this reason.
fn does_not_start(command: &mut Command, code: i32, reason: &str) {
    let (got, report, _) = run(command);
    let message = report["error"]["message"].as_str().unwrap();
    assert_eq!(got, code, "{report}");
    assert!(message.contains(reason), "{reason}: {message}");
}

fn message(report: &Value) -> &str {
    report["error"]["message"].as_str().unwrap()
}

#[test]
fn without_a_terminal_somebody_must_be_allowed() {
    let bench = Bench::new();
    does_not_start(&mut bench.recv(&[]), 4, "authorized_keys is not there");
    does_not_start(&mut bench.recv(&[]), 4, "dfcp recv --allow KEY");
    let key = format!("{}\n", bench.sender_key);
    for (content, mode, reason) in [
        ("", 0o600, "has no key in it"),
        ("# nobody\n", 0o600, "has no key in it"),
        (key.as_str(), 0o620, "chmod go-w"),
        (key.as_str(), 0o606, "chmod go-w"),
    ] {
        list(&bench, content, mode);
        does_not_start(&mut bench.recv(&[]), 4, reason);
    }
    let path = list(&bench, &key, 0o600);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    does_not_start(&mut bench.recv(&[]), 4, "authorized_keys");
    let mut homeless = bench.recv(&[]);
    homeless.env_remove("HOME").env_remove("XDG_CONFIG_HOME");
    does_not_start(&mut homeless, 4, "without HOME");
    assert!(!bench.path("received").exists());
}

#[test]
fn a_list_of_keys_lets_in_those_on_it() {
    let bench = Bench::new();
    list(
        &bench,
        &format!("# me\n{} laptop\n", bench.sender_key),
        0o644,
    );
    let receiver = Receiver::start(bench.recv(&["--once"]));
    let file = bench.write("x", 1000);
    let to = receiver.address.to_string();
    assert_eq!(run(bench.sender().arg(&file).arg(to)).0, 0);
    assert_eq!(receiver.end().0, 0);
    let named = bench.path("friends");
    fs::write(&named, format!("{}\n", bench.receiver_key)).unwrap();
    fs::set_permissions(&named, fs::Permissions::from_mode(0o600)).unwrap();
    // What the command line names counts alone.
    let receiver = Receiver::start(bench.recv(&["--allow", named.to_str().unwrap()]));
    let to = receiver.address.to_string();
    assert_eq!(run(bench.sender().arg(&file).arg(to)).0, 4);
}

#[test]
fn an_unknown_key_is_refused_and_both_sides_learn_what_would_allow_it() {
    let bench = Bench::new();
    let receiver = bench.receiver(&["--allow", &bench.receiver_key]);
    let file = bench.write("x", 1000);
    let to = receiver.address.to_string();
    let (code, report, _) = run(bench.sender().arg(&file).arg(to));
    let invitation = format!("dfcp recv --allow {}", bench.sender_key);
    assert_eq!(
        (code, &report["error"]["kind"]),
        (4, &"authentication".into())
    );
    assert!(message(&report).contains(&invitation), "{report}");
    assert!(receiver.says("refused").contains(&invitation));
    assert_eq!(bench.received(), [""; 0]);
}

#[test]
fn anyone_is_let_in_only_with_a_warning() {
    let bench = Bench::new();
    let receiver = Receiver::start(bench.recv(&["--allow-any", "--once"]));
    receiver.says("warning: anyone");
    let file = bench.write("x", 1000);
    let to = receiver.address.to_string();
    assert_eq!(run(bench.sender().arg(&file).arg(to)).0, 0);
    assert_eq!(receiver.end().0, 0);
}

#[test]
fn a_key_is_shown_with_its_phrase() {
    let bench = Bench::new();
    let mut show = bench.program();
    show.args(["key", "show", "--key"])
        .arg(bench.path("sender.key"));
    let out = String::from_utf8(show.output().unwrap().stdout).unwrap();
    let lines: Vec<_> = out.lines().collect();
    assert_eq!((lines.len(), lines[0]), (2, bench.sender_key.as_str()));
    assert_eq!(lines[1].split('-').count(), 6);
}

#[test]
fn a_key_file_that_is_not_there_is_named_with_what_makes_it() {
    let bench = Bench::new();
    let key = bench.path("none.key");
    let show = || {
        let mut show = bench.program();
        show.args(["key", "show", "--key"]).arg(&key);
        show.output().unwrap()
    };
    let out = show();
    assert_eq!(out.status.code(), Some(7));
    let advice = format!("`dfcp keygen --out {}`", key.display());
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains(&advice), "{said}");
    let mut advised = bench.program();
    let made = advised.args(["keygen", "--out"]).arg(&key).output();
    assert!(made.unwrap().status.success() && show().status.success());
}

/// A receiver at a terminal, and the address on which it listens.
fn receiver_at_a_terminal(bench: &Bench) -> (Terminal, std::process::Child, String) {
    let mut command = bench.recv(&["--progress=never"]);
    let mut terminal = Terminal::new(&mut command);
    let receiver = command.spawn().unwrap();
    terminal.wait_for("listening on ");
    let address = terminal.wait_for("\n").trim().to_owned();
    (terminal, receiver, address)
}

#[test]
fn at_a_terminal_strangers_are_asked_about() {
    let bench = Bench::new();
    let (mut terminal, mut receiver, address) = receiver_at_a_terminal(&bench);
    let mut send = |name: &str, answer: Option<&str>| {
        let file = bench.write(name, 300_000);
        let sender = bench.sender().arg(&file).arg(&address).spawn().unwrap();
        if let Some(answer) = answer {
            let question = terminal.wait_for("(y, N, always)? ");
            for part in ["1 file, 300 kB", &bench.sender_key] {
                assert!(question.contains(part), "{question}");
            }
            // Nothing of it has been written while the question is open.
            assert!(!bench.received().iter().any(|there| there.starts_with(name)));
            terminal.type_line(answer);
        }
        finish(sender)
    };
    let (code, report, _) = send("refused", Some(""));
    let invitation = format!("dfcp recv --allow {}", bench.sender_key);
    assert!(
        code == 4 && message(&report).contains(&invitation),
        "{report}"
    );
    assert_eq!(send("once", Some("y")).0, 0);
    assert_eq!(send("again", Some("n")).0, 4);
    assert_eq!(send("always", Some("always")).0, 0);
    assert_eq!(send("later", None).0, 0);
    assert_eq!(bench.received(), ["always", "later", "once"]);
    let list = fs::read_to_string(bench.path("config/dfcp/authorized_keys")).unwrap();
    assert_eq!(list, format!("{} from 127.0.0.1\n", bench.sender_key));
    receiver.kill().unwrap();
    receiver.wait().unwrap();
}

#[test]
fn a_sender_that_leaves_takes_its_question_with_it() {
    let bench = Bench::new();
    let (mut terminal, mut receiver, address) = receiver_at_a_terminal(&bench);
    let file = bench.write("x", 1000);
    let mut sender = bench.sender();
    let mut sender = sender.arg(&file).arg(&address).spawn().unwrap();
    terminal.wait_for("(y, N, always)? ");
    let signal = nix::sys::signal::Signal::SIGINT;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(sender.id() as i32), signal).unwrap();
    sender.wait().unwrap();
    terminal.wait_for("the other side ended");
    terminal.type_line("y");
    terminal.wait_for("has left meanwhile");
    assert_eq!(bench.received(), [""; 0]);
    receiver.kill().unwrap();
    receiver.wait().unwrap();
}

#[test]
fn the_home_directory_needs_to_be_meant() {
    let bench = Bench::new();
    let home = bench.path("home");
    fs::create_dir_all(&home).unwrap();
    let allow = ["--allow", bench.sender_key.as_str()];
    // Straight into it, or into a directory that it lies in.
    for target in [home.clone(), bench.path("")] {
        let mut command = bench.program();
        command.args(["recv", "--json", "--listen", "127.0.0.1:0"]);
        command.args(allow).env("HOME", &home).arg("-o").arg(target);
        does_not_start(&mut command, 2, "--allow-home");
    }
    for (target, option) in [(home.clone(), "--allow-home"), (home.join("in"), "--once")] {
        let mut command = bench.program();
        command.args(["recv", "--json", "--listen", "127.0.0.1:0", option]);
        command.args(allow).env("HOME", &home).arg("-o").arg(target);
        drop(Receiver::start(command));
    }
}

/// What both sides say of an offer of `name` that the receiver with `args` does not take.
fn refused(bench: &Bench, args: &[&str], name: &str, code: i32) -> String {
    let receiver = bench.receiver(&[&["--once"], args].concat());
    let mut sender = bench.sender();
    sender
        .arg(bench.path(name))
        .arg(receiver.address.to_string());
    let (sender_code, sent, _) = run(&mut sender);
    let (receiver_code, received) = receiver.end();
    assert_eq!(
        (sender_code, receiver_code),
        (code, code),
        "{sent} {received}"
    );
    assert!(
        message(&sent).contains(message(&received)),
        "{sent} {received}"
    );
    assert_eq!(bench.received(), [""; 0]);
    message(&received).to_owned()
}

#[test]
fn offers_beyond_what_is_taken_are_refused_on_both_sides() {
    let bench = Bench::new();
    bench.write("tree/a", 600);
    bench.write("tree/b", 600);
    bench.write("hidden/.bashrc", 10);
    bench.write(".profile", 10);
    let large = refused(&bench, &["--max-bytes", "1k"], "tree", 1);
    assert!(large.contains("--max-bytes"), "{large}");
    let many = refused(&bench, &["--max-files", "2"], "tree", 1);
    assert!(many.contains("--max-files"), "{many}");
    for name in ["hidden", ".profile"] {
        let hidden = refused(&bench, &[], name, 1);
        assert!(hidden.contains("--hidden"), "{hidden}");
    }
    let receiver = bench.receiver(&["--once", "--hidden", "--max-bytes=10", "--max-files=1"]);
    let mut sender = bench.sender();
    sender
        .arg(bench.path(".profile"))
        .arg(receiver.address.to_string());
    assert_eq!((run(&mut sender).0, receiver.end().0), (0, 0));
    bench.assert_received(".profile", &bytes(".profile", 10));
}

#[test]
fn an_offer_that_the_disk_cannot_hold_writes_nothing() {
    let bench = Bench::new();
    // Holes: as large as no disk that tests run on.
    let holes = File::create(bench.path("holes")).unwrap();
    holes.set_len(8 << 40).unwrap();
    let why = refused(&bench, &["--max-bytes", "100T"], "holes", 7);
    assert!(why.contains("no space left"), "{why}");
}

#[test]
fn partial_files_of_long_ago_are_removed() {
    let bench = Bench::new();
    let make = |name: &str, age: u64| {
        let path = bench.path("received").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "part").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        let now = fs::metadata(&path).unwrap().modified().unwrap();
        let then = now.checked_sub(Duration::from_secs(age)).unwrap_or(time);
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(then)
            .unwrap();
    };
    make("tree/old.dfcp-partial", 8 * 86_400);
    make("young.dfcp-partial", 6 * 86_400);
    make("old", 8 * 86_400);
    let receiver = bench.receiver(&[]);
    eventually("one is left", || {
        bench.received() == ["old", "young.dfcp-partial"]
    });
    drop(receiver);
    let receiver = bench.receiver(&["--keep-partial", "5d"]);
    eventually("none is left", || bench.received() == ["old"]);
    drop(receiver);
}

/// Who watches a receiver sees what came and who was turned away.
#[test]
fn metrics_tell_of_sessions_and_refusals() {
    let bench = Bench::new();
    let args = ["--metrics", "127.0.0.1:0", "--max-bytes", "150000"];
    let receiver = bench.receiver(&args);
    let metrics = metrics_in(&receiver.says("metrics at"));
    let page = || http(metrics, b"GET /metrics HTTP/1.1\r\n\r\n");
    let shows = |sample: &str| eventually(sample, || page().contains(&format!("\n{sample}\n")));
    shows("dfcp_recv_files_total 0");
    let to = receiver.address.to_string();
    let file = bench.write("x", 100_000);
    let (code, ..) = run(bench.sender().arg(&file).arg(&to));
    assert_eq!(code, 0);
    let large = bench.write("large", 200_000);
    let (code, ..) = run(bench.sender().arg(&large).arg(&to));
    assert_eq!(code, 1);
    let (code, ..) = run(bench
        .program()
        .args(["send", "--json", "--peer-key", &bench.receiver_key])
        .args(["--key".as_ref(), bench.path("receiver.key").as_os_str()])
        .arg(&file)
        .arg(&to));
    assert_eq!(code, 4);
    shows("dfcp_recv_sessions 0");
    shows("dfcp_recv_sessions_total{status=\"done\"} 1");
    shows("dfcp_recv_sessions_total{status=\"failed\"} 1");
    shows("dfcp_recv_files_total 1");
    shows("dfcp_recv_files_failed_total 0");
    shows("dfcp_recv_bytes_total 100000");
    shows("dfcp_recv_refused_total{reason=\"key\"} 1");
    shows("dfcp_recv_refused_total{reason=\"offer\"} 1");
}
