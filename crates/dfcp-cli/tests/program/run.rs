//! `dfcp run`: programs that know nothing of it, over a server. What is here is carried by a rule for it,
//! and what is carried is told (`-v`); between network namespaces nothing else would get there.

mod sockets;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output, Stdio};

use crate::common::meeting::{Place, program_in};
use crate::common::namespace::{Namespace, privileged};
use crate::common::{Bench, Receiver, bytes, eventually, wait};

/// Whether a program is there; said if not.
fn has(program: &str) -> bool {
    let mut command = Command::new(program);
    let quiet = command.arg("--version").stdin(Stdio::null()).output();
    if quiet.is_err() {
        eprintln!("SKIPPED: {program} is not installed");
    }
    quiet.is_ok()
}

/// Serves a page of 100 kB over HTTP, and to anybody else who says three bytes.
fn web(at: &str) -> SocketAddr {
    let listener = TcpListener::bind(at).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut tcp in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let page = bytes("page", 100_000);
                let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", page.len());
                let mut asked = [0; 1024];
                let len = tcp.read(&mut asked)?;
                let speaks_http = asked[..len].starts_with(b"GET");
                if speaks_http {
                    tcp.write_all(head.as_bytes())?;
                }
                tcp.write_all(&page)
            });
        }
    });
    address
}

fn serve(place: Place, bench: &Bench, listen: &str, permit: &str) -> Command {
    let mut command = program_in(place, &bench.path(""));
    command
        .args(["proxy", "serve", "--listen", listen])
        .args(["--allow", &bench.sender_key, "--permit", permit, "--key"])
        .arg(bench.path("receiver.key"));
    command
}

fn run_in(place: Place, bench: &Bench, server: SocketAddr, args: &[&str]) -> Command {
    let mut command = program_in(place, &bench.path(""));
    command
        .args(["run", "--peer-key", &bench.receiver_key, "--key"])
        .arg(bench.path("sender.key"))
        .arg(server.to_string())
        .args(args);
    command
}

/// Exit code, standard output and what was said.
fn outcome(mut command: Command) -> (i32, Vec<u8>, String) {
    let child = command.spawn().unwrap();
    let out: Output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    eprintln!("{said}");
    (out.status.code().unwrap_or(-1), out.stdout, said)
}

/// A server that reaches this machine.
struct Near {
    bench: Bench,
    server: Receiver,
}

impl Near {
    fn new() -> Self {
        let bench = Bench::new();
        let server = Receiver::start(serve(None, &bench, "127.0.0.1:0", "127.0.0.1/32"));
        Self { bench, server }
    }

    /// A program for which 127.0.0.1 is there, and names of `there`.
    fn run(&self, program: &[&str]) -> Command {
        let rules = ["-v", "--carry", "127.0.0.1/32", "--carry", "*.there"];
        let mut command = self.bench.program();
        command
            .args(["run", "--peer-key", &self.bench.receiver_key, "--key"])
            .arg(self.bench.path("sender.key"))
            .args(rules)
            .arg(self.server.address.to_string())
            .arg("--")
            .args(program);
        command
    }

    fn python(&self, script: &str, args: &[&str]) -> (i32, String, String) {
        let command = self.run(&[&["python3", "-c", script][..], args].concat());
        let (code, out, said) = outcome(command);
        (code, String::from_utf8(out).unwrap(), said)
    }
}

/// What is done through io_uring nobody is asked about. 425 is `io_uring_setup` on all machines.
#[test]
fn io_uring_is_not_there_and_that_is_told() {
    if !has("python3") {
        return;
    }
    let near = Near::new();
    let script = r#"
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
for _ in range(2):
    assert libc.syscall(425, 8, ctypes.create_string_buffer(120)) == -1
    print(errno.errorcode[ctypes.get_errno()])
"#;
    let (code, out, said) = near.python(script, &[]);
    assert_eq!((code, &out[..]), (0, "ENOSYS\nENOSYS\n"), "{said}");
    assert_eq!(said.matches("asks for io_uring").count(), 1, "{said}");
}

