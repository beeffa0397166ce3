//! Transfers that were killed, and go on: never a wrong byte under a final name, and little is lost.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common;
use crate::common::{Bench, Receiver, bytes, eventually, finish, run, wait};

/// Ends when a partial file of this name has so many bytes on the disk.
fn has_grown(path: &Path, bytes: u64) -> bool {
    fs::metadata(path).is_ok_and(|file| file.blocks() * 512 >= bytes)
}

fn kill(mut child: std::process::Child) {
    child.kill().unwrap();
    wait(&mut child);
}

#[test]
fn a_killed_transfer_goes_on_where_it_was() {
    const SIZE: usize = 60_000_000;
    for victim in ["sender", "receiver"] {
        let bench = Bench::new();
        let file = bench.write("x", SIZE);
        let mut receiver = bench.receiver(&[]);
        let mut sender = bench.sender();
        sender.args(["--fixed-rate", "200M", "--timeout", "2s"]);
        let sender = sender.arg(&file).arg(receiver.address.to_string()).spawn();
        let partial = bench.path("received/x.dfcp-partial");
        eventually("half of it arrives", || {
            has_grown(&partial, SIZE as u64 / 2)
        });
        match victim {
            "sender" => kill(sender.unwrap()),
            _ => {
                receiver.kill();
                kill(sender.unwrap());
                receiver = bench.receiver(&[]);
            }
        }
        let there = fs::metadata(&partial).unwrap().blocks() * 512;
        // The receiver whose sender was killed still waits for it, and gives way at once.
        let start = Instant::now();
        let (code, report, _) = run(bench.sender().arg(&file).arg(receiver.address.to_string()));
        assert_eq!(code, 0, "{victim}: {report}");
        assert!(start.elapsed() < Duration::from_secs(20), "{victim}");
        bench.assert_received("x", &bytes("x", SIZE));
        assert_eq!(bench.received(), ["x"], "{victim}");
        let moved = report["moved_bytes"].as_u64().unwrap();
        // What was there took no time.
        let [bps, seconds] = ["goodput_bps", "seconds"].map(|key| report[key].as_f64().unwrap());
        assert!(bps * seconds <= moved as f64 * 8.08, "{victim}: {report}");
        let lost = (moved + there).saturating_sub(SIZE as u64);
        assert!(
            lost < there / 20,
            "{victim}: of {there} {lost} were sent again"
        );
    }
}

#[test]
fn what_changed_meanwhile_is_sent_again() {
    let bench = Bench::new();
    const SIZE: usize = 20_000_000;
    let file = bench.write("x", SIZE);
    let receiver = bench.receiver(&[]);
    let mut sender = bench.sender();
    sender.args(["--fixed-rate", "100M"]);
    let sender = sender.arg(&file).arg(receiver.address.to_string()).spawn();
    let partial = bench.path("received/x.dfcp-partial");
    eventually("half of it arrives", || {
        has_grown(&partial, SIZE as u64 / 2)
    });
    kill(sender.unwrap());
    // At the sender a part is another one now; at the receiver the disk lost one.
    let mut content = bytes("x", SIZE);
    content[1_000_000..1_000_100].fill(7);
    fs::write(&file, &content).unwrap();
    let hole = fs::File::options().write(true).open(&partial).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&hole, &[0; 5000], 3_000_000).unwrap();
    let (code, report, _) = run(bench.sender().arg(&file).arg(receiver.address.to_string()));
    assert_eq!(code, 0, "{report}");
    bench.assert_received("x", &content);
    let moved = report["moved_bytes"].as_u64().unwrap();
    assert!(moved < SIZE as u64 * 3 / 4, "{moved} bytes were sent");
    assert_eq!(bench.received(), ["x"]);
}

