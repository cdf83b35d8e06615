"""Frees what loads leave behind, and returns it to the system.

A state that a new load has replaced has reference cycles. Full collections are all but switched off (`process.GC_THRESHOLDS`),
and a deciding service freezes what it has loaded, the former state with it: without a collection afterwards, each load would
leave one state behind. Objects that a load drops lie between those that it keeps. glibc only returns the end of its heap by
itself; `malloc_trim` returns free pages in between. Elsewhere (musl, other systems) that is left out.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from weakref import WeakKeyDictionary

GIVEN_BACK_AFTER_SECONDS = 30.0
"""Delay after a load: by then messages queued meanwhile are folded, too. The trim takes some 10 ms per GiB, once; a collection
100 ms per million objects."""

_waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, bool] = WeakKeyDictionary()
"""Loops in which `give_back_later` waits, and whether to collect."""


def give_back_later(*, former: bool) -> None:
    """After GIVEN_BACK_AFTER_SECONDS, return free memory; `former`: collect a former state first. Loads until then, of which a
    process of many nodes may have hundreds, share one collection."""
    loop = asyncio.get_running_loop()
    if loop not in _waiting:
        loop.call_later(GIVEN_BACK_AFTER_SECONDS, _when_due, loop)
    _waiting[loop] = former or _waiting.get(loop, False)


def _when_due(loop: asyncio.AbstractEventLoop) -> None:
    if _waiting.pop(loop, False):
        collect_former()
    give_back()


def collect_former() -> None:
    """Collect also what is frozen; what remains is frozen again where it was."""
    frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    gc.collect()
    if frozen:
        gc.freeze()


def give_back() -> None:
    """Return whole free pages of the heap to the system."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return
