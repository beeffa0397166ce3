"""The web page of the comparison: 60 objects of a typical page, the same bytes at every run.

Counts and sums are about the medians of mobile pages that the HTTP Archive reports (Web Almanac 2024, page
weight: 1 document, 8 style sheets, 22 scripts, 540 kB of them, some 900 kB of images); sizes within a kind are
log-normal, as those of web objects are (Barford and Crovella 1998). Bytes do not compress.
"""

import math
import struct
import zlib

SEED = 19
# Kind, objects, bytes of all of them, spread (sigma of the logarithm).
KINDS = (("html", 1, 30_000, 0.0), ("css", 6, 72_000, 0.8), ("js", 20, 540_000, 1.0), ("png", 33, 960_000, 1.1))
# Images that a script inserts, once it has come: nobody can ask for them earlier.
LATE = 8
LEAST = 400


class Draws:
    """Uniform numbers of a 64-bit LCG (Knuth's MMIX): the same in every version of Python."""

    def __init__(self, seed):
        self.state = seed

    def uniform(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return ((self.state >> 11) + 0.5) / 2**53

    def normal(self):
        return math.sqrt(-2 * math.log(self.uniform())) * math.cos(2 * math.pi * self.uniform())

    def bytes(self, count):
        words = [int(self.uniform() * 2**32) for _ in range(count // 4 + 1)]
        return struct.pack(f"<{len(words)}I", *words)[:count]


def sizes():
    """[(name, bytes)] of all objects, the document first."""
    draws = Draws(SEED)
    listed = []
    for kind, count, total, sigma in KINDS:
        weights = [math.exp(sigma * draws.normal()) for _ in range(count)]
        scale = total / sum(weights)
        listed += [(f"{kind}{index}.{kind}", max(LEAST, round(weight * scale))) for index, weight in enumerate(weights)]
    return listed


def text(size, opening, closing, draws):
    """Text of `size` bytes: hexadecimal noise between an opening and a closing."""
    noise = draws.bytes(size // 2 + 1).hex()
    return (opening + noise)[: size - len(closing)].encode() + closing.encode()


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def image(size, draws):
    """A PNG of one pixel with a chunk of noise that decoders skip."""
    head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    tail = chunk(b"IDAT", zlib.compress(b"\0\x80")) + chunk(b"IEND", b"")
    return head + chunk(b"noIs", draws.bytes(size - len(head) - len(tail) - 12)) + tail


def document(size, names, draws):
    """Style sheets and half of the scripts in the head, the rest where a page has it."""
    of = lambda kind: [name for name in names if name.endswith(kind)]
    scripts, images = of("js"), of("png")
    parts = ["<!doctype html><html><head><title>A page</title><link rel=icon href=data:,>"]
    parts += [f'<link rel="stylesheet" href="/{name}">' for name in of("css")]
    parts += [f'<script defer src="/{name}"></script>' for name in scripts[: len(scripts) // 2]]
    parts += ["</head><body>"]
    parts += [f'<img src="/{name}" alt="">' for name in images[:-LATE]]
    parts += [f'<script src="/{name}"></script>' for name in scripts[len(scripts) // 2 :]]
    return text(size, "".join(parts) + "<!--", "--></body></html>", draws)


def objects():
    """{path: (content type, bytes)}."""
    listed = sizes()
    names = [name for name, _ in listed]
    late = [name for name in names if name.endswith("png")][-LATE:]
    insert = "".join(f"var i=new Image;i.src='/{name}';document.body.appendChild(i);" for name in late)
    draws = Draws(SEED + 1)
    made = {}
    for name, size in listed:
        kind = name.rsplit(".", 1)[1]
        if kind == "html":
            made["/"] = ("text/html", document(size, names, draws))
        elif kind == "css":
            made[f"/{name}"] = ("text/css", text(size, "img{width:9px}/*", "*/", draws))
        elif kind == "js":
            code = insert if name == f"js{KINDS[2][1] - 1}.js" else ""
            made[f"/{name}"] = ("text/javascript", text(max(size, len(code) + 9), code + "/*", "*/", draws))
        else:
            made[f"/{name}"] = ("image/png", image(size, draws))
    return made


if __name__ == "__main__":
    for path, (kind, body) in objects().items():
        print(f"{len(body):8} {kind:16} {path}")
    print(f"{sum(len(body) for _, body in objects().values()):8} bytes, {len(objects())} objects")