#[test]
fn with_no_resume_everything_comes_anew() {
    let bench = Bench::new();
    const SIZE: usize = 10_000_000;
    let file = bench.write("x", SIZE);
    let receiver = bench.receiver(&[]);
    let mut sender = bench.sender();
    sender.args(["--fixed-rate", "100M"]);
    let sender = sender.arg(&file).arg(receiver.address.to_string()).spawn();
    let partial = bench.path("received/x.dfcp-partial");
    eventually("half of it arrives", || {
        has_grown(&partial, SIZE as u64 / 2)
    });
    kill(sender.unwrap());
    let mut again = bench.sender();
    again
        .arg("--no-resume")
        .arg(&file)
        .arg(receiver.address.to_string());
    let (code, report, _) = run(&mut again);
    assert_eq!(
        (code, &report["moved_bytes"]),
        (0, &SIZE.into()),
        "{report}"
    );
    bench.assert_received("x", &bytes("x", SIZE));
}

#[test]
fn another_key_neither_takes_over_nor_learns_what_is_there() {
    let bench = Bench::new();
    let stranger = Bench::new();
    const SIZE: usize = 10_000_000;
    let file = bench.write("x", SIZE);
    let receiver = bench.receiver(&[
        "--allow",
        &bench.sender_key,
        "--allow",
        &stranger.sender_key,
    ]);
    let mut sender = bench.sender();
    sender.args(["--fixed-rate", "20M"]);
    let sender = sender.arg(&file).arg(receiver.address.to_string()).spawn();
    let partial = bench.path("received/x.dfcp-partial");
    eventually("some of it arrives", || has_grown(&partial, 2_000_000));
    // While it is being sent it is not theirs to send.
    let mut theirs = stranger.program();
    theirs
        .args(["send", "--json", "--peer-key", &bench.receiver_key])
        .args(["--key".as_ref(), stranger.path("sender.key").as_os_str()])
        .arg(&file)
        .arg(receiver.address.to_string());
    let (code, report, _) = run(&mut theirs);
    assert_eq!(code, 7, "{report}");
    kill(sender.unwrap());
    assert!(has_grown(&partial, 2_000_000));
}

#[test]
fn a_tree_that_is_there_is_not_sent_again() {
    let bench = Bench::new();
    for i in 0..200 {
        bench.write(&format!("tree/{i}"), 5000);
    }
    for i in 0..40 {
        bench.write(&format!("tree/larger-{i}"), 300_000);
    }
    let receiver = bench.receiver(&[]);
    let send = |args: &[&str]| {
        let mut sender = bench.sender();
        sender.args(args).arg(bench.path("tree"));
        run(sender.arg(receiver.address.to_string()))
    };
    assert_eq!(send(&[]).1["files"], 240);
    let (code, report, said) = send(&[]);
    assert_eq!((code, &report["files_there"]), (0, &240.into()), "{report}");
    assert!(said.contains("240 there already"), "{said}");
    // Of 13 MB at most four objects leave before the receiver has said what is there, however long
    // that takes it: the small files and three of the larger ones.
    assert!(
        report["wire_bytes"].as_u64().unwrap() < 4_000_000,
        "{report}"
    );
    // With another time it is read, and found to be the same; only what differs is sent.
    let touched = fs::File::options()
        .append(true)
        .open(bench.path("tree/7"))
        .unwrap();
    let time = std::time::UNIX_EPOCH + Duration::from_secs(1_500_000_000);
    touched.set_modified(time).unwrap();
    let (code, report, _) = send(&[]);
    assert_eq!((code, &report["moved_bytes"]), (0, &0.into()), "{report}");
    let now = fs::metadata(bench.path("received/tree/7"))
        .unwrap()
        .modified();
    assert_eq!(
        now.unwrap(),
        touched.metadata().unwrap().modified().unwrap()
    );
    // A file of the same size and time but other content is found if one asks for it.
    let secret = bench.path("received/tree/8");
    let time = fs::metadata(&secret).unwrap().modified().unwrap();
    fs::write(&secret, [9; 5000]).unwrap();
    fs::File::options()
        .append(true)
        .open(&secret)
        .unwrap()
        .set_modified(time)
        .unwrap();
    assert_eq!(send(&[]).0, 0);
    let (code, report, _) = send(&["--checksum"]);
    assert_eq!((code, &report["files_there"]), (3, &239.into()), "{report}");
}

