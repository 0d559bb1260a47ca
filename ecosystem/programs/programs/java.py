"""OpenJDK: 500 threads, sockets, garbage collection, exceptions by signals."""

from programs import script

NEEDS = ("java", "javac")
VERSION = ("java", "-version")
BOUND = 120


def run(side):
    built = side.plain(["javac", "-d", side.dir, script.path("Threads.java")], 60)
    side.require("it compiles", built.status == 0, built.output[-200:])
    source = script.path("Threads.java").read_text()
    names = [part.partition('"')[0] for part in source.split('test("')[1:]]
    ended = side.call(["java", "-Xmx256m", "-XX:-UsePerfData", "-cp", side.dir, "Threads"], 60)
    lines = ended.output.splitlines()
    for name in names:
        side.test(name, name in lines, "" if name in lines else f"status {ended.status}")
    side.test("it ends", ended.status == 0, f"status {ended.status} {ended.output[-200:]}")
