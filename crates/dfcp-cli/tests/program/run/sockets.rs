//! Sockets and datagrams of programs, with all calls that there are for them.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use socket2::{Domain, Socket, Type};

use super::{Near, has, outcome, run_in, serve, web};
use crate::common::namespace::{Namespace, privileged};
use crate::common::{Bench, Receiver, proxying, wait};

/// Sockets that are copied, handed on and asked about.
const SOCKETS: &str = r#"
import asyncio, os, select, socket, subprocess, sys, threading
host, port = sys.argv[1], int(sys.argv[2])
def page(s):
    s.sendall(b"GET / HTTP/1.0\r\n\r\n")
    got = b""
    while True:
        part = s.recv(65536)
        if not part:
            return len(got.split(b"\r\n\r\n", 1)[1])
        got += part
s = socket.create_connection((host, port))
assert s.getpeername() == (host, port), s.getpeername()
assert page(os.dup and s.dup()) == 100000
# IPv6 sockets to IPv4 hosts; a socket of another thread; limits of time.
s = socket.socket(socket.AF_INET6)
s.settimeout(30)
s.connect(("::ffff:" + host, port))
assert s.getpeername()[:2] == ("::ffff:" + host, port)
assert page(s) == 100000
got = []
t = threading.Thread(target=lambda: got.append(page(socket.create_connection((host, port)))))
t.start(); t.join()
assert got == [100000]
# Copied while it connects, registered before it does, used by a child.
s = socket.socket()
s.setblocking(False)
epoll = select.epoll()
copy = s.dup()
s.connect_ex((host, port))
epoll.register(copy, select.EPOLLOUT)
s.close()
assert epoll.poll(30)
assert copy.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
copy.setblocking(True)
pid = os.fork()
if pid == 0:
    os._exit(0 if page(copy) == 100000 else 1)
copy.close()
assert os.waitpid(pid, 0)[1] == 0
# A program with nothing of the environment, and no open files.
child = ("import socket\ns = socket.create_connection(%r)\ns.sendall(b'abc')\n"
         "n = 0\nwhile True:\n  p = s.recv(65536)\n  if not p: break\n  n += len(p)\nprint(n)") % ((host, port),)
out = subprocess.run([sys.executable, "-c", child], env={}, close_fds=True, capture_output=True)
assert out.stdout.strip() == b"100000", out
async def many():
    async def one():
        reader, writer = await asyncio.open_connection(host, port)
        assert writer.get_extra_info("peername") == (host, port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        got = await reader.read()
        writer.close()
        return len(got) > 100000
    return all(await asyncio.gather(*[one() for _ in range(50)]))
assert asyncio.run(many())
print("done")
"#;

#[test]
fn sockets_are_the_programs_own() {
    if !has("python3") {
        return;
    }
    let (near, web) = (Near::new(), web("127.0.0.1:0"));
    let args = [&web.ip().to_string()[..], &web.port().to_string()];
    let (code, out, said) = near.python(SOCKETS, &args);
    assert_eq!((code, out.trim()), (0, "done"), "{said}");
    // And they were carried: here this would work without.
    assert!(said.matches(&web.to_string()).count() >= 50, "{said}");
}

/// Connects sockets again that were connected, or connecting, and in the midst of signals.
const ANEW: &str = r#"
import ctypes, errno, select, signal, socket, sys
at = (sys.argv[1], int(sys.argv[2]))
libc = ctypes.CDLL(None, use_errno=True)
def part(s):
    nobody = bytes(16) # AF_UNSPEC
    assert libc.connect(s.fileno(), nobody, len(nobody)) == 0, ctypes.get_errno()
def has_page(s):
    s.sendall(b"GET / HTTP/1.0\r\n\r\n")
    return len(s.makefile("rb").read()) > 100000
# Who is asked third has no answer while the first two are not taken.
full = socket.create_server(("127.0.0.1", 0), backlog=0)
def connecting(at):
    s = socket.socket()
    s.setblocking(False)
    assert s.connect_ex(at) == errno.EINPROGRESS
    return s
waiting = [connecting(full.getsockname()) for _ in range(4)]
s = waiting[3]
part(s)
assert s.connect_ex(at) == errno.EINPROGRESS
assert select.select([], [s], [], 30)[1]
assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
s.setblocking(True)
assert has_page(s)
part(s)
s.connect(at)
assert s.getpeername() == at and has_page(s)
# The kernel begins a call again that a signal interrupted, and how it ends is told then.
signal.signal(signal.SIGALRM, lambda *_: None)
signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
for _ in range(200):
    socket.create_connection(at).close()
signal.setitimer(signal.ITIMER_REAL, 0, 0)
print("done")
"#;

#[test]
fn sockets_are_connected_again_and_in_the_midst_of_signals() {
    if !has("python3") {
        return;
    }
    let (near, web) = (Near::new(), web("127.0.0.1:0"));
    let args = [&web.ip().to_string()[..], &web.port().to_string()];
    let (code, out, said) = near.python(ANEW, &args);
    assert_eq!((code, out.trim()), (0, "done"), "{said}");
}

/// Connects with a limit of time of the kernel's (SO_SNDTIMEO), as some database clients do.
const LIMITED: &str = r#"
import errno, socket, struct, sys, threading
at = (sys.argv[1], int(sys.argv[2]))
# Nobody answers there: what listens takes no more than this.
full = socket.create_server(("127.0.0.1", 0), backlog=0)
fill = [socket.socket() for _ in range(3)]
for s in fill:
    s.setblocking(False)
    s.connect_ex(full.getsockname())
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 200_000))
def tries():
    return s.connect_ex(full.getsockname())