#[test]
fn a_sender_tries_again_when_the_receiver_restarts() {
    let bench = Bench::new();
    const SIZE: usize = 30_000_000;
    let file = bench.write("x", SIZE);
    let mut first = bench.receiver(&[]);
    let address = first.address;
    let mut sender = bench.sender();
    sender.args(["--fixed-rate", "100M", "--timeout", "2s", "--retry", "5m"]);
    let sender = sender.arg(&file).arg(address.to_string()).spawn();
    let partial = bench.path("received/x.dfcp-partial");
    eventually("half of it arrives", || {
        has_grown(&partial, SIZE as u64 / 2)
    });
    first.kill();
    drop(first);
    let mut command = bench.program();
    command
        .args([
            "recv",
            "--listen",
            &address.to_string(),
            "--allow",
            &bench.sender_key,
        ])
        .args(["--key".as_ref(), bench.path("receiver.key").as_os_str()])
        .args(["-o".as_ref(), bench.path("received").as_os_str()]);
    let _second = Receiver::start(command);
    let (code, report, said) = finish(sender.unwrap());
    assert_eq!(code, 0, "{report}");
    assert!(said.contains("trying again"), "{said}");
    assert!(report["attempts"].as_u64().unwrap() > 1, "{report}");
    // All attempts together brought it once; of what came last in the first one, at 100 Mbit/s for the
    // 200 ms between two reports, the sender did not hear.
    let figure = |key: &str| report[key].as_u64().unwrap();
    assert!(
        (SIZE as u64 - 4_000_000..SIZE as u64 / 4 * 5).contains(&figure("moved_bytes")),
        "{report}"
    );
    assert_eq!(figure("useful_bytes"), SIZE as u64, "{report}");
    assert!(figure("wire_bytes") > figure("moved_bytes"), "{report}");
    // The first attempt ended after 2 s of silence, and a pause of 2 s followed.
    let seconds = report["seconds"].as_f64().unwrap();
    assert!(seconds > 4.0, "{report}");
    let carried = figure("goodput_bps") as f64 * seconds / 8.0;
    let moved = figure("moved_bytes").min(SIZE as u64) as f64;
    assert!((carried / moved - 1.0).abs() < 0.01, "{report}");
    bench.assert_received("x", &bytes("x", SIZE));
}

#[test]
fn several_attempts_are_told_as_one_transfer() {
    let bench = Bench::new();
    let mut total = 0;
    for i in 0..400_usize {
        bench.write(&format!("tree/{i:03}"), 100 * i);
        total += 100 * i as u64;
    }
    let large = bench.write("tree/large", 8_000_000);
    total += 8_000_000;
    // Of another content, and as large.
    bench.write("received/tree/399", 39_900);
    let mut first = bench.receiver(&["--on-conflict", "overwrite"]);
    let address = first.address;
    let mut sender = bench.program();
    sender.args([
        "send",
        "--json=stream",
        "--peer-key",
        &bench.receiver_key,
        "-b",
        "60M",
    ]);
    sender.args(["--timeout", "2s", "--retry", "5m", "--key"]);
    sender
        .arg(bench.path("sender.key"))
        .arg(large.parent().unwrap());
    let mut sender = sender.arg(address.to_string()).spawn().unwrap();
    let mut stdout = sender.stdout.take().unwrap();
    let events = std::thread::spawn(move || {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stdout, &mut text).unwrap();
        text
    });
    let partial = bench.path("received/tree/large.dfcp-partial");
    eventually("some of the large one arrives", || {
        has_grown(&partial, 2_000_000)
    });
    first.kill();
    drop(first);
    let mut command = bench.recv(&["--allow", &bench.sender_key, "--on-conflict", "overwrite"]);
    command.args(["--progress", "never"]);
    let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let mut command = bench.program();
    for arg in args {
        match arg == "127.0.0.1:0" {
            true => command.arg(address.to_string()),
            false => command.arg(arg),
        };
    }
    let _second = Receiver::start(command);
    assert_eq!(common::wait(&mut sender).code(), Some(0));
    let events = events.join().unwrap();
    let mut last = serde_json::Value::Null;
    for event in events.lines() {
        last = serde_json::from_str(event).unwrap();
        if last["event"] == "progress" {
            let [bytes, total] = ["bytes", "total"].map(|key| last[key].as_u64().unwrap());
            assert!(bytes <= total, "{last}");
        }
    }
    let figure = |key: &str| last[key].as_u64().unwrap();
    assert!(figure("attempts") > 1, "{last}");
    assert_eq!((figure("files"), figure("files_there")), (401, 0), "{last}");
    assert_eq!(figure("useful_bytes"), total, "{last}");
}

