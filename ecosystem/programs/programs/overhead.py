"""What a program of one thread pays that never waits: its start, and `ls -R`."""

import subprocess
import time

from programs.cpython import python

NEEDS = ("ls",)
BOUND = 60
ROUNDS = 10
FULL_ROUNDS = 40


def run(side):
    for name, argv, count in (
        ("true: start", ["/bin/true"], 20),
        ("python3 -c pass: start", [python(), "-c", "pass"], 10),
        ("ls -R: seconds", ["ls", "-R", "/usr"], 2),
    ):
        begin = time.monotonic()
        for _ in range(count):
            status = side.start(argv, stdout=subprocess.DEVNULL).wait()
            if status != 0:
                side.test(name, False, status)
        seconds = (time.monotonic() - begin) / count
        start = name.endswith("start")
        side.figure(name, seconds * 1000, "ms", "<= 15 ms more" if start else "<= 1.02")
