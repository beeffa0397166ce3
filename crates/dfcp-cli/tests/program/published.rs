//! Transfers with `--profile dfcp`, between two processes.

use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{Bench, Receiver, bytes, eventually, finish, run};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Bytes of a block.
const BLOCK: usize = 63_536;
/// Takes seconds at the rate of [`sender`].
const LARGE: usize = 100_000_000;

fn recv(bench: &Bench, listen: &str) -> Command {
    let mut command = bench.program();
    command
        .args(["recv", "--profile=dfcp", "--json", "--allow-any"])
        .args(["--listen", listen, "-o"])
        .arg(bench.path("received"));
    command
}

fn receiver(bench: &Bench, args: &[&str]) -> Receiver {
    let mut command = recv(bench, "127.0.0.1:0");
    command.args(args);
    Receiver::start(command)
}

/// A sender that leaves the other tests their share of the machine.
fn sender(bench: &Bench, files: &[&Path], to: SocketAddr) -> Command {
    let mut command = bench.program();
    command
        .args(["send", "--profile=dfcp", "--json", "--fixed-rate=200M"])
        .args(["--sending", "expected"])
        .args(files)
        .arg(to.to_string());
    command
}

#[test]
fn both_ends_log_what_their_connections_do() {
    let bench = Bench::new();
    let (here, there) = (bench.path("here"), bench.path("there"));
    let receiver = receiver(&bench, &["--once", "--qlog", there.to_str().unwrap()]);
    let file = bench.write("x", 1_000_000);
    let mut sender = sender(&bench, &[&file], receiver.address);
    let (code, report, _) = run(sender.arg("--qlog").arg(&here));
    assert_eq!(code, 0, "{report}");
    assert_eq!(receiver.end().0, 0);
    let count = |log: &Path, name: &str| {
        let log = std::fs::read_to_string(log).unwrap();
        log.matches(name).count()
    };
    let sent = count(&here.join("0.client.sqlog"), "transport:packet_sent");
    let received = count(&there.join("0.server.sqlog"), "transport:packet_received");
    assert!(
        received > 1_000_000 / 1500 && sent >= received,
        "{sent}, {received}"
    );
}

#[test]
fn files_of_all_sizes_arrive() {
    let bench = Bench::new();
    let sizes = [0, 1, BLOCK - 4, BLOCK, BLOCK + 1, 3_000_000];
    let names: Vec<_> = sizes.iter().map(|size| format!("f{size}")).collect();
    let files: Vec<_> = names
        .iter()
        .zip(sizes)
        .map(|(name, size)| bench.write(name, size))
        .collect();
    let receiver = receiver(&bench, &["--once"]);
    let files: Vec<&Path> = files.iter().map(AsRef::as_ref).collect();
    let (code, report, _) = run(&mut sender(&bench, &files, receiver.address));
    assert_eq!(code, 0, "{report}");
    let total: usize = sizes.iter().sum();
    assert_eq!(report["useful_bytes"], total);
    assert_eq!(report["files"], sizes.len());
    assert!(report["wire_bytes"].as_u64().unwrap() > total as u64);
    let blocks = report["published"]["blocks_acked"].as_u64().unwrap();
    assert!(blocks as usize > total / BLOCK, "{report}");
    let (code, report) = receiver.end();
    assert_eq!((code, &report["useful_bytes"]), (0, &total.into()));
    for (name, size) in names.iter().zip(sizes) {
        bench.assert_received(name, &bytes(name, size));
    }
    assert_eq!(
        bench.received().len(),
        names.len(),
        "no partial files are left"
    );
}

#[test]
fn a_file_crosses_a_path_that_loses_one_packet_in_twenty() {
    for (profile, option) in [
        ("dfcp", "--sending=rateless"),
        ("dfcp", "--sending=expected"),
        ("rc-udp", "--block-code=raptor"),
        ("rc-udp", "--block=100000"),
    ] {
        let bench = Bench::new();
        let (code, report, _) = run(bench
            .program()
            .args(["demo", "--json", "--profile", profile])
            .args(["--rate=30M", "--rtt=20ms", "--loss=5%", "--size=5M"])
            .args(["--", option]));
        assert_eq!(code, 0, "{report}");
        assert_eq!(report["hash_ok"], true);
        assert_eq!(report["useful_bytes"], 5_000_000);
        assert!(report["lost"].as_u64().unwrap() > 0, "{report}");
    }
}

