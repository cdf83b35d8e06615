"""CPU and memory as one value, and the arithmetic of the formulas.

In and out: `Amounts`. `cpu` is in milli-CPUs. `memory` is in bytes at node level and in thousandths of a byte at zone level,
because the division of a node's figure by its zones has fractions that the formula must keep. No formula mixes the two.

Rounding follows Koordinator's resource quantities: a factor is applied as trunc(double(amount) * factor), and a division
rounds up to the next thousandth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from cotenant.model.names import CPU, MEMORY
from cotenant.model.quantities import multiply_milli, multiply_value
from cotenant.model.values import Value

THOUSANDTHS = 1000


class Amounts(Value, frozen=True):
    """CPU in milli-CPUs and memory in bytes (thousandths of a byte at zone level)."""

    cpu: int = 0
    memory: int = 0

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(self.cpu + other.cpu, self.memory + other.memory)

    def __sub__(self, other: Amounts) -> Amounts:
        return Amounts(self.cpu - other.cpu, self.memory - other.memory)

    def larger(self, other: Amounts) -> Amounts:
        """Return the larger of the two, for each resource."""
        return Amounts(max(self.cpu, other.cpu), max(self.memory, other.memory))

    def smaller(self, other: Amounts) -> Amounts:
        """Return the smaller of the two, for each resource."""
        return Amounts(min(self.cpu, other.cpu), min(self.memory, other.memory))

    def floored(self) -> Amounts:
        """Return the amounts, at least zero."""
        return Amounts(max(self.cpu, 0), max(self.memory, 0))


ZERO = Amounts()


def of_mapping(amounts: Mapping[str, int]) -> Amounts:
    """Return the cpu and memory of a resource map in integer units."""
    return Amounts(amounts.get(CPU, 0), amounts.get(MEMORY, 0))


def total(parts: Iterable[Amounts]) -> Amounts:
    """Return the sum."""
    result = ZERO
    for part in parts:
        result = result + part
    return result


def share(amounts: Amounts, percent: int) -> Amounts:
    """Return percent / 100 of both, truncated towards zero."""
    factor = percent / 100.0
    return Amounts(multiply_milli(amounts.cpu, factor), multiply_value(amounts.memory, factor))


def margin_of(capacity: Amounts, cpu_reclaim_percent: int, memory_reclaim_percent: int) -> Amounts:
    """Return the margin of the capacity: (100 - reclaim percent) / 100 of it; negative above 100 percent."""
    return Amounts(
        multiply_milli(capacity.cpu, (100 - cpu_reclaim_percent) / 100.0),
        multiply_value(capacity.memory, (100 - memory_reclaim_percent) / 100.0),
    )


def divide(amount: int, divisor: int) -> int:
    """Return ceil(double(amount) / divisor) of an amount in thousandths; a divisor of 0 leaves it unchanged."""
    return amount if divisor == 0 else math.ceil(float(amount) / divisor)


def split(amounts: Amounts, divisor: int) -> Amounts:
    """Return one zone's equal share of zone-level amounts."""
    return Amounts(divide(amounts.cpu, divisor), divide(amounts.memory, divisor))


def to_zone_level(amounts: Amounts) -> Amounts:
    """Return node-level amounts in zone-level units."""
    return Amounts(amounts.cpu, amounts.memory * THOUSANDTHS)
