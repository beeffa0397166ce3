"""Tests of dfcp_controller.py and dfcp_orders.py that need no switches: python3 test_controller.py"""

import unittest

import dfcp_orders as orders
from dfcp_controller import Network
from dfcp_orders import CHALLENGE, FAREWELL, HELLO, ORDER, Claim, Flow, Message, Senders
from dfcp_orders import decode, encode, max_min

KEY = bytes.fromhex("0f" * 32)
# docs/spec/orders.md
EXAMPLE = bytes.fromhex(
    "4446524f0103fd04112233445566778899aabbccddeeff000000000000000007000000000280de80000003e805dcc0004e"
    "20000000000000000000000000ffffc612000100000000000000000000ffffc6120002ae55df1507482ee720fc8fafbe55"
    "3ce93cb977de0c7c8034f23f355afe264ef8"
)
FLOW = Flow("198.18.0.1", "198.18.0.2", 253, 49152, 20000)


class Messages(unittest.TestCase):
    def test_the_specified_example(self):
        message = Message(ORDER, 0x1122334455667788, 0x99AABBCCDDEEFF00, 7, 42_000_000, 1000, 1500, FLOW)
        self.assertEqual(encode(message, KEY), EXAMPLE)
        self.assertEqual(decode(EXAMPLE, KEY), message)

    def test_what_is_changed_cut_or_of_another_key_is_refused(self):
        for at in range(len(EXAMPLE)):
            changed = bytearray(EXAMPLE)
            changed[at] ^= 1
            self.assertIsNone(decode(bytes(changed), KEY), at)
            self.assertIsNone(decode(EXAMPLE[:at], KEY), at)
        self.assertIsNone(decode(EXAMPLE + b"\0", KEY))
        self.assertIsNone(decode(EXAMPLE, bytes(32)))


class Rates(unittest.TestCase):
    def test_shares_are_those_of_the_paper(self):
        both, first, second = ({"b1": 1, "b2": 1}, {"b1": 1}, {"b2": 1})
        capacities = {"b1": 1e9, "b2": 4e8}
        flows = [Claim(1, links) for links in (both, first, second)]
        self.assertEqual(max_min(capacities, flows[:2]), [4e8, 6e8])
        self.assertEqual(max_min(capacities, flows), [2e8, 8e8, 2e8])

    def test_weights_and_framing_count(self):
        self.assertEqual(max_min({"a": 100}, [Claim(3, {"a": 1}), Claim(1, {"a": 1})]), [75, 25])
        self.assertEqual(max_min({"a": 100}, [Claim(1, {"a": 1.25})]), [80])


