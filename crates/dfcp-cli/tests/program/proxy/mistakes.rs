//! What is told of a proxy that cannot be as it is asked for, and how one ends.

use std::net::{TcpListener, UdpSocket};
use std::process::Stdio;

use super::{outcome, said_by, server};
use crate::common::proxying::client;
use crate::common::{Bench, wait};

#[test]
fn more_clients_than_a_server_wants_are_told_so() {
    let bench = Bench::new();
    let serving = server(&bench, &["--max-connections", "1"]);
    let mut first = client(&bench, serving.address, &["--socks", "0"])
        .spawn()
        .unwrap();
    let mut lines = said_by(&mut first);
    assert!(lines.any(|line| line.contains("SOCKS5")));
    let (code, said) = outcome(
        client(&bench, serving.address, &["--socks", "0"])
            .args(["--timeout", "1s"])
            .stderr(Stdio::piped()),
    );
    assert!(
        code == 5 && said.contains("too many connections") && !said.contains("doctor"),
        "{code}: {said}"
    );
    first.kill().unwrap();
    first.wait().unwrap();
}

#[test]
fn what_is_wrong_is_said_with_an_exit_code() {
    let bench = Bench::new();
    let server = server(&bench, &[]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken_udp = format!("{}:127.0.0.1:1/udp", udp.local_addr().unwrap());
    for (args, code, words) in [
        (
            &["-W", "127.0.0.1:1"][..],
            1,
            "rules do not allow 127.0.0.1:1",
        ),
        (&["--socks", &taken], 7, "cannot listen on"),
        (&[], 2, "nothing to carry"),
        (&["-L", "x"], 2, "not [ADDRESS:]PORT:HOST:PORT"),
        (&["-L", &taken_udp], 7, "another program has that port"),
        (&["-L", "5353:a:0/udp"], 2, "not a port: \"0\""),
        (
            &["-L", "7001:a:1/udp", "-L", "7001:a:1", "-L", "7001:b:1"],
            2,
            "127.0.0.1:7001 is named twice",
        ),
        (
            &["-R", "*:7001:a:1", "-R", "7001:b:1"],
            2,
            "[::]:7001 and 127.0.0.1:7001 are one port",
        ),
        (&["--timeout", "0", "-W", "a:1"], 2, "a time above zero"),
        (&["-W", "http://a:80"], 2, "write a:80"),
        (
            &["--profile", "rc-udp", "-W", "a:1"],
            2,
            "published profiles",
        ),
    ] {
        let (got, said) = outcome(&mut client(&bench, server.address, args));
        assert_eq!(got, code, "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
    }
    // A first connection that does not come about: nobody there, and no such name.
    for (what, host) in [
        ("--socks=0", "127.0.0.1:9"),
        ("--socks=0", "name.invalid"),
        ("-Wa:1", "127.0.0.1:9"),
        ("-Wa:1", "name.invalid"),
    ] {
        let mut command = bench.program();
        command
            .args(["proxy", what, "--timeout", "2s", "--peer-key"])
            .arg(&bench.receiver_key)
            .args(["--key".as_ref(), bench.path("sender.key").as_os_str()])
            .arg(host);
        let (code, said) = outcome(&mut command);
        assert_eq!(code, 5, "{said}");
        assert!(
            said.contains(host) && said.contains("gave up after 2 s"),
            "{said}"
        );
        assert!(!said.contains("SOCKS5"), "{said}");
    }
    // This side's key is not known there; the server's is another one.
    let wrong = |own: &str, peer: &str| {
        let mut command = bench.program();
        command
            .args(["proxy", "--socks", "0", "--peer-key", peer, "--key"])
            .arg(bench.path(own))
            .arg(server.address.to_string());
        let (code, said) = outcome(&mut command);
        // Nobody is told of a port that leads nowhere, or of a connection that is none.
        assert!(
            !said.contains("SOCKS5") && !said.contains("connected"),
            "{said}"
        );
        (code, said)
    };
    let (code, said) = wrong("receiver.key", &bench.receiver_key);
    assert!(
        code == 4 && said.contains("dfcp proxy serve --allow"),
        "{code}: {said}"
    );
    let (code, said) = wrong("sender.key", &bench.sender_key);
    assert!(
        code == 4 && said.contains(&bench.receiver_key),
        "{code}: {said}"
    );

    let (code, said) = outcome(
        bench
            .program()
            .args(["proxy", "serve", "--listen", "127.0.0.1:0"]),
    );
    assert!(
        code == 4 && said.contains("nobody would be served"),
        "{code}: {said}"
    );

    let (code, said) = outcome(
        bench
            .program()
            .args(["proxy", "serve", "--allow", "nonsense"]),
    );
    assert!(
        code == 4 && said.contains("neither a key"),
        "{code}: {said}"
    );

    let (code, said) = outcome(
        bench
            .program()
            .args(["proxy", "serve", "--max-streams", "0"]),
    );
    assert!(
        code == 2 && said.contains("--max-streams"),
        "{code}: {said}"
    );
    // Whoever writes this does not mean bits.
    let (code, said) = outcome(bench.program().args(["proxy", "serve", "--rate", "20"]));
    assert!(
        code == 2 && said.contains("20M is 20 Mbit/s"),
        "{code}: {said}"
    );
}

#[test]
fn a_request_to_terminate_is_told_from_an_interruption() {
    use nix::sys::signal::{Signal, kill};
    let bench = Bench::new();
    let server = server(&bench, &[]);
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let mut child = client(&bench, server.address, &["--socks", "0"])
            .spawn()
            .unwrap();
        let mut lines = said_by(&mut child);
        lines.find(|line| line.contains("SOCKS5")).unwrap();
        kill(nix::unistd::Pid::from_raw(child.id() as i32), signal).unwrap();
        assert_eq!(wait(&mut child).code(), Some(code));
    }
    server.signal(Signal::SIGTERM);
    assert_eq!(server.end_code(), Some(143));
}

#[test]
fn help_has_the_profiles_that_a_proxy_can_use_and_no_others() {
    let help = Bench::new().program().args(["proxy", "--help"]).output();
    let help = String::from_utf8(help.unwrap().stdout).unwrap();
    assert!(help.contains("- chameleon:"), "{help}");
    for other in ["- rc-udp:", "- rc-udp-sealed:", "receiver"] {
        assert!(!help.contains(other), "{help}");
    }
}
