//! One service for files and a proxy at one port, by one file.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use crate::common::proxying::{CONNECT, client, echo, echoes, http, metrics_in, socks, with_socks};
use crate::common::{Bench, Receiver, bytes, eventually, finish, run, wait};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Writes the settings: those above the first section, and the sections.
pub fn write(bench: &Bench, above: &str, sections: &str) {
    let key = bench.path("receiver.key");
    let listen = match above.contains("listen =") {
        true => "",
        false => "listen = \"127.0.0.1:0\"\n",
    };
    let text = format!("{listen}key = {key:?}\n{above}\n{sections}\n");
    fs::write(bench.path("serve.toml"), text).unwrap();
}

/// Sections of a receiver and of a proxy that reaches this machine.
pub fn both(bench: &Bench) -> String {
    let key = &bench.sender_key;
    let into = bench.path("received");
    format!(
        "[recv]\noutput-dir = {into:?}\nallow = [\"{key}\"]\n\
         [proxy]\nallow = [\"{key}\"]\npermit = [\"127.0.0.1/32\"]"
    )
}

pub fn serve(bench: &Bench) -> Command {
    let mut command = bench.program();
    command.arg("serve").arg(bench.path("serve.toml"));
    command
}

fn send(bench: &Bench, name: &str, to: SocketAddr) -> (i32, Value, String) {
    let path = bench.write(name, 100_000);
    run(bench.sender().arg(path).arg(to.to_string()))
}

#[test]
fn files_and_a_proxy_share_a_port_and_a_key() {
    let (bench, host) = (Bench::new(), echo());
    write(&bench, "metrics = \"0\"", &both(&bench));
    let server = Receiver::start(serve(&bench));
    let metrics = metrics_in(&server.says("metrics at"));
    let (mut program, port) = with_socks(&bench, server.address);
    let (mut open, reply) = socks(port, CONNECT, host);
    assert!(reply == 0 && echoes(&mut open));
    let (code, report, said) = send(&bench, "a", server.address);
    assert_eq!((code, &report["files"]), (0, &Value::from(1)), "{said}");
    bench.assert_received("a", &bytes("a", 100_000));
    assert!(echoes(&mut open));
    let page = http(metrics, b"GET /metrics HTTP/1.1\r\n\r\n");
    for line in [
        "\ndfcp_recv_files_total 1\n",
        "\ndfcp_recv_bytes_total 100000\n",
        "\ndfcp_recv_sessions_total{status=\"done\"} 1\n",
        "\ndfcp_proxy_streams{kind=\"tcp\"} 1\n",
    ] {
        assert!(page.contains(line), "{line:?}: {page}");
    }
    let healthy = serve(&bench).arg("--health").output().unwrap();
    // It asks where the file says, which is any port here.
    assert_eq!(healthy.status.code(), Some(5));
    // A path can be measured, as with `dfcp recv`.
    let mut probe = bench.program();
    probe
        .args(["probe", "--json", "--peer-key", &bench.receiver_key])
        .args(["--key".as_ref(), bench.path("sender.key").as_os_str()])
        .arg(server.address.to_string());
    let (code, _, said) = run(&mut probe);
    assert_eq!(code, 0, "{said}");
    program.kill().unwrap();
    wait(&mut program);
}

