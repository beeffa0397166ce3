//! Files by a spoken code: both sides and the server as processes on loopback.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common;
use crate::common::meeting::{claim, offer, rendezvous, spoilt};
use crate::common::{Bench, Receiver, bytes};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// A bench with a server, and the arguments that name it.
fn meeting(args: &[&str]) -> (Bench, Receiver, Vec<String>) {
    let bench = Bench::new();
    let server = rendezvous(&bench, None, "127.0.0.1:0", args);
    let named = vec![
        "--rendezvous".to_owned(),
        server.address.to_string(),
        "--no-lan".to_owned(),
    ];
    (bench, server, named)
}

fn strs(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

fn message(report: &Value) -> &str {
    report["error"]["message"].as_str().unwrap()
}

#[test]
fn a_code_brings_the_files_and_both_keys() {
    let (bench, _server, named) = meeting(&[]);
    let named = strs(&named);
    let file = bench.write("photo", 3_000_000);
    let (sender, code) = offer(&bench, None, &named, &file);
    let (code_of_receiver, received, _) = claim(&bench, None, &named, &code).end();
    let (code_of_sender, sent, said) = sender.end();
    assert_eq!(
        (code_of_sender, code_of_receiver),
        (0, 0),
        "{sent} {received}"
    );
    bench.assert_received("photo", &bytes("photo", 3_000_000));
    assert_eq!(sent["peer"], bench.receiver_key.as_str());
    assert_eq!(received["peer"], bench.sender_key.as_str());
    assert!(!said.contains("relay"), "{said}");
    // Once is enough.
    let (exit, report, _) = claim(&bench, None, &named, &code).end();
    assert_eq!(exit, 4, "{report}");
    assert!(message(&report).contains("used already"), "{report}");
}

/// A machine of both families, or in two networks, is asked at one address by one side and at another by the other.
#[test]
fn sides_meet_that_know_the_server_by_different_addresses() {
    let bench = Bench::new();
    let server = rendezvous(&bench, None, ":0", &[]);
    let port = server.address.port();
    let is_here = |host: &&str| std::net::UdpSocket::bind(format!("{host}:0")).is_ok();
    for (n, other) in ["127.0.0.2", "[::1]"]
        .iter()
        .filter(|host| is_here(host))
        .enumerate()
    {
        let named = ["127.0.0.1", other].map(|host| format!("{host}:{port}"));
        let [sender, receiver] = named.each_ref().map(|at| ["--rendezvous", at, "--no-lan"]);
        let name = format!("file{n}");
        let file = bench.write(&name, 100_000);
        let (sending, code) = offer(&bench, None, &sender, &file);
        let (exit, report, _) = claim(&bench, None, &receiver, &code).end();
        assert_eq!(exit, 0, "{other}: {report}");
        assert_eq!(sending.end().0, 0, "{other}");
        bench.assert_received(&name, &bytes(&name, 100_000));
    }
}

/// As by `cp`: an image of a disk is mostly holes.
#[test]
fn holes_stay_holes() {
    use std::os::unix::fs::MetadataExt;
    let (bench, _server, named) = meeting(&[]);
    let named = strs(&named);
    let image = bench.write("image", 1000);
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    file.set_len(100_000_000).unwrap();
    let (sender, code) = offer(&bench, None, &named, &image);
    let (exit, report, _) = claim(&bench, None, &named, &code).end();
    assert_eq!((exit, sender.end().0), (0, 0), "{report}");
    let received = std::fs::metadata(bench.path("received/image")).unwrap();
    assert_eq!(received.len(), 100_000_000);
    assert!(received.blocks() <= file.metadata().unwrap().blocks() + 128);
    assert!(report["moved_bytes"].as_u64() < Some(1_000_000), "{report}");
}

/// One name of a tree does not cost all of it, nor another code.
#[test]
fn names_that_are_not_taken_are_left_out_and_the_rest_comes() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let (bench, _server, named) = meeting(&[]);
    let named = strs(&named);
    let tree = bench.path("tree");
    std::fs::create_dir_all(tree.join(".git")).unwrap();
    let cafe = OsStr::from_bytes(b"caf\xe9");
    for name in [OsStr::new("plain"), cafe, OsStr::new(".git/config")] {
        std::fs::write(tree.join(name), bytes("x", 1000)).unwrap();
    }
    let (sender, code) = offer(&bench, None, &named, &tree);
    let (exit, received, _) = claim(&bench, None, &named, &code).end();
    let (exit_of_sender, sent, said) = sender.end();
    assert_eq!((exit_of_sender, exit), (3, 3), "{sent} {received}");
    for report in [&sent, &received] {
        let left_out = &report["left_out"][0];
        assert_eq!(left_out["path"], "tree/.git", "{report}");
        let why = left_out["why"].as_str().unwrap();
        assert!(why.contains("dfcp recv --hidden"), "{report}");
    }
    assert!(said.contains("left out tree/.git"), "{said}");
    let there = bench.path("received/tree");
    assert!(there.join("plain").exists() && there.join(cafe).exists());
    assert!(!there.join(".git").exists());
}

