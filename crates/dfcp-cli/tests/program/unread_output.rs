//! Nobody reads what a program says, and nothing is lost of it: what waits for its reader halts nobody else.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::proxying::{self, CONNECT, echo, echoes, port_in, socks};
use crate::common::{self, Bench, Receiver, eventually, run, wait};

/// Bytes of the pipes here.
const PAGE: usize = 4096;

/// A pipe of a page.
fn pipe() -> (PipeReader, PipeWriter) {
    let (read, write) = std::io::pipe().unwrap();
    fcntl(&write, FcntlArg::F_SETPIPE_SZ(PAGE as i32)).unwrap();
    (read, write)
}

/// What fills a pipe, and nobody says.
const FILL: char = '\0';

/// Fills it, so that the next byte waits for a reader.
fn fill(write: &PipeWriter) {
    // Opened anew it does not wait, and for others it does.
    let mut again = File::options();
    again.write(true).custom_flags(OFlag::O_NONBLOCK.bits());
    let path = format!("/proc/self/fd/{}", write.as_raw_fd());
    let mut again = again.open(path).unwrap();
    while again.write_all(&[FILL as u8]).is_ok() {}
}

/// What is in it behind what filled it, until all who write have ended.
fn rest(mut read: PipeReader) -> String {
    let mut text = String::new();
    read.read_to_string(&mut text).unwrap();
    text.rsplit(FILL).next().unwrap().to_owned()
}

fn brings(bench: &Bench, name: &str, address: &str) {
    let file = bench.write(name, 1000);
    let (code, ..) = run(bench
        .sender()
        .args(["--timeout", "20s"])
        .arg(file)
        .arg(address));
    assert_eq!(code, 0, "{name}");
    bench.assert_received(name, &common::bytes(name, 1000));
}

/// A receiver whose standard output nobody reads.
fn unread(bench: &Bench, how: &str) -> (PipeReader, Receiver) {
    let (read, write) = pipe();
    fill(&write);
    let mut receiver = bench.program();
    receiver.args(["recv", how, "--listen", "127.0.0.1:0"]);
    receiver.args(["--allow", &bench.sender_key, "--key"]);
    receiver.arg(bench.path("receiver.key")).arg("-o");
    receiver.arg(bench.path("received")).stdout(write);
    (read, Receiver::start(receiver))
}

#[test]
fn sessions_go_on_whose_reports_nobody_reads() {
    for how in ["--json", "--json=stream"] {
        let bench = Bench::new();
        let (read, receiver) = unread(&bench, how);
        for name in ["a", "b", "c"] {
            brings(&bench, name, &receiver.address.to_string());
        }
        // It ends once all is read that it has to tell.
        receiver.signal(Signal::SIGTERM);
        let text = rest(read);
        assert_eq!(receiver.end_code(), Some(143), "{how}");
        let told: Vec<Value> = (text.lines())
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let reports = told.iter().filter(|line| line["role"] == "recv");
        let done = reports.filter(|report| report["files"] == 1);
        assert_eq!(done.count(), 3, "{text}");
        let files = told.iter().filter(|line| line["event"] == "file");
        let expected = if how == "--json" { 0 } else { 3 };
        assert_eq!(files.count(), expected, "{text}");
    }
}

#[test]
fn a_receiver_that_nobody_reads_ends_when_it_is_asked_again() {
    let bench = Bench::new();
    let (read, receiver) = unread(&bench, "--json");
    brings(&bench, "a", &receiver.address.to_string());
    receiver.signal(Signal::SIGTERM);
    let id = receiver.id();
    let mut code = None;
    std::thread::scope(|scope| {
        let end = scope.spawn(|| receiver.end_code());
        // Each time it may not have heard the one before.
        eventually("it ends", || {
            let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
            end.is_finished()
        });
        code = end.join().unwrap();
    });
    assert_eq!(code, Some(143));
    assert_eq!(rest(read), "");
}

#[test]
fn who_asks_a_doctor_and_reads_nothing_may_end_it() {
    // The system gives it to nobody else so soon.
    let free = UdpSocket::bind("127.0.0.1:0").unwrap();
    let nobody = free.local_addr().unwrap().to_string();
    drop(free);
    for form in [&["doctor", &nobody][..], &["probe", "--json", &nobody]] {
        let bench = Bench::new();
        let (read, write) = pipe();
        fill(&write);
        let mut doctor = bench.program();
        doctor.args(form).arg("--key").arg(bench.path("sender.key"));
        doctor.stdout(write).stderr(Stdio::null());
        let mut child = doctor.spawn().unwrap();
        // It has the pipe as well.
        drop(doctor);
        let id = Pid::from_raw(child.id() as i32);
        let mut code = None;
        eventually("it waits to be read", || waits_in_a_write(id));
        eventually("it ends", || {
            let _ = kill(id, Signal::SIGINT);
            code = child.try_wait().unwrap();
            code.is_some()
        });
        // What it found is the better answer.
        assert_eq!(code.unwrap().code(), Some(5), "{form:?}");
        assert_eq!(rest(read), "", "{form:?}");
    }
}

