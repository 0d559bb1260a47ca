"""stunnel: 100 connections to a C server through two tunnels, a client's and a server's."""

import signal
import subprocess

from programs import net

NEEDS = ("stunnel", "openssl", "cc")
VERSION = ("stunnel", "-version")
BOUND = 60
ROUNDS = 3
CONNECTIONS, MESSAGES = 100, 50


def run(side):
    made = side.plain(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            2,
            "-subj",
            "/CN=localhost",
            "-keyout",
            "key.pem",
            "-out",
            "cert.pem",
        ]
    )
    side.require("a certificate", made.status == 0)
    clients = side.compile("c_clients.c")
    server = side.start(
        [side.compile("c_server.c")], preload=False, stdout=subprocess.PIPE, text=True
    )
    behind, encrypted, front = server.stdout.readline().strip(), net.free_port(), net.free_port()
    tunnels = [
        tunnel(side, "server", encrypted, behind, "cert = cert.pem\nkey = key.pem"),
        tunnel(
            side, "client", front, encrypted, "client = yes\nCAfile = cert.pem\nverifyPeer = yes"
        ),
    ]
    for port, process in zip((encrypted, front), tunnels):
        side.require("the tunnel listens", side.until(lambda p=port: net.listens(p), process, 15))
    ended = side.plain([clients, front, CONNECTIONS, MESSAGES], 40)
    answer = ended.output.split()
    right = int(answer[0]) if ended.status == 0 and answer else 0
    if side.test("all answers are right", right == CONNECTIONS * MESSAGES, ended.output[-200:]):
        side.figure("round trips/s", right / float(answer[2]))
    for process, name in zip(tunnels, ("server", "client")):
        status = side.ends(process, signal.SIGTERM, 15)
        side.test(f"SIGTERM ends the {name}'s tunnel", status in (0, -signal.SIGTERM), status)


def tunnel(side, name, port, to, options):
    path = side.dir / f"{name}.conf"
    path.write_text(
        f"foreground = yes\npid =\nsyslog = no\ndebug = 5\n[{name}]\n"
        f"accept = 127.0.0.1:{port}\nconnect = 127.0.0.1:{to}\n{options}\n"
    )
    return side.start(["stunnel", path])
