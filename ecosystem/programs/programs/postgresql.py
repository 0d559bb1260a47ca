"""PostgreSQL: pgbench -j 4, psql and pg_dump -j 4, and a server under the library."""

import re
import signal
from pathlib import Path

BINARIES = max(Path("/usr/lib/postgresql").glob("*/bin"), default=Path("/nonexistent"))
NEEDS = ("pgbench", "psql", "setpriv")
VERSION = ("pgbench", "--version")
BOUND = 120
ROUNDS = 3
# The server refuses to run as root.
AS_POSTGRES = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")


def lacks():
    return None if (BINARIES / "initdb").exists() else "PostgreSQL's server is not installed"


def run(side):
    home = side.dir / "postgres"
    home.mkdir()
    home.chmod(0o777)
    at = ["-h", home, "-U", "postgres"]
    made = side.call(
        [*AS_POSTGRES, BINARIES / "initdb", "-D", home / "data", "-A", "trust", "-N"], 60
    )
    side.require("initdb", made.status == 0, made.output[-200:])
    server = side.start(
        [
            *AS_POSTGRES,
            BINARIES / "postgres",
            "-D",
            home / "data",
            "-k",
            home,
            "-c",
            "listen_addresses=",
            "-c",
            "max_connections=200",
        ]
    )
    ready = [BINARIES / "pg_isready", "-q", *at]
    side.require(
        "the server starts", side.until(lambda: side.plain(ready).status == 0, server, 30)
    )

    made = side.call(["pgbench", *at, "-i", "-s", 5, "-q", "postgres"], 60)
    side.require("pgbench -i", made.status == 0, made.output[-200:])
    for name, options in {"selects": ["-S"], "transactions": []}.items():
        ended = side.call(
            ["pgbench", *at, "-n", *options, "-c", 32, "-j", 4, "-T", 4, "postgres"], 40
        )
        rate = re.search(r"tps = ([\d.]+)", ended.output)
        failed = re.search(r"failed transactions: (\d+)", ended.output)
        if side.test(
            f"pgbench -j 4, {name}",
            ended.status == 0 and rate and (not failed or failed[1] == "0"),
            ended.output[-200:],
        ):
            side.figure(f"pgbench -j 4 -c 32, {name}/s", float(rate[1]))
    ended = side.call(
        ["psql", *at, "-At", "-c", "SELECT count(*) FROM pgbench_accounts", "postgres"], 20
    )
    side.test("psql", ended.output.strip() == "500000", ended.output[-200:])
    ended = side.call(["pg_dump", *at, "-Fd", "-j", 4, "-f", side.dir / "dump", "postgres"], 40)
    side.test("pg_dump -j 4", ended.status == 0, ended.output[-200:])
    status = side.ends(server, signal.SIGINT, 30)
    side.test("SIGINT ends the server", status == 0, status)