#[test]
fn a_smaller_window_and_other_blocks_carry_files_too() {
    let bench = Bench::new();
    let file = bench.write("x", 1_000_000);
    let receiver = receiver(&bench, &["--once"]);
    let mut sender = sender(&bench, &[&file], receiver.address);
    sender.args(["--window=2", "--block=20000", "--redundancy=15%"]);
    sender.args(["--acknowledge=window"]);
    let (code, report, _) = run(&mut sender);
    assert_eq!((code, receiver.end().0), (0, 0), "{report}");
    bench.assert_received("x", &bytes("x", 1_000_000));
}

/// What §3.2 and §4.6 of the paper let a user choose; each carries a file.
#[test]
fn every_way_to_send_carries_files() {
    for options in [
        &["--acknowledge=none", "--sending=fixed", "--sent=20%"][..],
        &["--sending=fixed", "--sent=20%", "--fixed-rate=200M"],
        &["--symbol=64", "--fixed-rate=200M"],
        &["--symbol=10", "--block=100000", "--fixed-rate=200M"],
        &["--flexible-blocks", "--fixed-rate=200M"],
        &["--control=probe-gap", "--overestimate=10%"],
        &["--control=probe-rate"],
        &["--control=marked"],
    ] {
        let bench = Bench::new();
        let file = bench.write("x", 1_000_000);
        let receiver = receiver(&bench, &["--once"]);
        let mut sender = bench.program();
        sender.args(["send", "--profile=dfcp", "--json"]);
        if options[0] == "--acknowledge=none" {
            sender.arg("--fixed-rate=100M");
        }
        sender.args(options).arg(&file);
        let (code, report, _) = run(sender.arg(receiver.address.to_string()));
        assert_eq!((code, receiver.end().0), (0, 0), "{options:?}: {report}");
        bench.assert_received("x", &bytes("x", 1_000_000));
    }
}

/// At the rate before the order the file would take hours.
#[test]
fn a_network_controller_orders_the_rate() {
    let bench = Bench::new();
    let file = bench.write("x", 1_000_000);
    let receiver = receiver(&bench, &["--once"]);
    let mut sender = bench.program();
    sender
        .args(["send", "--profile=dfcp", "--json", "--sending=expected"])
        .args(["--control=ordered", "--fixed-rate=1K"])
        .arg(&file)
        .arg(receiver.address.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut sender = sender.spawn().unwrap();
    let mut orders = sender.stdin.take().unwrap();
    orders.write_all(b"as much as you like\n200M\n").unwrap();
    let ended = sender.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}");
    assert!(said.contains("no order"), "{said}");
    assert_eq!(receiver.end().0, 0);
    bench.assert_received("x", &bytes("x", 1_000_000));
}

/// Without acknowledgements nobody mends what is lost: it is said, and no file is left.
#[test]
fn what_is_lost_without_acknowledgements_is_said() {
    let bench = Bench::new();
    let (code, report, _) = run(bench
        .program()
        .args(["demo", "--json", "--no-tcp", "--profile=dfcp"])
        .args(["--rate=30M", "--rtt=20ms", "--loss=20%", "--size=5M"])
        .args(["--", "--acknowledge=none", "--sending=fixed", "--sent=10%"]));
    assert_ne!(code, 0, "{report}");
    assert_ne!(report["error"]["kind"], "usage", "{report}");
}

/// Needs the privilege for raw sockets; without it, what a user sees is tested instead.
#[test]
fn a_file_crosses_in_ip_packets() {
    let bench = Bench::new();
    let file = bench.write("x", 500_000);
    let listen = "127.0.0.81:4433";
    let privileged =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::RAW, Some(253.into()));
    if privileged.is_err() {
        eprintln!("SKIPPED: no raw sockets here");
        let (code, report, _) = run(recv(&bench, listen).args(["--carrier=ip"]));
        assert_eq!(code, 7, "{report}");
        assert!(
            report["error"]["message"]
                .as_str()
                .unwrap()
                .contains("CAP_NET_RAW")
        );
        return;
    }
    let mut command = recv(&bench, listen);
    command.args(["--carrier=ip", "--once"]);
    let receiver = Receiver::start(command);
    let (code, report, _) = run(sender(&bench, &[&file], receiver.address).arg("--carrier=ip"));
    assert_eq!((code, receiver.end().0), (0, 0), "{report}");
    bench.assert_received("x", &bytes("x", 500_000));
}

