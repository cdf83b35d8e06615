"""Compares an adapter's result with what a vector expects: only what `expect` names.

Numbers by value (floats within 1e-9), quantities by value ("2" = "2000m"), an expected null also as absent, and an expected
zero quantity also as an absent dimension, as the pages' comparison rules say. Of two classifications of low_node_load only
`later` counts. Of a migration job's conditions those that `expect` names count, by type: it is a subset of the status, and
names those that must be absent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from cotenant.model.quantities import QuantityError, parse_nanos

IGNORED = {"$.classification.v14"}
CONDITIONS = "$.afterEachReconcile[[]*].conditions"


def same_quantity(expected: str, actual: Any) -> bool:
    """Tell whether both are quantities of the same value."""
    if isinstance(actual, bool) or not isinstance(actual, (str, int, float)):
        return False
    try:
        return parse_nanos(expected) == parse_nanos(actual)
    except QuantityError:
        return False


def differences(expected: Any, actual: Any, path: str = "$") -> Iterator[tuple[str, str]]:
    """Walk the paths at which the result differs, each with how."""
    if isinstance(expected, dict):
        if not isinstance(actual, dict):
            yield path, f"expected an object, got {actual!r}"
        elif not expected and actual:
            yield path, f"expected an empty object, got {actual!r}"
        else:
            yield from _of_objects(expected, actual, path)
    elif isinstance(expected, list):
        if fnmatchcase(path, CONDITIONS) and isinstance(actual, (list, tuple)):
            named = {each["type"] for each in expected}
            actual = sorted((each for each in actual if each["type"] in named), key=lambda each: _place(expected, each))
        if not isinstance(actual, (list, tuple)) or len(actual) != len(expected):
            yield path, f"expected {expected!r}, got {actual!r}"
            return
        for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif not _same(expected, actual):
        yield path, f"expected {expected!r}, got {actual!r}"


def _place(expected: list[Any], condition: Any) -> int:
    return next(index for index, each in enumerate(expected) if each["type"] == condition["type"])


def _of_objects(expected: dict[str, Any], actual: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for key, value in expected.items():
        if f"{path}.{key}" in IGNORED:
            continue
        if key in actual:
            yield from differences(value, actual[key], f"{path}.{key}")
        elif value is not None and not (isinstance(value, str) and same_quantity(value, 0)):
            yield f"{path}.{key}", f"missing (expected {value!r})"


def _same(expected: Any, actual: Any) -> bool:
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, (int, float)) and isinstance(actual, (int, float)):
        return math.isclose(expected, actual, rel_tol=1e-9, abs_tol=1e-9)
    return bool(expected == actual) or (isinstance(expected, str) and same_quantity(expected, actual))


def difference(expected: Any, actual: Any) -> str:
    """Return where and how the result differs first, "" where it does not."""
    return next((f"{path}: {how}" for path, how in differences(expected, actual)), "")


def unexplained(expected: Any, actual: Any, paths: Sequence[str]) -> str:
    """Return what is wrong with a mended result, "" for nothing: it differs, and only at the paths that it names (`*` stands
    for any characters)."""
    found = list(differences(expected, actual))
    for path, how in found:
        if not any(fnmatchcase(path, pattern) for pattern in paths):
            return f"{path}: {how}, which the mark does not name"
    return "" if found else "marked as mended, but there is nothing to mend: it is as expected"
