"""Iterators that read in advance."""

import itertools

import numpy as np
import pytest

import cringle
from conftest import PAGE, pattern

PAGES = np.frombuffer(pattern(64 * PAGE), np.uint8).reshape(-1, PAGE)


@pytest.fixture
def file(path):
    with cringle.open(path, direct=True) as file:
        yield file


def test_batches_arrive_in_order(io, file):
    batches = np.random.default_rng(3).permutation(64).reshape(8, 8)
    rows = list(io.prefetch(file, batches * PAGE, PAGE, ahead=3))
    assert len(rows) == 8
    assert all((row == PAGES[batch]).all() for row, batch in zip(rows, batches))
    assert list(io.prefetch(file, [], PAGE)) == []


def test_only_so_much_is_read_in_advance(io, file):
    taken = itertools.count()

    def batches():
        for _ in taken:
            yield [0]

    iterator = io.prefetch(file, batches(), PAGE, ahead=2)
    for step in range(5):
        next(iterator)
        # `ahead` batches beyond the one that was returned.
        assert next(taken) == step + 3 + step
    iterator.close()


def test_an_abandoned_iterator_ends_its_reads(io, file):
    for row in io.prefetch(file, ([0] * 100 for _ in range(100)), PAGE, ahead=4):
        break
    io.close()
    with pytest.raises(ValueError, match="closed"):
        next(io.prefetch(file, [[0]], PAGE))


def test_an_error_is_raised_at_its_batch(io, file):
    iterator = io.prefetch(file, [[0], [64 * PAGE], [0]], PAGE)
    assert (next(iterator) == PAGES[0]).all()
    with pytest.raises(cringle.ShortCountError):
        next(iterator)
    with pytest.raises(ValueError, match="ahead is 0"):
        io.prefetch(file, [], PAGE, ahead=0)
