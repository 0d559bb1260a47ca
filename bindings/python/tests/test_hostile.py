"""Arguments, signals and forks that are made to break a call: each is an exception with words."""

import asyncio
import gc
import mmap
import os
import signal
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import cringle
from conftest import PAGE, pattern

MOST = 1 << 24
# `mmap` has it from Python 3.13 on.
MAP_NORESERVE = 0x4000


@pytest.fixture
def file(path):
    with cringle.open(path) as file:
        yield file


def run(program, *arguments, **more):
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore", "-c", program]
    environment = {**os.environ, **more}
    ran = subprocess.run([*command, *arguments], capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran
    return ran.stdout


@pytest.mark.parametrize("count", [MOST + 1, 1 << 40, 1 << 62])
def test_too_many_operations_are_refused(io, path, count):
    many = np.broadcast_to(np.int8(0), count)
    with cringle.open(path, "r+") as file:
        for call in [
            lambda: io.read_many(file, many, 0),
            lambda: io.read_many(file, [0], many),
            lambda: io.write_many(file, many, b""),
            lambda: io.start_read_many(file, many, 0),
        ]:
            with pytest.raises(ValueError, match="one call has at most 16777216 operations"):
                call()


def test_too_long_lists_are_refused(io, file):
    with pytest.raises(ValueError, match="offsets has at least 16777217 items"):
        io.read_many(file, [0] * (MOST + 1), 0)


def test_too_little_memory_is_an_exception(path):
    program = """
import resource, sys
import numpy as np
import cringle
offsets = np.zeros(1_000_000, np.int64)
raised = 0
with cringle.BlockIO() as io, cringle.open(sys.argv[1]) as file:
    io.read_many(file, offsets[:5000], 0)
    used = int(open("/proc/self/statm").read().split()[0]) * 4096
    for more in [4, 12, 20, 30, 60, 120, 200, 250, 280, 300, 320, 350, 400]:
        resource.setrlimit(resource.RLIMIT_AS, (used + (more << 20), -1))
        try:
            io.read_many(file, offsets, 0, strict=False)
        except MemoryError as error:
            assert "cannot allocate" in str(error), error
            raised += 1
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    io.read_many(file, offsets, 0)
assert raised > 4, raised
"""
    run(program, str(path))


def test_numpy_is_imported_before_the_first_call():
    run("import sys, cringle; assert 'numpy' in sys.modules")


def test_a_broken_numpy_is_not_ignored(directory):
    (directory / "numpy.py").write_text("raise ImportError('broken')")
    program = """
try:
    import cringle
except ImportError as error:
    assert str(error) == "broken", error
else:
    raise AssertionError("imported")
"""
    run(program, PYTHONPATH=str(directory))


def test_an_interrupted_import_is_repeated(directory, path):
    (directory / "numpy.py").write_text("raise KeyboardInterrupt")
    program = """
import sys
try:
    import cringle
except KeyboardInterrupt:
    sys.path.remove(sys.argv[1])
import cringle
with cringle.BlockIO() as io, cringle.open(sys.argv[2]) as file:
    assert io.read_many(file, [0], 8).shape == (1, 8)
"""
    run(program, str(directory), str(path), PYTHONPATH=str(directory))


def interrupt_after(seconds):
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, seconds)


def test_ctrl_c_ends_a_copy_of_a_mapped_file(directory):
    path = directory / "large"
    path.write_bytes(b"x" * (1 << 20))
    out = mmap.mmap(-1, 256 << 20)
    with cringle.BlockIO() as io, cringle.open(path, mapped=True) as file:
        interrupt_after(0.002)
        with pytest.raises(KeyboardInterrupt):
            io.read_many(file, [0] * 256, 1 << 20, out)
        # The worker has ended its part.
    assert any(out[at << 20] == 0 for at in range(256)), "all parts were copied"
    out.close()


def test_ctrl_c_ends_the_open_of_a_fifo(directory):
    fifo = directory / "fifo"
    os.mkfifo(fifo)
    interrupt_after(0.05)
    with pytest.raises(KeyboardInterrupt):
        cringle.open(fifo)
    # The open continues until the other end is opened.
    os.close(os.open(fifo, os.O_WRONLY))


def test_the_open_of_a_fifo_waits_for_the_other_end(directory):
    fifo = directory / "fifo"
    os.mkfifo(fifo)
    ends = []
    thread = threading.Thread(target=lambda: ends.append(os.open(fifo, os.O_WRONLY)))
    thread.start()
    with cringle.open(fifo) as file:
        thread.join()
        os.write(ends[0], b"sent")
        assert os.read(file.fileno(), 10) == b"sent"
    os.close(ends[0])


def test_child_of_fork_opens_files_that_it_writes_again(path):
    program = """
import os, sys
import cringle
direct = cringle.open(sys.argv[1], "r+", direct=True)
buffered = cringle.open(sys.argv[1], "r+")

def check(call):
    try:
        call()
    except RuntimeError as error:
        assert "open it again in the child" in str(error), error
    else:
        raise AssertionError("no exception")

child = os.fork()
if child == 0:
    with cringle.BlockIO() as io:
        check(lambda: io.write_many(direct, [0], bytes(4096)))
        check(lambda: io.fsync(direct))
        check(lambda: io.start_fsync(buffered))
        io.read_many(direct, [0], 4096)
        io.write_many(buffered, [0], bytes(4096))
        with cringle.open(sys.argv[1], "r+", direct=True) as own:
            io.write_many(own, [0], bytes(4096))
            io.fsync(own)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
with cringle.BlockIO() as io:
    io.write_many(direct, [0], bytes(4096))
"""
    run(program, str(path))


