"""CPython's ThreadingHTTPServer with 2,000 connections that stay open."""

import re
import signal
import subprocess

import threads
from programs.cpython import python

NEEDS = ("python3", "wrk")
VERSION = (python, "--version")
BOUND = 60
ROUNDS = 3
CONNECTIONS = 2000
SOURCE = """
import http.server
import resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = b"hello"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments):
        pass

class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 4096

server = Server(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def run(side):
    (side.dir / "server.py").write_text(SOURCE)
    server = side.start([python(), side.dir / "server.py"], stdout=subprocess.PIPE, text=True)
    port = server.stdout.readline().strip()
    side.require("the server listens", port.isdigit())
    load = side.start(
        [
            "wrk",
            "-t1",
            f"-c{CONNECTIONS}",
            "-d6",
            "--timeout",
            "30",
            "--latency",
            f"http://127.0.0.1:{port}/",
        ],
        preload=False,
        stdout=subprocess.PIPE,
        text=True,
    )
    side.until(lambda: False, load, 4)
    number, memory = threads.kernel_threads(server.pid), threads.rss_kib(server.pid)
    output, _ = load.communicate(timeout=40)
    print(output, file=side.log, flush=True)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", output)
    if side.test(
        "requests succeed", rate and float(rate[1]) > 0 and "Non-2xx" not in output, output[-200:]
    ):
        side.figure("requests/s", float(rate[1]))
        side.figure("p99", milliseconds(re.search(r"99%\s+([\d.]+)(\w+)", output)), "ms")
    side.figure("threads of the system", number)
    side.figure("RSS", memory / 1024, "MiB")
    status = side.ends(server, signal.SIGINT, 20)
    # It is 1 at times, with threads, too: an exception interrupts the end.
    side.test("SIGINT ends it", status in (-signal.SIGINT, 130, 1), status)


def milliseconds(found):
    return float(found[1]) * {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000}[found[2]]
