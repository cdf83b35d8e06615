"""Batch resources of a node, read from a Kubernetes node object.

In: a node's annotations and allocatable. Out: batch amounts. The annotation `originExtendedAllocatable` wins, as it is
the figure before YARN's share is subtracted; without it (or without `resources` in it) status.allocatable is used. A
missing resource counts as 0. Source: Koordinator YARN operator. On the log the same figure is `origin` of the node's
resources event, which the service reads.
"""

from __future__ import annotations

from collections.abc import Mapping

from cotenant.domain.third_party import amounts_of, parse_origin
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY
from cotenant.model.quantities import Scalar
from cotenant_yarn_copilot.capacity import BatchAmounts


def batch_of_node(annotations: Mapping[str, str], allocatable: Mapping[str, Scalar]) -> BatchAmounts:
    """Return the node's batch amounts. Raises ThirdPartyError on an unreadable annotation, QuantityError on a quantity."""
    origin = parse_origin(annotations)
    found = amounts_of(origin if origin is not None else {name: allocatable.get(name, 0) for name in (BATCH_CPU, BATCH_MEMORY)})
    return BatchAmounts(found.get(BATCH_CPU, 0), found.get(BATCH_MEMORY, 0))
