"""Commands of gdb and lldb for programs that use the Rust crate `cringle`.

    cringle fibers [TEXT]        all fibers, those that have waited longest first
    cringle fiber N [COMMAND]    the stack of one fiber: frames and variables
    cringle workers              the workers, and what each of them runs
    cringle ops                  the operations in the kernel
    cringle locks                the locks that fibers wait for, with their holders; deadlocks
    cringle core FILE            gdb: writes a core file that has the stacks of all fibers

gdb loads this file by itself where its `auto-load safe-path` allows that. Otherwise:

    (gdb) source cringle_debug.py
    (lldb) command script import cringle_lldb.py

The program contains what the commands need to know of its memory (the section
`.cringle.debugger`), so they work in release builds, in stripped programs and on core files.
They only read. The memory may be damaged: each length and number from it has a limit, and a fiber
that cannot be read is listed as "unreadable", with the reason, between the others.
"""

import os
import socket
import struct
import sys
import time

VERSION = 1
SECTION = ".cringle.debugger"
MAGIC = b"cringle-debugger"
# A fiber that moves between workers has no host.
ON_ITS_WAY = (1 << 64) - 2
# The data of an `Arc<str>` is behind its two counts.
ARC_DATA = 16
# The permits of a lock: see `Gate` and `MOST_PERMITS`.
ONE_PERMIT = 2
MOST_PERMITS = ((1 << 64) - 1) >> 3
AT_CURSOR = (1 << 64) - 1
# The kinds of objects that fibers wait for: see `TargetKind`.
ADDRESS, GATE, FIBER_END, MEMBERS, CALL = range(5)
NO_HOLDER, THREAD_HOLDS = 0, 1
# Limits of what memory may contain. Above them it is damaged.
MOST_BYTES = 1 << 20
MOST_TEXT = 1 << 16
MOST_RUNTIMES = 1 << 10
MOST_WORKERS = 1 << 10
MOST_OPS = 1 << 20
MOST_UNREADABLE = 256
# The completion of an op, and the most bytes from one to the next.
COMPLETION, MOST_STRIDE = 32, 4096
# The blocks and ops that are read at a time.
PIECE = 64
# The most characters of a name that a list shows.
MOST_SHOWN = 256


class Failure(Exception):
    """A message for the user."""


# What is raised where damaged memory is read.
NONSENSE = (Failure, ArithmeticError, LookupError, TypeError, ValueError, struct.error)


def reason(error):
    return str(error) if isinstance(error, Failure) else f"it makes no sense: {error}"


class Memory:
    """The memory of the program, read by `read(address, length)`."""

    def __init__(self, read):
        self.debugger_reads = read
        self.texts = {}

    def read(self, address, length):
        if not 0 <= length <= MOST_BYTES or not 0 <= address < (1 << 64) - length:
            raise Failure(f"nothing has {length} bytes at {address:#x}")
        return self.debugger_reads(address, length)

    def words(self, address, count):
        return struct.unpack(f"<{count}Q", self.read(address, 8 * count))

    def u64(self, address):
        return struct.unpack("<Q", self.read(address, 8))[0]

    def u32(self, address):
        return struct.unpack("<I", self.read(address, 4))[0]

    def text(self, start, length):
        """A text that does not change."""
        if (start, length) not in self.texts:
            if length > MOST_TEXT:
                raise Failure(f"no text has {length} bytes, as the one at {start:#x}")
            data = self.read(start, length) if length else b""
            try:
                self.texts[start, length] = data.decode("utf-8")
            except UnicodeDecodeError:
                raise Failure(f"no text is at {start:#x}") from None
        return self.texts[start, length]

    def c_string(self, address):
        found = b""
        while len(found) < 4096:
            # Up to the end of the page: the next one may be missing.
            part = self.read(address, 4096 - address % 4096)
            address += len(part)
            found += part.partition(b"\0")[0]
            if b"\0" in part:
                break
        return found.decode("utf-8", "replace")


class Program:
    """What the program says of itself in its section."""

    def __init__(self, memory, root):
        self.memory = memory
        magic, version = struct.unpack("<16sI", memory.read(root, 20))
        if magic != MAGIC:
            raise Failure(f"the section {SECTION} has other contents")
        if version != VERSION:
            raise Failure(
                f"the program's tables have version {version}, this script reads {VERSION}; "
                "use the script of the program's version of the crate `cringle`"
            )
        tables = struct.unpack("<10Q", memory.read(root + 24, 80))
        self.offsets = {}
        for at in range(tables[1]):
            start, count = struct.unpack("<QQ", memory.read(tables[0] + 16 * at, 16))
            fields = struct.iter_unpack("<QQQ", memory.read(start, 24 * count))
            self.offsets.update((memory.text(name, n), value) for name, n, value in fields)
        self.waits, self.ops, self.places = (self.words(*tables[at : at + 2]) for at in (2, 4, 6))
        self.first_runtime, self.stopped_ns = tables[8:]
        self.stopped_at = root + 96

    def words(self, start, count):
        words = struct.iter_unpack("<QQ", self.memory.read(start, 16 * count))
        return [self.memory.text(*word) for word in words]

    def runtimes(self):
        """The workers of each runtime and their number; and what cannot be read."""
        node, runtimes = self.first_runtime, []
        try:
            while node:
                node, workers, count = self.memory.words(node, 3)
                runtimes.append((workers, count))
                if len(runtimes) > MOST_RUNTIMES:
                    raise Failure("their list has no end")
        except NONSENSE as error:
            return runtimes[::-1], [f"unreadable: other runtimes: {reason(error)}"]
        return runtimes[::-1], []


