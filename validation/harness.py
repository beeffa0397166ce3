"""The validation scenarios, their CSV, and the loop that runs them.

A cell is one dumbbell with one set of parameters; a simulator runs it once per seed and the
CSV gets one row per flow (or one row for all of them), mean and standard deviation over seeds.
"""

import csv
import itertools
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
PAYLOAD_BITS = 1460 * 8
PACKET_BITS = 1500 * 8

KEY = ["scenario", "tcp", "rate_bps", "rtt_s", "buffer_packets", "discipline", "loss", "flows", "flow"]
COLUMNS = KEY + [
    "seeds",
    "measure_from_s",
    "measure_to_s",
    "goodput_bps",
    "goodput_sd_bps",
    "queue_mean_packets",
    "drop_rate",
    "jain",
    "simulator",
    "version",
    "note",
]


@dataclass(frozen=True)
class Cell:
    scenario: str
    tcp: str
    rate: float
    rtts: tuple
    loss: float = 0.0
    buffer: int = 1000
    discipline: str = "fifo"
    window: tuple = (15.0, 60.0)  # measured from, to
    spread: float = 0.0  # flow i of n starts at i * spread / n ...
    spread_step: float = 0.0  # ... and seed s adds (s - 1) * spread_step to the spread
    summed: bool = False  # one row for all flows

    def starts(self, seed):
        spread = self.spread + (seed - 1) * self.spread_step
        return [i * spread / len(self.rtts) for i in range(len(self.rtts))]

    def packets_expected(self):
        """Roughly how many packets a minute of it costs: the square-root law, capped by the link."""
        rate = self.rate / PACKET_BITS
        if self.loss > 0:
            rate = min(rate, math.sqrt(1.5 / self.loss) / self.rtts[0])
        return rate * 60.0

    def keys(self):
        """What tells the cell's rows from all others, one per row."""
        rows = ["all"] if self.summed else range(len(self.rtts))
        return [
            dict(
                zip(
                    KEY,
                    (
                        self.scenario,
                        self.tcp,
                        number(self.rate),
                        number(self.rtts[0 if flow == "all" else flow]),
                        str(self.buffer),
                        self.discipline,
                        number(self.loss),
                        str(len(self.rtts)),
                        str(flow),
                    ),
                )
            )
            for flow in rows
        ]


@dataclass(frozen=True)
class Outcome:
    goodputs: list  # bit/s, one a flow
    queue_mean: float
    drop_rate: float

    def __str__(self):
        total = sum(self.goodputs)
        return f"{total / 1e6:.4g} Mbit/s with {self.drop_rate:.2g} dropped"


class Failed(Exception):
    """A simulator did not finish a cell; the text goes into the row's note."""


def number(value):
    return f"{value:.10g}"


def single(tcps):
    for rate, loss, rtt, tcp in itertools.product(
        (100e6, 1e9), (0.0, 1e-4, 1e-3, 1e-2, 0.05, 0.1), (1e-3, 10e-3, 50e-3, 100e-3), tcps
    ):
        yield Cell("single", tcp, rate, (rtt,), loss=loss)


def unequal(tcps, disciplines):
    """Two flows whose second starts up to 0.4 s after the first, by seed."""
    for other, discipline, tcp in itertools.product((50e-3, 100e-3), disciplines, tcps):
        yield Cell(
            f"unequal-10-{other * 1e3:.0f}",
            tcp,
            100e6,
            (10e-3, other),
            buffer=416,
            discipline=discipline,
            spread_step=0.2,
        )


def many(tcps):
    """Starts spread over 1 s, 1.1 s, 1.2 s ... by seed."""
    for flows, tcp in itertools.product((10, 50), tcps):
        yield Cell(
            "many", tcp, 100e6, (50e-3,) * flows, buffer=416, spread=1.0, spread_step=0.1, summed=True
        )


def buffers(tcps, window=(15.0, 60.0), sizes=(20, 50, 100, 200, 500, 1000), scenario="buffer"):
    for size, tcp in itertools.product(sizes, tcps):
        yield Cell(scenario, tcp, 1e9, (10e-3,), buffer=size, window=window)


def jain(shares):
    return sum(shares) ** 2 / (len(shares) * sum(x * x for x in shares))


STUCK_DROP_RATE = 0.05  # more than this is dropped by a full buffer: retransmissions without end
STUCK_FACTOR = 5.0  # times the median of the seeds


