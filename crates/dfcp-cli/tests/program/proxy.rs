//! `dfcp proxy` as processes, with programs that know nothing of it.

mod metrics;
mod mistakes;
mod open_files;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::common::proxying::{client, port_in};
use crate::common::{Bench, Receiver, bytes, wait};

/// A web server that gives everyone the same page; an address that nobody reads from is left.
fn web(page: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for tcp in listener.incoming().map_while(Result::ok) {
            let page = page.clone();
            std::thread::spawn(move || serve(tcp, &page));
        }
    });
    address
}

fn serve(mut tcp: TcpStream, page: &[u8]) {
    let mut request: Vec<u8> = Vec::new();
    while !request.windows(4).any(|four| four == b"\r\n\r\n") {
        let mut part = [0; 1024];
        match tcp.read(&mut part) {
            Ok(n) if n > 0 => request.extend(&part[..n]),
            _ => return,
        }
    }
    let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", page.len());
    let _ = tcp.write_all(head.as_bytes());
    let _ = tcp.write_all(page);
}

/// A server that may connect to this machine.
fn server(bench: &Bench, args: &[&str]) -> Receiver {
    let mut command = bench.program();
    command
        .args([
            "proxy",
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--allow",
            &bench.sender_key,
        ])
        .args(["--key".as_ref(), bench.path("receiver.key").as_os_str()])
        .args(args);
    Receiver::start(command)
}

/// Exit code and what was said.
fn outcome(command: &mut Command) -> (i32, String) {
    let mut child = command.spawn().unwrap();
    let status = wait(&mut child);
    let Output { stderr, .. } = child.wait_with_output().unwrap();
    (status.code().unwrap(), String::from_utf8(stderr).unwrap())
}

/// What a program says, line by line.
fn said_by(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let said = BufReader::new(child.stderr.take().unwrap());
    said.lines().map_while(Result::ok)
}

/// A host that says back what it hears.
fn echo() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..len], from);
        }
    });
    address
}

#[test]
fn datagrams_go_through_a_forwarded_port() {
    let (bench, echo) = (Bench::new(), echo());
    let server = server(&bench, &["--permit", "127.0.0.1/32"]);
    let forward = format!("0:{echo}/udp");
    let mut child = client(&bench, server.address, &["-L", &forward])
        .spawn()
        .unwrap();
    let mut lines = said_by(&mut child);
    let line = lines.find(|line| line.contains("datagrams"));
    let port = port_in(&line.expect("it says where it takes datagrams"));
    let program = UdpSocket::bind("127.0.0.1:0").unwrap();
    program.connect(port).unwrap();
    let patience = Duration::from_millis(200);
    program.set_read_timeout(Some(patience)).unwrap();
    let mut heard = [0; 16];
    // Datagrams may be lost; what waits for the connection to the server is kept.
    let asked = (0..300).find_map(|_| {
        program.send(b"who is there?").unwrap();
        program.recv(&mut heard).ok()
    });
    let len = asked.expect("an answer within a minute");
    assert_eq!(&heard[..len], b"who is there?");
    child.kill().unwrap();
    wait(&mut child);

    let reverse = format!("0:{echo}/udp");
    let (code, said) = outcome(&mut client(&bench, server.address, &["-R", &reverse]));
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("-L carries datagrams"), "{said}");
}

