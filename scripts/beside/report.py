"""The page of all results: tables beside each other, the bars, and figures."""

import json
import os
from statistics import median

import figure
from grid import BURST, NETWORKS, PLANS, Path

ORDER = ("dfcp", "dfcp-fast-open", "dfcp-ctcp", "hysteria", "hysteria-bbr", "kcptun", "tcp-bbr", "tcp-cubic", "send",
         "tun", "udp")  # fmt: skip
PAGE = ORDER[:8]
TUNNELS = ("dfcp", "dfcp-ctcp", "hysteria", "hysteria-bbr", "kcptun")
LOST = "–"  # not run, or no figure


def read(file):
    """Lines, of each cell the last."""
    lines = {}
    if os.path.exists(file):
        with open(file) as results:
            for text in results:
                try:
                    line = json.loads(text)
                    lines[line["key"]] = line
                except (ValueError, KeyError):
                    continue  # a line that an interruption cut off
    return list(lines.values())


class Results:
    def __init__(self, lines):
        self.lines = [line for line in lines if line["plan"] == self.best(lines)]
        self.plan = self.best(lines)

    @staticmethod
    def best(lines):
        return next((plan for plan in PLANS if any(line["plan"] == plan for line in lines)), "full")

    def losses(self):
        found = {(line["path"]["loss"], line["path"]["burst"]) for line in self.lines if line["part"] != "network"}
        return sorted(found, key=lambda loss: (loss[1] > 1, loss))

    def rtts(self):
        return sorted({line["path"]["rtt_ms"] for line in self.lines if line["part"] != "network"})

    def peers(self, part):
        there = {line["peer"] for line in self.lines if line["part"] == part}
        return [peer for peer in ORDER if peer in there]

    def of(self, part, peer, rtt, loss):
        """Lines of a cell's seeds."""
        return [
            line
            for line in self.lines
            if (line["part"], line["peer"], line["path"]["rtt_ms"]) == (part, peer, rtt)
            and (line["path"]["loss"], line["path"]["burst"]) == loss
        ]

    def value(self, part, peer, rtt, loss, figure_of):
        """The median of a figure over what was measured; nothing where nothing was."""
        found = []
        for line in self.of(part, peer, rtt, loss):
            if not line.get("failure"):
                found += figure_of(line)
        return median(found) if found else None

    def marks(self, part, peer, rtt, loss):
        """What is to be known of a cell: a failure, a path that was not true."""
        lines = self.of(part, peer, rtt, loss)
        failed = sum(bool(line.get("failure")) for line in lines)
        return ("✗" * failed) + ("*" if any(not line["valid"] for line in lines) else "")


# Figures of a line, each a list, so that several loads or none count as what they are.
def page_loads(line):
    return [each["load"] if each["load"] is not None else PLANS[line["plan"]]["load_limit"] for each in line["loads"]]


def share_of_limit(line):
    return [line["bytes"] * 8 / line["seconds"] / Path(**line["path"]).limit_bps]


def milliseconds(field):
    return lambda line: [line[field] * 1e3]


def cpu_per_gb(line):
    return [line["cpu"] / line["bytes"] * 1e9] if line.get("cpu") is not None and line["bytes"] > 1e6 else []


def name(loss):
    return f"{loss[0] * 100:g} %" + (f" in bursts of {loss[1]}" if loss[1] > 1 else "")


def ratio(a, b):
    return a / b if a is not None and b else None


def shown(value, digits):
    return LOST if value is None else f"{value:.{digits}f}"


def table(results, part, peers, figure_of, digits, beside=None):
    """Rows of round trip and loss; a ratio to `beside` in brackets."""
    rows = ["| RTT | lost | " + " | ".join(peers) + " |", "|---|---|" + "---|" * len(peers)]
    for rtt in results.rtts():
        for loss in results.losses():
            cells = []
            for peer in peers:
                value = results.value(part, peer, rtt, loss, figure_of)
                text = shown(value, digits) + results.marks(part, peer, rtt, loss)
                base = results.value(part, beside, rtt, loss, figure_of) if beside else None
                if beside and peer != beside and ratio(value, base) is not None:
                    text += f" ({ratio(value, base):.2f})"
                cells.append(text)
            if any(not cell.startswith(LOST) or "✗" in cell for cell in cells):
                rows.append(f"| {rtt} ms | {name(loss)} | " + " | ".join(cells) + " |")
    return "\n".join(rows) if len(rows) > 2 else "Not measured."


