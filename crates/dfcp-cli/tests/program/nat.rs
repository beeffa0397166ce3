//! Files by a spoken code between hosts behind address translators of the kernel, each in a network
//! namespace. As root, or where user namespaces are allowed; elsewhere, and without `ip` and
//! `iptables`, the tests say that they are skipped.

use crate::common;
use crate::common::meeting::program_in;
use crate::common::meeting::{claim, offer, rendezvous};
use crate::common::namespace::Namespace;
use crate::common::{Bench, bytes, run};

/// The server, on the network between the translators.
const SERVER: &str = "198.51.100.1:4435";

/// What the kernel must be able to do.
const TRANSLATION: &str = "iptables -t nat -A POSTROUTING -j MASQUERADE --random-fully";

/// Runs a test where there are address translators.
fn privileged(test: impl FnOnce()) {
    common::namespace::privileged(TRANSLATION, test);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nat {
    /// Routes only.
    None,
    /// Keeps ports, and lets in from where something was sent to.
    Cone,
    /// A random port for each destination.
    Symmetric,
}

/// Two homes with two hosts each, and a network between them with the server in it.
struct Network {
    internet: Namespace,
    _routers: [Namespace; 2],
    /// Two in the first home, one in the second.
    hosts: [Namespace; 3],
}

impl Network {
    fn new(nats: [Nat; 2]) -> Self {
        let internet = Namespace::new();
        internet.run("echo 1 > /proc/sys/net/ipv4/ip_forward");
        let routers = [1, 2].map(|home: usize| {
            let router = Namespace::new();
            let net = 99 + home;
            router.cable(
                ("wan", &format!("198.51.{net}.2/24")),
                &internet,
                (&format!("home{home}"), &format!("198.51.{net}.1/24")),
            );
            router.run(&format!(
                "echo 1 > /proc/sys/net/ipv4/ip_forward\n\
                 ip route add default via 198.51.{net}.1\n\
                 ip link add lan type bridge\n\
                 ip link set lan up\n\
                 ip addr add 192.168.{home}.1/24 dev lan"
            ));
            match nats[home - 1] {
                Nat::None => internet.run(&format!(
                    "ip route add 192.168.{home}.0/24 via 198.51.{net}.2"
                )),
                nat => {
                    let how = if nat == Nat::Symmetric { "--random-fully" } else { "" };
                    // As home routers do, it answers nothing that nobody inside asked for.
                    router.run(&format!(
                        "iptables -t nat -A POSTROUTING -o wan -j MASQUERADE {how}\n\
                         iptables -A INPUT -i wan -j DROP\n\
                         iptables -A FORWARD -i wan -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n\
                         iptables -A FORWARD -i wan -j DROP"
                    ));
                }
            }
            router
        });
        let hosts = [(1, 2), (1, 3), (2, 2)].map(|(home, host)| {
            let namespace = Namespace::new();
            let (port, address) = (format!("port{host}"), format!("192.168.{home}.{host}/24"));
            let router = &routers[home - 1];
            router.cable((&port, ""), &namespace, ("eth0", &address));
            router.run(&format!("ip link set {port} master lan"));
            namespace.run(&format!("ip route add default via 192.168.{home}.1"));
            namespace
        });
        Self {
            internet,
            _routers: routers,
            hosts,
        }
    }

    /// Sends from the first host to another: exit codes, and where the sender saw the receiver.
    fn transfer(&self, to: usize, relay: &[&str]) -> ([i32; 2], String, String) {
        let bench = Bench::new();
        // Its machine has several addresses: it has to answer from the one that it is asked at.
        let _server = rendezvous(&bench, self.internet.place(), ":4435", relay);
        let named = ["--rendezvous", SERVER, "--no-lan"];
        let file = bench.write("data", 2_000_000);
        let (sender, code) = offer(&bench, self.hosts[0].place(), &named, &file);
        let receiver = claim(&bench, self.hosts[to].place(), &named, &code);
        let (received, report, _) = receiver.end();
        let (sent, report_of_sender, said) = sender.end();
        if received == 0 {
            bench.assert_received("data", &bytes("data", 2_000_000));
        } else {
            assert_eq!(bench.received(), [""; 0], "{report}");
        }
        let remote = report_of_sender["remote"].as_str();
        let remote = remote.unwrap_or_default().to_owned();
        ([sent, received], remote, said)
    }
}

fn assert_direct(network: &Network, to: usize, address: &str) {
    let (exits, remote, said) = network.transfer(to, &["--relay"]);
    assert_eq!(exits, [0, 0]);
    assert!(remote.starts_with(&format!("{address}:")), "{remote}");
    assert!(!said.contains("relay"), "{said}");
}

fn assert_relayed(network: &Network) {
    let (exits, remote, said) = network.transfer(2, &["--relay"]);
    assert_eq!(exits, [0, 0]);
    assert_eq!(remote, SERVER);
    assert!(said.contains("no direct path"), "{said}");
}

#[test]
fn two_cone_translators_are_punched_through() {
    privileged(|| {
        let network = Network::new([Nat::Cone, Nat::Cone]);
        assert_direct(&network, 2, "198.51.101.2");
    });
}

#[test]
fn one_translator_of_any_kind_is_no_hindrance() {
    privileged(|| {
        for nats in [[Nat::Symmetric, Nat::None], [Nat::Cone, Nat::None]] {
            let network = Network::new(nats);
            assert_direct(&network, 2, "192.168.2.2");
        }
    });
}

#[test]
fn behind_one_translator_the_two_talk_at_home() {
    privileged(|| {
        let network = Network::new([Nat::Symmetric, Nat::Cone]);
        assert_direct(&network, 1, "192.168.1.3");
    });
}

#[test]
fn between_symmetric_translators_data_are_relayed() {
    privileged(|| {
        assert_relayed(&Network::new([Nat::Symmetric, Nat::Symmetric]));
    });
}

#[test]
fn between_a_symmetric_translator_and_a_strict_one_data_are_relayed() {
    privileged(|| {
        assert_relayed(&Network::new([Nat::Cone, Nat::Symmetric]));
    });
}

#[test]
fn without_a_relay_both_are_told_what_to_do() {
    privileged(|| {
        let network = Network::new([Nat::Symmetric, Nat::Symmetric]);
        let (exits, _, said) = network.transfer(2, &[]);
        assert_eq!(exits, [5, 5]);
        assert!(said.contains("dfcp rendezvous --relay"), "{said}");
    });
}

#[test]
fn a_relay_that_carries_too_little_is_not_begun_with() {
    privileged(|| {
        let network = Network::new([Nat::Symmetric, Nat::Symmetric]);
        // A file of 2 MB takes some more on the way.
        for bytes in ["1M", "2M"] {
            let relay = ["--relay", "--relay-bytes", bytes];
            let (exits, _, said) = network.transfer(2, &relay);
            assert_eq!(exits, [5, 5]);
            assert!(said.contains("--relay-bytes"), "{said}");
        }
    });
}

#[test]
fn on_one_local_network_no_server_is_needed() {
    privileged(|| {
        let network = Network::new([Nat::Cone, Nat::Cone]);
        let bench = Bench::new();
        let file = bench.write("data", 2_000_000);
        let (mut sender, code) = offer(&bench, network.hosts[0].place(), &[], &file);
        sender.says("only the local network");
        let receiver = claim(&bench, network.hosts[1].place(), &[], &code);
        let (received, report, said) = receiver.end();
        assert_eq!(received, 0, "{report}");
        assert!(said.contains("only the local network"), "{said}");
        assert_eq!(sender.end().0, 0);
        bench.assert_received("data", &bytes("data", 2_000_000));
        // Of a code that was used nobody here knows any more.
        let (exit, report, _) = claim(&bench, network.hosts[1].place(), &[], &code).end();
        assert_eq!(exit, 5, "{report}");
        // From elsewhere nobody is found, and the words say what would help.
        let (_sender, code) = offer(&bench, network.hosts[0].place(), &[], &file);
        let (exit, report, _) = claim(&bench, network.hosts[2].place(), &[], &code).end();
        assert_eq!(exit, 5, "{report}");
        let message = report["error"]["message"].as_str().unwrap();
        assert!(message.contains("dfcp rendezvous"), "{message}");
    });
}

#[test]
fn without_a_network_it_is_said_and_what_runs_on_the_machine_is_found() {
    common::namespace::privileged("true", || {
        let bench = Bench::new();
        let machine = Namespace::new();
        let file = bench.write("x", 1000);
        let nowhere = ["--rendezvous", "192.0.2.1"];
        let (sender, code) = offer(&bench, machine.place(), &nowhere, &file);
        let claim = claim(&bench, machine.place(), &nowhere, &code);
        for process in [claim, sender] {
            let (code, _, said) = process.end();
            assert!(code == 0 && said.contains("has no network:"), "{said}");
            assert!(
                said.contains("no route") && said.contains("local network is left"),
                "{said}"
            );
        }
        let mut receive = program_in(machine.place(), &bench.path("receiver"));
        receive
            .args(["recv", "--json", "7-otter-lamp", "--no-lan"])
            .args(nowhere);
        let (code, report, _) = run(receive.arg("-o").arg(bench.path("none")));
        let message = report["error"]["message"].as_str().unwrap();
        assert!(code == 5 && message.contains("no route"), "{report}");
    });
}
