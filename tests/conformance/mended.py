"""Marks a result where cotenant deliberately does better than a vector that pins an upstream bug."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mended:
    """The mended result, the trap that says why it differs, and where it does."""

    result: Any
    trap: str
    at: tuple[str, ...]


def mended(result: Any, *at: str, trap: str) -> Mended:
    """Return the result marked as mended: it is counted in a column of its own, neither passed nor failed. `at` names the paths
    that differ, with `$` for the result and `*` for any characters; everything else must be as expected."""
    assert at, "a mark names what differs"
    return Mended(result, trap, at)
