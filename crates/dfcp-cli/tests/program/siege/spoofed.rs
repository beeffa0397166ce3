//! Packets whose source addresses are not their sender's, over a raw socket from another host: what a receiver sends
//! to those addresses, and whether newcomers get in meanwhile.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use dfcp_proto::published::header::{HEADER_LEN, PseudoHeader, seal};
use dfcp_proto::wire::{CID_LEN, ConnectionId, Syn, emit_sealed_header};
use socket2::{Domain, Protocol, Socket, Type};

use super::raw;
use crate::common::meeting::program_in;
use crate::common::namespace::{Namespace, privileged};
use crate::common::{Bench, Receiver, bytes, eventually, run};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// Both programs' default.
const PORT: u16 = 4433;
const ETHERNET: u64 = 14;

/// An attacker's host, and a server's, whose answers to anybody come by that host.
fn hosts() -> [Namespace; 2] {
    let hosts = [Namespace::new(), Namespace::new()];
    hosts[0].cable(
        ("attacker", "10.9.0.1/24"),
        &hosts[1],
        ("wan", "10.9.0.2/24"),
    );
    hosts[1].run(
        "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.wan.rp_filter=0\n\
         ip route add default via 10.9.0.1",
    );
    // Nobody there answers for those whom packets come from.
    hosts[0].run("ip route add blackhole 198.18.0.0/15");
    hosts
}

/// Packets and their bytes, as of IP, in and out of the server's interface so far.
#[derive(Clone, Copy, Debug)]
struct Carried {
    came: (u64, u64),
    left: (u64, u64),
}

impl Carried {
    fn by(server: &Namespace) -> Self {
        let read = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let text = server.inside(read);
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("wan:"));
        let fields: Vec<u64> = line
            .unwrap()
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect();
        let of = |bytes: u64, packets: u64| (packets, bytes - ETHERNET * packets);
        Self {
            came: of(fields[0], fields[1]),
            left: of(fields[8], fields[9]),
        }
    }

    fn since(self, before: Self) -> Self {
        let less = |now: (u64, u64), then: (u64, u64)| (now.0 - then.0, now.1 - then.1);
        Self {
            came: less(self.came, before.came),
            left: less(self.left, before.left),
        }
    }

    /// Bytes sent for each that came.
    fn amplified(&self) -> f64 {
        self.left.1 as f64 / self.came.1 as f64
    }
}

/// A raw socket of the attacker's host.
struct Forger {
    socket: Socket,
    sent: u32,
}

