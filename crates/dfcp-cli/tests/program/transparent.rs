//! Connections that the kernel's firewall leads to a client, between network namespaces. As root, or where
//! user namespaces are allowed; elsewhere, and without `ip` and `iptables`, the tests say that they are
//! skipped.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use crate::common::meeting::program_in;
use crate::common::namespace::{Namespace, privileged};
use crate::common::{Bench, Receiver, bytes, eventually};

/// What the kernel must be able to do.
const REDIRECT: &str = "iptables -t nat -A PREROUTING -p tcp -j REDIRECT --to-ports 1081 && \
     ip6tables -t nat -A PREROUTING -p tcp -j REDIRECT --to-ports 1081";
const TPROXY: &str = "iptables -t mangle -A PREROUTING -p tcp -j TPROXY --on-ip 127.0.0.1 --on-port 1082 && \
     ip6tables -t mangle -A PREROUTING -p tcp -j TPROXY --on-ip ::1 --on-port 1082";

/// The host that programs want: addresses that only the server's side has.
const HOST: [&str; 2] = ["10.99.0.1:80", "[fd99::1]:80"];

/// One of UDP there.
const UDP_HOST: [&str; 2] = ["10.99.0.1:53", "[fd99::1]:53"];

/// A program's machine, its router with the client, and the far side, whose server reaches the host.
/// Nothing is routed from one end to the other.
struct Network {
    program: Namespace,
    router: Namespace,
    far: Namespace,
    server: Receiver,
    bench: Bench,
}

impl Network {
    fn new() -> Self {
        let (program, router, far) = (Namespace::new(), Namespace::new(), Namespace::new());
        program.cable(("eth0", "10.1.0.2/24"), &router, ("lan", "10.1.0.1/24"));
        router.cable(("wan", "10.2.0.1/24"), &far, ("eth0", "10.2.0.2/24"));
        program.run(
            "ip route add default via 10.1.0.1\n\
             ip addr add fd01::2/64 dev eth0 nodad\n\
             ip -6 route add default via fd01::1",
        );
        // It has no route to the host, nor by default.
        router.run("ip addr add fd01::1/64 dev lan nodad");
        far.run("ip addr add 10.99.0.1/32 dev lo\nip addr add fd99::1/128 dev lo nodad");
        far.inside(|| {
            for host in UDP_HOST {
                let socket = UdpSocket::bind(host).unwrap();
                std::thread::spawn(move || {
                    let mut buffer = [0; 10_000];
                    while let Ok((len, from)) = socket.recv_from(&mut buffer) {
                        let _ = socket.send_to(&buffer[..len], from);
                    }
                });
            }
            for host in HOST {
                let listener = TcpListener::bind(host).unwrap();
                std::thread::spawn(move || {
                    for mut tcp in listener.incoming().map_while(Result::ok) {
                        let page = bytes("page", 100_000);
                        std::thread::spawn(move || {
                            let asked = tcp.read_exact(&mut [0; 3]);
                            asked.and_then(|()| tcp.write_all(&page))
                        });
                    }
                });
            }
        });
        let bench = Bench::new();
        let mut serve = program_in(far.place(), &bench.path(""));
        serve
            .args(["proxy", "serve", "--listen", "10.2.0.2:0", "--allow"])
            .args([&bench.sender_key, "--permit", "all", "--key"])
            .arg(bench.path("receiver.key"));
        let server = Receiver::start(serve);
        Self {
            program,
            router,
            far,
            server,
            bench,
        }
    }

    /// A client on the router.
    fn client(&self, args: &[&str]) -> Receiver {
        let mut command = program_in(self.router.place(), &self.bench.path(""));
        command
            .args([
                "proxy",
                "-v",
                "--peer-key",
                &self.bench.receiver_key,
                "--key",
            ])
            .arg(self.bench.path("sender.key"))
            .args(args)
            .arg(self.server.address.to_string());
        Receiver::start_saying(command, "taking ")
    }
}

/// Whether a program in `place` gets the host's page.
fn gets_page(place: &Namespace, host: &'static str) -> bool {
    place.inside(move || {
        let mut heard = Vec::new();
        let got = TcpStream::connect(host).and_then(|mut tcp| {
            tcp.write_all(b"GET")?;
            tcp.read_to_end(&mut heard)
        });
        got.is_ok() && heard == bytes("page", 100_000)
    })
}

/// Whether a connection ends without a byte.
fn is_turned_away(place: &Namespace, at: &'static str) -> bool {
    place.inside(move || {
        let mut tcp = TcpStream::connect(at).unwrap();
        !matches!(tcp.read(&mut [0]), Ok(1))
    })
}

