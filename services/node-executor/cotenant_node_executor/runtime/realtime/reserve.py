"""What the kernel keeps for fair tasks where real-time groups have no budgets (cgroup v2, or no RT group scheduling).

In: the kernel's files and release. Out: the share of each CPU that fair tasks get however busy real-time tasks are.

    6.12 on   the fair server of each CPU, a deadline server of 50 ms a second; debugfs shows it, root may change it there
    before    1 - kernel.sched_rt_runtime_us / sched_rt_period_us; -1 keeps nothing

Real-time threads can therefore never use more than the rest: an overload is measured against it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

LEAST = 0.045
"""Less is none; a twentieth is the kernel's default."""
SERVER_SINCE = (6, 12)
SERVER_SHARE = 0.05
FAIR_SERVERS = Path("/sys/kernel/debug/sched/fair_server")
SYSCTLS = Path("/proc/sys/kernel")


def kept_for_others(release: str = "", servers: Path = FAIR_SERVERS, sysctls: Path = SYSCTLS) -> float:
    """A share from 0 to 1. `release`: that of this kernel where it is empty."""
    shares = [_server(each) for each in servers.iterdir()] if os.access(servers, os.R_OK) else []
    if shares:
        return min(shares)
    found = re.match(r"(\d+)\.(\d+)", release or os.uname().release)
    if found is not None and (int(found[1]), int(found[2])) >= SERVER_SINCE:
        return SERVER_SHARE
    try:
        runtime, period = (int((sysctls / f"sched_rt_{name}_us").read_text()) for name in ("runtime", "period"))
    except (OSError, ValueError):
        return 0.0
    return 0.0 if runtime < 0 or period <= 0 else max(1 - runtime / period, 0.0)


def _server(cpu: Path) -> float:
    try:
        runtime, period = (int((cpu / name).read_text()) for name in ("runtime", "period"))
    except (OSError, ValueError):
        return 0.0
    return runtime / period if period > 0 else 0.0
