"""What the kernel and gdb say of processes: their threads, their memory, where they stand."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path


def status(pid, field):
    """A field of /proc/PID/status: a count, or KiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    return 0


def kernel_threads(pid):
    return status(pid, "Threads")


def rss_kib(pid):
    return status(pid, "VmRSS")


def kernel_stacks_kib():
    """The stacks that the kernel has for all threads of the machine."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("KernelStack:"))


def of_all(pids):
    return "\n".join(stand(pid) for pid in pids[:12])


def stand(pid):
    """Where each thread of a process stands: by the kernel, and by gdb if that is installed."""
    lines = []
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        lines.append(f"== process {pid}: {command[:200]}")
        for task in sorted(os.listdir(f"/proc/{pid}/task"), key=int)[:40]:
            folder = Path(f"/proc/{pid}/task/{task}")
            what = {}
            for name in ("comm", "wchan", "syscall"):
                with contextlib.suppress(OSError):
                    what[name] = (folder / name).read_text().strip()
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            lines.append(f"  {task} {state} {what}")
    if shutil.which("gdb"):
        with contextlib.suppress(subprocess.TimeoutExpired):
            env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
            gdb = subprocess.run(
                [
                    "gdb",
                    "-p",
                    str(pid),
                    "-batch",
                    "-nx",
                    "-ex",
                    "set pagination off",
                    "-ex",
                    "thread apply all bt 24",
                ],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=60,
                env=env,
                stdin=subprocess.DEVNULL,
            )
            kept = [line for line in gdb.stdout.splitlines() if line.startswith(("#", "Thread"))]
            lines += kept[:400]
    return "\n".join(lines)
