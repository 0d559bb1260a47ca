"""The table: a row for the tests of each program, and one for each figure."""

import statistics

HEAD = "| program | tested | threads | fibers | difference |\n|---|---|---|---|---|\n"


class Result:
    """What the rounds of a program have recorded on each side."""

    def __init__(self, program):
        self.program = program
        self.skipped = None
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
        name, about = self.program.name, self.program.about
        if self.skipped:
            yield name, about, "–", "–", f"skipped: {self.skipped}"
            return
        known = self.program.known
        differing = [
            f"{test}: {known.get(test) or ' '.join(outcome).strip()}"
            for test, outcome in self.differing().items()
        ]
        if self.tests:
            sides = (self.passed(side) for side in ("threads", "fibers"))
            yield name, about, *sides, "; ".join(differing) or "none"
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
