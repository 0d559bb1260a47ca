"""The table: a row for the tests of each program, and one for each figure."""

import datetime
import os
import platform
import statistics

# What is between these lines of a page is replaced.
BEGIN, END = "<!-- Written by ecosystem/programs/run --table. -->", "<!-- End of the results. -->"

HEAD = "| program | tested | threads | fibers | difference |\n|---|---|---|---|---|\n"


class Result:
    """What the rounds of a program have recorded on each side."""

    def __init__(self, program):
        self.program = program
        self.skipped = None
        self.version = ""
        self.tests = {}
        self.figures = {}

    def add(self, side, records):
        for record in records:
            if record["kind"] == "test":
                tests = self.tests.setdefault(side, {})
                # A test has passed if it has in each round.
                if tests.get(record["name"], ("passed",))[0] != "failed":
                    tests[record["name"]] = (record["outcome"], record["detail"])
            else:
                key = (record["name"], record["unit"], record["bar"])
                self.figures.setdefault(key, {}).setdefault(side, []).append(record["value"])

    def differing(self):
        """The tests that pass with threads and not with fibers, with what happened there."""
        fibers = self.tests.get("fibers")
        if fibers is None:
            return {}
        passed = [n for n, (o, _) in self.tests.get("threads", {}).items() if o == "passed"]
        lost = {n: fibers.get(n, ("not run", "")) for n in passed}
        # What the harness itself records, as "ends in time", is there only if it fails.
        lost |= {n: o for n, o in fibers.items() if n not in self.tests.get("threads", {})}
        return {n: o for n, o in lost.items() if o[0] not in ("passed", "skipped")}

    def reasons(self):
        """Lines that name the tests that differ, by reason."""
        tests = {}
        for test, outcome in self.differing().items():
            reason = self.program.known.get(test) or f"not expected: {' '.join(outcome).strip()}"
            tests.setdefault(reason, []).append(f"`{test}`")
        return [
            f"- **{self.program.name}**: {', '.join(names)}: {reason}."
            for reason, names in tests.items()
        ]

    def failures(self):
        known = self.program.known
        lines = [
            f"{self.program.name}: {name}: {' '.join(outcome)}"
            for name, outcome in self.differing().items()
            if name not in known
        ]
        passed = {n for n, (o, _) in self.tests.get("fibers", {}).items() if o == "passed"}
        return lines + [
            f"{self.program.name}: {name} passes; remove it from KNOWN"
            for name in sorted(passed & known.keys())
        ]

    def rows(self):
        name, about = f"{self.program.name} {self.version}".strip(), self.program.about
        if self.skipped:
            yield name, about, "–", "–", f"skipped: {self.skipped}"
            return
        if self.tests:
            differing = len(self.differing())
            sides = (self.passed(side) for side in ("threads", "fibers"))
            yield name, about, *sides, f"{differing}: see below" if differing else "none"
            name = ""
        for (figure, unit, bar), sides in self.figures.items():
            threads = middle(sides.get("threads"))
            fibers = middle(sides.get("fibers"))
            cells = [text(value, unit) for value in (threads, fibers)]
            difference = f"{fibers / threads:.3g}" if threads and fibers is not None else "–"
            if bar:
                difference += f" (bar: {bar})"
            for side, values in sides.items():
                if side not in ("threads", "fibers"):
                    difference += f"; {side}: {text(middle(values), unit)}"
            yield name, figure, *cells, difference
            name = ""

    def passed(self, side):
        tests = self.tests.get(side)
        if tests is None:
            return "–"
        run = [outcome for outcome, _ in tests.values() if outcome != "skipped"]
        return f"{run.count('passed')} of {len(run)}"


def middle(values):
    return statistics.median(values) if values else None


def text(value, unit):
    if value is None:
        return "–"
    number = f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    return f"{number} {unit}".strip()


def lines(results):
    rows = (row for result in results for row in result.rows())
    return HEAD + "".join(f"| {' | '.join(c.replace('|', '/') for c in row)} |\n" for row in rows)


def text_of(results):
    """The table, on which machine it was made, and which tests differ, why."""
    system = platform.freedesktop_os_release()["PRETTY_NAME"]
    day = datetime.date.today().strftime("%d %B %Y").lstrip("0")
    kernel = ".".join(platform.release().split(".")[:2])
    cores = len(os.sched_getaffinity(0))
    differing = "\n".join(line for result in results for line in result.reasons())
    return (
        f"{day}: {system}, Linux {kernel}, {platform.machine()}, {cores} cores.\n\n"
        f"{lines(results)}\n"
        "Tests that pass with threads and not with fibers:\n\n"
        f"{differing or '- none'}\n"
    )


def write(path, results):
    """Writes the results to a page, in place of those that it has."""
    page = path.read_text() if path.exists() else f"{BEGIN}\n{END}\n"
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{path}: no line {BEGIN} and {END}; add them")
    path.write_text(f"{head}{BEGIN}\n\n{text_of(results)}\n{END}{tail}")
