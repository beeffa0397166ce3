//! A proxy's server that is away for a while.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::common::proxying::{CONNECT, echo, echoes, http, socks, with_socks};
use crate::common::{Bench, Receiver, wait};

/// Nothing waits for longer.
const LIMIT: Duration = Duration::from_secs(300);

fn server(bench: &Bench, at: &str) -> Receiver {
    let mut command = bench.program();
    command
        .args(["proxy", "serve", "--permit", "127.0.0.1/32", "--drain", "0"])
        .args(["--listen", at, "--allow", &bench.sender_key])
        .args(["--key".as_ref(), bench.path("receiver.key").as_os_str()]);
    Receiver::start(command)
}

/// What programs ask for at `port`: whether they are connected, as SOCKS5 and HTTP say it.
fn ask(port: SocketAddr, host: SocketAddr) -> [JoinHandle<(String, bool)>; 2] {
    let by_socks = std::thread::spawn(move || {
        let (mut tcp, reply) = socks(port, CONNECT, host);
        tcp.set_read_timeout(Some(LIMIT)).unwrap();
        (reply.to_string(), reply == 0 && echoes(&mut tcp))
    });
    let by_http = std::thread::spawn(move || {
        let mut tcp = TcpStream::connect(port).unwrap();
        tcp.set_read_timeout(Some(LIMIT)).unwrap();
        write!(tcp, "CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && tcp.read_exact(&mut byte).is_ok() {
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let connected = head.starts_with("HTTP/1.1 200") && echoes(&mut tcp);
        (head, connected)
    });
    [by_socks, by_http]
}

/// An upgrade is a pause, and no page of errors.
#[test]
#[expect(clippy::disallowed_methods, reason = "a pause of the server")]
fn what_is_asked_for_while_the_server_restarts_waits_for_it() {
    let (bench, host) = (Bench::new(), echo());
    let mut there = server(&bench, "127.0.0.1:0");
    let at = there.address;
    let (mut child, port) = with_socks(&bench, at);
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        assert_eq!(socks(port, CONNECT, host).1, 0);
        there.signal(signal);
        there.end_code();
        let asked = ask(port, host);
        // Who is refused at once has heard of it by then.
        std::thread::sleep(Duration::from_millis(500));
        there = server(&bench, &at.to_string());
        for asked in asked {
            let (answer, connected) = asked.join().unwrap();
            assert!(connected, "after {signal}: {answer}");
        }
    }
    child.kill().unwrap();
    wait(&mut child);
}

#[test]
fn a_server_that_does_not_come_back_is_a_failure_in_the_end() {
    let (bench, host) = (Bench::new(), echo());
    let there = server(&bench, "127.0.0.1:0");
    let (mut child, port) = with_socks(&bench, there.address);
    there.signal(Signal::SIGTERM);
    there.end_code();
    let [by_socks, by_http] = ask(port, host).map(|asked| asked.join().unwrap().0);
    assert_eq!(by_socks, "4");
    assert!(by_http.starts_with("HTTP/1.1 504"), "{by_http}");
    // A URL is answered with a page that says why.
    let page = http(
        port,
        format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes(),
    );
    assert!(page.starts_with("HTTP/1.1 504"), "{page}");
    assert!(page.contains("no connection to the server"), "{page}");
    child.kill().unwrap();
    wait(&mut child);
}
