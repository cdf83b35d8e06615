"""The ideal queue: the latencies of the same requests on CPUs that serve them at once, first come first served.

In: arrivals and CPU times by thread, the number of CPUs. Out: latencies in the same order. A thread serves one request at a
time, any CPU any thread, nothing is interrupted, a switch costs nothing. p99 of the real latencies over p99 of these is what
the scheduler and the neighbours add; queueing by the load itself is in both.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

Request = tuple[float, float]
"""Arrival and CPU time."""


def ideal_latencies(threads: Sequence[Sequence[Request]], cpus: int) -> list[list[float]]:
    """Latencies by thread; arrivals are in order within a thread, all in one unit of time. `cpus` is at least 1."""
    waiting = [deque(requests) for requests in threads]
    found: list[list[float]] = [[] for _ in threads]
    asking: list[tuple[float, int]] = []
    """The first request of each idle thread: arrival and thread."""
    for number, queue in enumerate(waiting):
        if queue:
            heapq.heappush(asking, (queue[0][0], number))
    free = [0.0] * cpus
    idle_since = [0.0] * len(waiting)
    busy: list[tuple[float, int]] = []
    """Threads that serve: until when."""

    def begins() -> float:
        arrival, number = asking[0]
        return max(arrival, free[0], idle_since[number])

    while asking or busy:
        if not asking or (busy and busy[0][0] <= begins()):
            # The thread is idle before the next request can begin: its own next one may have come earlier.
            ends, number = heapq.heappop(busy)
            idle_since[number] = ends
            if waiting[number]:
                heapq.heappush(asking, (waiting[number][0][0], number))
            continue
        begin = begins()
        _, number = heapq.heappop(asking)
        arrival, cost = waiting[number].popleft()
        heapq.heapreplace(free, begin + cost)
        heapq.heappush(busy, (begin + cost, number))
        found[number].append(begin + cost - arrival)
    return found
