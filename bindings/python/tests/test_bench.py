"""``python -m cringle.bench``, whose line ``cringle bench batch --via python`` reads."""

import json
import os
import subprocess
import sys

import pytest


def bench(*arguments):
    command = [sys.executable, "-m", "cringle.bench", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("arguments, ops", [([], 896), (["--cached", "--workers", 2], 768)])
def test_a_line_of_json_has_the_figures(directory, arguments, ops):
    path = directory / "data"
    path.write_bytes(os.urandom(4 << 20))
    done = bench(path, "--seed", 3, *arguments)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["ops"] == ops
    assert figures["seconds"] > 0
    for name in ["user_seconds", "system_seconds", "context_switches"]:
        assert figures[name] >= 0, name


def test_files_that_cannot_be_measured_are_named(directory):
    small = directory / "small"
    small.write_bytes(bytes(4096))
    for path in [small, directory / "missing"]:
        done = bench(path, "--cached")
        assert done.returncode == 1
        assert str(path) in done.stderr.splitlines()[-1]
