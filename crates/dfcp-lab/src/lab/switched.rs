//! A lab whose routers are switches: Open vSwitch, in user space, with a controller that tells
//! senders how fast to be (`controller/dfcp_controller.py`).
//!
//! All switches and the controller share a namespace. Each end of a link at a switch is a cable to the
//! path, which carries packets from one port to the next: its queues, losses and delays lie between
//! switches. Senders reach the controller over cables of their own that carry nothing else.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration as Wait, Instant as Wall};

use dfcp_sim::LinkRate;
use dfcp_sim::scenario::{ControlLaw, ControllerSpec, FlowSpec, NodeIndex, ProtocolSpec, Scenario};
use serde_json::json;

use super::hops::{HopFlows, Hops, Place};
use super::{Lab, LabError, LabOptions, flow_hosts, later, mtu, plug_in, segmentation, system};
use crate::net::cable::{CableConfig, CablePort, Checksums, Classify};
use crate::net::host::Host;
use crate::net::netlink::{CableEnd, CableSettings, Netlink};
use crate::net::process::{HostCommand, HostProcess, Output};
use crate::path::{Clock, Emulator, EmulatorConfig, Port};
use crate::worker::ControllerAt;

const CONTROLLER: &str = include_str!("../../controller/dfcp_controller.py");
/// What it takes from beside it.
const ORDERS_MODULE: &str = include_str!("../../controller/dfcp_orders.py");

/// Where the controller listens, in a namespace of its own.
const OPENFLOW: u16 = 6653;
const ORDERS: u16 = 4436;

/// How long switches and controller may take to come up, each step: an interpreter that starts on a
/// busy machine.
const PATIENCE: Wait = Wait::from_secs(60);

/// The rate that a controller reckons with where a link has none of its own: more than any has here.
const UNLIMITED: f64 = 1e11;

/// What a lab with switches needs of the machine.
#[derive(Clone, Debug)]
pub struct Tools {
    switch: PathBuf,
    server: PathBuf,
    database: PathBuf,
    setup: PathBuf,
    schema: PathBuf,
    python: PathBuf,
}

impl Tools {
    /// Looks for them.
    ///
    /// # Errors
    /// What is missing, and what to do: a sentence.
    pub fn find() -> Result<Self, String> {
        Self::find_in(&places())
    }

    fn find_in(places: &[PathBuf]) -> Result<Self, String> {
        let program = |name: &str| {
            which(name, places).ok_or_else(|| {
                format!(
                    "Open vSwitch is not installed ({name} is missing): run scripts/install-controller, or \
                     install openvswitch-switch and python3-os-ken"
                )
            })
        };
        let schema = PathBuf::from("/usr/share/openvswitch/vswitch.ovsschema");
        let tools = Self {
            switch: program("ovs-vswitchd")?,
            server: program("ovsdb-server")?,
            database: program("ovsdb-tool")?,
            setup: program("ovs-vsctl")?,
            python: python(places)?,
            schema,
        };
        match tools.schema.exists() {
            true => Ok(tools),
            false => Err(format!("Open vSwitch lacks {}", tools.schema.display())),
        }
    }
}

/// Where programs are: in the path, and where Debian has those of administrators.
fn places() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path);
    places
        .chain(["/usr/sbin", "/usr/bin"].map(PathBuf::from))
        .collect()
}

fn which(name: &str, places: &[PathBuf]) -> Option<PathBuf> {
    let mut programs = places.iter().map(|place| place.join(name));
    programs.find(|program| program.is_file())
}

/// The first Python that has os-ken: Debian's packages are for the system's, which need not be the
/// first.
fn python(places: &[PathBuf]) -> Result<PathBuf, String> {
    let has = |python: &PathBuf| {
        let mut asked = std::process::Command::new(python);
        asked.args(["-c", "import os_ken"]);
        let quiet = std::process::Stdio::null;
        let asked = asked
            .stdin(quiet())
            .stdout(quiet())
            .stderr(quiet())
            .status();
        asked.is_ok_and(|status| status.success())
    };
    let mut all = places.iter().map(|place| place.join("python3"));
    all.find(has).ok_or_else(|| {
        "os-ken is not installed, on which the network controller runs: run scripts/install-controller, \
         or install python3-os-ken"
            .into()
    })
}

