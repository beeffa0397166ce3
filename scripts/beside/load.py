"""What programs do: downloads, an echo, a video, requests to a database. Each says what it saw."""

import asyncio
import csv
import json
import multiprocessing
import os
import socket
import struct
import subprocess
import threading
import time

from origin import HTTP_PORT, VIDEO_HEAD, VIDEO_PORT
from peers import REDIS_PORT
from process import Failed, find

CONNECT_LIMIT = 15
TICK = 0.1  # seconds between points of an arrival curve
ECHO_PERIOD = 0.02
ECHO_MESSAGE = struct.Struct(">Iq")
ECHO_BYTES = 64  # a keystroke under ssh, a move in a game
ECHO_LAST = 3  # seconds that the last answers may take
# A frame of video that comes later than this after its shortest way is not shown: what a call's jitter buffer
# holds (ITU-T G.114 calls 150 ms one way good, of which a path of 80 ms takes 40).
VIDEO_BUFFER = 0.1
VIDEO = {"bps": 4_000_000, "fps": 25}


def connect(way, port, limit=CONNECT_LIMIT):
    """A socket to a far port, through SOCKS5 where the way says so."""
    host, number = way.address(port)
    if way.socks is None:
        connected = socket.create_connection((host, number), limit)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected
    connected = socket.create_connection(("127.0.0.1", way.socks), limit)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.sendall(b"\x05\x01\x00")
    exactly(connected, 2)
    connected.sendall(b"\x05\x01\x00\x01" + socket.inet_aton(host) + struct.pack(">H", number))
    answer = exactly(connected, 10)
    if answer[1]:
        raise Failed(f"SOCKS5 answers {answer[1]}")
    return connected


def exactly(connected, count):
    data = b""
    while len(data) < count:
        more = connected.recv(count - len(data))
        if not more:
            raise Failed("the connection ended early")
        data += more
    return data