/// Random numbers for a test, printed with what fails.
struct Dice(blake3::OutputReader);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_le_bytes(bytes) % bound
    }
}

/// Sends a tree again and again to a receiver; either side is killed at any moment.
fn kills(seed: u64, kills: u32, files: u32) {
    eprintln!("seed {seed}");
    let mut hasher = blake3::Hasher::new();
    let mut dice = Dice(hasher.update(&seed.to_le_bytes()).finalize_xof());
    let bench = Bench::new();
    let mut content = BTreeMap::new();
    for i in 0..files {
        let size = match i % 20 {
            0 => 500_000 + dice.below(2_500_000),
            _ => dice.below(20_000),
        };
        let name = format!("tree/{}/{i}", i % 7);
        bench.write(&name, size as usize);
        content.insert(name, size);
    }
    let total: u64 = content.values().sum();
    let mut receiver = bench.receiver(&[]);
    let (mut there, mut progress) = (0, 0);
    for round in 0..kills {
        let mut sender = bench.sender();
        sender
            .args(["--fixed-rate", "60M", "-q"])
            .arg(bench.path("tree"));
        let mut sender = sender.arg(receiver.address.to_string()).spawn().unwrap();
        if dice.below(2) == 0 {
            // While it starts, mostly, on a busy machine. A moment is what it is about, so nothing else can
            // be waited for.
            let moment = Instant::now() + Duration::from_micros(dice.below(400_000));
            eventually("the moment comes", || Instant::now() >= moment);
        } else {
            let amount = |(whole, parts)| whole + parts;
            let enough = amount(bytes_there(&bench, &content)) + dice.below(3_000_000);
            eventually("so much has come, or all", || {
                let ended = sender.try_wait().unwrap().is_some();
                ended || amount(bytes_there(&bench, &content)) >= enough
            });
        }
        if dice.below(2) == 0 {
            kill(sender);
        } else {
            receiver.kill();
            kill(sender);
            receiver = bench.receiver(&[]);
        }
        let (mut whole, mut parts) = (0, 0);
        for name in bench.received() {
            let path = bench.path("received").join(&name);
            if name.ends_with(".dfcp-partial") {
                parts += fs::metadata(path).map_or(0, |file| file.blocks() * 512);
            } else if let Some(size) = content.get(&name) {
                // A receiver that still runs may be about to rename it.
                let Ok(got) = fs::read(&path) else { continue };
                assert!(
                    got == bytes(&name, *size as usize),
                    "seed {seed}, round {round}: {name}"
                );
                whole += size;
            }
        }
        assert!(
            whole >= there,
            "seed {seed}, round {round}: less than before"
        );
        progress += u32::from(whole > there);
        there = whole;
        if round % 10 == 0 {
            eprintln!(
                "round {round}: {whole} bytes of {total}, and {parts} of parts; more files in {progress}"
            );
        }
        if whole == total {
            eprintln!("round {round}: all of it");
            fs::remove_dir_all(bench.path("received/tree")).unwrap();
            there = 0;
        }
    }
    let mut sender = bench.sender();
    sender.arg(bench.path("tree"));
    let (code, report, _) = run(sender.arg(receiver.address.to_string()));
    assert_eq!(code, 0, "seed {seed}: {report}");
    for (name, size) in content {
        bench.assert_received(&name, &bytes(&name, size as usize));
    }
    let left = bench.received();
    let odd = left.iter().find(|name| name.contains(".dfcp-"));
    assert_eq!(odd, None, "seed {seed}");
}

