"""MariaDB under sysbench: point selects and updates, beside its own pool of threads."""

import time

import threads
from programs import mariadbd

NEEDS = mariadbd.NEEDS
VERSION = ("mariadbd", "--version")
FULL_SIDES = ("threads", "fibers", "pool")
BOUND, FULL_BOUND = 300, 400
ROUNDS, FULL_ROUNDS = 3, 5
# The bars of transactions for each number of connections, against threads.
CONNECTIONS = {16: ">= 1.0", 500: ">= 1.5", 2000: ">= 1.5"}
TESTS = {"oltp_point_select": "selects", "oltp_update_index": "updates"}


def run(side):
    seconds = 10 if side.full else 3
    pool = ["--thread-handling=pool-of-threads"] if side.name == "pool" else []
    server = mariadbd.Server(side, *pool)
    side.require("the folder is made", server.install(preload=False) == 0)
    side.require("the server starts", server.begin())
    server.sql("CREATE DATABASE sb")
    prepared = side.plain(server.sysbench("oltp_point_select", "prepare"), 120)
    side.require("the tables are filled", prepared.status == 0, prepared.output[-200:])
    for count, bar in CONNECTIONS.items():
        for test, what in TESTS.items():
            load(side, server, test, f"{what}, {count} connections", count, seconds, bar)
    # Measures how much it takes to end, too; the program `mariadb` tests it.
    side.ends(server.process, seconds=60)


def load(side, server, test, name, count, seconds, bar):
    # A client that does not end by itself ends by its own bound.
    client = server.sysbench(
        test, "run", f"--threads={count}", f"--time={seconds}", "--forced-shutdown=20"
    )
    begin = time.monotonic()
    (side.dir / "out").unlink(missing_ok=True)
    with open(side.dir / "out", "w") as out:
        process = side.start(client, preload=False, stdout=out, stderr=out)
        side.until(lambda: "Threads started" in (side.dir / "out").read_text(), process, 60)
        side.until(lambda: False, process, seconds / 2)
        number, memory = threads.kernel_threads(server.process.pid), threads.rss_kib(
            server.process.pid
        )
        side.until(lambda: process.poll() is not None, None, seconds + 60)
        process.kill()
        process.wait()
    output = (side.dir / "out").read_text()
    print(output[-3000:], f"{time.monotonic() - begin:.1f} s", file=side.log, flush=True)
    rate, p95, p99 = mariadbd.figures(output)
    if not side.test(
        f"{name}: sysbench ends without error",
        process.returncode == 0 and rate > 0,
        output[-200:],
    ):
        return
    side.figure(f"{name}: transactions/s", rate, "", bar)
    side.figure(f"{name}: p95", p95, "ms", "<= 1.2" if count == 500 else None)
    side.figure(f"{name}: p99", p99, "ms")
    side.figure(f"{name}: threads of the system", number)
    side.figure(f"{name}: RSS", memory / 1024, "MiB")