#[test]
fn what_is_not_served_is_said_to_who_may_come_and_others_are_refused() {
    let bench = Bench::new();
    let (key, into) = (&bench.sender_key, bench.path("received"));
    let recv = format!("[recv]\noutput-dir = {into:?}\nallow = [\"{key}\"]\n");
    write(&bench, "", &recv);
    let server = Receiver::start(serve(&bench));
    let (code, report, _) = send(&bench, "a", server.address);
    assert_eq!((code, &report["files"]), (0, &Value::from(1)));
    let proxied = client(&bench, server.address, &["--socks", "0"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&proxied.stderr);
    assert_eq!(proxied.status.code(), Some(1), "{said}");
    assert!(said.contains("it has files"), "{said}");

    // The same of the commands that serve one thing.
    let receiver = bench.receiver(&[]);
    let proxied = client(&bench, receiver.address, &["--socks", "0"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&proxied.stderr);
    assert!(said.contains("receives files"), "{said}");
    let mut proxy = bench.program();
    proxy
        .args(["proxy", "serve", "--listen", "127.0.0.1:0", "--allow", key])
        .args(["--key".as_ref(), bench.path("receiver.key").as_os_str()]);
    let proxy = Receiver::start(proxy);
    let (code, report, _) = send(&bench, "b", proxy.address);
    assert_eq!(code, 1);
    assert!(
        report["error"]["message"]
            .as_str()
            .unwrap()
            .contains("it is a proxy"),
        "{report}"
    );

    // A key of one section is none of another.
    let other = bench.path("other.key");
    let made = bench
        .program()
        .args(["keygen", "--out"])
        .arg(&other)
        .output()
        .unwrap();
    let other_key = String::from_utf8(made.stdout).unwrap();
    let proxy = format!("[proxy]\nallow = [\"{}\"]", other_key.trim());
    write(&bench, "", &format!("{recv}{proxy}"));
    let server = Receiver::start(serve(&bench));
    let proxied = client(&bench, server.address, &["--socks", "0"])
        .output()
        .unwrap();
    assert_eq!(proxied.status.code(), Some(4));
    server.says("it may not use a proxy");
    // Somebody whom nobody knows hears no more than that.
    write(&bench, "", &proxy);
    let server = Receiver::start(serve(&bench));
    let (code, _, said) = send(&bench, "a", server.address);
    assert_eq!(code, 4, "{said}");
    server.says("no list of keys has it");
}

/// What whoever has a key whose time is over is told, and who has one that no list has is not.
const OVER: &str = "the day in `until=` of its line there is over";

#[test]
fn a_key_whose_time_is_over_is_refused_and_the_log_says_that_it_is_its_time() {
    let bench = Bench::new();
    let list = bench.path("list");
    let until = |day: &str| {
        let line = format!("until={day} {} anna\n", bench.sender_key);
        fs::write(&list, line).unwrap();
    };
    until("2020-02-29");
    let why = format!("`until=` of its line in {} is over", list.display());
    let own = |command: &[&str]| {
        let mut program = bench.program();
        program
            .args(command)
            .args(["--listen", "127.0.0.1:0", "--allow"])
            .arg(&list)
            .args(["--key".as_ref(), bench.path("receiver.key").as_os_str()]);
        program
    };
    let sections = format!(
        "[recv]\noutput-dir = {:?}\nallow = [{list:?}]\n[proxy]\nallow = [{list:?}]",
        bench.path("received")
    );
    write(&bench, "", &sections);
    for command in [serve(&bench), own(&["proxy", "serve"])] {
        until("2020-02-29");
        let server = Receiver::start(command);
        let proxied = client(&bench, server.address, &["--socks", "0"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&proxied.stderr);
        assert_eq!(proxied.status.code(), Some(4), "{said}");
        assert!(said.contains(OVER), "{said}");
        server.says(&why);
        // A later day counts at once.
        until("9999-12-31");
        let (mut program, _) = with_socks(&bench, server.address);
        program.kill().unwrap();
        wait(&mut program);
    }
    until("2020-02-29");
    let receiver = bench.receiver(&["--allow", list.to_str().unwrap()]);
    let (code, _, said) = send(&bench, "a", receiver.address);
    assert!(code == 4 && said.contains(OVER), "{said}");
    receiver.says(&why);
    // Who never had a line there does not hear of one.
    fs::write(&list, format!("until=2020-02-29 {}\n", bench.receiver_key)).unwrap();
    let (code, _, said) = send(&bench, "a", receiver.address);
    assert!(code == 4 && !said.contains("until="), "{said}");
    assert!(said.contains("does not take this key;"), "{said}");
}

#[test]
fn one_bad_line_changes_nothing_and_a_good_file_all_that_can_change() {
    let (bench, host) = (Bench::new(), echo());
    let into = bench.path("received");
    write(&bench, "", &both(&bench));
    let server = Receiver::start(serve(&bench));
    let (mut program, port) = with_socks(&bench, server.address);
    let (mut open, reply) = socks(port, CONNECT, host);
    assert!(reply == 0 && echoes(&mut open));

    // The mistake is in the last section: the first is not changed either.
    let bad = both(&bench).replace("[\"127.0.0.1/32\"]", "[\"127.0.0.1/33\"]");
    let bad = bad.replacen(&bench.sender_key, &bench.receiver_key, 1);
    write(&bench, "", &bad);
    server.signal(Signal::SIGHUP);
    server.says("nothing is changed: ");
    let (code, ..) = send(&bench, "a", server.address);
    assert_eq!(code, 0);
    assert!(echoes(&mut open));
    // It is told where.
    let checked = serve(&bench).arg("--check").output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    assert_eq!(checked.status.code(), Some(2), "{said}");
    assert!(said.contains("serve.toml line 9: "), "{said}");

    // A file that is gone, is none, or is empty.
    let file = bench.path("serve.toml");
    for broken in ["gone", "directory", "empty"] {
        fs::remove_file(&file).unwrap();
        match broken {
            "directory" => fs::create_dir(&file).unwrap(),
            "empty" => fs::write(&file, "").unwrap(),
            _ => {}
        }
        server.signal(Signal::SIGHUP);
        server.says("nothing is changed: ");
        if file.is_dir() {
            fs::remove_dir(&file).unwrap();
        }
        fs::write(&file, "").unwrap();
        assert!(echoes(&mut open), "{broken}");
    }

    // Nobody may send any more, who may use the proxy; limits count from the next session on.
    let nobody = both(&bench).replacen(&bench.sender_key, &bench.receiver_key, 1);
    write(&bench, "timeout = \"9s\"", &nobody);
    server.signal(Signal::SIGHUP);
    server.says("`timeout` will count after another start");
    server.says("again");
    let (code, ..) = send(&bench, "b", server.address);
    assert_eq!(code, 4);
    assert!(echoes(&mut open));
    let less = both(&bench).replacen("[recv]", "[recv]\nmax-bytes = \"1k\"", 1);
    write(&bench, "", &less);
    server.signal(Signal::SIGHUP);
    server.says("again");
    let (code, ..) = send(&bench, "c", server.address);
    assert_eq!(code, 1);
    assert!(!into.join("c").exists());

    // Whose key goes is parted from.
    let text = both(&bench).replace(&bench.sender_key, &bench.receiver_key);
    write(&bench, "", &text);
    server.signal(Signal::SIGHUP);
    let end = open.read(&mut [0]).unwrap_err();
    assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    assert_eq!(wait(&mut program).code(), Some(4));
    // A storm of requests ends nothing.
    for _ in 0..200 {
        server.signal(Signal::SIGHUP);
    }
    write(&bench, "", &both(&bench));
    server.signal(Signal::SIGHUP);
    eventually("it takes files again", || {
        send(&bench, "d", server.address).0 == 0
    });
}

#[test]
fn a_service_that_is_to_end_waits_for_files_and_connections_and_tells_its_manager() {
    let (bench, host) = (Bench::new(), echo());
    let manager = UnixDatagram::bind(bench.path("notify")).unwrap();
    let told = || {
        let mut buffer = [0; 300];
        let len = manager.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..len]).into_owned()
    };
    write(&bench, "drain = \"60m\"\nmetrics = \"0\"", &both(&bench));
    let mut command = serve(&bench);
    command.env("NOTIFY_SOCKET", bench.path("notify"));
    let server = Receiver::start(command);
    let metrics = metrics_in(&server.says("metrics at"));
    assert_eq!(told(), "READY=1");
    server.signal(Signal::SIGHUP);
    let said = told();
    assert!(said.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{said}");
    assert!(told().starts_with("STATUS=read "));
    assert_eq!(told(), "READY=1");
    let (mut program, port) = with_socks(&bench, server.address);
    let (mut open, reply) = socks(port, CONNECT, host);
    assert!(reply == 0 && echoes(&mut open));
    let healthy = |status: &str| {
        let answer = http(metrics, b"GET /healthz HTTP/1.1\r\n\r\n");
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
    };
    healthy("200");
    // A file that comes meanwhile, held back by its sender.
    let mut sender = bench.sender();
    sender.args(["--bwlimit", "400k", "--timeout", "60s"]);
    let path = bench.write("slow", 100_000);
    let sender = sender
        .arg(path)
        .arg(server.address.to_string())
        .spawn()
        .unwrap();
    server.says("recv: ");
    server.signal(Signal::SIGTERM);
    assert!(told().starts_with("STOPPING=1\nEXTEND_TIMEOUT_USEC=3605"));
    healthy("503");
    server.says("1 connections and 1 sessions");
    // Others are not taken, and those that are there go on.
    let (code, ..) = send(&bench, "late", server.address);
    assert_ne!(code, 0);
    let (code, report, said) = finish(sender);
    assert_eq!((code, &report["files"]), (0, &Value::from(1)), "{said}");
    assert!(echoes(&mut open));
    drop(open);
    assert_eq!(server.end_code(), Some(143));
    program.kill().unwrap();
    wait(&mut program);
}

#[test]
fn a_log_of_json_has_an_object_for_each_event() {
    let bench = Bench::new();
    write(&bench, "log = \"json\"", &both(&bench));
    let server = Receiver::start_saying(serve(&bench), "to use it");
    // Its address is in the same form.
    let config = fs::read_to_string(bench.path("serve.toml")).unwrap();
    assert!(config.contains("log = \"json\""));
    drop(server);
    let port = UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    write(
        &bench,
        &format!("log = \"json\"\nverbose = true\nlisten = \"{port}\""),
        &both(&bench),
    );
    let server = Receiver::start_saying(serve(&bench), "to use it");
    let (code, ..) = send(&bench, "a", port);
    assert_eq!(code, 0);
    let line = server.says("\"report\"");
    let event: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(event["level"], "INFO");
    assert_eq!(event["section"], "recv");
    assert_eq!(event["peer"], Value::from(bench.sender_key.as_str()));
    assert_eq!(event["status"], "done");
    let report: Value = serde_json::from_str(event["report"].as_str().unwrap()).unwrap();
    assert_eq!(report["files"], 1);

    // Of what is carried it says for whom.
    let (host, nobody) = (echo(), "10.0.0.1:80".parse().unwrap());
    let (mut program, local) = with_socks(&bench, port);
    for (to, status) in [(host, "connected"), (nobody, "forbidden")] {
        let _ = socks(local, CONNECT, to);
        let line = server.says(&format!("\"status\":\"{status}\""));
        let event: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(event["peer"], Value::from(bench.sender_key.as_str()));
        assert_eq!(event["host"], Value::from(to.to_string()));
    }
    program.kill().unwrap();
    wait(&mut program);
}

#[test]
fn a_log_of_json_has_the_key_that_the_service_has_made_for_itself() {
    let bench = Bench::new();
    let text = format!("listen = \"127.0.0.1:0\"\nlog = \"json\"\n{}", both(&bench));
    fs::write(bench.path("serve.toml"), text).unwrap();
    let mut child = serve(&bench).spawn().unwrap();
    let said = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut messages = said.map_while(Result::ok).map(|line| {
        let event: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
        event["message"].as_str().unwrap().to_owned()
    });
    let first = messages.next().unwrap();
    assert!(first.starts_with("made a new key, "), "{first}");
    assert!(messages.any(|message| message.starts_with("to use it")));
    child.kill().unwrap();
    wait(&mut child);
}

#[test]
fn a_log_of_json_has_what_the_service_ends_with() {
    let bench = Bench::new();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let above = format!("log = \"json\"\nlisten = {listen:?}");
    write(&bench, &above, &both(&bench));
    let out = serve(&bench).output().unwrap();
    assert_eq!(out.status.code(), Some(7));
    let said = String::from_utf8(out.stderr).unwrap();
    let last = said.lines().last().unwrap();
    let event: Value = serde_json::from_str(last).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!(event["level"], "ERROR");
    assert!(event["message"].as_str().unwrap().contains(&listen));
}

#[test]
fn files_that_serve_nothing_or_have_mistakes_start_nothing() {
    let bench = Bench::new();
    for (sections, words) in [
        ("", "nothing is to be served"),
        ("[recv]", "[recv] needs output-dir"),
        ("[recv]\noutput-dir = \"in\"", "[recv] needs output-dir"),
        (
            "[prox]",
            "line 4: there is no section [prox]. Did you mean [proxy]?",
        ),
        (
            "[proxy]\nmetrics = 1",
            "line 5: `metrics` belongs above the first section",
        ),
        ("[proxy]\nonce = true", "line 5: there is no setting `once`"),
        ("[proxy]\nmax-streams = 0", "line 5: "),
        (
            "[tun]\naddress = \"10.9.0.0/24\"",
            "line 5: no address for a device",
        ),
        (
            "[tun]\naddress = \"10.9.0.1/24\"",
            "[tun]: `client` is missing",
        ),
        ("[rendezvous]\nlisten = \"x\"", "line 5: not an address"),
        ("[rendezvous]\nrelay-sessions = -1", "line 5: "),
        ("[rendezvous]\nclient = \"x\"", "line 5: "),
        ("[proxy]\n[proxy]", "line 5: "),
    ] {
        write(&bench, "", sections);
        let out = serve(&bench).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{sections:?}: {said}");
        assert!(said.contains(words), "{sections:?}: {said}");
    }
    // One port for two.
    let sections = format!("{}\n[rendezvous]\nlisten = \"5000\"", both(&bench));
    write(&bench, "listen = \"127.0.0.1:5000\"", &sections);
    let out = serve(&bench).arg("--check").output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(
        said.contains("[rendezvous] needs a port of its own"),
        "{said}"
    );
    // A port that is taken, said with what to do.
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    write(&bench, &format!("listen = \"{at}\""), &both(&bench));
    let out = serve(&bench).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(7), "{said}");
    assert!(said.contains("another program has that port"), "{said}");
    // Nothing was made that nobody asked for.
    write(&bench, "", "[recv]");
    let out = serve(&bench).arg("--check").output().unwrap();
    assert_eq!(out.status.code(), Some(2));
}

#[test]
fn a_port_that_the_service_manager_made_counts_instead_of_its_own() {
    let bench = Bench::new();
    // Its own would be taken.
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let listen = format!("listen = \"{}\"", taken.local_addr().unwrap());
    write(&bench, &listen, &both(&bench));
    let port = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = port.local_addr().unwrap();
    // As sd_listen_fds(3) has it: descriptors from 3 on, for the process that is named.
    let passed_as = |sockets: &str, first: OwnedFd| {
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("{sockets} exec \"$0\" serve \"$1\"")])
            .arg(env!("CARGO_BIN_EXE_dfcp"))
            .arg(bench.path("serve.toml"))
            .env("XDG_CONFIG_HOME", bench.path("config"))
            .stdin(first)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        command
    };
    let passed = |sockets: &str| passed_as(sockets, port.try_clone().unwrap().into());
    // More than there is a use for, and fewer than are said.
    for sockets in [
        "exec 3<&0 4<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=2",
        "exec 3<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=2",
    ] {
        let out = passed(sockets).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{sockets}: {said}");
        assert!(said.contains("one ListenDatagram="), "{sockets}: {said}");
    }
    let one = "exec 3<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=1";
    // Nobody could ever come to these.
    for (kind, why) in [
        (socket2::Type::DGRAM, "that of UDP has no port"),
        (socket2::Type::STREAM, "that of TCP does not listen"),
    ] {
        let idle = socket2::Socket::new(socket2::Domain::IPV4, kind, None).unwrap();
        let out = passed_as(one, idle.into()).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains(why), "{said}");
    }
    let server = Receiver::start(passed(one));
    assert_eq!(server.address, at);
    assert_eq!(send(&bench, "a", at).0, 0);
}