def test_descriptors_that_append_are_refused(path):
    for flags in [os.O_WRONLY, os.O_RDWR]:
        fd = os.open(path, flags | os.O_APPEND)
        with pytest.raises(ValueError, match="O_APPEND"):
            cringle.open(fd)
        os.close(fd)
    fd = os.open(path, os.O_RDONLY | os.O_APPEND)
    cringle.open(fd).close()
    os.close(fd)


def test_batches_before_an_error_of_prefetch_are_delivered(io, file):
    def batches():
        yield [0]
        yield [PAGE]
        raise LookupError("mine")

    for bad, error in [(batches(), LookupError), ([[0], [PAGE], [-1], [0]], ValueError)]:
        rows = io.prefetch(file, bad, 8, ahead=3)
        assert bytes(next(rows)[0]) == pattern(8)
        assert bytes(next(rows)[0]) == pattern(PAGE + 8)[PAGE:]
        with pytest.raises(error):
            next(rows)
        with pytest.raises(StopIteration):
            next(rows)


def test_prefetch_refuses_an_iterator_of_lengths(io, file):
    with pytest.raises(TypeError, match="pass a list"):
        io.prefetch(file, [[0], [0]], lengths=iter([8]))


def test_operations_of_more_bytes_than_the_kernel_transfers_are_refused(io, path):
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    large = mmap.mmap(-1, 1 << 31, flags=flags)
    with cringle.open(path, "r+") as file:
        for call in [
            lambda: io.read_into([(file, 0, large)]),
            lambda: io.write_many(file, [0], large),
            lambda: io.write_many(file, [0], [large]),
        ]:
            with pytest.raises(ValueError, match="is 2147483648: one operation has at most"):
                call()
        assert file.size == 64 * PAGE
    large.close()


def test_cycles_are_collected(io, path, file):
    class Reader(os.PathLike):
        def __init__(self):
            self.file = cringle.open(self)

        def __fspath__(self):
            return str(path)

    class Out(np.ndarray):
        pass

    reader, out = Reader(), np.zeros(PAGE, np.uint8).view(Out)
    out.pending = io.start_read_many(file, [0], PAGE, out)
    other = np.zeros(PAGE, np.uint8).view(Out)
    other.pending = io.start_read_into([(file, 0, other)])
    while not (out.pending.done() and other.pending.done()):
        pass
    assert reader.file.name == str(path)
    dropped = [weakref.ref(it) for it in (reader, out, other)]
    del reader, out, other
    gc.collect()
    assert [it() for it in dropped] == [None] * 3


@pytest.mark.parametrize("method", ["__len__", "__iter__"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, LookupError])
def test_exceptions_of_an_iterable_pass_through(io, file, method, error):
    def fail(self):
        raise error

    broken = type("Broken", (), {"__iter__": lambda self: iter([]), method: fail})()
    for call in [lambda: io.read_many(file, broken, 8), lambda: io.read_into(broken)]:
        with pytest.raises(error):
            call()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="__buffer__ needs Python 3.12")
def test_memory_without_a_format_is_refused(io, file):
    class Sly:
        def __init__(self, error):
            self.error, self.array = error, np.array([None] * 8)

        def __buffer__(self, flags):
            if flags & 4:
                raise self.error
            return memoryview(self.array)

    for error, words in [(ValueError, "not of Python objects"), (KeyboardInterrupt, None)]:
        with pytest.raises((TypeError, error), match=words):
            io.read_many(file, [0], 64, Sly(error))


def test_afsync_raises_the_error_of_fsync(io):
    read, write = os.pipe()
    with cringle.open(read) as pipe:
        with pytest.raises(OSError) as error:
            io.fsync(pipe)
        with pytest.raises(OSError) as other:
            asyncio.run(io.afsync(pipe))
    assert type(other.value) is type(error.value) is OSError
    assert str(other.value) == str(error.value)
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("without", ["", "sys.modules['numpy'] = None"])
def test_errors_can_be_pickled(path, without):
    program = f"""
import pickle, sys
{without}
import cringle
with cringle.BlockIO() as io, cringle.open(sys.argv[1]) as file:
    try:
        io.read_many(file, [0, 1 << 40], 8)
    except cringle.BatchError as error:
        copy = pickle.loads(pickle.dumps(error))
assert type(copy) is cringle.ShortCountError and str(copy), copy
assert (copy.index, list(copy.counts), copy.filename) == (1, [8, 0], sys.argv[1]), vars(copy)
"""
    run(program, str(path))


def test_bytes_that_were_not_read_are_zero(io, file):
    end = 64 * PAGE
    for length in [PAGE, [PAGE]]:
        for _ in range(3):
            rows = io.read_many(file, [PAGE], length)
            assert np.any(rows[0])
            del rows
            rows, counts = io.read_many(file, [end - 8], length, strict=False)
            assert counts[0] == 8 and rows[0][:8].any() and not rows[0][8:].any()
            del rows


def test_driver_reason_is_in_words_of_python():
    with cringle.BlockIO(driver="epoll") as io:
        assert io.driver_reason == 'epoll was chosen by the program (driver="epoll")'


def test_too_large_numbers_name_their_argument():
    for call, name in [
        (lambda: cringle.BlockIO(workers=1 << 70), "workers"),
        (lambda: cringle.BlockIO(depth=-1 << 70), "depth"),
        (lambda: cringle.Buffer(1 << 70), "size"),
    ]:
        with pytest.raises(OverflowError, match=f"{name} is -?1180591620717411303424"):
            call()
