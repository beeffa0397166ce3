//! Transfers that fail: with the right exit code, a sentence and JSON, and no wrong file.
//!
//! Where each row of README's table of exit codes is provoked, if not here: 0 in `transfer`; 1 in `hostile`
//! (a broken protocol) and `closed` (an offer beyond what is taken); 2 in `usage` and `cp`; 3 in `transfer`
//! (left out, conflicts) and `cp`; 4 here (wrong key), in `closed` (unknown and refused ones, a receiver
//! that nobody may send to) and `codes` (wrong, used, expired); 5 here, in `probe` (refused, no route), `cp`
//! (UDP blocked) and `nat` (no path between two sides of a code); 6 in `hostile`; 7 in `disks`, `closed` (a
//! disk too small for the offer) and `screen` (standard output); 8 in `sync_guard`; 129, 130, 143 here and
//! in `cp_again`.

use std::fs::{self, File};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use crate::common;
use crate::common::{Bench, Receiver, bytes, eventually, finish, run};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const LARGE: usize = 200_000_000;

#[test]
fn a_wrong_key_sends_nothing() {
    let bench = Bench::new();
    let receiver = bench.receiver(&[]);
    let mut sender = bench.anonymous_sender();
    let (code, report, _) = run(sender
        .args(["--peer-key", &bench.sender_key])
        .arg(bench.write("x", 1000))
        .arg(receiver.address.to_string()));
    assert_eq!(
        (code, &report["error"]["kind"]),
        (4, &"authentication".into())
    );
    assert!(
        report["error"]["message"]
            .as_str()
            .unwrap()
            .contains(&bench.receiver_key)
    );
    assert_eq!(bench.received(), [""; 0]);
}

#[test]
fn hosts_are_unknown_then_known_then_changed() {
    let bench = Bench::new();
    let receiver = bench.receiver(&[]);
    let file = bench.write("x", 1000);
    let send = || {
        run(bench
            .anonymous_sender()
            .arg(&file)
            .arg(receiver.address.to_string()))
    };
    let (code, report, _) = send();
    assert_eq!(code, 4, "nobody can be asked: {report}");
    let known = |key: &str| {
        let line = format!("{} {key}\n", receiver.address);
        fs::write(bench.path("known_hosts"), line).unwrap();
    };
    known(&bench.sender_key);
    let (code, report, _) = send();
    let message = report["error"]["message"].as_str().unwrap();
    assert!(code == 4 && message.contains("changed"), "{report}");
    assert_eq!(bench.received(), [""; 0]);
    known(&bench.receiver_key);
    assert_eq!(send().0, 0);
    bench.assert_received("x", &bytes("x", 1000));
}

