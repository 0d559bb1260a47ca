"""Bad input is an exception with words, never a crash."""

import ctypes
import errno
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import cringle
from conftest import PAGE, pattern


@pytest.fixture
def file(path):
    with cringle.open(path) as file:
        yield file


@pytest.mark.parametrize(
    "offsets, error, words",
    [
        ([0, -1], ValueError, r"offsets\[1\] is -1: it must not be negative"),
        (np.array([0, -5]), ValueError, r"offsets\[1\] is -5"),
        ([1 << 63], ValueError, r"offsets\[0\] is 9223372036854775808: it must be between"),
        ([1 << 200], ValueError, r"between 0 and"),
        (np.array([1 << 63], np.uint64), ValueError, r"between 0 and"),
        ([0.0], TypeError, r"offsets\[0\] must be an integer, not float"),
        (np.array([0.0]), TypeError, "array of integers, not of format 'd'"),
        (np.array([0], "i8,i8"), TypeError, "array of integers"),
        (np.array([True]), TypeError, r"array of integers, not of format '\?'"),
        ((ctypes.c_bool * 1)(True), TypeError, r"array of integers, not of format '<\?'"),
        ((ctypes.c_double * 1)(0), TypeError, "array of integers"),
        ((ctypes.c_int64 * 1 * 1)(), ValueError, "2 dimensions"),
        (ctypes.c_int64(0), ValueError, "0 dimensions"),
        ((ctypes.c_int64 * 2)(0, -5), ValueError, r"offsets\[1\] is -5"),
        ([0, True], TypeError, r"offsets\[1\] must be an integer, not bool"),
        ((False,), TypeError, r"offsets\[0\] must be an integer, not bool"),
        ([np.True_], TypeError, r"offsets\[0\] must be an integer"),
        (np.array([[0]]), ValueError, "2 dimensions"),
        (np.array(0), ValueError, "0 dimensions"),
        (["0"], TypeError, "must be an integer, not str"),
        ("0", TypeError, "offsets must be integers"),
        (b"0", TypeError, "offsets must be integers"),
        (0, TypeError, "offsets must be integers: an array, list or range, not int"),
        (None, TypeError, "not NoneType"),
        (np.array([None]), (TypeError, ValueError), None),
    ],
)
def test_wrong_offsets_are_refused(io, file, offsets, error, words):
    with pytest.raises(error, match=words):
        io.read_many(file, offsets, 10)


def test_bool_is_no_length_and_no_offset_of_an_operation(io, file):
    with pytest.raises(TypeError, match="length must be an integer, not bool"):
        io.read_many(file, [0], True)
    with pytest.raises(TypeError, match=r"length\[0\] must be an integer, not bool"):
        io.read_many(file, [0], [True])
    with pytest.raises(TypeError, match=r"the offset of ops\[0\] must be an integer, not bool"):
        io.read_into([(file, True, bytearray(10))])


def test_errors_of_iterables_pass_through(io, file):
    def broken():
        yield 0
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        io.read_many(file, broken(), 10)


def test_exception_of_an_index_passes_through(io, file):
    class Broken:
        def __index__(self):
            raise LookupError("mine")

    for call in [
        lambda: io.read_many(file, [Broken()], 10),
        lambda: io.read_many(file, [0], [Broken()]),
        lambda: io.read_into([(file, Broken(), bytearray(10))]),
    ]:
        with pytest.raises(LookupError, match="mine"):
            call()


@pytest.mark.parametrize("claimed", [0, 1, 1 << 40, sys.maxsize])
def test_claimed_length_of_an_iterable_is_a_hint(io, file, claimed):
    class Claiming:
        def __init__(self, items):
            self.items = items

        def __len__(self):
            return claimed

        def __iter__(self):
            return iter(self.items)

    assert len(io.read_many(file, Claiming([0, 1]), 10)) == 2
    one, other = bytearray(10), bytearray(10)
    io.read_into(Claiming([(file, 0, one), (file, 0, other)]))
    assert one == other


