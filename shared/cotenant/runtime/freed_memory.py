"""Returns memory freed after a load to the system.

Objects that a load drops lie between those that it keeps. glibc only returns the end of its heap by itself; `malloc_trim`
returns free pages in between. Elsewhere (musl, other systems) nothing is done.
"""

from __future__ import annotations

import ctypes

GIVEN_BACK_AFTER_SECONDS = 30.0
"""Delay after a load: by then messages queued meanwhile are folded, too. The trim takes some 10 ms per GiB, once."""


def give_back() -> None:
    """Return whole free pages of the heap to the system."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return
