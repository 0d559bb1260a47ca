"""Batches of reads and writes with one wait, on one io_uring per core.

    import cringle

    with cringle.BlockIO() as io, cringle.open("vectors.bin", direct=True) as file:
        pages = io.read_many(file, offsets, 4096)     # an array of len(offsets) rows

See the README for a tour; each call's documentation is on :class:`BlockIO`.
"""

from . import _errors, _native


def _prepare() -> None:
    # Before the first call: a call that imported NumPy would run Python's import in its midst.
    try:
        import numpy
    except ModuleNotFoundError as error:
        # A NumPy that is installed, and broken, is not ignored.
        if error.name != "numpy":
            raise
        _native.prepare(None, _errors.failure)
    else:
        _native.prepare(numpy, _errors.failure)


_prepare()

from ._block_io import BlockIO
from ._errors import BatchError, ShortCountError
from ._native import Buffer, File, open

__all__ = ["BatchError", "BlockIO", "Buffer", "File", "ShortCountError", "open"]
