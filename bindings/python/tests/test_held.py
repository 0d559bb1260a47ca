"""Memory is held until the kernel is done with it, and interrupts lose nothing."""

import asyncio
import gc
import multiprocessing
import os
import signal
import sys
import threading
import weakref

import numpy as np
import pytest

import cringle
from conftest import PAGE, pattern
from slow import slow  # noqa: F401: a fixture

DATA = pattern(64 * PAGE)


@pytest.fixture(params=["uring", "epoll"])
def io(request):
    with cringle.BlockIO(driver=request.param) as io:
        yield io


@pytest.fixture
def file(path):
    # A direct read is not tried on the calling thread, which would block there.
    with cringle.open(path, direct=True) as file:
        yield file


def start(io, file, slow, *more):
    """Starts reads of which the first is certainly under way when it returns."""
    ops = [(file, 0, slow.map), *((file, PAGE, out) for out in more)]
    pending = io.start_read_into(ops)
    slow.wait()
    return pending


def test_memory_cannot_be_resized_during_a_read(io, file, slow):
    out = bytearray(PAGE)
    pending = start(io, file, slow, out)
    for change in [lambda: out.append(0), out.clear, out.pop, lambda: slow.map.resize(PAGE)]:
        with pytest.raises(BufferError):
            change()
    with pytest.raises(BufferError):
        slow.map.close()
    assert not pending.done()
    slow.release()
    assert pending.result() is None
    assert bytes(slow.map) == DATA[: 4 * PAGE] and out == DATA[PAGE : 2 * PAGE]
    out.clear()


def test_dropped_reads_keep_their_memory_until_they_end(io, file, slow):
    out = bytearray(PAGE)
    buffer = cringle.Buffer(PAGE)
    array = np.zeros(PAGE, np.uint8)
    dropped = [weakref.ref(buffer), weakref.ref(array)]
    pending = start(io, file, slow, out, buffer, array)
    del pending, buffer, array
    file.close()
    gc.collect()
    assert all(reference() is not None for reference in dropped)
    with pytest.raises(BufferError):
        out.clear()
    slow.release()
    io.close()
    assert all(reference() is None for reference in dropped)
    assert bytes(slow.map) == DATA[: 4 * PAGE] and out == DATA[PAGE : 2 * PAGE]
    out.clear()


def test_a_file_does_not_keep_the_path_object(io, path, slow):
    class Path:
        def __fspath__(self):
            return str(path)

    name = Path()
    dropped = weakref.ref(name)
    file = cringle.open(name, direct=True)
    pending = start(io, file, slow)
    file.close()
    # The read alone uses the file now, so a worker is the last to release it and its name.
    del pending, file, name
    assert dropped() is None
    slow.release()
    io.close()


def test_ctrl_c_is_prompt_and_loses_nothing(io, file, slow):
    main = threading.get_ident()

    def interrupt():
        slow.wait()
        signal.pthread_kill(main, signal.SIGINT)

    out = bytearray(PAGE)
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        io.read_into([(file, 0, slow.map), (file, PAGE, out)])
    thread.join()
    # The read is still under way, and its memory with it.
    with pytest.raises(BufferError):
        out.clear()
    slow.release()
    # The engine performs other calls as before.
    assert bytes(io.read_many(file, [PAGE], PAGE)[0]) == DATA[PAGE : 2 * PAGE]
    io.close()
    assert bytes(slow.map) == DATA[: 4 * PAGE]
    out.clear()


def test_ctrl_c_interrupts_a_close(io, file, slow):
    pending = start(io, file, slow)
    main = threading.get_ident()
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    assert main == threading.main_thread().ident
    with pytest.raises(KeyboardInterrupt):
        io.close()
    assert io.closed and not pending.done()
    slow.release()
    assert pending.result() is None