/// Connects in several ways, each of which must fail with the number that is given.
const FAILURES: &str = r#"
import asyncio, errno, select, socket, sys
host, port, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
waiting = socket.socket()
print(errno.errorcode[waiting.connect_ex((host, port))])
polled = socket.socket()
polled.setblocking(False)
assert polled.connect_ex((host, port)) == errno.EINPROGRESS
poll = select.epoll()
poll.register(polled, select.EPOLLOUT)
assert poll.poll(30)
print(errno.errorcode[polled.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)])
assert polled.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
again = socket.socket()
again.setblocking(False)
again.connect_ex((host, port))
select.select([], [again], [], 30)
print(errno.errorcode[again.connect_ex((host, port))])
async def main():
    try:
        await asyncio.open_connection(name, port)
    except OSError as error:
        print(errno.errorcode[error.errno])
asyncio.run(main())
"#;

#[test]
fn what_fails_there_fails_here_in_the_same_way() {
    if !has("python3") {
        return;
    }
    let near = Near::new();
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = closed.local_addr().unwrap().port().to_string();
    let (code, out, said) = near.python(FAILURES, &["127.0.0.1", &port, "no-such-host.there"]);
    let expected = [
        "ECONNREFUSED",
        "ECONNREFUSED",
        "ECONNREFUSED",
        "EHOSTUNREACH",
    ];
    assert_eq!(
        (code, &out.split_whitespace().collect::<Vec<_>>()[..]),
        (0, &expected[..]),
        "{said}"
    );
    // What rules do not permit.
    let near = Near {
        server: Receiver::start(serve(None, &near.bench, "127.0.0.1:0", "internet")),
        bench: near.bench,
    };
    let (code, out, said) = near.python(FAILURES, &["127.0.0.1", &port, "127.0.0.1"]);
    assert_eq!(
        (code, out.trim()),
        (0, "EACCES\nEACCES\nEACCES\nEACCES"),
        "{said}"
    );
}

#[test]
fn the_programs_end_is_the_end() {
    let near = Near::new();
    for (program, expected) in [
        (&["sh", "-c", "exit 7"][..], 7),
        (&["sh", "-c", "kill -TERM $$"], 143),
        (&["/nowhere/program"], 127),
        (&["/dev/null"], 126),
    ] {
        let (code, _, said) = outcome(near.run(program));
        assert_eq!(code, expected, "{program:?}: {said}");
    }
    // A signal goes to the program.
    let script = "trap 'echo heard; exit 3' TERM; echo ready; while :; do read x <&9; done 9<&0";
    let mut command = near.run(&["sh", "-c", script]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut heard = [0; 6];
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut heard).unwrap();
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    drop(child.stdin.take());
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!((rest.trim(), wait(&mut child).code()), ("heard", Some(3)));
    // Nothing is started without a server that takes the key.
    let stranger = near.bench.path("stranger.key");
    let mut command = near.bench.program();
    let key = command.args(["keygen", "--out"]).arg(&stranger).output();
    assert!(key.unwrap().status.success());
    let mut command = near.bench.program();
    command
        .args(["run", "--peer-key", &near.bench.receiver_key, "--key"])
        .arg(stranger)
        .args([&near.server.address.to_string(), "--", "echo", "started"]);
    let (code, out, said) = outcome(command);
    assert_eq!((code, &out[..]), (4, &b""[..]), "{said}");
    assert!(said.contains("--allow dfcp-pub-"), "{said}");
}

/// Waits until a process has ended, and says then how calls fare that were stopped at before.
const LEFT_BEHIND: &str = r#"
import socket, sys, time
process, port = sys.argv[1], int(sys.argv[2])
def is_there():
    try:
        return open(f"/proc/{process}/stat").read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
while is_there():
    time.sleep(0.01)
here, there = socket.socketpair()
here.sendmsg([b"a message"])
print(there.recvmsg(100)[0].decode(), flush=True)
web = socket.create_connection(("127.0.0.1", port))
web.sendall(b"say")
print(len(web.makefile("rb").read()), flush=True)
"#;

/// The process that `dfcp run` of this bench left, if there is one.
fn keeper(bench: &Bench) -> bool {
    let home = bench.path("config").into_os_string().into_encoded_bytes();
    let processes = std::fs::read_dir("/proc").unwrap().map_while(Result::ok);
    processes.map(|process| process.path()).any(|process| {
        let read = |file| std::fs::read(process.join(file)).unwrap_or_default();
        let environment = read("environ");
        read("cmdline") == b"dfcp\0left-behind\0"
            && environment.windows(home.len()).any(|part| part == home)
    })
}

