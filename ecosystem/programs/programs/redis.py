"""Redis with io-threads 4, an append-only file and a dump while it serves."""

import signal

import threads
from programs import net

NEEDS = ("redis-server", "redis-benchmark", "redis-cli")
VERSION = ("redis-server", "--version")
BOUND = 120
ROUNDS = 3


def run(side):
    port = net.free_port()
    server = side.start(
        [
            "redis-server",
            "--port",
            port,
            "--bind",
            "127.0.0.1",
            "--dir",
            side.dir,
            "--io-threads",
            4,
            "--io-threads-do-reads",
            "yes",
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
        ]
    )

    def ask(*words, seconds=30):
        return side.plain(["redis-cli", "-p", port, *words], seconds).output.strip()

    side.require("it answers", side.until(lambda: ask("ping") == "PONG", server, 20))
    for pipeline in (1, 16):
        ended = side.plain(
            [
                "redis-benchmark",
                "-p",
                port,
                "-c",
                200,
                "-n",
                40_000,
                "-P",
                pipeline,
                "-t",
                "set,get",
                "--csv",
            ],
            40,
        )
        rows = [line.replace('"', "").split(",") for line in ended.output.splitlines()]
        rows = {row[0]: float(row[1]) for row in rows if row[0] in ("SET", "GET")}
        side.test(
            f"redis-benchmark -P {pipeline} ends",
            ended.status == 0 and len(rows) == 2,
            ended.status,
        )
        for name, rate in rows.items():
            side.figure(f"{name}, 200 clients, -P {pipeline}: requests/s", rate)
    side.figure("threads of the system", threads.kernel_threads(server.pid))
    ask("debug", "populate", "100000")
    side.test("BGSAVE", "started" in ask("bgsave"))
    side.test(
        "BGSAVE ends",
        side.until(lambda: "rdb_bgsave_in_progress:0" in ask("info", "persistence"), server, 30),
    )
    side.test("FLUSHALL ASYNC", ask("flushall", "async") == "OK")
    side.test(
        "its threads free the memory",
        side.until(lambda: "lazyfree_pending_objects:0" in ask("info", "memory"), server, 30),
    )
    status = side.ends(server, signal.SIGTERM, 30)
    side.test("SIGTERM ends it", status == 0, status)