def request(way, path, limit=CONNECT_LIMIT):
    """A connection whose answer's head has been read, and what came with it."""
    connected = connect(way, HTTP_PORT, limit)
    connected.sendall(f"GET {path} HTTP/1.1\r\nHost: far\r\n\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        more = connected.recv(65536)
        if not more:
            raise Failed("no answer: the connection ended")
        head += more
    return connected, head.split(b"\r\n\r\n", 1)[1]


def download(way, size, limit):
    """One download, to its end or to the limit: bytes, seconds since it was asked for, its arrival curve."""
    start = time.monotonic()
    connected, rest = request(way, f"/bytes/{size}", limit)
    received, curve, due = len(rest), [], start + TICK
    while received < size:
        connected.settimeout(max(0.01, start + limit - time.monotonic()))
        try:
            more = connected.recv(1 << 18)
        except TimeoutError:
            break
        if not more:
            raise Failed(f"the download ended after {received} of {size} bytes")
        received += len(more)
        now = time.monotonic()
        while due <= now:
            curve.append(received)
            due += TICK
        if now > start + limit:
            break
    seconds = time.monotonic() - start
    connected.close()
    return {"bytes": received, "seconds": seconds, "finished": received >= size, "curve": curve}


async def endless(way, loop, results, index, until):
    connected, rest = await asyncio.to_thread(request, way, "/endless")
    connected.setblocking(False)
    results[index] = len(rest)
    try:
        while (left := until - time.monotonic()) > 0:
            more = await asyncio.wait_for(loop.sock_recv(connected, 1 << 18), left)
            if not more:
                raise Failed("an endless download ended")
            results[index] += len(more)
    except (TimeoutError, asyncio.TimeoutError):  # one and the same since Python 3.11
        pass
    finally:
        connected.close()


def downloads(way, count, seconds):
    """Parallel downloads for some time: bytes of each."""

    async def all_of_them():
        loop = asyncio.get_running_loop()
        from concurrent.futures import ThreadPoolExecutor

        loop.set_default_executor(ThreadPoolExecutor(count))
        results, until = [0] * count, time.monotonic() + seconds
        tasks = [endless(way, loop, results, index, until) for index in range(count)]
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        failures = [str(error) or type(error).__name__ for error in ended if error is not None]
        return results, failures

    results, failures = asyncio.run(all_of_them())
    if len(failures) == count:
        raise Failed(f"all downloads failed: {failures[0]}")
    total = sum(results)
    squares = sum(bytes**2 for bytes in results)
    return {
        "bytes": total,
        "seconds": seconds,
        "failed": len(failures),
        "jain": total**2 / (count * squares) if squares else 0,
    }


def echo(way, seconds):
    """Messages at a steady pace, however long answers take: seconds of each."""
    connected, _ = request(way, "/echo")
    # The first words on a connection are part of opening it.
    start = time.monotonic()
    times, lock = {}, threading.Lock()
    count = round(seconds / ECHO_PERIOD)

    def listen():
        connected.settimeout(1)
        data = b""
        while time.monotonic() < start + seconds + ECHO_LAST and len(times) < count:
            try:
                more = connected.recv(65536)
            except TimeoutError:
                continue
            if not more:
                return
            now = time.monotonic_ns()
            data += more
            while len(data) >= ECHO_BYTES:
                sequence, sent = ECHO_MESSAGE.unpack_from(data)
                data = data[ECHO_BYTES:]
                with lock:
                    times[sequence] = (now - sent) / 1e9

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    sent = {}
    connected.settimeout(seconds)
    for sequence in range(count):
        time.sleep(max(0, start + sequence * ECHO_PERIOD - time.monotonic()))
        sent[sequence] = time.monotonic_ns()
        try:
            connected.sendall(ECHO_MESSAGE.pack(sequence, sent[sequence]).ljust(ECHO_BYTES, b"e"))
        except OSError:
            break
    listener.join(seconds + ECHO_LAST + 2)
    now = time.monotonic_ns()
    with lock:
        answered = dict(times)
    connected.close()
    # What was never answered took at least until now.
    all_times = sorted(answered.get(sequence, (now - at) / 1e9) for sequence, at in sent.items())
    if not answered:
        raise Failed("no message was echoed")
    return {**quantiles(all_times), "messages": len(all_times), "unanswered": len(all_times) - len(answered)}


def quantiles(ordered):
    at = lambda share: ordered[min(len(ordered) - 1, int(share * len(ordered)))]
    return {"median": at(0.5), "p95": at(0.95), "p99": at(0.99), "max": ordered[-1]}


def bulk(way, seconds, pipe):
    """An endless download in a process of its own, so that it delays nothing here."""
    received, until = 0, time.monotonic() + seconds
    try:
        connected, _ = request(way, "/endless")
        pipe.send("begun")
        while time.monotonic() < until:
            connected.settimeout(max(0.01, until - time.monotonic()))
            received += len(connected.recv(1 << 18))
    except (Failed, OSError):
        pass
    pipe.send(received)


def echo_beside(way, seconds, settle):
    """The echo while a download runs, which gets some time to find its rate first."""
    mine, theirs = multiprocessing.Pipe()
    running = settle + seconds + 1
    process = multiprocessing.get_context("fork").Process(target=bulk, args=(way, running, theirs), daemon=True)
    process.start()
    if not mine.poll(CONNECT_LIMIT) or mine.recv() != "begun":
        process.kill()
        raise Failed("the download beside the echo did not begin")
    time.sleep(settle)
    try:
        result = echo(way, seconds)
        result["download_bytes"] = mine.recv() if mine.poll(running) else None
    finally:
        process.kill()
    result["download_seconds"] = running
    return result


def video(way, seconds, rtt):
    """A stream of frames: which packets came late or never."""
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    receiver.connect((way.host, VIDEO_PORT))
    asked = json.dumps({**VIDEO, "seconds": seconds}).encode()
    receiver.settimeout(0.5)
    came, until, begun = {}, time.monotonic() + 10, False
    packets_a_frame = 1
    while time.monotonic() < until:
        if not begun:
            receiver.send(asked)
        try:
            data = receiver.recv(2048)
        except TimeoutError:
            continue
        except ConnectionRefusedError:
            time.sleep(0.1)
            continue
        if not begun:
            begun, until = True, time.monotonic() + seconds + 1
        sequence, frame, packets_a_frame, sent = VIDEO_HEAD.unpack_from(data)
        came.setdefault(sequence, ((time.monotonic_ns() - sent) / 1e9, frame))
    if not came:
        raise Failed("no packet of the video came")
    total = round(seconds * VIDEO["fps"]) * packets_a_frame
    late = sum(delay > rtt / 2 + VIDEO_BUFFER for delay, _ in came.values())
    shown = {}
    for delay, frame in came.values():
        if delay <= rtt / 2 + VIDEO_BUFFER:
            shown[frame] = shown.get(frame, 0) + 1
    frames = round(seconds * VIDEO["fps"])
    whole = sum(count == packets_a_frame for count in shown.values())
    return {
        **quantiles(sorted(delay for delay, _ in came.values())),
        "packets": total,
        "lost": total - len(came),
        "late": late,
        "frames": frames,
        "broken_frames": frames - whole,
    }


def forward(way, rtt, seconds, folder):
    """redis-benchmark: 8 clients, each asking for 1 kB when it has the answer before."""
    program = find("redis-benchmark")
    clients = 8
    rounds = max(10, round(seconds / 1.2 / rtt)) if rtt else 100
    host, port = way.address(REDIS_PORT)
    command = [program, "-h", host, "-p", str(port), "-c", str(clients), "-n", str(clients * rounds)]
    command += ["-t", "get", "-d", "1000", "--csv"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds * 4, cwd=folder)
    except subprocess.TimeoutExpired:
        raise Failed(f"redis-benchmark did not end within {seconds * 4} s") from None
    rows = list(csv.reader(done.stdout.splitlines()))
    if done.returncode or len(rows) < 2:
        raise Failed(f"redis-benchmark: {(done.stderr or done.stdout).strip()[-200:]}")
    row = dict(zip(rows[0], rows[-1]))
    return {
        "requests_a_second": float(row["rps"]),
        "median": float(row["p50_latency_ms"]) / 1e3,
        "p99": float(row["p99_latency_ms"]) / 1e3,
        "max": float(row["max_latency_ms"]) / 1e3,
        "requests": clients * rounds,
    }


def send(peer, folder, there, size, limit):
    """`dfcp send` of a file: its own figures, and the time of the whole process."""
    file = os.path.join(folder, "file")
    with open(file, "wb") as made:
        left = size
        while left > 0:
            made.write(os.urandom(min(left, 1 << 20)))
            left -= 1 << 20
    start = time.monotonic()
    try:
        done = subprocess.run(
            peer.command(folder, there, file), capture_output=True, text=True, timeout=limit, cwd=folder
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"dfcp send did not end within {limit} s") from None
    seconds = time.monotonic() - start
    if done.returncode:
        raise Failed(f"dfcp send: {done.stderr.strip()[-200:]}")
    return {"bytes": size, "seconds": seconds, "finished": True, "said": json.loads(done.stdout.splitlines()[-1])}
