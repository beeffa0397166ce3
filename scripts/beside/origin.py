"""What lies beyond the path: a web server that also streams without end and echoes, and a source of video.

One port of HTTP/1.1 does it all, because kcptun leads one port to one port:
/ and its objects (page.py), /bytes/N, /endless, and /echo, after whose answer bytes come back as they are.
The video is UDP: a request names how long and how fast, and is answered by frames cut into datagrams, each with
the time when it was sent; both hosts of the lab have the machine's clock.
"""

import asyncio
import json
import os
import struct
import sys
import time

sys.dont_write_bytecode = True
import page

HTTP_PORT = 8000
VIDEO_PORT = 9000
BLOCK = os.urandom(64 << 10)
# Sequence, frame, packets of the frame, time.
VIDEO_HEAD = struct.Struct(">IIIQ")
VIDEO_DATAGRAM = 1250  # fits the link's MTU of 1430 with room
# A client that reads nothing for so long has gone.
PATIENCE = 60


class Web:
    def __init__(self):
        self.objects = page.objects()

    async def serve(self, reader, writer):
        try:
            while True:
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
                path = head.split(b" ", 2)[1].decode()
                if not await self.answer(path, reader, writer):
                    break
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.TimeoutError, OSError, IndexError):
            pass
        writer.close()

    async def answer(self, path, reader, writer):
        """Whether the connection goes on."""
        if path == "/echo":
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            return False
        if path == "/endless":
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            while True:
                writer.write(BLOCK)
                await asyncio.wait_for(writer.drain(), PATIENCE)
        if path.startswith("/bytes/"):
            left = int(path[7:])
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {left}\r\n\r\n".encode())
            while left:
                piece = BLOCK[:left]
                writer.write(piece)
                left -= len(piece)
                await asyncio.wait_for(writer.drain(), PATIENCE)
            return True
        kind, body = self.objects.get(path, (None, b""))
        status = "200 OK" if kind else "404 Not Found"
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind or 'text/plain'}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await asyncio.wait_for(writer.drain(), PATIENCE)
        return True


class Video(asyncio.DatagramProtocol):
    """Streams to whoever asks; a repeated request, in case the first was lost, changes nothing."""

    def connection_made(self, transport):
        self.transport = transport
        self.running = {}

    def datagram_received(self, data, source):
        if source not in self.running:
            self.running[source] = asyncio.get_running_loop().create_task(self.stream(json.loads(data), source))

    async def stream(self, asked, source):
        frames = round(asked["seconds"] * asked["fps"])
        packets = max(1, round(asked["bps"] / 8 / asked["fps"] / VIDEO_DATAGRAM))
        start, sequence = time.monotonic(), 0
        for frame in range(frames):
            await asyncio.sleep(max(0, start + frame / asked["fps"] - time.monotonic()))
            for _ in range(packets):
                head = VIDEO_HEAD.pack(sequence, frame, packets, time.monotonic_ns())
                self.transport.sendto(head.ljust(VIDEO_DATAGRAM, b"v"), source)
                sequence += 1


async def run(ready):
    server = await asyncio.start_server(Web().serve, "0.0.0.0", HTTP_PORT, backlog=1024)
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(Video, local_addr=("0.0.0.0", VIDEO_PORT))
    ready()
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(run(lambda: print("ready", flush=True)))
