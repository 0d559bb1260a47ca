"""The end of the interpreter with work under way."""

import os
import subprocess
import sys

import pytest

import cringle
from conftest import PAGE
from slow import slow  # noqa: F401: a fixture

PROLOGUE = """
import atexit, os, sys, threading
import cringle
path = sys.argv[1]
io = cringle.BlockIO(depth=8)
file = cringle.open(path, direct=True)
offsets = [n % 64 * 4096 for n in range(3000)]
"""

PROGRAMS = {
    "reads are dropped": "pending = [io.start_read_many(file, offsets, 4096) for _ in range(4)]",
    "reads are in no variable": "[io.start_read_many(file, offsets, 4096) for _ in range(4)]",
    "daemon threads read": """
begun = threading.Barrier(5)
def read():
    begun.wait()
    try:
        while True:
            io.read_many(file, offsets, 4096)
    except ValueError as error:
        os.write(1, str(error).encode())
for _ in range(4):
    threading.Thread(target=read, daemon=True).start()
begun.wait()
""",
    "daemon threads open files": """
begun = threading.Barrier(5)
def open_and_close():
    begun.wait()
    try:
        while True:
            cringle.open(path).close()
            cringle.open(path, direct=True)
    except RuntimeError as error:
        os.write(1, str(error).encode())
for _ in range(4):
    threading.Thread(target=open_and_close, daemon=True).start()
begun.wait()
# In the midst of it: their end depends on where each of them is.
for _ in range(20):
    cringle.open(path).size
""",
    "daemon threads make engines": """
begun = threading.Barrier(5)
def make():
    begun.wait()
    try:
        while True:
            cringle.BlockIO().close()
            cringle.BlockIO()
    except RuntimeError as error:
        os.write(1, str(error).encode())
for _ in range(4):
    threading.Thread(target=make, daemon=True).start()
begun.wait()
for _ in range(20):
    cringle.open(path).size
""",
    "daemon threads are in the code of arguments": """
begun = threading.Barrier(4)
class Index:
    def __index__(self):
        return sum(range(100)) - 4950
def read(make):
    begun.wait()
    try:
        while True:
            make()
    except ValueError as error:
        os.write(1, str(error).encode())
for make in [
    lambda: io.read_many(file, (sum(range(100)) - 4950 for _ in range(3000)), 0),
    lambda: io.read_many(file, [Index()] * 3000, 0),
    lambda: io.read_into((file, Index(), bytearray()) for _ in range(3000)),
]:
    threading.Thread(target=read, args=(make,), daemon=True).start()
begun.wait()
""",
    "a daemon thread waits for ever in the code of an argument": """
begun = threading.Event()
def offsets():
    begun.set()
    threading.Event().wait()
    yield 0
threading.Thread(target=lambda: io.read_many(file, offsets(), 0), daemon=True).start()
begun.wait()
""",
    "a daemon thread opens a FIFO": """
fifo = path + ".fifo"
os.mkfifo(fifo)
begun = threading.Event()
def open_fifo():
    begun.set()
    cringle.open(fifo)
threading.Thread(target=open_fifo, daemon=True).start()
begun.wait()
# The other end is opened after the engines are closed: exit handlers run in the reverse order.
atexit._clear()
atexit.register(lambda: os.close(os.open(fifo, os.O_WRONLY)))
atexit.register(cringle._native.shutdown)
""",
    "an object of a cycle is collected at the end": """
class Cycle: pass
cycle = Cycle()
cycle.cycle, cycle.io, cycle.pending = cycle, io, io.start_read_many(file, offsets, 4096)
del io, cycle
""",
    "exit handlers read": """
atexit.register(lambda: io.read_many(file, offsets, 4096))
""",
    "an uncaught exception": """
pending = io.start_read_many(file, offsets, 4096)
sys.exit(0) if pending else None
""",
    "a finaliser creates an engine": """
class Last:
    def __del__(self, cringle=cringle):
        try:
            cringle.BlockIO()
        except RuntimeError as error:
            os.write(1, str(error).encode())
last = Last()
last.self = last
""",
    "an eventfd is written after its loop": """
import asyncio
async def main():
    task = asyncio.create_task(io.aread_many(file, offsets, 4096))
    await asyncio.sleep(0)
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
loop.close()
import logging
logging.disable()
""",
}


# Those whose end depends on where the threads are.
RACES = ["daemon threads open files"] * 15
RACES += ["daemon threads are in the code of arguments", "a daemon thread opens a FIFO"] * 5
RACES += ["daemon threads make engines"] * 5


@pytest.mark.parametrize("name", [*PROGRAMS, *RACES])
def test_interpreter_ends_with_work_under_way(path, name):
    command = [sys.executable, "-X", "faulthandler", "-c", PROLOGUE + PROGRAMS[name], path]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran
    assert ran.stderr == "", ran


# A fork while another thread reads: the child has a copy of all state, and one thread.
FORKS = """
import os, pathlib, resource, signal, sys, threading
import cringle
sys.path.insert(0, os.environ["TESTS"])
from slow import SlowMemory
io = cringle.BlockIO()
file = cringle.open(sys.argv[1], direct=True)
slow = SlowMemory(4)
main = threading.get_ident()

def end_of_child():
    with cringle.BlockIO() as own:
        own.read_many(file, [0], 4096)
    # A loop at the end of the interpreter ends the child.
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
    sys.exit(3)

def end(child):
    _, status = os.waitpid(child, 0)
    slow.release()
    assert os.waitstatus_to_exitcode(status) == 3, status
"""
FORKING_THREADS = {
    "beside a thread that waits": """
thread = threading.Thread(target=lambda: io.read_many(file, [0], 4 * 4096, slow.map))
thread.start()
slow.wait()
child = os.fork()
if child == 0:
    end_of_child()
end(child)
thread.join()
""",
    "by a signal's handler of a thread that waits": """
def fork(*_):
    child = os.fork()
    if child == 0:
        end_of_child()
    end(child)
signal.signal(signal.SIGUSR1, fork)
def send():
    slow.wait()
    signal.pthread_kill(main, signal.SIGUSR1)
thread = threading.Thread(target=send)
thread.start()
io.read_many(file, [0], 4 * 4096, slow.map)
thread.join()
""",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FORKING_THREADS)
def test_child_of_fork_ends_as_any_interpreter(path, name, slow):
    slow.release()
    program = FORKS + FORKING_THREADS[name]
    command = [sys.executable, "-W", "ignore", "-X", "faulthandler", "-c", program, path]
    environment = {**os.environ, "TESTS": os.path.dirname(__file__)}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", ""), ran


def test_subinterpreter_is_refused_and_harms_nothing(io, path):
    if sys.version_info < (3, 13):
        interpreters = pytest.importorskip("_xxsubinterpreters")
        other = interpreters.create()
    else:
        interpreters = pytest.importorskip("_interpreters")
        # CPython itself refuses the import into an isolated one.
        other = interpreters.create("legacy")
    script = """
try:
    import cringle
except ImportError as error:
    assert "main interpreter" in str(error), error
else:
    raise AssertionError("imported")
"""
    # It raises an exception, or returns it.
    assert interpreters.run_string(other, script) is None
    interpreters.destroy(other)
    with cringle.open(path) as file:
        assert bytes(io.read_many(file, [0], 8)[0]) == bytes(8)