first, second = tries(), tries()
print(errno.errorcode[first], errno.errorcode[second])
# Who listens takes them, and the same socket is connected in the end.
taken = []
def take():
    while True:
        taken.append(full.accept())
threading.Thread(target=take, daemon=True).start()
third = tries()
while third in (errno.EINPROGRESS, errno.EALREADY):
    third = tries()
print(errno.errorcode.get(third, third), s.getpeername() == full.getsockname())
s.send(b"x")
# Where there is an answer in time, the limit is not felt.
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 30, 0))
s.connect(at)
s.sendall(b"GET / HTTP/1.0\r\n\r\n")
print(len(s.makefile("rb").read()) > 100000)
"#;

#[test]
fn a_limit_of_the_sockets_own_ends_a_connect_that_a_later_one_goes_on_with() {
    if !has("python3") {
        return;
    }
    let (near, web) = (Near::new(), web("127.0.0.1:0"));
    let args = [&web.ip().to_string()[..], &web.port().to_string()];
    let mut here = Command::new("python3");
    let here = here.args(["-c", LIMITED]).args(args).output().unwrap();
    let here = String::from_utf8(here.stdout).unwrap();
    assert!(here.starts_with("EINPROGRESS"), "of the kernel: {here}");
    let (code, out, said) = near.python(LIMITED, &args);
    assert_eq!((code, out), (0, here), "{said}");
}

/// Speaks with two echoes of datagrams, from all kinds of sockets and with all calls.
const DATAGRAMS: &str = r#"
import asyncio, errno, os, select, signal, socket, sys, threading, time
one, two, name = ((host, int(port)) for host, port in zip(sys.argv[1::2], sys.argv[2::2]))
def sock(family=socket.AF_INET):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(30)
    return s
# Connected: each call says whom it is from.
s = sock()
s.connect(one)
s.send(b"connected")
assert s.recvfrom(100) == (b"connected", one) and s.getpeername() == one
s.sendto(b"with its address", one)
assert s.recv(100) == b"with its address"
# Not connected: one socket, two hosts and a name.
u = sock()
for _ in range(3):
    for at in (one, two, name):
        u.sendto(b"not connected", at)
        assert u.recvfrom(100) == (b"not connected", socket.getaddrinfo(*at)[0][4])