/// Whether a program in `place` hears its datagrams back, from the host that it sent them to.
fn hears_echo(place: &Namespace, host: &'static str, len: usize, tries: usize) -> bool {
    place.inside(move || {
        let any = if host.starts_with('[') {
            "[::]:0"
        } else {
            "0.0.0.0:0"
        };
        let socket = UdpSocket::bind(any).unwrap();
        // Of another address nothing would be heard.
        socket.connect(host).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(500)))
            .unwrap();
        let (sent, mut heard) = (bytes("datagram", len), [0; 10_000]);
        // They may be lost.
        (0..tries).any(|_| {
            let got = socket.send(&sent).and_then(|_| socket.recv(&mut heard));
            got.is_ok_and(|got| heard[..got] == sent)
        })
    })
}

#[test]
fn datagrams_of_tproxy_are_answered_by_the_hosts_that_they_were_for() {
    privileged(TPROXY, || {
        let network = Network::new();
        let _client = network.client(&["--tproxy", "1082/udp", "--tproxy", "*:1083/udp"]);
        for (command, ip, all, on) in [
            (
                "iptables",
                "ip",
                "0.0.0.0/0",
                "--on-ip 127.0.0.1 --on-port 1082",
            ),
            ("ip6tables", "ip -6", "::/0", "--on-port 1083"),
        ] {
            network.router.run(&format!(
                "{ip} rule add fwmark 1 lookup 100\n\
                 {ip} route add local {all} dev lo table 100\n\
                 {command} -t mangle -A PREROUTING -i lan -p udp -j TPROXY {on} --tproxy-mark 1"
            ));
        }
        for host in UDP_HOST {
            for len in [1, 1200, 9000] {
                assert!(
                    hears_echo(&network.program, host, len, 20),
                    "{host}: {len} bytes"
                );
            }
        }
        // What is for the router itself goes nowhere, and harms nobody.
        assert!(!hears_echo(&network.program, "10.1.0.1:1082", 100, 1));
        assert!(hears_echo(&network.program, UDP_HOST[0], 100, 20));
    });
}

#[test]
fn redirected_connections_go_where_they_were_going() {
    privileged(REDIRECT, || {
        let network = Network::new();
        assert!(!gets_page(&network.far, "10.99.0.2:80"));
        // Its own programs want one.
        network.router.run(
            "ip route add default dev wan\n\
             ip -6 route add default dev wan",
        );
        let client = network.client(&[
            "--redirect",
            "*:1081",
            "--redirect",
            "1083",
            "--redirect",
            "[::1]:1083",
        ]);
        for command in ["iptables", "ip6tables"] {
            // What passes through the router, and what programs on it do, but for what is local.
            network.router.run(&format!(
                "{command} -t nat -A PREROUTING -i lan -p tcp -m addrtype ! --dst-type LOCAL \
                 -j REDIRECT --to-ports 1081\n\
                 {command} -t nat -A OUTPUT -p tcp -m addrtype ! --dst-type LOCAL \
                 -j REDIRECT --to-ports 1083"
            ));
        }
        for host in HOST {
            assert!(gets_page(&network.program, host), "{host}");
            assert!(gets_page(&network.router, host), "{host} from the router");
        }
        // Nobody is led in a circle, and what is here is not looked for there.
        for at in ["10.1.0.1:1081", "[fd01::1]:1081"] {
            assert!(is_turned_away(&network.program, at), "{at}");
            client.says("which is here");
        }
        assert!(gets_page(&network.program, HOST[0]));
    });
}

#[test]
fn connections_of_tproxy_go_where_they_were_going() {
    privileged(TPROXY, || {
        let network = Network::new();
        let client = network.client(&["--tproxy", "1082", "--tproxy", "[::1]:1082"]);
        for (command, ip, on, all) in [
            ("iptables", "ip", "127.0.0.1", "0.0.0.0/0"),
            ("ip6tables", "ip -6", "::1", "::/0"),
        ] {
            network.router.run(&format!(
                "{ip} rule add fwmark 1 lookup 100\n\
                 {ip} route add local {all} dev lo table 100\n\
                 {command} -t mangle -A PREROUTING -i lan -p tcp -j TPROXY --on-ip {on} --on-port 1082 \
                 --tproxy-mark 1"
            ));
        }
        for host in HOST {
            assert!(gets_page(&network.program, host), "{host}");
        }
        assert!(is_turned_away(&network.program, "10.1.0.1:22"));
        client.says("it was going to 10.1.0.1:22, which is here");
        // The port itself is for nobody.
        assert!(is_turned_away(&network.router, "127.0.0.1:1082"));
        client.says("which is here");
        eventually("it goes on", || gets_page(&network.program, HOST[0]));
    });
}
