"""How often a simulation looks for garbage in cycles: rarely where there is next to none.

The interpreter's own pace is set for programs that make cycles and hold little. Each of its looks walks over what was made
since the last one, and nearly all of that is state that cores and streams hold: even a look every 100,000 objects takes a sixth
of a simulation's time. Checked runs do leave cycles: copies of cores that were asked. So a look that finds garbage is followed
by one after OFTEN objects, any other by one after RARELY, which bounds what waits to be found.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OFTEN = (100_000, 5, 2)
RARELY = (1_000_000, 5, 2)
"""Allocations, and collections of the younger generation, until a generation is looked through. The oldest one is, too, where
it has grown by a quarter: a core that its process has left is old, and refers to itself."""
WORTH_A_LOOK = 1_000
"""So many collected objects count as a find."""


def _adapt(phase: str, found: dict[str, int]) -> None:
    if phase == "stop":
        gc.set_threshold(*(OFTEN if found["collected"] >= WORTH_A_LOOK else RARELY))


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Collect at the simulation's pace; the interpreter's comes back afterwards. What is there at the start is looked through
    once, so that of runs one after the other each finds the last one's garbage, and what is there at the end not at all."""
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
