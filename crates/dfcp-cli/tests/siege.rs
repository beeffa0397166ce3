//! A receiver in the open, besieged: everything that strangers and hostile senders can do at once, a
//! bounded number of times, from many addresses, while an honest sender transfers.

#![cfg(target_os = "linux")]

mod common;
#[path = "siege/insiders.rs"]
mod insiders;
#[path = "../../../fuzz/src/raw.rs"]
#[allow(dead_code)]
mod raw;
#[path = "siege/strangers.rs"]
mod strangers;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use common::{Bench, Receiver, bytes, run};

/// What all this may make the receiver hold, bytes.
const MOST_RESIDENT: u64 = 256 << 20;
const HONEST: usize = 24_000_000;

/// What an attack needs to know.
pub struct Siege<'a> {
    receiver: SocketAddr,
    key: &'a str,
    over: AtomicBool,
}

impl Siege<'_> {
    /// Rounds until the honest sender is done, at most `most`.
    pub fn rounds(&self, most: u32) -> impl Iterator<Item = u32> {
        (0..most).take_while(|_| !self.over.load(Relaxed))
    }
}

type Attack = fn(&Siege<'_>) -> u64;

const ATTACKS: [(&str, Attack); 9] = [
    ("SYNs from spoofed addresses", strangers::syns),
    ("half handshakes", strangers::half_handshakes),
    ("full handshakes, then nothing", strangers::full_handshakes),
    ("packets of no connection", strangers::junk),
    (
        "blocks that never suffice",
        strangers::rank_deficient_blocks,
    ),
    ("blocks as far as credit goes", strangers::half_blocks),
    ("forged feedback", strangers::forged_feedback),
    ("endless offers", insiders::endless_offers),
    ("floods of messages", insiders::message_floods),
];

/// Largest resident size of a process so far, bytes.
fn most_resident(id: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse::<u64>().unwrap() << 10
}

/// Sends a file as an honest sender does; gives how long that took, seconds.
fn send(bench: &Bench, receiver: &Receiver, name: &str) -> f64 {
    let file = bench.write(name, HONEST);
    let start = Instant::now();
    let mut sender = bench.sender();
    let (code, report, said) = run(sender.arg(file).arg(receiver.address.to_string()));
    assert_eq!(code, 0, "{report} {said}");
    let seconds = start.elapsed().as_secs_f64();
    bench.assert_received(name, &bytes(name, HONEST));
    seconds
}

#[test]
fn an_honest_sender_gets_through_a_siege() {
    let bench = Bench::new();
    let receiver = bench.receiver(&["--allow-any"]);
    let alone = send(&bench, &receiver, "alone");
    let siege = Siege {
        receiver: receiver.address,
        key: &bench.receiver_key,
        over: AtomicBool::new(false),
    };
    let (seconds, counts) = std::thread::scope(|scope| {
        let attacks = ATTACKS.map(|(name, attack)| {
            let siege = &siege;
            (name, scope.spawn(move || attack(siege)))
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            send(&bench, &receiver, "besieged")
        }));
        siege.over.store(true, Relaxed);
        let counts = attacks.map(|(name, attack)| (name, attack.join().unwrap()));
        (outcome.unwrap(), counts)
    });
    for (name, count) in counts {
        println!("{name}: {count}");
        assert!(count > 0, "{name}: nothing was tried");
    }
    let resident = most_resident(receiver.id());
    println!(
        "{HONEST} bytes: {alone:.2} s alone, {seconds:.2} s besieged; {resident} bytes resident"
    );
    assert!(resident <= MOST_RESIDENT, "{resident} bytes resident");
    // It is still there for others.
    send(&bench, &receiver, "after");
}