def verdicts(results):
    """The bars, cell by cell: (what, where, measured, bar)."""
    found = []

    def bar(what, rtt, loss, value, most, at_least=False):
        if value is not None:
            met = value >= most if at_least else value <= most
            found.append((what, f"{rtt} ms, {name(loss)}", value, most, met))

    for rtt in results.rtts():
        for loss in results.losses():
            load = lambda peer: results.value("page", peer, rtt, loss, page_loads)
            if loss in ((0.05, 1), (0.1, 1)):
                bar("page ÷ TCP BBR's ≤ 0.5", rtt, loss, ratio(load("dfcp"), load("tcp-bbr")), 0.5)
                bar("page ÷ hysteria2's, told the rate, ≤ 0.8", rtt, loss, ratio(load("dfcp"), load("hysteria")), 0.8)
            if loss == (0.0, 1):
                bar("page ÷ plain TCP's ≤ 1.05", rtt, loss, ratio(load("dfcp"), load("tcp-cubic")), 1.05)
            late = results.value("beside", "dfcp", rtt, loss, milliseconds("p99"))
            bar("echo beside a download, 99 % − RTT, ms ≤ 30", rtt, loss, None if late is None else late - rtt, 30)
            goodput = lambda peer: results.value("one", peer, rtt, loss, share_of_limit)
            bar("one download ÷ send ≥ 0.95", rtt, loss, ratio(goodput("dfcp"), goodput("send")), 0.95, True)
            cpu = lambda peer: results.value("one", peer, rtt, loss, cpu_per_gb)
            for peer in ("kcptun", "hysteria"):
                bar(f"CPU ÷ {peer}'s ≤ 0.5", rtt, loss, ratio(cpu("dfcp"), cpu(peer)), 0.5)
    return found


def judged(results):
    rows = ["| bar | met in | misses |", "|---|---|---|"]
    found = verdicts(results)
    for what in dict.fromkeys(each[0] for each in found):
        same = [each for each in found if each[0] == what]
        missed = [f"{where}: {value:.2f}" for _, where, value, _, met in same if not met]
        rows.append(f"| {what} | {len(same) - len(missed)} of {len(same)} | {'; '.join(missed) or 'none'} |")
    return "\n".join(rows)


def video(results):
    rows = ["| RTT | lost | way | late or lost packets | broken frames | delay, median | 99 % |", "|---|---|---|---|---|---|---|"]
    for rtt in results.rtts():
        for loss in results.losses():
            for peer in ("udp", "tun"):
                of = lambda figure_of: results.value("video", peer, rtt, loss, figure_of)
                bad = of(lambda line: [(line["late"] + line["lost"]) / line["packets"] * 100])
                if bad is None:
                    continue
                frames = of(lambda line: [line["broken_frames"] / line["frames"] * 100])
                cells = [f"{bad:.2f} %{results.marks('video', peer, rtt, loss)}", f"{frames:.1f} %"]
                cells += [f"{of(milliseconds(field)):.0f} ms" for field in ("median", "p99")]
                rows.append(f"| {rtt} ms | {name(loss)} | {peer} | " + " | ".join(cells) + " |")
    return "\n".join(rows) if len(rows) > 2 else "Not measured."


