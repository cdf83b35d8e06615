"""How often a simulation collects cyclic garbage: rarely where there is little.

The interpreter's defaults suit programs that create cycles and hold little. Each collection traverses the objects created
since the last one, and nearly all of them are live state of cores and streams: even a collection every 100,000 objects takes a
sixth of a simulation's time. Checked runs do leave cycles: copies of cores. So a collection that finds garbage is followed
by one after OFTEN objects, any other by one after RARELY, which bounds uncollected garbage.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OFTEN = (100_000, 5, 2)
RARELY = (1_000_000, 5, 2)
"""Allocations, and collections of the younger generation, until a generation is collected. The oldest one is collected, too,
when it has grown by a quarter: a discarded core is old, and has reference cycles."""
WORTH_A_LOOK = 1_000
"""From this many collected objects on, garbage counts as found."""


def _adapt(phase: str, found: dict[str, int]) -> None:
    if phase == "stop":
        gc.set_threshold(*(OFTEN if found["collected"] >= WORTH_A_LOOK else RARELY))


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Collect at the simulation's intervals; the interpreter's are restored afterwards. Existing objects are collected
    once at the start, so that a run frees the previous one's garbage, and not at the end."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*RARELY)
    gc.callbacks.append(_adapt)
    try:
        yield
    finally:
        gc.callbacks.remove(_adapt)
        gc.freeze()
        gc.unfreeze()
        gc.set_threshold(*before)