def split_stuck(outcomes):
    """Sound runs, and those in which a defect of the simulator shows (README.md tells which)."""
    median = statistics.median([sum(o.goodputs) for o in outcomes] or [0.0])

    def stuck(one):
        return one.drop_rate > STUCK_DROP_RATE or sum(one.goodputs) > STUCK_FACTOR * median

    return [o for o in outcomes if not stuck(o)], [o for o in outcomes if stuck(o)]


def rows(cell, seeds, outcomes, simulator, version, note=""):
    def spread(values):
        return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0

    for key in cell.keys():
        flow = key["flow"]
        row = dict.fromkeys(COLUMNS, "")
        row.update(key)
        row.update(
            seeds=" ".join(map(str, seeds)),
            measure_from_s=number(cell.window[0]),
            measure_to_s=number(cell.window[1]),
            simulator=simulator,
            version=version,
            note=note,
        )
        if outcomes:
            goodputs = [sum(o.goodputs) if flow == "all" else o.goodputs[int(flow)] for o in outcomes]
            mean, deviation = spread(goodputs)
            row.update(
                goodput_bps=f"{mean:.0f}",
                goodput_sd_bps=f"{deviation:.0f}",
                queue_mean_packets=f"{statistics.mean(o.queue_mean for o in outcomes):.2f}",
                drop_rate=f"{statistics.mean(o.drop_rate for o in outcomes):.3g}",
            )
            if len(cell.rtts) > 1:
                row.update(jain=f"{statistics.mean(jain(o.goodputs) for o in outcomes):.4f}")
        yield row


def identity(row):
    return tuple(row[column] for column in KEY)


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def write(path, table):
    partial = path + ".partial"
    with open(partial, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    os.replace(partial, path)


def run(cells, seeds_of, simulate, simulator, version, path):
    """Runs the cells that `path` lacks, cheap ones first; `path` is whole and in the order of
    `cells` after each.

    Runs that fail or are stuck count in no mean; the row's note tells them.
    """
    known = {}
    if os.path.exists(path):
        known = {identity(row): row for row in read(path)}
    cells = list(cells)
    order = [tuple(key.values()) for cell in cells for key in cell.keys()]
    for done, cell in enumerate(sorted(cells, key=Cell.packets_expected)):
        if all(tuple(key.values()) in known for key in cell.keys()):
            continue
        seeds, outcomes, failures = seeds_of(cell), [], []
        began = time.monotonic()
        for seed in seeds:
            try:
                outcomes.append(simulate(cell, seed))
            except Failed as failure:
                failures.append(str(failure))
        outcomes, stuck = split_stuck(outcomes)
        failures += map(str, stuck)
        note = ""
        if failures:
            if 2 * len(failures) > len(seeds):
                outcomes = []  # what few runs remain are no fair sample
            note = f"left out {len(failures)} of {len(seeds)}: " + "; ".join(dict.fromkeys(failures))
        for row in rows(cell, seeds, outcomes, simulator, version, note):
            known[identity(row)] = row
        write(path, [known[key] for key in order if key in known])
        took = time.monotonic() - began
        name = " ".join(cell.keys()[0].values())
        print(f"{done + 1}/{len(cells)} {name} {took:.1f} s {note}", file=sys.stderr, flush=True)


def processor_seconds():
    """What all finished children have used."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def execute(command, timeout):
    """Standard output of a simulator; its failures as `Failed`."""
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, check=True, cwd=HERE
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"not finished in {timeout:.0f} s") from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr or error.stdout or "").strip().splitlines()[-1:] or ["no message"]
        raise Failed(f"exit {error.returncode}: {last[0]}") from None
    return result.stdout


def parse(output):
    """The `key value ...` lines that both scenario programs print."""
    values, flows = {}, []
    for line in output.splitlines():
        words = line.split()
        if len(words) >= 4 and words[0] == "flow":
            flows.append(float(words[3]))
        elif len(words) == 2:
            values[words[0]] = float(words[1])
    return values, flows


def outcome(cell, output, bits_per_unit):
    values, flows = parse(output)
    seconds = cell.window[1] - cell.window[0]
    return Outcome(
        goodputs=[units * bits_per_unit / seconds for units in flows],
        queue_mean=values["queue_mean"],
        drop_rate=values["dropped"] / max(values["arrived"], 1),
    )
