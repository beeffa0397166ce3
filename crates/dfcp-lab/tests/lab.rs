//! Labs on this machine, where it allows them: what cannot be tested says so.

#![cfg(target_os = "linux")]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use dfcp_lab::{FlowPorts, Host, Isolation, Lab, LabOptions, isolate};
use dfcp_sim::scenario::Scenario;

/// Runs a test in a thread with a network of its own.
fn in_lab(test: impl FnOnce() + Send + 'static) {
    let run = move || match isolate() {
        Ok(Isolation::Root) => test(),
        // A user namespace needs a process without threads, which tests are not.
        Ok(Isolation::UserNamespace) => eprintln!("SKIPPED: only root can do that in a thread"),
        Err(reason) => eprintln!("SKIPPED: {reason}"),
    };
    if let Err(panic) = thread::spawn(run).join() {
        std::panic::resume_unwind(panic);
    }
}

fn scenario(text: &str) -> Scenario {
    Scenario::from_toml(text, "test").unwrap()
}

const DUMBBELL: &str = r#"
schema = 1
[run]
duration = "10 s"
[topology]
kind = "dumbbell"
rtt = "20 ms"
[link.default]
rate = "1 Gbit/s"
[link.bottleneck]
rate = "50 Mbit/s"
[[flow]]
protocol = "tcp-cubic"
"#;

fn far_enough() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn addresses(host: &Host) -> [IpAddr; 2] {
    [host.ipv4().into(), host.ipv6().into()]
}

fn udp(host: &Host, address: SocketAddr) -> UdpSocket {
    let open = move || {
        let socket = UdpSocket::bind(address)?;
        socket.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(socket)
    };
    host.run(open).unwrap()
}

#[test]
fn datagrams_cross_a_dumbbell_and_take_its_round_trip() {
    in_lab(|| {
        let lab = Lab::start(&scenario(DUMBBELL), &LabOptions::default()).unwrap();
        let (source, sink) = lab.flow_hosts(0);
        assert_eq!((source.name(), sink.name()), ("source-1", "sink-1"));
        for (near, far) in addresses(source).into_iter().zip(addresses(sink)) {
            let server = udp(sink, (far, FlowPorts::of(0).server).into());
            let client = udp(source, (near, 0).into());
            let start = Instant::now();
            let mut buffer = [0; 2000];
            client
                .send_to(&[7; 1000], server.local_addr().unwrap())
                .unwrap();
            let (len, from) = server.recv_from(&mut buffer).unwrap();
            assert_eq!(buffer[..len], [7; 1000]);
            server.send_to(&buffer[..len], from).unwrap();
            assert_eq!(client.recv_from(&mut buffer).unwrap().0, 1000);
            assert!(start.elapsed() >= Duration::from_millis(20));
        }
        let stats = lab.stop().unwrap();
        assert_eq!(stats.flows[0].packets_arrived, 2);
        assert_eq!(stats.flows[0].packets_returned, 2);
        assert_eq!(stats.flows[0].bytes_arrived, 2 * 1000 + 28 + 48);
    });
}

/// Sends `size` bytes over TCP from the source to the sink of flow 0.
fn tcp_transfer(lab: &Lab, ipv6: bool, size: usize) {
    let (source, sink) = lab.flow_hosts(0);
    let to = SocketAddr::new(addresses(sink)[usize::from(ipv6)], FlowPorts::of(0).server);
    let listener = sink.run(move || TcpListener::bind(to)).unwrap();
    let content: Vec<u8> = (0..size).map(|i| ((i * i) >> 7) as u8).collect();
    let expected = content.clone();
    let receiver = thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let limit = Some(Duration::from_secs(20));
        connection.set_read_timeout(limit).unwrap();
        let mut got = Vec::new();
        connection.read_to_end(&mut got).unwrap();
        assert!(got == expected, "other bytes arrived than were sent");
    });
    let mut connection = source.run(move || TcpStream::connect(to)).unwrap();
    connection.write_all(&content).unwrap();
    drop(connection);
    receiver.join().unwrap();
}

#[test]
fn large_segments_are_cut_into_packets_of_the_paths_size() {
    in_lab(|| {
        for ipv6 in [false, true] {
            let lab = Lab::start(&scenario(DUMBBELL), &LabOptions::default()).unwrap();
            tcp_transfer(&lab, ipv6, 3_000_000);
            let stats = lab.stop().unwrap();
            let flow = stats.flows[0];
            // No packet was larger than the links take, and those that could be full were.
            assert_eq!(flow.drops.mtu, 0);
            let mean = flow.bytes_sent / flow.packets_sent;
            assert!((1400..=1500).contains(&mean), "{flow:?}");
        }
    });
}

#[test]
fn flipped_bits_are_found_by_the_receivers_checksum() {
    in_lab(|| {
        let corrupt = DUMBBELL.replace("rate = \"50", "corrupt = 0.01\nrate = \"50");
        let lab = Lab::start(&scenario(&corrupt), &LabOptions::default()).unwrap();
        tcp_transfer(&lab, false, 1_000_000);
        let corrupted: u64 = lab.stop().unwrap().links.iter().map(|l| l.corrupted).sum();
        assert!(corrupted > 0);
    });
}

#[test]
fn a_plain_cable_joins_two_hosts() {
    in_lab(|| {
        let lab = Lab::direct_pair(&LabOptions::default()).unwrap();
        tcp_transfer(&lab, false, 1_000_000);
        tcp_transfer(&lab, true, 1_000_000);
        assert!(lab.stop().unwrap().path.is_none());
    });
}

#[test]
fn processes_run_in_their_host_and_end_with_the_lab() {
    in_lab(|| {
        let lab = Lab::direct_pair(&LabOptions::default()).unwrap();
        let (source, _) = lab.flow_hosts(0);
        let show = source
            .command("cat")
            .arg("/proc/net/fib_trie")
            .spawn()
            .unwrap();
        let shown = show.wait(far_enough());
        assert!(shown.succeeded(), "{shown:?}");
        assert!(shown.stdout.contains(&source.ipv4().to_string()));

        let mut slow = source.command("sleep").arg("1000").spawn().unwrap();
        assert!(!slow.is_over());
        slow.kill();
        assert!(!slow.wait(far_enough()).succeeded());

        let hanging = source.command("sleep").arg("1000").spawn().unwrap();
        let ended = hanging.wait(Instant::now());
        assert!(ended.timed_out && ended.status.is_some(), "{ended:?}");

        let missing = source.command("no-such-program").spawn();
        let kind = missing.err().map(|error| error.kind());
        assert_eq!(kind, Some(std::io::ErrorKind::NotFound));
    });
}

#[test]
fn a_process_cpu_time_and_output_are_known() {
    in_lab(|| {
        let lab = Lab::direct_pair(&LabOptions::default()).unwrap();
        let (source, _) = lab.flow_hosts(0);
        let count = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; echo $i; echo done >&2";
        let mut busy = source.command("sh").args(["-c", count]).spawn().unwrap();
        assert_eq!(busy.wait_line(far_enough()).unwrap(), "50000");
        let busy = busy.wait(far_enough());
        assert!(busy.succeeded() && busy.cpu > Duration::ZERO, "{busy:?}");
        assert_eq!(
            (busy.stdout.as_str(), busy.stderr.as_str()),
            ("50000\n", "done\n")
        );
    });
}
