//! IP links between hosts, each a network namespace, over a path that loses packets. As root, or where
//! user namespaces are allowed; elsewhere, and without `ip` and `iptables`, the tests say that they are
//! skipped.

mod service;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use crate::common;
use crate::common::meeting::{Process, program_in};
use crate::common::namespace::Namespace;
use crate::common::{Bench, bytes};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// What the kernel must be able to do.
const ABLE: &str = "ip tuntap add dev able mode tun && iptables -A INPUT -m statistic --mode random \
                    --probability 0.05 -j DROP";

fn privileged(test: impl FnOnce()) {
    common::namespace::privileged(ABLE, test);
}

/// Two sites on a cable.
struct Sites {
    bench: Bench,
    near: Namespace,
    far: Namespace,
}

impl Sites {
    /// Of what comes on either side, so much is lost.
    fn new(loss: f64) -> Self {
        let (near, far) = (Namespace::new(), Namespace::new());
        near.cable(("eth0", "192.0.2.1/24"), &far, ("eth0", "192.0.2.2/24"));
        if loss > 0.0 {
            for site in [&near, &far] {
                site.run(&format!(
                    "iptables -A INPUT -i eth0 -m statistic --mode random --probability {loss} -j DROP"
                ));
            }
        }
        let bench = Bench::new();
        Self { bench, near, far }
    }

    fn command(&self, site: &Namespace, key: &str, args: &[&str]) -> Command {
        let mut command = program_in(site.place(), &self.bench.path("home"));
        command.arg("tun").args(args);
        command.arg("--key").arg(self.bench.path(key));
        command
    }

    fn server(&self, args: &[&str]) -> Process {
        let client = format!("{}=10.9.0.2,fd09::2", self.bench.sender_key);
        let own = [
            "serve",
            "--address",
            "10.9.0.1/24",
            "--address",
            "fd09::1/64",
        ];
        let args = [&own[..], &["--client", &client], args].concat();
        let mut server = Process::start("server", self.command(&self.far, "receiver.key", &args));
        server.says("listening on");
        server
    }

    fn connect(&self, args: &[&str]) -> Command {
        let own = [
            "connect",
            "192.0.2.2",
            "--address",
            "10.9.0.2/24",
            "--address",
            "fd09::2/64",
        ];
        let known = ["--peer-key", &self.bench.receiver_key];
        self.command(&self.near, "sender.key", &[&own[..], &known, args].concat())
    }

    fn client(&self, args: &[&str]) -> Process {
        let mut client = Process::start("client", self.connect(args));
        client.says("connected to");
        client
    }

    /// Has the far site say back what it hears at a port of UDP.
    fn echo(&self) {
        echo(&self.far, "[::]:7");
    }

    /// A socket of the near site.
    fn asker(&self, own: &str, far: &str) -> UdpSocket {
        let socket = self.near.inside(|| UdpSocket::bind(own).unwrap());
        socket.connect(far).unwrap();
        let patience = Duration::from_millis(300);
        socket.set_read_timeout(Some(patience)).unwrap();
        socket
    }
}

/// Has a site say back what it hears at an address.
fn echo(site: &Namespace, at: &str) {
    let socket = site.inside(|| UdpSocket::bind(at).unwrap());
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..len], from);
        }
    });
}

/// Whether what is sent comes back.
fn is_answered(socket: &UdpSocket, number: u32, len: usize) -> bool {
    let mut question = number.to_be_bytes().to_vec();
    question.resize(len, 7);
    // A path that has just become narrower refuses once.
    if socket.send(&question).is_err() {
        return false;
    }
    let mut heard = [0; 2048];
    while let Ok(len) = socket.recv(&mut heard) {
        if heard[..len] == question {
            return true;
        }
    }
    false
}

fn until_answered(socket: &UdpSocket) {
    assert!(
        (0..100).any(|i| is_answered(socket, i, 100)),
        "no way through the link"
    );
}

