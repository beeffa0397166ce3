//! A receiver in the open, besieged: everything that strangers and hostile senders can do at once, a
//! bounded number of times, from many addresses, while an honest sender transfers.

mod insiders;
#[path = "../../../../fuzz/src/raw.rs"]
#[allow(dead_code)]
mod raw;
mod readers;
mod spoofed;
mod stallers;
mod strangers;
mod wanderers;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::common::{Bench, Receiver, bytes, run};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};

/// What all this may make the receiver hold, bytes.
const MOST_RESIDENT: u64 = 256 << 20;
const HONEST: usize = 24_000_000;
/// How often that is sent while the siege lasts, and how many sieges are laid until each attack has had its turn.
const SENDS: usize = 4;
const MOST_SIEGES: usize = 10;
/// Descriptors that the receiver may have: a quarter of what most systems give at first.
const DESCRIPTORS: u64 = 256;

/// What an attack needs to know.
pub struct Siege<'a> {
    receiver: SocketAddr,
    key: &'a str,
    /// Where it puts what it receives.
    directory: PathBuf,
    /// Packets or messages that each attack sends in a second at most.
    rate: Option<u32>,
    /// Priority of the attackers' threads.
    nice: i32,
    began: Instant,
    over: AtomicBool,
}

impl<'a> Siege<'a> {
    fn of(receiver: &Receiver, bench: &'a Bench, rate: Option<u32>) -> Self {
        Self {
            receiver: receiver.address,
            key: &bench.receiver_key,
            directory: bench.path("received"),
            rate,
            nice: 0,
            began: Instant::now(),
            over: AtomicBool::new(false),
        }
    }

    /// How long an attack that has sent `count` so far has to wait.
    pub fn ahead(&self, count: u64) -> Duration {
        let Some(rate) = self.rate else {
            return Duration::ZERO;
        };
        let due = Duration::from_secs_f64(count as f64 / f64::from(rate));
        due.saturating_sub(self.began.elapsed())
    }

    /// Waits as long; not beyond the end of the siege.
    #[allow(clippy::disallowed_methods)] // a rate is what this is for
    pub fn pace(&self, count: u64) {
        while !self.over.load(Relaxed) && !self.ahead(count).is_zero() {
            std::thread::sleep(self.ahead(count).min(Duration::from_millis(20)));
        }
    }

