"""What carries the traffic: how each peer is started at both hosts, and how programs get through it."""

import json
import os
import subprocess
from dataclasses import dataclass, field

from origin import HTTP_PORT, VIDEO_PORT
from process import Failed, Process, find, listens_tcp, listens_udp

PROXY_PORT = 20000  # of UDP, at the far host; the lab's first flow
SOCKS_PORT = 1080
ENTRY_PORT = 1090  # a forward to the port that the part asks for
REDIS_PORT = 6379
TUN_FAR, TUN_NEAR = "10.9.0.1", "10.9.0.2"
READY_LIMIT = 20  # seconds: more than four handshakes at 20 % loss and 200 ms take
DATAGRAM = 1472


@dataclass
class Way:
    """How a program at the near host reaches a port of the far one."""

    host: str
    socks: int | None = None
    ports: dict = field(default_factory=dict)

    def address(self, port):
        return self.host, self.ports.get(port, port)


class Peer:
    """A peer without processes of its own: TCP as the kernel has it."""

    def __init__(self, name, control="cubic"):
        self.name, self.control = name, control

    def missing(self):
        """Why it cannot run here, if so."""
        with open("/proc/sys/net/ipv4/tcp_available_congestion_control") as known:
            return None if self.control in known.read().split() else f"this kernel has no {self.control}"

    def prepare(self, folder, spec):
        """What both hosts find in the folder."""

    def far(self, spec, folder):
        """Starts the far side; processes that count."""
        self.set_control()
        return []

    def near(self, spec, folder, there):
        """Starts the near side: its processes, and the way."""
        self.set_control()
        return [], Way(there)

    def set_control(self):
        """An attribute of this host's routes: whatever the kernel's default is, and whoever opens the connection.

        A namespace's own default (`net.ipv4.tcp_congestion_control`) may only be a control that its kernel allows to
        everybody, which is no more than Reno and the kernel's default."""
        for family in ("-4", "-6"):
            shown = subprocess.run(["ip", family, "route", "show"], capture_output=True, text=True)
            for route in shown.stdout.splitlines():
                change = ["ip", family, "route", "change", *route.split(), "congctl", self.control]
                changed = subprocess.run(change, capture_output=True, text=True)
                if changed.returncode:
                    raise Failed(f"congestion control {self.control} on {route}: {changed.stderr.strip()}")


def target_port(spec):
    """The far port that a forward of this part leads to."""
    return REDIS_PORT if spec["part"] == "forward" else HTTP_PORT


class Dfcp(Peer):
    """`dfcp proxy`: SOCKS5 at the near host, as CTCP was deployed, and a forward for what speaks none."""

    def __init__(self, name, options=()):
        super().__init__(name)
        self.options = list(options)

    def missing(self):
        return None if find("dfcp", "DFCP") else "no dfcp: set DFCP"

    def prepare(self, folder, spec):
        for side in ("near", "far"):
            made = subprocess.run(
                [find("dfcp", "DFCP"), "keygen", "--out", f"{folder}/{side}.key"], capture_output=True, text=True
            )
            if made.returncode:
                raise Failed(f"dfcp keygen: {made.stderr.strip()}")
            with open(f"{folder}/{side}.pub", "w") as public:
                public.write(made.stdout.strip())

    def public(self, folder, side):
        with open(f"{folder}/{side}.pub") as public:
            return public.read()

    def far(self, spec, folder):
        options = [option for option in self.options if option != "--fast-open"]
        server = Process(
            "server",
            [find("dfcp", "DFCP"), "proxy", "serve", "--listen", f"[::]:{PROXY_PORT}", "--key", "far.key"]
            + ["--allow", self.public(folder, "near"), "--permit", "all"] + options,
            folder,
        )
        server.wait_for(lambda: listens_udp(PROXY_PORT), READY_LIMIT)
        return [server]

    def near(self, spec, folder, there):
        port = target_port(spec)
        client = Process(
            "client",
            [find("dfcp", "DFCP"), "proxy", "--socks", str(SOCKS_PORT), "-L", f"{ENTRY_PORT}:{there}:{port}"]
            + ["--key", "near.key", "--peer-key", self.public(folder, "far")] + self.options
            + [f"{there}:{PROXY_PORT}"],
            folder,
        )
        # Ports are open before it is let in: programs would wait at them.
        client.wait_for(lambda: "forwarding" in client.said(), READY_LIMIT)
        ports = {REDIS_PORT: ENTRY_PORT} if port == REDIS_PORT else {}
        host = "127.0.0.1" if ports else there
        return [client], Way(host, None if ports else SOCKS_PORT, ports)


