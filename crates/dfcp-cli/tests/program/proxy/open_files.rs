//! Proxies at their limit of open files.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{said_by, server, web};
use crate::common::proxying::{client, echo, echoes, http, metrics_in, port_in, socks, with_socks};
use crate::common::{Bench, Receiver, bytes, eventually, wait};

#[test]
fn a_server_without_open_files_refuses_and_goes_on_when_there_are_some() {
    let bench = Bench::new();
    let list = bench.path("list");
    std::fs::write(&list, &bench.sender_key).unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 40 && exec \"$0\" \"$@\""])
        .arg(bench.program().get_program())
        .args(["proxy", "serve", "--listen", "127.0.0.1:0"])
        .args(["--metrics", "0", "--permit", "all", "--allow"])
        .arg(&list)
        .arg("--key")
        .arg(bench.path("receiver.key"))
        .stderr(Stdio::piped());
    let server = Receiver::start(command);
    let metrics = metrics_in(&server.says("metrics at"));
    let mut child = client(
        &bench,
        server.address,
        &["--socks", "0", "--fast-open=never"],
    )
    .spawn()
    .unwrap();
    let mut lines = said_by(&mut child);
    let port = port_in(&lines.find(|line| line.contains("SOCKS5")).unwrap());
    let web = web(bytes("page", 9));
    const CONNECT: u8 = 1;
    const ASSOCIATE: u8 = 3;
    for (request, is_first) in [(ASSOCIATE, true), (CONNECT, false)] {
        let mut open = Vec::new();
        // General failure (RFC 1928 §6): the host is not to blame.
        while let (tcp, reply @ (0 | 1)) = socks(port, request, web) {
            match reply {
                0 => open.push(tcp),
                _ => break,
            }
        }
        assert!((1..40).contains(&open.len()), "{} at once", open.len());
        if is_first {
            server.says(
                "clients are refused connections now: no socket for datagrams: Too many open files",
            );
        }
        // That is when somebody looks, as often as they like.
        for _ in 0..3 {
            let page = http(metrics, b"GET /metrics HTTP/1.1\r\n\r\n");
            assert!(page.contains("\nprocess_open_fds "), "{page}");
        }
        // Nor is a name unknown that cannot be asked for: 4 would say that.
        let mut asks = TcpStream::connect(port).unwrap();
        let name = [
            &b"\x05\x01\0\x05\x01\0\x03\x09localhost"[..],
            &web.port().to_be_bytes(),
        ];
        asks.write_all(&name.concat()).unwrap();
        let mut reply = [0; 4];
        asks.read_exact(&mut reply).unwrap();
        assert_eq!(reply[2..], [5, 1]);
        // A client whose key stands in a list that cannot be opened now is not turned away.
        let (mut other, _) = with_socks(&bench, server.address);
        other.kill().unwrap();
        wait(&mut other);
        drop(open);
        eventually("it goes on", || socks(port, request, web).1 == 0);
    }
    child.kill().unwrap();
    wait(&mut child);
}

/// Whoever comes then hears it at once, by a reset, and does not wait until another one has left.
#[test]
fn a_client_without_open_files_refuses_and_goes_on_when_there_are_some() {
    let (bench, host) = (Bench::new(), echo());
    let server = server(&bench, &["--permit", "all"]);
    let plain = client(&bench, server.address, &["--socks", "0"]);
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 40 && exec \"$0\" \"$@\""])
        .arg(plain.get_program())
        .args(plain.get_args())
        .stderr(Stdio::piped());
    for (name, value) in plain.get_envs() {
        command.env(name, value.unwrap());
    }
    let mut child = command.spawn().unwrap();
    let mut lines = said_by(&mut child);
    let port = port_in(&lines.find(|line| line.contains("SOCKS5")).unwrap());
    let (mut open, mut refused) = (Vec::new(), 0);
    while refused < 3 {
        let mut tcp = TcpStream::connect(port).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // It may be gone already.
        let _ = tcp.write_all(&[5, 1, 0]);
        match tcp.read_exact(&mut [0; 2]) {
            Ok(()) => open.push(tcp),
            Err(error) => {
                // What it was sent and has not read resets it, if that came before the end.
                let gone = [ErrorKind::ConnectionReset, ErrorKind::UnexpectedEof];
                assert!(gone.contains(&error.kind()), "{error}");
                refused += 1;
            }
        }
        assert!(open.len() < 40, "that many files it has not");
    }
    let told = lines.find(|line| line.contains("refused at a local port now"));
    assert!(told.unwrap().contains("Too many open files"));
    drop(open);
    eventually("it goes on", || {
        let mut tcp = TcpStream::connect(port).unwrap();
        let _ = tcp.write_all(&[5, 1, 0]);
        tcp.read_exact(&mut [0; 2]).is_ok()
    });
    let (mut tcp, reply) = socks(port, 1, host);
    assert!(reply == 0 && echoes(&mut tcp));
    child.kill().unwrap();
    wait(&mut child);
}
