"""Empty batches, the largest offset, directories, devices, and the memory of a mapping."""

import errno
import os
import stat
import subprocess
import sys

import numpy as np
import pytest

import cringle
from conftest import PAGE, pattern

DATA = pattern(64 * PAGE)
MAX = 2**63 - 1


@pytest.mark.parametrize("kind", [None, "f4", "f8", "g", "c16", "?", "S4", "O", "i8", "u1"])
def test_empty_array_is_an_empty_batch(io, path, kind):
    empty = np.array([]) if kind is None else np.array([], kind)
    with cringle.open(path) as file:
        assert io.read_many(file, empty, PAGE).shape == (0, PAGE)
        assert io.read_many(file, empty, empty) == []
        for wrong in [np.zeros((0, 3)), np.zeros((3, 0))]:
            with pytest.raises(ValueError, match="2 dimensions"):
                io.read_many(file, wrong, PAGE)
    with cringle.open(path, "r+") as file:
        io.write_many(file, empty, b"")
    assert path.read_bytes() == DATA


@pytest.mark.parametrize("options", [{}, {"direct": True}, {"mapped": True}])
def test_largest_offset_is_named(io, path, options):
    with cringle.open(path, "r+", **options) as file:
        for call in [
            lambda: io.read_many(file, [0, MAX], PAGE),
            lambda: io.read_many(file, [0, MAX - 4096], PAGE + 1),
            lambda: io.read_into([(file, MAX, bytearray(1))]),
            lambda: io.write_many(file, [MAX], b"a"),
        ]:
            with pytest.raises(cringle.BatchError, match=f"largest offset is {MAX}") as raised:
                call()
            assert raised.value.errno == errno.EINVAL
            assert "::" not in str(raised.value) and "multiple" not in str(raised.value)
    assert path.read_bytes() == DATA


def test_misalignment_has_words_of_python(io, path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    with cringle.open(fd) as file, pytest.raises(cringle.BatchError) as raised:
        io.read_many(file, [1], 100)
    os.close(fd)
    assert "cringle.Buffer" in str(raised.value) and "::" not in str(raised.value)


def test_open_of_a_directory_is_an_error(directory):
    descriptors = len(os.listdir("/proc/self/fd"))
    fd = os.open(directory, os.O_RDONLY)
    for target in [directory, str(directory), os.fsencode(directory), fd]:
        for options in [{}, {"direct": True}, {"mapped": True}]:
            if target == fd and "direct" in options:
                continue
            with pytest.raises(IsADirectoryError) as raised:
                cringle.open(target, **options)
            assert raised.value.errno == errno.EISDIR and raised.value.filename is not None
    os.close(fd)
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_size_of_a_block_device_is_its_bytes(io, path):
    made = subprocess.run(
        ["losetup", "--find", "--show", "--read-only", path], capture_output=True, text=True
    ) if os.geteuid() == 0 and os.path.exists("/dev/loop-control") else None
    if made is None or made.returncode != 0:
        pytest.skip(f"no loop device: {made.stderr if made else 'root and loop-control are needed'}")
    device = made.stdout.strip()
    try:
        assert stat.S_ISBLK(os.stat(device).st_mode)
        for options in [{}, {"direct": True}]:
            with cringle.open(device, **options) as file:
                assert file.size == 64 * PAGE
                assert bytes(io.read_many(file, [PAGE], PAGE)[0]) == DATA[PAGE : 2 * PAGE]
        # A descriptor whose cursor is elsewhere, and stays there.
        with open(device, "rb", 0) as owner:
            owner.seek(7)
            with cringle.open(owner.fileno()) as file:
                assert file.size == 64 * PAGE
            assert owner.tell() == 7
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
    with cringle.open("/dev/null") as file:
        assert file.size == 0


def test_mapped_pages_count_as_memory_of_the_process(directory):
    path = directory / "large"
    path.write_bytes(bytes(64 << 20))
    program = f"""
import cringle
def rss():
    lines = dict(line.split(":") for line in open("/proc/self/status"))
    return int(lines["RssFile"].split()[0]) >> 10
before = rss()
with cringle.BlockIO() as io, cringle.open({str(path)!r}, {{options}}) as file:
    print(file.mapped)
    out = bytearray(1 << 20)
    for at in range(0, 64 << 20, 1 << 20):
        io.read_many(file, [at], 1 << 20, out)
    print(rss() - before)
"""
    for options, least, most in [("mapped=True", 32, 80), ("", -80, 16)]:
        ran = subprocess.run(
            [sys.executable, "-c", program.format(options=options)], capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr
        is_mapped, grown = ran.stdout.split()
        if options and is_mapped == "False":
            pytest.skip("the file is not mapped on this file system")
        assert least <= int(grown) <= most, (options, ran.stdout)