#[test]
fn what_a_program_leaves_behind_goes_on_without_it() {
    if !has("python3") {
        return;
    }
    let (near, web) = (Near::new(), web("127.0.0.1:0"));
    let leave = "python3 -c \"$1\" $PPID $2 &";
    let port = web.port().to_string();
    // Its output ends when what was left behind has.
    let (code, out, said) = outcome(near.run(&["sh", "-c", leave, "sh", LEFT_BEHIND, &port]));
    assert_eq!(code, 0, "{said}");
    assert_eq!(String::from_utf8(out).unwrap(), "a message\n100000\n");
    assert!(said.contains("the program left others behind"), "{said}");
    eventually("the end of who looked after it", || !keeper(&near.bench));
}

#[test]
fn a_server_that_comes_back_is_used_again() {
    if !has("python3") {
        return;
    }
    let (near, web) = (Near::new(), web("127.0.0.1:0"));
    let script = "import socket, sys, time\n\
        at = (sys.argv[1], int(sys.argv[2]))\n\
        def get():\n  \
          s = socket.create_connection(at); s.sendall(b'abc')\n  \
          return sum(len(p) for p in iter(lambda: s.recv(65536), b''))\n\
        print(get(), flush=True)\n\
        input()\n\
        for _ in range(60):\n  \
          try: print(get()); break\n  \
          except OSError: time.sleep(0.5)\n";
    let args = [&web.ip().to_string()[..], &web.port().to_string()];
    let mut command = near.run(&[&["python3", "-c", script][..], &args].concat());
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut heard = [0; 7];
    out.read_exact(&mut heard).unwrap();
    let Near { bench, mut server } = near;
    let at = server.address.to_string();
    server.kill();
    drop(server);
    let _again = Receiver::start(serve(None, &bench, &at, "127.0.0.1/32"));
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!((&heard, rest.trim()), (b"100000\n", "100000"));
    assert!(wait(&mut child).success());
}

/// A daemon of rsync at a port, with a tree of files; it is killed when dropped.
struct RsyncDaemon(std::process::Child, u16);

impl RsyncDaemon {
    fn start(bench: &Bench) -> Self {
        // A port that is free may be somebody else's by the time that the daemon asks for it.
        loop {
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = free.local_addr().unwrap().port();
            drop(free);
            let mut daemon = Self(Self::at(bench, port), port);
            let (mut greets, mut ended) = (false, false);
            eventually("rsync", || {
                ended = daemon.0.try_wait().unwrap().is_some();
                greets = daemon.greets();
                greets || ended
            });
            if greets && !ended {
                return daemon;
            }
        }
    }

    fn at(bench: &Bench, port: u16) -> std::process::Child {
        let config = bench.path("rsyncd.conf");
        let tree = bench.path("tree");
        let text = format!(
            "use chroot = no\n[tree]\npath = {}\nread only = no\nuid = {}\ngid = {}\n",
            tree.display(),
            nix::unistd::getuid(),
            nix::unistd::getgid()
        );
        std::fs::write(&config, text).unwrap();
        let mut daemon = Command::new("rsync");
        daemon
            .args(["--daemon", "--no-detach", "--address=127.0.0.1"])
            .arg(format!("--port={port}"))
            .arg(format!("--config={}", config.display()))
            .stdin(Stdio::null());
        daemon.spawn().unwrap()
    }

    fn greets(&self) -> bool {
        let Ok(mut tcp) = std::net::TcpStream::connect(("127.0.0.1", self.1)) else {
            return false;
        };
        tcp.set_read_timeout(Some(std::time::Duration::from_secs(5)))
            .unwrap();
        let mut greeting = [0; 8];
        tcp.read_exact(&mut greeting).is_ok() && greeting == *b"@RSYNCD:"
    }
}

