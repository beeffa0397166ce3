//! Clients of a proxy, and programs that use them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};

use super::{Bench, PATIENCE};

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
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
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

/// Checks that the dashboard asks for no families but those of the metrics `page`, and that all of these are in
/// the manual: there some have their last words alone, after one that has the first ones.
pub fn check_documented(page: &str) {
    let typed = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let families: Vec<(&str, &str)> = typed.filter_map(|line| line.split_once(' ')).collect();
    let packaging = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/grafana.json");
    let dashboard = std::fs::read_to_string(packaging).unwrap();
    let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let asked = dashboard.split(|c: char| !of_name(c));
    let asked = asked.filter(|word| word.starts_with("dfcp_") || word.starts_with("process_"));
    let mut count = 0;
    for name in asked {
        let is_it = |(family, kind): &(&str, &str)| match *kind {
            "summary" => ["_sum", "_count"]
                .map(|part| format!("{family}{part}"))
                .contains(&name.to_owned()),
            _ => name == *family,
        };
        assert!(families.iter().any(is_it), "the dashboard asks for {name}");
        count += 1;
    }
    assert!(count > 20, "{count}");
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/proxy.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let table = manual.lines().filter(|line| line.starts_with("| `"));
    let named: Vec<&str> = table
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .filter_map(|name| name.split('{').next())
        .collect();
    for (family, _) in families {
        let is_it = |name: &&str| match name.strip_prefix('_') {
            Some(_) => family.ends_with(*name),
            None => name.starts_with(family),
        };
        assert!(named.iter().any(is_it), "the manual does not have {family}");
    }
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
