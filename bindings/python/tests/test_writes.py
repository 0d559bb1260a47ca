"""Writes, and that they are durable when asked."""

import numpy as np
import pytest

import cringle
from conftest import PAGE


@pytest.mark.parametrize("direct", [False, True])
def test_writes_are_read_again(io, directory, direct):
    path = directory / "new"
    rows = np.random.default_rng(1).integers(0, 256, (100, PAGE), np.uint8)
    offsets = np.random.default_rng(2).permutation(100) * PAGE
    with cringle.open(path, "x+", direct=direct) as file:
        assert io.write_many(file, offsets, rows) is None
        io.fsync(file)
        io.fsync(file, data_only=True)
        assert (io.read_many(file, offsets, PAGE) == rows).all()
        parts = [b"abc", bytearray(b"de"), np.arange(3, dtype=np.int16), memoryview(b"")]
        counts = io.write_many(file, [1, 5000, 9000, 7], parts, strict=False)
    assert counts.tolist() == [3, 2, 6, 0]
    written = path.read_bytes()
    assert written[1:4] == b"abc" and written[5000:5002] == b"de"
    assert written[9000:9006] == parts[2].tobytes()


def test_modes_are_those_of_open(io, directory):
    path = directory / "new"
    with pytest.raises(FileNotFoundError) as error:
        cringle.open(path)
    assert error.value.filename == str(path)
    with cringle.open(path, "wb", permissions=0o600) as file:
        io.write_many(file, [0], b"0123456789")
        with pytest.raises(cringle.BatchError, match="r\\+"):
            io.read_many(file, [0], 4)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        cringle.open(path, "x")
    with cringle.open(str(path), "r+") as file:
        io.write_many(file, [2], b"ab")
        assert bytes(io.read_many(file, [0], 10)[0]) == b"01ab456789"
    with cringle.open(bytes(path), "w+") as file:
        assert file.size == 0
    with cringle.open(path) as file:
        with pytest.raises(cringle.BatchError) as error:
            io.write_many(file, [0], b"x")
    assert error.value.errno == 9 and error.value.filename == str(path)


def test_write_many_checks_its_data(io, directory):
    with cringle.open(directory / "new", "w") as file:
        for offsets, data, words in [
            ([0, 1], b"abc", "2 writes cannot share equally"),
            ([], b"abc", "0 writes"),
            ([0], [b"a", b"b"], "data has 2 buffers, and offsets 1"),
            ([0], np.zeros((4, 4))[:, 1], "contiguous"),
        ]:
            with pytest.raises(ValueError, match=words):
                io.write_many(file, offsets, data)
        for data in ["text", 7, None, [1]]:
            with pytest.raises(TypeError, match="contiguous buffer"):
                io.write_many(file, [0], data)
        io.write_many(file, [], b"")
        io.write_many(file, [], [])
