"""CPython's own tests of threads, signals, processes, sockets and event loops."""

import concurrent.futures
import functools
import os
import subprocess
import time
from pathlib import Path

import session
import threads

NEEDS = ("python3",)
BOUND = 3000
# The slowest first, as several run at a time: most tests wait.
MODULES = (
    "test_concurrent_futures test_multiprocessing_fork test_socket test_signal test_asyncio "
    "test_subprocess test_ssl test_faulthandler test_threading test_queue test_select test_poll "
    "test_time test_thread test_threading_local test_sched test_pipes test_fork1 test_wait3 "
    "test_wait4 test_posix test_os"
).split()
AT_A_TIME = 4
if "CRINGLE_PYTHON_TESTS" in os.environ:
    MODULES = os.environ["CRINGLE_PYTHON_TESTS"].split(",")
# It hangs with threads, too, where the machine has no loopback of vsock.
LEFT_OUT = ("test.test_socket.ThreadedVSOCKSocketStreamTest.testStream",)
# A test that writes nothing for so long hangs. With threads the slowest takes a third of it.
SILENT = 60
# Ten threads have three threads of the system below them, and as many numbers of those.
NATIVE_IDS = "threading.get_native_id is the worker's"
KNOWN = {
    f"test_threading.ThreadTests.test_various_ops{stack}": NATIVE_IDS
    for stack in ("", "_small_stack", "_large_stack")
}


@functools.cache
def python():
    """The interpreter that CRINGLE_PYTHON names, or the one with most of the modules."""
    return max(found(), key=lambda interpreter: len(modules(interpreter)), default="python3")


VERSION = (python, "--version")


def found():
    """Interpreters, and no scripts that start them: `python3`, and what pyenv has installed."""
    named = os.environ.get("CRINGLE_PYTHON")
    pyenv = Path.home().glob(".pyenv/versions/3.*/bin/python3")
    for command in [named] if named else ["python3", *sorted(pyenv)]:
        path = printed(command, "import sys; print(sys.executable)")
        if path:
            yield path[0]


@functools.cache
def modules(interpreter):
    """The modules that it has: distributions leave out the package `test`, or parts of it."""
    code = f"""
import importlib.util
for name in {MODULES}:
    if importlib.util.find_spec("test") and importlib.util.find_spec("test." + name):
        print(name)
"""
    return printed(interpreter, code)


def printed(interpreter, code):
    process = subprocess.run(
        [interpreter, "-c", code], capture_output=True, text=True, check=False
    )
    return process.stdout.split()


def lacks():
    return None if modules(python()) else f"{python()} has no package `test`"


def run(side):
    names = modules(python())
    for module in MODULES:
        if module not in names:
            side.test(module, "skipped", f"{python()} has no test.{module}")
    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        for tests in pool.map(lambda name: outcomes(run_module(side, name)), names):
            for name, (outcome, detail) in tests.items():
                side.test(name.removeprefix("test."), outcome, detail)


def run_module(side, module):
    """Runs the tests of a module, beginning again after each that hangs or crashes."""
    path, log = side.dir / f"{module}.outcomes", side.dir / f"{module}.log"
    path.write_text("".join(f"{name}\tskipped\t\n" for name in LEFT_OUT if module in name))
    begin = time.monotonic()
    with open(log, "w") as file:
        while not attempt(side, module, path, file):
            pass
    took = f"  {module}: {time.monotonic() - begin:.0f} s"
    print(took, log.read_text(errors="replace"), sep="\n", file=side.log, flush=True)
    return path


def outcomes(path):
    """The outcome of each test, with a detail: the worst that its lines say."""
    rank = ["begins", "skipped", "passed", "failed", "crashes", "hangs"]
    found = {}
    for line in path.read_text().splitlines():
        name, outcome, detail = line.split("\t", 2)
        if outcome in rank:
            found[name] = max(
                found.get(name, ("begins", "")),
                (outcome, detail),
                key=lambda each: rank.index(each[0]),
            )
    return {
        name: (outcome if outcome in ("skipped", "passed") else "failed", detail or outcome)
        for name, (outcome, detail) in found.items()
    }


def attempt(side, module, path, log):
    """Runs the tests of the module that have not begun yet. Whether there is nothing left."""
    script = Path(__file__).with_name("cpython_cases.py")
    process = side.start([python(), script, module, path], stdout=log, stderr=log)
    size, since = -1, time.monotonic()
    while process.poll() is None and time.monotonic() - since < SILENT:
        if path.stat().st_size != size:
            size, since = path.stat().st_size, time.monotonic()
        time.sleep(0.05)
    outcome = "crashes"
    if process.poll() is None:
        outcome = "hangs"
        pids = [process.pid, *session.descendants(process.pid)]
        print(f"{module} hangs\n{threads.of_all(pids)}", file=log, flush=True)
        for pid in pids:
            session.kill(pid)
        process.wait()
    lines = path.read_text().splitlines()
    if lines and lines[-1] == "-\tfinished\t" and process.returncode == 0:
        return True
    last = lines[-1].split("\t") if lines else ["", ""]
    if last[1] == "begins" or last[1] in ("failed", "passed", "skipped"):
        add(path, last[0], outcome, process.returncode)
        return False
    # It ended between two tests, or before the first one: the rest cannot be run.
    add(
        path, f"test.{module}: {'its end' if lines else 'its begin'}", outcome, process.returncode
    )
    return True


def add(path, name, outcome, status):
    with open(path, "a") as file:
        file.write(f"{name}\t{outcome}\t{outcome}, status {status}\n")
