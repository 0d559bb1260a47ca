"""One run of one program on one side: its processes, its folder, its bound in time, its records.

The run is a process of its own, to which every orphan below it is handed (a "child subreaper").
So at the end all its descendants are known by their parents, also daemons, and are killed by id.
"""

import contextlib
import ctypes
import importlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
import traceback
from pathlib import Path

import threads

PR_SET_CHILD_SUBREAPER = 36


class Program:
    """A file of programs/, with what it declares."""

    def __init__(self, name):
        module = importlib.import_module(f"programs.{name}")
        self.name = name
        self.run = module.run
        self.about = module.__doc__.split("\n")[0].rstrip(".")
        # The commands without which it is skipped, and a function that returns another reason.
        self.needs = getattr(module, "NEEDS", ())
        self.lacks = getattr(module, "lacks", lambda: None)
        # Seconds for one round on one side.
        self.bound = getattr(module, "BOUND", 60)
        self.full_bound = getattr(module, "FULL_BOUND", self.bound)
        self.rounds = getattr(module, "ROUNDS", 1)
        self.full_rounds = getattr(module, "FULL_ROUNDS", self.rounds)
        self.sides = getattr(module, "SIDES", ("threads", "fibers"))
        self.full_sides = getattr(module, "FULL_SIDES", self.sides)
        self.version_command = getattr(module, "VERSION", None)
        # Tests that fail on fibers, with the reason.
        self.known = getattr(module, "KNOWN", {})

    def version(self):
        """The number that the program prints first of all, if the file names its command."""
        if not self.version_command:
            return ""
        command = [part() if callable(part) else part for part in self.version_command]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        found = re.search(r"\d+(\.\d+)+", ended.stdout + ended.stderr)
        return found[0] if found else ""

    def missing(self):
        absent = [command for command in self.needs if not shutil.which(command)]
        return f"{absent[0]} is not installed" if absent else self.lacks()


class Stop(Exception):
    """The rest of a run makes no sense."""