assert u.getsockname()[0] == "0.0.0.0"
# Messages in parts, with what is said beside them.
u.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
u.sendmsg([b"in ", b"parts"], [(socket.IPPROTO_IP, socket.IP_TOS, b"\x08\0\0\0")], 0, one)
data, beside, flags, source = u.recvmsg(100, 100)
assert (data, source, flags) == (b"in parts", one, 0) and len(beside) == 1, (data, beside, source)
u.sendto(b"0123456789", two)
assert u.recvfrom(100, socket.MSG_PEEK) == (b"0123456789", two)
parts = [bytearray(3), bytearray(4)]
size, _, flags, source = u.recvmsg_into(parts)
assert (size, source) == (7, two) and flags & socket.MSG_TRUNC and parts == [b"012", b"3456"]
# Long ones.
u.sendto(bytes(40000), one)
assert u.recvfrom(65536) == (bytes(40000), one)
# One of IPv6 to a host of IPv4.
six = sock(socket.AF_INET6)
six.sendto(b"mapped", ("::ffff:" + one[0], one[1]))
data, source = six.recvfrom(100)
assert (data, source[:2]) == (b"mapped", ("::ffff:" + one[0], one[1]))
# Those who do not wait, who wait for a while, and who are called away.
u.setblocking(False)
try: u.recvfrom(100); assert False
except BlockingIOError: pass
u.setblocking(True)
u.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, (0).to_bytes(8, "little") + (200000).to_bytes(8, "little"))
try: u.recvfrom(100); assert False
except BlockingIOError: pass
class Away(Exception): pass
def away(*_): raise Away
signal.signal(signal.SIGUSR1, away)
w = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
w.sendto(b"first", one)
assert w.recvfrom(100) == (b"first", one)
me = threading.get_ident()
threading.Timer(0.3, lambda: signal.pthread_kill(me, signal.SIGUSR1)).start()
try: w.recvfrom(100); assert False
except Away: pass
threading.Timer(0.3, lambda: w.sendto(b"second", two)).start()
assert w.recvfrom(100) == (b"second", two)
async def main():
    done = asyncio.get_running_loop().create_future()
    class Speaks(asyncio.DatagramProtocol):
        def connection_made(self, transport): transport.sendto(b"asynchronous", one)
        def datagram_received(self, data, source): done.set_result((data, source))
    await asyncio.get_running_loop().create_datagram_endpoint(Speaks, local_addr=("0.0.0.0", 0))
    assert await asyncio.wait_for(done, 30) == (b"asynchronous", one)
asyncio.run(main())
# What is for this machine is not carried, also beside what is.
here = sock()
here.bind(("127.0.0.2", 0))
b = sock()
b.bind(("127.0.0.3", 0))
for at in (one, here.getsockname()):
    b.sendto(b"bound", at)
    if at != one: here.sendto(*here.recvfrom(100))
    assert b.recvfrom(100) == (b"bound", at)
print("done")
"#;

/// Answers datagrams with themselves, and tells whom they are from.
fn echo(at: &str) -> (SocketAddr, std::sync::mpsc::Receiver<SocketAddr>) {
    let echo = std::net::UdpSocket::bind(at).unwrap();
    let at = echo.local_addr().unwrap();
    let (tell, sources) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while let Ok((len, from)) = echo.recv_from(&mut buffer) {
            let _ = tell.send(from);
            let _ = echo.send_to(&buffer[..len], from);
        }
    });
    (at, sources)
}

#[test]
fn datagrams_are_carried_whatever_calls_bring_them() {
    if !has("python3") {
        return;
    }
    let near = Near::new();
    // At a second address, so that 127.0.0.2 stays here.
    let ((one, ones), (two, twos)) = (echo("127.0.0.1:0"), echo("127.0.0.1:0"));
    let ports = [one.port().to_string(), two.port().to_string()];
    let ip = "127.0.0.1";
    let args = [ip, &ports[0], ip, &ports[1], "127.0.0.1", &ports[0]];
    let (code, out, said) = near.python(DATAGRAMS, &args);
    assert_eq!((code, out.trim()), (0, "done"), "{said}");
    assert!(!said.contains("go from here"), "{said}");
    // Both were spoken to from the same port: what a socket sends is one association.
    let (ones, twos): (Vec<_>, Vec<_>) = (ones.try_iter().collect(), twos.try_iter().collect());
    assert!(ones.contains(&twos[0]), "{ones:?} {twos:?}");
}

/// Ends sockets of datagrams that somebody reads, which is how threads that wait for datagrams are woken.
const SHUT_DOWN: &str = r#"
import socket, sys, threading
at = (sys.argv[1], int(sys.argv[2]))
def sock():
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for call in (lambda s: s.recvfrom(10), lambda s: s.recvmsg(10)):
    s = sock()
    s.sendto(b"x", at)
    assert call(s)[0] == b"x"
    got = []
    reads = threading.Thread(target=lambda: got.append(call(s)), daemon=True)
    reads.start()
    # It is done though nobody is connected.
    try: s.shutdown(socket.SHUT_RDWR)
    except OSError: pass
    reads.join(30)
    print(got)
s = sock()
s.settimeout(30)
s.sendto(b"others go on", at)
print(s.recv(100))
"#;

