"""Coroutines."""

import asyncio
import gc
import os
import weakref

import numpy as np
import pytest

import cringle
from conftest import PAGE, pattern

PAGES = np.frombuffer(pattern(64 * PAGE), np.uint8).reshape(-1, PAGE)


@pytest.mark.parametrize("options", [{}, {"direct": True}, {"mapped": True}])
def test_tasks_read_concurrently(io, path, options):
    async def main():
        with cringle.open(path, **options) as file:

            async def read(seed):
                pages = np.random.default_rng(seed).integers(0, 64, 50)
                rows = await io.aread_many(file, pages * PAGE, PAGE)
                assert (rows == PAGES[pages]).all()
                return seed

            assert await asyncio.gather(*map(read, range(100))) == list(range(100))

    # Each run has a loop of its own, with an eventfd of its own.
    for _ in range(3):
        asyncio.run(main())


def test_coroutines_write_and_sync(io, directory):
    async def main():
        with cringle.open(directory / "new", "x+") as file:
            await io.awrite_many(file, [0, 4], b"leftright"[:8])
            await io.afsync(file)
            out = bytearray(8)
            await io.aread_into([(file, 0, memoryview(out)[:5]), (file, 5, memoryview(out)[5:])])
            assert out == b"leftrigh"
            with pytest.raises(cringle.ShortCountError):
                await io.aread_many(file, [0] * 20, 100)
            _, counts = await io.aread_many(file, [0] * 20, 100, strict=False)
            assert counts.tolist() == [8] * 20

    asyncio.run(main())


def test_errors_are_raised_before_the_await(io, path):
    async def main():
        with cringle.open(path) as file, pytest.raises(ValueError, match="negative"):
            await io.aread_many(file, [-1], 1)

    asyncio.run(main())


def test_loop_that_ends_leaves_no_descriptor(io, path):
    import os

    async def main():
        with cringle.open(path, direct=True) as file:
            await io.aread_many(file, [0] * 20, PAGE)

    asyncio.run(main())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        asyncio.run(main())
    import gc

    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_loop_that_is_closed_with_work_under_way_is_freed(path):
    loops, outs = [], []
    descriptors = len(os.listdir("/proc/self/fd"))
    with cringle.BlockIO(depth=8) as io, cringle.open(path, direct=True) as file:
        for _ in range(10):
            loop = asyncio.new_event_loop()
            out = np.empty(256 * PAGE, np.uint8)
            task = loop.create_task(io.aread_many(file, [0] * 256, PAGE, out))
            task._log_destroy_pending = False
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()
            loops.append(weakref.ref(loop))
            outs.append(weakref.ref(out))
            del loop, out, task
    gc.collect()
    assert [loop() for loop in loops] == [None] * 10
    assert [out() for out in outs] == [None] * 10
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_task_without_a_reference_is_kept_until_its_end(io, path):
    async def main():
        ended = []
        with cringle.open(path, direct=True) as file:

            async def read():
                ended.append((await io.aread_many(file, [0] * 100, PAGE)).shape)

            for _ in range(10):
                asyncio.get_running_loop().create_task(read())
            while len(ended) < 10:
                gc.collect()
                await asyncio.sleep(0)
        assert ended == [(100, PAGE)] * 10

    asyncio.run(main())
