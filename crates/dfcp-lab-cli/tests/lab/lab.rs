//! The lab: scenarios on a real path of this machine, where it allows that; else tests say so.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Longer than anything here takes on a machine that is alive.
const PATIENCE: Duration = Duration::from_secs(120);

struct Lab {
    dir: TempDir,
}

impl Lab {
    /// A lab, if this machine and user may have one.
    fn new() -> Option<Self> {
        let lab = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        let file = lab.scenario(
            "duration = \"1 ms\"",
            "",
            "protocol = \"udp-cbr\"\n[udp]\nrate = \"1 Mbit/s\"",
        );
        let output = lab.command("run").arg(file).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        if ["namespace", "network", "veth", "cable"]
            .iter()
            .any(|word| errors.contains(word))
        {
            eprintln!("SKIPPED: {errors}");
            return None;
        }
        Some(lab)
    }

    fn command(&self, subcommand: &str) -> Command {
        // Scripts start what runs in the background with SIGINT ignored, and children inherit that.
        let mut command = Command::new("env");
        command
            .arg("--default-signal=INT")
            .arg(env!("CARGO_BIN_EXE_dfcp-lab"))
            .args(["lab", subcommand])
            .env("HOME", self.dir.path())
            .stdin(Stdio::null());
        command
    }

    /// A dumbbell of 20 Mbit/s and 20 ms with one flow for each of `flows`.
    fn scenario(&self, run: &str, bottleneck: &str, flows: &str) -> PathBuf {
        let text = format!(
            "schema = 1\n[run]\n{run}\n[topology]\nkind = \"dumbbell\"\npairs = 2\nrtt = \"20 ms\"\n\
             [link.default]\nrate = \"1 Gbit/s\"\n\
             [link.bottleneck]\nrate = \"20 Mbit/s\"\n{bottleneck}\n[[flow]]\n{flows}\n"
        );
        let path = self.dir.path().join("scenario.toml");
        fs::write(&path, text).unwrap();
        path
    }