class Hysteria(Peer):
    """hysteria2 with a SOCKS5 port; told the path's rate both ways, or left to its BBR."""

    def __init__(self, name, told):
        super().__init__(name)
        self.told = told

    def missing(self):
        if not find("hysteria"):
            return "no hysteria in the PATH or in HYSTERIA"
        return None if find("openssl") else "no openssl, which makes its certificate"

    def prepare(self, folder, spec):
        certificate = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        certificate += ["-subj", "/CN=localhost", "-days", "30"]
        certificate += ["-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem"]
        made = subprocess.run([find("openssl")] + certificate, capture_output=True, text=True)
        if made.returncode:
            raise Failed(f"openssl: {made.stderr.strip()}")

    def settings(self, name, folder, text):
        # JSON is YAML.
        with open(f"{folder}/{name}.yaml", "w") as file:
            json.dump(text, file)
        return [find("hysteria"), name, "--disable-update-check", "--config", f"{folder}/{name}.yaml"]

    def far(self, spec, folder):
        tls = {"cert": f"{folder}/cert.pem", "key": f"{folder}/key.pem"}
        auth = {"type": "password", "password": "comparison"}
        command = self.settings("server", folder, {"listen": f":{PROXY_PORT}", "tls": tls, "auth": auth})
        server = Process("server", command, folder)
        server.wait_for(lambda: listens_udp(PROXY_PORT), READY_LIMIT)
        return [server]

    def near(self, spec, folder, there):
        port = target_port(spec)
        text = {
            "server": f"{there}:{PROXY_PORT}",
            "auth": "comparison",
            "tls": {"sni": "localhost", "insecure": True},
            "socks5": {"listen": f"127.0.0.1:{SOCKS_PORT}"},
            "tcpForwarding": [{"listen": f"127.0.0.1:{ENTRY_PORT}", "remote": f"{there}:{port}"}],
        }
        if self.told:
            rate = f"{spec['rate']} bps"
            text["bandwidth"] = {"up": rate, "down": rate}
        client = Process("client", self.settings("client", folder, text), folder)
        client.wait_for(lambda: listens_tcp(SOCKS_PORT) and listens_tcp(ENTRY_PORT), READY_LIMIT)
        if port == REDIS_PORT:
            return [client], Way("127.0.0.1", None, {REDIS_PORT: ENTRY_PORT})
        return [client], Way(there, SOCKS_PORT)


