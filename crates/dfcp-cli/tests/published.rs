//! Transfers with `--profile dfcp`, between two processes.

mod common;

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;

use common::{Bench, Receiver, bytes, eventually, finish, run};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Bytes of a block.
const BLOCK: usize = 63_536;

fn receiver(bench: &Bench, args: &[&str]) -> Receiver {
    let mut command = bench.program();
    command
        .args(["recv", "--profile=dfcp", "--json", "-o"])
        .arg(bench.path("received"))
        .args(args);
    if !args.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    Receiver::start(command)
}

fn sender(bench: &Bench, to: SocketAddr) -> Command {
    let mut command = bench.program();
    command
        .args(["send", "--profile=dfcp", "--json", "--rate=200M"])
        .arg(to.to_string());
    command
}

#[test]
fn files_of_all_sizes_arrive() {
    let bench = Bench::new();
    let sizes = [0, 1, BLOCK - 4, BLOCK, BLOCK + 1, 3_000_000];
    let receiver = receiver(&bench, &["--once"]);
    let names: Vec<_> = sizes.iter().map(|size| format!("f{size}")).collect();
    let mut command = sender(&bench, receiver.address);
    // The receiver comes last.
    let mut sender = bench.program();
    sender.args(["send", "--profile=dfcp", "--json", "--rate=200M"]);
    for (name, &size) in names.iter().zip(&sizes) {
        sender.arg(bench.write(name, size));
    }
    command = sender;
    let (code, report, _) = run(command.arg(receiver.address.to_string()));
    assert_eq!(code, 0, "{report}");
    let total: usize = sizes.iter().sum();
    assert_eq!(report["useful_bytes"], total);
    assert_eq!(report["files"], sizes.len());
    assert!(report["wire_bytes"].as_u64().unwrap() > total as u64);
    let (code, report) = receiver.end();
    assert_eq!((code, &report["useful_bytes"]), (0, &total.into()));
    for (name, size) in names.iter().zip(sizes) {
        bench.assert_received(name, &bytes(name, size));
    }
    assert_eq!(
        bench.received().len(),
        names.len(),
        "no partial files are left"
    );
}