/// Whether a thread of a process waits until somebody reads a pipe.
fn waits_in_a_write(id: Pid) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).unwrap();
    tasks.flatten().any(|task| {
        // The number of the system call, and its first argument.
        let call = std::fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
        let mut words = call.split(' ');
        let write = nix::libc::SYS_write.to_string();
        words.next() == Some(&write) && words.next() == Some("0x1")
    })
}

/// A program with a standard error that nobody reads from now on, and what it said until then.
struct Silenced {
    child: Child,
    read: BufReader<PipeReader>,
    write: Option<PipeWriter>,
}

impl Silenced {
    fn start(mut command: Command) -> Self {
        let (read, write) = pipe();
        command
            .stdout(Stdio::null())
            .stderr(write.try_clone().unwrap());
        let child = command.spawn().unwrap();
        let (read, write) = (BufReader::new(read), Some(write));
        Self { child, read, write }
    }

    fn says(&mut self, words: &str) -> String {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert!(self.read.read_line(&mut line).unwrap() > 0, "{words}");
        }
        line.trim_end().to_owned()
    }

    /// Nobody reads it from now on.
    fn silence(&mut self) {
        fill(&self.write.take().unwrap());
    }

    /// Asks it to end, and reads what it had to say.
    fn end(mut self) -> String {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM).unwrap();
        let text = rest(self.read.into_inner());
        wait(&mut self.child);
        text
    }
}

#[test]
fn sessions_go_on_where_nobody_reads_what_people_are_told() {
    let bench = Bench::new();
    let mut receiver = Silenced::start(bench.recv(&["--allow", &bench.sender_key]));
    let line = receiver.says("listening on ");
    let address = line.rsplit(' ').next().unwrap().to_owned();
    receiver.says("to send: ");
    receiver.silence();
    for name in ["a", "b", "c"] {
        brings(&bench, name, &address);
    }
    let text = receiver.end();
    assert_eq!(text.matches(" connected, ").count(), 3, "{text}");
    assert_eq!(text.matches("1 file, ").count(), 3, "{text}");
}

#[test]
fn a_service_goes_on_where_nobody_reads_its_log() {
    for form in ["text", "json"] {
        let bench = Bench::new();
        // The system gives it to nobody else so soon.
        let free = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        drop(free);
        let settings = bench.path("serve.toml");
        let text = format!(
            "listen = {address:?}\nlog = {form:?}\nkey = {:?}\n[recv]\noutput-dir = {:?}\nallow = [{:?}]\n",
            bench.path("receiver.key"),
            bench.path("received"),
            bench.sender_key
        );
        std::fs::write(&settings, text).unwrap();
        let mut serve = bench.program();
        serve.arg("serve").arg(&settings);
        let mut service = Silenced::start(serve);
        service.says("listening on ");
        brings(&bench, "first", &address);
        service.says("1 file, ");
        service.silence();
        for name in ["a", "b", "c"] {
            brings(&bench, name, &address);
        }
        let text = service.end();
        assert_eq!(text.matches("1 file, ").count(), 3, "{form}: {text}");
    }
}

#[test]
fn connections_are_carried_where_nobody_reads_of_them() {
    let bench = Bench::new();
    let mut serve = bench.program();
    serve.args(["proxy", "serve", "-v", "--listen", "127.0.0.1:0"]);
    serve.args([
        "--allow",
        &bench.sender_key,
        "--permit",
        "127.0.0.1/32",
        "--key",
    ]);
    serve.arg(bench.path("receiver.key"));
    let mut server = Silenced::start(serve);
    let line = server.says("listening on ");
    let address = line.rsplit(' ').next().unwrap().parse().unwrap();
    let client = proxying::client(
        &bench,
        address,
        &["-v", "--socks", "0", "--fast-open=never"],
    );
    let mut client = Silenced::start(client);
    let line = client.says("SOCKS5");
    let port = port_in(&line);
    let echo = echo();
    let carries = || {
        let (mut tcp, reply) = socks(port, CONNECT, echo);
        assert!(reply == 0 && echoes(&mut tcp));
    };
    carries();
    server.silence();
    client.silence();
    for _ in 0..10 {
        carries();
    }
    client.end();
    server.end();
}
