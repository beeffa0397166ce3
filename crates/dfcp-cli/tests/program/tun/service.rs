//! Links of `dfcp serve`, beside files and a proxy.

use std::process::Command;

use super::{Sites, is_answered, outcome, privileged, signal, transfer, until_answered};
use crate::common::meeting::{Process, program_in};
use crate::common::proxying::{self, CONNECT, echoes, http, port_in, socks};
use crate::common::{eventually, run};
use nix::sys::signal::Signal;

/// Where the far site's `dfcp serve` listens, and tells of itself there.
const SERVICE: &str = "192.0.2.2:4433";
const METRICS: &str = "127.0.0.1:9433";

impl Sites {
    /// Writes the settings of a service of files, a proxy and links for these clients, and of what is named
    /// beside these in each.
    fn settings(&self, clients: &[String], above: &str, tun: &str) {
        let (key, into) = (&self.bench.sender_key, self.bench.path("received"));
        let text = format!(
            "listen = {SERVICE:?}\nkey = {:?}\n{above}\n\
             [recv]\noutput-dir = {into:?}\nallow = [\"{key}\"]\n\
             [proxy]\nallow = [\"{key}\"]\npermit = [\"127.0.0.1/32\"]\n\
             [tun]\nclient = {clients:?}\n{tun}\n",
            self.bench.path("receiver.key"),
        );
        std::fs::write(self.bench.path("serve.toml"), text).unwrap();
    }

    /// The near site, as a client of a link has it.
    fn near_as_client(&self) -> String {
        format!("{}=10.9.0.2,fd09::2", self.bench.sender_key)
    }

    fn service(&self) -> Command {
        let mut command = program_in(self.far.place(), &self.bench.path("home"));
        command.arg("serve").arg(self.bench.path("serve.toml"));
        command
    }

    fn serve(&self, clients: &[String], above: &str) -> Process {
        let tun = "address = [\"10.9.0.1/24\", \"fd09::1/64\"]";
        self.settings(clients, above, tun);
        let mut service = Process::start("service", self.service());
        service.says("device dfcp0 with 10.9.0.1/24, fd09::1/64");
        service.says("listening on 192.0.2.2:4433");
        service
    }

    /// Sends a file from the near site; the exit code.
    fn send(&self, name: &str) -> i32 {
        let path = self.bench.write(name, 100_000);
        let mut command = program_in(self.near.place(), &self.bench.path("home"));
        command
            .args(["send", "--json", "--peer-key", &self.bench.receiver_key])
            .arg("--key")
            .arg(self.bench.path("sender.key"))
            .arg(path)
            .arg(SERVICE);
        run(&mut command).0
    }

    /// The near site's client of the proxy, and its port.
    fn proxied(&self) -> (Process, std::net::SocketAddr) {
        let mut command = program_in(self.near.place(), &self.bench.path("home"));
        command
            .args(["proxy", "--socks", "0", "--fast-open=never", SERVICE])
            .args(["--peer-key", &self.bench.receiver_key, "--key"])
            .arg(self.bench.path("sender.key"));
        let mut client = Process::start("proxy", command);
        let port = port_in(&client.says("SOCKS5"));
        (client, port)
    }
}

#[test]
fn one_service_has_files_a_proxy_and_links() {
    privileged(|| {
        let sites = Sites::new(0.0);
        let host = sites.far.inside(proxying::echo);
        let (own, other) = (
            sites.near_as_client(),
            format!("{}=10.9.0.3", sites.bench.receiver_key),
        );
        let above = format!("metrics = {METRICS:?}");
        let mut service = sites.serve(std::slice::from_ref(&own), &above);
        let invited = service.says("tun: for dfcp-pub-");
        assert!(
            invited.ends_with("--address 10.9.0.2/24 --address fd09::2/64"),
            "{invited}"
        );
        let mut client = sites.client(&[]);
        sites.echo();
        let asker = sites.asker("10.9.0.2:0", "10.9.0.1:7");
        until_answered(&asker);
        transfer(&sites, 3_000_000);
        assert_eq!(sites.send("a"), 0);
        let (_proxy, port) = sites.proxied();
        let (mut open, reply) = sites.near.inside(|| socks(port, CONNECT, host));
        assert!(reply == 0 && echoes(&mut open));
        let metrics = METRICS.parse().unwrap();
        let page = sites
            .far
            .inside(|| http(metrics, b"GET /metrics HTTP/1.1\r\n\r\n"));
        let connected = format!(
            "dfcp_tun_connected{{peer=\"{}\"}} 1",
            sites.bench.sender_key
        );
        assert!(page.contains(&connected), "{page}");
        proxying::check_documented(&page);

        // Who is new has an address when the service starts again; all else goes on.
        let tun = "address = [\"10.9.0.1/24\", \"fd09::1/64\"]";
        sites.settings(&[own, other.clone()], &above, tun);
        signal(&service, Signal::SIGHUP);
        service.says("`[tun]` will count after another start");
        service.says("again");
        until_answered(&asker);
        assert!(echoes(&mut open));
        // A mistake in the list changes nothing.
        sites.settings(&["dfcp-pub-x=10.9.0.2".to_owned()], &above, tun);
        signal(&service, Signal::SIGHUP);
        service.says("nothing is changed: ");
        until_answered(&asker);
        // Whose key goes is parted from, and keeps what else it may.
        sites.settings(&[other], &above, tun);
        signal(&service, Signal::SIGHUP);
        client.says("the server does not take this key");
        assert!(echoes(&mut open));
        assert_eq!(sites.send("b"), 0);
        assert!(!is_answered(&asker, 1, 100));
    });
}

