"""iperf3 over the loopback, 8 streams; both ends under the library."""

import json

from programs import net

NEEDS = ("iperf3",)
VERSION = ("iperf3", "--version")
BOUND = 60
ROUNDS = 3


def run(side):
    port = net.free_port()
    server = side.start(["iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", port])
    side.require("the server listens", side.until(lambda: net.listens(port), server, 10))
    ended = side.call(
        ["iperf3", "-c", "127.0.0.1", "-p", port, "-P", 8, "-t", 3, "-J"], 30, stderr=None
    )
    side.require("the client ends", ended.status == 0, ended.output[-200:])
    received = json.loads(ended.output)["end"]["sum_received"]["bits_per_second"]
    side.figure("received", received / 1e9, "Gbit/s")
    side.test("the server ends", server.wait(10) == 0)