class Kcptun(Peer):
    """kcptun as its users run it for speed (fast3, 10 + 3 shards), windows of two products of rate and
    delay, as in `dfcp lab compare`. It leads one port to one port."""

    def missing(self):
        absent = [name for name in ("kcptun-client", "kcptun-server") if not find(name)]
        return f"no {' and no '.join(absent)} (Debian: kcptun)" if absent else None

    def common(self, spec):
        window = str(min(32768, max(512, int(2 * spec["rate"] / 8 * spec["rtt"] / DATAGRAM))))
        options = "--key comparison --mode fast3 --nocomp --quiet --smuxver 2 --datashard 10 --parityshard 3"
        options += f" --mtu {DATAGRAM} --sndwnd {window} --rcvwnd {window}"
        options += " --sockbuf 16777216 --smuxbuf 67108864 --streambuf 33554432"
        return options.split()

    def far(self, spec, folder):
        command = [find("kcptun-server"), "-l", f":{PROXY_PORT}", "-t", f"127.0.0.1:{target_port(spec)}"]
        server = Process("server", command + self.common(spec), folder)
        server.wait_for(lambda: listens_udp(PROXY_PORT), READY_LIMIT)
        return [server]

    def near(self, spec, folder, there):
        command = [find("kcptun-client"), "-l", f"127.0.0.1:{ENTRY_PORT}", "-r", f"{there}:{PROXY_PORT}"]
        client = Process("client", command + self.common(spec), folder)
        client.wait_for(lambda: listens_tcp(ENTRY_PORT), READY_LIMIT)
        return [client], Way("127.0.0.1", None, {target_port(spec): ENTRY_PORT})


class Tun(Dfcp):
    """`dfcp tun`: an IP link."""

    def missing(self):
        return super().missing() or (
            None if os.access("/dev/net/tun", os.W_OK) else "no /dev/net/tun that may be used"
        )

    def far(self, spec, folder):
        server = Process(
            "server",
            [find("dfcp", "DFCP"), "tun", "serve", "--listen", f"[::]:{PROXY_PORT}", "--key", "far.key"]
            + ["--address", f"{TUN_FAR}/24", "--client", f"{self.public(folder, 'near')}={TUN_NEAR}"],
            folder,
        )
        server.wait_for(lambda: listens_udp(PROXY_PORT), READY_LIMIT)
        return [server]

    def near(self, spec, folder, there):
        client = Process(
            "client",
            [find("dfcp", "DFCP"), "tun", "connect", f"{there}:{PROXY_PORT}", "--key", "near.key"]
            + ["--peer-key", self.public(folder, "far"), "--address", f"{TUN_NEAR}/24"],
            folder,
        )
        client.wait_for(lambda: "connected to" in client.said(), READY_LIMIT)
        return [client], Way(TUN_FAR)


class Send(Dfcp):
    """`dfcp send`: what a proxy's download is measured by."""

    def far(self, spec, folder):
        receiver = Process(
            "server",
            [find("dfcp", "DFCP"), "recv", "-o", "incoming", "--listen", f"[::]:{PROXY_PORT}", "--key", "far.key"]
            + ["--allow", self.public(folder, "near")],
            folder,
        )
        receiver.wait_for(lambda: listens_udp(PROXY_PORT), READY_LIMIT)
        return [receiver]

    def near(self, spec, folder, there):
        return [], Way(there)

    def command(self, folder, there, file):
        return [find("dfcp", "DFCP"), "send", "--json", "--key", "near.key", "--peer-key",
                self.public(folder, "far"), file, f"{there}:{PROXY_PORT}"]  # fmt: skip


class Udp(Peer):
    """Datagrams as they are."""


TCP_PARTS = ("page", "one", "many", "echo", "beside", "forward", "idle")
PEERS = {
    peer.name: (peer, parts)
    for peer, parts in (
        (Dfcp("dfcp"), TCP_PARTS + ("network",)),
        (Dfcp("dfcp-fast-open", ["--fast-open"]), ("page",)),
        (Dfcp("dfcp-ctcp", ["--profile", "ctcp"]), TCP_PARTS + ("network",)),
        (Hysteria("hysteria", told=True), TCP_PARTS),
        (Hysteria("hysteria-bbr", told=False), TCP_PARTS),
        (Kcptun("kcptun"), TCP_PARTS),
        (Peer("tcp-bbr", "bbr"), TCP_PARTS),
        (Peer("tcp-cubic", "cubic"), TCP_PARTS + ("network",)),
        (Send("send"), ("one",)),
        (Tun("tun"), ("video",)),
        (Udp("udp"), ("video",)),
    )
}
