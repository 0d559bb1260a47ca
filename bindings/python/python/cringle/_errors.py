"""The exceptions of batches."""

from __future__ import annotations

import errno
import os
from array import array
from typing import Any

#: The largest offset of a file, and the largest end of an operation.
_MAX_OFFSET = 2**63 - 1

_REMEDIES = {
    errno.EBADF: "open the file with a mode that allows it: r+ reads and writes",
    errno.ECANCELED: "the call was cancelled before the operation was submitted",
    errno.EFAULT: "the memory was unmapped, or its file is too short",
    errno.EFBIG: "the offset exceeds the limit of the file system or of RLIMIT_FSIZE",
    errno.EINVAL: "offset and length must suit the file",
    errno.EIO: "the device failed: see the kernel's log (dmesg)",
    errno.ENOSPC: "the file system is full",
    errno.ESPIPE: "batches need a file with positions, not a pipe or a socket",
    errno.EISDIR: "a directory has no bytes to read",
}


class BatchError(OSError):
    """An operation of a batch failed; the others have ended, too.

    ``errno``, ``strerror`` and ``filename`` are those of ``OSError``.
    """

    #: The number of the first operation that failed, in the order of the call.
    index: int
    #: Its offset in the file, in bytes.
    offset: int
    #: The number of bytes that it was to transfer.
    length: int
    #: What to do about it, or ``None``.
    remedy: str | None
    #: The result of each operation: the number of bytes, or its negated ``errno``.
    counts: Any

    def __str__(self) -> str:
        return self.strerror or super().__str__()

    def __reduce__(self) -> str | tuple[Any, ...]:
        reduced = super().__reduce__()
        # Without NumPy, the counts are a memoryview, which cannot be pickled.
        counts = self.__dict__.get("counts")
        if isinstance(reduced, tuple) and isinstance(counts, memoryview):
            state = {**self.__dict__, "counts": array("q", counts.tolist())}
            return (*reduced[:2], state, *reduced[3:])
        return reduced


class ShortCountError(BatchError):
    """An operation transferred fewer bytes than asked for: the file ends there."""


def failure(
    code: int | None,
    text: str | None,
    name: Any,
    place: tuple[int, int, int, bool],
    counts: Any,
) -> BatchError:
    """Makes the exception of the operation at ``place``. The compiled half calls it."""
    index, offset, length, is_write = place
    verb = "write" if is_write else "read"
    what = f"{verb} {index} ({length} bytes at offset {offset}) of {name!r}"
    error: BatchError
    remedy: str | None
    if code is None:
        remedy = "pass strict=False to receive the counts"
        reason = f"short count: {counts[index]} bytes"
        reason += "" if is_write else ", the end of the file"
        error = ShortCountError(None, f"{what}: {reason}; {remedy}", name)
    else:
        if code == errno.EINVAL and offset + length > _MAX_OFFSET:
            text = f"it ends at {offset + length}, and the largest offset is {_MAX_OFFSET} (2⁶³ − 1)"
        remedy = None if text else _REMEDIES.get(code)
        reason = text or os.strerror(code)
        error = BatchError(code, f"{what}: {reason}" + (f"; {remedy}" if remedy else ""), name)
    error.index, error.offset, error.length = index, offset, length
    error.remedy, error.counts = remedy, counts
    error.filename = name
    return error