/// A file over TCP from the near to the far site.
fn transfer(sites: &Sites, size: usize) {
    let listener = sites
        .far
        .inside(|| TcpListener::bind("10.9.0.1:80").unwrap());
    let sent = bytes("file", size);
    let content = sent.clone();
    let sender = std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            got
        });
        let mut stream = sites
            .near
            .inside(|| TcpStream::connect("10.9.0.1:80").unwrap());
        stream.write_all(&content).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        reader.join().unwrap()
    });
    assert!(sender == sent, "not what was sent");
}

#[test]
fn packets_cross_a_path_that_loses_many() {
    privileged(|| {
        let sites = Sites::new(0.05);
        let (_server, _client) = (sites.server(&[]), sites.client(&[]));
        sites.echo();
        for (own, far) in [("10.9.0.2:0", "10.9.0.1:7"), ("[fd09::2]:0", "[fd09::1]:7")] {
            let asker = sites.asker(own, far);
            until_answered(&asker);
            // Until losses are known, nothing is repaired.
            for i in 0..100 {
                is_answered(&asker, i, 100);
            }
            let lost = (0..400)
                .filter(|&i| !is_answered(&asker, 1000 + i, 900))
                .count();
            // Without the link every tenth, about 39, would go unanswered.
            assert!(lost <= 4, "{far}: {lost} of 400 lost");
        }
        transfer(&sites, 20_000_000);
    });
}

#[test]
fn a_client_has_its_own_addresses_only() {
    privileged(|| {
        let sites = Sites::new(0.0);
        let (mut server, client) = (sites.server(&["-v"]), sites.client(&[]));
        sites.echo();
        until_answered(&sites.asker("10.9.0.2:0", "10.9.0.1:7"));
        sites.near.run("ip addr add 10.9.0.77/24 dev dfcp0");
        let forger = sites.asker("10.9.0.77:0", "10.9.0.1:7");
        assert!((0..3).all(|i| !is_answered(&forger, i, 100)));
        until_answered(&sites.asker("10.9.0.2:0", "10.9.0.1:7"));
        drop(client);
        // Its connection ends by silence: it was killed.
        signal(&server, Signal::SIGTERM);
        server.says("the peer's");
    });
}

#[test]
fn a_key_that_no_client_has_is_told_at_the_server() {
    privileged(|| {
        let sites = Sites::new(0.0);
        let mut server = sites.server(&[]);
        let stranger = ["connect", "192.0.2.2", "--address", "10.9.0.3/24"];
        let known = ["--peer-key", &sites.bench.receiver_key];
        let args = [&stranger[..], &known].concat();
        let mut client = sites.command(&sites.near, "receiver.key", &args);
        let ended = client.output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(4), "{said}");
        let line = server.says("no --client names it");
        assert!(
            line.contains(&format!("refused {}", sites.bench.receiver_key)),
            "{line}"
        );
    });
}

#[test]
fn a_server_that_was_restarted_is_found_again() {
    privileged(|| {
        let sites = Sites::new(0.0);
        let server = sites.server(&[]);
        let mut client = sites.client(&[]);
        sites.echo();
        let asker = sites.asker("10.9.0.2:0", "10.9.0.1:7");
        until_answered(&asker);
        drop(server);
        let _server = sites.server(&[]);
        client.says("lost");
        client.says("connected to");
        // The same socket: the device and its address have stayed.
        until_answered(&asker);
    });
}

#[test]
fn a_narrow_path_carries_packets_of_ipv6_in_two_datagrams() {
    privileged(|| {
        let sites = Sites::new(0.0);
        for site in [&sites.near, &sites.far] {
            site.run("ip link set eth0 mtu 1300");
        }
        let (_server, _client) = (sites.server(&[]), sites.client(&[]));
        sites.echo();
        let asker = sites.asker("[fd09::2]:0", "[fd09::1]:7");
        until_answered(&asker);
        // 1280 bytes of IPv6, which a datagram of 1300 does not hold.
        let longest = 1280 - 40 - 8;
        assert!((0..10).any(|i| is_answered(&asker, i, longest)));
        transfer(&sites, 1_000_000);
    });
}

