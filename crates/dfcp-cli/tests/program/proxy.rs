//! `dfcp proxy` as processes, with programs that know nothing of it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::common::proxying::{self, client, echoes, http, metrics_in, port_in, socks, with_socks};
use crate::common::{Bench, Receiver, bytes, eventually, wait};

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
    let said = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut lines = std::io::BufRead::lines(said).map_while(Result::ok);
    let line = lines.find(|line| line.contains("datagrams"));
    let port = port_in(&line.expect("it says where it takes datagrams"));
    let program = UdpSocket::bind("127.0.0.1:0").unwrap();
    program.connect(port).unwrap();
    let patience = std::time::Duration::from_millis(200);
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
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let (mut socks, mut forwarded) = (None, None);
    let mut lines = lines.map_while(Result::ok);
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
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let mut lines = lines.map_while(Result::ok);
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
        let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
        let found = lines
            .map_while(Result::ok)
            .any(|line| line.contains("SOCKS5"));
        child.kill().unwrap();
        child.wait().unwrap();
        found
    };
    // The server takes each for as good as alive for a minute.
    for before in 0..20 {
        assert!(comes_in(&["--timeout", "20s"]), "after {before}");
    }
}

#[test]
fn more_clients_than_a_server_wants_are_told_so() {
    let bench = Bench::new();
    let serving = server(&bench, &["--max-connections", "1"]);
    let mut first = client(&bench, serving.address, &["--socks", "0"])
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(first.stderr.take().unwrap()));
    assert!(
        lines
            .map_while(Result::ok)
            .any(|line| line.contains("SOCKS5"))
    );
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
    for (host, words) in [
        ("127.0.0.1:9", "127.0.0.1:9"),
        ("name.invalid", "name.invalid"),
    ] {
        let mut command = bench.program();
        command
            .args(["proxy", "--socks", "0", "--timeout", "2s", "--peer-key"])
            .arg(&bench.receiver_key)
            .args(["--key".as_ref(), bench.path("sender.key").as_os_str()])
            .arg(host);
        let (code, said) = outcome(&mut command);
        assert_eq!(code, 5, "{said}");
        assert!(
            said.contains(words) && said.contains("gave up after 2 s"),
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
    let said = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut lines = std::io::BufRead::lines(said).map_while(Result::ok);
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
    let (bench, host) = (Bench::new(), proxying::echo());
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
    let said = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut lines = std::io::BufRead::lines(said).map_while(Result::ok);
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

/// The value of a sample.
fn sample(page: &str, name: &str) -> f64 {
    let mut lines = page.lines().filter_map(|line| line.rsplit_once(' '));
    let found = lines.find(|(sample, _)| *sample == name);
    found
        .unwrap_or_else(|| panic!("no {name} in {page}"))
        .1
        .parse()
        .unwrap()
}

#[test]
fn both_sides_tell_prometheus_what_they_carry() {
    let (bench, page) = (Bench::new(), bytes("page", 300_000));
    let server = server(&bench, &["--permit", "127.0.0.1/32", "--metrics", "0"]);
    let there = metrics_in(&server.says("metrics at"));
    let web = web(page.clone());
    let mut child = client(&bench, server.address, &["--socks", "0", "--metrics", "0"])
        .spawn()
        .unwrap();
    let said = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut lines = std::io::BufRead::lines(said).map_while(Result::ok);
    let here = metrics_in(&lines.find(|line| line.contains("metrics at")).unwrap());
    let port = port_in(&lines.find(|line| line.contains("SOCKS5")).unwrap());
    let (mut tcp, reply) = socks(port, 1, web);
    assert_eq!(reply, 0);
    tcp.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut heard = Vec::new();
    tcp.read_to_end(&mut heard).unwrap();
    assert!(heard.ends_with(&page));
    // 10.0.0.1 is not permitted.
    assert_eq!(socks(port, 1, "10.0.0.1:80".parse().unwrap()).1, 2);
    let get = |at, path: &str| {
        http(
            at,
            format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes(),
        )
    };
    for (at, down) in [(there, "sent"), (here, "received")] {
        let page = get(at, "/metrics");
        assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
        let streams = |status| {
            sample(
                &page,
                &format!("dfcp_proxy_streams_total{{status=\"{status}\"}}"),
            )
        };
        assert_eq!((streams("connected"), streams("forbidden")), (1.0, 1.0));
        let carried =
            format!("dfcp_proxy_carried_bytes_total{{kind=\"tcp\",direction=\"{down}\"}}");
        assert!(sample(&page, &carried) >= 300_000.0, "{page}");
        assert_eq!(sample(&page, "dfcp_connections"), 1.0);
        assert_eq!(sample(&page, "dfcp_connections_established_total"), 1.0);
        assert!(sample(&page, "dfcp_queueing_seconds_count") > 0.0);
        assert!(page.contains("dfcp_smoothed_rtt_seconds{connection=\"0\",peer=\"dfcp-pub-"));
        assert!(get(at, "/healthz").ends_with("\r\n\r\nok\n"));
    }
    let of_key = format!(
        "dfcp_proxy_key_carried_bytes_total{{peer=\"{}\",direction=\"sent\"}}",
        bench.sender_key
    );
    assert!(sample(&get(there, "/metrics"), &of_key) >= 300_000.0);
    assert!(sample(&get(here, "/metrics"), "dfcp_goodput_bytes_total") >= 300_000.0);

    // Requests that are none, and clients that say nothing, keep nobody else waiting.
    let silent: Vec<_> = (0..30)
        .map(|_| TcpStream::connect(there).unwrap())
        .collect();
    for (request, status) in [
        (&b"POST /metrics HTTP/1.1\r\n\r\n"[..], "405"),
        (b"GET / HTTP/1.1\r\n\r\n", "404"),
        (b"GET /metrics\r\n\r\n", "400"),
        (b"\xff\xfe\r\n\r\n", "400"),
        (&[b'a'; 8 << 10], "431"),
    ] {
        let answer = http(there, request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
    }
    let head = http(there, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.ends_with("\r\n\r\n"), "{head}");
    drop(silent);

    // Without its server the client is not well.
    server.signal(nix::sys::signal::Signal::SIGTERM);
    eventually("it notices", || {
        get(here, "/healthz").starts_with("HTTP/1.1 503 ")
    });
    child.kill().unwrap();
    wait(&mut child);
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
        let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
        let mut lines = lines.map_while(Result::ok);
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
