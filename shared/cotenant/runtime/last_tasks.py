"""Tasks that are still running when a program has ended.

In: the running loop. Out: none of its other tasks runs any more, or the names of those that do.

An event loop that is closed cancels each task once and waits for it without a bound. nats-py's reconnecting can swallow a
cancellation, so a process whose servers are gone would never end: tasks are cancelled again until they have ended.

Bound: TRIES cancellations, TRY_SECONDS apart.
"""

from __future__ import annotations

import asyncio

TRIES = 20
TRY_SECONDS = 0.25


async def end_last_tasks() -> list[str]:
    """Cancel all other tasks of the loop until they have ended; return the names of those that have not."""
    own = asyncio.current_task()
    left: set[asyncio.Task[object]] = set()
    for _ in range(TRIES):
        left = {task for task in asyncio.all_tasks() if task is not own}
        if not left:
            return []
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=TRY_SECONDS)
    return sorted(f"{task.get_name()} ({task.get_coro()!r})" for task in left if not task.done())
