//! `--controller`: a network controller says how fast.

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Bench, Receiver, bytes, run};
use dfcp_proto::Rate;
use dfcp_proto::order::{Kind, Message, OrderKey};

const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// A controller that orders each sender the same.
struct Controller {
    socket: UdpSocket,
    key: OrderKey,
    token: u64,
    sequence: u64,
    /// Hellos with the token: senders that were told.
    told: u64,
    farewells: u64,
}

impl Controller {
    fn new(socket: UdpSocket) -> Self {
        socket
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        Self {
            socket,
            key: OrderKey::from_hex(KEY).unwrap(),
            token: 7,
            sequence: 0,
            told: 0,
            farewells: 0,
        }
    }

    /// Answers one message, if there is one.
    fn answer(&mut self, rate: Rate) -> bool {
        let mut buffer = [0; 2000];
        let Ok((len, from)) = self.socket.recv_from(&mut buffer) else {
            return false;
        };
        let message = Message::decode(&buffer[..len], &self.key).expect("an authentic message");
        let (kind, sequence) = match message.kind {
            Kind::Farewell => {
                self.farewells += 1;
                return true;
            }
            _ if message.token == self.token => (Kind::Order, self.sequence + 1),
            _ => (Kind::Challenge, message.sequence),
        };
        if kind == Kind::Order {
            (self.sequence, self.told) = (sequence, self.told + 1);
        }
        let answer = Message {
            kind,
            token: self.token,
            sequence,
            rate,
            valid: Duration::from_secs(1),
            ..message
        };
        let _ = self.socket.send_to(&answer.encode(&self.key), from);
        true
    }
}

fn receiver(bench: &Bench) -> Receiver {
    let mut command = bench.program();
    command
        .args(["recv", "--profile=dfcp", "--json", "--allow-any", "--once"])
        .args(["--listen", "127.0.0.1:0", "-o"])
        .arg(bench.path("received"));
    Receiver::start(command)
}

fn key_file(bench: &Bench, text: &str) -> PathBuf {
    let path = bench.path("controller.key");
    std::fs::write(&path, text).unwrap();
    path
}

/// Sends a file at next to nothing, unless somebody orders more.
fn sender(bench: &Bench, file: &Path, to: SocketAddr, controller: SocketAddr) -> Command {
    let mut command = bench.program();
    command
        .args(["send", "--profile=dfcp", "--sending=expected"])
        .args(["--control=ordered", "--fixed-rate=100K"])
        .args(["--controller", &controller.to_string(), "--controller-key"])
        .arg(key_file(bench, KEY))
        .arg(file)
        .arg(to.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

#[test]
fn a_sender_follows_an_authentic_order_and_says_farewell() {
    let bench = Bench::new();
    let file = bench.write("x", 2_000_000);
    let receiver = receiver(&bench);
    let mut controller = Controller::new(UdpSocket::bind("127.0.0.1:0").unwrap());
    let address = controller.socket.local_addr().unwrap();
    let mut sender = sender(&bench, &file, receiver.address, address);
    let mut sender = sender.spawn().unwrap();
    // At 100 kbit/s this would take minutes.
    while sender.try_wait().unwrap().is_none() {
        controller.answer(Rate::from_bps(200_000_000));
    }
    // What it said last may wait behind a hello.
    while controller.answer(Rate::MAX) {}
    let ended = sender.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}");
    assert!(controller.told > 0, "{said}");
    assert_eq!(controller.farewells, 1, "{said}");
    assert_eq!(receiver.end().0, 0);
    bench.assert_received("x", &bytes("x", 2_000_000));
}

#[test]
fn a_controller_that_is_gone_is_noticed_and_heard_again() {
    let bench = Bench::new();
    let file = bench.write("x", 2_000_000);
    let receiver = receiver(&bench);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let mut controller = Controller::new(socket.try_clone().unwrap());
    let mut sender = sender(&bench, &file, receiver.address, address);
    let mut sender = sender.spawn().unwrap();
    let stderr = sender.stderr.take().unwrap();
    let said = std::thread::spawn(move || {
        use std::io::{BufRead, BufReader};
        let lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let mut silent = false;
        let mut all = String::new();
        for line in lines {
            silent |= line.contains("is silent");
            all.push_str(&line);
            all.push('\n');
        }
        (silent, all)
    });
    while controller.told == 0 {
        controller.answer(Rate::from_bps(100_000));
    }
    // It says nothing for longer than its order holds; one that begins anew is believed.
    let silence = Instant::now();
    while silence.elapsed() < Duration::from_millis(1500) {
        let _ = socket.recv_from(&mut [0; 2000]);
    }
    let mut controller = Controller {
        token: 99,
        ..Controller::new(socket)
    };
    while sender.try_wait().unwrap().is_none() {
        controller.answer(Rate::from_bps(200_000_000));
    }
    let (silent, all) = said.join().unwrap();
    assert!(silent && all.contains("speaks again"), "{all}");
    assert!(sender.wait().unwrap().success(), "{all}");
    assert_eq!(receiver.end().0, 0);
}

#[test]
fn a_key_that_is_none_and_options_without_effect_are_refused() {
    let bench = Bench::new();
    let file = bench.write("x", 10);
    let key = key_file(&bench, KEY);
    let key = key.to_str().unwrap();
    let bad = bench.path("bad.key");
    std::fs::write(&bad, "0123").unwrap();
    let bad = bad.to_str().unwrap();
    let cases: [(&[&str], &str); 5] = [
        (
            &["--control=ordered", "--controller=[::1]"],
            "--controller-key",
        ),
        (
            &["--controller=127.0.0.1", "--controller-key", key],
            "--control ordered",
        ),
        (&["--control=ordered", "--order-limit=1M"], "--controller"),
        (
            &[
                "--control=ordered",
                "--controller=127.0.0.1",
                "--controller-key",
                bad,
            ],
            "openssl rand -hex 32",
        ),
        (
            &[
                "--control=ordered",
                "--controller=127.0.0.1",
                "--controller-key",
                "/nonexistent",
            ],
            "/nonexistent",
        ),
    ];
    for (args, hint) in cases {
        let mut command = bench.program();
        command
            .args(["send", "--profile=dfcp", "--json"])
            .args(args);
        let (code, report, said) = run(command.arg(&file).arg("127.0.0.1:9"));
        assert_eq!(code, 2, "{args:?}: {report} {said}");
        assert!(
            format!("{report}{said}").contains(hint),
            "{args:?}: {report} {said}"
        );
    }
}
