"""Runs a module of CPython's tests, and writes the begin and the outcome of each test to a file.

    python3 cpython_cases.py MODULE FILE

Tests that the file has are left out, so that a run continues after a test that hangs or crashes.
"""

import os
import sys
import tempfile
import unittest
from pathlib import Path


class Recorder(unittest.TestResult):
    def __init__(self, file):
        super().__init__()
        self.file = file

    def write(self, test, outcome, error=None):
        lines = self._exc_info_to_string(error, test).strip().splitlines() if error else [""]
        if error:
            print(f"-- {test.id()}", *lines, sep="\n", flush=True)
        self.file.write(f"{getattr(test, 'test_case', test).id()}\t{outcome}\t{lines[-1]}\n")
        self.file.flush()

    def startTest(self, test):
        super().startTest(test)
        self.failed = False
        self.write(test, "begins")

    def stopTest(self, test):
        super().stopTest(test)
        self.write(test, "ends")

    def addSuccess(self, test):
        self.write(test, "failed" if self.failed else "passed")

    def addFailure(self, test, error):
        self.write(test, "failed", error)

    addError = addFailure

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.failed = True
            self.write(test, "failed", error)

    def addSkip(self, test, reason):
        self.write(test, "skipped")

    def addExpectedFailure(self, test, error):
        self.write(test, "passed")

    def addUnexpectedSuccess(self, test):
        self.write(test, "failed")


def without(suite, done):
    """The suite's tests that are not done; the nesting is kept, for the fixtures of modules."""
    kept = unittest.TestSuite()
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            kept.addTest(without(test, done))
        elif test.id() not in done:
            kept.addTest(test)
    return kept


def main():
    from test import support

    module, path = sys.argv[1], Path(sys.argv[2])
    support.use_resources = []
    support.verbose = 1
    done = {line.split("\t")[0] for line in path.read_text().splitlines()}
    suite = without(unittest.defaultTestLoader.loadTestsFromName(f"test.{module}"), done)
    # Other modules run beside this one.
    os.chdir(tempfile.mkdtemp(dir=path.parent))
    with open(path, "a") as file:
        suite.run(Recorder(file))
        file.write("-\tfinished\t\n")


if __name__ == "__main__":
    main()