impl Drop for RsyncDaemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn rsync_brings_and_takes_whole_trees() {
    if !has("rsync") {
        return;
    }
    let near = Near::new();
    for number in 0..40 {
        near.bench
            .write(&format!("tree/{}/{number}", number % 3), 10_000 * number);
    }
    let daemon = RsyncDaemon::start(&near.bench);
    let tree = format!("rsync://127.0.0.1:{}/tree/", daemon.1);
    let (here, there) = (near.bench.path("here"), near.bench.path("tree"));
    let mine = format!("{}/", here.display());
    let (code, _, said) = outcome(near.run(&["rsync", "-a", &tree, &mine]));
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains(&format!("connected to 127.0.0.1:{}", daemon.1)),
        "{said}"
    );
    let same = || {
        let compare = Command::new("diff")
            .arg("-r")
            .arg(&here)
            .arg(&there)
            .status();
        compare.unwrap().success()
    };
    assert!(same());
    std::fs::write(here.join("1/new"), bytes("new", 300_000)).unwrap();
    std::fs::remove_file(here.join("2/2")).unwrap();
    let (code, _, said) = outcome(near.run(&["rsync", "-a", "--delete", &mine, &tree]));
    assert_eq!(code, 0, "{said}");
    assert!(same());
}

#[test]
fn what_comes_to_the_server_comes_to_a_program_here() {
    let bench = Bench::new();
    let mut server = serve(None, &bench, "127.0.0.1:0", "127.0.0.1/32");
    server.args(["--permit-listen", "127.0.0.1"]);
    let server = Receiver::start(server);
    let page = web("127.0.0.1:0");
    let forward = format!("127.0.0.1:0:{page}");
    let args = ["-v", "-R", &forward, "--", "cat"];
    let mut command = run_in(None, &bench, server.address, &args);
    command.stdin(Stdio::piped());
    let mut run = command.spawn().unwrap();
    let lines = BufReader::new(run.stderr.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    let said = lines
        .find(|line| line.contains("the server listens at"))
        .unwrap();
    let at = said
        .split_once("listens at ")
        .unwrap()
        .1
        .split(' ')
        .next()
        .unwrap();
    std::thread::spawn(move || lines.for_each(|line| eprintln!("run: {line}")));
    let mut tcp = std::net::TcpStream::connect(at).unwrap();
    tcp.write_all(b"abc").unwrap();
    let mut heard = Vec::new();
    tcp.read_to_end(&mut heard).unwrap();
    assert!(heard == bytes("page", 100_000), "{} bytes", heard.len());
    drop(run.stdin.take());
    assert!(wait(&mut run).success());
}

#[test]
fn a_port_of_the_server_that_is_named_twice_is_told_before_anything_begins() {
    let bench = Bench::new();
    let nobody = "127.0.0.1:9".parse().unwrap();
    let mark = bench.path("mark");
    for (one, other) in [
        ("127.0.0.1:8000:10.0.0.1:1", "8000:10.0.0.1:2"),
        ("*:8000:10.0.0.1:1", "127.0.0.1:8000:10.0.0.1:1"),
    ] {
        let args = [
            "-R",
            one,
            "-R",
            other,
            "--",
            "touch",
            mark.to_str().unwrap(),
        ];
        let (code, _, said) = outcome(run_in(None, &bench, nobody, &args));
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("a port there leads to one place"), "{said}");
        assert!(!mark.exists());
    }
}

/// Programs, and what they must say. `HOST` is a name, `ADDRESS` an address of that host.
const PROGRAMS: [(&str, &str); 12] = [
    (
        "curl",
        "curl -sS --max-time 60 http://HOST/ | wc -c | grep -qx 100000",
    ),
    (
        "curl",
        "curl -sS --max-time 60 http://ADDRESS/ | wc -c | grep -qx 100000",
    ),
    (
        "curl",
        "curl -gsS --max-time 60 'http://[fd99::1]/' | wc -c | grep -qx 100000",
    ),
    (
        "wget",
        "wget -qO- --tries=1 http://HOST/ | wc -c | grep -qx 100000",
    ),
    (
        "python3",
        "python3 -c 'import urllib.request as u; assert len(u.urlopen(\"http://HOST/\").read()) == 100000'",
    ),
    // Of these three there are no servers there: they must have spoken with the page's.
    (
        "ssh",
        "ssh -p 80 -o BatchMode=yes -o StrictHostKeyChecking=no HOST 2>&1 | grep -Ei 'kex_exchange|banner|version'",
    ),
    (
        "psql",
        "psql 'host=HOST port=80 connect_timeout=30 user=x' 2>&1 | grep -i 'invalid response'",
    ),
    (
        "rsync",
        "rsync rsync://HOST:80/x 2>&1 | grep -Ei 'protocol|startup error|mismatch'",
    ),
    (
        "iperf3",
        "iperf3 -c HOST -p 5201 -n 1M --connect-timeout 30000",
    ),
    (
        "cc",
        "printf '#include <sys/socket.h>\\n#include <netinet/in.h>\\n#include <arpa/inet.h>\\n\
         #include <unistd.h>\\nint main() { struct sockaddr_in a = { AF_INET, htons(80) }; char b[9]; \
         inet_aton(\"ADDRESS\", &a.sin_addr); int s = socket(AF_INET, SOCK_STREAM, 0); \
         return connect(s, (void *)&a, sizeof a) || write(s, \"abc\", 3) != 3 || read(s, b, 9) < 1; }' \
         > DIR/p.c && { cc -w -static -o DIR/p DIR/p.c || { echo SKIPPED: no static C library; exit 0; } } && DIR/p",
    ),
    (
        "dig",
        "dig +short +tries=1 +time=30 HOST | grep -x '198\\.18\\.[0-9.]*'",
    ),
    // Its resolver asks from a socket that is not connected.
    (
        "musl-gcc",
        "printf '#include <netdb.h>\\n#include <sys/socket.h>\\n#include <unistd.h>\\nint main() { \
         struct addrinfo *a; char b[9]; if (getaddrinfo(\"HOST\", \"80\", 0, &a)) return 1; \
         int s = socket(a->ai_family, SOCK_STREAM, 0); return connect(s, a->ai_addr, a->ai_addrlen) \
         || write(s, \"abc\", 3) != 3 || read(s, b, 9) < 1; }' > DIR/m.c && musl-gcc -w -static -o DIR/m DIR/m.c && DIR/m",
    ),
];