#[cfg(target_os = "linux")]
#[test]
fn another_service_begins_at_the_port_of_one_that_ends() {
    let (bench, host) = (Bench::new(), echo());
    let port = |tcp: bool| match tcp {
        true => TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap(),
        false => UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap(),
    };
    let (at, metrics) = (port(false), port(true));
    let above = format!("listen = \"{at}\"\nmetrics = \"{metrics}\"\ndrain = \"60m\"");
    // Where people meet the next one is, too.
    let meet = port(false);
    let meeting = format!("{}\n[rendezvous]\nlisten = \"{meet}\"", both(&bench));
    write(&bench, &above, &meeting);
    let first = Receiver::start(serve(&bench));
    let (mut program, socks_port) = with_socks(&bench, at);
    let (mut open, reply) = socks(socks_port, CONNECT, host);
    assert!(reply == 0 && echoes(&mut open));
    // While it serves nobody else does.
    let out = serve(&bench).output().unwrap();
    assert_eq!(out.status.code(), Some(7));
    assert!(echoes(&mut open));
    first.signal(Signal::SIGTERM);
    first.says("another service may begin");
    let second = Receiver::start(serve(&bench));
    for name in ["a", "b", "c"] {
        let (code, _, said) = send(&bench, name, at);
        assert_eq!(code, 0, "{said}");
        assert!(echoes(&mut open));
    }
    let (mut another, another_port) = with_socks(&bench, at);
    let (mut fresh, reply) = socks(another_port, CONNECT, host);
    assert!(reply == 0 && echoes(&mut fresh) && echoes(&mut open));
    // Once nothing is open the first ends, its client comes to the second, which then tells of itself.
    drop(open);
    assert_eq!(first.end_code(), Some(143));
    eventually("metrics", || TcpStream::connect(metrics).is_ok());
    let page = http(metrics, b"GET /metrics HTTP/1.1\r\n\r\n");
    assert!(page.contains("\ndfcp_recv_files_total 3\n"), "{page}");
    assert!(echoes(&mut fresh));
    eventually("the first client comes back", || {
        let (mut back, reply) = socks(socks_port, CONNECT, host);
        reply == 0 && echoes(&mut back)
    });
    drop(second);
    for client in [&mut program, &mut another] {
        client.kill().unwrap();
        wait(client);
    }
}

#[test]
fn a_sender_whose_key_goes_hears_that_it_is_refused() {
    let bench = Bench::new();
    write(&bench, "verbose = true", &both(&bench));
    let server = Receiver::start(serve(&bench));
    let mut sender = bench.sender();
    // More than it sends before it is parted from.
    let path = bench.write("slow", 10_000_000);
    sender.args(["--bwlimit", "400k"]).arg(path);
    let sender = sender.arg(server.address.to_string()).spawn().unwrap();
    server.says("connected, ");
    let others = both(&bench).replace(&bench.sender_key, &bench.receiver_key);
    write(&bench, "verbose = true", &others);
    server.signal(Signal::SIGHUP);
    let (code, report, _) = finish(sender);
    assert_eq!(code, 4, "{report}");
}