class Worker:
    """One worker."""

    def __init__(self, program, number, entry):
        self.number, self.damage = number, None
        self.is_alive, self.blocks = True, None
        self.running = self.clock_ns = self.turns = self.sleeps = self.started = self.thread = 0
        try:
            self.read(program, entry)
        except NONSENSE as error:
            self.damage = reason(error)

    def read(self, program, entry):
        memory, at = program.memory, program.offsets
        place, self.blocks, counters = memory.words(entry, 3)
        shown = memory.u64(place)
        self.is_alive = shown != 0
        if shown:
            self.running = memory.u64(shown)
            self.clock_ns = memory.u64(shown - at["worker.running"] + at["worker.clock_ns"])
        self.turns = memory.u64(counters + at["counters.turns"])
        self.sleeps = memory.u64(counters + at["counters.sleeps"])
        self.started = memory.u64(counters + at["counters.started"])
        self.thread = memory.u32(counters + at["counters.thread"])

    def chunks(self, program):
        """The addresses of its fibers' blocks: the chunks of this list, and their lengths."""
        length = program.offsets["blocks.first"]
        for chunk in program.memory.words(self.blocks, program.offsets["blocks.chunks"]):
            if not chunk:
                return
            yield chunk, length
            length *= 2


def blocks_in(program, chunk, length):
    """The addresses in a chunk, up to the last one; 0 for one that is missing before it.

    It is read a piece at a time, because a damaged address of it may be that of anything.
    """
    missing = 0
    for start in range(0, length, PIECE):
        for block in program.memory.words(chunk + 8 * start, min(PIECE, length - start)):
            if block:
                yield from [0] * missing
                missing = 0
                yield block
            else:
                missing += 1


class Fiber:
    """One fiber, from its block."""

    def __init__(self, program, address, data):
        self.program, self.address, self.data = program, address, data
        self.index = self.u32("fiber.index")
        self.state = self.u8("fiber.state")
        self.since_ns = self.u64("fiber.since_ns")
        self.host = self.u64("fiber.host")
        self.is_cancelled = self.u8("fiber.cancelled") != 0
        self.has_begun = self.u64("fiber.yielder") != 0
        self.tag = address << 16 | self.u32("fiber.generation") & 0xFFFF
        self.worker = None if self.host >= ON_ITS_WAY else self.host
        self.runs = False
        self.name = self.spawned = self.damage = None
        try:
            self.name, self.spawned = read_meta(program, self.u64("fiber.meta"))
        except NONSENSE as error:
            self.damage = f"its name: {reason(error)}"

    def check(self, position, workers):
        """Fails if the block makes no sense."""
        at = self.program.offsets
        if not any(self.index >> bits == position for bits in range(MOST_WORKERS.bit_length())):
            raise Failure(f"its number is {self.index}, and it is at position {position}")
        known = at["state.runnable"], at["state.vacant"]
        if self.state not in known and self.state >= len(self.program.waits):
            raise Failure(f"no fiber has the state {self.state}")
        if self.worker is not None and self.worker >= workers:
            raise Failure(f"no worker has the number {self.worker}")

    def u8(self, field):
        return self.data[self.program.offsets[field]]

    def u32(self, field):
        return struct.unpack_from("<I", self.data, self.program.offsets[field])[0]

    def u64(self, field):
        return struct.unpack_from("<Q", self.data, self.program.offsets[field])[0]

    @property
    def waits(self):
        at = self.program.offsets
        return self.state not in (at["state.vacant"], at["state.runnable"])

    def who(self):
        if self.name is not None:
            name = self.name
            return f"'{name if len(name) <= MOST_SHOWN else name[:MOST_SHOWN] + '…'}'"
        if self.damage:
            return "<unreadable>"
        return f"<of {self.spawned.rpartition(':')[0] or self.spawned}>" if self.spawned else "<not begun>"

    def target(self):
        """The kind of the object that it waits for, its address, and the offsets of its parts."""
        form = self.u64("fiber.target.form")
        if not form or not self.waits:
            return None
        kind, *parts = struct.unpack("<4I", self.program.memory.read(form, 16))
        return kind, self.u64("fiber.target.object"), parts

    def ops(self):
        """The operations that it waits for: those in the kernel, and the number of all."""
        at, memory = self.program.offsets, self.program.memory
        if self.state != at["wait.ops"]:
            return [], 0
        first, count = self.u64("fiber.ops.first"), self.u64("fiber.ops.count")
        stride = self.u64("fiber.ops.stride")
        is_sound = COMPLETION <= stride <= MOST_STRIDE if stride else count <= 1
        if count > MOST_OPS or not is_sound:
            raise Failure(f"no batch has {count} operations, {stride} bytes apart")
        ops = []
        for start in range(0, count, PIECE):
            last = min(PIECE, count - start) - 1
            piece = memory.read(first + start * stride, last * stride + COMPLETION)
            for place in range(0, len(piece), stride or COMPLETION):
                data = piece[place : place + COMPLETION]
                if data[at["completion.state"]] == at["op_state.in_flight"]:
                    ops.append(Op.of_completion(self.program, data, stride != 0))
        return ops, count

    def bounds(self):
        """The lowest and the highest address of the stack."""
        at = self.program.offsets
        low = self.u64("fiber.stack.guard") + at["stack.guard_bytes"]
        high = low + self.u64("fiber.stack.bytes") + at["stack.spare_bytes"]
        return low, min(high, (1 << 64) - 4096)

    def pointers(self):
        """The saved stack pointer and the initial one, of a fiber that does not run."""
        at, (low, high) = self.program.offsets, self.bounds()
        start, size = at["fiber.coroutine"], at["fiber.coroutine.size"]
        words = struct.iter_unpack("<Q", self.data[start : start + size])
        # The coroutine holds the two and the top of the stack. Nothing else in it is an address in
        # the stack, and a suspended fiber has pushed something.
        found = sorted(word for (word,) in words if low < word <= high)
        return found[:2] if self.has_begun and len(found) == 3 else None

    @property
    def is_lost(self):
        """Whether the stack is missing in a core file, which then reads as zeros."""
        pointers = self.pointers() if self.waits else None
        return pointers is not None and self.program.memory.u64(pointers[0]) == 0


