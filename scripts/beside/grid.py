"""Which cells there are: a path, a part, a peer, a seed; and one cell's run in the lab."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass

import browser
import peers
from process import Failed, find

PACKET, PAYLOAD = 1500, 1472
HERE = os.path.dirname(os.path.abspath(__file__))
# Starting both hosts, their proxies, and what a broken peer takes to be told so.
OVERHEAD = 60


@dataclass(frozen=True)
class Path:
    rate: int  # bits of IP packets a second
    rtt_ms: int
    loss: float  # share, each way
    burst: int = 1  # mean length of what is lost in a row, packets at the link's rate
    wireless: bool = False  # as in scenarios/figures/ctcp/wifi.toml: of data only, in packets, 50 may wait

    @property
    def queue(self):
        """One product of rate and round trip, packets."""
        return 50 if self.wireless else max(10, round(self.rate / 8 * self.rtt_ms / 1e3 / PACKET))

    @property
    def limit_bps(self):
        return (1 - self.loss) * self.rate * PAYLOAD / PACKET

    def scenario(self):
        loss = repr(self.loss)
        if self.wireless:
            # Downloads go the link's way back.
            loss = f"0.0\nreverse = {{ loss = {{ share = {self.loss}, burst = {self.burst} }} }}"
        elif self.burst > 1:
            # Of time, so that a trickle of small packets is not lost for seconds.
            loss = f'{{ share = {self.loss}, burst = "{self.burst * PACKET * 8e6 / self.rate:.0f} us" }}'
        return (
            'schema = 1\n[run]\nduration = "1 h"\n'
            f'[topology]\nkind = "dumbbell"\nrtt = "{self.rtt_ms} ms"\n[link.default]\nrate = "unlimited"\n'
            f'[link.bottleneck]\nrate = "{self.rate} bit/s"\nloss = {loss}\n'
            f'queue = {{ limit = "{self.queue} packets" }}\n[[flow]]\nprotocol = "auto"\n'
        )


# CTCP Fig. 12: loss in bursts of three packets, rates such that CTCP's times come out, as in
# scenarios/figures/ctcp/wifi.toml, which says why.
NETWORKS = [
    Path(rate, rtt, loss, 3, wireless=True)
    for rate, rtt, loss in (
        (1_451_000, 54, 0.0428),
        (1_183_000, 74, 0.0525),
        (675_000, 106, 0.0465),
        (1_560_000, 50, 0.0456),
        (407_000, 209, 0.0216),
    )
]
RANDOM_LOSS = (0.0, 0.01, 0.05, 0.1, 0.2)
BURST_LOSS, BURST = 0.05, 10

# Seconds of each part, loads of a page, the longest that one may take.
PLANS = {
    "full": {"one": 8, "many": 6, "echo": 8, "beside": 8, "forward": 4, "idle": 3, "video": 10, "loads": 7,
             "load_limit": 20, "network_bytes": 3_000_000, "network": 300},
    "quick": {"one": 4, "many": 4, "echo": 4, "beside": 4, "forward": 2, "idle": 2, "video": 5, "loads": 3,
              "load_limit": 12, "network_bytes": 1_000_000, "network": 60},
    "smoke": {"one": 1, "many": 1, "echo": 1, "beside": 1, "forward": 1, "idle": 1, "video": 1, "loads": 1,
              "load_limit": 20, "network_bytes": 100_000, "network": 20},
}  # fmt: skip
PARTS = ("page", "one", "many", "echo", "beside", "forward", "video", "idle", "network")


@dataclass(frozen=True)
class Cell:
    plan: str
    path: Path
    part: str
    peer: str
    seed: int

    def key(self):
        return json.dumps([self.plan, asdict(self.path), self.part, self.peer, self.seed])

    def spec(self):
        plan = PLANS[self.plan]
        seconds = plan.get(self.part, 0)
        timeout = plan["loads"] * (plan["load_limit"] + 1) + 30 if self.part == "page" else seconds * 6 + 60
        return {
            "peer": self.peer,
            "part": self.part,
            "rate": self.path.rate,
            "rtt": self.path.rtt_ms / 1e3,
            "limit_bps": self.path.limit_bps,
            "seconds": seconds,
            "loads": plan["loads"],
            "load_limit": plan["load_limit"],
            "bytes": plan["network_bytes"],
            "timeout": timeout,
        }


def missing(peer, part):
    """Why this cell cannot be run here, if so."""
    if part == "page" and not (browser.chromium() or find("curl")):
        return "neither chromium nor curl"
    if part == "forward" and not all(find(name) for name in ("redis-server", "redis-benchmark", "redis-cli")):
        return "no redis-server, redis-cli and redis-benchmark (Debian: redis-server)"
    return peers.PEERS[peer][0].missing()


def run(cell, keep=None):
    """Runs a cell; its line of results. Never longer than the cell's limit and a minute."""
    folder = keep or tempfile.mkdtemp(prefix="bench-proxy-")
    os.makedirs(folder, exist_ok=True)
    spec = cell.spec()
    try:
        peers.PEERS[cell.peer][0].prepare(folder, spec)
        with open(f"{folder}/spec.json", "w") as file:
            json.dump(spec, file)
        with open(f"{folder}/path.toml", "w") as file:
            file.write(cell.path.scenario())
        lab = run_lab(folder, cell.seed, spec["timeout"] + OVERHEAD)
        result = {"failure": f"the lab says: {lab[-300:]}" if lab else "no result"}
        if os.path.exists(f"{folder}/result.json"):
            with open(f"{folder}/result.json") as file:
                result = json.load(file)
        result["valid"] = "INVALID" not in lab
        if lab:
            result["lab"] = lab[-300:]
        return result
    except Failed as error:
        return {"failure": str(error), "valid": True}
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def run_lab(folder, seed, limit):
    """What the lab complains of."""
    program = find("dfcp-lab", "DFCP_LAB")
    host = os.path.join(HERE, "host.py")
    command = [program, "lab", "exec", "--path", f"{folder}/path.toml", "--seed", str(seed)]
    command += ["--there", f"exec python3 '{host}' far '{folder}'", "--", "python3", host, "near", folder]
    with open(f"{folder}/lab.log", "w+b") as log:
        lab = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        try:
            lab.wait(limit)
        except subprocess.TimeoutExpired:
            pass
        finally:
            stop(lab)
        log.seek(0)
        return log.read().decode(errors="replace").strip()


