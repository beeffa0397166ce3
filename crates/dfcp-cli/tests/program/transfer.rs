//! Transfers that succeed, between two processes on loopback.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use crate::common;
use crate::common::{Bench, bytes, run};

/// A block of the default code at the usual datagram size, and the sizes around it.
const BLOCK: usize = 183_040;

#[test]
fn files_of_all_sizes_arrive() {
    let bench = Bench::new();
    let sizes = [0, 1, 1000, BLOCK - 1, BLOCK, BLOCK + 1, 5_000_000];
    let names: Vec<_> = sizes.iter().map(|size| format!("f{size}")).collect();
    let receiver = bench.receiver(&["--once", "--allow", &bench.sender_key]);
    let mut sender = bench.sender();
    for (name, &size) in names.iter().zip(&sizes) {
        sender.arg(bench.write(name, size));
    }
    let (code, report, _) = run(sender.arg(receiver.address.to_string()));
    assert_eq!(code, 0, "{report}");
    let total: usize = sizes.iter().sum();
    assert_eq!(report["useful_bytes"], total);
    assert_eq!(
        (&report["files"], &report["error"]),
        (&7.into(), &().into())
    );
    assert!(report["wire_bytes"].as_u64().unwrap() > total as u64);
    for field in [
        "goodput_bps",
        "steady_bps",
        "seconds",
        "min_rtt_ms",
        "cpu_seconds",
    ] {
        assert!(report[field].as_f64().unwrap() > 0.0, "{field}: {report}");
    }
    let (code, report) = receiver.end();
    assert_eq!((code, &report["useful_bytes"]), (0, &total.into()));
    assert_eq!(report["peer"], bench.sender_key);
    for (name, size) in names.iter().zip(sizes) {
        bench.assert_received(name, &bytes(name, size));
    }
    assert_eq!(
        bench.received().len(),
        names.len(),
        "no partial files are left"
    );
}

#[test]
fn a_receiver_without_options_takes_every_encrypted_sender() {
    for profile in ["auto", "ctcp", "chameleon", "dfcp-sealed", "rc-udp-sealed"] {
        let bench = Bench::new();
        let receiver = bench.receiver(&["--once", "--allow", &bench.sender_key]);
        let file = bench.write("x", 3_000_000);
        let mut sender = bench.sender();
        sender.args(["--profile", profile]).arg(file);
        let (code, report, _) = run(sender.arg(receiver.address.to_string()));
        assert_eq!((code, receiver.end().0), (0, 0), "{profile}: {report}");
        bench.assert_received("x", &bytes("x", 3_000_000));
    }
}

#[test]
fn a_tree_arrives_with_modes_and_times_and_without_links() {
    let bench = Bench::new();
    let root = bench.path("tree");
    fs::create_dir_all(root.join("empty")).unwrap();
    let script = bench.write("tree/a/b/script", 10);
    fs::set_permissions(&script, fs::Permissions::from_mode(0o4751)).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_234_567_890_125);
    fs::File::options()
        .append(true)
        .open(&script)
        .unwrap()
        .set_modified(time)
        .unwrap();
    for i in 0..300 {
        bench.write(&format!("tree/many/{i}"), i);
    }
    symlink("/etc/passwd", root.join("link")).unwrap();
    let read_only = root.join("a");
    fs::set_permissions(&read_only, fs::Permissions::from_mode(0o500)).unwrap();
    let receiver = bench.receiver(&["--once"]);
    let mut sender = bench.sender();
    sender
        .arg("-q")
        .arg(&root)
        .arg(receiver.address.to_string());
    let (code, report, said) = run(&mut sender);
    fs::set_permissions(&read_only, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!((code, receiver.end().0), (3, 0), "{report}");
    // The link and the set-user-ID bit are not there, and are not silently missing.
    let left_out = report["left_out"].as_array().unwrap();
    assert_eq!(left_out.len(), 2, "{report}");
    for (left, why) in left_out.iter().zip(["set-user-ID", "symbolic link"]) {
        assert!(left["why"].as_str().unwrap().contains(why), "{left}");
        assert!(said.contains(left["path"].as_str().unwrap()), "{said}");
    }
    assert_eq!(bench.received().len(), 301);
    assert!(bench.path("received/tree/empty").is_dir());
    for i in 0..300 {
        let name = format!("tree/many/{i}");
        bench.assert_received(&name, &bytes(&name, i));
    }
    let script = fs::metadata(bench.path("received/tree/a/b/script")).unwrap();
    assert_eq!(script.mode() & 0o7777, 0o751);
    assert_eq!(script.modified().unwrap(), time);
    let directory = bench.path("received/tree/a");
    assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o500);
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn conflicts_are_settled_as_ordered() {
    for (order, code, old_stays, names) in [
        ("error", 3, true, vec!["new", "same", "x"]),
        ("skip", 0, true, vec!["new", "same", "x"]),
        ("overwrite", 0, false, vec!["new", "same", "x"]),
        ("rename", 0, true, vec!["new", "same", "x", "x.1"]),
    ] {
        let bench = Bench::new();
        let sent = ["x", "same", "new"].map(|name| bench.write(name, 1000));
        fs::create_dir(bench.path("received")).unwrap();
        fs::write(bench.path("received/x"), vec![7; 1000]).unwrap();
        fs::copy(&sent[1], bench.path("received/same")).unwrap();
        let receiver = bench.receiver(&["--once", "--on-conflict", order]);
        let (got, report, _) = run(bench.sender().args(&sent).arg(receiver.address.to_string()));
        assert_eq!((got, receiver.end().0), (code, code), "{order}: {report}");
        let x = if old_stays {
            vec![7; 1000]
        } else {
            bytes("x", 1000)
        };
        bench.assert_received("x", &x);
        bench.assert_received("new", &bytes("new", 1000));
        let mut left = bench.received();
        left.retain(|name| !name.contains(".dfcp-"));
        assert_eq!(left, names, "{order}");
    }
}

