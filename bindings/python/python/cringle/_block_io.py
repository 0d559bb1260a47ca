"""The class BlockIO: the compiled calls, with coroutines and iterators."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from itertools import chain, islice, repeat
from threading import Lock
from typing import TYPE_CHECKING, Any, SupportsIndex

from . import _aio
from ._native import BlockIO as _BlockIO
from ._native import File, Pending
from ._native import open as _open

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._native import _Integers, _Memory, _Ops, _Path


class BlockIO(_BlockIO):
    """Workers with rings, which perform batches of reads and writes for any thread.

    ``workers`` is the number of threads with a ring each, ``depth`` the number of operations that
    each has in the kernel at once, ``driver`` ``"auto"``, ``"uring"`` or ``"epoll"``: ``"auto"``
    uses io_uring where the system allows it, and threads where not, with the same results.

    As a context manager it closes itself. ``close`` waits for all operations under way.

    Memory that an operation uses is held until the operation has ended, whatever is dropped,
    raised or interrupted. If a signal's handler raises (Ctrl-C), the exception is raised at once;
    operations in the kernel end in the background, the others are not submitted.
    """

    @staticmethod
    def open(
        path: _Path,
        mode: str = "r",
        *,
        direct: bool = False,
        mapped: bool = False,
        permissions: int = 0o666,
    ) -> File:
        """``cringle.open``: any ``BlockIO`` uses any file."""
        return _open(path, mode, direct=direct, mapped=mapped, permissions=permissions)

    async def aread_many(
        self,
        file: File,
        offsets: _Integers,
        length: SupportsIndex | _Integers | None = None,
        out: _Memory | None = None,
        *,
        lengths: SupportsIndex | _Integers | None = None,
        strict: bool = True,
        as_bytes: bool = False,
    ) -> Any:
        """``read_many`` for asyncio. A cancelled task waits for the operations in the kernel, so
        ``out`` is free when ``CancelledError`` is raised."""
        return await _aio.wait(
            self.start_read_many(
                file, offsets, length, out, lengths=lengths, strict=strict, as_bytes=as_bytes
            )
        )

    async def aread_into(self, ops: _Ops, *, strict: bool = True) -> Any:
        """``read_into`` for asyncio."""
        return await _aio.wait(self.start_read_into(ops, strict=strict))

    async def awrite_many(
        self,
        file: File,
        offsets: _Integers,
        data: _Memory | Sequence[_Memory],
        *,
        strict: bool = True,
    ) -> Any:
        """``write_many`` for asyncio."""
        return await _aio.wait(self.start_write_many(file, offsets, data, strict=strict))

    async def afsync(self, file: File, *, data_only: bool = False) -> None:
        """``fsync`` for asyncio."""
        await _aio.wait(self.start_fsync(file, data_only=data_only))

    def prefetch(
        self,
        file: File,
        batches: Iterable[_Integers],
        length: SupportsIndex | _Integers | None = None,
        *,
        lengths: SupportsIndex | _Integers | None = None,
        ahead: int = 2,
        as_bytes: bool = False,
    ) -> Iterator[Any]:
        """Yields what ``read_many`` returns for each batch of offsets, in order, while the next ``ahead`` batches are
        being read.

        ``batches`` is an iterable of what ``read_many`` takes as offsets; it is advanced as
        needed, so it may be endless. Memory: at most ``ahead + 1`` batches, and what the caller
        keeps. An exception of ``batches`` is raised after the batches before it. ``lengths`` are
        those of each batch, so they must not be an iterator.

        One thread at a time advances the iterator; a second one gets a ``ValueError``, as from a
        generator.
        """
        if ahead < 1:
            raise ValueError(f"ahead is {ahead}: at least one batch must be read in advance")
        if (length is None) == (lengths is None):
            raise TypeError("exactly one of length and lengths must be given")
        asked = lengths if length is None else length
        if isinstance(asked, Iterator):
            raise TypeError("lengths is an iterator, which the first batch uses up: pass a list")
        return _Prefetch(self._prefetch(file, iter(batches), asked, ahead, as_bytes))

    def _prefetch(
        self,
        file: File,
        batches: Iterator[_Integers],
        length: SupportsIndex | _Integers | None,
        ahead: int,
        as_bytes: bool,
    ) -> Generator[Any, None, None]:
        started: deque[Pending] = deque()
        done: Pending | None = None
        failed: Exception | None = None
        try:
            for count in chain([ahead], repeat(1)):
                try:
                    if failed is None:
                        for offsets in islice(batches, count):
                            started.append(
                                self.start_read_many(file, offsets, length, as_bytes=as_bytes)
                            )
                except Exception as error:
                    # Its turn is after the batches before it.
                    failed = error
                if done is not None:
                    yield done.result()
                if not started:
                    break
                done = started.popleft()
            if failed is not None:
                raise failed
        finally:
            # The traceback refers to this frame.
            failed = None
            for pending in started:
                pending.cancel()


class _Prefetch(Iterator[Any]):
    """A generator that refuses a second thread. CPython's own check is not atomic without a GIL:
    two threads that advance one generator at once can crash CPython 3.14."""

    def __init__(self, batches: Generator[Any, None, None]) -> None:
        self._batches = batches
        self._turn = Lock()

    def __next__(self) -> Any:
        self._begin()
        try:
            return next(self._batches)
        finally:
            self._turn.release()

    def close(self) -> None:
        """Stops the reads that are not submitted."""
        self._begin()
        try:
            self._batches.close()
        finally:
            self._turn.release()

    def _begin(self) -> None:
        # It never waits: the turn may be that of this thread, or of one that a fork left behind.
        if not self._turn.acquire(blocking=False):
            raise ValueError("the iterator is being advanced: let one thread at a time use it")