/// Whether a flow's sender follows orders.
pub(crate) fn is_ordered(flow: &FlowSpec) -> bool {
    let control = match &flow.protocol {
        ProtocolSpec::Published(spec) => &spec.control,
        ProtocolSpec::RcUdp(spec) => &spec.control,
        _ => return false,
    };
    control.law == ControlLaw::Ordered
}

/// Whether a scenario's flows want a controller.
pub(crate) fn wants_controller(scenario: &Scenario) -> bool {
    scenario.controller.is_some() && scenario.flows.iter().any(is_ordered)
}

/// Running switches and their controller; they end when dropped.
pub(super) struct Switches {
    // Processes end before their namespace and their files go.
    processes: Vec<HostProcess>,
    _host: Host,
    _files: tempfile::TempDir,
    key: String,
}

/// A port of a switch.
struct SwitchPort {
    switch: usize,
    name: String,
    place: Place,
}

/// The path's ends of all cables: those of hosts, then those of switches, which are on a host of their own.
fn open_ports(
    scenario: &Scenario,
    hosts: &[Host],
    (switches, switch_ports): (&Host, &[SwitchPort]),
    classify: &Arc<dyn Classify>,
) -> Result<Vec<Box<dyn Port>>, LabError> {
    let mut ports: Vec<Box<dyn Port>> = Vec::new();
    let mut open = |device: u32, mac: [u8; 6]| {
        let config = CableConfig {
            device,
            host: ports.len(),
            mac,
            flows: Arc::clone(classify),
            // Switches hand on what they get: nobody behind them would complete it.
            checksums: Checksums::Computed,
        };
        let port = CablePort::open(config).map_err(system("the path's end of a cable"))?;
        ports.push(Box::new(port));
        Ok::<_, LabError>(())
    };
    for host in hosts {
        open(
            plug_in(host, mtu(scenario)).map_err(system("a host's cable"))?,
            host.mac(),
        )?;
    }
    for port in switch_ports {
        let device = plug_in_switch(switches, &port.name, mtu(scenario));
        open(device.map_err(system("a switch's cable"))?, switches.mac())?;
    }
    Ok(ports)
}

impl Lab {
    /// As [`Lab::start`], with the scenario's routers as switches under a controller.
    ///
    /// # Errors
    /// What the kernel, the scenario or the programs do not allow.
    pub fn start_switched(
        scenario: &Scenario,
        options: &LabOptions,
        tools: &Tools,
    ) -> Result<Self, LabError> {
        let (names, flows) = flow_hosts(scenario)?;
        let hops = Hops::of(scenario).map_err(LabError::OneWay)?;
        let spec = scenario.controller.unwrap_or_default();
        let mut hosts = Vec::new();
        for (number, name) in names.iter().enumerate() {
            hosts.push(Host::create(name, number).map_err(system("a host's namespace"))?);
        }
        let host = Host::create("switches", hosts.len()).map_err(system("a namespace"))?;
        let node = |name: &String| scenario.nodes.iter().position(|node| node.name == *name);
        let host_nodes: Vec<_> = names.iter().filter_map(node).map(NodeIndex).collect();
        let switch_ports = switch_ports(&hops, &host_nodes);
        let mut places: Vec<Place> = (host_nodes.iter())
            .map(|&node| Place { node, cable: None })
            .collect();
        places.extend(switch_ports.iter().map(|port| port.place));
        let ends = hops.ends(&places);
        let classify: Arc<dyn Classify> = Arc::new(HopFlows {
            flows: flows.clone(),
            hops: hops.clone(),
            places,
        });
        let ports = open_ports(scenario, &hosts, (&host, &switch_ports), &classify)?;
        for (number, other) in hosts.iter().enumerate() {
            join_controller(&host, other, number).map_err(system("a controller's cable"))?;
        }
        let network = network(scenario, &hops, &hosts, &switch_ports, spec);
        let mut switches = Switches::start(host, tools, &network, &switch_ports)
            .map_err(system("Open vSwitch"))?;
        let names = options.names.give(&hosts)?;
        let cut = later(&hops.scenario, options.lead_in);
        let network = dfcp_sim::build_external(&cut)?;
        let clock = Clock::start();
        let path = Emulator::start(EmulatorConfig {
            network,
            clock,
            ports,
            ends,
            spin: options.spin,
        });
        let path = path.map_err(system("the path's thread"))?;
        switches
            .wait("ready")
            .map_err(system("the network controller"))?;
        Ok(Self {
            hosts,
            flows,
            clock,
            lead_in: options.lead_in,
            path: Some(path),
            scenario: Some(cut),
            joined: Some((hops, scenario.flows.clone())),
            switches: Some(switches),
            _names: names,
        })
    }

