#!/usr/bin/env python3
"""A network controller for DFCP senders (DFCP-J, sections 3.2 and 7.6).

It speaks OpenFlow 1.3 with the switches, finds out which port leads to which (LLDP), where hosts are
and which flows there are (packets that no rule knows), computes what is max-min fair to each flow,
tells senders that ask (docs/spec/orders.md), and has the first switch drop what exceeds an order
(meters). Switches and their controller need nothing else: no addresses, no ARP.

    dfcp_controller.py --network FILE --key FILE [--openflow ADDRESS:PORT] [--orders ADDRESS:PORT]

FILE of --network is JSON:

    {"ports": {"s1p1": {"out": {"rate": 4e7, "framing": 38}, "in": {"rate": 1e9, "framing": 38}}},
     "flows": [{"source": "198.18.0.1", "destination": "198.18.0.2", "protocol": 253, "class": "a"}],
     "weights": {"a": 2.0}, "response": 0.05, "error": 0.05, "switches": 3, "cables": 2}

"ports": bit/s and bytes that a link adds to an IP packet, by the name of a switch's port: what leaves
there, and where a host is behind it, what comes from there. A port that is not there has the speed
that the switch says. "response": seconds from a change until senders are told; "error": by how much
what is available is over-estimated; "switches" and "cables" between them: when these are known, lines
{"switches": 3} and {"ready": true} are printed. Flows of a class share its weight; without a class each
has weight 1. SIGHUP has the file read again.

Needs Python 3.9, os-ken (Debian: python3-os-ken), and dfcp_orders.py beside it. The part before
"OpenFlow" does not need os-ken.
"""

import argparse
import collections
import dataclasses
import ipaddress
import json
import os
import signal
import struct
import sys

from dfcp_orders import Claim, decode, Flow, max_min, Senders

# -- The network ------------------------------------------------------------------------------------


class Network:
    """Switches, how they are joined, where hosts are. A port is (switch, number)."""

    def __init__(self, settings):
        self.ports, self.cables, self.hosts = {}, {}, {}
        self.read(settings)

    def read(self, settings):
        self.settings = settings
        self.response = max(0.0, float(settings.get("response", 0.05)))
        self.error = float(settings.get("error", 0.0))
        self.weights = settings.get("weights", {})
        flows = settings.get("flows", [])
        self.classes = {(f["source"], f["destination"], f["protocol"]): f["class"] for f in flows}

    def is_edge(self, port):
        return port in self.ports and port not in self.cables

    def is_complete(self):
        switches = {switch for switch, _ in self.ports}
        return (len(switches) >= self.settings.get("switches", 1)
                and len(self.cables) >= 2 * self.settings.get("cables", 0))

    def distances(self, to):
        """For each switch the port that leads nearer to switch `to`, by breadth-first search."""
        towards, queue = {to: None}, collections.deque([to])
        while queue:
            switch = queue.popleft()
            for port, (near, near_port) in sorted(self.cables.items()):
                if port[0] == switch and near not in towards:
                    towards[near] = (near, near_port)
                    queue.append(near)
        return towards

    def route(self, flow):
        """The ports by which a flow's packets leave switches, in their order; None if not known."""
        source, destination = self.hosts.get(flow.source), self.hosts.get(flow.destination)
        if source is None or destination is None:
            return None
        towards, switch, ports = self.distances(destination[0]), source[0], []
        while switch != destination[0]:
            port = towards.get(switch)
            if port is None:
                return None
            ports.append(port)
            switch = self.cables[port][0]
        return ports + [destination]

    def flood(self, port):
        """Where a packet that came in at a port goes when nobody knows its host: to hosts, and along
        the tree of shortest paths to the first switch, in which nothing goes round."""
        tree = set(filter(None, self.distances(min(s for s, _ in self.ports)).values()))
        tree |= {self.cables[port] for port in tree}
        return [out for out in self.ports
                if out[0] == port[0] and out != port and (self.is_edge(out) or out in tree)]

    def link(self, port, way):
        """What a link gives: bit/s, and the bytes that it adds to a packet."""
        name, speed = self.ports[port]
        known = self.settings.get("ports", {}).get(name, {}).get(way)
        return (known["rate"], known.get("framing", 38)) if known else (speed, 38)

    def claim(self, flow, packet, weight):
        """A flow's claim on the links of its route, and their capacities."""
        route = self.route(flow)
        if route is None:
            return None
        links = [(self.hosts[flow.source], "in")] + [(port, "out") for port in route]
        capacities = {link: self.link(*link) for link in links}
        costs = {link: (packet + framing) / packet for link, (_, framing) in capacities.items()}
        return Claim(weight, costs), {link: rate for link, (rate, _) in capacities.items()}

    def shares(self, flows):
        """What is fair to each flow, bit/s of its IP packets; `flows` says how large those are."""
        classes = {flow: self.classes.get((flow.source, flow.destination, flow.protocol), flow)
                   for flow in flows}
        members = collections.Counter(classes.values())
        claims, capacities = {}, {}
        for flow, packet in flows.items():
            weight = self.weights.get(classes[flow], 1.0) if isinstance(classes[flow], str) else 1.0
            claim = self.claim(flow, packet, weight / members[classes[flow]])
            if claim is not None:
                claims[flow] = claim[0]
                capacities.update(claim[1])
        return dict(zip(claims, max_min(capacities, list(claims.values()))))

    def alone(self, flow, packet):
        """What a flow's route would give it alone: what it is told when it begins."""
        claim = self.claim(flow, packet, 1.0)
        return max_min(claim[1], [claim[0]])[0] if claim else None

    def order(self, share):
        return int(min(share * (1.0 + self.error), 2**63))


