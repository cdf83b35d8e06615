"""The executor's CPU priority: suppression of batch work must not be delayed by batch work.

In: nothing. Out: the calling thread has the nice value URGENT; its children, pods above all, have 0. It uses a few percent
of a CPU, so the effect on others is negligible. Without CAP_SYS_NICE nothing changes.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

URGENT = -10


def hurry() -> None:
    """Make the calling thread run soon after it wakes. Its children, threads too, get the default."""
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), URGENT)
