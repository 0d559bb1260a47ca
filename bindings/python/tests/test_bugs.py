"""A bug of the compiled half, a panic of a worker, is an exception of the call."""

import os
import subprocess
import sys

import pytest

from slow import slow  # noqa: F401: a fixture

pytestmark = pytest.mark.skipif(
    os.environ.get("PROFILE", "dev") != "dev", reason="the build has no debug assertions"
)

PROLOGUE = """
import os, sys, threading
import cringle
path = sys.argv[1]

def check(call):
    try:
        call()
    except RuntimeError as error:
        assert "a bug of the library" in str(error), error
    else:
        raise AssertionError("no exception")
"""

PROGRAMS = {
    "jobs": """
import asyncio
with cringle.BlockIO() as io, cringle.open(path, direct=True) as file:
    check(lambda: io.read_many(file, [0], 4096))
    check(lambda: io.fsync(file))
    check(lambda: asyncio.run(io.aread_many(file, [0], 4096)))
""",
    # The worker takes the first part while the calling thread waits for the memory of the last one.
    "copies": """
sys.path.insert(0, os.environ["TESTS"])
from slow import SlowMemory
slow = SlowMemory(256)
messages, writer = os.pipe()
os.dup2(writer, 2)

def release():
    text = b""
    while b"sabotaged" not in text:
        text += os.read(messages, 4096)
    slow.release()

thread = threading.Thread(target=release)
thread.start()
with cringle.BlockIO() as io, cringle.open(path, mapped=True) as file:
    offsets = [n % 64 * 4096 for n in range(256)]
    check(lambda: io.read_many(file, offsets, 4096, slow.map))
thread.join()
""",
}


@pytest.mark.parametrize("place", PROGRAMS)
def test_panic_of_a_worker_is_an_exception(path, place, slow):
    slow.release()
    command = [sys.executable, "-X", "faulthandler", "-c", PROLOGUE + PROGRAMS[place], path]
    more = {"CRINGLE_PYTHON_SABOTAGE": place, "TESTS": os.path.dirname(__file__)}
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **more})
    assert ran.returncode == 0, ran
