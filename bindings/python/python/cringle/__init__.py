"""Batches of reads and writes with one wait, on one io_uring per core.

    import cringle

    with cringle.BlockIO() as io, cringle.open("vectors.bin", direct=True) as file:
        pages = io.read_many(file, offsets, 4096)     # an array of len(offsets) rows

See the README for a tour; each call's documentation is on :class:`BlockIO`.
"""

from ._block_io import BlockIO
from ._errors import BatchError, ShortCountError
from ._native import Buffer, File, open

__all__ = ["BatchError", "BlockIO", "Buffer", "File", "ShortCountError", "open"]