    /// Lines of JSON that a subcommand prints. Whether the path was true depends on how busy the
    /// machine is: nothing here does.
    fn json(&self, subcommand: &str, args: &[&str], file: &Path) -> Vec<Value> {
        let mut command = self.command(subcommand);
        let output = command.arg("--json").args(args).arg(file).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert!(
            !lines.is_empty(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        lines
    }
}

#[test]
fn every_protocol_gets_an_object_across() {
    let Some(lab) = Lab::new() else { return };
    let protocols = [
        "auto",
        "ctcp",
        "chameleon",
        "tfrc",
        "dfcp",
        "rc-udp",
        "tcp-cubic",
    ];
    let flows: Vec<String> = protocols
        .iter()
        .map(|protocol| format!("protocol = \"{protocol}\"\nsize = \"200 kB\""))
        .collect();
    let slow =
        "[published]\ncontrol = \"5 Mbit/s\"\n[rc_udp]\ncontrol = \"5 Mbit/s\"\nblock = \"100 kB\"";
    let file = lab.scenario(
        "duration = \"60 s\"\nend = \"finished\"",
        "loss = 0.01\nqueue = { discipline = \"drr\", limit = \"200 packets\" }",
        &format!("{}\n{slow}", flows.join("\n[[flow]]\n")),
    );
    for family in [&[][..], &["--ipv6"]] {
        let lines = lab.json("run", family, &file);
        for (flow, protocol) in lines.iter().zip(protocols) {
            assert_eq!(flow["protocol"], protocol);
            assert!(flow["failure"].is_null(), "{flow}");
            assert_eq!(
                (&flow["finished"], &flow["bytes"]),
                (&true.into(), &200_000.into()),
                "{flow}"
            );
            // Two ways of 10 ms each at least.
            assert!(flow["fct_s"].as_f64().unwrap() >= 0.02, "{flow}");
            assert!(flow["bytes_sent"].as_u64().unwrap() > 200_000, "{flow}");
        }
    }
}

#[test]
fn datagrams_are_lost_copied_and_limited_as_the_links_say() {
    let Some(lab) = Lab::new() else { return };
    let file = lab.scenario(
        "duration = \"3 s\"",
        "loss = 0.2\njitter = \"2 ms\"\nreorder = 0.05\nduplicate = 0.1\nqueue = { limit = \"20 packets\" }",
        "protocol = \"udp-cbr\"\n[udp]\nrate = \"30 Mbit/s\"",
    );
    let lines = lab.json("run", &[], &file);
    let flow = &lines[0];
    let number = |name: &str| flow[name].as_f64().unwrap_or_else(|| panic!("{flow}"));
    // A third of what is sent has no place in the queue, a fifth of the rest is lost.
    assert!(
        number("dropped_full") > 0.1 * number("packets_sent"),
        "{flow}"
    );
    let passed = number("packets_sent") - number("dropped_full");
    let lost = number("dropped_loss") / passed;
    // Five standard deviations, at the least of packets that so slow a machine sends.
    let deviation = (0.2 * 0.8 / passed).sqrt();
    assert!((lost - 0.2).abs() < 5.0 * deviation, "{flow}");
    assert!(number("goodput_bps") < 20e6 * 1.1, "{flow}");
    assert!(number("bytes") > 0.0, "{flow}");
}

#[test]
fn flows_cross_a_parking_lot_and_links_change() {
    let Some(lab) = Lab::new() else { return };
    let path = lab.dir.path().join("lot.toml");
    let text = "schema = 1\n[run]\nduration = \"3 s\"\nsample = \"500 ms\"\n\
        [topology]\nkind = \"parking-lot\"\n[link.default]\nrate = \"100 Mbit/s\"\ndelay = \"2 ms\"\n\
        queue = { discipline = \"wfq\", limit = \"100 packets\" }\n\
        [link.bottleneck]\nrate = \"10 Mbit/s\"\n\
        [[flow]]\nprotocol = \"tcp-cubic\"\ncount = 3\n\
        [[change]]\nat = \"1500 ms\"\nlink = \"bottleneck\"\nrate = \"1 Mbit/s\"\n";
    fs::write(&path, text).unwrap();
    let lines = lab.json("run", &[], &path);
    let flows = &lines[..3];
    for flow in flows {
        assert!(flow["bytes"].as_u64().unwrap() > 10_000, "{flow}");
    }
    // 10 Mbit/s for half of the time, 1 Mbit/s for the other: not more than 5.5 on each bottleneck.
    let goodput = |flow: usize| flows[flow]["goodput_bps"].as_f64().unwrap();
    for other in [1, 2] {
        assert!(goodput(0) + goodput(other) < 6e6, "{flows:?}");
    }
}

#[test]
fn what_cannot_run_for_real_is_said_and_the_rest_runs() {
    let Some(lab) = Lab::new() else { return };
    let file = lab.scenario(
        "duration = \"20 s\"\nend = \"finished\"",
        "",
        "protocol = \"coded\"\nsize = \"100 kB\"\n[[flow]]\nprotocol = \"tcp-cubic\"\nsize = \"100 kB\"",
    );
    let lines = lab.json("run", &[], &file);
    let reason = lines[0]["failure"].as_str().unwrap();
    assert!(reason.contains("simulation"), "{reason}");
    assert_eq!(
        (&lines[1]["finished"], &lines[1]["failure"]),
        (&true.into(), &Value::Null)
    );
}

#[test]
fn a_scenario_with_a_mistake_is_shown_with_its_place() {
    let Some(lab) = Lab::new() else { return };
    let file = lab.scenario("duration = \"1 s\"", "lost = 1", "protocol = \"auto\"");
    for subcommand in ["run", "verify", "parity"] {
        let output = lab.command(subcommand).arg(&file).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(
            errors.contains("scenario.toml:12") && errors.contains("`loss`"),
            "{errors}"
        );
    }
}

#[test]
fn verification_measures_the_settings() {
    let Some(lab) = Lab::new() else { return };
    let file = lab.scenario(
        "",
        "loss = 0.1\nqueue = { limit = \"50 packets\" }",
        "protocol = \"auto\"",
    );
    let lines = lab.json("verify", &[], &file);
    let check = |what: &str| {
        let found = lines.iter().find(|line| line["what"] == what);
        found.unwrap_or_else(|| panic!("no {what} in {lines:?}"))
    };
    let near = |what: &str, expected: f64, by: f64| {
        let check = check(what);
        assert!(
            (check["expected"].as_f64().unwrap() - expected).abs() < by,
            "{check}"
        );
        assert!(check["measured"].is_number(), "{check}");
    };
    near("rtt_s", 0.02, 0.001);
    near("rate_bps", 18e6, 1.0);
    near("loss", 0.1, 1e-9);
    near("duplicates", 0.0, 1e-9);
    // A round trip cannot be shorter than the path, however busy the machine is.
    assert!(check("rtt_s")["measured"].as_f64().unwrap() >= 0.02);
}

#[test]
fn the_two_worlds_stand_side_by_side() {
    let Some(lab) = Lab::new() else { return };
    let file = lab.scenario(
        "duration = \"20 s\"\nend = \"finished\"",
        "",
        "protocol = \"tcp-cubic\"\nsize = \"300 kB\"",
    );
    let lines = lab.json("parity", &["--tolerance", "90%"], &file);
    let flow = &lines[0]["flows"][0];
    for figure in ["goodput_bps", "fct_s", "loss", "rtt_s", "overhead"] {
        assert!(flow[figure]["simulated"].is_number(), "{figure}: {flow}");
        assert!(flow[figure]["real"].is_number(), "{figure}: {flow}");
    }
    assert_eq!(lines[1]["cells"], 1);
}

#[test]
fn an_application_reads_no_faster_than_its_scenario_says() {
    let Some(lab) = Lab::new() else { return };
    let file = lab.scenario(
        "duration = \"5 s\"\nwarmup = \"2 s\"",
        "",
        "protocol = \"chameleon\"\nread_rate = \"800 kbit/s\"",
    );
    let lines = lab.json("run", &[], &file);
    let goodput = lines[0]["goodput_bps"].as_f64().unwrap();
    // A path of 20 Mbit/s would carry more; what is read at once is up to a packet or two.
    assert!(goodput < 0.82e6, "{}", lines[0]);
    assert!(goodput > 0.0, "{}", lines[0]);
}

#[test]
fn figures_of_a_paper_are_measured_beside_the_simulator_and_go_on_where_they_were() {
    let Some(lab) = Lab::new() else { return };
    let out = lab.dir.path().join("figures");
    let figures = || {
        // All points at once: a path that is late says so, and nothing here depends on it.
        let mut command = lab.command("figures");
        command.args([
            "dfcp",
            "--only",
            "fig-21a",
            "--jobs",
            "8",
            "--attempts",
            "1",
            "-o",
        ]);
        let output = command.arg(&out).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        errors
    };
    let errors = figures();
    assert!(errors.contains("8 of 8 points run"), "{errors}");
    let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    let summary: Value = serde_json::from_str(&read("summary.json")).unwrap();
    let points = summary["figures"][0]["points"].as_array().unwrap();
    assert_eq!(points.len(), 8, "{summary}");
    for point in points {
        // A transfer cannot take less than the handshake and the way there.
        let rtt = point["at"].as_f64().unwrap();
        assert!(point["simulated"].as_f64().unwrap() > 1.5 * rtt, "{point}");
        let real = point["real"].as_f64();
        assert!(real.is_none_or(|real| real > 1.5 * rtt), "{point}");
    }
    // On a busy machine a transfer may not end in its time, which leaves its point empty.
    let measured = points.iter().filter(|point| point["real"].is_number());
    assert!(measured.count() > 4, "{errors} {summary}");
    assert!(read("fig-21a.svg").contains("real"));
    let page = read("README.md");
    assert!(page.contains("real ÷ simulated"), "{page}");
    // What is done on a true path is not run again, and shows the same.
    let is_true = |point: &Value| point.get("untrue").is_none() && point["real"].is_number();
    let late = points.iter().filter(|point| !is_true(point)).count();
    let errors = figures();
    assert!(
        errors.contains(&format!("{late} of 8 points run")),
        "{errors}"
    );
    let summary: Value = serde_json::from_str(&read("summary.json")).unwrap();
    let now = summary["figures"][0]["points"].as_array().unwrap();
    for (before, now) in points.iter().zip(now) {
        assert!(!is_true(before) || before == now, "{before} {now}");
    }
}

/// Processes whose parent a process is.
fn children(of: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{of}/task")) else {
        return Vec::new();
    };
    let list = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).ok();
    let lists = tasks.flatten().filter_map(list);
    let pids = lists.flat_map(|list| {
        let pids = list.split_whitespace().map(|pid| pid.parse().unwrap());
        pids.collect::<Vec<_>>()
    });
    pids.collect()
}

