//! A proxy server as a service: its settings in a file, its manager's signals.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::proxying::{CONNECT, echo, echoes, socks, with_socks};
use crate::common::{Bench, Receiver, eventually, wait};
use nix::sys::signal::Signal;

/// Writes what the server is to do beside serving `key`.
fn write(bench: &Bench, key: &str, more: &str) {
    let text = format!(
        "listen = \"127.0.0.1:0\"\nkey = {:?}\nallow = [\"{key}\"]\n{more}\n",
        bench.path("receiver.key")
    );
    fs::write(bench.path("proxy.toml"), text).unwrap();
}

fn serve(bench: &Bench) -> std::process::Command {
    let mut command = bench.program();
    command.args(["proxy", "serve", "--config"]);
    command.arg(bench.path("proxy.toml"));
    command
}

#[test]
fn settings_are_read_anew_and_what_is_open_goes_on() {
    let (bench, host) = (Bench::new(), echo());
    write(&bench, &bench.sender_key, "permit = [\"127.0.0.1/32\"]");
    let server = Receiver::start(serve(&bench));
    let (mut client, port) = with_socks(&bench, server.address);
    let (mut open, reply) = socks(port, CONNECT, host);
    assert!(reply == 0 && echoes(&mut open));

    // Other rules: new connections are refused (RFC 1928 §6, by the rules).
    write(
        &bench,
        &bench.sender_key,
        "permit = [\"127.0.0.2/32\"]\ntimeout = \"9s\"",
    );
    server.signal(Signal::SIGHUP);
    server.says("`timeout` will count after another start");
    server.says("again");
    assert_eq!(socks(port, CONNECT, host).1, 2);
    assert!(echoes(&mut open));

    // A mistake changes nothing, and is told with its line.
    write(&bench, &bench.sender_key, "permitt = [\"all\"]");
    server.signal(Signal::SIGHUP);
    server.says("line 4: there is no setting `permitt`. Did you mean `permit`?");
    assert_eq!(socks(port, CONNECT, host).1, 2);
    assert!(echoes(&mut open));

    // Nor does a file that somebody has begun to write: without a setting each has its default.
    for begun in ["", "# of the proxy\n"] {
        fs::write(bench.path("proxy.toml"), begun).unwrap();
        server.signal(Signal::SIGHUP);
        server.says("it has no settings any more");
        assert_eq!(socks(port, CONNECT, host).1, 2);
        assert!(echoes(&mut open));
    }
    write(&bench, &bench.sender_key, "permitt = [\"all\"]");

    // A key that is not there any more is not served any longer, though nobody else is.
    let text = fs::read_to_string(bench.path("proxy.toml")).unwrap();
    let text = text.replace("permitt", "permit");
    let nobody = text.replace(
        &bench.sender_key,
        &bench.path("config/dfcp/none").display().to_string(),
    );
    fs::write(bench.path("proxy.toml"), nobody).unwrap();
    server.signal(Signal::SIGHUP);
    server.says("nothing is changed: ");
    assert!(echoes(&mut open));
    let list = bench.path("list");
    fs::write(&list, &bench.sender_key).unwrap();
    let listed = text.replace(&bench.sender_key, &list.display().to_string());
    fs::write(bench.path("proxy.toml"), listed).unwrap();
    server.signal(Signal::SIGHUP);
    server.says("again");
    assert!(echoes(&mut open));
    fs::write(&list, "# nobody\n").unwrap();
    server.signal(Signal::SIGHUP);
    server.says("nobody would be served");
    let end = open.read(&mut [0]).unwrap_err();
    assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    assert_eq!(wait(&mut client).code(), Some(4));
}

/// A reader of a pipe waits for whoever writes to it, and a server that does serves nobody.
#[test]
fn a_pipe_in_place_of_a_file_stops_nobody() {
    let (bench, host) = (Bench::new(), echo());
    let list = bench.path("list");
    fs::write(&list, &bench.sender_key).unwrap();
    write(&bench, list.to_str().unwrap(), "permit = [\"all\"]");
    let server = Receiver::start(serve(&bench));
    let (_client, port) = with_socks(&bench, server.address);
    let settings = bench.path("proxy.toml");
    let kept = fs::read(&settings).unwrap();
    let pipe = |path: &std::path::Path| {
        fs::remove_file(path).unwrap();
        nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    };
    pipe(&settings);
    server.signal(Signal::SIGHUP);
    server.says("nothing is changed: ");
    let (mut open, reply) = socks(port, CONNECT, host);
    assert!(reply == 0 && echoes(&mut open));
    fs::remove_file(&settings).unwrap();
    fs::write(&settings, kept).unwrap();
    pipe(&list);
    server.signal(Signal::SIGHUP);
    server.says("is a pipe");
}

