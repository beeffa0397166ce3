//! Names whose name servers do not answer, in a network namespace of their own. As root, or where user
//! namespaces are allowed; elsewhere the test says that it is skipped.

use std::io::Read;
use std::net::{TcpStream, UdpSocket};

use crate::common::meeting::{Process, program_in};
use crate::common::namespace::{Namespace, privileged};
use crate::common::proxying::port_in;
use crate::common::{Bench, Receiver, eventually};

/// The system's resolver takes a thread for each question. A client needs some itself, for its server's name.
#[test]
fn connections_to_a_reverse_port_with_a_dead_name_do_not_take_all_threads() {
    privileged("ip tuntap add dev able mode tun", || {
        let (place, other) = (Namespace::new(), Namespace::new());
        // What is sent to a name server comes to a host that does not forward, wherever that is.
        place.cable(("eth0", "10.77.0.1/24"), &other, ("eth0", "10.77.0.2/24"));
        place.run("ip route add default via 10.77.0.2");
        let _silent = place.inside(|| ["127.0.0.1:53", "127.0.0.53:53"].map(UdpSocket::bind));
        let bench = Bench::new();
        let mut serve = program_in(place.place(), &bench.path(""));
        serve
            .args(["proxy", "serve", "--listen", "127.0.0.1:0", "--allow"])
            .args([&bench.sender_key, "--permit-listen", "127.0.0.1", "--key"])
            .arg(bench.path("receiver.key"));
        let server = Receiver::start(serve);
        let mut command = program_in(place.place(), &bench.path(""));
        command
            .args(["proxy", "-R", "0:dead.example.org:80", "--peer-key"])
            .args([&bench.receiver_key, "--key"])
            .arg(bench.path("sender.key"))
            .arg(server.address.to_string());
        let mut client = Process::start("client", command);
        let port = port_in(&client.says("dead.example.org"));
        let mut asked = place.inside(|| {
            let connect = |_| TcpStream::connect(port).unwrap();
            (0..300).map(connect).collect::<Vec<_>>()
        });
        let tasks = format!("/proc/{}/task", client.id());
        let threads = || std::fs::read_dir(&tasks).unwrap().count();
        eventually("threads that ask", || threads() >= 128);
        // The first one is given up; all have asked by then.
        let _ = asked[0].read(&mut [0]);
        let most = threads();
        assert!(most < 200, "{most} threads");
    });
}
