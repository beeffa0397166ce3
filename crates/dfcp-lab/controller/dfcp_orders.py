"""Orders of a network controller, without switches: messages (docs/spec/orders.md), max-min fair rates,
and who listens. dfcp_controller.py, which is beside it, needs it; it needs nothing but Python 3.9.
"""

import collections
import dataclasses
import hashlib
import hmac
import ipaddress
import os
import struct
import time

# -- Messages (docs/spec/orders.md) -----------------------------------------------------------------

HELLO, CHALLENGE, ORDER, FAREWELL = 1, 2, 3, 4
MAGIC = b"DFRO\x01"
HEAD = struct.Struct(">5sBBBQQQQIHHHH16s16s")
MAC_LENGTH = 32


@dataclasses.dataclass(frozen=True)
class Flow:
    """A flow as switches see it."""

    source: str
    destination: str
    protocol: int
    source_port: int = 0
    destination_port: int = 0


@dataclasses.dataclass
class Message:
    kind: int
    session: int
    token: int
    sequence: int
    rate: int
    valid_ms: int
    packet: int
    flow: Flow


def encode(message, key):
    def wide(text):
        address = ipaddress.ip_address(text)
        return address.packed if address.version == 6 else b"\0" * 10 + b"\xff\xff" + address.packed

    flow = message.flow
    family = ipaddress.ip_address(flow.source).version
    text = HEAD.pack(
        MAGIC, message.kind, flow.protocol, family, message.session, message.token, message.sequence,
        message.rate, message.valid_ms, message.packet, flow.source_port, flow.destination_port, 0,
        wide(flow.source), wide(flow.destination),
    )
    return text + hmac.new(key, text, hashlib.sha256).digest()


def decode(datagram, key):
    """The message of a datagram; None if it is not authentic, or none."""
    if len(datagram) != HEAD.size + MAC_LENGTH or not datagram.startswith(MAGIC):
        return None
    text, code = datagram[:HEAD.size], datagram[HEAD.size:]
    if not hmac.compare_digest(hmac.new(key, text, hashlib.sha256).digest(), code):
        return None
    (_, kind, protocol, family, session, token, sequence, rate, valid, packet, source_port,
     destination_port, zero, source, destination) = HEAD.unpack(text)

    def narrow(wide):
        address = ipaddress.IPv6Address(wide)
        return str(address if family == 6 else address.ipv4_mapped)

    if zero or not packet or family not in (4, 6) or kind not in (HELLO, CHALLENGE, ORDER, FAREWELL):
        return None
    flow = Flow(narrow(source), narrow(destination), protocol, source_port, destination_port)
    if "None" in (flow.source, flow.destination):
        return None
    return Message(kind, session, token, sequence, rate, valid, packet, flow)


# -- Fair rates -------------------------------------------------------------------------------------


@dataclasses.dataclass
class Claim:
    """What a flow asks: its weight, and for each link what a bit of its packets costs there."""

    weight: float
    links: dict


def max_min(capacities, claims):
    """Max-min fair rates (Bertsekas and Gallager, Data Networks, 6.5.2): no flow can have more but at
    the cost of one that has less for its weight."""
    rates = [float("inf")] * len(claims)
    left = dict(capacities)
    unsettled = [number for number, claim in enumerate(claims) if claim.links]
    while unsettled:
        asked = collections.defaultdict(float)
        for number in unsettled:
            for link, cost in claims[number].links.items():
                asked[link] += claims[number].weight * cost
        level, tight = min((left[link] / weight, link) for link, weight in asked.items())
        for number in [number for number in unsettled if tight in claims[number].links]:
            rates[number] = level * claims[number].weight
            for link, cost in claims[number].links.items():
                left[link] = max(0.0, left[link] - rates[number] * cost)
            unsettled.remove(number)
    return rates


# -- Senders ----------------------------------------------------------------------------------------

VALID_MS = 1000
"""How long an order holds: five hellos of a sender."""
SILENT = 2.0
"""Seconds without a hello after which a sender is gone."""
MOST_SENDERS = 4096
"""Beyond them, new senders are not answered: what is kept of each is kept for who has the key only."""


@dataclasses.dataclass
class Sender:
    """A sender that listens: one flow."""

    session: int = 0
    token: int = 0
    heard: int = 0
    pending: tuple = (0, 0)
    address: tuple = None
    last: float = 0.0
    packet: int = 1500
    active: bool = False
    order: int = None


class Senders:
    """Who listens to orders. A sender counts when it has shown the token that it was sent: who only
    repeats what it overheard cannot know the newest one."""

    def __init__(self, key, clock=time.monotonic, wall=time.time_ns):
        self.key, self.clock, self.senders = key, clock, {}
        # Rises, also when the controller is started again.
        self.sequence = wall()

    def handle(self, datagram, address):
        """Takes a datagram: the flow, and "hello", "farewell", or a challenge to be sent; or None."""
        message = decode(datagram, self.key)
        if message is None or message.kind not in (HELLO, FAREWELL):
            return None
        flow = message.flow
        if flow not in self.senders and len(self.senders) >= MOST_SENDERS:
            return None
        sender = self.senders.setdefault(flow, Sender())
        known = (message.session, message.token)
        if not message.token or known not in ((sender.session, sender.token), sender.pending):
            token = int.from_bytes(os.urandom(8), "big") | 1
            sender.pending = (message.session, token)
            sender.last = max(sender.last, self.clock()) if sender.active else self.clock()
            challenge = dataclasses.replace(message, kind=CHALLENGE, token=token, rate=0)
            return flow, encode(challenge, self.key)
        if known == sender.pending:
            sender.session, sender.token = known
            sender.heard, sender.pending = 0, (0, 0)
        if message.sequence <= sender.heard:
            return None
        sender.heard, sender.address, sender.last = message.sequence, address, self.clock()
        sender.packet = message.packet
        sender.active = message.kind == HELLO
        return flow, "hello" if sender.active else "farewell"

    def active(self):
        return {flow: sender for flow, sender in self.senders.items() if sender.active}

    def expire(self):
        """Forgets senders that fell silent; whether one of them was active."""
        gone = [f for f, s in self.senders.items() if self.clock() - s.last > SILENT]
        was_active = any(self.senders[flow].active for flow in gone)
        for flow in gone:
            del self.senders[flow]
        return was_active

    def order(self, flow):
        """The datagram with a sender's order."""
        sender = self.senders[flow]
        self.sequence += 1
        return encode(
            Message(ORDER, sender.session, sender.token, self.sequence, sender.order, VALID_MS,
                    sender.packet, flow),
            self.key,
        )
