"""Processes of a run: they die with whoever started them, their logs are kept, their processor time is read."""

import ctypes
import os
import shutil
import signal
import subprocess
import time

TICKS = os.sysconf("SC_CLK_TCK")
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


class Failed(Exception):
    """Why there is no figure, in words."""


def find(program, variable=None):
    """Where a program is: the environment says it, or the PATH."""
    named = os.environ.get(variable or program.upper().replace("-", "_"))
    if named:
        return named if os.access(named, os.X_OK) else None
    return shutil.which(program)


def with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    def __init__(self, name, command, folder, environment=None):
        self.name, self.log = name, os.path.join(folder, f"{name}.log")
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(environment or {})},
                preexec_fn=with_parent,
            )

    @property
    def pid(self):
        return self.child.pid

    def said(self):
        with open(self.log, "rb") as log:
            return log.read().decode(errors="replace")

    def check(self):
        """Raises if it has ended."""
        if self.child.poll() is not None:
            last = " / ".join(self.said().strip().splitlines()[-3:])
            raise Failed(f"{self.name} ended with {self.child.returncode}: {last}")

    def wait_for(self, ready, limit):
        """Waits until `ready` is true; raises if the process ends or that takes too long."""
        deadline = time.monotonic() + limit
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                last = " / ".join(self.said().strip().splitlines()[-3:])
                raise Failed(f"{self.name} not ready after {limit} s: {last}")
            time.sleep(0.02)

    def stop(self):
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(2)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()


def cpu_seconds(pids):
    """User and system time of processes, all their threads."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def memory_bytes(pids):
    """Resident memory of processes."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/status") as status:
            total += next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) * 1024
    return total


def listens_udp(port):
    return f":{port:04X} " in "".join(open(name).read() for name in ("/proc/net/udp", "/proc/net/udp6"))


def listens_tcp(port):
    """Whether somebody listens there, in this network namespace."""
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(name) as table:
            for line in table:
                fields = line.split()
                if fields[1].endswith(f":{port:04X}") and fields[3] == "0A":
                    return True
    return False
