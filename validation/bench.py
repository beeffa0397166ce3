"""What bench-ns2 and bench-ns3 share: the cell that is timed and the line that is printed.

One CUBIC flow over 1 Gbit/s and 10 ms, three links each way, 1000 packets of buffer, no random
loss, nothing traced: a data packet and its ACK cross six links. On a busy machine the figure by
processor time (start of the program included) says more than the one by wall-clock time.
"""

import json

CELL = {"tcp": "cubic", "rate": "1e9", "rtts": "0.01", "starts": "0", "loss": "0", "buffer": "1000"}
LINKS_CROSSED = 6


def skipped(simulator, why):
    print(json.dumps({"simulator": simulator, "skipped": why}))


def finished(simulator, version, simulated_s, wall_s, data_packets, processor_s):
    line = {
        "simulator": simulator,
        "version": version,
        "scenario": "one CUBIC flow, 1 Gbit/s, 10 ms, buffer 1000",
        "links_crossed": LINKS_CROSSED,
        "simulated_s": simulated_s,
        "wall_s": round(wall_s, 3),
        "data_packets": int(data_packets),
        "ns_per_data_packet": round(wall_s / data_packets * 1e9, 1),
        "cpu_ns_per_data_packet": round(processor_s / data_packets * 1e9, 1),
    }
    print(json.dumps(line))