# -- OpenFlow ---------------------------------------------------------------------------------------

try:
    from os_ken.lib import hub

    hub.patch(thread=False)
    from eventlet.green import socket
    from os_ken import cfg
    from os_ken.base import app_manager
    from os_ken.controller import ofp_event
    from os_ken.controller.handler import CONFIG_DISPATCHER, DEAD_DISPATCHER, MAIN_DISPATCHER
    from os_ken.controller.handler import set_ev_cls
    from os_ken.lib.packet import lldp, packet as packets
    from os_ken.lib.packet.ethernet import ethernet
    from os_ken.ofproto import ofproto_v1_3
except ImportError as missing:
    app_manager = None
    MISSING = missing

LLDP_TYPE, IPV4_TYPE, IPV6_TYPE = 0x88CC, 0x0800, 0x86DD
IDLE = 10
"""Seconds without a packet after which a rule goes, and a flow that takes no orders is over."""
MOST_OPENED = 65536
"""Flows of which is remembered who began."""
GUARD = 1.1
"""What a meter lets through for each bit ordered: senders are even within milliseconds, not packets."""
BURST = 0.05
"""Seconds of its rate that a meter lets through at once."""
LOWERED = 0.1
"""Seconds after which a meter follows an order that is lower: until then the sender has it, and what
it sent before has passed."""


def headers(frame):
    """Type and flow of an Ethernet frame; the flow's ports are 0 where switches match none."""
    if len(frame) < 34:
        return None, None
    kind = int.from_bytes(frame[12:14], "big")
    if kind == IPV4_TYPE and frame[14] >> 4 == 4:
        start, protocol, addresses = 14 + 4 * (frame[14] & 15), frame[23], (frame[26:30], frame[30:34])
    elif kind == IPV6_TYPE and len(frame) >= 54:
        start, protocol, addresses = 54, frame[20], (frame[22:38], frame[38:54])
    else:
        return kind, None
    source, destination = (str(ipaddress.ip_address(bytes(a))) for a in addresses)
    flow = Flow(source, destination, protocol)
    if protocol in (6, 17) and len(frame) >= start + 4:
        ports = struct.unpack(">HH", frame[start:start + 4])
        flow = dataclasses.replace(flow, source_port=ports[0], destination_port=ports[1])
    return kind, flow


def as_rule(flow):
    """The flow as switches match it: ports of TCP and UDP only."""
    if flow.protocol in (6, 17):
        return flow
    return Flow(flow.source, flow.destination, flow.protocol)


def reverse(flow):
    return Flow(flow.destination, flow.source, flow.protocol, flow.destination_port, flow.source_port)


