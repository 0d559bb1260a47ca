"""MariaDB's own tests, by `mtr`: locks, connections, events and ends in `main`, some of `rpl`."""

import re
from pathlib import Path

RUNNER = Path("/usr/share/mysql/mysql-test/mtr")
NEEDS = ("mariadbd", "perl")
VERSION = ("mariadbd", "--version")
BOUND = 400
# Of the suite `main` and of `rpl`, by the begin of their names. Not `main.xa`: it waits for 50 s if
# the server begins the statements of two connections in another order than they were sent in.
TESTS = {
    "main": "connect|deadlock|delayed|events_|flush|kill|lock|pool|processl|shutdown|thread|timeout"
    "|wait|xa_",
    "rpl": "rpl_(connection|semi_sync_event_after|stop_slave)",
}
KNOWN = {}


def lacks():
    return None if RUNNER.exists() else "the package mariadb-test is not installed"


def run(side):
    notes = side.dir / "notes"
    notes.touch()
    notes.chmod(0o666)
    served = [f"--mysqld-env={name}={side.env[name]}" for name in ("LD_PRELOAD",) if side.fibers]
    for suite, names in TESTS.items():
        ended = side.plain(
            [
                RUNNER,
                f"--vardir={side.dir / suite}",
                f"--suite={suite}",
                f"--do-test=^({names})",
                "--force",
                "--max-test-fail=0",
                "--retry=0",
                "--parallel=3",
                "--testcase-timeout=1",
                *served,
                f"--mysqld-env=CRINGLE_NOTES={notes}",
            ],
            BOUND,
            cwd=RUNNER.parent,
        )
        line = re.compile(rf"^({suite}\.\S+(?: '\S+')*) .*\[ (pass|fail|skipped) \]\s*(.*)", re.M)
        for name, outcome, detail in line.findall(ended.output):
            # What it skips is the same on both sides, and most needs a build for debugging.
            if outcome != "skipped":
                side.test(name, outcome == "pass", detail)
    if side.fibers:
        fibers = sum(line.startswith("fiber\t") for line in notes.read_text().splitlines())
        side.figure("threads of its servers that are fibers", fibers)
        if fibers < 100:
            side.test("the threads of its servers are fibers", False, fibers)
