"""Results as bytes."""

import asyncio
import errno
import subprocess
import sys

import numpy as np
import pytest

import cringle
from conftest import PAGE, pattern

DATA = pattern(64 * PAGE)
MAX = 2**63 - 1


@pytest.mark.parametrize("options", [{}, {"direct": True}, {"mapped": True}])
@pytest.mark.parametrize("count", [0, 1, 16, 1000])
def test_bytes_are_those_at_the_offsets(io, path, options, count):
    offsets = np.random.default_rng(2).integers(0, 63 * PAGE, count)
    lengths = np.arange(count) % 700
    with cringle.open(path, **options) as file:
        for length, expected in [
            (100, [DATA[at : at + 100] for at in offsets]),
            (lengths, [DATA[at : at + n] for at, n in zip(offsets, lengths)]),
        ]:
            for pieces in [
                io.read_many(file, offsets, length, as_bytes=True),
                io.start_read_many(file, offsets, length, as_bytes=True).result(),
                asyncio.run(io.aread_many(file, offsets, length, as_bytes=True)),
                next(io.prefetch(file, [offsets], length, as_bytes=True)),
            ]:
                assert pieces == expected and all(type(piece) is bytes for piece in pieces)


def test_bytes_have_what_was_read(io, path, directory):
    # A reused buffer, whose bytes must not appear.
    with cringle.open(path) as file:
        io.read_many(file, [0] * 4, PAGE)
        pieces, counts = io.read_many(
            file, [0, 64 * PAGE - 3, 1 << 40, MAX], PAGE, strict=False, as_bytes=True
        )
        assert pieces == [DATA[:PAGE], DATA[-3:], b"", b""]
        assert counts.tolist() == [PAGE, 3, 0, -errno.EINVAL]
        with pytest.raises(cringle.ShortCountError, match="short count: 3 bytes"):
            io.read_many(file, [64 * PAGE - 3], PAGE, as_bytes=True)
        assert io.read_many(file, [5], 0, as_bytes=True) == [b""]
        assert io.read_many(file, np.array([]), PAGE, as_bytes=True) == []


def test_bytes_are_independent_of_numpy(path):
    program = f"""
import sys
if {{numpy}}:
    import numpy
else:
    sys.modules["numpy"] = None
import cringle
with cringle.BlockIO() as io, cringle.open({str(path)!r}) as file:
    print(io.read_many(file, [0, {PAGE}], 8, as_bytes=True))
    print(io.read_many(file, [], 8, as_bytes=True), io.read_many(file, [8], [2], as_bytes=True))
"""
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program.format(numpy=numpy)], check=True, capture_output=True
        ).stdout
        for numpy in (True, False)
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0].startswith(b"[b'\\x00"), outputs


def test_out_and_bytes_exclude_each_other(io, path):
    with cringle.open(path) as file:
        for out in [bytearray(8), object()]:
            with pytest.raises(ValueError, match="out and as_bytes exclude each other"):
                io.read_many(file, [0], 8, out, as_bytes=True)
        for wrong in [1, "yes", None]:
            with pytest.raises(TypeError):
                io.read_many(file, [0], 8, as_bytes=wrong)
        with pytest.raises(TypeError):
            io.read_many(file, [0], 8, None, True)


def test_transport_takes_bytes(io, path):
    async def main():
        received = bytearray()

        async def echo(reader, writer):
            received.extend(await reader.read())
            writer.close()

        async with await asyncio.start_server(echo, "127.0.0.1", 0) as listener:
            _, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
            with cringle.open(path) as file:
                writer.writelines(await io.aread_many(file, [0, PAGE], PAGE, as_bytes=True))
            writer.write_eof()
            await writer.drain()
            await _.read()
            writer.close()
        assert received == DATA[: 2 * PAGE]

    asyncio.run(main())