#[test]
fn a_service_that_ends_carries_its_links_as_long_as_it_waits() {
    privileged(|| {
        let sites = Sites::new(0.0);
        let host = sites.far.inside(proxying::echo);
        let own = [sites.near_as_client()];
        let mut service = sites.serve(&own, "drain = \"60m\"");
        let mut client = sites.client(&[]);
        sites.echo();
        let asker = sites.asker("10.9.0.2:0", "10.9.0.1:7");
        until_answered(&asker);
        let (_proxy, port) = sites.proxied();
        let (mut open, reply) = sites.near.inside(|| socks(port, CONNECT, host));
        assert!(reply == 0 && echoes(&mut open));
        signal(&service, Signal::SIGTERM);
        service.says("ends when 1 connections and 0 sessions have");
        until_answered(&asker);
        assert!(echoes(&mut open));
        assert_ne!(sites.send("late"), 0);
        // With the last connection it ends, and its device goes.
        drop(open);
        client.says("lost");
        eventually("the device is gone", || {
            let devices = sites
                .far
                .inside(|| std::fs::read_to_string("/proc/net/dev"));
            !devices.unwrap().contains("dfcp0")
        });
        // The next one has the same address, and the client comes by itself.
        let _again = sites.serve(&own, "");
        client.says("connected to");
        until_answered(&asker);
    });
}

#[test]
fn a_service_that_has_no_device_does_not_start_and_leaves_nothing() {
    privileged(|| {
        let sites = Sites::new(0.0);
        sites.far.run("ip tuntap add dev taken mode tun");
        let own = [sites.near_as_client()];
        let fine = "address = \"10.9.0.1/24\"";
        for (tun, code, words) in [
            (
                "name = \"taken\"\naddress = \"10.9.0.1/24\"",
                7,
                "there is a device taken already",
            ),
            (
                "address = \"192.0.2.2/24\"",
                7,
                "eth0 of this machine has the address 192.0.2.2 already",
            ),
            ("address = \"10.9.0.0/24\"", 2, "it is the network's own"),
            (
                "address = [\"10.9.0.1/24\", \"fd09::1/64\"]\nmtu = 576",
                2,
                "IPv6 needs packets of 1280 bytes",
            ),
        ] {
            sites.settings(&own, "", tun);
            let (found, said) = outcome(&mut sites.service());
            assert_eq!(found, code, "{tun}: {said}");
            assert!(said.contains(words), "{tun}: {said}");
        }
        // Two clients with one network.
        let twice = [
            own[0].clone(),
            format!("{}=10.9.0.2", sites.bench.receiver_key),
        ];
        sites.settings(&twice, "", fine);
        let (found, said) = outcome(&mut sites.service());
        assert!(
            found == 2 && said.contains("belongs to two clients"),
            "{found}: {said}"
        );
        // Without the right to make devices; with a key that would be made.
        sites.settings(&own, "", fine);
        let file = sites.bench.path("serve.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        let keyless: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with("key ="))
            .collect();
        std::fs::write(&file, keyless.join("\n")).unwrap();
        let service = sites.service();
        let mut command = Command::new("setpriv");
        command
            .args(["--bounding-set", "-net_admin", "--inh-caps", "-net_admin"])
            .arg(service.get_program())
            .args(service.get_args())
            .env("XDG_CONFIG_HOME", sites.bench.path("fresh"))
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        // `nsenter` itself needs no such right.
        let (found, said) = outcome(&mut command);
        assert_eq!(found, 7, "{said}");
        assert!(said.contains("give it CAP_NET_ADMIN"), "{said}");
        assert!(!sites.bench.path("fresh/dfcp/key").exists(), "{said}");
        let devices = sites
            .far
            .inside(|| std::fs::read_to_string("/proc/net/dev"));
        assert!(!devices.unwrap().contains("dfcp0"));
        // Nothing of all that has the port.
        let _service = sites.serve(&own, "");
    });
}