class Side:
    """What a program's `run` is given: how to start processes, and where to record results."""

    def __init__(self, name, library, full, folder, records, log):
        self.name, self.full, self.dir = name, full, folder
        self.fibers = name == "fibers"
        self._records, self.log = records, log
        self._started = []
        self.plain_env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        self.env = dict(self.plain_env)
        if self.fibers:
            self.env["LD_PRELOAD"] = str(library)

    # Results.

    def test(self, name, passed, detail=""):
        """Records a test: `passed` is whether it does, or "skipped"."""
        outcome = passed if isinstance(passed, str) else "passed" if passed else "failed"
        detail = " ".join(str(detail).split())[:400]
        self._record(kind="test", name=name, outcome=outcome, detail=detail)
        return outcome == "passed"

    def figure(self, name, value, unit="", bar=None):
        """Records a measurement. `bar` is the ratio to threads that is hoped for, as "<= 1.05"."""
        self._record(kind="figure", name=name, value=value, unit=unit, bar=bar)

    def _record(self, **record):
        self._records.write(json.dumps(record) + "\n")
        self._records.flush()
        print(
            "   ",
            *(f"{v}" for k, v in record.items() if k != "kind" and v),
            file=self.log,
            flush=True,
        )

    def require(self, name, passed, detail=""):
        """Records a test without which the rest makes no sense."""
        if not self.test(name, passed, detail):
            raise Stop(name)

    # Processes.

    def start(self, argv, preload=True, **options):
        """Starts a process, under the library on the side of fibers, unless `preload` is false."""
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", self.log)
        options.setdefault("stderr", self.log)
        env = dict(self.env if preload else self.plain_env, **options.pop("env", {}))
        print("  $", *argv, file=self.log, flush=True)
        options.setdefault("cwd", self.dir)
        process = subprocess.Popen([str(a) for a in argv], env=env, **options)
        self._started.append(process)
        return process

    def call(self, argv, seconds=60, preload=True, alone=True, **options):
        """Runs a process to its end. Returns its status and output; "hangs" if it does not end.

        What it leaves running is killed, unless it is not `alone`: others run at the same time.
        """
        # A file and no pipe, which a daemon of the process would hold open.
        with tempfile.TemporaryFile("w+", errors="replace", dir=self.dir) as output:
            options.setdefault("stderr", output)
            process = self.start(argv, preload, stdout=output, **options)
            status = self.waits(process, seconds)
            if alone:
                self._kill_orphans()
            output.seek(0)
            text = output.read()
        print(f"    {process.args[0]}: status {status}\n{text[-4000:]}", file=self.log, flush=True)
        return Ended(status, text)

    def waits(self, process, seconds):
        """The status of the process, or "hangs": then it is killed with its descendants."""
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            pids = [process.pid, *descendants(process.pid)]
            print(threads.of_all(pids), file=self.log, flush=True)
            for pid in reversed(pids):
                kill(pid)
            process.wait()
            return "hangs"

    def _kill_orphans(self):
        """Kills what processes that have ended left running."""
        running = {process.pid for process in self._started if process.poll() is None}
        for pid in children(os.getpid()):
            if pid not in running:
                for left in [pid, *descendants(pid)]:
                    kill(left)

    def plain(self, argv, seconds=60, **options):
        """The same with plain threads on both sides: clients and tools."""
        return self.call(argv, seconds, preload=False, **options)

    def until(self, condition, process=None, seconds=30):
        """Whether the condition comes true before the process ends and the time is over."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                if condition():
                    return True
            if process is not None and process.poll() is not None:
                return False
            time.sleep(0.02)
        return False

    def ends(self, process, sig=signal.SIGTERM, seconds=30):
        """Sends a signal; the status of the process, or "hangs"."""
        process.send_signal(sig)
        return self.waits(process, seconds)

    def compile(self, source, *flags):
        """Compiles a C source that is beside the programs; the path of the binary."""
        binary = self.dir / Path(source).stem
        source = Path(__file__).resolve().parent / "programs" / source
        built = self.plain(["cc", "-O2", "-Wall", "-o", binary, source, "-pthread", *flags])
        if built.status != 0:
            raise Stop(f"{source}: {built.output}")
        return binary


class Ended:
    def __init__(self, status, output):
        self.status, self.output = status, output


def run(program, side, library, full, log):
    """Runs the program once in a fresh folder, within its bound. Returns the records."""
    folder = Path(tempfile.mkdtemp(prefix=f"cringle-{program.name}-"))
    folder.chmod(0o755)
    records = log.with_suffix(".json")
    with open(log, "w") as out, open(records, "w") as file:
        finished, finish = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.setsid()
                ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
                _run(program, Side(side, library, full, folder, file, out))
                os.close(finish)
                # Adopts the orphans until the parent has killed them.
                signal.pause()
            finally:
                os._exit(1)
        os.close(finish)
        bound = program.full_bound if full else program.bound
        try:
            if not select.select([finished], [], [], bound)[0]:
                # What it records from now on would be of what has been killed.
                os.kill(child, signal.SIGSTOP)
                stand = threads.of_all(descendants(child))
                out.write(f"\nStill running at the end of its time:\n{stand}\n")
                file.write(
                    json.dumps(
                        {
                            "kind": "test",
                            "name": "ends in time",
                            "outcome": "failed",
                            "detail": f"hangs for {bound} s",
                        }
                    )
                    + "\n"
                )
        finally:
            os.close(finished)
            _end(child)
            shutil.rmtree(folder, ignore_errors=True)
    return [json.loads(line) for line in records.read_text().splitlines()]


def _run(program, side):
    try:
        program.run(side)
    except Stop as stop:
        print(f"stopped: {stop}", file=side.log, flush=True)
    except BaseException as error:
        traceback.print_exc(file=side.log)
        side.test("the script ends", False, repr(error))


def _end(child):
    """Kills what the run has left, and the run."""
    while left := descendants(child):
        for pid in left:
            kill(pid)
        time.sleep(0.02)
    kill(child)
    os.waitpid(child, 0)


def descendants(root):
    """The processes below this one, the nearest first."""
    parents = _parents()
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def children(pid):
    return [child for child, parent in _parents().items() if parent == pid]


def _parents():
    """The parent of each process that runs."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    parents[int(entry)] = int(fields[1])
    return parents


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
