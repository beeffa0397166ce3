//! Clients of a proxy, and programs that use them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};

use super::Bench;

/// SOCKS5's command for a connection (RFC 1928 §4).
pub const CONNECT: u8 = 1;

/// A host that says back what it hears.
pub fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for tcp in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut read = tcp.try_clone().unwrap();
                let _ = std::io::copy(&mut read, &mut &tcp);
            });
        }
    });
    address
}

/// Whether a connection still carries.
pub fn echoes(tcp: &mut TcpStream) -> bool {
    let mut heard = [0; 5];
    tcp.write_all(b"hello").is_ok() && tcp.read_exact(&mut heard).is_ok() && heard == *b"hello"
}

pub fn client(bench: &Bench, server: SocketAddr, args: &[&str]) -> Command {
    let mut command = bench.program();
    command
        .args(["proxy", "--peer-key", &bench.receiver_key])
        .args(["--key".as_ref(), bench.path("sender.key").as_os_str()])
        .args(args)
        .arg(server.to_string());
    command
}

pub fn port_in(line: &str) -> SocketAddr {
    let mut words = line.split_whitespace();
    words
        .find_map(|word| word.parse().ok())
        .expect("an address")
}

/// What SOCKS5 at `port` replies to a request, as long as the connection is kept.
pub fn socks(port: SocketAddr, command: u8, to: SocketAddr) -> (TcpStream, u8) {
    let mut tcp = TcpStream::connect(port).unwrap();
    let SocketAddr::V4(to) = to else {
        panic!("IPv4")
    };
    let head = [&[5, 1, 0, 5, command, 0, 1][..], &to.ip().octets()].concat();
    tcp.write_all(&[&head[..], &to.port().to_be_bytes()].concat())
        .unwrap();
    let mut reply = [0; 12];
    tcp.read_exact(&mut reply).unwrap();
    (tcp, reply[3])
}

/// The answer to a request at a port for metrics.
pub fn http(at: SocketAddr, request: &[u8]) -> String {
    let mut tcp = TcpStream::connect(at).unwrap();
    tcp.write_all(request).unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).unwrap();
    answer
}

/// Where it says that metrics are.
pub fn metrics_in(line: &str) -> SocketAddr {
    let (_, url) = line.split_once("http://").unwrap();
    url.strip_suffix("/metrics").unwrap().parse().unwrap()
}

/// A client with a port for SOCKS5.
pub fn with_socks(bench: &Bench, server: SocketAddr) -> (Child, SocketAddr) {
    // Refusals are to be seen, of hosts that were reached just before, too.
    let flags = ["--socks", "0", "--fast-open=never"];
    let mut child = client(bench, server, &flags).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    let port = port_in(&lines.find(|line| line.contains("SOCKS5")).unwrap());
    // It may go on to speak.
    std::thread::spawn(move || lines.for_each(|line| eprintln!("client: {line}")));
    (child, port)
}