/// Somebody without room, or in the wrong place, need not ask for another one.
#[test]
fn a_code_is_used_when_the_receiver_agrees_and_not_before() {
    let (bench, _server, named) = meeting(&[]);
    let named = strs(&named);
    let file = bench.write("x", 100_000);
    let (mut sender, code) = offer(&bench, None, &named, &file);
    for _ in 0..2 {
        let mut few = named.clone();
        few.extend(["--max-bytes", "1000"]);
        let (exit, report, _) = claim(&bench, None, &few, &code).end();
        assert_eq!(exit, 1, "{report}");
        assert!(message(&report).contains("--max-bytes"), "{report}");
        sender.says("nothing was sent");
        sender.says(&format!("dfcp recv {code}"));
    }
    // Guesses count on.
    assert_eq!(claim(&bench, None, &named, &spoilt(&code)).end().0, 4);
    sender.says("dead: 2");
    let (exit, report, _) = claim(&bench, None, &named, &code).end();
    let (exit_of_sender, sent, _) = sender.end();
    assert_eq!((exit_of_sender, exit), (0, 0), "{sent} {report}");
    bench.assert_received("x", &bytes("x", 100_000));
    let (exit, report, _) = claim(&bench, None, &named, &code).end();
    assert_eq!(exit, 4, "{report}");
    assert!(message(&report).contains("used already"), "{report}");
}

#[test]
fn wrong_codes_are_refused_and_the_third_is_the_last() {
    let (bench, _server, named) = meeting(&[]);
    let named = strs(&named);
    let file = bench.write("x", 1000);
    let (mut sender, code) = offer(&bench, None, &named, &file);
    for left in [2, 1] {
        let (exit, report, _) = claim(&bench, None, &named, &spoilt(&code)).end();
        assert_eq!(exit, 4, "{report}");
        let guesses = format!("Guesses left: {left}");
        assert!(message(&report).contains(&guesses), "{report}");
        sender.says(&format!("dead: {left}"));
    }
    // A word that no code has is noticed here.
    let (exit, report, _) = claim(&bench, None, &named, "7-otterr-lamp").end();
    assert_eq!(
        (exit, message(&report).contains("no guess was spent")),
        (4, true)
    );
    let (exit, report, _) = claim(&bench, None, &named, &spoilt(&code)).end();
    assert_eq!(exit, 4, "{report}");
    assert!(message(&report).contains("dead"), "{report}");
    let (exit, report, _) = sender.end();
    assert_eq!(exit, 4, "{report}");
    assert!(
        message(&report).contains("too many wrong codes"),
        "{report}"
    );
    let (exit, report, _) = claim(&bench, None, &named, &code).end();
    assert_eq!(exit, 4, "{report}");
    assert!(message(&report).contains("dead"), "{report}");
    assert_eq!(bench.received(), [""; 0]);
}

#[test]
fn a_wrong_code_does_not_keep_the_right_one_out() {
    let (bench, _server, named) = meeting(&[]);
    let named = strs(&named);
    let file = bench.write("x", 1000);
    let mut args = named.clone();
    args.extend(["--words", "3"]);
    let (sender, code) = offer(&bench, None, &args, &file);
    assert_eq!(code.split('-').count(), 4, "{code}");
    assert_eq!(claim(&bench, None, &named, &spoilt(&code)).end().0, 4);
    let (exit, report, _) = claim(&bench, None, &named, &code.replace('-', " ")).end();
    assert_eq!(exit, 0, "{report}");
    assert_eq!(sender.end().0, 0);
    bench.assert_received("x", &bytes("x", 1000));
}

#[test]
fn a_flood_at_the_server_disturbs_nobody() {
    let (bench, server, named) = meeting(&[]);
    let named = strs(&named);
    let over = Arc::new(AtomicBool::new(false));
    let (flood, address) = (over.clone(), server.address);
    let flooding = std::thread::spawn(move || {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut sent = 0_u32;
        while !flood.load(Ordering::Relaxed) {
            // Questions for numbers with cookies that are not good, and what is none.
            let mut datagram = vec![sent as u8; 512];
            datagram[..4].copy_from_slice(&[0xd5, b'm', b't', 1]);
            datagram[4] = (sent % 7) as u8;
            let len = if sent.is_multiple_of(5) { 100 } else { 512 };
            let _ = socket.send_to(&datagram[..len], address);
            sent += 1;
        }
        sent
    });
    let file = bench.write("x", 100_000);
    let (sender, code) = offer(&bench, None, &named, &file);
    let (exit, report, _) = claim(&bench, None, &named, &code).end();
    assert_eq!((exit, sender.end().0), (0, 0), "{report}");
    over.store(true, Ordering::Relaxed);
    assert!(flooding.join().unwrap() > 100);
    bench.assert_received("x", &bytes("x", 100_000));
}