#[test]
fn either_side_may_be_killed_at_any_moment() {
    kills(std::process::id().into(), 40, 100);
}

/// What is there of these files: bytes of whole ones, and those on the disk of others.
fn bytes_there(bench: &Bench, content: &BTreeMap<String, u64>) -> (u64, u64) {
    let (mut whole, mut parts) = (0, 0);
    for name in bench.received() {
        let file = fs::metadata(bench.path("received").join(&name));
        if let Some(size) = content.get(&name) {
            whole += size;
        } else if name.ends_with(".dfcp-partial") {
            parts += file.map_or(0, |file| file.blocks() * 512);
        }
    }
    (whole, parts)
}

/// Kills a transfer of a tree of files of these sizes at any moment, and lets another one end it: how much was
/// there, and how much of that came again.
fn costs_of_kills(seed: u64, kills: u32, sizes: &[u64]) -> Vec<(u64, u64)> {
    let mut hasher = blake3::Hasher::new();
    let mut dice = Dice(hasher.update(&seed.to_le_bytes()).finalize_xof());
    let bench = Bench::new();
    let mut content = BTreeMap::new();
    for (i, size) in sizes.iter().enumerate() {
        let name = format!("tree/{}/{i}", i % 7);
        bench.write(&name, *size as usize);
        content.insert(name, *size);
    }
    let total: u64 = sizes.iter().sum();
    let mut receiver = bench.receiver(&[]);
    let mut costs = Vec::new();
    while costs.len() < kills as usize {
        let mut sender = bench.sender();
        sender.args(["--fixed-rate", "100M", "-q"]);
        let sender = sender.arg(bench.path("tree"));
        let sender = sender.arg(receiver.address.to_string()).spawn().unwrap();
        // At some amount instead of some time: how fast a debug build is says nothing.
        let moment = dice.below(total);
        eventually("the moment comes", || {
            let (whole, parts) = bytes_there(&bench, &content);
            whole + parts >= moment
        });
        if dice.below(2) == 0 {
            kill(sender);
        } else {
            receiver.kill();
            kill(sender);
            receiver = bench.receiver(&[]);
        }
        // What a receiver that still runs has in its buffers it goes on to write.
        let mut there = (0, 0);
        eventually("all is written", || {
            let before = std::mem::replace(&mut there, bytes_there(&bench, &content));
            before == there
        });
        let mut sender = bench.sender();
        sender.arg(bench.path("tree"));
        let (code, report, _) = run(sender.arg(receiver.address.to_string()));
        assert_eq!(code, 0, "seed {seed}: {report}");
        for (name, size) in &content {
            bench.assert_received(name, &bytes(name, *size as usize));
        }
        let there = there.0 + there.1;
        let moved = report["moved_bytes"].as_u64().unwrap();
        let lost = (moved + there).saturating_sub(total);
        eprintln!("seed {seed}: of {there} bytes {lost} came again");
        costs.push((there, lost));
        fs::remove_dir_all(bench.path("received/tree")).unwrap();
    }
    costs
}

/// `KILLS=300 cargo test -p dfcp-cli --test program -- --ignored --nocapture kills_cost`
#[test]
#[ignore = "takes minutes"]
fn kills_cost_little() {
    // Many small ones, and as many bytes in large ones.
    cost_little(&mixed());
}

