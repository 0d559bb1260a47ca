"""Ruby: threads, queues, timeouts, sockets, processes, signals."""

from programs import script

NEEDS = ("ruby",)
VERSION = ("ruby", "--version")
BOUND = 90


def run(side):
    script.run(side, ["ruby", script.path("ruby.rb")], 'test("', '"')