def read_meta(program, meta):
    """The name and the place of the spawn."""
    if not meta:
        return None, None
    memory, at = program.memory, program.offsets
    start, length = struct.unpack("<QQ", memory.read(meta + at["meta.name"], 16))
    name = memory.text(start + ARC_DATA, length) if start else None
    thread = memory.u64(meta + at["meta.thread"])
    if thread:
        # Of a thread that is a fiber. The text is missing until it was looked up.
        start, length = memory.words(thread + at["spawn_place.text"], 2)
        return name, memory.text(start, length) if start else "pthread_create"
    place = memory.u64(meta + at["meta.spawned"])
    if not place:
        return name, None
    start, length, line, column = struct.unpack("<QQII", memory.read(place, 24))
    return name, f"{memory.text(start, length)}:{line}:{column}"


class Op:
    """One operation in the kernel, or on a thread of the pool."""

    def __init__(self, program, name, file, place):
        self.name, self.fd = program.ops[name], file if file >= 0 else None
        self.is_registered = file < -1
        self.offset = self.path = self.peer = self.address = None
        kind = program.places[name]
        if place is None or kind == "Hidden":
            return
        if kind == "Offset":
            self.offset = place if place != AT_CURSOR else None
        elif kind == "Path" and place:
            self.path = program.memory.c_string(place) or None
        elif kind == "Peer" and place:
            self.peer = socket_address(program.memory.read(place, 28))
        elif kind == "Address":
            self.address = place

    @staticmethod
    def of_completion(program, data, is_in_slot):
        at = program.offsets
        file = struct.unpack_from("<i", data, at["completion.file"])[0]
        place = struct.unpack_from("<Q", data, at["completion.place"])[0]
        if not data[at["completion.has_place"]]:
            place = None
        return Op(program, data[at["completion.name"]], -1 if is_in_slot else file, place)

    def describe(self, files):
        text = self.name
        if self.fd is not None:
            file = files.describe(self.fd)
            text += f", fd {self.fd}" + (f" ({file})" if file else "")
        elif self.is_registered:
            text += ", a registered file"
        if self.offset is not None:
            text += f", offset {self.offset}"
        if self.path is not None:
            text += f', "{self.path}"'
        text += f", {self.peer}" if self.peer else ""
        return text + (f", at {self.address:#x}" if self.address is not None else "")


def socket_address(data):
    (family,) = struct.unpack_from("<H", data)
    (port,) = struct.unpack_from(">H", data, 2)
    if family == socket.AF_INET:
        return f"{socket.inet_ntop(family, bytes(data[4:8]))}:{port}"
    if family == socket.AF_INET6:
        return f"[{socket.inet_ntop(family, bytes(data[8:24]))}]:{port}"
    return None


class Files:
    """Descriptions of the descriptors of a live process on this machine."""

    def __init__(self, pid):
        self.pid, self.known, self.sockets = pid, {}, None

    def describe(self, fd):
        if self.pid and fd not in self.known:
            self.known[fd] = self.look(fd)
        return self.known.get(fd)

    def look(self, fd):
        try:
            target = os.readlink(f"/proc/{self.pid}/fd/{fd}")
            if target == "anon_inode:[pidfd]":
                with open(f"/proc/{self.pid}/fdinfo/{fd}", encoding="ascii") as info:
                    pids = [line[4:].strip() for line in info if line.startswith("Pid:")]
                return f"child process {pids[0]}" if pids else target
        except OSError:
            return None
        if target.startswith("socket:["):
            self.sockets = self.sockets or dict(self.all_sockets())
            row = self.sockets.get(target[8:-1])
            return self.socket(row) if row else target
        return target

    def all_sockets(self):
        """The inode and the row of each socket of the machine, which may be thousands."""
        for table in "tcp", "tcp6", "udp", "udp6":
            try:
                with open(f"/proc/{self.pid}/net/{table}", encoding="ascii") as lines:
                    rows = [line.split(maxsplit=10) for line in lines][1:]
            except OSError:
                continue
            yield from ((row[9], row) for row in rows)

    def socket(self, row):
        local, peer = (self.address(text) for text in row[1:3])
        has_peer = int(row[2].rpartition(":")[2], 16) != 0
        return f"socket {local}" + (f", peer {peer}" if has_peer else "")

    @staticmethod
    def address(text):
        address, port = text.split(":")
        words = [bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8)]
        family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
        address = socket.inet_ntop(family, b"".join(words))
        return f"{address}:{int(port, 16)}" if len(words) == 1 else f"[{address}]:{int(port, 16)}"


