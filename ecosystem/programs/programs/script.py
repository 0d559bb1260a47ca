"""Scripts that print a line for each of their tests that passes."""

from pathlib import Path


def path(name):
    return Path(__file__).with_name(name)


def run(side, command, before, after, seconds=60):
    """Runs the script. Its tests are named between `before` and `after` in its source."""
    source = Path(command[-1]).read_text()
    names = [part.partition(after)[0] for part in source.split(before)[1:]]
    ended = side.call(command, seconds)
    lines = ended.output.splitlines()
    for name in names:
        side.test(name, name in lines, "" if name in lines else f"status {ended.status}")
    side.test("it ends", ended.status == 0, f"status {ended.status} {ended.output[-200:]}")
