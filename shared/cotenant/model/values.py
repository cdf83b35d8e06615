"""The base of small immutable structs.

A cell holds millions of them (stored objects, placements, readings by container), and each that the garbage collector tracks
makes its full collections longer: a struct of plain data without reference cycles need not be tracked.
"""

from __future__ import annotations

import msgspec


class Value(msgspec.Struct, frozen=True, gc=False):
    """Base of immutable structs that hold plain data and no reference cycle: the garbage collector does not track them."""
