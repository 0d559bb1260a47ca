"""Random calls with good and bad arguments: each returns a value or raises, and the process lives."""

import array
import os
import random

import numpy as np

import cringle
from conftest import PAGE

CALLS = int(os.environ.get("CRINGLE_PYTHON_CALLS", "3000"))
#: What a call may raise for its arguments. Anything else, as a panic, fails the test.
REFUSALS = (TypeError, ValueError, OverflowError, OSError, MemoryError, BufferError, RuntimeError)


def test_random_arguments_never_crash(path):
    seed = int(os.environ.get("CRINGLE_PYTHON_SEED", "1"))
    choose = random.Random(seed).choice
    files = [cringle.open(path, "r+", **o) for o in [{}, {"direct": True}, {"mapped": True}]]
    closed = cringle.open(path)
    closed.close()
    integers = [0, 1, 7, 511, 512, PAGE, 64 * PAGE - 1, 1 << 40, -1, 1 << 62, 1 << 63, 1 << 70, 0.5]
    kinds = [list, tuple, np.array, iter, lambda v: array.array("q", v), lambda v: v[0], repr]
    memory = [
        lambda n: bytearray(n),
        lambda n: np.zeros(n, np.uint8),
        lambda n: np.zeros(n * 2, np.uint8)[::2],
        lambda n: cringle.Buffer(n),
        lambda n: bytes(n),
        lambda n: memoryview(bytearray(n + 1))[1:],
        lambda n: None,
        lambda n: n,
        lambda n: [bytearray(n)] * 2,
    ]
    sizes = [0, 1, 512, PAGE, 3 * PAGE, 10]

    def numbers():
        return choose(kinds)([choose(integers) for _ in range(choose([1, 1, 2, 3]))])

    engines = [cringle.BlockIO(driver=name) for name in ["uring", "epoll"]]
    pending, refused, done = [], 0, 0
    for _ in range(CALLS):
        io, file = choose(engines), choose([*files, *files, closed, 7])
        strict = choose([True, False])
        buffer = choose(memory)(choose(sizes))
        calls = [
            lambda: io.read_many(file, numbers(), choose([*sizes, *integers]), strict=strict),
            lambda: io.read_many(file, numbers(), choose(sizes), buffer, strict=strict),
            lambda: io.read_many(file, numbers(), numbers(), strict=strict),
            lambda: io.read_into([(file, choose(integers), buffer)] * choose([1, 1, 2])),
            lambda: io.write_many(file, [choose([0, 5, PAGE])], buffer, strict=strict),
            lambda: io.fsync(file),
            lambda: pending.append(io.start_read_many(file, numbers(), choose(sizes), buffer)),
            lambda: pending.pop().result(),
            lambda: pending.clear(),
            lambda: choose(pending).cancel(),
        ]
        try:
            choose(calls)()
            done += 1
        except (*REFUSALS, IndexError):
            refused += 1
    for io in engines:
        io.close()
    # Both kinds of calls were made, so the test tests something.
    assert done > CALLS // 20 and refused > CALLS // 20, (done, refused)