fn refused(report: &serde_json::Value) -> bool {
    let message = report["error"]["message"].as_str().unwrap();
    report["error"]["kind"] == "usage"
        && message.contains("auto")
        && message.contains("--i-own-this-network")
}

#[test]
fn beyond_this_machine_the_user_must_vouch_for_the_network() {
    let bench = Bench::new();
    let file = bench.write("x", 1000);
    for to in ["192.0.2.1:4433", "[2001:db8::1]:4433"] {
        let (code, report, _) = run(&mut sender(&bench, &[&file], to.parse().unwrap()));
        assert!(code == 2 && refused(&report), "{report}");
    }
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let (code, report, _) = run(&mut recv(&bench, listen));
        assert!(code == 2 && refused(&report), "{report}");
    }
    let mut everywhere = bench.program();
    everywhere.args(["recv", "--profile=dfcp", "--json", "--allow-any"]);
    let (code, report, _) = run(&mut everywhere);
    assert!(code == 2 && refused(&report), "{report}");
    assert_eq!(bench.received(), [""; 0]);
}

#[test]
fn a_user_who_vouches_for_the_network_may_use_it() {
    // The address that this machine has towards others, without sending anything.
    let probe = UdpSocket::bind("0.0.0.0:0").unwrap();
    if probe.connect("192.0.2.1:9").is_err() {
        return eprintln!("SKIPPED: this machine has no address beyond itself");
    }
    let own = probe.local_addr().unwrap().ip();
    let bench = Bench::new();
    let file = bench.write("x", 1000);
    let mut command = recv(&bench, &SocketAddr::new(own, 0).to_string());
    command.args(["--i-own-this-network", "--once"]);
    let receiver = Receiver::start(command);
    let mut sender = sender(&bench, &[&file], receiver.address);
    let (code, report, _) = run(sender.arg("--i-own-this-network"));
    assert_eq!((code, receiver.end().0), (0, 0), "{report}");
    bench.assert_received("x", &bytes("x", 1000));
}

#[test]
fn what_a_published_profile_cannot_do_is_said_with_what_it_can() {
    let bench = Bench::new();
    let file = bench.write("x", 1);
    let file = file.to_str().unwrap();
    for (what, options, words) in [
        (file, &["--block=1M"][..], "--symbol 16"),
        (file, &["--block=1Gi"], "64 to 1048576 bytes"),
        (file, &["--block=x"], "--block"),
        (file, &["--sending=fixed", "--sent=0"], "send 10%"),
        ("-", &[], "--profile auto"),
    ] {
        let mut command = bench.program();
        command.args(["send", "--json", "--profile=dfcp"]);
        command.args(options).args([what, "127.0.0.1:9"]);
        let (code, report, _) = run(&mut command);
        assert_eq!(code, 2, "{options:?}: {report}");
        let message = report["error"]["message"].as_str().unwrap();
        assert!(message.contains(words), "{options:?}: {message}");
    }
    // Within its range a unit is as good as digits.
    let receiver = receiver(&bench, &["--once"]);
    let mut command = sender(&bench, &[Path::new(file)], receiver.address);
    let (code, report, _) = run(command.args(["--block=1M", "--symbol=16"]));
    assert_eq!((code, receiver.end().0), (0, 0), "{report}");
}