@pytest.mark.parametrize(
    "length, error, words",
    [
        (-1, ValueError, "length is -1"),
        (1 << 31, ValueError, "one operation has at most"),
        (1 << 62, ValueError, "one operation has at most"),
        (1 << 100, ValueError, "length is"),
        (1.5, TypeError, "length must be"),
        ("10", TypeError, "length must be"),
        (None, TypeError, "length must be"),
        ([10], ValueError, "length has 1 items, and offsets 2"),
        ([10, -1], ValueError, r"length\[1\] is -1"),
        ([10, 1 << 40], ValueError, r"length\[1\] is 1099511627776: one operation"),
    ],
)
def test_wrong_lengths_are_refused(io, file, length, error, words):
    with pytest.raises(error, match=words):
        io.read_many(file, [0, 1], length)


def test_more_memory_than_exists_is_refused(io, file):
    with pytest.raises((MemoryError, ValueError)):
        io.read_many(file, np.zeros(1 << 20, np.int64), 0x7FFF_F000)
    with pytest.raises(MemoryError):
        cringle.Buffer(1 << 62)


@pytest.mark.parametrize(
    "out, error, words",
    [
        (bytearray(9), ValueError, "out has 9 bytes, and the reads have 20"),
        (bytes(20), ValueError, "writable"),
        (np.zeros(40, np.uint8)[::2], ValueError, "contiguous"),
        (np.zeros((4, 5), np.uint8, order="F"), ValueError, "contiguous"),
        ([bytearray(10)] * 2, TypeError, "out must be a contiguous writable buffer"),
        (object(), TypeError, "not object"),
    ],
)
def test_wrong_memory_is_refused(io, file, out, error, words):
    with pytest.raises(error, match=words):
        io.read_many(file, [0, 1], 10, out)


@pytest.mark.parametrize(
    "kind", [object, [("O", "i4"), ("y", object)], [("when", "M8[s]"), ("y", object)]]
)
def test_memory_of_python_objects_is_refused(io, path, file, kind):
    out = np.zeros(512, kind)
    with pytest.raises(TypeError, match="out must be memory of bytes .* not of Python objects"):
        io.read_many(file, [0], out.nbytes, out)
    with cringle.open(path, "r+") as writable, pytest.raises(TypeError, match="Python objects"):
        io.write_many(writable, [0], out)


@pytest.mark.parametrize("kind", ["M8[s]", [("O", "i4")], "f8", "S16", [("O", "M8[s]")]])
def test_memory_of_any_other_type_is_filled(io, file, kind):
    out = np.zeros(512, kind)
    io.read_many(file, [0], out.nbytes, out)
    assert out.tobytes() == pattern(out.nbytes)


def test_tensors_that_cannot_be_written_are_refused(io, file):
    class Tensor:
        def __init__(self, export, *options):
            self.export, self.options = export, options

        def __dlpack__(self, **options):
            return self.export(**options)

    frozen = np.zeros(10, np.uint8)
    frozen.flags.writeable = False
    strided = np.zeros((10, 2), np.uint8)[:, 0]
    for export, error, words in [
        (frozen.__dlpack__, (ValueError, BufferError), "read"),
        (strided.__dlpack__, ValueError, "not contiguous"),
        (lambda **_: 7, TypeError, "no capsule"),
        (lambda **_: 1 / 0, ZeroDivisionError, None),
    ]:
        with pytest.raises(error, match=words):
            io.read_many(file, [0], 10, Tensor(export))


def test_wrong_ops_are_refused(io, file):
    whole = bytearray(100)
    view = memoryview(whole)
    for ops, error, words in [
        (7, TypeError, "iterable"),
        ([7], TypeError, r"ops\[0\] must be \(File, offset, buffer\)"),
        ([(file, 0)], TypeError, r"ops\[0\] must be"),
        ([(1, 0, whole)], TypeError, r"ops\[0\] must be"),
        ([(file, -1, whole)], ValueError, r"the offset of ops\[0\] is -1"),
        ([(file, "0", whole)], TypeError, "must be an integer, not str"),
        ([(file, 0, b"")], ValueError, r"the buffer of ops\[0\] must be writable"),
        ([(file, 0, view[:50]), (file, 0, view[49:])], ValueError, r"\[0\] and ops\[1\] overlap"),
    ]:
        with pytest.raises(error, match=words):
            io.read_into(ops)
    io.read_into([(file, 0, view[:50]), (file, 0, view[50:])])


