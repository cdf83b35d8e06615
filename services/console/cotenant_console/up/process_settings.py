"""What a process asks the kernel for, before it runs its program: to end with its parent, and how exact its timers need be."""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1
PR_SET_TIMERSLACK = 29
_LIBC = ctypes.CDLL(None, use_errno=True)


def end_with_parent(parent_pid: int) -> None:
    """Request SIGTERM for this process when its parent dies, even of SIGKILL; sent at once where that has happened already."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGTERM)


def allow_timer_slack(slack_us: int) -> None:
    """Let the kernel end sleeps of this process, and of the program that it executes, up to this much later."""
    _LIBC.prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(1000 * slack_us), 0, 0, 0)


def prepare(parent_pid: int, timer_slack_us: int) -> None:
    """Settings of a process that a supervisor starts; a slack of 0 is left as it is."""
    end_with_parent(parent_pid)
    if timer_slack_us:
        allow_timer_slack(timer_slack_us)