/// Waits until something holds.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        thread::yield_now();
    }
}

fn is_alive(pid: u32) -> bool {
    // A zombie is waited for by whoever adopted it.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

fn long_run(lab: &Lab) -> (Child, Vec<u32>) {
    let file = lab.scenario("duration = \"1000 s\"", "", "protocol = \"tcp-cubic\"");
    let mut command = lab.command("run");
    command
        .arg(file)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = command.spawn().unwrap();
    eventually("sender and receiver run", || {
        children(child.id()).len() == 2
    });
    let workers = children(child.id());
    (child, workers)
}

#[test]
fn nothing_outlives_a_lab_that_is_killed_or_interrupted() {
    use nix::sys::signal::{Signal, kill};
    let Some(lab) = Lab::new() else { return };
    for signal in [Signal::SIGKILL, Signal::SIGINT, Signal::SIGTERM] {
        let (mut child, workers) = long_run(&lab);
        kill(nix::unistd::Pid::from_raw(child.id() as i32), signal).unwrap();
        assert!(!child.wait().unwrap().success());
        for pid in workers {
            eventually("workers end with their lab", || !is_alive(pid));
        }
    }
    let output = lab.command("clean").arg("--dry-run").output().unwrap();
    assert!(output.status.success());
}

#[test]
fn what_programs_of_a_lab_leave_behind_ends_with_it() {
    use nix::sys::signal::{Signal, kill};
    let Some(lab) = Lab::new() else { return };
    // In a group of its own, deaf to requests, and of a shell that has ended.
    let leave = |name: &str| {
        format!(
            "setsid sh -c 'trap \"\" TERM; echo $$ >{name}.part; mv {name}.part {name}; sleep 1000' &"
        )
    };
    for (round, (ended_by, last)) in [(None, "true"), (Some(Signal::SIGTERM), "exec sleep 1000")]
        .into_iter()
        .enumerate()
    {
        let (here, there) = (format!("here{round}"), format!("there{round}"));
        let program = format!(
            "{} until test -e {there} -a -e {here}; do :; done; {last}",
            leave(&here)
        );
        let mut command = lab.command("exec");
        command.args(["--there", &leave(&there), "--", "sh", "-c", &program]);
        command.current_dir(lab.dir.path());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut left = Vec::new();
        for name in [here, there] {
            let file = lab.dir.path().join(name);
            eventually("it starts", || file.exists());
            left.push(fs::read_to_string(&file).unwrap().trim().parse().unwrap());
        }
        if let Some(signal) = ended_by {
            kill(nix::unistd::Pid::from_raw(child.id() as i32), signal).unwrap();
        }
        child.wait().unwrap();
        for pid in left {
            eventually("what was left behind ends", || !is_alive(pid));
        }
    }
}
