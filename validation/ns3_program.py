"""Compiles the ns-3 scenario program into build/, when its source is newer."""

import os
import subprocess

import harness

VERSION = "3.37"
SOURCE = os.path.join(harness.HERE, "ns3", "dumbbell.cc")
PROGRAM = os.path.join(harness.HERE, "build", "dumbbell")
LIBRARIES = ("applications", "point-to-point", "internet", "traffic-control", "network", "core")


class Missing(Exception):
    """There is no ns-3 (or no compiler) to build with."""


def build():
    if os.path.exists(PROGRAM) and os.path.getmtime(PROGRAM) >= os.path.getmtime(SOURCE):
        return
    os.makedirs(os.path.dirname(PROGRAM), exist_ok=True)
    command = ["g++", "-O2", "-std=c++17", "-o", PROGRAM, SOURCE]
    command += [f"-lns3-{library}" for library in LIBRARIES]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise Missing("no g++ to compile the ns-3 program with") from None
    except subprocess.CalledProcessError as error:
        if "ns3/" in error.stderr and "No such file" in error.stderr:
            raise Missing("ns-3 is not installed (Debian: apt-get install libns3-dev)") from None
        raise Missing(f"the ns-3 program does not compile: {error.stderr}") from None
