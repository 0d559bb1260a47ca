"""The programs of the README and of the pages run as they are printed."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "../../docs/book/src/python.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_programs_of_a_page_run(page, directory):
    programs = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert programs, page
    if "import ray\n" in "".join(programs):
        pytest.importorskip("ray.data")  # `pip install 'ray[data]'`
    (directory / "vectors.bin").write_bytes(bytes(1000 * 4096))
    program = "\n".join(programs)
    # Ray gives its workers the niceness 15, with which they wait for every other process.
    environment = os.environ | {"RAY_worker_niceness": "0"}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