def test_short_read_names_its_place(io, path, file):
    with pytest.raises(cringle.ShortCountError) as raised:
        io.read_many(file, [0, 64 * PAGE - 10], PAGE)
    error = raised.value
    assert isinstance(error, cringle.BatchError) and isinstance(error, OSError)
    assert (error.index, error.offset, error.length) == (1, 64 * PAGE - 10, PAGE)
    assert error.filename == str(path) and error.errno is None
    assert error.counts.tolist() == [PAGE, 10]
    assert "read 1 (4096 bytes at offset 262134)" in str(error) and "short count: 10" in str(error)


def test_failed_read_names_its_remedy(io, path):
    with cringle.open(path, "w") as file:
        with pytest.raises(cringle.BatchError) as raised:
            io.read_many(file, [7], 10)
        _, counts = io.read_many(file, [7], 10, strict=False)
    error = raised.value
    assert error.errno == errno.EBADF and error.filename == str(path) and error.offset == 7
    assert error.remedy in str(error) and "Bad file descriptor" in str(error)
    assert counts.tolist() == [-errno.EBADF]


def test_files_without_positions_are_refused(io):
    read, write = os.pipe()
    with cringle.open(read) as pipe, pytest.raises(cringle.BatchError) as raised:
        io.read_many(pipe, [0], 1)
    assert raised.value.errno == errno.ESPIPE
    os.close(read)
    os.close(write)


def test_misaligned_descriptor_names_the_misalignment(io, path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    with cringle.open(fd) as file:
        assert file.direct
        with pytest.raises(cringle.BatchError, match="not a multiple of") as raised:
            io.read_many(file, [1], 100)
        assert raised.value.errno == errno.EINVAL
    os.close(fd)


def test_wrong_opens_are_refused(directory, path):
    for arguments, options, error, words in [
        ((path, "q"), {}, ValueError, "mode is"),
        ((path, "a"), {}, ValueError, "there is no a"),
        ((path,), {"direct": True, "mapped": True}, ValueError, "exclude each other"),
        ((-1,), {}, OSError, "Bad file"),
        ((987_654,), {}, OSError, "Bad file"),
        ((0,), {"direct": True}, ValueError, "belong to a path"),
        ((1 << 70,), {}, OverflowError, "path is 1180591620717411303424: the number is too large"),
        ((1 << 40,), {}, OverflowError, "path is 1099511627776: the number of a descriptor"),
        ((path,), {"permissions": -1}, OverflowError, "permissions is -1"),
        ((None,), {}, TypeError, None),
        (("a\0b",), {}, ValueError, "null byte"),
        (("/dev/null",), {"mapped": True}, OSError, r"\[Errno 22\] only a regular file .* mapped=True"),
        (("/dev/null",), {"direct": True}, OSError, r"\[Errno 22\] .* open it without direct=True"),
        ((path, "w"), {"mapped": True}, ValueError, "mode is \"w\": a mapped file must be .* reading"),
        ((path, "x"), {"mapped": True}, ValueError, "mode is \"x\""),
    ]:
        with pytest.raises(error, match=words):
            cringle.open(*arguments, **options)
    # None of them has created or truncated it.
    assert path.read_bytes() == pattern(64 * PAGE)


def test_closed_handles_are_refused(path):
    io, file = cringle.BlockIO(), cringle.open(path)
    file.close()
    file.close()
    assert file.closed and "closed" in repr(file)
    for call in [
        lambda: io.read_many(file, [0], 1),
        lambda: io.write_many(file, [0], b"a"),
        lambda: io.fsync(file),
        file.fileno,
        lambda: file.size,
        file.__enter__,
    ]:
        with pytest.raises(ValueError, match="the file is closed"):
            call()
    io.close()
    io.close()
    assert io.closed
    file = cringle.open(path)
    for call in [
        lambda: io.read_many(file, [0], 1),
        lambda: io.read_into([]),
        lambda: io.start_read_many(file, [0], 1),
        lambda: io.fsync(file),
        io.stats,
        lambda: io.driver,
    ]:
        with pytest.raises(ValueError, match="the BlockIO is closed"):
            call()


@pytest.mark.parametrize(
    "options, words",
    [
        ({"workers": 0}, "workers is 0"),
        ({"workers": -1}, "workers is -1"),
        ({"workers": 1 << 40}, "workers is"),
        ({"depth": 0}, "depth is 0"),
        ({"depth": 65_536}, "depth is 65536"),
        ({"driver": "aio"}, 'driver is "aio"'),
    ],
)
def test_wrong_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        cringle.BlockIO(**options)


def test_wrong_types_are_refused(io, path):
    with pytest.raises(TypeError):
        io.read_many(open(path, "rb"), [0], 1)
    with pytest.raises(TypeError):
        cringle.BlockIO(depth="many")
    with pytest.raises(TypeError):
        cringle.File()
    with pytest.raises(ValueError):
        cringle.Buffer(-1)


def test_a_small_queue_performs_a_large_batch(path):
    with cringle.BlockIO(workers=2, depth=1) as io, cringle.open(path) as file:
        rows = io.read_many(file, np.arange(64) * PAGE, PAGE)
        assert bytes(rows[63, :4]) == (63 * 512).to_bytes(4, "little")


def run(program, **options):
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=None, **options
    )


