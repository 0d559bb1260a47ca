"""pigz -p 8 compresses a file that is generated (100 MB; --full: 300 MB), and unpacks it."""

import hashlib
import random
import time

NEEDS = ("pigz",)
VERSION = ("pigz", "--version")
BOUND, FULL_BOUND = 60, 120
ROUNDS = 3
FULL_ROUNDS = 5


def run(side):
    path, packed = side.dir / "input", side.dir / "input.gz"
    words = [random.Random(n).randbytes(n % 9 + 2).hex().encode() for n in range(3000)]
    draw, digest = random.Random(1), hashlib.sha256()
    block = b" ".join(draw.choice(words) for _ in range(300_000))
    with open(path, "wb") as file:
        for number in range((300 if side.full else 100) * 1_000_000 // len(block)):
            chunk = b"%d\n" % number + block
            file.write(chunk)
            digest.update(chunk)
    with open(packed, "wb") as out:
        begin = time.monotonic()
        ended = side.start(["pigz", "-p", "8", "-c", path], stdout=out).wait(BOUND)
        seconds = time.monotonic() - begin
    side.require("it ends", ended == 0, ended)
    side.figure("seconds", seconds, "s", "<= 1.05")
    with open(path, "wb") as out:
        ended = side.start(["pigz", "-d", "-c", packed], stdout=out).wait(BOUND)
    side.test("it unpacks", ended == 0, ended)
    side.test(
        "the file is the same", hashlib.sha256(path.read_bytes()).digest() == digest.digest()
    )