#[test]
fn options_of_one_profile_are_refused_by_the_other() {
    let bench = Bench::new();
    let file = bench.write("x", 1);
    let key = &bench.receiver_key;
    let send = ["send", "--json", file.to_str().unwrap(), "127.0.0.1:9"];
    let recv = ["recv", "--json", "--listen", "127.0.0.1:0"];
    for (command, options) in [
        (&send, &["--window=5"][..]),
        (&send, &["--i-own-this-network"]),
        (&send, &["--profile=ctcp", "--window=5"]),
        (&send, &["--profile=chameleon", "--i-own-this-network"]),
        (&send, &["--profile=dfcp-sealed", "--window=5"]),
        (&send, &["--profile=dfcp", "--peer-key", key]),
        (&send, &["--profile=dfcp", "--code=raptorq"]),
        (&send, &["--profile=dfcp", "--block-code=raptor"]),
        (&send, &["--profile=dfcp", "--block=100000"]),
        (&send, &["--profile=dfcp", "--sent=10%"]),
        (&send, &["--profile=dfcp", "--sending=fixed", "--sent=0"]),
        (&send, &["--profile=dfcp", "--sending=fixed", "--sent=9%"]),
        (
            &send,
            &["--profile=rc-udp", "--sending=fixed", "--sent=0.5%"],
        ),
        (&send, &["--profile=dfcp", "--overestimate=10%"]),
        (
            &send,
            &["--profile=dfcp", "--control=marked", "--fixed-rate=5M"],
        ),
        (&send, &["--profile=dfcp", "--avail-win"]),
        (&send, &["--profile=rc-udp", "--symbol=8"]),
        (&send, &["--control=marked"]),
        (&send, &["--avail-win"]),
        (&recv, &["--profile=dfcp", "--allow-any", "--avail-win=5"]),
        (&recv, &["--carrier=udp"]),
        (&recv, &["--profile=dfcp", "--allow", key]),
        (&recv, &["--profile=dfcp"]),
    ] {
        let (code, report, _) = run(bench.program().args(command).args(options));
        let kind = &report["error"]["kind"];
        assert_eq!((code, kind), (2, &"usage".into()), "{options:?}");
    }
}

#[test]
fn a_silent_host_is_given_up() {
    let bench = Bench::new();
    let file = bench.write("x", 1);
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = silent.local_addr().unwrap();
    let (code, report, _) = run(&mut sender(&bench, &[&file], to));
    assert_eq!((code, &report["error"]["kind"]), (5, &"unreachable".into()));
}

#[test]
fn a_killed_peer_is_noticed_and_what_arrived_is_kept() {
    let bench = Bench::new();
    let file = bench.write("x", LARGE);
    let receiver = receiver(&bench, &["--once", "--timeout=2s"]);
    let mut child = sender(&bench, &[&file], receiver.address).spawn().unwrap();
    let partial = bench.path("received/x.dfcp-partial");
    let has_bytes = || std::fs::metadata(&partial).is_ok_and(|file| file.len() > 1_000_000);
    eventually("bytes arrive", has_bytes);
    child.kill().unwrap();
    child.wait().unwrap();
    let (code, report) = receiver.end();
    assert_eq!(code, 5, "{report}");
    let kept = std::fs::read(&partial).unwrap();
    assert!(kept == bytes("x", LARGE)[..kept.len()]);
    assert_eq!(bench.received(), ["x.dfcp-partial"]);
}

#[test]
fn a_killed_receiver_is_noticed() {
    let bench = Bench::new();
    let file = bench.write("x", LARGE);
    let mut receiver = receiver(&bench, &[]);
    let mut sender = sender(&bench, &[&file], receiver.address);
    let sender = sender.arg("--timeout=2s").spawn().unwrap();
    let partial = bench.path("received/x.dfcp-partial");
    eventually("the transfer runs", || partial.exists());
    receiver.kill();
    let (code, report, _) = finish(sender);
    assert_eq!(
        (code, &report["error"]["kind"]),
        (5, &"unreachable".into()),
        "{report}"
    );
}

#[test]
fn an_interrupted_sender_tells_the_receiver() {
    let bench = Bench::new();
    let file = bench.write("x", LARGE);
    let receiver = receiver(&bench, &["--once"]);
    let child = sender(&bench, &[&file], receiver.address).spawn().unwrap();
    let partial = bench.path("received/x.dfcp-partial");
    let has_bytes = || std::fs::metadata(&partial).is_ok_and(|file| file.len() > 0);
    eventually("bytes arrive", has_bytes);
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let (code, report, _) = finish(child);
    assert_eq!(
        (code, &report["error"]["kind"]),
        (130, &"interrupted".into())
    );
    // Long before silence would be noticed.
    let (code, report) = receiver.end();
    assert_eq!(code, 1, "{report}");
    assert_eq!(bench.received(), ["x.dfcp-partial"]);
}
