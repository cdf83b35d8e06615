"""Memory that a load has freed, given back to the system.

What a load decodes and drops lies between what it keeps. glibc gives back only the end of its heap by itself; `malloc_trim`
gives back whole pages in between. Elsewhere (musl, other systems) nothing is done.
"""

from __future__ import annotations

import ctypes

GIVEN_BACK_AFTER_SECONDS = 30.0
"""After a load: by then what had queued meanwhile is taken, too. It takes some 10 ms a GiB, once."""


def give_back() -> None:
    """Give whole free pages of the heap back."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return
