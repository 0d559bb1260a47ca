"""Measures the package against Rust, thread pools, NumPy and os.pread, in alternating rounds.

    python bindings/python/bench.py [--size MIB] [--rounds N] [--directory PATH] [--json]

It needs NumPy, Cargo for the Rust side, and the package installed as an optimised build (`pip
install ./bindings/python`). Each round measures every side once, one after the other; a ratio is
the median of the rounds' ratios, with the smallest and largest.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import cringle

PAGE = 4096
READS = 1024
DEPTH = 128
HERE = pathlib.Path(__file__).parent


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def timed(work, batches):
    """Returns the seconds, and the processor seconds, of all batches."""
    cpu, begin = cpu_seconds(), time.perf_counter()
    for batch in batches:
        work(batch)
    return time.perf_counter() - begin, cpu_seconds() - cpu


class Rust:
    """The program `bench/twin.rs`, which performs the same batches."""

    def __init__(self, path):
        build = ["cargo", "build", "--quiet", "--release", "--example", "twin"]
        build += ["--message-format=json"]
        messages = subprocess.run(build, cwd=HERE, check=True, capture_output=True, text=True)
        built = [json.loads(line) for line in messages.stdout.splitlines()]
        (program,) = [one["executable"] for one in built if one.get("executable")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.path, self.process = path, subprocess.Popen([program], **pipes)

    def timed(self, what, batches):
        print(what, len(batches), self.path, file=self.process.stdin)
        for batch in batches:
            print(*batch, file=self.process.stdin)
        self.process.stdin.flush()
        wall, cpu = self.process.stdout.readline().split()
        return float(wall), float(cpu)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Bench:
    def __init__(self, path, rounds):
        self.path, self.rounds, self.rows = path, rounds, []
        self.random = np.random.default_rng(1)
        self.pages = os.path.getsize(path) // PAGE
        self.io = cringle.BlockIO(depth=DEPTH)
        self.rust = Rust(path)
        self.fd = os.open(path, os.O_RDONLY)

    def batches(self, count, reads=READS):
        return [self.random.integers(0, self.pages, reads) * PAGE for _ in range(count)]

    def report(self, name, values, bar, unit="", is_limit=False):
        median = statistics.median(values)
        row = {"name": name, "median": median, "min": min(values), "max": max(values), "bar": bar}
        met = median <= bar if is_limit else median >= bar
        self.rows.append(row | {"met": met, "samples": values})

        def text(value):
            return f"{value:.2f}{unit}"

        sign = "≤" if is_limit else "≥"
        print(
            f"{name:62} {text(median):>9} ({text(min(values))} to {text(max(values))})"
            f"  bar {sign} {bar}{unit}: {'met' if met else 'MISSED'}",
            file=sys.stderr,
        )

    def direct(self):
        out = np.frombuffer(cringle.Buffer(READS * PAGE), np.uint8).reshape(READS, PAGE)
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
        iops, per_cpu, wall = [], [], []
        rows = list(out)

        def pooled(batch):
            def read(at):
                assert os.preadv(fd, [rows[at]], batch[at]) == PAGE

            # A list consumes the results, and with them the exceptions.
            list(pool.map(read, range(READS)))

        with ThreadPoolExecutor(32) as pool, cringle.open(self.path, direct=True) as file:
            for _ in range(self.rounds):
                batches = self.batches(8)
                ours = timed(lambda batch: self.io.read_many(file, batch, PAGE, out), batches)
                rust = self.rust.timed("direct", batches)
                lists = [batch.tolist() for batch in batches]
                threads = timed(pooled, lists)
                iops.append(rust[0] / ours[0])
                per_cpu.append(threads[1] / ours[1])
                wall.append(threads[0] / ours[0])
        os.close(fd)
        self.report("direct, 1024 reads: IOPS / Rust", iops, 0.95)
        self.report("direct: IOPS per CPU second / ThreadPoolExecutor(32)", per_cpu, 3)
        self.report("direct: IOPS / ThreadPoolExecutor(32)", wall, 1)

    def cached(self):
        mapping = np.memmap(self.path, np.uint8, "r").reshape(-1, PAGE)
        out = np.zeros((READS, PAGE), np.uint8)
        ratios = {name: [] for name in ["index", "take", "pread", "plain"]}

        def loop(batch):
            for offset in batch:
                os.pread(self.fd, PAGE, offset)

        with cringle.open(self.path, mapped=True) as mapped, cringle.open(self.path) as plain:
            for _ in range(self.rounds):
                batches = self.batches(16)
                numbers = [batch // PAGE for batch in batches]
                lists = [batch.tolist() for batch in batches]
                mapped.refresh()
                fresh = timed(lambda batch: self.io.read_many(mapped, batch, PAGE), batches)[0]
                index = timed(lambda pages: mapping[pages], numbers)[0]
                ours = timed(lambda batch: self.io.read_many(mapped, batch, PAGE, out), batches)[0]
                take = timed(lambda pages: np.take(mapping, pages, 0, out, "clip"), numbers)[0]
                pread = timed(loop, lists)[0]
                read = timed(lambda batch: self.io.read_many(plain, batch, PAGE), batches)[0]
                ratios["index"].append(index / fresh)
                ratios["take"].append(take / ours)
                ratios["pread"].append(pread / fresh)
                ratios["plain"].append(pread / read)
        self.report("mapped, 1024 reads / NumPy's index of a mapping", ratios["index"], 0.8)
        self.report("mapped, out= / NumPy's take(…, out) of a mapping", ratios["take"], 0.8)
        self.report("mapped, 1024 reads / a loop of os.pread", ratios["pread"], 4)
        self.report("cached, not mapped, 1024 reads / a loop of os.pread", ratios["plain"], 1)

    def overhead(self):
        out, page = np.zeros((READS, PAGE), np.uint8), bytearray(PAGE)
        one, more = [], []
        with cringle.open(self.path) as file:
            for _ in range(self.rounds):
                offset = [int(self.batches(1, 1)[0][0])]
                ours = timed(lambda _: self.io.read_many(file, offset, PAGE, page), range(2000))[0]
                rust = self.rust.timed("one", [offset * 2000])[0]
                one.append((ours - rust) / 2000 * 1e6)
                batches = self.batches(16)
                ours = timed(lambda batch: self.io.read_many(file, batch, PAGE, out), batches)[0]
                rust = self.rust.timed("cached", batches)[0]
                more.append((ours - rust) / (16 * READS) * 1e9)
        self.report("one cached read: time over Rust's", one, 3, " µs", is_limit=True)
        self.report("each read of a cached batch: time over Rust's", more, 120, " ns", is_limit=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=256, help="of the file, in MiB")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--directory", default=".", help="for the file; not on tmpfs")
    parser.add_argument("--json", action="store_true", help="print the samples")
    options = parser.parse_args()
    path = os.path.join(os.path.abspath(options.directory), f"cringle-bench-{os.getpid()}.dat")
    try:
        np.random.default_rng(0).integers(0, 256, options.size << 20, np.uint8).tofile(path)
        with open(path, "rb+") as file:
            os.fsync(file)
        bench = Bench(path, options.rounds)
        for part in [bench.direct, bench.cached, bench.overhead]:
            part()
        bench.io.close()
        bench.rust.close()
    finally:
        os.unlink(path)
    if options.json:
        print(json.dumps(bench.rows))


if __name__ == "__main__":
    main()
