"""glibc's own tests of threads, those that build outside of its tree."""

import concurrent.futures
import os
import re
import shutil
import subprocess
from pathlib import Path

# A tree of glibc's sources, of about the version that is installed: its tests need no build of it.
VARIABLE = "CRINGLE_GLIBC_SOURCES"
FOLDERS = ("nptl", "sysdeps/pthread")
# What glibc's makefile defines for them; the tests that build here use none of these folders.
PATHS = """SRCDIR_PATH OBJDIR_PATH OBJDIR_ELF_LDSO_PATH INSTDIR_PATH LIBDIR_PATH
    BINDIR_PATH SBINDIR_PATH SLIBDIR_PATH ROOTSBINDIR_PATH COMPLOCALEDIR_PATH""".split()
NEEDS = ("cc",)
VERSION = ("getconf", "GNU_LIBC_VERSION")
BOUND = 2400
# Most tests end within a second; glibc's own bound is 20 s.
SECONDS = 30
AT_A_TIME = 4
# They need files of glibc's build, or hang or fail with threads, too. (glibc itself does not run
# tst-clock2, which asks for processor time of threads that sleep.)
LEFT_OUT = (
    "tst-atfork2 tst-atfork4 tst-cancel7 tst-cancelx7 tst-clock2 tst-create1 tst-create-detached "
    "tst-exec4 tst-join7 tst-mutex10 tst-oddstacklimit tst-pt-tls4 tst-pthread-gdb-attach "
    "tst-pthread-gdb-attach-static tst-pthread-timedlock-lockloop tst-stack4"
).split()
_WITHIN = "a wait within libc is no cancellation point"
_ASYNCHRONOUS = "an asynchronous cancel, within a wait for a lock"
_MAIN = "joins main, which has called pthread_exit: waits for ever"
_BARRIER = "a signal to a thread that waits for a barrier is handled afterwards"
_KEYS = "takes all keys for thread-locals; the library has one"
KNOWN = {
    "tst-basic3": _MAIN,
    "tst-cancel1": _ASYNCHRONOUS,
    "tst-cancelx1": _ASYNCHRONOUS,
    "tst-cancel6": _WITHIN,
    "tst-cancelx6": _WITHIN,
    "tst-cancel9": _WITHIN,
    "tst-cancelx9": _WITHIN,
    "tst-cancel16": _WITHIN,
    "tst-cancelx16": _WITHIN,
    "tst-cancel17": _WITHIN,
    "tst-cancelx17": _WITHIN,
    "tst-default-attr": "expects the exact size of a stack; a fiber's may be larger",
    "tst-join1": _MAIN,
    "tst-join5": _MAIN,
    "tst-key1": _KEYS,
    "tst-key4": _KEYS,
    "tst-kill6": _BARRIER,
    "tst-pt-tls2": _BARRIER,
    "tst-pthread_cancel-exited": "waits until the process has one thread of the system",
    "tst-rwlock15": "waits until a waiting writer keeps readers away",
}


def lacks():
    sources = os.environ.get(VARIABLE)
    if sources and (Path(sources) / "nptl").is_dir():
        return None
    return f"{VARIABLE} names no sources of glibc"


def run(side):
    # Beside the logs: both sides run what the first one has built.
    build = Path(side.log.name).with_name("nptl-tests")
    if not build.exists():
        shutil.move(make(side), build)
    tests = sorted(build.glob("tst-*"))
    side.require("tests are built", tests)

    def end(path):
        return side.call([path], SECONDS, alone=False)

    # Most wait.
    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        for path, ended in zip(tests, pool.map(end, tests)):
            unsupported = ended.status == 77
            side.test(
                path.name,
                "skipped" if unsupported else ended.status == 0,
                f"status {ended.status} {ended.output[-150:]}",
            )


def make(side):
    """Builds the tests that can be built outside of glibc. Returns the folder."""
    sources = Path(os.environ[VARIABLE])
    build = side.dir / "build"
    (build / "include").mkdir(parents=True)
    # Not the tree itself: its headers are for building libc.
    (build / "include" / "support").symlink_to(sources / "support")
    for header in ("intprops.h", "array_length.h"):
        (build / "include" / header).symlink_to(sources / "include" / header)
    (build / "include" / "config.h").touch()
    flags = [
        "cc",
        "-w",
        "-std=gnu11",
        "-O2",
        "-D_GNU_SOURCE",
        "-DTIMEOUTFACTOR=1",
        "-include",
        "linux/limits.h",
        *(f'-D{name}="/nonexistent"' for name in PATHS),
        f"-I{build}/include",
        f"-I{sources}/support",
        f"-iquote{sources}/nptl",
        f"-iquote{sources}/sysdeps/pthread",
    ]

    def compile(arguments):
        return (
            subprocess.run(
                [*flags, *map(str, arguments)],
                capture_output=True,
                check=False,
                env=side.plain_env,
            ).returncode
            == 0
        )

    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        support = [
            path for path in sources.glob("support/*.c") if not path.name.startswith("tst-")
        ]
        objects = [build / f"{path.stem}.o" for path in support]
        built = pool.map(compile, [["-c", path, "-o", o] for path, o in zip(support, objects)])
        objects = [o for o, is_built in zip(objects, built) if is_built]
        side.plain(["ar", "rcs", build / "libsupport.a", *objects])
        tests = sorted(
            path
            for folder in FOLDERS
            for path in sources.glob(f"{folder}/tst-*.c")
            if "mod" not in path.stem and path.stem not in LEFT_OUT
        )
        # As glibc's makefile has it: the variants whose names end in x and a number.
        linked = pool.map(
            compile,
            [
                [
                    *(["-fexceptions"] if re.search(r"x\d+$", path.stem) else []),
                    path,
                    "-o",
                    build / path.stem,
                    build / "libsupport.a",
                    "-pthread",
                    "-lrt",
                    "-lm",
                    "-ldl",
                ]
                for path in tests
            ],
        )
        print(f"  {sum(linked)} tests are built", file=side.log)
    return build
