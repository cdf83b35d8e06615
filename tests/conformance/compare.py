"""Compares an adapter's result with what a vector expects: only what `expect` names; numbers by value, floats within 1e-9."""

from __future__ import annotations

import math
from typing import Any


def difference(expected: Any, actual: Any, path: str = "$") -> str:
    """Return where and how the result differs, "" where it does not."""
    if isinstance(expected, dict):
        if not isinstance(actual, dict):
            return f"{path}: expected an object, got {actual!r}"
        for key, value in expected.items():
            if key not in actual:
                if value is None:
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
        same = expected == actual
    return "" if same else f"{path}: expected {expected!r}, got {actual!r}"
