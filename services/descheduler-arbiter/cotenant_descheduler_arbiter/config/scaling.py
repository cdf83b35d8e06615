"""A number of pods, or a percentage of a workload's replicas: `3`, `"25%"`.

Source: Kubernetes' intstr.IntOrString, rounded down.
"""

from __future__ import annotations

from cotenant.model.bounds import Int32

IntOrPercent = Int32 | str


def scaled(value: IntOrPercent, replicas: int) -> int:
    """Return the count for an int, or for a percentage of `replicas`. Raises ValueError on any other text."""
    if isinstance(value, int):
        return value
    digits = value[:-1] if value.endswith("%") else ""
    if not digits.isdecimal():
        raise ValueError(f"{value!r} is neither a whole number nor a percentage such as '25%'")
    return int(digits) * replicas // 100
