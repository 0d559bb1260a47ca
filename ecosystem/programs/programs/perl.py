"""Perl's threads: queues, shared variables, sockets, processes."""

import subprocess

from programs import script

NEEDS = ("perl",)
VERSION = ("perl", "-e", "print $^V")
BOUND = 90


def lacks():
    built = subprocess.run(["perl", "-Mthreads", "-e", "1"], capture_output=True, check=False)
    return None if built.returncode == 0 else "this Perl has no threads"


def run(side):
    script.run(side, ["perl", script.path("perl.pl")], 'test("', '"')