class Runtime:
    """One runtime: its workers and fibers at this moment."""

    def __init__(self, program, number, workers, count, pid):
        self.program, self.number = program, number
        self.files = Files(pid)
        self.notes = []
        if count > MOST_WORKERS:
            self.notes.append(f"unreadable: no runtime has {count} workers")
        self.workers = self.read_workers(workers, min(count, MOST_WORKERS))
        self.fibers = []
        # The rows of those that cannot be read.
        self.unreadable = []
        for worker in self.workers:
            if worker.is_alive:
                self.read_fibers(worker)
        running = {worker.running for worker in self.workers}
        for fiber in self.fibers:
            fiber.runs = fiber.address in running
        clocks = [worker.clock_ns for worker in self.workers]
        # A core file may not say when it was made: at this time or later.
        self.is_at_least = not pid and not program.stopped_ns
        self.now_ns = program.stopped_ns or max(clocks, default=0)
        if pid:
            self.now_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        self.fibers.sort(key=lambda f: (0, f.since_ns) if f.waits else (1 + f.runs, 0))
        self.by_tag = {fiber.tag: fiber for fiber in self.fibers}

    def read_workers(self, entries, count):
        """The workers up to the last one that can be read."""
        workers, damaged = [], 0
        for number in range(count):
            workers.append(Worker(self.program, number, entries + 24 * number))
            damaged = damaged + 1 if workers[-1].blocks is None else 0
            if damaged > MOST_UNREADABLE:
                return workers[:-damaged]
        return workers

    def read_fibers(self, worker):
        """Adds the fibers that a worker has started."""
        position = 0
        try:
            for chunk, length in worker.chunks(self.program):
                self.read_chunk(worker, position, chunk, length)
                position += length
        except NONSENSE as error:
            self.notes.append(f"unreadable: the fibers of worker {worker.number}: {reason(error)}")

    def read_chunk(self, worker, first, chunk, length):
        damaged = 0
        try:
            for position, block in enumerate(blocks_in(self.program, chunk, length), first):
                damaged = 0 if self.read_fiber(worker, position, block) else damaged + 1
                if damaged > MOST_UNREADABLE:
                    raise Failure("no list of fibers is there")
        except NONSENSE as error:
            number = self.number_of(worker, first)
            text = f"those of worker {worker.number} from number {number} on: {reason(error)}"
            self.notes.append(f"unreadable: further fibers: {text}")

    def read_fiber(self, worker, position, block):
        """Adds the fiber of a block, if it has one. Returns whether the block can be read."""
        program = self.program
        try:
            if not block:
                raise Failure("its address is missing")
            fiber = Fiber(program, block, program.memory.read(block, program.offsets["fiber.size"]))
            fiber.check(position, len(self.workers))
        except NONSENSE as error:
            what = f"unreadable: {reason(error)}"
            row = [str(self.number_of(worker, position)), "<unreadable>", str(worker.number)]
            self.unreadable.append([*row, "", "", what])
            return False
        if fiber.state != program.offsets["state.vacant"]:
            self.fibers.append(fiber)
        return True

    def number_of(self, worker, position):
        """The number of the fiber at this position of its first worker."""
        return position << max(len(self.workers) - 1, 0).bit_length() | worker.number

    def head(self):
        waiting = sum(fiber.waits for fiber in self.fibers)
        count = len(self.fibers) + len(self.unreadable)
        text = f"{plural(count, 'fiber')} on {plural(len(self.workers), 'worker')}"
        unreadable = f", {len(self.unreadable)} unreadable" if self.unreadable else ""
        return f"{text}, {waiting} waiting{unreadable}"

    def age(self, fiber):
        ns = max(self.now_ns - fiber.since_ns, 0)
        return ("at least " if self.is_at_least else "") + in_units(ns)

    def what(self, fiber):
        """What a fiber waits for, in the words of the program's own dump."""
        at, memory = self.program.offsets, self.program.memory
        ops, count = fiber.ops()
        if ops:
            batch = f"{len(ops)} of a batch of {count}, the first: " if count > 1 else ""
            return batch + ops[0].describe(self.files)
        kind, object_, parts = fiber.target() or (None, 0, ())
        if kind == GATE and fiber.state == at["wait.lock"]:
            return f"the lock at {object_:#x}, {self.holder_in_words(object_, parts)}"
        if kind == GATE and fiber.state == at["wait.permit"]:
            free = memory.u64(object_ + parts[0]) // ONE_PERMIT
            return f"permits of the semaphore at {object_:#x}, which has {free} free"
        if kind == FIBER_END:
            return f"the end of {self.in_full(object_)}"
        if kind == MEMBERS:
            left = memory.u64(object_ + parts[0])
            return "the last fiber of a scope" if left == 1 else f"{left} fibers of a scope"
        if kind == CALL:
            name = memory.read(object_ + parts[0], 1)[0]
            file = struct.unpack("<i", memory.read(object_ + parts[1], 4))[0]
            op = Op(self.program, name, file, memory.u64(object_ + parts[2]))
            return op.describe(self.files) + ", by a thread of the pool"
        if fiber.state in (at["wait.sleep"], at["wait.park"]):
            return self.program.waits[fiber.state]
        return self.program.waits[fiber.state] + (f", at {object_:#x}" if kind is not None else "")

    def in_full(self, meta):
        name, spawned = read_meta(self.program, meta)
        return (
            f"a fiber (spawned at {spawned})"
            if name is None
            else f"fiber '{name}' (spawned at {spawned})"
        )

    def holder(self, gate, parts):
        return self.program.memory.u64(gate + parts[1])

    def holder_in_words(self, gate, parts):
        holder = self.holder(gate, parts)
        free = self.program.memory.u64(gate + parts[0]) // ONE_PERMIT
        if holder == NO_HOLDER and free > MOST_PERMITS // 2:
            readers = MOST_PERMITS - free
            return f"which {plural(readers, 'reader')} hold"
        if holder == NO_HOLDER:
            return "which was just released"
        if holder == THREAD_HOLDS:
            return "which a thread outside of any fiber holds"
        if holder in self.by_tag:
            return f"which {self.by_tag[holder].who()} holds"
        return "held by a fiber that has ended or is not in this dump"

    def blocker(self, fiber):
        """The fiber that holds the lock which this one waits for."""
        try:
            target = fiber.target()
            if target and target[0] == GATE and fiber.state == self.program.offsets["wait.lock"]:
                return self.by_tag.get(self.holder(target[1], target[2]))
        except NONSENSE:
            pass
        return None

    def cycles(self):
        visited_by, cycles = {}, []
        for start in self.fibers:
            at = start
            while at is not None and at not in visited_by:
                visited_by[at] = start
                at = self.blocker(at)
            if at is not None and visited_by[at] is start:
                cycle, at_cycle = [at], self.blocker(at)
                while at_cycle is not at:
                    cycle.append(at_cycle)
                    at_cycle = self.blocker(at_cycle)
                cycles.append(cycle)
        return cycles

    def row(self, fiber):
        worker = "moves" if fiber.worker is None else str(fiber.worker)
        state = "waits" if fiber.waits else "runs" if fiber.runs else "ready"
        what = [self.wait_in_words(fiber)] if fiber.waits else []
        what += [f"unreadable: {fiber.damage}"] if fiber.damage else []
        age = self.age(fiber) if fiber.waits else ""
        return [str(fiber.index), fiber.who(), worker, state, age, "; ".join(what)]

    def wait_in_words(self, fiber):
        try:
            if fiber.is_lost:
                return "unknown: the core file lacks the stack (gdb makes whole ones by `cringle core`)"
            return self.what(fiber) + ("; it is cancelled" if fiber.is_cancelled else "")
        except NONSENSE as error:
            return f"unreadable: {reason(error)}"

    def rows(self):
        """The row of each fiber, the unreadable ones last."""
        return [self.row(fiber) for fiber in self.fibers] + self.unreadable