    /// Where the senders of a host ask the controller, if there is one.
    pub(crate) fn controller(&self, host: &Host) -> Option<ControllerAt> {
        let switches = self.switches.as_ref()?;
        let number = self
            .hosts
            .iter()
            .position(|other| other.name() == host.name())?;
        Some(ControllerAt {
            address: SocketAddr::from((management(number, 1), ORDERS)),
            key: switches.key.clone(),
        })
    }
}

/// The ports of all switches: nodes that are no hosts, in the order in which cables name them.
fn switch_ports(hops: &Hops, hosts: &[NodeIndex]) -> Vec<SwitchPort> {
    let mut switches: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    let mut ports = Vec::new();
    for (number, cable) in hops.cables.iter().enumerate() {
        for node in cable.ends {
            if hosts.contains(&node) {
                continue;
            }
            let next = switches.len() + 1;
            let (switch, used) = switches.entry(node.0).or_insert((next, 0));
            *used += 1;
            ports.push(SwitchPort {
                switch: *switch,
                name: format!("s{switch}p{used}"),
                place: Place {
                    node,
                    cable: Some(number),
                },
            });
        }
    }
    ports
}

/// The IP protocol of a flow's packets here: DFCP as published is in IP packets without UDP.
fn ip_protocol(flow: &FlowSpec) -> u8 {
    match flow.protocol {
        ProtocolSpec::Tcp(_) => 6,
        ProtocolSpec::Published(_) | ProtocolSpec::RcUdp(_) => 253,
        ProtocolSpec::Dfcp(_) | ProtocolSpec::Coded(_) | ProtocolSpec::Udp(_) => 17,
    }
}

/// What the controller is told of the network: `--network` of `dfcp_controller.py`.
fn network(
    scenario: &Scenario,
    hops: &Hops,
    hosts: &[Host],
    ports: &[SwitchPort],
    spec: ControllerSpec,
) -> serde_json::Value {
    let capacity = |index: usize| {
        let config = &scenario.links[index].config;
        let rate = match &config.rate {
            LinkRate::Constant(rate) => rate.as_bps() as f64,
            _ => UNLIMITED,
        };
        json!({ "rate": rate, "framing": config.framing })
    };
    let links = ports.iter().map(|port| {
        let cable = &hops.cables[port.place.cable.unwrap_or_default()];
        let [mut out, mut back] = cable.links.map(|link| link.0);
        if cable.ends[0] != port.place.node {
            std::mem::swap(&mut out, &mut back);
        }
        (
            port.name.clone(),
            json!({ "out": capacity(out), "in": capacity(back) }),
        )
    });
    let links: serde_json::Map<_, _> = links.collect();
    let host = |node: NodeIndex| {
        let name = &scenario.nodes[node.0].name;
        hosts.iter().find(|host| host.name() == name)
    };
    let mut flows = Vec::new();
    for flow in &scenario.flows {
        if let (Some(from), Some(to)) = (host(flow.from), host(flow.to)) {
            let addresses: [[IpAddr; 2]; 2] = [
                [from.ipv4().into(), to.ipv4().into()],
                [from.ipv6().into(), to.ipv6().into()],
            ];
            for [source, destination] in addresses {
                flows.push(json!({
                    "source": source,
                    "destination": destination,
                    "protocol": ip_protocol(flow),
                    "class": &flow.class,
                }));
            }
        }
    }
    let weights = scenario.flows.iter();
    let weights = weights.map(|flow| (flow.class.clone(), json!(flow.weight)));
    let between = |cable: &super::hops::Cable| {
        let is_switch = |node: &NodeIndex| ports.iter().any(|port| port.place.node == *node);
        cable.ends.iter().all(is_switch)
    };
    json!({
        "ports": links,
        "flows": flows,
        "weights": weights.collect::<serde_json::Map<_, _>>(),
        "response": spec.response.as_secs_f64(),
        "error": spec.error,
        "switches": ports.iter().map(|port| port.switch).max().unwrap_or(0),
        "cables": hops.cables.iter().filter(|cable| between(cable)).count(),
    })
}