#[test]
fn a_silent_host_is_given_up() {
    let bench = Bench::new();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let start = Instant::now();
    let (code, report, _) = run(bench
        .sender()
        .arg(bench.write("x", 1))
        .arg(silent.local_addr().unwrap().to_string()));
    assert_eq!((code, &report["error"]["kind"]), (5, &"unreachable".into()));
    assert!(
        start.elapsed() < Duration::from_secs(12),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn a_host_that_nobody_knows_is_unreachable() {
    let bench = Bench::new();
    // No name ends like this (RFC 6761 §6.4).
    let mut sender = bench.sender();
    let (code, report, _) = run(sender.arg(bench.write("x", 1)).arg("nobody.invalid"));
    let message = report["error"]["message"].as_str().unwrap();
    assert_eq!((code, &report["error"]["kind"]), (5, &"unreachable".into()));
    assert!(message.contains("nobody.invalid"), "{message}");
}

/// Nobody gives names of hosts within `invalid` (RFC 6761).
#[test]
fn a_name_that_is_neither_a_file_nor_a_host_is_said_to_be_neither() {
    let bench = Bench::new();
    let mut sender = bench.sender();
    let (code, report, _) = run(sender.arg(bench.write("x", 1)).arg("y.invalid"));
    let message = report["error"]["message"].as_str().unwrap();
    assert_eq!(code, 5, "{report}");
    assert!(
        message.contains("y.invalid") && message.contains("file"),
        "{message}"
    );
}

#[test]
fn a_source_that_shrinks_is_noticed() {
    let bench = Bench::new();
    let receiver = bench.receiver(&["--once"]);
    let file = bench.write("x", LARGE);
    let mut sender = bench.sender();
    sender
        .args(["--fixed-rate", "200M"])
        .arg(&file)
        .arg(receiver.address.to_string());
    let sender = sender.spawn().unwrap();
    let partial = bench.path("received/x.dfcp-partial");
    eventually("some bytes arrive", || {
        fs::metadata(&partial).is_ok_and(|m| m.len() > 0)
    });
    File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_len(1000)
        .unwrap();
    let (code, report, _) = finish(sender);
    assert_eq!(
        (code, &report["error"]["kind"]),
        (7, &"local_io".into()),
        "{report}"
    );
    let (code, report) = receiver.end();
    let message = report["error"]["message"].as_str().unwrap();
    assert!(code == 7 && message.contains("changed"), "{report}");
    assert_eq!(bench.received(), ["x.dfcp-journal", "x.dfcp-partial"]);
}

#[test]
fn a_killed_receiver_is_noticed() {
    let bench = Bench::new();
    let mut receiver = bench.receiver(&["--once"]);
    let mut sender = bench.sender();
    sender.args(["--fixed-rate", "100M", "--timeout", "3s"]);
    sender
        .arg(bench.write("x", LARGE))
        .arg(receiver.address.to_string());
    let sender = sender.spawn().unwrap();
    let partial = bench.path("received/x.dfcp-partial");
    eventually("some bytes arrive", || {
        fs::metadata(&partial).is_ok_and(|m| m.len() > 0)
    });
    receiver.kill();
    let (code, report, _) = finish(sender);
    assert_eq!(
        (code, &report["error"]["kind"]),
        (5, &"unreachable".into()),
        "{report}"
    );
    let message = report["error"]["message"].as_str().unwrap();
    assert!(message.contains("goes on where it was"), "{message}");
    assert!(partial.exists());
}

#[test]
fn a_killed_or_interrupted_sender_is_noticed() {
    common::hear_hang_ups();
    for (signal, sender_code, receiver_code) in [
        (Signal::SIGKILL, None, 5),
        (Signal::SIGINT, Some(130), 1),
        (Signal::SIGTERM, Some(143), 1),
        (Signal::SIGHUP, Some(129), 1),
    ] {
        let bench = Bench::new();
        let receiver = bench.receiver(&["--once", "--timeout", "2s"]);
        let mut sender = bench.sender();
        sender.args(["--fixed-rate", "100M"]);
        sender
            .arg(bench.write("x", LARGE))
            .arg(receiver.address.to_string());
        let mut sender = sender.spawn().unwrap();
        let partial = bench.path("received/x.dfcp-partial");
        eventually("some bytes arrive", || {
            fs::metadata(&partial).is_ok_and(|m| m.len() > 0)
        });
        kill(Pid::from_raw(sender.id() as i32), signal).unwrap();
        assert_eq!(common::wait(&mut sender).code(), sender_code);
        let (code, report) = receiver.end();
        assert_eq!(code, receiver_code, "{report}");
        assert!(report.to_string().contains("x.dfcp-partial"), "{report}");
        assert_eq!(bench.received(), ["x.dfcp-journal", "x.dfcp-partial"]);
    }
}

#[test]
fn an_interrupted_receiver_says_so() {
    let bench = Bench::new();
    let receiver = bench.receiver(&[]);
    let mut sender = bench.sender();
    sender.args(["--fixed-rate", "100M"]);
    sender
        .arg(bench.write("x", LARGE))
        .arg(receiver.address.to_string());
    let sender = sender.spawn().unwrap();
    let partial = bench.path("received/x.dfcp-partial");
    eventually("some bytes arrive", || {
        fs::metadata(&partial).is_ok_and(|m| m.len() > 0)
    });
    receiver.signal(Signal::SIGINT);
    let (code, report, _) = finish(sender);
    let message = report["error"]["message"].as_str().unwrap();
    assert!(code == 1 && message.contains("interrupted"), "{report}");
    // The receiver itself says the same, and not that a connection was closed.
    let (code, report) = receiver.end();
    assert_eq!(code, 130);
    assert_eq!(
        (&report["exit_code"], &report["error"]["message"]),
        (&130.into(), &"interrupted".into()),
        "{report}"
    );
    assert!(partial.exists());
}

/// Ten minutes of it would else be sixty lines.
#[test]
fn trying_again_is_told_once_while_its_reason_stays() {
    let bench = Bench::new();
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr();
    let mut sender = bench.sender();
    // Each attempt takes a second, and two pass before the next.
    sender.args(["--retry", "5s"]).arg(bench.write("x", 1000));
    let (code, report, said) = run(sender.arg(nobody.unwrap().to_string()));
    assert_eq!(code, 5, "{said}");
    assert!(report["attempts"].as_u64().unwrap() > 2, "{report}");
    assert_eq!(said.matches("trying again").count(), 1, "{said}");
}

/// It may be gone or not: the sender cannot know, and waits.
#[test]
fn who_waits_for_a_receiver_that_was_killed_is_told_so() {
    let bench = Bench::new();
    let mut receiver = bench.receiver(&[]);
    let mut command = bench.sender();
    // A pipe that nothing comes through.
    command.stdin(std::process::Stdio::piped());
    command.args(["--timeout", "20s", "-"]);
    command.arg(receiver.address.to_string());
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| Receiver::start_saying(command, "nothing has come"));
        receiver.says("connected");
        receiver.kill();
        drop(sender.join().expect("it says what it waits for"));
    });
}
