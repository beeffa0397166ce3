//! Files from pipes and into pipes.

use std::fs::{self, File};
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::{Bench, Receiver, bytes, eventually, run};

const SIZE: usize = 3_000_000;

/// A receiver that writes to a file as if that were a pipe.
fn piped(bench: &Bench) -> Receiver {
    let mut command = bench.program();
    command
        .args(["recv", "--once", "-o", "-", "--listen", "127.0.0.1:0"])
        .args(["--allow", &bench.sender_key])
        .args(["--key".as_ref(), bench.path("receiver.key").as_os_str()])
        .stdout(File::create(bench.path("out")).unwrap());
    Receiver::start(command)
}

#[test]
fn what_comes_from_a_pipe_gets_a_name() {
    let bench = Bench::new();
    let receiver = bench.receiver(&["--once"]);
    let path = bench.write("x", SIZE);
    let then = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let file = File::options().write(true).open(&path).unwrap();
    file.set_modified(then).unwrap();
    let input = File::open(path).unwrap();
    let mut sender = bench.sender();
    sender
        .args(["-", "--name", "d.tar"])
        .stdin(Stdio::from(input));
    let (code, report, _) = run(sender.arg(receiver.address.to_string()));
    assert_eq!(
        (code, &report["useful_bytes"]),
        (0, &SIZE.into()),
        "{report}"
    );
    assert_eq!(receiver.end().0, 0);
    bench.assert_received("d.tar", &bytes("x", SIZE));
    assert_eq!(bench.received(), ["d.tar"]);
    assert_eq!(time_of(&bench, "d.tar"), then);
}

/// Of a file that was received.
fn time_of(bench: &Bench, name: &str) -> SystemTime {
    let file = bench.path("received").join(name);
    fs::metadata(file).unwrap().modified().unwrap()
}

/// The time of a device says nothing of what is read.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a file's time is one of the wall clock"
)]
fn what_a_device_gives_is_of_when_it_was_sent() {
    let bench = Bench::new();
    let receiver = bench.receiver(&["--once"]);
    let before = SystemTime::now();
    let mut sender = bench.sender();
    sender.args(["-", "--name", "nothing"]).stdin(Stdio::null());
    let (code, report, _) = run(sender.arg(receiver.address.to_string()));
    assert_eq!(code, 0, "{report}");
    assert_eq!(receiver.end().0, 0);
    assert!(time_of(&bench, "nothing") >= before);
}

#[test]
fn an_empty_pipe_is_an_empty_file_and_a_taken_name_stays() {
    let bench = Bench::new();
    let receiver = bench.receiver(&[]);
    let send = || {
        let mut sender = bench.sender();
        run(sender.arg("-").arg(receiver.address.to_string()))
    };
    assert_eq!(send().0, 0);
    bench.assert_received("stdin", b"");
    let (code, report, _) = send();
    assert_eq!(code, 7, "{report}");
}

#[test]
fn a_pipe_has_no_more_than_a_session_may_bring() {
    let bench = Bench::new();
    let receiver = bench.receiver(&["--once", "--max-bytes", "1M"]);
    let input = File::open(bench.write("x", SIZE)).unwrap();
    let mut sender = bench.sender();
    sender.arg("-").stdin(Stdio::from(input));
    let (code, report, _) = run(sender.arg(receiver.address.to_string()));
    assert_eq!(code, 7, "{report}");
    assert_eq!(receiver.end().0, 7);
    assert!(!bench.path("received/stdin").exists());
}

#[test]
fn a_receiver_writes_one_file_into_a_pipe() {
    for (name, size) in [("small", 1000), ("large", SIZE)] {
        let bench = Bench::new();
        let receiver = piped(&bench);
        let mut sender = bench.sender();
        sender.arg(bench.write(name, size));
        let (code, report, _) = run(sender.arg(receiver.address.to_string()));
        assert_eq!(code, 0, "{report}");
        assert!(
            fs::read(bench.path("out")).unwrap() == bytes(name, size),
            "{name}"
        );
    }
    let bench = Bench::new();
    let receiver = piped(&bench);
    let input = File::open(bench.write("x", SIZE)).unwrap();
    let mut sender = bench.sender();
    sender.arg("-").stdin(Stdio::from(input));
    assert_eq!(run(sender.arg(receiver.address.to_string())).0, 0);
    assert!(fs::read(bench.path("out")).unwrap() == bytes("x", SIZE));
}

#[test]
fn several_files_do_not_go_into_a_pipe() {
    let bench = Bench::new();
    let receiver = piped(&bench);
    let mut sender = bench.sender();
    sender.args([bench.write("a", 10), bench.write("b", 10)]);
    let (code, report, said) = run(sender.arg(receiver.address.to_string()));
    assert_eq!(code, 1, "{report}");
    assert!(said.contains("one file into a pipe"), "{said}");
    eventually("it says so too", || {
        receiver.says("pipe").contains("one file")
    });
    assert_eq!(fs::read(bench.path("out")).unwrap(), b"");
}