#[test]
fn programs_reach_what_only_the_server_reaches() {
    privileged("true", || {
        let (near, far) = (Namespace::new(), Namespace::new());
        near.cable(("eth0", "10.2.0.1/24"), &far, ("eth0", "10.2.0.2/24"));
        far.run("ip addr add 10.99.0.1/32 dev lo\nip addr add fd99::1/128 dev lo nodad");
        far.inside(|| [web("10.99.0.1:80"), web("[fd99::1]:80")]);
        let bench = Bench::new();
        // The name is known there alone.
        let hosts = bench.path("hosts");
        std::fs::write(&hosts, "127.0.0.1 localhost\n10.99.0.1 page.there\n").unwrap();
        let serve = serve(far.place(), &bench, "10.2.0.2:0", "all");
        let mut there = Command::new("unshare");
        let script = format!("mount --bind {} /etc/hosts && exec \"$@\"", hosts.display());
        there
            .args(["--mount", "sh", "-c", &script, "sh"])
            .arg(serve.get_program())
            .args(serve.get_args())
            .env("XDG_CONFIG_HOME", bench.path("config"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let server = Receiver::start(there);
        let iperf = has("iperf3").then(|| {
            let mut command = Command::new("nsenter");
            let place = far.place().unwrap().to_string();
            command.args(["-t", &place, "-n", "iperf3", "-s", "-1", "-p", "5201"]);
            let child = command.stdout(Stdio::null()).spawn().unwrap();
            eventually("iperf3", || {
                far.inside(|| TcpListener::bind("0.0.0.0:5201").is_err())
            });
            child
        });
        for (program, script) in PROGRAMS {
            if !has(program) {
                continue;
            }
            let dir = bench.path("");
            let script = script
                .replace("HOST", "page.there")
                .replace("ADDRESS", "10.99.0.1")
                .replace("DIR", dir.to_str().unwrap());
            let args = ["--", "sh", "-c", &script];
            let (code, out, said) = outcome(run_in(near.place(), &bench, server.address, &args));
            let out = String::from_utf8_lossy(&out);
            assert_eq!(code, 0, "{script}: {out} {said}");
            if out.contains("SKIPPED") {
                eprintln!("{out}");
            }
        }
        if let Some(mut iperf) = iperf {
            let _ = iperf.kill();
            let _ = iperf.wait();
        }
        // What is direct goes nowhere from here.
        let args = [
            "--direct",
            "10.99.0.0/16",
            "--",
            "sh",
            "-c",
            "exec 3<>/dev/tcp/10.99.0.1/80",
        ];
        let bash = args.map(|arg| if arg == "sh" { "bash" } else { arg });
        if has("bash") {
            let (code, _, said) = outcome(run_in(near.place(), &bench, server.address, &bash));
            assert!(code != 0 && said.contains("unreachable"), "{code}: {said}");
        }
    });
}
