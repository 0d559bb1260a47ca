"""A private MariaDB: its own folder and socket, no network."""

import contextlib
import os
import re

NEEDS = ("mariadbd", "mariadb-install-db", "mariadb", "sysbench")


class Server:
    def __init__(self, side, *options):
        self.side, self.options = side, options
        self.data, self.socket = side.dir / "data", side.dir / "s"
        self.process = None

    def install(self, preload=True):
        return self.side.call(
            [
                "mariadb-install-db",
                "--no-defaults",
                "--user=root",
                "--basedir=/usr",
                f"--datadir={self.data}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ],
            120,
            preload,
        ).status

    def begin(self, seconds=60):
        """Starts the server. Whether it answers."""
        self.log_begins = os.path.getsize(self.side.log.name)
        self.process = self.side.start(
            [
                "mariadbd",
                "--no-defaults",
                "--user=root",
                f"--datadir={self.data}",
                "--skip-networking",
                f"--socket={self.socket}",
                f"--pid-file={self.side.dir}/pid",
                "--max-connections=4000",
                "--back-log=4000",
                "--table-open-cache=8000",
                "--open-files-limit=20000",
                "--innodb-buffer-pool-size=512M",
                "--innodb-flush-log-at-trx-commit=1",
                *self.options,
            ]
        )
        return self.side.until(
            lambda: self.sql("SELECT 1", quiet=True) == "1", self.process, seconds
        )

    def said(self, text):
        """Whether the server has written this to its log since its start."""
        with open(self.side.log.name, errors="replace") as log:
            log.seek(self.log_begins)
            return text in log.read()

    def client(self, *arguments):
        return [
            "mariadb",
            "--no-defaults",
            f"--socket={self.socket}",
            "--user=root",
            "--skip-column-names",
            "--batch",
            *arguments,
        ]

    def sql(self, text, seconds=60, quiet=False):
        """The output of the client, with plain threads; an error is in it."""
        if quiet and not self.socket.exists():
            return ""
        return self.side.plain(self.client("-e", text), seconds).output.strip()

    def ask(self, text):
        """Starts a client that asks, and leaves it running."""
        return self.side.start(self.client("-e", text), preload=False)

    def sysbench(self, test, action, *options):
        return [
            "sysbench",
            f"--mysql-socket={self.socket}",
            "--mysql-user=root",
            "--mysql-db=sb",
            "--tables=4",
            "--table-size=20000",
            "--histogram=on",
            *options,
            test,
            action,
        ]

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()


def figures(output):
    """Transactions per second, and percentiles of the latency in ms, as sysbench printed them."""
    rate = re.search(r"transactions:\s+\d+\s+\(([\d.]+) per sec", output)
    counts = [
        (float(at), int(count))
        for at, count in re.findall(r"^\s*([\d.]+) \|\**\s*(\d+)$", output, re.MULTILINE)
    ]
    total, found, seen = sum(count for _, count in counts), {}, 0
    for at, count in counts:
        seen += count
        for percent in (95, 99):
            if seen >= total * percent / 100:
                found.setdefault(percent, at)
    return float(rate[1]) if rate else 0.0, found.get(95), found.get(99)