class Controller(app_manager.OSKenApp if app_manager else object):
    """Rules, meters and orders. `options` is set before it is made."""

    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION] if app_manager else []
    options = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.network = Network(self.options.settings)
        self.senders = Senders(self.options.key)
        self.switches, self.flows, self.meters = {}, {}, {}
        # The direction that was seen first: the other one is its answers, which count as nothing.
        self.opened = set()
        self.ready = False
        signal.signal(signal.SIGHUP, lambda *_: hub.spawn(self.read_again))
        hub.spawn(self.listen)
        hub.spawn(self.keep)

    def say(self, text):
        print(text, file=sys.stderr, flush=True)

    def read_again(self):
        try:
            with open(self.options.network, encoding="utf-8") as file:
                self.network.read(json.load(file))
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.say(f"{self.options.network}: {error}; what was read before holds")
            return
        self.changed()

    # Switches and the cables between them.

    def rule(self, switch, priority, match, actions, **more):
        parser, proto = switch.ofproto_parser, switch.ofproto
        meter = more.pop("meter", None)
        what = [parser.OFPInstructionMeter(meter)] if meter else []
        what.append(parser.OFPInstructionActions(proto.OFPIT_APPLY_ACTIONS, actions))
        switch.send_msg(parser.OFPFlowMod(datapath=switch, priority=priority, match=match,
                                          instructions=what, **more))

    if app_manager:

        @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
        def on_switch(self, event):
            """A switch is there, or there again: it may have forgotten everything, so all begins anew."""
            switch = event.msg.datapath
            parser, proto = switch.ofproto_parser, switch.ofproto
            self.switches[switch.id] = switch
            for flow in [flow for flow, held in self.flows.items() if switch.id in held["switches"]]:
                del self.flows[flow]
            for flow in [flow for flow, meter in self.meters.items() if meter["switch"] == switch.id]:
                del self.meters[flow]
            switch.send_msg(parser.OFPFlowMod(datapath=switch, command=proto.OFPFC_DELETE,
                                              out_port=proto.OFPP_ANY, out_group=proto.OFPG_ANY))
            switch.send_msg(parser.OFPMeterMod(datapath=switch, command=proto.OFPMC_DELETE,
                                               meter_id=proto.OFPM_ALL))
            up = [parser.OFPActionOutput(proto.OFPP_CONTROLLER, proto.OFPCML_NO_BUFFER)]
            self.rule(switch, 0, parser.OFPMatch(), up)
            self.rule(switch, 100, parser.OFPMatch(eth_type=LLDP_TYPE), up)
            switch.send_msg(parser.OFPPortDescStatsRequest(switch, 0))

        @set_ev_cls(ofp_event.EventOFPStateChange, DEAD_DISPATCHER)
        def on_switch_gone(self, event):
            if event.datapath.id is not None and self.switches.get(event.datapath.id) is event.datapath:
                self.say(f"switch {event.datapath.id} is gone")
                del self.switches[event.datapath.id]

        @set_ev_cls(ofp_event.EventOFPPortDescStatsReply, MAIN_DISPATCHER)
        def on_ports(self, event):
            for port in event.msg.body:
                if port.port_no < event.msg.datapath.ofproto.OFPP_MAX:
                    self.add_port(event.msg.datapath, port)

        @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
        def on_port(self, event):
            switch, port = event.msg.datapath, event.msg.desc
            if event.msg.reason != switch.ofproto.OFPPR_DELETE:
                return self.add_port(switch, port)
            at = (switch.id, port.port_no)
            self.network.ports.pop(at, None)
            self.network.cables.pop(self.network.cables.pop(at, None), None)
            self.network.hosts = {h: p for h, p in self.network.hosts.items() if p != at}
            self.changed()

        @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
        def on_packet(self, event):
            """A packet that no rule knows."""
            switch, frame = event.msg.datapath, event.msg.data
            came = (switch.id, event.msg.match["in_port"])
            kind, flow = headers(frame)
            if kind == LLDP_TYPE:
                self.on_lldp(came, frame)
            elif flow is not None and self.ready:
                self.forward(switch, came, flow, frame)

        @set_ev_cls(ofp_event.EventOFPFlowRemoved, MAIN_DISPATCHER)
        def on_idle(self, event):
            flow = next((f for f, held in self.flows.items() if held["cookie"] == event.msg.cookie), None)
            if flow is not None:
                del self.flows[flow]
                self.opened.discard(flow)
                self.changed()

        @set_ev_cls(ofp_event.EventOFPErrorMsg, MAIN_DISPATCHER)
        def on_error(self, event):
            self.say(f"switch {event.msg.datapath.id} refuses: type {event.msg.type}, code {event.msg.code}")

    def add_port(self, switch, port):
        self.network.ports[(switch.id, port.port_no)] = (port.name.decode(), port.curr_speed * 1000 or 1e10)
        self.send_lldp(switch, port.port_no)

    def send_lldp(self, switch, number):
        chassis = lldp.ChassisID(subtype=lldp.ChassisID.SUB_LOCALLY_ASSIGNED, chassis_id=b"%d" % switch.id)
        port = lldp.PortID(subtype=lldp.PortID.SUB_LOCALLY_ASSIGNED, port_id=b"%d" % number)
        frame = packets.Packet()
        frame.add_protocol(ethernet("01:80:c2:00:00:0e", "02:df:02:00:00:01", LLDP_TYPE))
        frame.add_protocol(lldp.lldp((chassis, port, lldp.TTL(ttl=120), lldp.End())))
        frame.serialize()
        self.out(switch, None, [number], frame.data)

    def on_lldp(self, came, frame):
        try:
            heard = packets.Packet(frame).get_protocol(lldp.lldp)
            near = (int(heard.tlvs[0].chassis_id), int(heard.tlvs[1].port_id))
        except (AttributeError, IndexError, ValueError, AssertionError, struct.error):
            return
        if near in self.network.ports and came in self.network.ports and near[0] != came[0]:
            self.network.cables[near], self.network.cables[came] = came, near

    def out(self, switch, came, numbers, frame):
        parser, proto = switch.ofproto_parser, switch.ofproto
        switch.send_msg(parser.OFPPacketOut(
            datapath=switch, buffer_id=proto.OFP_NO_BUFFER, data=frame,
            in_port=came[1] if came else proto.OFPP_CONTROLLER,
            actions=[parser.OFPActionOutput(number) for number in numbers],
        ))

    # Hosts and flows.

    def forward(self, switch, came, flow, frame):
        if self.network.is_edge(came):
            self.network.hosts[flow.source] = came
        if reverse(flow) not in self.opened:
            if len(self.opened) >= MOST_OPENED:
                self.opened.clear()
            self.opened.add(flow)
        route = self.network.route(flow)
        if route is None:
            return self.out(switch, came, [port[1] for port in self.network.flood(came)], frame)
        if flow not in self.flows:
            self.install(flow, route)
        onward = [port[1] for port in route if port[0] == switch.id]
        return self.out(switch, came, onward, frame) if onward else None

    def install(self, flow, route):
        """Rules for a flow at each switch of its route, the last one first; the first one's goes when
        the flow is idle, and says so."""
        first = route[0][0]
        cookie = int.from_bytes(os.urandom(7), "big")
        held = {"cookie": cookie, "route": route, "switches": {port[0] for port in route}}
        held["answers"] = flow not in self.opened
        self.flows[flow] = held
        for at, out in reversed(route):
            switch = self.switches.get(at)
            if switch is None:
                continue
            parser, proto = switch.ofproto_parser, switch.ofproto
            meter = self.meters.get(flow) if at == first else None
            flags = proto.OFPFF_SEND_FLOW_REM if at == first else 0
            self.rule(switch, 10, self.match(switch, flow), [parser.OFPActionOutput(out)],
                      cookie=cookie, idle_timeout=IDLE, flags=flags, meter=meter and meter["id"])
        self.changed()

    def match(self, switch, flow):
        wide = ":" in flow.source
        names = ("ipv6_src", "ipv6_dst") if wide else ("ipv4_src", "ipv4_dst")
        fields = {"eth_type": IPV6_TYPE if wide else IPV4_TYPE, "ip_proto": flow.protocol,
                  names[0]: flow.source, names[1]: flow.destination}
        if flow.protocol in (6, 17):
            name = "tcp" if flow.protocol == 6 else "udp"
            fields |= {f"{name}_src": flow.source_port, f"{name}_dst": flow.destination_port}
        return switch.ofproto_parser.OFPMatch(**fields)

    # Orders.

    def listen(self):
        self.socket = socket.socket(self.options.family, socket.SOCK_DGRAM)
        self.socket.bind(self.options.orders)
        while True:
            datagram, address = self.socket.recvfrom(2048)
            answer = self.senders.handle(datagram, address)
            if answer is None:
                continue
            flow, what = answer
            if what == "hello":
                self.on_hello(flow)
            elif what == "farewell":
                self.changed()
            else:
                self.send(what, address)

    def on_hello(self, flow):
        sender = self.senders.senders[flow]
        if sender.order is None:
            share = self.network.alone(flow, sender.packet)
            if share is None:
                return  # where its hosts are is not known yet; the next hello asks again
            self.give(flow, self.network.order(share))
            self.changed()
        else:
            self.send(self.senders.order(flow), sender.address)

    def give(self, flow, order):
        sender = self.senders.senders[flow]
        sender.order = order
        self.send(self.senders.order(flow), sender.address)
        self.guard(as_rule(flow))

    def send(self, datagram, address):
        try:
            self.socket.sendto(datagram, address)
        except OSError:
            pass  # the sender asks again

    def changed(self):
        """Something has: after the response time senders are told what is fair then."""
        hub.spawn_after(self.network.response, self.survey)

    def survey(self):
        active = self.senders.active()
        flows = {flow: sender.packet for flow, sender in active.items()}
        ordered = {as_rule(flow) for flow in active} | {reverse(as_rule(flow)) for flow in active}
        flows.update({flow: 1500 for flow, held in self.flows.items()
                      if flow not in ordered and not held["answers"]})
        for flow, share in self.network.shares(flows).items():
            if flow in active and active[flow].order != self.network.order(share):
                self.give(flow, self.network.order(share))

    def guard(self, rule):
        """Has the first switch drop what exceeds the orders for a rule's flows."""
        orders = [(s.order, s.packet) for f, s in self.senders.active().items() if as_rule(f) == rule and s.order]
        if not orders or rule.source not in self.network.hosts:
            return
        bits = sum(order * (packet + 14) / packet for order, packet in orders) * GUARD
        rate = max(1, min(int(bits / 1000), 2**32 - 1))
        meter = self.meters.get(rule)
        at = self.network.hosts[rule.source][0]
        if meter is None or meter["switch"] != at:
            used = {m["id"] for m in self.meters.values() if m["switch"] == at}
            free = next(number for number in range(1, len(used) + 2) if number not in used)
            self.meters[rule] = {"id": free, "switch": at, "rate": rate}
            self.set_meter(rule, "OFPMC_ADD")
            if rule in self.flows:
                self.install(rule, self.flows[rule]["route"])
            return
        falls = rate < meter["rate"]
        meter["rate"] = rate
        hub.spawn_after(LOWERED if falls else 0, self.set_meter, rule, "OFPMC_MODIFY")

    def set_meter(self, rule, command):
        meter = self.meters.get(rule)
        switch = meter and self.switches.get(meter["switch"])
        if not switch:
            return
        parser, proto = switch.ofproto_parser, switch.ofproto
        burst = max(int(meter["rate"] * BURST), 512)
        switch.send_msg(parser.OFPMeterMod(
            datapath=switch, command=getattr(proto, command), meter_id=meter["id"],
            flags=proto.OFPMF_KBPS | proto.OFPMF_BURST,
            bands=[parser.OFPMeterBandDrop(rate=meter["rate"], burst_size=min(burst, 2**32 - 1))],
        ))

    # What happens by the clock.

    def keep(self):
        beats, met = 0, False
        while True:
            hub.sleep(0.25)
            beats += 1
            if not self.ready or beats % 20 == 0:
                for at in list(self.network.ports):
                    if at[0] in self.switches:
                        self.send_lldp(self.switches[at[0]], at[1])
            if not met and len(self.switches) >= self.network.settings.get("switches", 1):
                met = True
                print(json.dumps({"switches": len(self.switches)}), flush=True)
            if not self.ready and self.network.is_complete():
                self.ready = True
                print(json.dumps({"ready": True}), flush=True)
            if self.senders.expire():
                self.changed()
            for flow in self.senders.active():
                if as_rule(flow) not in self.meters:  # a switch that came again
                    self.guard(as_rule(flow))


