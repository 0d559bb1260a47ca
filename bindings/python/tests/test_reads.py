"""Reads: values, shapes, kinds of files and memory."""

import array
import asyncio
import ctypes
import multiprocessing.shared_memory
import subprocess
import sys

import numpy as np
import pytest

import cringle
from conftest import PAGE, pattern

DATA = np.frombuffer(pattern(64 * PAGE), np.uint8)
PAGES = DATA.reshape(-1, PAGE)

OPENS = {
    "cached": lambda path: cringle.open(path),
    "direct": lambda path: cringle.open(path, direct=True),
    "mapped": lambda path: cringle.open(path, mapped=True),
}


@pytest.fixture(params=OPENS)
def file(path, request):
    with OPENS[request.param](path) as file:
        yield file


@pytest.fixture(params=["uring", "epoll"])
def each_io(request):
    with cringle.BlockIO(driver=request.param) as io:
        yield io


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 1000, 5000])
def test_rows_are_the_pages_at_offsets(each_io, file, count):
    offsets = np.random.default_rng(7).integers(0, 64, count) * PAGE
    rows = each_io.read_many(file, offsets, PAGE)
    assert rows.shape == (count, PAGE) and rows.dtype == np.uint8 and rows.flags.writeable
    assert (rows == PAGES[offsets // PAGE]).all()


@pytest.mark.parametrize(
    "offsets",
    [
        [0, PAGE, 2 * PAGE],
        (0, PAGE, 2 * PAGE),
        range(0, 3 * PAGE, PAGE),
        array.array("q", [0, PAGE, 2 * PAGE]),
        *[np.array([0, PAGE, 2 * PAGE], t) for t in "hHiIlLqQ"],
        *[(t * 3)(0, PAGE, 2 * PAGE) for t in [ctypes.c_int16, ctypes.c_uint32, ctypes.c_int64]],
        (ctypes.c_uint64.__ctype_be__ * 3)(0, PAGE, 2 * PAGE),
        np.arange(0, 6 * PAGE, PAGE // 2)[:6:2],
        np.array([2 * PAGE, PAGE, 0])[::-1],
        pytest.param(lambda: (n * PAGE for n in range(3)), id="generator"),
        [np.int64(0), np.uint16(PAGE), np.uint64(2 * PAGE)],
    ],
    ids=lambda offsets: f"{type(offsets).__name__}-{getattr(offsets, 'dtype', '')}",
)
def test_offsets_are_any_integers(io, file, offsets):
    offsets = offsets() if callable(offsets) else offsets
    assert (io.read_many(file, offsets, 100) == PAGES[:3, :100]).all()


def test_unaligned_ranges_are_read(io, file):
    offsets = np.array([1, 4095, 77_777])
    rows = io.read_many(file, offsets, 5001)
    assert all((row == DATA[at : at + 5001]).all() for row, at in zip(rows, offsets))


def test_each_read_may_have_its_length(io, file):
    lengths = [0, 1, 4096, 10_000, 3]
    offsets = [5, 0, 4096, 99, 262_141]
    pieces = io.read_many(file, offsets, lengths)
    assert [len(piece) for piece in pieces] == lengths
    assert all((piece == DATA[at : at + len(piece)]).all() for piece, at in zip(pieces, offsets))
    out = bytearray(sum(lengths))
    for array in [np.array(lengths), np.array(lengths, ">u4"), (ctypes.c_int * 5)(*lengths)]:
        out[:] = bytes(len(out))
        assert io.read_many(file, offsets, array, out) is out
        assert out == b"".join(DATA[at : at + n].tobytes() for at, n in zip(offsets, lengths))


class Tensor:
    """An object that exports its memory by DLPack alone, as a tensor of PyTorch."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OldTensor(Tensor):
    """As one from before version 1 of the protocol."""

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__(stream=stream)


@pytest.mark.parametrize("tensor", [Tensor, OldTensor])
def test_memory_of_tensors_is_filled(io, file, tensor):
    values = np.zeros((3, PAGE // 4), np.float32)
    io.read_many(file, [0, PAGE, 2 * PAGE], PAGE, tensor(values))
    assert (values.view(np.uint8) == PAGES[:3]).all()
    part = np.zeros((4, PAGE), np.uint8)[1:2]
    io.read_into([(file, PAGE, tensor(part))])
    assert (part == PAGES[1]).all()


def test_any_writable_buffer_is_filled(io, file):
    memory = multiprocessing.shared_memory.SharedMemory(create=True, size=2 * PAGE)
    try:
        for out in [
            bytearray(2 * PAGE),
            memoryview(bytearray(3 * PAGE))[PAGE:],
            array.array("I", bytes(2 * PAGE)),
            np.zeros((2, PAGE // 8)),
            cringle.Buffer(2 * PAGE),
            memory.buf[: 2 * PAGE],
        ]:
            assert io.read_many(file, [PAGE, 0], PAGE, out) is out
            assert bytes(memoryview(out).cast("B")) == PAGES[[1, 0]].tobytes()
            if isinstance(out, memoryview):
                out.release()
    finally:
        memory.close()
        memory.unlink()


def test_ops_read_into_many_buffers(io, path, directory):
    other = directory / "other"
    other.write_bytes(b"other")
    buffers = [bytearray(5), np.zeros(10, np.uint16), cringle.Buffer(0), bytearray(4096)]
    with cringle.open(path) as file, cringle.open(other) as second:
        files = [second, file, file, file]
        assert io.read_into(zip(files, [0, 8, 0, 4096], buffers)) is None
        counts = io.read_into(zip(files, [1, 8, 0, 4096], buffers), strict=False)
    assert counts.tolist() == [4, 20, 0, 4096] and counts.dtype == np.int64
    assert buffers[0] == b"therr" and buffers[1].tobytes() == DATA[8:28].tobytes()
    assert bytes(buffers[3]) == PAGES[1].tobytes()


def test_counts_are_returned_unless_strict(io, file):
    rows, counts = io.read_many(file, [0, 64 * PAGE - 10, 1 << 40], PAGE, strict=False)
    assert counts.tolist() == [PAGE, 10, 0]
    assert (rows[0] == PAGES[0]).all() and (rows[1, :10] == DATA[-10:]).all()


def test_rows_are_aligned_for_direct_reads(io, path):
    with cringle.open(path, direct=True) as file:
        assert file.direct
        before = io.stats()["entries"]
        rows = io.read_many(file, np.arange(64) * PAGE, PAGE)
        # Each read is an entry of the ring: none goes through a buffer of the library.
        assert io.stats()["entries"] - before >= 64 or io.driver == "epoll"
        assert rows.ctypes.data % PAGE == 0
        pieces = io.read_many(file, [0, PAGE, 0], [100, 200, PAGE])
        assert all(piece.ctypes.data % PAGE == 0 for piece in pieces)


def test_mapped_reads_are_copies(io, path):
    with cringle.open(path, mapped=True) as file:
        if not file.mapped:
            pytest.skip(f"not mapped: {file.unmapped_reason}")
        offsets = np.arange(64) * PAGE
        for _ in range(1000):
            file.refresh()
            before = io.stats()["messages"]
            rows = io.read_many(file, offsets, PAGE)
            assert (rows == PAGES).all()
            # Beside the messages that ask for the counters, none reached the worker.
            if io.stats()["messages"] - before <= 1:
                return
        raise AssertionError("1000 batches of resident pages all went to the worker")


def test_large_batches_of_mapped_files_are_shared_with_a_worker(io, directory):
    path = directory / "large"
    data = np.random.default_rng(5).integers(0, 256, (2048, PAGE), np.uint8)
    path.write_bytes(data.tobytes() + b"end")
    with cringle.open(path, mapped=True) as file:
        for seed in range(20):
            pages = np.random.default_rng(seed).integers(0, 2048, 1000)
            assert (io.read_many(file, pages * PAGE, PAGE) == data[pages]).all()
        # The end of the file is not copied: in some parts a read is missing, in others none.
        ends = np.where(pages % 97 == 0, 2048, pages)
        rows, counts = io.read_many(file, ends * PAGE, PAGE, strict=False)
        assert (counts == np.where(ends == 2048, 3, PAGE)).all()
        assert (rows[counts == PAGE] == data[ends[counts == PAGE]]).all()
        assert all(bytes(row[:3]) == b"end" for row, n in zip(rows, counts) if n == 3)
        with pytest.raises(cringle.ShortCountError) as raised:
            io.read_many(file, ends * PAGE, PAGE)
        assert raised.value.index == (ends == 2048).argmax()


def test_files_are_opened_from_descriptors(io, path):
    with open(path, "rb") as owner:
        number = owner.fileno()
        file = cringle.open(number)
    with file:
        assert file.name == number != file.fileno()
        assert file.size == 64 * PAGE
        assert (io.read_many(file, [PAGE], PAGE)[0] == PAGES[1]).all()


def test_without_numpy_rows_are_memoryviews(path):
    program = f"""
import sys
sys.modules["numpy"] = None
import cringle
with cringle.BlockIO() as io, cringle.open({str(path)!r}) as file:
    rows = io.read_many(file, [0, {PAGE}], 8)
    assert [bytes(row) for row in rows] == [bytes(8), (512).to_bytes(8, "little")], rows
    pieces, counts = io.read_many(file, [0, {PAGE}], [8, 3], strict=False)
    assert [bytes(piece) for piece in pieces] == [bytes(8), bytes([0, 2, 0])], pieces
    assert type(rows[0]) is type(counts) is memoryview and counts.tolist() == [8, 3]
    assert io.read_many(file, [], 8) == [] and len(io.read_many(file, [], 8, strict=False)[1]) == 0
    assert list(io.read_many(file, [1], [0])[0]) == []
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_lengths_is_another_name_of_length(io, path):
    async def read(file):
        return await io.aread_many(file, [0, PAGE], lengths=[8, 16])

    with cringle.open(path) as file:
        expected = [bytes(DATA[:8]), bytes(DATA[PAGE : PAGE + 16])]
        for pieces in [
            io.read_many(file, [0, PAGE], lengths=[8, 16]),
            io.read_many(file, offsets=[0, PAGE], length=[8, 16]),
            io.start_read_many(file, [0, PAGE], lengths=[8, 16]).result(),
            asyncio.run(read(file)),
            next(io.prefetch(file, [[0, PAGE]], lengths=[8, 16])),
        ]:
            assert [bytes(piece) for piece in pieces] == expected
        rows, counts = io.read_many(file, [0, PAGE], lengths=8, strict=False)
        assert rows.shape == (2, 8) and counts.tolist() == [8, 8]
        out = bytearray(24)
        assert io.read_many(file, [0, PAGE], None, out, lengths=[8, 16]) is out
        assert bytes(out) == b"".join(expected)
        for call in [io.read_many, io.start_read_many, lambda *a, **k: io.prefetch(*a, **k)]:
            with pytest.raises(TypeError, match="length"):
                call(file, [[0]])
            with pytest.raises(TypeError, match="length"):
                call(file, [[0]], 8, lengths=8)


NATIVE = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]


@pytest.mark.parametrize("kind", [*NATIVE, ">i1", ">u2", ">i4", ">i8", ">u8", "<i8"])
def test_offsets_are_read_where_they_lie(io, path, kind):
    values = np.arange(100, dtype=kind)
    shifted = np.frombuffer(b"x" + values.tobytes(), kind, offset=1)
    with cringle.open(path) as file:
        # Aligned and writable, not aligned and not writable, backwards, every other one.
        for offsets in [values, shifted, values[::-1], values[::2], shifted[::-3]]:
            rows = io.read_many(file, offsets, 1)
            assert (rows[:, 0] == DATA[offsets.astype(int)]).all()