def in_units(ns):
    """A time in units that fit its length."""
    seconds = ns // 10**9
    if seconds < 1:
        return f"{ns // 10**6} ms"
    if seconds < 60:
        return f"{ns / 1e9:.1f} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds // 60 % 60} min"


def plural(count, noun):
    return f"{count} {noun}" + ("" if count == 1 else "s")


def table(rows):
    """Aligns columns, which are two spaces apart."""
    if not rows:
        return []
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]) - 1)] + [0]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


class Commands:
    """The commands as lines of text, from a debugger: `read`, `roots`, `pid`."""

    def __init__(self, debugger):
        self.debugger = debugger

    def runtimes(self):
        roots = self.debugger.roots()
        if not roots:
            raise Failure(
                f"no module of the program has a section {SECTION}: it does not use `cringle`"
            )
        found, self.notes = [], []
        for root in roots:
            program = Program(Memory(self.debugger.read), root)
            runtimes, notes = program.runtimes()
            self.notes += notes
            for workers, count in runtimes:
                number = len(found) + 1
                found.append(Runtime(program, number, workers, count, self.debugger.pid()))
        if not found:
            raise Failure(
                next(iter(self.notes), "no runtime runs: the program is not within `cringle::run`")
            )
        return found

    def each(self, lines_of):
        runtimes = self.runtimes()
        lines = []
        for runtime in runtimes:
            head = f"Runtime {runtime.number}: " if len(runtimes) > 1 else ""
            lines += [head + runtime.head()] + lines_of(runtime) + runtime.notes
        return lines + self.notes

    def fibers(self, text):
        head = ["N", "fiber", "worker", "state", "for", "what"]

        def lines_of(runtime):
            return table([head] + [row for row in runtime.rows() if text in " ".join(row)])

        return self.each(lines_of)

    def workers(self, _):
        head = ["worker", "thread", "ready", "waiting", "turns", "sleeps", "runs"]

        def row(runtime, worker):
            own = [fiber for fiber in runtime.fibers if fiber.worker == worker.number]
            running = [fiber for fiber in own if fiber.runs]
            waiting = sum(fiber.waits for fiber in own)
            ready = len(own) - waiting - len(running)
            runs = f"{running[0].who()} ({running[0].index})" if running else "no fiber"
            runs = runs if worker.is_alive else "has ended, or not begun"
            runs = f"unreadable: {worker.damage}" if worker.damage else runs
            numbers = worker.number, worker.thread, ready, waiting, worker.turns, worker.sleeps
            return [*map(str, numbers), runs]

        return self.each(lambda r: table([head] + [row(r, worker) for worker in r.workers]))

    def ops(self, _):
        def texts(runtime, fiber):
            try:
                return [op.describe(runtime.files) for op in fiber.ops()[0]]
            except NONSENSE as error:
                return [f"unreadable: {reason(error)}"]

        def lines_of(runtime):
            rows = [["N", "fiber", "worker", "for", "operation"]]
            for fiber in runtime.fibers:
                start = [str(fiber.index), fiber.who(), str(fiber.worker), runtime.age(fiber)]
                rows += [start + [text] for text in texts(runtime, fiber)]
            return table(rows) if len(rows) > 1 else ["no operation is in the kernel"]

        return self.each(lines_of)

    def locks(self, _):
        def line_of(runtime, gate, parts, waiting):
            is_lock = waiting[0].state == runtime.program.offsets["wait.lock"]
            what = "lock" if is_lock else "semaphore"
            try:
                holder = f", {runtime.holder_in_words(gate, parts)}" if is_lock else ""
            except NONSENSE as error:
                holder = f", unreadable: {reason(error)}"
            return f"the {what} at {gate:#x}{holder}: {len(waiting)} waiting"

        def lines_of(runtime):
            locks, lines, unreadable = {}, [], []
            for fiber in runtime.fibers:
                try:
                    target = fiber.target()
                except NONSENSE as error:
                    text = f"unreadable: what fiber {fiber.index} waits for: {reason(error)}"
                    unreadable.append(text)
                    continue
                if target and target[0] == GATE:
                    locks.setdefault(target[1], (target[2], []))[1].append(fiber)
            for gate, (parts, waiting) in locks.items():
                lines.append(line_of(runtime, gate, parts, waiting))
                rows = [
                    ["  " + str(f.index), f.who(), str(f.worker), runtime.age(f)] for f in waiting
                ]
                lines += table([["  N", "fiber", "worker", "for"]] + rows)
            for cycle in runtime.cycles():
                names = ", ".join(fiber.who() for fiber in cycle)
                lines.append(f"DEADLOCK: {names}: each waits for a lock that the next one holds")
            return (lines or ["no fiber waits for a lock"]) + unreadable

        return self.each(lines_of)

    def find(self, name):
        """The fiber with this number or name, and its runtime."""
        runtimes = self.runtimes()
        number, _, index = name.rpartition(":")
        if number.isdigit() and index.isdigit():
            runtimes, name = [r for r in runtimes if r.number == int(number)], index
        name = name.strip("'")
        found = [(r, f) for r in runtimes for f in r.fibers if name in (str(f.index), f.name)]
        if not found:
            for row in (row for runtime in runtimes for row in runtime.unreadable):
                if row[0] == name:
                    raise Failure(f"fiber {name}: {row[-1]}")
            raise Failure(f"no fiber has the number or name {name}; `cringle fibers` lists them")
        if len(found) > 1:
            choices = ", ".join(f"{runtime.number}:{fiber.index}" for runtime, fiber in found)
            raise Failure(f"several fibers are called {name}: choose one of {choices}")
        return found[0]


