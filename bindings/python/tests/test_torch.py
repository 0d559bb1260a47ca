"""Tensors of PyTorch, where it is installed."""

import gc

import numpy as np
import pytest

import cringle
from conftest import PAGE, pattern
from slow import slow  # noqa: F401: a fixture

torch = pytest.importorskip("torch")

DATA = pattern(64 * PAGE)
KINDS = [torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.complex64]


@pytest.fixture(params=[{}, {"direct": True}, {"mapped": True}])
def file(path, request):
    with cringle.open(path, **request.param) as file:
        yield file


def bytes_of(tensor):
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_tensor_is_filled(io, file, kind):
    items = PAGE // torch.empty(0, dtype=kind).element_size()
    whole = torch.zeros(6, items, dtype=kind)
    for out in [whole, whole[2:5], torch.empty(4, items, dtype=kind).share_memory_()]:
        offsets = torch.arange(len(out)) * PAGE
        assert io.read_many(file, offsets, PAGE, out) is out
        assert bytes_of(out) == DATA[: len(out) * PAGE]
        out.zero_()
        io.read_into([(file, int(offset), row) for offset, row in zip(offsets, out)])
        assert bytes_of(out) == DATA[: len(out) * PAGE]


def test_tensors_that_have_no_plain_memory_are_refused(io, file):
    memory = torch.zeros(4, PAGE, dtype=torch.uint8)
    for out in [
        torch.zeros(PAGE, 4, dtype=torch.uint8).T,
        torch.zeros(4, 2 * PAGE, dtype=torch.uint8)[:, ::2],
        torch.zeros(4, PAGE // 4, requires_grad=True),
        torch.zeros(4, PAGE // 8, dtype=torch.complex64).conj(),
        memory.to_sparse(),
        memory.to("meta"),
    ]:
        with pytest.raises((ValueError, RuntimeError, TypeError, BufferError)):
            io.read_many(file, np.arange(4) * PAGE, PAGE, out)


def test_storage_is_not_freed_under_a_read(io, path, slow):
    with cringle.open(path, direct=True) as file:
        tensor = torch.zeros(PAGE, dtype=torch.uint8)
        view = tensor[:512]
        pending = io.start_read_into([(file, 0, slow.map), (file, 0, view)])
        slow.wait()
        for resize in [
            lambda: tensor.resize_(1 << 24),
            lambda: view.resize_(1 << 24),
            lambda: tensor.storage().resize_(0),
        ]:
            with pytest.raises(RuntimeError, match="not resizable"):
                resize()
        # The read keeps the memory of before.
        tensor.set_(torch.zeros(1 << 20, dtype=torch.uint8))
        view.data = torch.zeros(1 << 20, dtype=torch.uint8)
        gc.collect()
        slow.release()
        pending.result()
