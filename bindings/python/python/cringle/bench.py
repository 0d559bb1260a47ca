"""Random reads of 4 KiB in batches of 32, by four threads for each worker.

    python -m cringle.bench FILE [--cached] [--workers N] [--seed N]

The shape and the limits are those of ``cringle bench batch high``. It prints one line of JSON,
which ``cringle bench batch --via python`` reads. The CPU times and the context switches are those
of the process while the clock ran, which stops with the last thread.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import time
from array import array
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from ._block_io import BlockIO
from ._native import Buffer, File
from ._native import open as _open

BLOCK = 4096
BATCH = 32
THREADS_PER_WORKER = 4
IN_FLIGHT_LIMIT = 256


def _batches(seed: int, blocks: int, count: int) -> list[array[int]]:
    numbers = random.Random(seed)
    return [
        array("q", [numbers.randrange(blocks) * BLOCK for _ in range(BATCH)]) for _ in range(count)
    ]


def _read(io: BlockIO, file: File, batches: list[array[int]], begin: Barrier) -> None:
    try:
        buffer = Buffer(BATCH * BLOCK)
        view = memoryview(buffer)
        # Touches every page before the clock starts.
        view[:] = bytes(len(view))
        begin.wait()
    except BaseException:
        begin.abort()
        raise
    for offsets in batches:
        # A read that fails or is short raises an exception.
        io.read_many(file, offsets, BLOCK, buffer)


def _now() -> tuple[float, resource.struct_rusage]:
    return time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)


def _measure(path: str, cached: bool, workers: int, seed: int) -> dict[str, float | str]:
    threads = workers * THREADS_PER_WORKER
    with BlockIO(workers, IN_FLIGHT_LIMIT) as io, _open(path, direct=not cached) as file:
        blocks = file.size // BLOCK
        count = (blocks - 1) // (threads * BATCH)
        if count < 1:
            raise SystemExit(f"{path}: too small: {threads * BATCH + 1} blocks of 4 KiB are needed")
        work = [_batches(seed ^ (number + 1) << 32, blocks, count) for number in range(threads)]
        at = []
        # The last thread that arrives starts the clock.
        begin = Barrier(threads, lambda: at.append(_now()))
        with ThreadPoolExecutor(threads) as pool:
            for read in [pool.submit(_read, io, file, batches, begin) for batches in work]:
                read.result()
            at.append(_now())
        driver = io.driver
    (started, before), (ended, after) = at
    seconds = ended - started
    ops = count * BATCH * threads
    return {
        "ops": ops,
        "seconds": seconds,
        "iops": ops / seconds,
        "user_seconds": after.ru_utime - before.ru_utime,
        "system_seconds": after.ru_stime - before.ru_stime,
        "context_switches": after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw,
        "driver": driver,
    }


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m cringle.bench",
        description="Reads random blocks of 4 KiB in batches of 32; prints one line of JSON.",
    )
    parser.add_argument("file", help="the file, which is only read")
    parser.add_argument("--cached", action="store_true", help="use the page cache, not O_DIRECT")
    parser.add_argument("--workers", type=int, default=1, help="rings; four threads for each")
    parser.add_argument("--seed", type=int, default=1, help="of the offsets")
    options = parser.parse_args()
    if options.workers < 1:
        parser.error("--workers must be at least 1")
    figures = _measure(os.fspath(options.file), options.cached, options.workers, options.seed)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