def memory(results):
    rows = ["| peer | both proxies, nobody there | a connection that says nothing | CPU with 100 of these | after a download |",
            "|---|---|---|---|---|"]  # fmt: skip
    for peer in TUNNELS:
        idle = [line for line in results.lines if (line["part"], line["peer"]) == ("idle", peer) and not line.get("failure")]
        one = [line for line in results.lines if (line["part"], line["peer"]) == ("one", peer) and line.get("memory")]
        if idle:
            of = lambda field, lines=idle: median(line[field] for line in lines)
            after = f"{of('memory', one) / 1e6:.0f} MB" if one else LOST
            rows.append(
                f"| {peer} | {of('idle_memory') / 1e6:.0f} MB | {of('per_connection') / 1e3:.0f} kB | "
                f"{of('idle_cpu') * 100:.1f} % | {after} |"
            )
    return "\n".join(rows) if len(rows) > 2 else "Not measured."


def networks(results):
    peers = results.peers("network")
    rows = ["| network | " + " | ".join(peers) + " | CTCP's paper: CTCP, TCP |", "|---|" + "---|" * (len(peers) + 1)]
    paper = ((313, 807), (388, 1151), (676, 753), (292, 391), (1093, 3042))
    for path, (ctcp, tcp) in zip(NETWORKS, paper):
        cells, size = [], 0
        for peer in peers:
            lines = [line for line in results.lines if line["part"] == "network" and line["peer"] == peer]
            lines = [line for line in lines if line["path"] == vars(path) and not line.get("failure")]
            size = max([size] + [line["bytes"] for line in lines])
            rates = [line["bytes"] * 8e-6 / line["seconds"] for line in lines]
            ended = all(line["finished"] for line in lines)
            times = f"{median(line['seconds'] for line in lines):.0f} s, " if lines and ended else ""
            cells.append(f"{times}{median(rates):.3f} Mbit/s" if lines else LOST)
        where = f"{path.rate / 1e3:g} kbit/s, {path.rtt_ms} ms, {path.loss * 100:g} %"
        rows.append(f"| {where} | " + " | ".join(cells) + f" | {400 / ctcp:.2f}, {400 / tcp:.2f} Mbit/s |")
    return "\n".join(rows) if peers else "Not measured."


def head(results):
    lines = results.lines
    versions = next((line["versions"] for line in reversed(lines)), {})
    machine = lines[-1]["machine"]
    commands = dict.fromkeys(line["command"] for line in lines)
    loads = [line["load"] for line in lines]
    invalid = sum(not line["valid"] for line in lines)
    failed = [line for line in lines if line.get("failure")]
    listed = ", ".join(f"{program} {str(told).removeprefix(f'{program} ')}" for program, told in versions.items())
    text = f"""# `dfcp proxy` beside others

Commands: {'; '.join(f'`{command}`' for command in commands)}. Raw: `proxy.jsonl`, a line for each cell.

{lines[0]['when'][:10]} to {lines[-1]['when'][:10]}, {machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}; {listed}.
Load of the machine when cells ended: {min(loads):.1f} to {max(loads):.1f} (a cell itself is one to two). {len(lines)} cells,
seeds {sorted({line['seed'] for line in lines})}; {invalid} on a path that was not true to its settings (marked *), {len(failed)} failed (marked ✗).

Two hosts of the lab, {lines[0]['path']['rate'] / 1e6:g} Mbit/s each way, a queue of one product of rate and round trip, loss each way at random; *bursts* are
Gilbert–Elliott of mean length {BURST} packets at full rate, in time. Browser, web server, proxies and the path share the
machine's {machine['cores']} cores. Each cell starts its proxies anew and is warmed by one byte. Numbers in brackets are
ratios to the column that the heading names. A cell that failed has no figure in medians.

* *dfcp*: `dfcp proxy`, SOCKS5, as it comes; *dfcp-fast-open*: with `--fast-open`; *dfcp-ctcp*: `--profile ctcp` at both ends, CTCP's deployment
* *hysteria*: hysteria2 told the path's rate; *hysteria-bbr*: without; both with SOCKS5
* *kcptun*: mode fast3, 10 + 3 shards, windows of two products, a port for a port
* *tcp-bbr*, *tcp-cubic*: no proxy, the kernel's TCP
"""
    if failed:
        reasons = dict.fromkeys(f"{line['peer']}, {line['part']}: {line['failure']}" for line in failed)
        text += "\nFailures:\n\n" + "\n".join(f"* {reason}" for reason in list(reasons)[:20]) + "\n"
    return text


