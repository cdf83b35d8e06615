"""Pressure stall information: the text of ``<resource>.pressure`` and ``/proc/pressure/<resource>`` to figures.

A line is ``some|full avg10=<f> avg60=<f> avg300=<f> total=<u>``: averages are percent of time stalled, total is
microseconds. No ``full`` line (cpu on older kernels) is not an error: all zero, and ``full_supported`` is false.
"""

from __future__ import annotations

import msgspec


class PressureLine(msgspec.Struct, frozen=True):
    avg10: float = 0.0
    avg60: float = 0.0
    avg300: float = 0.0
    total_us: int = 0


class Pressure(msgspec.Struct, frozen=True):
    some: PressureLine
    full: PressureLine
    full_supported: bool


def _line(words: list[str], text: str) -> PressureLine:
    fields = dict(word.split("=", 1) for word in words if "=" in word)
    if len(words) != 4 or set(fields) != {"avg10", "avg60", "avg300", "total"}:
        raise ValueError(f"pressure line {text!r}: expected avg10, avg60, avg300 and total")
    return PressureLine(float(fields["avg10"]), float(fields["avg60"]), float(fields["avg300"]), int(fields["total"]))


def parse_pressure(content: str) -> Pressure:
    """Raises ValueError for an unknown first word, a malformed line, or no ``some`` line at all."""
    some: PressureLine | None = None
    full: PressureLine | None = None
    for text in content.strip("\n").split("\n"):
        kind, *words = text.split() or [""]
        if kind == "some":
            some = _line(words, text)
        elif kind == "full":
            full = _line(words, text)
        else:
            raise ValueError(f"pressure line {text!r}: expected it to begin with some or full")
    if some is None:
        raise ValueError("pressure text without a 'some' line")
    return Pressure(some, full or PressureLine(), full is not None)