def saved_registers(memory, pointer, machine):
    """The registers with which a suspended fiber continues, as `corosensei` has saved them."""
    if machine == "x86_64":
        pc, rbx, rbp = struct.unpack("<3Q", memory.read(pointer, 24))
        return {"rip": pc, "rsp": pointer + 24, "rbx": rbx, "rbp": rbp}
    if machine == "aarch64":
        x19, x29, pc = struct.unpack("<3Q", memory.read(pointer, 24))
        return {"pc": pc, "sp": pointer + 32, "x19": x19, "x29": x29}
    raise Failure(f"the stacks of fibers cannot be read on {machine}")


def register_in_gdb():
    """The commands, and the unwinder that shows the stack of a suspended fiber, in gdb."""
    import gdb
    from gdb.unwinder import Unwinder, register_unwinder

    def machine():
        name = gdb.selected_inferior().architecture().name()
        return "x86_64" if "x86-64" in name else name

    class Debugger:
        def read(self, address, length):
            try:
                return bytes(gdb.selected_inferior().read_memory(address, length))
            except gdb.error as error:
                raise Failure(str(error)) from None

        def roots(self):
            if not gdb.selected_inferior().threads():
                raise Failure("no process: start the program, attach to it or load a core file")
            lines = gdb.execute("info files", to_string=True).splitlines()
            rows = [line.split() for line in lines if f" is {SECTION}" in line]
            return [int(row[0], 16) for row in rows] or self.roots_of_child()

        @staticmethod
        def roots_of_child():
            """Of a forked child that gdb follows, `info files` lists no section."""
            try:
                command = f"maintenance info sections -all-objects {SECTION}"
                lines = gdb.execute(command, to_string=True).splitlines()
            except gdb.error:
                return []
            starts = (line.partition("->")[0].split() for line in lines if f": {SECTION} " in line)
            return [int(words[-1], 16) for words in starts]

        def pid(self):
            """The process, if it lives on this machine; 0 for a core file."""
            is_native = gdb.selected_inferior().connection is not None
            is_native = is_native and gdb.selected_inferior().connection.type == "native"
            return gdb.selected_inferior().pid if is_native else 0

    class FrameId:
        """The identity of a frame, as gdb wants it."""

        def __init__(self, sp, pc):
            self.sp, self.pc = gdb.Value(sp), gdb.Value(pc)

    class FiberUnwinder(Unwinder):
        """Continues the selected thread's innermost frame on the stack of a suspended fiber.

        So the fiber's frames follow that one. No register and no memory is changed, and
        the selection ends when the program continues.
        """

        def __init__(self):
            super().__init__("cringle fiber")
            self.selected = None

        def __call__(self, frame):
            if self.selected is None:
                return None
            thread, registers, initial = self.selected
            names = ("rsp", "rip") if "rsp" in registers else ("sp", "pc")
            sp, pc = (int(frame.read_register(name)) & (1 << 64) - 1 for name in names)
            if (sp, pc) == thread:
                # Inner to all frames of the fiber, for gdb's check that stacks grow.
                info = frame.create_unwind_info(FrameId(registers[names[0]] - 8, pc))
                values = registers
            elif sp == initial:
                # The frame that the fiber began in. Beneath it is the worker, some time ago.
                info = frame.create_unwind_info(FrameId(sp, pc))
                values = {names[0]: sp + 16, names[1]: 0}
            else:
                return None
            kind = frame.read_register(names[0]).type
            for name, value in values.items():
                info.add_saved_register(name, gdb.Value(value).cast(kind))
            return info

        def select(self, selected):
            self.selected = selected
            gdb.invalidate_cached_frames()

    unwinder = FiberUnwinder()
    register_unwinder(None, unwinder, replace=True)
    gdb.events.cont.connect(lambda _: unwinder.select(None))
    commands = Commands(Debugger())

    def print_lines(lines):
        gdb.write("".join(printable(line, gdb.host_charset()) + "\n" for line in lines))

    def reporting(run, *arguments):
        """Runs a command; one line reports its failure."""
        try:
            run(*arguments)
        except (gdb.error, OSError, *NONSENSE) as error:
            text = printable(reason_of_command(error), gdb.host_charset())
            raise gdb.GdbError(f"cringle: {text}") from None

    def reason_of_command(error):
        is_plain = isinstance(error, (gdb.error, OSError))
        return str(error).rstrip(".") if is_plain else reason(error)

    class Prefix(gdb.Command):
        """Lists the fibers, workers, operations and locks of a program that uses Cringle."""

        def __init__(self):
            super().__init__("cringle", gdb.COMMAND_STATUS, gdb.COMPLETE_NONE, True)

    class List(gdb.Command):
        """One of the commands that print a list."""

        def __init__(self, name, lines_of):
            super().__init__(f"cringle {name}", gdb.COMMAND_STATUS)
            self.lines_of = lines_of

        def invoke(self, argument, _):
            reporting(lambda: print_lines(self.lines_of(argument)))

    class OneFiber(gdb.Command):
        """Selects the stack of a fiber, given by number or name: cringle fiber N [COMMAND]

        `bt`, `up`, `down`, `frame` and `info locals` then refer to the fiber. Its frames follow the
        innermost one of the thread: they begin with number 1, or a higher one if functions are
        inlined there. `cringle fiber off`, or continuing the program, ends that. With a COMMAND,
        such as `bt`, only that command refers to the fiber.
        """

        def __init__(self):
            super().__init__("cringle fiber", gdb.COMMAND_STACK)

        def invoke(self, argument, from_tty):
            reporting(self.run, argument, from_tty)

        def run(self, argument, from_tty):
            name, command = split_name(argument)
            unwinder.select(None)
            if name == "off":
                return
            runtime, fiber = commands.find(name)
            print_lines([runtime.head(), "  ".join(filter(None, runtime.row(fiber)))])
            if fiber.runs:
                self.select_thread(runtime, fiber)
            else:
                self.select_stack(runtime, fiber)
            try:
                gdb.execute(command or "frame", from_tty)
            finally:
                if command:
                    unwinder.select(None)

        @staticmethod
        def select_thread(runtime, fiber):
            worker = next(w for w in runtime.workers if w.running == fiber.address)
            for thread in gdb.selected_inferior().threads():
                if thread.ptid[1] == worker.thread:
                    thread.switch()
                    return gdb.newest_frame().select()
            raise Failure(f"it runs on the thread {worker.thread}, which gdb does not know")

        @staticmethod
        def select_stack(runtime, fiber):
            pointers = fiber.pointers()
            if pointers is None:
                raise Failure(why_no_frames(fiber))
            saved = saved_registers(runtime.program.memory, pointers[0], machine())
            if gdb.selected_thread() is None:
                raise Failure("no thread is selected")
            newest = gdb.newest_frame()
            sp, pc = (int(newest.read_register(name)) & (1 << 64) - 1 for name in ("sp", "pc"))
            unwinder.select(((sp, pc), saved, pointers[1] + 8))
            frame = gdb.newest_frame()
            # Functions that are inlined have frames of their own in front of that of the function.
            number = 1
            while frame.type() == gdb.INLINE_FRAME:
                frame = frame.older()
                number += 1
            frame.older().select()
            print_lines([f"(its frames begin with #{number}; those before are the thread's)"])

    class Core(gdb.Command):
        """Writes a core file that has the stacks of all fibers: cringle core FILE

        `generate-core-file` omits a mapping from its first page on that cannot be read, and the
        stacks of fibers have such pages as guards (Linux 6.13). This command adds what is missing.
        The cores that the kernel writes are whole.
        """

        def __init__(self):
            super().__init__("cringle core", gdb.COMMAND_DATA, gdb.COMPLETE_FILENAME)

        def invoke(self, argument, _):
            reporting(self.write, os.path.expanduser(argument.strip()))

        def write(self, path):
            if not path:
                raise Failure("into which file? `cringle core FILE` writes it")
            if os.path.exists(path) and not os.path.isfile(path):
                raise Failure(f"cannot write {path}: it is no regular file")
            runtimes = commands.runtimes()
            # A core file is whole, or has another name.
            part = os.path.realpath(path) + ".part"
            try:
                output = gdb.execute(f"generate-core-file {part}", to_string=True)
                if "Failed to write" in output:
                    raise Failure(f"cannot write {path}: {output.strip()}")
                missing = complete_core(part, runtimes)
                os.replace(part, os.path.realpath(path))
            except OSError as error:
                raise Failure(f"cannot write {path}: {error.strerror}") from None
            finally:
                if os.path.lexists(part):
                    os.unlink(part)
            lacks = f"; those of {plural(len(missing), 'fiber')} are missing:" if missing else ""
            print_lines([f"wrote {path}, with the stacks of the fibers{lacks}", *missing])

    Prefix()
    Core()
    for name in "fibers", "workers", "ops", "locks":
        List(name, getattr(commands, name))
    OneFiber()