def test_denied_ring_gives_the_same_results(path):
    program = f"""
import cringle
with cringle.BlockIO() as io, cringle.open({str(path)!r}, direct=True) as file:
    print(io.driver, io.driver_reason)
    assert bytes(io.read_many(file, [{PAGE}], 4)[0]) == (512).to_bytes(4, "little")
    try:
        cringle.BlockIO(driver="uring")
    except OSError as error:
        print(error)
"""
    denied = pathlib.Path(__file__).with_name("deny_ring.py").read_text() + program
    ran = run(denied)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("epoll ") and len(ran.stdout.splitlines()) >= 2, ran.stdout
    chosen = run(program.split("    try:")[0], env={**os.environ, "CRINGLE_DRIVER": "epoll"})
    assert chosen.returncode == 0 and "CRINGLE_DRIVER" in chosen.stdout, chosen


@pytest.mark.parametrize("opened", ["direct=True", "mapped=True", ""])
@pytest.mark.parametrize("offset", [0, 1])
def test_memory_of_a_truncated_file_is_an_error(directory, opened, offset):
    source = directory / "source"
    source.write_bytes(b"x" * (64 * PAGE))
    # Python itself would be ended by SIGBUS at such a page.
    program = f"""
import mmap, errno
import cringle
out = open({str(directory / "out")!r}, "w+b")
out.truncate(32 * {PAGE})
memory = mmap.mmap(out.fileno(), 32 * {PAGE})
out.truncate({PAGE})
offsets = [{offset} + n * {PAGE} for n in range(32)]
with cringle.BlockIO() as io, cringle.open({str(source)!r}, {opened}) as file:
    for _ in range(3):
        out, counts = io.read_many(file, offsets, {PAGE}, memory, strict=False)
        assert counts[0] == {PAGE}, counts
        assert set(counts[1:].tolist()) == {{-errno.EFAULT}}, counts
    assert memory[:{PAGE}] == b"x" * {PAGE}
    # Half of it is invalid.
    view = memoryview(memory)[{PAGE} - 8 : {PAGE} + 8]
    counts = io.read_into([(file, {offset}, view)], strict=False)
    assert counts[0] in (8, -errno.EFAULT), counts
with cringle.BlockIO() as io, cringle.open({str(source)!r}, "r+", {opened}) as file:
    for at in (0, 1, {PAGE}):
        for len in (100, {PAGE}, 8 * {PAGE}):
            data = [memoryview(memory)[2 * {PAGE} + at :][:len]]
            counts = io.write_many(file, [{offset}], data, strict=False)
            assert counts[0] == -errno.EFAULT, (at, len, counts)
"""
    ran = run(program)
    assert ran.returncode == 0, ran
    assert source.read_bytes() == b"x" * (64 * PAGE)


def test_too_few_descriptors_is_an_error(path):
    program = f"""
import resource, os
import cringle
resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
kept, made = [], []
try:
    while True:
        kept.append(cringle.BlockIO())
except OSError as error:
    print(error)
"""
    ran = run(program)
    assert ran.returncode == 0, ran
    assert "RLIMIT_NOFILE" in ran.stdout or "open files" in ran.stdout, ran.stdout
