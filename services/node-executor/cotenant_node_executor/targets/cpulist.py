"""CPU lists in the kernel's format, and the smallest of several."""

from __future__ import annotations

from collections.abc import Iterable

from cotenant.model.cpu_lists import format_cpu_list as format_cpu_list
from cotenant.model.cpu_lists import parse_cpu_list as parse_cpu_list


def smallest_cpu_list(tier: str, containers: Iterable[str]) -> tuple[int, ...]:
    """The CPUs that best-effort can use: the smallest set among its tier directory and all containers; ties: the first."""
    return min((parse_cpu_list(text) for text in (tier, *containers)), key=len)
