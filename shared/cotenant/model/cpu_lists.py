"""CPU lists in the kernel's format: ``0-3,8`` to numbers and back. An empty text is the empty list."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

MOST_CPUS = 8192  # NR_CPUS of any distribution's kernel; a longer list is a mistake, not a machine


@lru_cache(maxsize=1024)
def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Sorted, without repetition. Raises ValueError for anything but numbers and rising ranges below MOST_CPUS."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        if not part.strip():
            if text.strip():
                raise ValueError(f"cpu list {text!r}: empty element")
            continue
        first, dash, last = part.strip().partition("-")
        if not _is_number(first) or (dash and not _is_number(last)):
            raise ValueError(f"cpu list {text!r}: {part!r} is not a number or a range")
        low, high = int(first), int(last) if dash else int(first)
        if low > high or high >= MOST_CPUS:
            raise ValueError(f"cpu list {text!r}: range {part!r} is falling or above {MOST_CPUS - 1}")
        cpus.update(range(low, high + 1))
    return tuple(sorted(cpus))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(MOST_CPUS))


def format_cpu_list(cpus: Iterable[int]) -> str:
    """The shortest form, as the kernel prints it."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