class Sessions(unittest.TestCase):
    def setUp(self):
        self.now = 0.0
        self.senders = Senders(KEY, clock=lambda: self.now, wall=lambda: 1000)

    def hello(self, session=5, token=0, sequence=1, kind=HELLO):
        message = Message(kind, session, token, sequence, 2**64 - 1, 0, 1500, FLOW)
        return self.senders.handle(encode(message, KEY), ("host", 1))

    def token(self, **more):
        challenge = decode(self.hello(**more)[1], KEY)
        self.assertEqual(challenge.kind, CHALLENGE)
        return challenge.token

    def test_a_sender_counts_once_it_has_shown_its_token(self):
        token = self.token()
        self.assertEqual(self.senders.active(), {})
        self.assertEqual(self.hello(token=token, sequence=2), (FLOW, "hello"))
        self.assertEqual(list(self.senders.active()), [FLOW])
        self.senders.senders[FLOW].order = 5
        orders = [decode(self.senders.order(FLOW), KEY) for _ in range(2)]
        self.assertEqual([order.token for order in orders], [token] * 2)
        self.assertLess(orders[0].sequence, orders[1].sequence)
        self.assertEqual(self.hello(token=token, sequence=3, kind=FAREWELL), (FLOW, "farewell"))
        self.assertEqual(self.senders.active(), {})

    def test_what_is_replayed_brings_nobody_back(self):
        first = self.token()
        self.hello(token=first, sequence=2)
        self.assertIsNone(self.hello(token=first, sequence=2))
        second = self.token(session=6)
        self.hello(session=6, token=second, sequence=2)
        # The former session is not believed again, nor does it take the place of the present one.
        self.assertIsInstance(self.hello(token=first, sequence=3)[1], bytes)
        self.assertEqual(self.senders.senders[FLOW].session, 6)
        self.assertEqual(self.hello(session=6, token=second, sequence=3), (FLOW, "hello"))

    def test_a_silent_sender_is_gone(self):
        self.hello(token=self.token(), sequence=2)
        self.now = orders.SILENT
        self.assertFalse(self.senders.expire())
        self.now += 0.1
        self.assertTrue(self.senders.expire())
        self.assertEqual(self.senders.senders, {})

    def test_strangers_and_floods_leave_nothing(self):
        for datagram in (b"", b"x" * 116, EXAMPLE[:-1] + b"\0", EXAMPLE):
            self.assertIsNone(self.senders.handle(datagram, ("host", 1)))
        for port in range(orders.MOST_SENDERS + 10):
            flow = Flow("198.18.0.1", "198.18.0.2", 17, port, 1)
            message = Message(HELLO, 1, 0, 1, 0, 0, 1500, flow)
            self.senders.handle(encode(message, KEY), ("host", 1))
        self.assertEqual(len(self.senders.senders), orders.MOST_SENDERS)


class Routes(unittest.TestCase):
    def network(self, cables, **settings):
        network = Network(settings)
        network.ports = {(s, p): (f"s{s}p{p}", 1e9) for s in (1, 2, 3) for p in (1, 2, 3)}
        for near, far in cables:
            network.cables[near], network.cables[far] = far, near
        return network

    def test_routes_follow_cables_and_need_both_hosts(self):
        network = self.network([((1, 2), (2, 2)), ((2, 3), (3, 2))])
        network.hosts = {"a": (1, 1)}
        self.assertIsNone(network.route(Flow("a", "b", 17)))
        network.hosts["b"] = (3, 1)
        self.assertEqual(network.route(Flow("a", "b", 17)), [(1, 2), (2, 3), (3, 1)])

    def test_floods_end_in_a_ring(self):
        network = self.network([((1, 2), (2, 2)), ((2, 3), (3, 2)), ((3, 3), (1, 3))])
        seen, queue = [], [(1, 1)]
        while queue:
            port = queue.pop()
            for out in network.flood(port):
                if network.is_edge(out):
                    seen.append(out)
                else:
                    queue.append(network.cables[out])
                self.assertLess(len(seen), 10)
        self.assertEqual(sorted(seen), [(2, 1), (3, 1)])

    def test_classes_share_their_weight(self):
        flows = [{"source": "a", "destination": d, "protocol": 17, "class": c}
                 for d, c in (("x", "k"), ("y", "k"), ("z", "l"))]
        network = self.network([], flows=flows, weights={"k": 3.0, "l": 1.0},
                               ports={"s1p2": {"out": {"rate": 800, "framing": 0}}})
        network.hosts = {"a": (1, 1), "x": (1, 2), "y": (1, 2), "z": (1, 2)}
        shares = network.shares({Flow("a", to, 17): 1500 for to in "xyz"})
        self.assertEqual(list(shares.values()), [300, 300, 200])

    def test_flows_between_the_same_hosts_are_told_apart_by_protocol(self):
        flows = [{"source": "a", "destination": "x", "protocol": p, "class": c} for p, c in ((253, "k"), (17, "l"))]
        network = self.network([], flows=flows, weights={"k": 3.0, "l": 1.0},
                               ports={"s1p2": {"out": {"rate": 800, "framing": 0}}})
        network.hosts = {"a": (1, 1), "x": (1, 2)}
        shares = network.shares({Flow("a", "x", protocol): 1500 for protocol in (253, 17)})
        self.assertEqual(list(shares.values()), [600, 200])


if __name__ == "__main__":
    unittest.main()