def endpoint(text):
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def main():
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--network", required=True, help="JSON: links, weights, response, error")
    parse.add_argument("--key", required=True, help="file of 64 hexadecimal digits, shared with senders")
    parse.add_argument("--openflow", type=endpoint, default=("127.0.0.1", 6653), help="where switches connect")
    parse.add_argument("--orders", type=endpoint, default=("0.0.0.0", 4436), help="where senders ask (UDP)")
    options = parse.parse_args()
    if app_manager is None:
        sys.exit(f"dfcp_controller: os-ken is not installed ({MISSING}): apt-get install python3-os-ken")
    try:
        with open(options.network, encoding="utf-8") as file:
            options.settings = json.load(file)
        with open(options.key, encoding="ascii") as file:
            options.key = bytes.fromhex(file.read().strip())
        Network(options.settings)
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"dfcp_controller: {error}")
    if len(options.key) != 32:
        sys.exit("dfcp_controller: the key is not 64 hexadecimal digits")
    options.family = socket.AF_INET6 if ":" in options.orders[0] else socket.AF_INET
    Controller.options = options
    host, port = options.openflow
    cfg.CONF(args=["--ofp-listen-host", host, "--ofp-tcp-listen-port", str(port)], project="os_ken")
    manager = app_manager.AppManager.get_instance()
    manager.load_apps(["os_ken.controller.ofp_handler"])
    manager.applications_cls["Controller"] = Controller
    services = manager.instantiate_apps(**manager.create_contexts())
    try:
        hub.joinall(services)
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
