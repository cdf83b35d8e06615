"""Batch resources in YARN's units, and back.

In: batch CPU in milli-CPUs and batch memory in bytes. Out: YARN's vcores and MB: one vcore per CPU, 2^20 bytes per MB.

    exact        vcores = floor(milli / 1000)   MB = floor(bytes / 2^20)   never more than the node's offer
    compatible   vcores = ceil(milli / 1000)    MB = ceil(bytes / 10^6)    as Koordinator's operator sends: up to 4.9 % too much

In both modes YARN's usage converts back to vcores * 1000 milli-CPUs and MB * 2^20 bytes.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from cotenant.model.bounds import saturated

MIB = 1 << 20
_MEGA = 10**6
_MAX_INT = 2**31 - 1


class Rounding(StrEnum):
    """How batch resources are rounded to vcores and MB."""

    EXACT = "exact"
    COMPATIBLE = "compatible"


class YarnResource(msgspec.Struct, frozen=True):
    """An amount in YARN's units."""

    vcores: int = 0
    memory_mb: int = 0


class BatchAmounts(msgspec.Struct, frozen=True):
    """An amount in batch units: milli-CPUs and bytes."""

    cpu_milli: int = 0
    memory_bytes: int = 0

    def without(self, other: BatchAmounts) -> BatchAmounts:
        """Return the difference, not below zero."""
        return BatchAmounts(max(self.cpu_milli - other.cpu_milli, 0), max(self.memory_bytes - other.memory_bytes, 0))


def to_yarn(batch: BatchAmounts, rounding: Rounding = Rounding.EXACT) -> YarnResource:
    """Return YARN's total in vcores and MB, within 0 and YARN's largest integer."""
    cpu, memory = max(batch.cpu_milli, 0), max(batch.memory_bytes, 0)
    if rounding is Rounding.COMPATIBLE:
        total = YarnResource(-(-cpu // 1000), -(-memory // _MEGA))
    else:
        total = YarnResource(cpu // 1000, memory // MIB)
    return YarnResource(min(total.vcores, _MAX_INT), min(total.memory_mb, _MAX_INT))


def of_yarn(resource: YarnResource) -> BatchAmounts:
    """Return a YARN amount in batch units, saturated at the bounds of amounts. A negative one (available resources while
    over-committed) counts as zero."""
    return BatchAmounts(saturated(max(resource.vcores, 0) * 1000), saturated(max(resource.memory_mb, 0) * MIB))
