"""From calculated amounts to offered amounts: CPU normalisation, the origin and the foreign share.

In: calculated batch amounts (None: withdrawn), the normalisation ratio, allocations of foreign schedulers. Out: origin and
offered amounts. Source: Koordinator batch resource plugin, prepare.

    origin[batch-cpu]    = calculated * ratio             only for a ratio above 1.0
    origin[batch-memory] = calculated
    offered              = max(0, origin - sum of foreign koord-batch allocations)
    withdrawn            : origin is 0, the node offers no batch resources
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from cotenant.model.names import ANNOTATION_CPU_NORMALIZATION_RATIO, BATCH_CPU, BATCH_MEMORY
from cotenant.model.quantities import multiply_milli
from cotenant.model.values import Value
from cotenant_batch_resource_calculator.formulas.amounts import ZERO, Amounts

MAX_RATIO = 1_000_000.0


class Offer(Value, frozen=True):
    """`origin`: batch amounts before the foreign share. `offered`: what batch pods may request; None: withdrawn."""

    origin: Amounts
    offered: Amounts | None


def amplified(batch_cpu_milli: int, ratio: float) -> int:
    """Return batch CPU in normalised units, rounded up to a whole one; a ratio of 1.0 or less changes nothing."""
    return -(-multiply_milli(batch_cpu_milli * 1000, ratio) // 1000) if ratio > 1.0 else batch_cpu_milli


def ratio_of(text: str) -> float | None:
    """Return the ratio that a text states; None where it states none, or no finite number."""
    try:
        ratio = float(text)
    except ValueError:
        return None
    return ratio if math.isfinite(ratio) else None


def normalization_ratio(annotations: Mapping[str, str]) -> float:
    """Return the ratio in the annotation, at most MAX_RATIO; 1.0 if it is absent or not a number."""
    ratio = ratio_of(annotations.get(ANNOTATION_CPU_NORMALIZATION_RATIO, "1"))
    return 1.0 if ratio is None else min(ratio, MAX_RATIO)


def offer(calculated: Amounts | None, ratio: float, foreign: Mapping[str, int]) -> Offer:
    """Return the node's offer; `foreign`: amounts by resource name, in milli-CPUs and bytes."""
    if calculated is None:
        return Offer(ZERO, None)
    origin = Amounts(amplified(calculated.cpu, ratio), calculated.memory)
    taken = Amounts(foreign.get(BATCH_CPU, 0), foreign.get(BATCH_MEMORY, 0))
    return Offer(origin, (origin - taken).floored())