def write(folder, lines):
    """proxy.md and its figures."""
    if not lines:
        return
    results = Results(lines)
    text = head(results)
    reading = os.path.join(folder, "proxy", "reading.md")
    os.makedirs(os.path.dirname(reading), exist_ok=True)
    text += "\n## Against the targets\n\nOf *dfcp*, cell by cell:\n\n" + judged(results) + "\n"
    if os.path.exists(reading):
        with open(reading) as file:
            text += "\n" + file.read().strip() + "\n"
    of = results.peers
    loader = sorted({line["loader"] for line in results.lines if line.get("loader")})
    text += f"""
## A page of 60 objects

Seconds until the load event, median of fresh profiles ({' and '.join(loader) or 'not measured'}), HTTP/1.1, 1.6 MB; ratio to tcp-bbr. One
that took longer than {PLANS[results.plan]['load_limit']} s counts as that.

{table(results, "page", of("page"), page_loads, 2, "tcp-bbr")}

"""
    text += figures(folder, results)
    text += f"""
## Downloads

One, {PLANS[results.plan]['one']} s of the path's limit, from its request to its last byte, share of the limit (1 − p) · C · 1472/1500, start-up
included; *send* is `dfcp send` of a file as large, the other way, from the start of its process to its end.

{table(results, "one", of("one"), share_of_limit, 3)}

Fifty at once for {PLANS[results.plan]['many']} s, all together, share of the limit:

{table(results, "many", of("many"), share_of_limit, 3)}

Jain's index of the fifty:

{table(results, "many", of("many"), lambda line: [line["jain"]], 2)}

## Echo

64 bytes, 50 times a second, however late answers are; 99 % of the latency, ms, alone:

{table(results, "echo", of("echo"), milliseconds("p99"), 0)}

beside a download through the same proxy, 99 %:

{table(results, "beside", of("beside"), milliseconds("p99"), 0)}

and the median there:

{table(results, "beside", of("beside"), milliseconds("median"), 0)}

## A database over a forward

`redis-benchmark`, 8 clients, 1 kB; 99 % of the latency, ms:

{table(results, "forward", of("forward"), milliseconds("p99"), 0)}

Requests a second; ratio to tcp-bbr:

{table(results, "forward", of("forward"), lambda line: [line["requests_a_second"]], 0, "tcp-bbr")}

## Video over `dfcp tun`

4 Mbit/s, 25 frames a second, beside plain UDP; late is more than 100 ms after the shortest way.

{video(results)}

## Processor time and memory

CPU seconds of both proxies for a GB, user and system, of one download:

{table(results, "one", [peer for peer in of("one") if peer in TUNNELS], cpu_per_gb, 1, "hysteria")}

{memory(results)}

## CTCP's wireless networks

A download over networks like those of CTCP Figs. 12 and 13 (loss in bursts of three packets, rates such that CTCP's
times come out: `scenarios/figures/ctcp/wifi.toml`), SOCKS at the client and the reverse proxy at the server, of
{PLANS[results.plan]['network_bytes'] / 1e6:g} MB where the paper's had 50.

{networks(results)}
"""
    with open(os.path.join(folder, "proxy.md"), "w") as file:
        file.write(text)


def figures(folder, results):
    """Page loads over loss, a panel for each round trip."""
    panels = []
    losses = [loss for loss in results.losses() if loss[1] == 1]
    for rtt in results.rtts():
        series = {}
        for peer in PAGE:
            values = [results.value("page", peer, rtt, loss, page_loads) for loss in losses]
            if any(value is not None for value in values):
                series[peer] = values
        if series:
            panels.append((f"{rtt} ms", series))
    if not panels:
        return ""
    drawing = figure.panels("Page load, seconds", "lost each way, %", [f"{loss[0] * 100:g}" for loss in losses], panels)
    with open(os.path.join(folder, "proxy", "page.svg"), "w") as file:
        file.write(drawing)
    return "![Page load over loss](proxy/page.svg)\n"
