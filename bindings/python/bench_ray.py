"""Measures the source of docs/ray-data.md beside Ray Data's own reader, in alternating rounds.

    python bindings/python/bench_ray.py DIRECTORY [--files N] [--bytes N] [--rounds N] [--sides NAME,…]

It needs `ray[data]`, and the package installed as an optimised build. An empty or new directory is
filled first with files of up to `--bytes` random bytes. Each round reads all files with two workers
by each side in turn: cold, after their bytes have left the page cache, then warm. A ratio is the
median of the rounds' ratios to one of the other sides, with the smallest and largest:

own      read_binary_files as it is
blocks   read_binary_files with four tasks, as the page has
threads  the same with eight threads in each task, by a private setting
pool     the page's source with a pool of eight threads that open and read, instead of the package
"""

import argparse
import os
import pathlib
import re
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pyarrow as pa
import ray
from ray.data._internal.datasource.binary_datasource import BinaryDatasource

HERE = pathlib.Path(__file__).parent
page = re.findall(r"^```python\n(.*?)^```", (HERE / "docs/ray-data.md").read_text(), re.M | re.S)
exec(page[1])  # `Files` and `read_files`


class ThreadedBinary(BinaryDatasource):
    """Ray's own reader with threads, as it reads images: it has no public setting for them."""

    _NUM_THREADS_PER_TASK = 8


class PooledFiles(Files):  # noqa: F821
    """The page's source with a thread pool of `read_bytes` instead of the package."""

    def task(self, paths, limit):
        task = super().task(paths, limit)
        task._read_fn = partial(pooled_read, paths)
        return task


def pooled_read(paths, block=1000, few=50):
    def read(part):
        return [pathlib.Path(path).read_bytes() for path in part]

    with ThreadPoolExecutor(8) as pool:
        for first in range(0, len(paths), block):
            part = paths[first : first + block]
            parts = [part[n : n + few] for n in range(0, len(part), few)]
            contents = sum(pool.map(read, parts), [])
            yield pa.table({"path": part, "bytes": pa.array(contents, pa.binary())})


def seconds(dataset, size):
    begin, seen = time.perf_counter(), 0
    for batch in dataset().iter_batches(batch_size=None, batch_format="pyarrow"):
        seen += pa.compute.sum(pa.compute.binary_length(batch["bytes"])).as_py()
    assert seen == size, (seen, size)
    return time.perf_counter() - begin


def forget(paths):
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--bytes", type=int, default=32 << 10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sides", default="own,blocks,threads,pool", help="besides cringle")
    args = parser.parse_args()
    args.directory.mkdir(exist_ok=True)
    random = np.random.default_rng(1)
    if not any(args.directory.iterdir()):
        for n in range(args.files):
            (args.directory / str(n)).write_bytes(random.bytes(random.integers(args.bytes)))
        os.sync()
    paths = [str(path.absolute()) for path in args.directory.iterdir()]
    size = sum(os.path.getsize(path) for path in paths)

    # Ray gives its workers the niceness 15, with which they wait for every other process.
    os.environ["RAY_worker_niceness"] = "0"
    ray.init(num_cpus=2, include_dashboard=False, logging_level="error")
    ray.data.DataContext.get_current().enable_progress_bars = False
    own, custom = ray.data.read_binary_files, ray.data.read_datasource
    sides = {
        "cringle": lambda: custom(Files(paths), override_num_blocks=4),  # noqa: F821
        "own": lambda: own(paths),
        "blocks": lambda: own(paths, override_num_blocks=4),
        "threads": lambda: custom(ThreadedBinary(paths), override_num_blocks=4),
        "pool": lambda: custom(PooledFiles(paths), override_num_blocks=4),
    }
    sides = {name: sides[name] for name in ["cringle", *args.sides.split(",")]}
    samples = {(name, cache): [] for name in sides for cache in ("cold", "warm")}
    for number in range(args.rounds + 1):
        names = list(sides)[:: 1 if number % 2 else -1]
        for name in names:
            forget(paths)
            for cache in ("cold", "warm"):
                taken = seconds(sides[name], size)
                if number:  # The first round starts the workers.
                    samples[name, cache].append(taken)
    print(f"{len(paths)} files, {size / 1e6:.0f} MB, load {os.getloadavg()[0]:.1f}")
    for (name, cache), taken in samples.items():
        ratios = [ours / theirs for ours, theirs in zip(samples["cringle", cache], taken)]
        print(
            f"{cache} {name:8} {statistics.median(taken):7.2f} s, cringle takes"
            f" {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) of it"
        )


if __name__ == "__main__":
    main()
