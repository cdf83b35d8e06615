"""The peak of services and the system together over the samples of a message.

In: a message, the tier of each pod. Out: per resource the highest of node - pods of lower tiers, sample by sample. What the
node uses beyond all pods is counted: the system, host applications. Memory is the working set.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from cotenant.events.node.metrics import Usage
from cotenant.events.node.usage import UsageSample
from cotenant.model.tiers import PriorityClass
from cotenant_metrics_ingest.samples import LARGEST_VALUE, Samples

RECLAIMED = frozenset({PriorityClass.BATCH.value, PriorityClass.FREE.value})
"""Tiers that are no services."""
NOT_COUNTED = RECLAIMED | {PriorityClass.MID.value}
"""Tiers that prediction does not count: mid pods use the reclaimed part of prod pods' requests."""
_FIRST_POD = 2


class LowerPods(msgspec.Struct, frozen=True):
    """Where a message's pods of lower tiers are. `reclaimed`: those of tier batch and free; `others`: those of tier mid."""

    reclaimed: Sequence[int] = ()
    others: Sequence[int] = ()


def lower_pods(pods: Iterable[str], tiers: Mapping[str, str]) -> LowerPods:
    """The pods of lower tiers, by their place in the message."""
    of_pods = [tiers[pod] for pod in pods]
    return LowerPods(
        [place for place, tier in enumerate(of_pods) if tier in RECLAIMED],
        [place for place, tier in enumerate(of_pods) if tier in NOT_COUNTED - RECLAIMED],
    )


def services_peaks(sample: UsageSample, samples: Samples | None, first: int, lower: LowerPods) -> tuple[Usage, Usage]:
    """The peak without batch and free pods, and without mid pods too, of the samples from index `first` on. `samples`: the
    message's table, where it is regular."""
    of_services = _peak(sample, samples, first, lower.reclaimed)
    return of_services, _peak(sample, samples, first, [*lower.reclaimed, *lower.others]) if lower.others else of_services


def _peak(sample: UsageSample, samples: Samples | None, first: int, without: Sequence[int]) -> Usage:
    node = sample.node_usage
    if not without:
        return Usage(cpu_milli=max(node.cpu_milli[first:]), memory_bytes=max(node.memory_bytes[first:]))
    if samples is not None:
        table = samples.table()[:, :, first:]
        left = table[:, 0] - table[:, [_FIRST_POD + place for place in without]].sum(axis=1)
        cpu, memory = left.max(axis=1).tolist()
        return Usage(cpu_milli=max(cpu, 0), memory_bytes=max(memory, 0))
    pods = [sample.pods[place].series for place in without]
    cpus = _without(node.cpu_milli, [series.cpu_milli for series in pods])[first:]
    memories = _without(node.memory_bytes, [series.memory_bytes for series in pods])[first:]
    return Usage(cpu_milli=max(*cpus, 0), memory_bytes=max(*memories, 0))


def _without(node: Sequence[int], pods: Iterable[Sequence[int]]) -> list[int]:
    """A shorter series belongs to the newest times; impossible values count as 0."""
    left = list(node)
    for values in pods:
        offset = len(left) - len(values)
        for place, value in enumerate(values):
            if offset + place >= 0 and 0 <= value <= LARGEST_VALUE:
                left[offset + place] -= value
    return left