#[test]
fn one_receiver_serves_several_senders() {
    let bench = Bench::new();
    let receiver = bench.receiver(&[]);
    let senders = ["a", "b", "c"].map(|name| {
        let file = bench.write(name, 2_000_000);
        bench
            .sender()
            .arg(file)
            .arg(receiver.address.to_string())
            .spawn()
            .unwrap()
    });
    for sender in senders {
        assert_eq!(common::finish(sender).0, 0);
    }
    for name in ["a", "b", "c"] {
        bench.assert_received(name, &bytes(name, 2_000_000));
    }
}

#[test]
fn raptorq_carries_files_too() {
    let bench = Bench::new();
    let receiver = bench.receiver(&["--once"]);
    let file = bench.write("x", 3_000_000);
    let mut sender = bench.sender();
    let (code, report, _) = run(sender
        .args(["--code", "raptorq"])
        .arg(file)
        .arg(receiver.address.to_string()));
    assert_eq!((code, receiver.end().0), (0, 0), "{report}");
    bench.assert_received("x", &bytes("x", 3_000_000));
}

/// The records of a file of JSON text sequences (RFC 7464).
fn records(path: &std::path::Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(path).unwrap();
    let records = text.strip_prefix('\u{1e}').unwrap().split("\n\u{1e}");
    records.map(|r| serde_json::from_str(r).unwrap()).collect()
}

#[test]
fn both_ends_log_what_their_connections_do() {
    let bench = Bench::new();
    let (here, there) = (bench.path("here"), bench.path("there"));
    let log = there.to_str().unwrap();
    let receiver = bench.receiver(&["--once", "--allow", &bench.sender_key, "--qlog", log]);
    let mut sender = bench.sender();
    sender
        .arg("--qlog")
        .arg(&here)
        .arg(bench.write("x", 2_000_000));
    let (code, report, _) = run(sender.arg(receiver.address.to_string()));
    assert_eq!(code, 0, "{report}");
    assert_eq!(receiver.end().0, 0);
    let client = records(&here.join("0.client.sqlog"));
    let server = records(&there.join("0.server.sqlog"));
    for (end, log) in [("client", &client), ("server", &server)] {
        let header = &log[0];
        // What qvis looks at before it opens a file.
        assert_eq!(header["qlog_version"], "0.3");
        assert_eq!(header["qlog_format"], "JSON-SEQ");
        assert_eq!(header["trace"]["vantage_point"]["type"], end);
        let times = log[1..].iter().map(|r| r["time"].as_f64().unwrap());
        assert!(times.is_sorted(), "{end}");
        let names: Vec<_> = log[1..].iter().filter_map(|r| r["name"].as_str()).collect();
        for name in [
            "connectivity:connection_state_updated",
            "recovery:metrics_updated",
            "transport:packet_sent",
            "transport:packet_received",
            "connectivity:connection_closed",
        ] {
            assert!(names.contains(&name), "{end}: no {name}");
        }
    }
    let numbers = |log: &[serde_json::Value], name: &str| -> Vec<u64> {
        let named = log.iter().filter(|r| r["name"] == name);
        let each = named.map(|r| r["data"]["header"]["packet_number"].as_u64());
        each.flatten().collect()
    };
    // What came was sent, and enough of it for the file.
    let sent = numbers(&client, "transport:packet_sent");
    let received = numbers(&server, "transport:packet_received");
    assert!(received.len() > 2_000_000 / 1500, "{}", received.len());
    let number = received.iter().find(|number| !sent.contains(number));
    assert_eq!(number, None, "came, but was never sent");
}

