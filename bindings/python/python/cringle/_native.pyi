# The types of the compiled half. What is public is exported by `cringle`.

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Protocol, Self, SupportsIndex, TypeAlias, TypeVar, final, overload

from numpy import int64, uint8
from numpy.typing import NDArray
from typing_extensions import Buffer as SupportsBuffer
from typing_extensions import disjoint_base

__all__ = ["BlockIO", "Buffer", "File", "Notifier", "Pending", "open", "prepare", "shutdown"]

class _SupportsDLPack(Protocol):
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

# An array of integers, or an iterable of them.
_Integers: TypeAlias = SupportsBuffer | Iterable[SupportsIndex]
# An array, bytearray, memoryview, tensor in main memory.
_Memory: TypeAlias = SupportsBuffer | _SupportsDLPack
_Path: TypeAlias = str | bytes | PathLike[str] | PathLike[bytes] | int
_Ops: TypeAlias = Iterable[tuple[File, SupportsIndex, _Memory]]
# Without NumPy: lists of memoryviews, and a memoryview or array of counts.
_Rows: TypeAlias = NDArray[uint8]
_Pieces: TypeAlias = list[NDArray[uint8]]
_Counts: TypeAlias = NDArray[int64]
_Out = TypeVar("_Out", bound=_Memory)

def open(
    path: _Path,
    mode: str = "r",
    *,
    direct: bool = False,
    mapped: bool = False,
    permissions: int = 0o666,
) -> File:
    """Opens a file for batches.

    ``mode`` is that of the built-in ``open``: ``r``, ``r+``, ``w``, ``w+``, ``x``, ``x+``. All
    reads and writes are at offsets. An integer is a descriptor, which is duplicated; one that
    appends (``O_APPEND``) is refused. The open of a FIFO waits for the other end; Ctrl-C ends the
    wait. A directory is an ``IsADirectoryError``.

    ``direct=True`` bypasses the page cache; any offset, length and buffer works. ``mapped=True``
    copies the pages that are in memory without a system call; they count as memory of the process
    (RSS). Both install a handler of SIGBUS for
    the process, once: call ``faulthandler.enable()`` and ``signal.signal(SIGBUS, …)`` before the
    first such ``open``, because a handler that replaces this one later ends the process at a page
    of a truncated file. Raises ``OSError`` as the built-in ``open``.
    """

