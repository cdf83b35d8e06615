"""How often a simulation looks for garbage in cycles: rarely, because there is little.

The interpreter's own pace is set for programs that make cycles and hold little. Each of its looks walks over all that the
cores hold, which took a third of a simulation's time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

PACE = (100_000, 5, 2)
"""Allocations, and collections of the younger generation, until a generation is looked through. The oldest one is, too, where
it has grown by a quarter: a core that its process has left is old, and refers to itself.
"""


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Collect at the simulation's pace; the interpreter's comes back afterwards."""
    before = gc.get_threshold()
    gc.set_threshold(*PACE)
    try:
        yield
    finally:
        gc.set_threshold(*before)