#[test]
fn links_are_kept_within_their_tree_or_followed() {
    let bench = Bench::new();
    bench.write("tree/a/x", 1000);
    bench.write("outside", 500);
    let tree = bench.path("tree");
    symlink("a/x", tree.join("good")).unwrap();
    symlink("../a", tree.join("a/up")).unwrap();
    symlink("../outside", tree.join("out")).unwrap();
    symlink("a/../../outside", tree.join("sly")).unwrap();
    symlink("/etc/passwd", tree.join("absolute")).unwrap();
    symlink("nowhere", tree.join("dangling")).unwrap();
    let receiver = bench.receiver(&[]);
    let send = |option: &str| {
        let mut sender = bench.sender();
        run(sender
            .arg(option)
            .arg(&tree)
            .arg(receiver.address.to_string()))
    };
    let left_out = |report: &serde_json::Value| {
        let left = report["left_out"].as_array().unwrap().iter();
        let path = |left: &serde_json::Value| left["path"].as_str().unwrap().to_owned();
        left.map(path).collect::<Vec<_>>()
    };
    let (code, report, _) = send("-l");
    let outside = ["absolute", "out", "sly"].map(|name| tree.join(name).display().to_string());
    assert_eq!((code, left_out(&report)), (3, outside.to_vec()), "{report}");
    let received = bench.path("received/tree");
    for (name, to) in [("good", "a/x"), ("a/up", "../a"), ("dangling", "nowhere")] {
        assert_eq!(
            fs::read_link(received.join(name)).unwrap().to_str(),
            Some(to)
        );
    }
    // Again, they are there.
    assert_eq!(send("-l").1["files_there"], 4);
    fs::remove_dir_all(&received).unwrap();
    let (code, report, _) = send("-L");
    // A link back into a directory above has no end, and one to nothing has nothing.
    let dead = ["a/up", "dangling"].map(|name| tree.join(name).display().to_string());
    assert_eq!((code, left_out(&report)), (3, dead.to_vec()), "{report}");
    bench.assert_received("tree/out", &bytes("outside", 500));
    bench.assert_received("tree/good", &bytes("tree/a/x", 1000));
    assert!(!received.join("good").is_symlink());
}

#[test]
fn hard_links_stay_one_file() {
    let bench = Bench::new();
    let first = bench.write("tree/a", 1_000_000);
    fs::hard_link(first, bench.path("tree/b")).unwrap();
    let receiver = bench.receiver(&[]);
    for (files, there, moved) in [(2, 0, 1_000_000), (0, 2, 0)] {
        let mut sender = bench.sender();
        sender.arg(bench.path("tree"));
        let (code, report, _) = run(sender.arg(receiver.address.to_string()));
        assert_eq!(code, 0, "{report}");
        assert_eq!(report["files"], files, "{report}");
        assert_eq!(report["files_there"], there, "{report}");
        assert_eq!(report["moved_bytes"], moved, "{report}");
    }
    let number = |name: &str| {
        fs::metadata(bench.path("received").join(name))
            .unwrap()
            .ino()
    };
    assert_eq!(number("tree/a"), number("tree/b"));
}

#[test]
fn senders_decide_conflicts_as_far_as_the_receiver_lets_them() {
    for (options, wish, code, content) in [
        (&[][..], "skip", 0, "old"),
        (&[], "rename", 0, "old"),
        (&[], "overwrite", 1, "old"),
        (&["--on-conflict", "error"], "skip", 1, "old"),
        (&["--on-conflict", "skip"], "skip", 0, "old"),
        (&["--allow-overwrite"], "overwrite", 0, "new"),
        (&["--allow-overwrite"], "newer", 0, "new"),
    ] {
        let bench = Bench::new();
        fs::create_dir(bench.path("received")).unwrap();
        fs::write(bench.path("received/x"), "old").unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let old = fs::File::options()
            .append(true)
            .open(bench.path("received/x"));
        old.unwrap().set_modified(time).unwrap();
        fs::write(bench.path("x"), "new").unwrap();
        let receiver = bench.receiver(options);
        let mut sender = bench.sender();
        sender.args(["--on-conflict", wish]).arg(bench.path("x"));
        let (got, report, _) = run(sender.arg(receiver.address.to_string()));
        assert_eq!(got, code, "{options:?} {wish}: {report}");
        bench.assert_received("x", content.as_bytes());
        assert_eq!(bench.path("received/x.1").exists(), wish == "rename");
        if wish == "newer" {
            // Now the one that is there is the newer one.
            let sent = fs::File::options()
                .append(true)
                .open(bench.path("x"))
                .unwrap();
            sent.set_modified(time).unwrap();
            let mut again = bench.sender();
            again.args(["--on-conflict", wish]).arg(bench.path("x"));
            let report = run(again.arg(receiver.address.to_string())).1;
            assert_eq!(report["files_skipped"], 1, "{report}");
        }
    }
}