/// Lays a cable from this namespace to a switch; says the number of its device here.
fn plug_in_switch(switches: &Host, name: &str, mtu: u32) -> io::Result<u32> {
    let near_name = format!("to-{name}");
    let near = CableEnd {
        name: &near_name,
        mac: switches.far_mac(),
        namespace: None,
    };
    let far = CableEnd {
        name,
        mac: switches.mac(),
        namespace: Some(switches.namespace()),
    };
    let segmentation = segmentation();
    let netlink = Netlink::open()?;
    netlink.add_cable(&near, &far, CableSettings { mtu, segmentation })?;
    let _ = fs::write(
        format!("/proc/sys/net/ipv6/conf/{near_name}/disable_ipv6"),
        "1",
    );
    netlink.up_without_arp(&near_name)?;
    let far = name.to_owned();
    switches.run(move || {
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{far}/disable_ipv6"), "1");
        Netlink::open()?.up_without_arp(&far)
    })?;
    Ok(nix::net::if_::if_nametoindex(near_name.as_str())?)
}

/// The addresses of a host's cable to the controller: 1 is the controller's end, 2 the host's.
fn management(host: usize, end: u32) -> Ipv4Addr {
    const FIRST: u32 = u32::from_be_bytes([172, 16, 0, 0]);
    Ipv4Addr::from(FIRST + 4 * host as u32 + end)
}

/// Lays the cable over which a host's senders ask the controller.
fn join_controller(switches: &Host, host: &Host, number: usize) -> io::Result<()> {
    let (near, far) = (format!("m{number}"), "control".to_owned());
    let [.., a, b] = (number as u32).to_be_bytes();
    let end = |name, side, namespace| CableEnd {
        name,
        mac: [0x02, 0xdf, 0x10, side, a, b],
        namespace: Some(namespace),
    };
    let settings = CableSettings {
        mtu: 1500,
        segmentation: segmentation(),
    };
    Netlink::open()?.add_cable(
        &end(&near, 1, switches.namespace()),
        &end(&far, 2, host.namespace()),
        settings,
    )?;
    for (place, name, side) in [(switches, near, 1), (host, far, 2)] {
        place.run(move || {
            let netlink = Netlink::open()?;
            netlink.up(&name)?;
            netlink.add_address(&name, management(number, side).into(), 30)
        })?;
    }
    Ok(())
}

