"""A process that ends with its parent: the kernel sends it SIGTERM when that dies, even of SIGKILL."""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def end_with_parent(parent_pid: int) -> None:
    """Request SIGTERM for this process when its parent dies; sent at once where that has happened already."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGTERM)
