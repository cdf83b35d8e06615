"""A number of pods, or a percentage of a workload's replicas: `3`, `"25%"`.

Source: Kubernetes' intstr.IntOrString, rounded down.
"""

from __future__ import annotations

IntOrPercent = int | str


def scaled(value: IntOrPercent, replicas: int) -> int:
    """Return the count that an int or a percentage text means. Raises ValueError on any other text."""
    if isinstance(value, int):
        return value
    digits = value[:-1] if value.endswith("%") else ""
    if not digits.isdecimal():
        raise ValueError(f"{value!r} is neither a whole number nor a percentage such as '25%'")
    return int(digits) * replicas // 100