impl Switches {
    /// Starts everything, and waits until the switches are with their controller.
    fn start(
        host: Host,
        tools: &Tools,
        network: &serde_json::Value,
        ports: &[SwitchPort],
    ) -> io::Result<Self> {
        let files = tempfile::tempdir()?;
        let at = |name: &str| files.path().join(name);
        let mut key = [0; 32];
        io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, &mut key)?;
        let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        fs::write(at("controller.py"), CONTROLLER)?;
        fs::write(at("dfcp_orders.py"), ORDERS_MODULE)?;
        fs::write(at("network.json"), network.to_string())?;
        fs::write(at("key"), &key)?;
        let command = |program: &Path| {
            let command = host.command(program);
            ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"]
                .into_iter()
                .fold(command, |command, name| command.env(name, files.path()))
        };
        let socket = format!("unix:{}", at("db.sock").display());
        let control = |name: &str| format!("--unixctl={}", at(name).display());
        let database = command(&tools.database).arg("create");
        finish(database.arg(at("db")).arg(&tools.schema))?;
        let mut processes = vec![
            (command(&tools.server).arg(at("db")))
                .arg(format!("--remote=p{socket}"))
                .arg(control("server.ctl"))
                .spawn()?,
        ];
        // The database's server may not listen yet: it is tried again.
        let timeout = format!("--timeout={}", PATIENCE.as_secs());
        let setup = || {
            let command = command(&tools.setup).arg("--retry");
            command.args([format!("--db={socket}"), timeout.clone()])
        };
        finish(setup().args(["--no-wait", "init"]))?;
        let switch = command(&tools.switch)
            .arg(&socket)
            .arg(control("switch.ctl"));
        processes.push(switch.stderr(Output::Discard).spawn()?);
        let mut controller = command(&tools.python)
            .arg(at("controller.py"))
            .arg("--network")
            .arg(at("network.json"))
            .arg("--key")
            .arg(at("key"))
            .spawn()?;
        finish(setup().args(bridges(ports)))?;
        expect(&mut controller, "switches")?;
        processes.push(controller);
        Ok(Self {
            processes,
            _host: host,
            _files: files,
            key,
        })
    }

    /// Waits for the controller's next word.
    fn wait(&mut self, word: &str) -> io::Result<()> {
        match self.processes.last_mut() {
            Some(controller) => expect(controller, word),
            None => Ok(()),
        }
    }
}

/// Runs a command to its end.
fn finish(command: HostCommand) -> io::Result<()> {
    let finished = command.spawn()?.wait(Wall::now() + PATIENCE);
    match finished.succeeded() {
        true => Ok(()),
        false => Err(io::Error::other(finished.stderr.trim().to_owned())),
    }
}

/// The controller says something, or why it does not.
fn expect(controller: &mut HostProcess, word: &str) -> io::Result<()> {
    let line = controller.wait_line(Wall::now() + PATIENCE);
    let line = line.map_err(|error| {
        io::Error::other(format!(
            "the controller does not say that it knows the {word}: {error}"
        ))
    })?;
    let said: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
    match said.get(word) {
        Some(_) => Ok(()),
        None => Err(io::Error::other(format!("the controller says: {line}"))),
    }
}

/// Arguments of ovs-vsctl that make the switches.
fn bridges(ports: &[SwitchPort]) -> Vec<String> {
    let mut text = String::new();
    let mut made = 0;
    for port in ports {
        let bridge = format!("s{}", port.switch);
        if port.switch > made {
            made = port.switch;
            text += &format!(
                " -- add-br {bridge} -- set bridge {bridge} datapath_type=netdev protocols=OpenFlow13 \
                 fail_mode=secure other-config:datapath-id={made:016x} \
                 -- set-controller {bridge} tcp:127.0.0.1:{OPENFLOW} \
                 -- set controller {bridge} max_backoff=1000"
            );
        }
        let number = port.name.rsplit('p').next().unwrap_or_default();
        text += &format!(
            " -- add-port {bridge} {0} -- set interface {0} ofport_request={number}",
            port.name
        );
    }
    text.split_whitespace().map(ToOwned::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_what_to_do() {
        let missing = Tools::find_in(&[]).expect_err("there is nothing in no place");
        assert!(missing.contains("ovs-vswitchd"), "{missing}");
        assert!(missing.contains("scripts/install-controller"), "{missing}");
        let missing = python(&[]).expect_err("nor a python");
        assert!(missing.contains("python3-os-ken"), "{missing}");
    }
}
