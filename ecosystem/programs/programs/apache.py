"""Apache with the worker MPM: ab and h2load, a graceful restart, and its end."""

import re
import signal
from pathlib import Path

import session
import threads
from programs import net

MODULES = Path("/usr/lib/apache2/modules")
NEEDS = ("apache2", "ab", "h2load")
VERSION = ("apache2", "-v")
BOUND = 120
ROUNDS = 3
CONFIG = """
ServerRoot {dir}
ServerName localhost
Listen 127.0.0.1:{port}
LoadModule mpm_worker_module {modules}/mod_mpm_worker.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule status_module {modules}/mod_status.so
User www-data
Group www-data
PidFile {dir}/pid
ErrorLog {dir}/error.log
DocumentRoot {dir}/www
StartServers 2
ServerLimit 4
ThreadsPerChild 64
MaxRequestWorkers 256
MaxKeepAliveRequests 0
<Directory {dir}/www>
  Require all granted
</Directory>
"""


def lacks():
    if not (MODULES / "mod_mpm_worker.so").exists():
        return "Apache has no mod_mpm_worker"
    return None


def run(side):
    port = net.free_port()
    (side.dir / "www").mkdir()
    (side.dir / "www" / "page").write_text("hello " * 100)
    (side.dir / "conf").write_text(CONFIG.format(dir=side.dir, port=port, modules=MODULES))
    url = f"http://127.0.0.1:{port}/page"
    server = side.start(["apache2", "-f", side.dir / "conf", "-DFOREGROUND"])
    side.require("it listens", side.until(lambda: net.listens(port), server, 15))
    side.require("it answers", side.plain(["ab", "-q", "-n", 1, url], 20).status == 0)

    ended = side.plain(["ab", "-q", "-k", "-c", 100, "-n", 20_000, url], 40)
    complete = re.search(r"Complete requests:\s+(\d+)\s+Failed requests:\s+(\d+)", ended.output)
    if side.test(
        "ab: all requests succeed",
        complete and complete.groups() == ("20000", "0"),
        ended.output[-200:],
    ):
        side.figure(
            "ab, 100 connections: requests/s",
            float(re.search(r"Requests per second:\s+([\d.]+)", ended.output)[1]),
        )
        side.figure("ab: p99", float(re.search(r"\s99%\s+(\d+)", ended.output)[1]), "ms")

    ended = side.plain(["h2load", "--h1", "-c", 100, "-n", 20_000, url], 40)
    complete = re.search(r"(\d+) succeeded", ended.output)
    if side.test(
        "h2load: all requests succeed", complete and complete[1] == "20000", ended.output[-300:]
    ):
        side.figure(
            "h2load, 100 connections: requests/s",
            float(re.search(r", ([\d.]+) req/s", ended.output)[1]),
        )
    # Apache's own number of processes changes with the load.
    children = [p for p in session.descendants(server.pid) if threads.kernel_threads(p) > 1]
    if children:
        side.figure(
            "threads of the system for each process of 64",
            sum(map(threads.kernel_threads, children)) / len(children),
        )

    server.send_signal(signal.SIGUSR1)
    restarted = side.until(
        lambda: "resuming normal operations"
        in (side.dir / "error.log").read_text().partition("Doing graceful restart")[2],
        server,
        20,
    )
    side.test("it restarts gracefully", restarted, (side.dir / "error.log").read_text()[-300:])
    ended = side.plain(["ab", "-q", "-c", 50, "-n", 1000, url], 40)
    side.test(
        "it answers after the restart",
        "Failed requests:        0" in ended.output,
        ended.output[-200:],
    )
    status = side.ends(server, signal.SIGTERM, 30)
    side.test("SIGTERM ends it", status == 0, status)
    log = (side.dir / "error.log").read_text()
    side.test(
        "no process of it dies", "exit signal" not in log and "SIGKILL" not in log, log[-300:]
    )
    print(log, file=side.log)
