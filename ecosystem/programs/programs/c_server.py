"""A C server with a thread for each connection, and 1,000 connections (--full: 10,000)."""

import os
import resource
import signal
import subprocess

import threads

NEEDS = ("cc",)
BOUND = 60
FULL_BOUND = 240
FULL_ROUNDS = 3
MESSAGES = 10


def run(side):
    count = 10_000 if side.full else 1_000
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server_path, clients_path = side.compile("c_server.c"), side.compile("c_clients.c")
    server = side.start([server_path], stdout=subprocess.PIPE, text=True)
    port = server.stdout.readline().strip()
    side.require("the server listens", port.isdigit())
    rss, stacks = threads.rss_kib(server.pid), threads.kernel_stacks_kib()

    clients = side.start(
        [clients_path, port, count, MESSAGES],
        preload=False,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    answers = clients.stdout.readline().split()
    side.require("the clients get answers", len(answers) == 3)
    right, connect, exchange = int(answers[0]), float(answers[1]), float(answers[2])
    side.test(f"all {count * MESSAGES} answers are right", right == count * MESSAGES, right)

    number = threads.kernel_threads(server.pid)
    most = len(os.sched_getaffinity(0)) + 3 if side.fibers else count + 1
    side.test("threads of the system: at most workers + 3", number <= most, number)
    side.figure(f"{count} connections: threads of the system", number)
    memory = (threads.rss_kib(server.pid) - rss) / count
    side.figure("memory (RSS) for each connection", memory, "KiB")
    memory += (threads.kernel_stacks_kib() - stacks) / count
    side.figure("the same with the kernel's stacks", memory, "KiB", "<= 0.5")
    side.figure("seconds to connect all", connect, "s")
    side.figure(f"{MESSAGES} messages over each", exchange, "s")

    clients.stdin.close()
    side.test("the clients end", clients.wait(30) == 0)
    side.test("SIGTERM ends the server", side.ends(server) == -signal.SIGTERM)
