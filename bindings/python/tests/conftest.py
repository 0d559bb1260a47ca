import os
import pathlib
import signal
import sys
import sysconfig
import tempfile

import pytest

import cringle

PAGE = 4096

# A shell's background job ignores this signal, and Python then has no handler of its own.
signal.signal(signal.SIGINT, signal.default_int_handler)

# All tests of a free-threaded interpreter run without a GIL, which an import could enable.
if sysconfig.get_config_var("Py_GIL_DISABLED"):
    assert not sys._is_gil_enabled(), "an imported module has enabled the GIL"


@pytest.fixture
def directory():
    """A directory on the file system of the repository, which has O_DIRECT (/tmp may not)."""
    target = os.environ.get("CARGO_TARGET_DIR", pathlib.Path(__file__).parents[3] / "target")
    base = pathlib.Path(target)
    base.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=base, prefix="pytest-") as path:
        yield pathlib.Path(path)


@pytest.fixture
def io():
    with cringle.BlockIO() as io:
        yield io


def pattern(size):
    """Bytes whose pages differ."""
    return b"".join(n.to_bytes(8, "little") for n in range((size + 7) // 8))[:size]


@pytest.fixture
def path(directory):
    path = directory / "file"
    path.write_bytes(pattern(64 * PAGE))
    return path