#[test]
fn curl_goes_through_every_kind_of_port() {
    if Command::new("curl").arg("--version").output().is_err() {
        eprintln!("skipped: curl is not installed");
        return;
    }
    let (bench, page) = (Bench::new(), bytes("page", 3_000_000));
    let (server, web) = (
        server(&bench, &["--permit", "127.0.0.1/32"]),
        web(page.clone()),
    );
    let forward = format!("0:{web}");
    let args = ["--socks", "0", "-L", &forward];
    let mut command = client(&bench, server.address, &args);
    let mut child = command.spawn().unwrap();
    let mut lines = said_by(&mut child);
    let (mut socks, mut forwarded) = (None, None);
    while socks.is_none() || forwarded.is_none() {
        let line = lines.next().expect("it says where it listens");
        match line.contains("SOCKS5") {
            true => socks = Some(port_in(&line)),
            false if line.contains("forwarding") => forwarded = Some(port_in(&line)),
            false => {}
        }
    }
    let (socks, forwarded) = (socks.unwrap(), forwarded.unwrap());
    let curl = |args: &[&str]| {
        let mut curl = Command::new("curl");
        // Names of this machine would go around a proxy.
        curl.args(["-sS", "--noproxy", "", "--max-time", "60"])
            .args(args);
        curl.output().unwrap()
    };
    let (by_socks, by_http) = (format!("socks5h://{socks}"), format!("http://{socks}"));
    for args in [
        &[
            "-x",
            &by_socks,
            &format!("http://localhost:{}/", web.port()),
        ][..],
        &["-p", "-x", &by_http, &format!("http://{web}/")],
        &[&format!("http://{forwarded}/")],
    ] {
        let out = curl(args);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(
            out.stdout == page,
            "{args:?}: {} bytes, {said}",
            out.stdout.len()
        );
    }
    // A private address that is not permitted.
    let out = curl(&["-p", "-x", &by_http, "http://10.0.0.1/"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("403"), "{said}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn standard_input_and_output_are_a_connection() {
    let (bench, page) = (Bench::new(), bytes("page", 500_000));
    let (server, web) = (
        server(&bench, &["--permit", "all:1-65535"]),
        web(page.clone()),
    );
    let mut command = client(&bench, server.address, &["-W", &web.to_string()]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    drop(stdin); // the end of one direction only
    let out = child.wait_with_output().unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    assert!(out.stdout.ends_with(&page), "{} bytes", out.stdout.len());
}

/// ssh ends its ProxyCommand by SIGHUP after each session, and its user would see what that says.
#[test]
fn a_connection_of_standard_input_that_ssh_ends_says_nothing() {
    let bench = Bench::new();
    let server = server(&bench, &["--permit", "all"]);
    let host = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = host.local_addr().unwrap().to_string();
    let program = client(&bench, server.address, &["-W", &at]);
    // Under nohup SIGHUP is ignored, and children inherit that.
    let mut command = Command::new("env");
    command
        .arg("--default-signal=HUP")
        .arg(program.get_program())
        .args(program.get_args())
        .envs(
            program
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .stdin(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut there, _) = host.accept().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"hello").unwrap();
    there.read_exact(&mut [0; 5]).unwrap();
    let process = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGHUP).unwrap();
    assert!(wait(&mut child).success());
    let mut said = String::new();
    child.stderr.unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
}

#[test]
fn standard_output_that_takes_nothing_is_a_failure_of_this_machine() {
    let bench = Bench::new();
    let (server, web) = (server(&bench, &["--permit", "all"]), web(bytes("page", 9)));
    let mut command = client(&bench, server.address, &["-W", &web.to_string()]);
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut child = command.stdin(Stdio::piped()).stdout(full).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let status = wait(&mut child);
    assert_eq!(status.code(), Some(7));
}

#[test]
fn what_a_killed_client_carried_breaks_and_does_not_end() {
    let (bench, host) = (Bench::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    let server = server(&bench, &["--permit", "all"]);
    let forward = format!("0:{}", host.local_addr().unwrap());
    let mut child = client(&bench, server.address, &["-L", &forward])
        .spawn()
        .unwrap();
    let mut lines = said_by(&mut child);
    let line = lines.find(|line| line.contains("forwarding")).unwrap();
    let mut program = TcpStream::connect(port_in(&line)).unwrap();
    let (mut there, _) = host.accept().unwrap();
    there.write_all(b"half of it").unwrap();
    program.read_exact(&mut [0; 10]).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let error = program.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn who_was_killed_many_times_comes_back() {
    let bench = Bench::new();
    let serving = server(&bench, &["--permit", "all"]);
    let comes_in = |args: &[&str]| {
        let mut child = client(&bench, serving.address, &["--socks", "0"])
            .args(args)
            .spawn()
            .unwrap();
        let mut lines = said_by(&mut child);
        let found = lines.any(|line| line.contains("SOCKS5"));
        child.kill().unwrap();
        child.wait().unwrap();
        found
    };
    // The server takes each for as good as alive for a minute.
    for before in 0..20 {
        assert!(comes_in(&["--timeout", "20s"]), "after {before}");
    }
}