def test_signal_handlers_run_during_a_wait(io, file, slow):
    main = threading.get_ident()
    handled = []

    def handler(*_):
        handled.append(threading.get_ident())
        slow.release()

    before = signal.signal(signal.SIGUSR1, handler)
    try:

        def send():
            slow.wait()
            signal.pthread_kill(main, signal.SIGUSR1)

        thread = threading.Thread(target=send)
        thread.start()
        io.read_many(file, [0], 4 * PAGE, slow.map)
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert handled == [main] and bytes(slow.map) == DATA[: 4 * PAGE]


def test_other_threads_run_during_a_wait(io, file, slow):
    def other():
        slow.wait()
        # It runs Python while the main thread waits.
        slow.release()

    thread = threading.Thread(target=other)
    thread.start()
    io.read_many(file, [0], 4 * PAGE, slow.map)
    thread.join()
    assert bytes(slow.map) == DATA[: 4 * PAGE]


def test_cancelled_task_waits_for_its_memory(io, file, slow):
    async def main():
        loop = asyncio.get_running_loop()
        under_way = loop.create_future()

        def begun():
            loop.remove_reader(slow.fd)
            slow.wait()
            under_way.set_result(None)

        loop.add_reader(slow.fd, begun)
        out = bytearray(PAGE)
        task = asyncio.create_task(io.aread_into([(file, 0, slow.map), (file, PAGE, out)]))
        await under_way
        for _ in range(3):
            task.cancel()
            for _ in range(100):
                await asyncio.sleep(0)
            assert not task.done()
        with pytest.raises(BufferError):
            out.clear()
        slow.release()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert bytes(slow.map) == DATA[: 4 * PAGE]
        out.clear()

    asyncio.run(main())


def test_cancel_submits_no_further_batch(io, file, slow):
    rest = bytearray(5000 * 512)
    views = [memoryview(rest)[at * 512 : (at + 1) * 512] for at in range(5000)]
    ops = [(file, 0, slow.map), *((file, 512, view) for view in views)]
    pending = io.start_read_into(ops, strict=False)
    slow.wait()
    pending.cancel()
    slow.release()
    counts = pending.result()
    assert counts[0] == 4 * PAGE and counts[4095] == 512
    assert (counts[4096:] == -125).all() and len(counts) == 5001


def test_child_of_fork_gets_an_error(io, file, slow, path):
    pending = start(io, file, slow)
    notifier = cringle._native.Notifier()
    child = os.fork()
    if child == 0:
        try:
            for call in [
                lambda: io.read_many(file, [0], 1),
                lambda: io.fsync(file),
                io.stats,
                pending.done,
                pending.result,
                notifier.take,
            ]:
                with pytest.raises(RuntimeError, match="parent process"):
                    call()
            io.close()
            del pending
            with cringle.BlockIO() as own:
                assert bytes(own.read_many(file, [PAGE], 512)[0]) == DATA[PAGE : PAGE + 512]
            os._exit(0)
        except BaseException as error:
            print(error, file=sys.stderr)
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status == 0
    slow.release()
    pending.result()


def _in_child(io, path, queue):
    try:
        io.stats()
    except RuntimeError as error:
        queue.put(str(error))
    with cringle.BlockIO() as own, cringle.open(path) as file:
        queue.put(bytes(own.read_many(file, [0], 16)[0]))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_multiprocessing_by_fork_works_with_an_engine_of_its_own(io, path):
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=_in_child, args=(io, path, queue))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert "create a BlockIO in the child" in queue.get()
    assert queue.get() == DATA[:16]


@pytest.mark.parametrize("size", [1, (4 << 20) - 1, 4 << 20, (8 << 20) + 5])
def test_new_buffer_is_zeroed_in_memory_that_was_used(size):
    buffer = cringle.Buffer(size)
    address = np.frombuffer(buffer, np.uint8).ctypes.data
    memoryview(buffer)[:] = b"x" * size
    del buffer
    again = np.frombuffer(cringle.Buffer(size), np.uint8)
    assert again.ctypes.data == address and not again.any()
