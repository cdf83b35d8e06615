"""Blocking calls in threads, one at a time: for a connection that is not for several threads at once.

In: calls, from any task of one event loop. Out: their results, in the order of the calls. A call whose task is cancelled is
waited for, so that the next one does not run beside it: a thread cannot be cancelled. Bound: one thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class SerialCalls:
    """The calls over one connection."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def call(self, function: Callable[[], T]) -> T:
        """Run the function in a thread after those before it. Raises what it raises."""
        async with self._lock:
            answered = asyncio.ensure_future(asyncio.to_thread(function))
            try:
                return await asyncio.shield(answered)
            finally:
                await asyncio.wait([answered])
