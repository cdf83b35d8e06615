"""Exact Kubernetes quantities.

A quantity is written as text ("1500m", "1Gi", "2e3") or as a JSON number, and is exact: an integer count of nano-units, as
Kubernetes rounds anything finer up to 10^-9. Decisions use integers only: milli-units for CPU and plain units (bytes,
devices) for the rest, both rounded up (towards +inf) as `resource.Quantity.MilliValue` and `.Value` do.

Source of the suffixes and the rounding: Kubernetes `resource.Quantity`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from cotenant.model.bounds import saturated

Scalar = str | int | float
"""The types that a manifest may hold where a quantity is expected."""

_NANO = 10**9
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
_PATTERN = re.compile(r"^([+-]?)(\d+(?:\.\d*)?|\.\d+)(?:([eE])([+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i)?)$", re.ASCII)
_MAX_TEXT = 64
_MAX_UNITS = 2**63 - 1


class QuantityError(ValueError):
    """The text is not a Kubernetes quantity; the message says what is expected."""


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


@lru_cache(maxsize=4096)
def _parse_text(text: str) -> int:
    match = _PATTERN.match(text) if len(text) <= _MAX_TEXT else None
    if match is None:
        raise QuantityError(
            f"quantity {text[:_MAX_TEXT]!r} is malformed: expected a number with an optional suffix, such as 500m, 2, 1.5Gi"
        )
    sign, number, exponent_mark, exponent, suffix = match.groups()
    whole, _, fraction = number.partition(".")
    digits = int((whole + fraction) or "0")
    scale = -len(fraction)
    if suffix in _BINARY:
        numerator = digits * _BINARY[suffix] * _NANO
        nanos = _ceil_div(numerator, 10**-scale) if scale < 0 else numerator
    else:
        power = scale + 9 + (int(exponent) if exponent_mark else _DECIMAL[suffix or ""])
        nanos = digits * 10**power if power >= 0 else _ceil_div(digits, 10**-power)
    # Kubernetes caps at 2^63-1 units instead of overflowing.
    nanos = min(nanos, _MAX_UNITS * _NANO)
    return -nanos if sign == "-" else nanos


def parse_nanos(quantity: Scalar) -> int:
    """Return the quantity in nano-units. Raises QuantityError on anything that Kubernetes would refuse."""
    if isinstance(quantity, str):
        return _parse_text(quantity)
    if isinstance(quantity, bool) or not isinstance(quantity, (int, float)):
        raise QuantityError(f"quantity {quantity!r} is a {type(quantity).__name__}: expected text or a number")
    if isinstance(quantity, int):
        return min(quantity, _MAX_UNITS) * _NANO
    return _parse_text(repr(quantity))


def parse_milli(quantity: Scalar) -> int:
    """Return the quantity in milli-units, rounded up (1 CPU = 1000)."""
    return _ceil_div(parse_nanos(quantity), 10**6)


def parse_value(quantity: Scalar) -> int:
    """Return the quantity in whole units (bytes, devices), rounded up."""
    return _ceil_div(parse_nanos(quantity), _NANO)


def format_milli(milli: int) -> str:
    """Return milli-units as canonical text in decimal SI form: 1500 -> "1500m", 2000 -> "2", 2000000 -> "2k"."""
    if milli % 1000:
        return f"{milli}m"
    return format_decimal(milli // 1000)


def format_decimal(value: int) -> str:
    """Return whole units as canonical decimal SI text: 50000 -> "50k"."""
    suffixes = ("", "k", "M", "G", "T", "P", "E")
    step = 0
    while value and value % 1000 == 0 and step < len(suffixes) - 1:
        value //= 1000
        step += 1
    return f"{value}{suffixes[step]}"


def format_binary(value: int) -> str:
    """Return bytes as canonical binary text: 120 * 2^30 -> "120Gi"; below 1024 as a plain number."""
    suffixes = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
    step = 0
    while value and value % 1024 == 0 and step < len(suffixes) - 1:
        value //= 1024
        step += 1
    return f"{value}{suffixes[step]}"


def multiply_milli(milli: int, factor: float) -> int:
    """Return trunc(double(milli) * factor), the rule for CPU and for amplification (slo-controller)."""
    return int(float(milli) * factor)


def multiply_value(value: int, factor: float) -> int:
    """Return trunc(double(value) * factor), the rule for memory (slo-controller)."""
    return int(float(value) * factor)


def resource_amount(resource: str, quantity: Scalar) -> int:
    """Return the integer that pods and nodes are counted in: milli-units for `cpu`, whole units for every other resource;
    saturated at the bounds of amounts."""
    return saturated(parse_milli(quantity) if resource == "cpu" else parse_value(quantity))


def format_amount(resource: str, amount: int) -> str:
    """Return the text of an amount that `resource_amount` counted."""
    if resource == "cpu":
        return format_milli(amount)
    if resource.endswith("memory") or resource in ("ephemeral-storage",) or resource.startswith("hugepages-"):
        return format_binary(amount)
    return format_decimal(amount)
