"""Pressure stall information: the text of ``<resource>.pressure`` and ``/proc/pressure/<resource>`` to figures.

A line is ``some|full avg10=<f> avg60=<f> avg300=<f> total=<u>``: averages are percent of time stalled, total is
microseconds. No ``full`` line (cpu on older kernels) is not an error: all zero, and ``full_supported`` is false.
"""

from __future__ import annotations

import re

import msgspec


class PressureLine(msgspec.Struct, frozen=True):
    avg10: float = 0.0
    avg60: float = 0.0
    avg300: float = 0.0
    total_us: int = 0


NO_PRESSURE = PressureLine()


class PsiStats(msgspec.Struct, frozen=True):
    some: PressureLine
    full: PressureLine
    full_supported: bool


_LINE = re.compile(r"(some|full) avg10=([\d.]+) avg60=([\d.]+) avg300=([\d.]+) total=(\d+)", re.ASCII)


def parse_pressure(content: str) -> PsiStats:
    """Raises ValueError for an unknown first word or a malformed line, an empty text included."""
    lines: dict[str, PressureLine] = {}
    for text in content.strip("\n").split("\n"):
        found = _LINE.fullmatch(text)
        if found is None:
            raise ValueError(f"pressure line {text!r}: expected some|full avg10= avg60= avg300= total=")
        kind, avg10, avg60, avg300, total = found.groups()
        lines[kind] = PressureLine(float(avg10), float(avg60), float(avg300), int(total))
    return PsiStats(lines.get("some", NO_PRESSURE), lines.get("full", NO_PRESSURE), "full" in lines)
