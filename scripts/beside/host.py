"""One cell, at the two hosts of a lab: `host.py far FOLDER` and `host.py near FOLDER`.

The folder has spec.json; the far host writes far.json when its servers are ready, the near one result.json, also
of a failure. Both end by themselves after the cell's limit.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import browser
import load
import origin
import peers
from process import Failed, Process, cpu_seconds, find, listens_tcp, memory_bytes


def write(path, value):
    """All of it, or nothing, for whoever waits for the file."""
    with open(f"{path}.new", "w") as file:
        json.dump(value, file)
    os.replace(f"{path}.new", path)


def late(*_):
    raise Failed("the cell's time is over")


def far(folder, spec):
    peer, _ = peers.PEERS[spec["peer"]]
    began = {"failure": None, "pids": []}
    try:
        running = peer.far(spec, folder)
        if spec["part"] == "forward":
            start_redis(folder)
        began["pids"] = [process.pid for process in running]
    except (Failed, OSError) as error:
        began["failure"] = str(error)
    asyncio.run(origin.run(lambda: write(f"{folder}/far.json", began)))


def start_redis(folder):
    server = Process(
        "redis",
        [find("redis-server"), "--port", str(peers.REDIS_PORT), "--save", "", "--appendonly", "no"]
        + ["--protected-mode", "no", "--bind", "0.0.0.0"],
        folder,
    )
    server.wait_for(lambda: listens_tcp(peers.REDIS_PORT), 10)
    key = [find("redis-cli"), "-p", str(peers.REDIS_PORT), "set", "key:__rand_int__", "x" * 1000]
    subprocess.run(key, capture_output=True, timeout=10, check=True)


class Near:
    def __init__(self, folder, spec):
        self.folder, self.spec = folder, spec
        self.there = os.environ["DFCP_THERE"]
        self.peer, _ = peers.PEERS[spec["peer"]]
        self.pids = []

    def run(self):
        far = self.wait_for_far()
        running, self.way = self.peer.near(self.spec, self.folder, self.there)
        own = [process.pid for process in running]
        self.pids = far["pids"] + own
        result = {}
        if self.pids:
            time.sleep(1)
            result["idle_memory"] = memory_bytes(self.pids)
        self.warm_up()
        before = cpu_seconds(self.pids)
        result.update(getattr(self, self.spec["part"])())
        if self.pids:
            result["cpu"] = cpu_seconds(self.pids) - before
            result["cpu_near"] = cpu_seconds(own)
            result["memory"] = memory_bytes(self.pids)
        for process in running:
            process.check()
        return result

    def wait_for_far(self):
        deadline = time.monotonic() + 30
        while not os.path.exists(f"{self.folder}/far.json"):
            if time.monotonic() > deadline:
                raise Failed("the far host is not ready after 30 s")
            time.sleep(0.02)
        with open(f"{self.folder}/far.json") as file:
            began = json.load(file)
        if began["failure"]:
            raise Failed(began["failure"])
        return began

    def warm_up(self):
        """Peers that connect when somebody comes do so now: a proxy is up when it is used."""
        if self.spec["part"] in ("video", "forward") or isinstance(self.peer, peers.Send):
            return
        connected, _ = load.request(self.way, "/bytes/1")
        connected.close()

    def limit_bytes(self):
        """What the path carries in the part's time at most."""
        return round(self.spec["limit_bps"] / 8 * self.spec["seconds"])

    def page(self):
        return browser.loads(self.way, self.spec["loads"], self.spec["load_limit"], self.folder)

    def one(self):
        size, limit = self.limit_bytes(), self.spec["seconds"] * 2
        if isinstance(self.peer, peers.Send):
            return load.send(self.peer, self.folder, self.there, size, limit * 3)
        return load.download(self.way, size, limit)

    def many(self):
        return load.downloads(self.way, 50, self.spec["seconds"])

    def echo(self):
        return load.echo(self.way, self.spec["seconds"])

    def beside(self):
        settle = max(1.5, 10 * self.spec["rtt"])
        return load.echo_beside(self.way, self.spec["seconds"], settle)

    def video(self):
        return load.video(self.way, self.spec["seconds"], self.spec["rtt"])

    def forward(self):
        return load.forward(self.way, self.spec["rtt"], self.spec["seconds"], self.folder)

    def idle(self):
        """Memory and processor time of proxies that carry 100 connections which say nothing."""
        before = memory_bytes(self.pids)
        connections = [load.request(self.way, "/echo")[0] for _ in range(100)]
        time.sleep(1)
        cpu = cpu_seconds(self.pids)
        time.sleep(self.spec["seconds"])
        result = {"idle_cpu": (cpu_seconds(self.pids) - cpu) / self.spec["seconds"]}
        result["per_connection"] = (memory_bytes(self.pids) - before) / len(connections)
        for connection in connections:
            connection.close()
        return result

    def network(self):
        """The paper's download over a wireless network, to its end (CTCP Figs. 12 and 13)."""
        return load.download(self.way, self.spec["bytes"], self.spec["seconds"])


def near(folder, spec):
    browser.reserve_pipes()
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, spec["timeout"])
    try:
        result = Near(folder, spec).run()
    except Failed as error:
        result = {"failure": str(error)}
    except (OSError, subprocess.SubprocessError) as error:
        result = {"failure": f"{type(error).__name__}: {error}"}
    signal.setitimer(signal.ITIMER_REAL, 0)
    write(f"{folder}/result.json", result)


if __name__ == "__main__":
    where, folder = sys.argv[1:]
    with open(f"{folder}/spec.json") as file:
        spec = json.load(file)
    {"far": far, "near": near}[where](folder, spec)