#[test]
fn whoever_waits_for_datagrams_hears_that_their_socket_has_ended() {
    if !has("python3") {
        return;
    }
    let (near, (at, _)) = (Near::new(), echo("127.0.0.1:0"));
    let args = [&at.ip().to_string()[..], &at.port().to_string()];
    let mut here = Command::new("python3");
    let here = here.args(["-c", SHUT_DOWN]).args(args).output().unwrap();
    let mut child = near.run(&[&["python3", "-c", SHUT_DOWN][..], &args].concat());
    let mut child = child.spawn().unwrap();
    wait(&mut child);
    let out = child.wait_with_output().unwrap();
    let (code, said) = (out.status.code(), String::from_utf8_lossy(&out.stderr));
    assert_eq!((code, out.stdout), (Some(0), here.stdout), "{said}");
}

/// Sockets that are bound to a device, as by `curl --interface eth0`.
const ON_A_DEVICE: &str = r#"
import socket
def sock(kind):
    s = socket.socket(socket.AF_INET, kind)
    s.settimeout(60)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
    return s
for connects in (True, False):
    s = sock(socket.SOCK_DGRAM)
    if connects: s.connect(("10.99.0.1", 7))
    s.sendto(b"abc", ("10.99.0.1", 7))
    print(s.recvfrom(100))
s = sock(socket.SOCK_STREAM)
s.connect(("10.99.0.1", 80))
s.sendall(b"abc")
print(len(s.makefile("rb").read()))
"#;

#[test]
fn sockets_on_a_device_are_carried_too() {
    if !has("python3") {
        return;
    }
    privileged("true", || {
        let (near, far) = (Namespace::new(), Namespace::new());
        near.cable(("eth0", "10.2.0.1/24"), &far, ("eth0", "10.2.0.2/24"));
        far.run("ip addr add 10.99.0.1/32 dev lo");
        far.inside(|| (web("10.99.0.1:80"), echo("10.99.0.1:7")));
        let bench = Bench::new();
        let server = Receiver::start(serve(far.place(), &bench, "10.2.0.2:0", "all"));
        let args = ["--", "python3", "-c", ON_A_DEVICE];
        let run = || run_in(near.place(), &bench, server.address, &args);
        let (code, out, said) = outcome(run());
        let answer = "(b'abc', ('10.99.0.1', 7))\n";
        assert_eq!(code, 0, "{said}");
        let out = String::from_utf8_lossy(&out);
        assert_eq!(out, format!("{answer}{answer}100000\n"));
        // Who may not take it off the device says so at once.
        if has("setpriv") {
            let (run, mut less) = (run(), Command::new("setpriv"));
            less.args(["--bounding-set", "-net_raw"])
                .arg(run.get_program())
                .args(run.get_args())
                .env("XDG_CONFIG_HOME", bench.path("config"))
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            let (code, _, said) = outcome(less);
            assert!(
                code == 1 && said.contains("No route to host"),
                "{code}: {said}"
            );
        }
    });
}

/// A process has one that answers its calls.
#[test]
fn one_below_another_one_says_why_it_starts_nothing() {
    let near = Near::new();
    let inner = near.run(&["true"]);
    let program = inner.get_program().to_str().unwrap();
    let args = inner.get_args().map(|arg| arg.to_str().unwrap());
    let line: Vec<_> = std::iter::once(program).chain(args).collect();
    let (code, _, said) = outcome(near.run(&line));
    assert!(
        code == 1 && said.contains("another dfcp run"),
        "{code}: {said}"
    );
}

/// What a program of C hears of its calls, which Python's own do not show, is what it hears without `dfcp run`.
#[test]
fn calls_end_as_they_do_without() {
    if !has("cc") {
        return;
    }
    let near = Near::new();
    let program = near.bench.path("calls");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program/run/calls.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-w", "-O1", "-o"]).arg(&program).arg(source);
    assert!(compiler.status().unwrap().success());
    // At a port that is bound, and where nobody listens, nobody else can listen meanwhile.
    let closed = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    closed.bind(&any.into()).unwrap();
    let nobody = closed.local_addr().unwrap().as_socket().unwrap();
    let ((one, _), (two, _)) = (echo("127.0.0.1:0"), echo("127.0.0.1:0"));
    let ports = [proxying::echo(), nobody, one, two].map(|at| at.port().to_string());
    let alone = Command::new(&program).args(&ports).output().unwrap();
    assert!(alone.status.success());
    let ports = ports.each_ref().map(String::as_str);
    let (code, out, said) = outcome(near.run(&[&[program.to_str().unwrap()][..], &ports].concat()));
    let lines = |out: Vec<u8>| String::from_utf8(out).unwrap();
    assert_eq!((code, lines(out)), (0, lines(alone.stdout)), "{said}");
    assert!(
        said.contains(&format!("connected to 127.0.0.1:{}", ports[0])),
        "{said}"
    );
}