#[test]
fn a_code_whose_sender_left_is_over() {
    let (bench, _server, named) = meeting(&[]);
    let named = strs(&named);
    let file = bench.write("x", 1000);
    let (sender, code) = offer(&bench, None, &named, &file);
    kill(Pid::from_raw(sender.id()), Signal::SIGINT).unwrap();
    assert_eq!(sender.end().0, 130);
    let (exit, report, _) = claim(&bench, None, &named, &code).end();
    assert_eq!(exit, 4, "{report}");
    assert!(message(&report).contains("expired"), "{report}");
}

#[test]
fn a_code_that_nobody_used_in_time_is_over_on_both_sides() {
    let (bench, _server, named) = meeting(&[]);
    let mut args = strs(&named);
    args.extend(["--code-time", "1500ms"]);
    let file = bench.write("x", 1000);
    let (sender, code) = offer(&bench, None, &args, &file);
    let (exit, report, said) = sender.end();
    assert!(said.contains("within 1.5 s: dfcp recv"), "{said}");
    assert_eq!((exit, &report["exit_code"]), (4, &4.into()), "{report}");
    assert!(message(&report).contains("has expired"), "{report}");
    assert!(message(&report).contains("send again"), "{report}");
    let (exit, report, _) = claim(&bench, None, &strs(&named), &code).end();
    assert_eq!((exit, &report["exit_code"]), (4, &4.into()), "{report}");
    assert!(message(&report).contains("has expired"), "{report}");
    assert!(message(&report).contains("ask for a new one"), "{report}");
    assert!(!bench.path("received/x").exists());
    // Nobody keeps a code for longer than servers do, and no person types one in no time.
    for time in ["11m", "0", "soon"] {
        let args = ["--no-lan", "--code-time", time];
        let mut command = common::meeting::program_in(None, &bench.path("sender"));
        command.args(["send", "--json"]).args(args).arg(&file);
        let (exit, report, _) = common::run(&mut command);
        assert_eq!(exit, 2, "{time}: {report}");
    }
}

#[test]
fn who_finds_nobody_is_told_what_to_do() {
    let bench = Bench::new();
    let end = |args: &[&str]| {
        let (exit, report, _) = claim(&bench, None, args, "7-otter-lamp").end();
        (exit, message(&report).to_owned())
    };
    let (exit, why) = end(&["--no-lan"]);
    assert_eq!(exit, 2);
    assert!(why.contains("dfcp rendezvous"), "{why}");
    // A port that was free a moment ago.
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let nobody = nobody.local_addr().unwrap().to_string();
    let (exit, why) = end(&["--no-lan", "--rendezvous", &nobody]);
    assert_eq!(exit, 5);
    assert!(why.contains("does not answer"), "{why}");
    let (bench, server, _) = meeting(&[]);
    let args = ["--no-lan", "--rendezvous", &server.address.to_string()];
    let (exit, report, _) = claim(&bench, None, &args, "7-otter-lamp").end();
    assert_eq!(exit, 4, "{report}");
    assert!(
        message(&report).contains("no sender has this number"),
        "{report}"
    );
}

#[test]
fn the_server_is_named_by_the_environment_or_the_settings_too() {
    let (bench, server, _) = meeting(&[]);
    let file = bench.write("x", 1000);
    let settings = bench.path("receiver/config/dfcp/config");
    std::fs::create_dir_all(settings.parent().unwrap()).unwrap();
    std::fs::write(&settings, format!("rendezvous = \"{}\"\n", server.address)).unwrap();
    let mut command = common::meeting::program_in(None, &bench.path("sender"));
    command
        .args(["send", "--json", "--no-lan"])
        .arg(&file)
        .env("DFCP_RENDEZVOUS", server.address.to_string());
    let mut sender = common::meeting::Process::start("sender", command);
    let line = sender.says("dfcp recv ");
    let words: Vec<_> = line.split(' ').collect();
    let at = words.iter().position(|word| *word == "recv").unwrap();
    // What it prints is a command that works elsewhere.
    assert_eq!(
        words[at + 2..],
        ["--rendezvous", &server.address.to_string()]
    );
    let (exit, report, _) = claim(&bench, None, &["--no-lan"], words[at + 1]).end();
    assert_eq!(exit, 0, "{report}");
    assert_eq!(sender.end().0, 0);
}
