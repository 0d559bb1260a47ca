"""stress-ng's stressors of threads, locks, signals, timers and pipes, with --verify."""

import concurrent.futures
import re

NEEDS = ("stress-ng",)
VERSION = ("stress-ng", "--version")
STRESSORS = (
    "pthread mutex futex sem sem-sysv sigq sigsuspend sigrt sigpending sigfd sigpipe "
    "sigchld sigabrt eventfd pipe pipeherd timer timerfd itimer nanosleep clock poll epoll "
    "select sock sockpair udp flock lockf fork vfork exec daemon kill switch yield peterson "
    "dekker lockbus mq msg spawn affinity sched schedpolicy exit-group resched tee splice "
    "vm-splice zombie close dup open rename getrandom iomix aio io-uring robust-futex "
    "context bad-altstack stackmmap tls atomic membarrier rseq userfaultfd sigsegv"
).split()
SECONDS = 1
AT_A_TIME = 3
BOUND = 60 + 2 * len(STRESSORS) * SECONDS + 40 * 8
KNOWN = {}


def run(side):
    def end(stressor):
        options = f"--{stressor} 2 --timeout {SECONDS} --verify --metrics-brief --no-rand-seed"
        command = ["stress-ng", *options.split(), "--temp-path", side.dir]
        return side.call(command, 40, alone=False)

    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        for stressor, ended in zip(STRESSORS, pool.map(end, STRESSORS)):
            record(side, stressor, ended)


def record(side, stressor, ended):
    if ended.status == 1 and "unrecognized option" in ended.output:
        return
    bad = [line for line in ended.output.splitlines() if re.search(r"\b(fail|error|panic)", line)]
    if "skipped" in ended.output and ended.status != 0 or "unimplemented" in ended.output:
        side.test(stressor, "skipped", ended.output[-200:])
    else:
        side.test(stressor, ended.status == 0, f"status {ended.status} {' '.join(bad)[:200]}")
