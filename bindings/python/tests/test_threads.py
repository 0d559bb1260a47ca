"""Many threads on the same objects, for interpreters with a GIL and without one.

Each test performs a fixed number of calls. What the threads interleave to differs from run to run,
and what each call may return or raise does not.
"""

import asyncio
import gc
import subprocess
import sys
import sysconfig
import threading
import weakref
from array import array
from collections import deque

import numpy as np
import pytest

import cringle
from conftest import PAGE, pattern

PAGES = np.frombuffer(pattern(64 * PAGE), np.uint8).reshape(-1, PAGE)
THREADS = 4
# The longest time that a test waits for its threads. They need less than a second.
PATIENCE = 120
OPTIONS = [{}, {"direct": True}, {"mapped": True}]


@pytest.fixture(autouse=True)
def many_switches():
    """With a GIL, threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(params=["uring", "epoll"])
def io(request):
    with cringle.BlockIO(workers=2, driver=request.param) as io:
        yield io


@pytest.fixture(params=OPTIONS, ids=["buffered", "direct", "mapped"])
def file(path, request):
    with cringle.open(path, **request.param) as file:
        yield file


def together(*bodies):
    """Calls all bodies at once, each on a thread of its own, and returns their values."""
    begin = threading.Barrier(len(bodies))
    values, errors = [None] * len(bodies), []

    def run(at, body):
        try:
            begin.wait()
            values[at] = body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=each, daemon=True) for each in enumerate(bodies)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    stuck = [thread for thread in threads if thread.is_alive()]
    assert not stuck, "threads wait for each other"
    if errors:
        raise errors[0]
    return values


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="the interpreter has a GIL"
)
def test_the_import_leaves_the_gil_disabled():
    # The warning of a module that needs the GIL would be an error, also of NumPy.
    program = "import sys, cringle; assert not sys._is_gil_enabled()"
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


def test_threads_share_an_engine_and_a_file(io, file):
    kept = deque(maxlen=2 * THREADS)

    def check(pages, rows):
        assert len(rows) == len(pages)
        assert all((row == PAGES[page]).all() for row, page in zip(rows, pages))

    def calls(seed):
        numbers = np.random.default_rng(seed)
        out = np.empty((8, PAGE), np.uint8)
        for _ in range(12):
            pages = numbers.integers(0, 64, 8)
            offsets = pages * PAGE
            rows = io.read_many(file, offsets, PAGE)
            check(pages, rows)
            # Another thread drops them, and their memory is reused.
            kept.append((pages, rows))
            check(pages, io.read_many(file, offsets.tolist(), [PAGE] * 8))
            pending = io.start_read_many(file, offsets, PAGE, out)
            assert file.size == 64 * PAGE and io.driver in ("uring", "epoll")
            file.refresh()
            check(pages, pending.result())
            buffers = [bytearray(PAGE) for _ in pages]
            io.read_into([(file, *op) for op in zip(offsets, buffers)])
            check(pages, [np.frombuffer(buffer, np.uint8) for buffer in buffers])
            first, second = io.prefetch(file, [offsets[:4], offsets[4:]], PAGE)
            check(pages, [*first, *second])
            assert io.stats()["workers"] == 2
            check(*kept[0])
            # It stops all threads, wherever they are.
            gc.collect(0)

    together(*(lambda seed=seed: calls(seed) for seed in range(THREADS)))


def test_threads_share_offsets_and_data(io, directory):
    offsets = array("q", [page * PAGE for page in range(16)])
    data = bytearray(PAGES[:16].tobytes())
    view = memoryview(data)

    with cringle.open(directory / "new", "w+") as file:

        def write():
            for _ in range(100):
                io.write_many(file, offsets, data)
                io.write_many(file, offsets, view)

        together(*[write] * THREADS)
        assert (io.read_many(file, offsets, PAGE) == PAGES[:16]).all()
    view.release()
    # Each export has ended: else they could not be resized.
    offsets.append(0)
    data.append(0)


def test_each_export_of_an_array_is_counted(path):
    with cringle.BlockIO() as io, cringle.open(path) as file:
        for _ in range(5):
            offsets, out = array("q", [0]), array("B", bytes(8))

            def read():
                for _ in range(3000):
                    io.read_many(file, offsets, 8, out)

            together(*[read] * THREADS)
            # The count is that of the array, and a wrong one stays: an error, or memory that moves.
            offsets.append(0)
            out.append(0)


def test_a_list_that_changes_is_read_as_it_is(io, file):
    offsets = [PAGE] * 8
    ended = threading.Event()

    def change():
        while not ended.is_set():
            offsets.clear()
            offsets.extend([PAGE] * 8)

    def read():
        for _ in range(100):
            rows = io.read_many(file, offsets, PAGE)
            assert len(rows) <= 8 and (rows == PAGES[1]).all()

    def reads():
        try:
            together(*[read] * THREADS)
        finally:
            ended.set()

    together(change, reads)


def test_an_iterator_yields_each_batch_once(io, file):
    for _ in range(5):
        rows = io.prefetch(file, ([page * PAGE] for page in range(64)), PAGE, ahead=4)

        def take():
            taken = []
            while True:
                try:
                    taken.append(next(rows)[0])
                except StopIteration:
                    return taken
                except ValueError as error:
                    assert "one thread at a time" in str(error)

        numbers = [
            [int.from_bytes(row[:8].tobytes(), "little") * 8 // PAGE for row in taken]
            for taken in together(*[take] * THREADS)
        ]
        assert all(taken == sorted(taken) for taken in numbers)
        assert sorted(sum(numbers, [])) == list(range(64))


def test_an_iterator_refuses_a_second_thread(io, file):
    entered, left = threading.Event(), threading.Event()

    def batches():
        yield [0]
        entered.set()
        left.wait(PATIENCE)
        yield [PAGE]

    rows = io.prefetch(file, batches(), PAGE, ahead=1)

    def first():
        assert (next(rows)[0] == PAGES[0]).all()

    def second():
        entered.wait(PATIENCE)
        try:
            for call in [rows.__next__, rows.close]:
                with pytest.raises(ValueError, match="one thread at a time"):
                    call()
        finally:
            left.set()

    together(first, second)
    assert (next(rows)[0] == PAGES[1]).all()
    assert list(rows) == []


def test_calls_beside_a_close_are_whole_or_refused(path):
    for round in range(20):
        io = cringle.BlockIO(workers=2, driver=("uring", "epoll")[round % 2])
        out = [bytearray(8 * PAGE) for _ in range(THREADS)]
        offsets = [page * PAGE for page in range(8)]
        ready = threading.Barrier(THREADS + 2)

        def read(at):
            options = OPTIONS[at % len(OPTIONS)]
            with cringle.open(path, **options) as file:
                ready.wait(PATIENCE)
                with pytest.raises(ValueError, match="the BlockIO is closed"):
                    while True:
                        io.read_many(file, offsets, PAGE, out[at])
                        assert out[at] == PAGES[:8].tobytes()
                        pending = io.start_read_many(file, offsets, PAGE, out[at])
                        assert pending.result() is out[at]

        def close():
            ready.wait(PATIENCE)
            io.close()
            assert io.closed

        together(*(lambda at=at: read(at) for at in range(THREADS)), close, close)
        for memory in out:
            memory.append(0)


@pytest.mark.parametrize("options", OPTIONS, ids=["buffered", "direct", "mapped"])
def test_reads_beside_a_close_of_the_file_are_whole_or_refused(io, path, options):
    for _ in range(20):
        file = cringle.open(path, **options)
        ready = threading.Barrier(THREADS + 2)

        def read():
            ready.wait(PATIENCE)
            with pytest.raises(ValueError, match="the file is closed"):
                while True:
                    assert (io.read_many(file, [PAGE] * 20, PAGE) == PAGES[1]).all()
                    assert file.size == 64 * PAGE and file.fileno() >= 0

        def close():
            ready.wait(PATIENCE)
            file.close()
            assert file.closed

        together(*[read] * THREADS, close, close)


def test_a_result_is_taken_by_one_thread(io, file):
    for _ in range(30):
        pending = io.start_read_many(file, [PAGE] * 40, PAGE)

        def take():
            try:
                return pending.result()
            except RuntimeError as error:
                assert "taken before" in str(error)

        def cancel():
            while not pending.done():
                pass
            pending.cancel()

        taken = [rows for rows in together(*[take] * THREADS, cancel) if rows is not None]
        assert len(taken) == 1 and (taken[0] == PAGES[1]).all()


def test_a_discard_leaves_a_result_that_is_being_taken(io, file):
    for _ in range(50):
        pending = io.start_read_many(file, [PAGE] * 40, PAGE)

        def take():
            try:
                return (pending.result() == PAGES[1]).all()
            except RuntimeError as error:
                return "taken before" in str(error)

        def discard():
            while not pending.done():
                pass
            pending.discard()

        assert together(take, discard)[0]


def test_loops_of_many_threads_share_an_engine(io, file):
    async def main(seed):
        async def read(seed):
            pages = np.random.default_rng(seed).integers(0, 64, 30)
            rows = await io.aread_many(file, pages * PAGE, PAGE)
            assert (rows == PAGES[pages]).all()
            gc.collect(0)

        await asyncio.gather(*(read(seed + at) for at in range(20)))

    def run(seed):
        # Each run has a loop of its own, and an eventfd.
        for at in range(3):
            asyncio.run(main(100 * seed + at))

    together(*(lambda seed=seed: run(seed) for seed in range(THREADS)))


def test_engines_are_made_and_dropped_by_many_threads(path):
    def use():
        for _ in range(5):
            with cringle.open(path, direct=True) as file:
                io = cringle.BlockIO()
                dropped = weakref.ref(io)
                assert (io.read_many(file, [PAGE], PAGE) == PAGES[1]).all()
                io.start_read_many(file, [0] * 8, PAGE)
                del io
                assert dropped() is None
                gc.collect(0)

    together(*[use] * THREADS)