#[test]
fn two_clients_reach_each_other_through_their_server() {
    privileged(|| {
        let sites = Sites::new(0.0);
        let third = Namespace::new();
        third.cable(
            ("eth0", "192.0.3.1/24"),
            &sites.far,
            ("eth1", "192.0.3.2/24"),
        );
        sites.far.run("echo 1 > /proc/sys/net/ipv4/ip_forward");
        let key = sites.bench.path("third.key");
        let made = sites
            .bench
            .program()
            .args(["keygen", "--out"])
            .arg(&key)
            .output()
            .unwrap();
        let public = String::from_utf8(made.stdout).unwrap();
        let client = format!("{}=10.9.0.3,10.3.0.0/16", public.trim());
        let mut server = sites.server(&["--client", &client]);
        let _near = sites.client(&["--route", "10.3.0.0/16"]);
        let args = [
            "connect",
            "192.0.3.2",
            "--address",
            "10.9.0.3/24",
            "--peer-key",
        ];
        let args = [&args[..], &[&sites.bench.receiver_key]].concat();
        let mut other = Process::start("third", sites.command(&third, "third.key", &args));
        other.says("connected to");
        server.says("192.0.3.1");
        // What is behind the client: the server routes it there by itself.
        third.run("ip addr add 10.3.0.1/16 dev lo");
        for at in ["10.9.0.3:7", "10.3.0.1:7"] {
            echo(&third, at);
            until_answered(&sites.asker("10.9.0.2:0", at));
        }
    });
}

#[test]
fn a_device_that_is_deleted_ends_its_program() {
    privileged(|| {
        let sites = Sites::new(0.0);
        let (_server, mut client) = (sites.server(&[]), sites.client(&[]));
        // Switched off and on it goes on.
        sites.near.run("ip link set dfcp0 down\nip link set dfcp0 up\nip -6 addr add fd09::2/64 dev dfcp0 nodad");
        sites.echo();
        until_answered(&sites.asker("10.9.0.2:0", "10.9.0.1:7"));
        sites.near.run("ip link del dfcp0");
        client.says("the device is gone");
    });
}

fn signal(process: &Process, signal: Signal) {
    kill(Pid::from_raw(process.id()), signal).unwrap();
}

/// Exit code and what was said.
fn outcome(command: &mut Command) -> (i32, String) {
    let mut child = command.spawn().unwrap();
    let status = common::wait(&mut child);
    let output = child.wait_with_output().unwrap();
    (
        status.code().unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn what_is_wrong_is_said() {
    privileged(|| {
        let sites = Sites::new(0.0);
        sites
            .near
            .run("ip link add taken type dummy 2>/dev/null || ip link add taken type veth");
        let _server = sites.server(&[]);
        let key = sites.bench.receiver_key.clone();
        for (mut command, code, said) in [
            (
                sites.connect(&["--name", "taken"]),
                7,
                "device taken already",
            ),
            (sites.connect(&["--name", "a/b"]), 2, "cannot be called"),
            (
                sites.connect(&["--route", "10.1.2.3/16"]),
                2,
                "--route 10.1.0.0/16",
            ),
            (
                sites.connect(&["--route", "192.0.2.2/32"]),
                2,
                "leads into the link",
            ),
            (sites.connect(&["--address", "192.0.2.1/24"]), 7, "eth0"),
            (
                sites.command(
                    &sites.near,
                    "receiver.key",
                    &[
                        "connect",
                        "192.0.2.2",
                        "--peer-key",
                        &key,
                        "--address",
                        "10.9.0.2/24",
                    ],
                ),
                4,
                "--client dfcp-pub-",
            ),
        ] {
            let (found, words) = outcome(&mut command);
            assert_eq!(found, code, "{words}");
            assert!(words.contains(said), "{words}");
        }
        let foreign = sites.command(
            &sites.near,
            "sender.key",
            &[
                "connect",
                "192.0.2.2",
                "--peer-key",
                &key,
                "--address",
                "10.9.0.3/24",
            ],
        );
        Process::start("client", foreign).says("drops packets from 10.9.0.3");
    });
}
