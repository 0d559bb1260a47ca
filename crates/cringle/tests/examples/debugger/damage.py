"""Damages the memory of the stopped program, one word at a time, and runs the script's commands.

Sourced by gdb. Prints each wrong answer and, at the end, the numbers of the damages and of these.
"""

import itertools
import os
import re
import struct
import sys

import gdb

SCRIPT = sys.modules["__main__"]
PROCESS = gdb.selected_inferior()
LISTS = ["cringle fibers", "cringle workers", "cringle ops", "cringle locks"]
IS_FULL = "CRINGLE_FULL" in os.environ
# Those of the whole machine, which may be thousands: no damage changes them.
SOCKETS = dict(SCRIPT.Files(PROCESS.pid).all_sockets())
SCRIPT.Files.all_sockets = lambda _: SOCKETS
damages, wrong = 0, 0


def read(address, length):
    return bytes(PROCESS.read_memory(address, length))


def report(*words):
    global wrong
    wrong += 1
    print("WRONG:", *words)


def rows(text):
    """The rows of `cringle fibers` without the ages."""
    cells = (re.split("  +", line.strip()) for line in text.splitlines())
    return {(*row[:4], *row[5:]) for row in cells if row[0].isdigit() and len(row) > 3}


def answer(command, where):
    """The output of a command, which may fail only with words of its own."""
    try:
        return gdb.execute(command, to_string=True)
    except gdb.error as error:
        if not str(error).startswith("cringle: ") or "\n" in str(error):
            report(command, where, repr(str(error)))
        return str(error)


def values(address, old):
    """What a word may be after a stray write: one of these by turns, or with `CRINGLE_FULL=1` all."""
    (word,) = struct.unpack("<Q", old)
    numbers = 0x558000000000, 0, (1 << 64) - 1, 1 << 40, word ^ 0xFF, word + 3, address
    numbers = numbers if IS_FULL else [numbers[damages % len(numbers)]]
    return {struct.pack("<Q", number & (1 << 64) - 1) for number in numbers} - {old}


def damage(name, start, length, check):
    """Calls `check(where)` with each word of a part of memory replaced."""
    global damages
    for address in range(start, start + length, 8):
        old = read(address, 8)
        for value in sorted(values(address, old)):
            PROCESS.write_memory(address, value)
            damages += 1
            check(f"with {name}+{address - start} = {value[::-1].hex()}")
            PROCESS.write_memory(address, old)


def is_about(row, fiber):
    return row[0] == str(fiber.index) or fiber.name in " ".join(row)


def check_others(fiber, is_vacant):
    """A check that all other fibers are listed as before, and this one in some way."""
    others = {row for row in before if not is_about(row, fiber)}
    assert len(others) > 10, before

    def check(where):
        found = rows(answer(LISTS[0], where))
        if not others <= found:
            report(where, "these are missing:", others - found)
        if not is_vacant() and not any(row[0] == str(fiber.index) for row in found):
            report(where, "no row of the fiber:", found)
        answer(next(commands), where)

    commands = itertools.cycle([*LISTS[1:], f"cringle fiber {fiber.index} bt 3"])
    return check


def check_part(part):
    def check(where):
        found = rows(answer(LISTS[0], where))
        if not part <= found:
            report(where, "these are missing:", part - found)
        answer(LISTS[1], where)

    return check


(root,) = [
    int(line.split()[0], 16)
    for line in gdb.execute("info files", to_string=True).splitlines()
    if SCRIPT.SECTION in line
]
program = SCRIPT.Program(SCRIPT.Memory(read), root)
node = program.first_runtime
_, workers, count = struct.unpack("<QQQ", read(node, 24))
runtime = SCRIPT.Runtime(program, 1, workers, count, PROCESS.pid)
at = program.offsets
before = rows(gdb.execute(LISTS[0], to_string=True))

for victim in "reader", "permits", "joins":
    (fiber,) = [fiber for fiber in runtime.fibers if fiber.name == victim]
    state = fiber.address + at["fiber.state"]
    check = check_others(fiber, lambda: read(state, 1)[0] == at["state.vacant"])
    meta = fiber.u64("fiber.meta")
    damage("block", fiber.address, at["fiber.size"], check)
    damage("name", meta + at["meta.name"], 16, check)
    damage("place", meta + at["meta.spawned"], 8, check)
    place = struct.unpack("<Q", read(fiber.address + at["fiber.ops.first"], 8))[0]
    if victim == "reader":
        damage("op", place, 32, check)

# A name that is no text, and one with control characters.
(fiber,) = [fiber for fiber in runtime.fibers if fiber.name == "reader"]
(text,) = struct.unpack("<Q", read(fiber.u64("fiber.meta") + at["meta.name"], 8))
for name in b"\xff\xfe\xfd", b"\0\r\x1b":
    old = read(text + 16, 3)
    PROCESS.write_memory(text + 16, name)
    check_others(fiber, lambda: False)(f"with the name {name}")
    PROCESS.write_memory(text + 16, old)

# The entries of the workers: those of the other one remain.
for number in range(count):
    others = {row for row in before if row[2] != str(number) and row[3] != "runs"}
    damage(f"worker {number}", workers + 24 * number, 24, check_part(others))
damage("runtime", node, 24, check_part(set()))
damage("first runtime", root + 24 + 64, 8, check_part(set()))

# The list of a worker's blocks: one that is no fiber hides no other.
(blocks,) = struct.unpack("<Q", read(workers + 8, 8))
(chunk,) = struct.unpack("<Q", read(blocks, 8))
damage("chunks", blocks, 16, check_part({row for row in before if row[2] == "1"}))
for fiber in runtime.fibers:
    word = chunk + 8 * (fiber.index >> 1)
    if fiber.name == "reader" and struct.unpack("<Q", read(word, 8))[0] == fiber.address:
        damage("entry", word, 8, check_others(fiber, lambda: False))

if rows(gdb.execute(LISTS[0], to_string=True)) != before:
    report("the memory is not as before")
print(f"{damages} damages, {wrong} wrong answers")