#[test]
fn a_server_that_is_to_end_waits_for_what_it_carries() {
    let (bench, host) = (Bench::new(), echo());
    let manager = UnixDatagram::bind(bench.path("notify")).unwrap();
    let told = || {
        let mut buffer = [0; 100];
        let len = manager.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..len]).into_owned()
    };
    let settings = |drain: &str| format!("permit = [\"all\"]\ndrain = \"{drain}\"");
    write(&bench, &bench.sender_key, &settings("1ms"));
    let mut command = serve(&bench);
    command.env("NOTIFY_SOCKET", bench.path("notify"));
    let server = Receiver::start(command);
    assert_eq!(told(), "READY=1");
    // How long it waits is what was read last, and so long the manager is not to kill it.
    write(&bench, &bench.sender_key, &settings("60m"));
    server.signal(Signal::SIGHUP);
    assert!(told().starts_with("RELOADING=1\n"));
    assert_eq!(told(), "READY=1");
    let (mut client, port) = with_socks(&bench, server.address);
    let (mut open, reply) = socks(port, CONNECT, host);
    assert!(reply == 0 && echoes(&mut open));
    server.signal(Signal::SIGTERM);
    assert_eq!(told(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=3605000000");
    server.says("ends when 1 connections have");
    eventually("others are refused", || socks(port, CONNECT, host).1 == 1);
    assert!(echoes(&mut open));
    drop(open);
    assert_eq!(server.end_code(), Some(143));

    // Nobody waits for ever: neither the server, nor who asks again.
    for (drain, signals) in [("1ms", 1), ("60m", 2)] {
        write(&bench, &bench.sender_key, &settings(drain));
        let server = Receiver::start(serve(&bench));
        let (mut another, port) = with_socks(&bench, server.address);
        let (mut open, reply) = socks(port, CONNECT, host);
        assert!(reply == 0 && echoes(&mut open));
        server.signal(Signal::SIGTERM);
        server.says("ends when 1 connections have");
        if signals == 2 {
            server.signal(Signal::SIGTERM);
        }
        assert_eq!(server.end_code(), Some(143));
        let end = open.read(&mut [0]).unwrap_err();
        assert_eq!(end.kind(), ErrorKind::ConnectionReset);
        another.kill().unwrap();
        wait(&mut another);
    }
    client.kill().unwrap();
    wait(&mut client);
}

#[test]
fn files_with_mistakes_start_nothing() {
    let bench = Bench::new();
    for (more, words) in [
        ("rate = \"20X\"", "line 4: unknown suffix"),
        ("\nmetrics = \"x\"", "line 5: not a port"),
        ("allow = [\"nonsense\"]", "line 4: "),
        ("[proxy]", "line 4: there is no setting `proxy`"),
    ] {
        write(&bench, &bench.sender_key, more);
        let out = serve(&bench).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{more}: {said}");
    }
    // A receiver's are its own.
    let text = format!(
        "once = true\noutput-dir = {:?}\npermit = \"all\"\n",
        bench.path("in")
    );
    fs::write(bench.path("recv.toml"), text).unwrap();
    let mut recv = bench.program();
    recv.args(["recv", "--config"]).arg(bench.path("recv.toml"));
    let out = recv.output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(
        said.contains("line 3: there is no setting `permit`"),
        "{said}"
    );
}

#[test]
fn an_option_beside_a_file_of_settings_is_named() {
    let bench = Bench::new();
    write(&bench, &bench.sender_key, "");
    let out = serve(&bench).arg("--listen=127.0.0.1:0").output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("--listen"), "{said}");
}

/// A manager that hears nothing kills the service, and with it all connections.
#[test]
fn a_server_without_open_files_tells_its_manager_that_it_works() {
    let (bench, host) = (Bench::new(), echo());
    let manager = UnixDatagram::bind(bench.path("notify")).unwrap();
    write(&bench, &bench.sender_key, "permit = [\"all\"]");
    let plain = serve(&bench);
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 40 && exec \"$0\" \"$@\""])
        .arg(plain.get_program())
        .args(plain.get_args())
        .env("XDG_CONFIG_HOME", bench.path("config"))
        .env("NOTIFY_SOCKET", bench.path("notify"))
        .env("WATCHDOG_USEC", "20000")
        .stderr(Stdio::piped());
    let server = Receiver::start(command);
    let (mut client, port) = with_socks(&bench, server.address);
    let mut open = Vec::new();
    while let (tcp, 0) = socks(port, CONNECT, host) {
        open.push(tcp);
    }
    server.says("clients are refused connections now");
    // What it said before that.
    manager.set_nonblocking(true).unwrap();
    while manager.recv(&mut [0; 100]).is_ok() {}
    manager.set_nonblocking(false).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    for _ in 0..2 {
        let mut told = [0; 100];
        let len = manager.recv(&mut told).unwrap();
        assert_eq!(&told[..len], b"WATCHDOG=1");
    }
    client.kill().unwrap();
    wait(&mut client);
}
