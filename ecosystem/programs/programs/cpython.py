"""CPython's own tests of threads, signals, processes, sockets and event loops."""

import os
import subprocess
import time
from pathlib import Path

import session
import threads

NEEDS = ("python3",)
BOUND = 3000
MODULES = (
    "test_thread test_threading test_threading_local test_queue test_select test_poll test_time "
    "test_signal test_socket test_subprocess test_concurrent_futures test_multiprocessing_fork "
    "test_asyncio test_ssl test_sched test_pipes test_fork1 test_wait3 test_wait4 test_posix "
    "test_os test_faulthandler"
).split()
if "CRINGLE_PYTHON_TESTS" in os.environ:
    MODULES = os.environ["CRINGLE_PYTHON_TESTS"].split(",")
# A test that writes nothing for so long hangs. With threads the slowest takes a third of it.
SILENT = 60
# Ten threads have three threads of the system below them, and as many numbers of those.
NATIVE_IDS = "threading.get_native_id is the worker's"
KNOWN = {
    f"test_threading.ThreadTests.test_various_ops{stack}": NATIVE_IDS
    for stack in ("", "_small_stack", "_large_stack")
}


def python():
    """The interpreter that CRINGLE_PYTHON names, or python3: no script that starts it."""
    found = subprocess.run(
        [os.environ.get("CRINGLE_PYTHON", "python3"), "-c", "import sys; print(sys.executable)"],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip()


def has(interpreter, module):
    """Whether the package `test` has the module: distributions leave out some, or all."""
    code = f"import importlib.util as u; exit(u.find_spec('test.{module}') is None)"
    return (
        subprocess.run([interpreter, "-c", code], capture_output=True, check=False).returncode
        == 0
    )


def lacks():
    if any(has(python(), module) for module in MODULES):
        return None
    return f"{python()} has no package `test`"


def run(side):
    interpreter = python()
    for module in MODULES:
        if not has(interpreter, module):
            side.test(module, "skipped", f"{interpreter} has no test.{module}")
            continue
        path = side.dir / f"{module}.outcomes"
        path.touch()
        begin = time.monotonic()
        while not attempt(side, interpreter, module, path):
            pass
        for name, (outcome, detail) in outcomes(path).items():
            side.test(name.removeprefix("test."), outcome, detail)
        print(f"  {module}: {time.monotonic() - begin:.0f} s", file=side.log, flush=True)


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


def attempt(side, interpreter, module, path):
    """Runs the tests of the module that have not begun yet. Whether there is nothing left."""
    script = Path(__file__).with_name("cpython_cases.py")
    process = side.start([interpreter, script, module, path])
    size, since = -1, time.monotonic()
    while process.poll() is None and time.monotonic() - since < SILENT:
        if path.stat().st_size != size:
            size, since = path.stat().st_size, time.monotonic()
        time.sleep(0.05)
    outcome = "crashes"
    if process.poll() is None:
        outcome = "hangs"
        pids = [process.pid, *session.descendants(process.pid)]
        print(f"{module} hangs\n{threads.of_all(pids)}", file=side.log, flush=True)
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
