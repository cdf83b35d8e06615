"""Batch resources of a node as its object states them, where Koordinator's manager computes them.

In: a node's annotations and allocatable. Out: batch amounts, None where the object states none. The annotation
`originExtendedAllocatable` wins, as it is the figure before YARN's share is subtracted; without it (or without `resources` in
it) status.allocatable is used. A missing resource counts as 0. Source: Koordinator YARN operator.
"""

from __future__ import annotations

from collections.abc import Mapping

from cotenant.domain.third_party import amounts_of, parse_origin
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY
from cotenant.model.quantities import Scalar
from cotenant_yarn_copilot.capacity import BatchAmounts


def batch_of_node(annotations: Mapping[str, str], allocatable: Mapping[str, Scalar]) -> BatchAmounts | None:
    """Return the node's batch amounts. Raises ThirdPartyError on an unreadable annotation, QuantityError on a quantity."""
    stated = parse_origin(annotations)
    if stated is None:
        stated = {name: allocatable[name] for name in (BATCH_CPU, BATCH_MEMORY) if name in allocatable}
        if not stated:
            return None
    found = amounts_of(stated)
    return BatchAmounts(found.get(BATCH_CPU, 0), found.get(BATCH_MEMORY, 0))
