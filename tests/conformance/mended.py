"""Marks a result where cotenant deliberately does better than a vector that pins an upstream bug."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mended:
    """The mended result, and the number of the trap that says why it differs."""

    result: Any
    trap: str


def mended(result: Any, *, trap: str) -> Mended:
    """Return the result marked as mended: it is counted in a column of its own, neither passed nor failed."""
    return Mended(result, trap)
