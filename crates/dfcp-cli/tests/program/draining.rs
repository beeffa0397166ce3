//! What a service does that was told to end and waits for what it carries.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::process::Child;

use crate::common::proxying::{CONNECT, echo, echoes, socks, with_socks};
use crate::common::{Bench, Receiver, wait};
use crate::serve::{both, serve, write};
use nix::sys::signal::Signal;

/// A service that was told to end, and waits for a connection that it carries.
struct Draining {
    bench: Bench,
    server: Receiver,
    program: Child,
    open: TcpStream,
}

fn draining() -> Draining {
    let (bench, host) = (Bench::new(), echo());
    write(&bench, "drain = \"60m\"", &both(&bench));
    let server = Receiver::start(serve(&bench));
    let (program, port) = with_socks(&bench, server.address);
    let (mut open, reply) = socks(port, CONNECT, host);
    assert!(reply == 0 && echoes(&mut open));
    server.signal(Signal::SIGTERM);
    server.says("ends when");
    Draining {
        bench,
        server,
        program,
        open,
    }
}

#[test]
fn a_second_signal_ends_at_once() {
    let Draining {
        bench: _bench,
        server,
        mut program,
        open: _open,
    } = draining();
    server.signal(Signal::SIGTERM);
    assert_eq!(server.end_code(), Some(143));
    program.kill().unwrap();
    wait(&mut program);
}

#[test]
fn a_reload_counts_while_the_service_waits_to_end() {
    let Draining {
        bench,
        server,
        mut program,
        mut open,
    } = draining();
    write(&bench, "drain = \"59m\"\nnonsense = 1", &both(&bench));
    server.signal(Signal::SIGHUP);
    server.says("nothing is changed: ");
    assert!(echoes(&mut open));
    // Whose key goes is parted from, and nothing is left to wait for.
    let others = both(&bench).replace(&bench.sender_key, &bench.receiver_key);
    write(&bench, "drain = \"60m\"", &others);
    server.signal(Signal::SIGHUP);
    server.says("again");
    let end = open.read(&mut [0]).unwrap_err();
    assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    assert_eq!(server.end_code(), Some(143));
    program.kill().unwrap();
    wait(&mut program);
}

#[test]
fn less_time_may_be_given_to_what_a_service_waits_for() {
    let Draining {
        bench,
        server,
        mut program,
        open: _open,
    } = draining();
    write(&bench, "drain = \"1ms\"", &both(&bench));
    server.signal(Signal::SIGHUP);
    assert_eq!(server.end_code(), Some(143));
    program.kill().unwrap();
    wait(&mut program);
}
