"""Boot ids: a core is named after its process and counts the cores of that process before it: `4f1c`, `4f1c+1`, `4f1c+2`.

In: boot ids. Out: the next one, and whether one is of an earlier core. The report that ends a load carries the core's boot id. A
report that an earlier core of the process sent, and that is stored late, neither ends a load nor undoes it.
"""

from __future__ import annotations


def next_boot(boot: str) -> str:
    """Return the id of the core after this one in the same process."""
    process, _, number = boot.partition("+")
    return f"{process}+{int(number or 0) + 1}"


def is_of_earlier_core(boot: str, own: str) -> bool:
    """Return whether a report is of another core of the same process; there is no later one that reports."""
    return boot != own and boot.partition("+")[0] == own.partition("+")[0]