/// The same with `kills_of_small` for a tree without large files.
#[test]
#[ignore = "takes minutes"]
fn kills_of_small_files_cost_little() {
    let sizes: Vec<u64> = (0..1000).map(|i| 50 + i * 20).collect();
    cost_little(&sizes);
}

fn mixed() -> Vec<u64> {
    let size = |i: u64| match i % 30 {
        0 => 300_000 + i * 10_000,
        _ => 50 + i * 150,
    };
    (0..300).map(size).collect()
}

fn cost_little(sizes: &[u64]) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = number("SEED").unwrap_or(std::process::id().into());
    let kills = number("KILLS").unwrap_or(300) as u32;
    let mut costs = costs_of_kills(seed, kills, sizes);
    costs.sort_by_key(|(there, lost)| lost * 1_000_000 / (there + 1));
    let (there, lost): (Vec<u64>, Vec<u64>) = costs.iter().copied().unzip();
    let share = |there: u64, lost: u64| 1.0 - lost as f64 / there.max(1) as f64;
    eprintln!(
        "kept of {} bytes in {kills} kills: {:.4}; worst {:?}",
        there.iter().sum::<u64>(),
        share(there.iter().sum(), lost.iter().sum()),
        costs.iter().rev().take(10).collect::<Vec<_>>(),
    );
    let under = costs.iter().filter(|(there, lost)| lost * 20 > *there);
    eprintln!("{} kept less than 0.95", under.count());
    // Of little that is there a group that is not whole is a large share.
    let [there, lost] = [there, lost].map(|all| all.iter().sum::<u64>());
    assert!(lost * 50 <= there, "seed {seed}: {lost} of {there}");
}

/// Whoever was killed, the same command asks what is there before anything leaves.
#[test]
fn small_files_that_came_before_a_kill_do_not_come_again() {
    for victim in ["sender", "receiver"] {
        let bench = Bench::new();
        let content: BTreeMap<_, _> = (0..500)
            .map(|i: u64| (format!("tree/{}/{i}", i % 7), 50 + i * 20))
            .collect();
        for (name, size) in &content {
            bench.write(name, *size as usize);
        }
        let total: u64 = content.values().sum();
        let mut receiver = bench.receiver(&[]);
        let send = |receiver: &Receiver| {
            let mut sender = bench.sender();
            sender.arg(bench.path("tree"));
            sender.arg(receiver.address.to_string());
            sender
        };
        let mut sender = send(&receiver);
        let sender = sender.args(["--fixed-rate", "20M"]).spawn().unwrap();
        eventually("a third of it comes", || {
            bytes_there(&bench, &content).0 >= total / 3
        });
        if victim == "receiver" {
            receiver.kill();
        }
        kill(sender);
        if victim == "receiver" {
            receiver = bench.receiver(&[]);
        }
        // A receiver that still runs may write some more.
        let there = bytes_there(&bench, &content).0;
        let (code, report, _) = run(&mut send(&receiver));
        assert_eq!(code, 0, "{report}");
        let moved = report["moved_bytes"].as_u64().unwrap();
        assert!(moved <= total - there, "{victim}, {there}: {report}");
        for (name, size) in &content {
            bench.assert_received(name, &bytes(name, *size as usize));
        }
        // Once it is whole there is nothing to remember.
        let notes = fs::read_dir(bench.path("state/dfcp/unfinished")).unwrap();
        assert_eq!(notes.count(), 0, "{victim}");
    }
}

/// As many as one likes: `KILLS=5000 cargo test -p dfcp-cli --test program -- --ignored thousands_of_kills`.
#[test]
#[ignore = "takes an hour"]
fn thousands_of_kills() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = number("SEED").unwrap_or(std::process::id().into());
    kills(seed, number("KILLS").unwrap_or(5000) as u32, 1000);
}
