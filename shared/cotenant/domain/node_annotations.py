"""The annotations of a Node that follow from the calculator's decisions, as Koordinator's manager and webhook write them.

In: a node's sources. Out: annotation texts that are laid over the object's own.

    originExtendedAllocatable     batch resources before the foreign share; 0 while they are withdrawn
    thirdPartyAllocations         the object's list, with YARN's own report in the place of its entry
    cpu-normalization-ratio       where the calculator decides one (with normalisation switched off: 1.00)
    resource-amplification-ratio  where the node is amplified
    raw-allocatable               there too: cpu and memory before it

An annotation of the object that cannot be read stays as it is, where it would have to be merged. Source: Koordinator node
resource controller (prepare) and node status webhook.
"""

from __future__ import annotations

from contextlib import suppress

from cotenant.domain.amplification import format_ratios, format_raw
from cotenant.domain.node import NodeSources
from cotenant.domain.third_party import (
    HADOOP_YARN,
    KOORD_BATCH,
    ThirdPartyAllocation,
    ThirdPartyError,
    write_allocation,
    write_origin,
)
from cotenant.events.node.metrics import Usage
from cotenant.model.names import (
    ANNOTATION_AMPLIFICATION_RATIO,
    ANNOTATION_CPU_NORMALIZATION_RATIO,
    ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE,
    ANNOTATION_RAW_ALLOCATABLE,
    ANNOTATION_THIRD_PARTY_ALLOCATIONS,
    BATCH_CPU,
    BATCH_MEMORY,
)
from cotenant.model.quantities import QuantityError, format_amount


def derived_annotations(sources: NodeSources) -> dict[str, str]:
    """Return the annotations of a node that has an object; none of another."""
    resources = sources.resources
    if resources is None or sources.node is None:
        return {}
    declared = sources.node.metadata.annotations
    found: dict[str, str] = {}
    if not resources.withdrawn or resources.degraded or ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE in declared:
        written = write_origin(declared, _batch(Usage() if resources.withdrawn else resources.origin))
        found[ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE] = written[ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE]
    if resources.yarn is not None:
        with suppress(ThirdPartyError):
            written = write_allocation(declared, ThirdPartyAllocation(HADOOP_YARN, KOORD_BATCH, dict(_batch(resources.yarn))))
            found[ANNOTATION_THIRD_PARTY_ALLOCATIONS] = written[ANNOTATION_THIRD_PARTY_ALLOCATIONS]
    if resources.cpu_normalization:
        found[ANNOTATION_CPU_NORMALIZATION_RATIO] = resources.cpu_normalization
    if resources.amplification:
        found[ANNOTATION_AMPLIFICATION_RATIO] = format_ratios(resources.amplification)
        with suppress(QuantityError):
            found[ANNOTATION_RAW_ALLOCATABLE] = format_raw(sources.raw_allocatable())
    return found


def _batch(usage: Usage) -> dict[str, str]:
    return {
        BATCH_CPU: format_amount(BATCH_CPU, usage.cpu_milli),
        BATCH_MEMORY: format_amount(BATCH_MEMORY, usage.memory_bytes),
    }