def stop(lab):
    """Ends a lab that still runs; it takes all that runs in its hosts with it."""
    for kill in (lab.terminate, lab.kill):
        if lab.poll() is None:
            kill()
            try:
                lab.wait(5)
            except subprocess.TimeoutExpired:
                continue


def machine():
    """What figures depend on."""
    with open("/proc/cpuinfo") as cpus:
        model = next((line.split(":", 1)[1].strip() for line in cpus if line.startswith("model name")), "?")
    return {"kernel": os.uname().release, "cores": os.cpu_count(), "cpu": model}


def version(command):
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20)
        return (said.stdout or said.stderr).strip().splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def versions():
    """Of what is here."""
    asked = {
        "dfcp": [find("dfcp", "DFCP"), "--version"],
        "kcptun": [find("kcptun-client"), "--version"],
        "redis": [find("redis-server"), "--version"],
        "chromium": [browser.chromium(), "--version", "--no-sandbox"],
    }
    found = {name: version(command) for name, command in asked.items() if command[0]}
    if find("hysteria"):
        said = subprocess.run([find("hysteria"), "version"], capture_output=True, text=True).stdout
        lines = [line.split(":", 1)[1].strip() for line in said.splitlines() if line.startswith("Version")]
        found["hysteria"] = lines[0] if lines else None
    return found


def stamp():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