    /// Waits for its end.
    pub async fn ended(&self) {
        while !self.over.load(Relaxed) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

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

/// Others, of who was let in above all.
const FROM_WITHIN: [(&str, Attack); 10] = [
    ("sessions from everywhere", wanderers::storms),
    ("sessions that move on and on", wanderers::moves),
    ("resets", wanderers::resets),
    ("channels that end at once", wanderers::channels),
    ("sessions that stall", stallers::stalls),
    ("offers of a million names", stallers::million_names),
    ("floods of all messages", stallers::control_floods),
    ("files that are there", readers::comparisons),
    ("offers of deep paths", readers::deep_offers),
    ("names that are not there", readers::lookups),
];

/// Largest resident size of a process so far, bytes.
fn most_resident(id: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse::<u64>().unwrap() << 10
}

/// Sends a file as an honest sender does; gives how long that took, seconds.
fn send(bench: &Bench, receiver: &Receiver, name: &str, size: usize) -> f64 {
    let file = bench.write(name, size);
    let seconds = bring(bench, receiver, &file);
    bench.assert_received(name, &bytes(name, size));
    seconds
}

/// The same of a file that is there, without a look at what came.
fn bring(bench: &Bench, receiver: &Receiver, file: &Path) -> f64 {
    let start = Instant::now();
    let mut sender = bench.sender();
    let (code, report, said) = run(sender.arg(file).arg(receiver.address.to_string()));
    assert_eq!(code, 0, "{report} {said}");
    start.elapsed().as_secs_f64()
}

/// Lays siege while `work` lasts; gives what that gives, and what each attack sent.
fn besiege<T>(
    siege: &Siege<'_>,
    attacks: &[(&'static str, Attack)],
    work: impl FnOnce() -> T,
) -> (T, Vec<(&'static str, u64)>) {
    std::thread::scope(|scope| {
        let start = |&(name, attack): &(&'static str, Attack)| {
            let attack = move || {
                // On Linux this is of the thread alone.
                rustix::process::nice(siege.nice).unwrap();
                attack(siege)
            };
            (name, scope.spawn(attack))
        };
        let attacks: Vec<_> = attacks.iter().map(start).collect();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        siege.over.store(true, Relaxed);
        let counts = attacks.into_iter();
        let counts = counts.map(|(name, attack)| (name, attack.join().unwrap()));
        (outcome.unwrap(), counts.collect())
    })
}

#[test]
fn an_honest_sender_gets_through_a_siege() {
    is_survived(&ATTACKS);
}

#[test]
fn an_honest_sender_gets_through_a_siege_from_within() {
    is_survived(&FROM_WITHIN);
}

fn is_survived(attacks: &[(&'static str, Attack)]) {
    let bench = Bench::new();
    let mut command = bench.recv(&["--allow-any"]);
    // Nobody reads what it says of thousands of sessions, and a full pipe would have it wait.
    let receiver = Receiver::start({
        command.stdout(Stdio::null());
        command
    });
    let limit = Rlimit {
        current: Some(DESCRIPTORS),
        maximum: Some(DESCRIPTORS),
    };
    let id = Pid::from_raw(receiver.id());
    prlimit(id, Resource::Nofile, limit).unwrap();
    let alone = send(&bench, &receiver, "alone", HONEST);
    let (mut seconds, mut counts) = (0.0, vec![0; attacks.len()]);
    // An attack whose thread had no turn, or found no place, before the honest sender was done has its turn in another
    // siege.
    for round in 0..MOST_SIEGES {
        let siege = Siege::of(&receiver, &bench, None);
        let (last, tried) = besiege(&siege, attacks, || {
            // Long enough for sessions that stall to be many.
            let mut seconds = 0.0;
            for i in 0..SENDS {
                seconds = send(&bench, &receiver, &format!("besieged{round}-{i}"), HONEST);
            }
            seconds
        });
        seconds = last;
        for (count, (_, tried)) in counts.iter_mut().zip(tried) {
            *count += tried;
        }
        if counts.iter().all(|count| *count > 0) {
            break;
        }
    }
    for (count, (name, _)) in counts.iter().zip(attacks) {
        println!("{name}: {count}");
        assert!(*count > 0, "{name}: nothing was tried");
    }
    let resident = most_resident(receiver.id());
    let open = std::fs::read_dir(format!("/proc/{}/fd", receiver.id())).unwrap();
    println!(
        "{HONEST} bytes: {alone:.2} s alone, {seconds:.2} s besieged; {resident} bytes resident, {} files open",
        open.count()
    );
    assert!(resident <= MOST_RESIDENT, "{resident} bytes resident");
    // It is still there for others.
    send(&bench, &receiver, "after", HONEST);
}

/// Of the bench: rounds, the honest sender's bytes, and what each of the nine attacks sends a second.
const ROUNDS: usize = 9;
const BENCH_BYTES: usize = 500_000_000;
const BENCH_RATE: u32 = 2000;

/// How much lower the attackers' priority is than that of sender and receiver: they share the processors, and what
/// an attack costs is to be what the receiver does about it. 0 has them take as much as these.
fn bench_nice() -> i32 {
    let told = std::env::var("DFCP_SIEGE_NICE").ok();
    told.map_or(19, |nice| nice.parse().unwrap())
}

/// Processor time of a process so far, seconds.
fn processor_time(id: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    // The name, in brackets, may have spaces.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks.map(|t| t.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

/// A transfer, and what it took.
struct Transfer {
    seconds: f64,
    /// Processor time of the receiver.
    receiver: f64,
    /// And of the attackers, which are this process.
    attackers: f64,
    most_resident: u64,
    sent: Vec<(&'static str, u64)>,
}

impl Transfer {
    /// To a receiver of its own.
    fn measure(bench: &Bench, file: &Path, attacks: &[(&'static str, Attack)]) -> Self {
        let receiver = bench.receiver(&["--allow-any"]);
        let id = receiver.id().to_string();
        let mut siege = Siege::of(&receiver, bench, Some(BENCH_RATE));
        siege.nice = bench_nice();
        let before = [&id, "self"].map(processor_time);
        let ((seconds, after), sent) = besiege(&siege, attacks, || {
            let seconds = bring(bench, &receiver, file);
            // What comes later is no part of it.
            (seconds, [&id, "self"].map(processor_time))
        });
        let most_resident = most_resident(receiver.id());
        assert!(most_resident <= MOST_RESIDENT);
        drop(receiver);
        std::fs::remove_dir_all(bench.path("received")).unwrap();
        Self {
            seconds,
            receiver: after[0] - before[0],
            attackers: after[1] - before[1],
            most_resident,
            sent,
        }
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// What an honest sender keeps of its goodput while attackers of a bounded rate have their way: alone
/// and besieged in turn, each first in every other round, on the same cores. `scripts/bench-siege` runs it.
#[test]
#[ignore = "a bench: scripts/bench-siege"]
fn bench_goodput_under_siege() {
    let bench = Bench::new();
    let file = bench.write("file", BENCH_BYTES);
    let (mut shares, mut costs) = (Vec::new(), Vec::new());
    let only = std::env::var("DFCP_SIEGE_ONLY").unwrap_or_default();
    let all = ATTACKS.into_iter();
    let all = all.chain(FROM_WITHIN.into_iter().filter(|_| !only.is_empty()));
    let attacks = all.filter(|(name, _)| name.contains(&only));
    let attacks: Vec<_> = attacks.collect();
    for round in 0..ROUNDS {
        let [first, second] = match round % 2 {
            0 => [&[][..], &attacks],
            _ => [&attacks[..], &[]],
        };
        let both = [first, second].map(|attacks| Transfer::measure(&bench, &file, attacks));
        let [alone, besieged] = match round % 2 {
            0 => both,
            _ => {
                let [besieged, alone] = both;
                [alone, besieged]
            }
        };
        let share = alone.seconds / besieged.seconds;
        let cost = besieged.receiver / alone.receiver;
        let packets: u64 = besieged.sent.iter().map(|(_, count)| count).sum();
        let counts = besieged.sent.iter();
        let counts = counts.map(|&(name, count)| (name.to_owned(), count.into()));
        shares.push(share);
        costs.push(cost);
        let figures = json!({
            "round": round,
            "bytes": BENCH_BYTES,
            "alone_seconds": alone.seconds,
            "besieged_seconds": besieged.seconds,
            "share": share,
            "receiver_processor_seconds_alone": alone.receiver,
            "receiver_processor_seconds_besieged": besieged.receiver,
            "attack_packets_per_second": packets as f64 / besieged.seconds,
            "attackers_nice": bench_nice(),
            "attackers_processor_seconds": besieged.attackers,
            "load": std::fs::read_to_string("/proc/loadavg").unwrap().trim(),
            "receiver_most_resident": besieged.most_resident,
            "sent": counts.collect::<serde_json::Map<String, Value>>(),
        });
        println!("{figures}");
    }
    eprintln!(
        "medians: share of the goodput kept {:.2}; receiver's processor time besieged to alone {:.2}",
        median(shares),
        median(costs)
    );
}
