"""Compares an adapter's result with what a vector expects: only what `expect` names.

Numbers by value (floats within 1e-9), quantities by value ("2" = "2000m"), an expected null also as absent, and an expected
zero quantity also as an absent dimension, as the pages' comparison rules say. Of two classifications of low_node_load only
`later` counts.
"""

from __future__ import annotations

import math
from typing import Any

from cotenant.model.quantities import QuantityError, parse_nanos

IGNORED = {"$.classification.v14"}


def same_quantity(expected: str, actual: Any) -> bool:
    """Tell whether both are quantities of the same value."""
    if isinstance(actual, bool) or not isinstance(actual, (str, int, float)):
        return False
    try:
        return parse_nanos(expected) == parse_nanos(actual)
    except QuantityError:
        return False


def difference(expected: Any, actual: Any, path: str = "$") -> str:
    """Return where and how the result differs, "" where it does not."""
    if isinstance(expected, dict):
        if not isinstance(actual, dict):
            return f"{path}: expected an object, got {actual!r}"
        for key, value in expected.items():
            if f"{path}.{key}" in IGNORED:
                continue
            if key not in actual:
                if value is None or (isinstance(value, str) and same_quantity(value, 0)):
                    continue
                return f"{path}.{key}: missing (expected {value!r})"
            found = difference(value, actual[key], f"{path}.{key}")
            if found:
                return found
        return ""
    if isinstance(expected, list):
        if not isinstance(actual, (list, tuple)) or len(actual) != len(expected):
            return f"{path}: expected {expected!r}, got {actual!r}"
        for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
            found = difference(one, other, f"{path}[{index}]")
            if found:
                return found
        return ""
    if isinstance(expected, bool) or isinstance(actual, bool):
        same = expected is actual
    elif isinstance(expected, (int, float)) and isinstance(actual, (int, float)):
        same = math.isclose(expected, actual, rel_tol=1e-9, abs_tol=1e-9)
    else:
        same = expected == actual or (isinstance(expected, str) and same_quantity(expected, actual))
    return "" if same else f"{path}: expected {expected!r}, got {actual!r}"