impl Forger {
    fn at(host: &Namespace) -> Self {
        let open = || {
            let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP)).unwrap();
            socket.set_header_included_v4(true).unwrap();
            socket
        };
        let socket = host.inside(open);
        Self { socket, sent: 0 }
    }

    /// Sends `payload` to the server, from one of 2^17 addresses.
    fn send(&mut self, payload: &[u8]) {
        self.sent += 1;
        // Multiplied by an odd number they come in no order.
        let mixed = self.sent.wrapping_mul(0x9e37_79b1);
        let source = u32::from(Ipv4Addr::new(198, 18, 0, 0)) | mixed >> 15;
        let port = 1024 | (mixed as u16);
        let length = 8 + payload.len() as u16;
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
        packet.extend(source.to_be_bytes());
        packet.extend(SERVER.octets());
        packet.extend([port, PORT, length, 0].map(u16::to_be_bytes).concat());
        packet.extend(payload);
        let to = SocketAddr::from((SERVER, PORT));
        let _ = self.socket.send_to(&packet, &to.into());
    }

    /// Sends each of `packets` to a server that has time for it.
    #[allow(clippy::disallowed_methods)] // a rate is what this is for
    fn trickle(&mut self, packets: &[Vec<u8>]) {
        for packet in packets {
            self.send(packet);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn sealed(bench: &Bench, host: &Namespace) -> Receiver {
    let mut command = program_in(host.place(), &bench.path("receiver"));
    command.args(["recv", "--allow-any", "--key"]);
    command.arg(bench.path("receiver.key")).arg("-o");
    command.arg(bench.path("received"));
    command.stdout(std::process::Stdio::null());
    Receiver::start(command)
}

fn send(bench: &Bench, host: &Namespace) -> Command {
    let mut command = program_in(host.place(), &bench.path("sender"));
    command.args(["send", "--json", "--peer-key", &bench.receiver_key, "--key"]);
    command.arg(bench.path("sender.key"));
    command
}

/// What strangers may send to a sealed port.
fn strange_packets() -> Vec<(&'static str, Vec<u8>)> {
    let mut unknown = Vec::new();
    emit_sealed_header(&mut unknown, ConnectionId([7; CID_LEN]), 1);
    let sealed = |length| {
        let mut packet = unknown.clone();
        packet.resize(length, 0x5a);
        packet
    };
    let (syn, small) = (raw::syn().emit(1400), raw::syn().emit(0));
    let version = Syn {
        version: 0xfe,
        ..raw::syn()
    };
    let mut packets = vec![
        ("SYNs", syn.clone()),
        ("short SYNs", small),
        ("SYNs of another version", version.emit(1400)),
        ("short SYNs of another version", version.emit(0)),
        ("packets of no connection", sealed(1200)),
        ("short packets of no connection", sealed(40)),
        ("one byte", vec![syn[0]]),
    ];
    for size in (92..=1472).step_by(6) {
        packets.push(("SYNs of any size", raw::syn().emit(size)));
    }
    for kind in 0..=255 {
        packets.push(("any first byte", [&[kind], &syn[1..]].concat()));
    }
    packets
}

#[test]
fn addresses_that_did_not_ask_get_no_more_than_came_from_them() {
    privileged("true", || {
        let hosts = hosts();
        let bench = Bench::new();
        let _receiver = sealed(&bench, &hosts[1]);
        let mut forger = Forger::at(&hosts[0]);
        let mut answered = 0;
        let packets = strange_packets();
        for run in packets.chunk_by(|a, b| a.0 == b.0) {
            let name = run[0].0;
            let each = run.iter().map(|(_, packet)| packet.clone()).cycle();
            let packets: Vec<_> = each.take(256).collect();
            let before = Carried::by(&hosts[1]);
            forger.trickle(&packets);
            eventually("it has read them", || is_read(&hosts[1]));
            let carried = Carried::by(&hosts[1]).since(before);
            println!("{name}: {carried:?}, {:.3}", carried.amplified());
            assert!(carried.came.0 >= packets.len() as u64, "{name}");
            assert!(carried.amplified() <= 1.0, "{name}: {carried:?}");
            answered += carried.left.0;
        }
        // They reach it, and it answers.
        assert!(answered > 100, "{answered}");
    });
}

/// Whether nothing waits in the sockets of a host.
fn is_read(host: &Namespace) -> bool {
    let read = || std::fs::read_to_string("/proc/thread-self/net/udp").unwrap();
    let text = host.inside(read);
    let queues = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().nth(4));
    queues.into_iter().all(|queue| queue.ends_with(":00000000"))
}

#[test]
fn newcomers_get_in_while_anybody_seems_to_come() {
    privileged("true", || {
        let hosts = hosts();
        let bench = Bench::new();
        let receiver = sealed(&bench, &hosts[1]);
        let mut forger = Forger::at(&hosts[0]);
        let (syn, over) = (raw::syn().emit(1400), AtomicBool::new(false));
        let before = Carried::by(&hosts[1]);
        let began = Instant::now();
        std::thread::scope(|scope| {
            let flood = scope.spawn(|| {
                while !over.load(Relaxed) {
                    forger.send(&syn);
                }
                forger.sent
            });
            let files = (0..5).map(|i| format!("file{i}"));
            let came = files.map(|name| {
                let file = bench.write(&name, 100_000);
                let start = Instant::now();
                let (code, report, said) =
                    run(send(&bench, &hosts[0]).arg(file).arg(SERVER.to_string()));
                println!("{name} after {:.2} s", start.elapsed().as_secs_f64());
                (name, code, report, said)
            });
            let came: Vec<_> = came.collect();
            over.store(true, Relaxed);
            let sent = flood.join().unwrap();
            for (name, code, report, said) in came {
                assert_eq!(code, 0, "{name}: {report} {said}");
                bench.assert_received(&name, &bytes(&name, 100_000));
            }
            let carried = Carried::by(&hosts[1]).since(before);
            let seconds = began.elapsed().as_secs_f64();
            println!(
                "{sent} SYNs in {seconds:.1} s: {carried:?}, {:.3}",
                carried.amplified()
            );
            assert!(sent > 1000, "{sent} are no flood");
            assert!(carried.amplified() <= 1.0, "{carried:?}");
        });
        drop(receiver);
    });
}

/// The first packet of a client of a published wire, which asks for a connection.
fn published_syn(bench: &Bench) -> Vec<u8> {
    let ear = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut sender = bench.program();
    sender.args(["send", "--profile", "dfcp", "-q"]);
    let file = bench.write("x", 1000);
    let to = ear.local_addr().unwrap().to_string();
    let mut sender = sender.arg(file).arg(to).spawn().unwrap();
    let mut buffer = [0; 2048];
    let n = ear.recv(&mut buffer).unwrap();
    sender.kill().unwrap();
    sender.wait().unwrap();
    buffer[..n].to_vec()
}

/// The same as a packet of any other kind, with payload and without.
fn other_kinds(syn: &[u8]) -> Vec<Vec<u8>> {
    let kinds = (0..=255).filter(|flags| *flags != syn[FLAGS_AT]);
    let of_kind = |flags| {
        let mut packet = syn.to_vec();
        packet[FLAGS_AT] = flags;
        let mut bare = packet[..HEADER_LEN].to_vec();
        seal(&mut packet, &PseudoHeader::Udp);
        seal(&mut bare, &PseudoHeader::Udp);
        [packet, bare]
    };
    kinds.flat_map(of_kind).collect()
}

/// Where the flags of a packet stand (DFCP-J Fig. 2).
const FLAGS_AT: usize = 21;
/// Longer than a server goes on asking a client that does not answer: 1 + 2 + 4 + 8 + 16 + 32 s.
const GIVEN_UP: Duration = Duration::from_secs(64);

#[test]
#[ignore = "takes three minutes"]
fn the_published_wire_sends_three_times_as_much_at_most() {
    privileged("true", || {
        let hosts = hosts();
        let bench = Bench::new();
        let mut command = program_in(hosts[1].place(), &bench.path("receiver"));
        command.args(["recv", "--allow-any", "--profile", "dfcp"]);
        command.args(["--i-own-this-network", "-o"]);
        command.arg(bench.path("received"));
        let at = SocketAddr::from((SERVER, PORT)).to_string();
        let _receiver = Receiver::start({
            command.args(["--listen", &at]);
            command
        });
        let mut forger = Forger::at(&hosts[0]);
        let syn = published_syn(&bench);
        let phases = [
            // Fewer than there may be connections.
            ("SYNs", vec![syn.clone(); 12]),
            ("a flood of SYNs", vec![syn.clone(); 2000]),
            ("other packets", other_kinds(&syn)),
        ];
        for (name, packets) in phases {
            let before = Carried::by(&hosts[1]);
            let start = Instant::now();
            forger.trickle(&packets);
            eventually("it gives up", || start.elapsed() > GIVEN_UP);
            let carried = Carried::by(&hosts[1]).since(before);
            println!("{name}: {carried:?}, {:.3}", carried.amplified());
            assert!(carried.amplified() <= 3.0, "{name}: {carried:?}");
        }
    });
}