def why_no_frames(fiber):
    if fiber.has_begun:
        return "unreadable: the fiber's stack pointer is not in its stack"
    return "the fiber has not begun, and has no frames"


def printable(line, charset):
    """The line without what would end it or move the cursor, as the charset can show it."""
    if not line.isprintable():
        line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
    return line.encode(charset, "backslashreplace").decode(charset)


def complete_core(path, runtimes):
    """Adds to a core file what gdb omits. Returns a line for each stack that is missing then."""
    missing = []
    with open(path, "r+b") as core:
        segments = list(loaded_segments(core))
        size = core.seek(0, os.SEEK_END)
        if not segments or any(offset + length > size for _, length, offset in segments):
            raise Failure("the core file is incomplete: is the disk full?")
        for runtime in runtimes:
            program = runtime.program
            write_to(core, segments, program.stopped_at, struct.pack("<Q", runtime.now_ns))
            for fiber in runtime.fibers:
                try:
                    add_stack(core, segments, program.memory, fiber)
                except NONSENSE as error:
                    missing.append(f"  {fiber.index}  {fiber.who()}: {reason(error)}")
        core.flush()
        # Some file systems find a place for what was written only then.
        os.fsync(core.fileno())
    return missing


def add_stack(core, segments, memory, fiber):
    # The stack pointer of a fiber that runs is in a register: all of its stack is read.
    (low, high), pointers = fiber.bounds(), fiber.pointers()
    for page in range(max(low, pointers[0] & ~0xFFF) if pointers else low, high, 4096):
        if not write_to(core, segments, page, memory.read(page, 4096)):
            raise Failure(f"the core file has no place for the stack at {page:#x}")


