"""sysbench: threads that yield with locks, mutexes, memory and computing."""

import re

NEEDS = ("sysbench",)
VERSION = ("sysbench", "--version")
BOUND = 120
ROUNDS = 3
TESTS = {
    "threads, 500 threads": ["--threads=500", "--time=2", "threads", "--thread-locks=8"],
    "threads, 8 threads": ["--threads=8", "--time=2", "threads"],
    "mutex, 64 threads": ["--threads=64", "mutex", "--mutex-loops=2000", "--mutex-locks=5000"],
    "memory, 8 threads": ["--threads=8", "--time=2", "memory", "--memory-total-size=100T"],
    "cpu, 8 threads": ["--threads=8", "--time=2", "cpu"],
}


def run(side):
    for name, options in TESTS.items():
        ended = side.call(["sysbench", *options, "run"], 40)
        events = re.search(r"total number of events:\s+(\d+)", ended.output)
        seconds = re.search(r"total time:\s+([\d.]+)s", ended.output)
        if side.test(f"{name}: ends", ended.status == 0 and events and seconds, ended.status):
            side.figure(f"{name}: events/s", int(events[1]) / float(seconds[1]))