@final
class File:
    """An open file. As a context manager it closes itself."""

    @property
    def name(self) -> str | bytes | int:
        """The path (``os.fspath`` of a path-like object) or descriptor that it was opened from."""
    @property
    def size(self) -> int:
        """The size of the file or block device in bytes, now."""
    @property
    def direct(self) -> bool:
        """Whether reads and writes bypass the page cache."""
    @property
    def mapped(self) -> bool:
        """Whether reads of pages that are in memory are copies."""
    @property
    def unmapped_reason(self) -> str | None:
        """Why no read of a file opened with ``mapped=True`` is a copy, or ``None``."""
    @property
    def closed(self) -> bool:
        """Whether the handle is closed."""
    def fileno(self) -> int:
        """The descriptor. It stays the file's."""
    def refresh(self) -> None:
        """Looks which pages of a mapped file are in memory now, instead of within 100 ms."""
    def close(self) -> None:
        """Closes the handle. The descriptor is closed when no operation uses it any more."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: type[BaseException] | BaseException | TracebackType | None) -> None: ...

@final
class Buffer:
    """``size`` zero bytes at a multiple of 4096, as direct I/O needs it. It has the buffer
    protocol: ``numpy.frombuffer(buffer, dtype)`` is an array of it."""

    def __new__(cls, size: SupportsIndex) -> Self: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __release_buffer__(self, buffer: memoryview, /) -> None: ...

@disjoint_base
class BlockIO:
    def __new__(cls, workers: int = 1, depth: int = 192, driver: Literal["auto", "uring", "epoll"] = "auto") -> Self: ...
    @overload
    def read_many(self, file: File, offsets: _Integers, length: SupportsIndex, out: None = None, *, lengths: None = None, strict: Literal[True] = True, as_bytes: Literal[False] = False) -> _Rows: ...
    @overload
    def read_many(self, file: File, offsets: _Integers, length: _Integers, out: None = None, *, lengths: None = None, strict: Literal[True] = True, as_bytes: Literal[False] = False) -> _Pieces: ...
    @overload
    def read_many(self, file: File, offsets: _Integers, length: SupportsIndex | _Integers, out: _Out, *, lengths: None = None, strict: Literal[True] = True, as_bytes: Literal[False] = False) -> _Out: ...
    @overload
    def read_many(self, file: File, offsets: _Integers, length: SupportsIndex, out: None = None, *, lengths: None = None, strict: Literal[False], as_bytes: Literal[False] = False) -> tuple[_Rows, _Counts]: ...
    @overload
    def read_many(self, file: File, offsets: _Integers, length: _Integers, out: None = None, *, lengths: None = None, strict: Literal[False], as_bytes: Literal[False] = False) -> tuple[_Pieces, _Counts]: ...
    @overload
    def read_many(self, file: File, offsets: _Integers, length: SupportsIndex | _Integers, out: _Out, *, lengths: None = None, strict: Literal[False], as_bytes: Literal[False] = False) -> tuple[_Out, _Counts]: ...
    @overload
    def read_many(self, file: File, offsets: _Integers, length: None = None, *, lengths: SupportsIndex, out: None = None, strict: Literal[True] = True, as_bytes: Literal[False] = False) -> _Rows: ...
    @overload
    def read_many(self, file: File, offsets: _Integers, length: None = None, *, lengths: _Integers, out: None = None, strict: Literal[True] = True, as_bytes: Literal[False] = False) -> _Pieces: ...
    @overload
    def read_many(self, file: File, offsets: _Integers, length: None = None, *, lengths: SupportsIndex | _Integers, out: _Out, strict: Literal[True] = True, as_bytes: Literal[False] = False) -> _Out: ...
    @overload
    def read_many(self, file: File, offsets: _Integers, length: None = None, *, lengths: SupportsIndex, out: None = None, strict: Literal[False], as_bytes: Literal[False] = False) -> tuple[_Rows, _Counts]: ...
    @overload
    def read_many(self, file: File, offsets: _Integers, length: None = None, *, lengths: _Integers, out: None = None, strict: Literal[False], as_bytes: Literal[False] = False) -> tuple[_Pieces, _Counts]: ...
    @overload
    def read_many(self, file: File, offsets: _Integers, length: None = None, *, lengths: SupportsIndex | _Integers, out: _Out, strict: Literal[False], as_bytes: Literal[False] = False) -> tuple[_Out, _Counts]: ...
    @overload
    def read_many(self, file: File, offsets: _Integers, length: SupportsIndex | _Integers | None = None, out: None = None, *, lengths: SupportsIndex | _Integers | None = None, strict: Literal[True] = True, as_bytes: Literal[True]) -> list[bytes]: ...
    @overload
    def read_many(self, file: File, offsets: _Integers, length: SupportsIndex | _Integers | None = None, out: None = None, *, lengths: SupportsIndex | _Integers | None = None, strict: Literal[False], as_bytes: Literal[True]) -> tuple[list[bytes], _Counts]: ...
    @overload
    def read_many(self, file: File, offsets: _Integers, length: SupportsIndex | _Integers | None = None, out: _Memory | None = None, *, lengths: SupportsIndex | _Integers | None = None, strict: bool = True, as_bytes: bool = False) -> Any: ...
    @overload
    def read_into(self, ops: _Ops, *, strict: Literal[True] = True) -> None: ...
    @overload
    def read_into(self, ops: _Ops, *, strict: Literal[False]) -> _Counts: ...
    @overload
    def read_into(self, ops: _Ops, *, strict: bool) -> _Counts | None: ...
    @overload
    def write_many(self, file: File, offsets: _Integers, data: _Memory | Sequence[_Memory], *, strict: Literal[True] = True) -> None: ...
    @overload
    def write_many(self, file: File, offsets: _Integers, data: _Memory | Sequence[_Memory], *, strict: Literal[False]) -> _Counts: ...
    @overload
    def write_many(self, file: File, offsets: _Integers, data: _Memory | Sequence[_Memory], *, strict: bool) -> _Counts | None: ...
    def fsync(self, file: File, *, data_only: bool = False) -> None:
        """Waits until all that was written to the file is durable; with ``data_only``, as
        ``os.fdatasync``."""
    def start_read_many(self, file: File, offsets: _Integers, length: SupportsIndex | _Integers | None = None, out: _Memory | None = None, *, lengths: SupportsIndex | _Integers | None = None, strict: bool = True, as_bytes: bool = False) -> Pending:
        """Starts a ``read_many`` and returns at once."""
    def start_read_into(self, ops: _Ops, *, strict: bool = True) -> Pending:
        """Starts a ``read_into`` and returns at once."""
    def start_write_many(self, file: File, offsets: _Integers, data: _Memory | Sequence[_Memory], *, strict: bool = True) -> Pending:
        """Starts a ``write_many`` and returns at once."""
    def start_fsync(self, file: File, *, data_only: bool = False) -> Pending:
        """Starts an ``fsync`` and returns at once."""
    @property
    def driver(self) -> Literal["uring", "epoll"]:
        """How operations reach the kernel."""
    @property
    def driver_reason(self) -> str | None:
        """Why there is no ring, and the remedy; ``None`` with a ring."""
    def stats(self) -> dict[str, int]:
        """The sums of the workers' counters since they started."""
    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
    def close(self) -> None:
        """Refuses further calls and waits for all operations under way. A second call waits, too.
        A signal's handler that raises ends the wait."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: type[BaseException] | BaseException | TracebackType | None) -> None: ...

@final
class Pending:
    """Operations that were started. Dropped, they end in the background, and keep their memory."""

    def done(self) -> bool:
        """Whether all operations have ended."""
    def cancel(self) -> None:
        """Has the operations that are not submitted yet fail with ``ECANCELED``."""
    def result(self) -> Any:
        """Waits for the end; returns the call's value or raises its exception. Once."""
    def discard(self) -> None:
        """Releases the memory of operations that have ended, without their result."""
    def notify(self, notifier: Notifier, token: int) -> None:
        """Has the notifier report the token when all operations have ended."""

@final
class Notifier:
    """An eventfd, readable when operations have ended."""

    def __new__(cls) -> Self: ...
    def fileno(self) -> int: ...
    def take(self) -> list[int]:
        """Returns the tokens since the last call."""

def prepare(module: Any, failure: Callable[..., Exception]) -> None:
    """Receives NumPy, or ``None``. The package calls it while it is imported."""

def shutdown() -> None:
    """Closes every ``BlockIO``. The interpreter calls it at its end."""