def loaded_segments(core):
    """The address, length and offset of each part of memory in a core file of 64 bits."""
    header = core.read(64)
    if len(header) < 64 or not header.startswith(b"\x7fELF"):
        return
    (start,), (size, count) = (
        struct.unpack_from("<Q", header, 32),
        struct.unpack_from("<2H", header, 54),
    )
    core.seek(start)
    for _ in range(count):
        entry = core.read(size)
        if len(entry) < 40:
            return
        kind, _, offset, address, _, length = struct.unpack_from("<2I4Q", entry)
        if kind == 1:
            yield address, length, offset


def write_to(core, segments, address, data):
    """Writes memory into a core file. Returns whether the file has a place for it."""
    for start, length, offset in segments:
        if start <= address <= start + length - len(data):
            core.seek(offset + address - start)
            core.write(data)
            return True
    return False


def split_name(argument):
    """The fiber, whose name may be quoted, and the rest."""
    argument = argument.strip()
    if not argument:
        raise Failure("which fiber? `cringle fibers` lists them")
    if argument[0] == "'" and "'" in argument[1:]:
        name, _, rest = argument[1:].partition("'")
        return name, rest.strip()
    name, _, rest = argument.partition(" ")
    return name, rest.strip()


# Within gdb the module is there already.
if "gdb" in sys.modules:
    register_in_gdb()
