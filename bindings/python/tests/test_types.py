"""A type checker knows what each call returns."""

import subprocess
import sys

import pytest

pytest.importorskip("mypy")

PROGRAM = '''
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import cringle

Rows, Counts = NDArray[np.uint8], NDArray[np.int64]


async def main(strict: bool) -> None:
    with cringle.BlockIO() as io, cringle.open("file") as file:
        assert_type(io.read_many(file, [0], 8), NDArray[np.uint8])
        assert_type(io.read_many(file, [0], [8]), list[NDArray[np.uint8]])
        assert_type(io.read_many(file, [0], lengths=[8]), list[NDArray[np.uint8]])
        assert_type(io.read_many(file, [0], 8, bytearray(8)), bytearray)
        assert_type(io.read_many(file, [0], 8, as_bytes=True), list[bytes])
        assert_type(io.read_many(file, [0], [8], as_bytes=True), list[bytes])
        assert_type(io.read_many(file, [0], lengths=[8], as_bytes=True), list[bytes])
        assert_type(
            io.read_many(file, [0], 8, strict=False, as_bytes=True),
            tuple[list[bytes], NDArray[np.int64]],
        )
        assert_type(
            io.read_many(file, [0], 8, strict=False), tuple[NDArray[np.uint8], NDArray[np.int64]]
        )
        assert_type(io.read_many(file, [0], 8, strict=strict, as_bytes=strict), Any)
        io.read_many(file, [0], 8, as_bytes=1)  # type: ignore[call-overload]
        pieces: list[bytes] = await io.aread_many(file, [0], 8, as_bytes=True)
        assert_type(file.size, int)
'''


def test_calls_have_their_types(directory):
    program = directory / "program.py"
    program.write_text(PROGRAM)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", directory / "cache", program],
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
