"""The way of a completion into an event loop of asyncio.

Each loop that waits has a port: an eventfd that the workers make readable. No worker calls Python.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

from ._native import Notifier, Pending

_Loop = asyncio.AbstractEventLoop
_ports: weakref.WeakKeyDictionary[_Loop, weakref.ref[_Port]] = weakref.WeakKeyDictionary()


class _Port:
    """The eventfd of one loop, and the futures that wait for it. They refer to the loop, so only the
    loop keeps the port, as a reader, until it is closed."""

    def __init__(self, loop: _Loop) -> None:
        self._notifier = Notifier()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._next = 0
        loop.add_reader(self._notifier.fileno(), self._wake)

    def future(self, pending: Pending, loop: _Loop) -> asyncio.Future[None]:
        future = loop.create_future()
        token, self._next = self._next, self._next + 1
        self._waiting[token] = future
        pending.notify(self._notifier, token)
        return future

    def _wake(self) -> None:
        for token in self._notifier.take():
            future = self._waiting.pop(token)
            if not future.done():
                future.set_result(None)


async def wait(pending: Pending) -> Any:
    """Waits for operations, and returns the value of their call. Cancelled, it stops those that
    are not submitted, waits for the others, and then raises ``CancelledError``."""
    if not pending.done():
        loop = asyncio.get_running_loop()
        kept = _ports.get(loop)
        port = kept() if kept else None
        if port is None:
            port = _Port(loop)
            _ports[loop] = weakref.ref(port)
        ended = port.future(pending, loop)
        cancelled: asyncio.CancelledError | None = None
        while not ended.done():
            try:
                # The shield: a cancel of the task must not cancel the wait.
                await asyncio.shield(ended)
            except asyncio.CancelledError as error:
                pending.cancel()
                cancelled = error
        if cancelled is not None:
            pending.discard()
            raise cancelled
    return pending.result()
