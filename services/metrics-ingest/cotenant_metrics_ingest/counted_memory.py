"""Which memory of a usage message counts, and the system's usage if a message lacks it.

In: a message, a memory collect policy. Out: the same message with that memory in its series. Executors always measure the
working set; page cache is additional; cold bytes are those of both that were not used for a while:

    usageWithoutPageCache   working set
    usageWithPageCache      working set + page cache
    usageWithHotPageCache   working set + page cache - cold, at least 0, where the node measures cold memory

A series without the figures that a policy needs counts by its working set: a node whose kernel cannot measure them must not
look idle. The system's memory is without page cache under every policy.

A message without system usage (its writer is no executor) gets the node's usage beyond pods and host applications, at least
0. Source: koordlet NodeMetric informer, koordlet system resource collector.
"""

from collections.abc import Sequence
from operator import add, sub

import msgspec

from cotenant.events.node.usage import Series, UsageSample
from cotenant_metrics_ingest.policy import WITH_HOT_PAGE_CACHE, WITH_PAGE_CACHE, MemoryPolicy, memory_series

_replace = msgspec.structs.replace
_WITHOUT_PAGE_CACHE = MemoryPolicy.WITHOUT_PAGE_CACHE


def counted(sample: UsageSample, policy: MemoryPolicy) -> UsageSample:
    """Return the message with the memory that counts under the policy; itself if that is the working set."""
    if not sample.system_usage.cpu_milli and not sample.system_usage.memory_bytes:
        sample = _replace(sample, system_usage=_rest(sample))
    if policy is _WITHOUT_PAGE_CACHE:
        return sample
    suffix = memory_series(policy, cold_memory_started=bool(sample.node_usage.cold_bytes))
    if suffix not in (WITH_PAGE_CACHE, WITH_HOT_PAGE_CACHE):
        return sample
    hot = suffix == WITH_HOT_PAGE_CACHE
    return _replace(
        sample,
        node_usage=_counted(sample.node_usage, hot),
        pods=tuple([_replace(pod, series=_counted(pod.series, hot)) for pod in sample.pods]),
        host_applications=tuple([_replace(host, series=_counted(host.series, hot)) for host in sample.host_applications]),
    )


def _counted(series: Series, hot: bool) -> Series:
    memory, cache, cold = series.memory_bytes, series.page_cache_bytes, series.cold_bytes
    if len(cache) != len(memory) or (hot and len(cold) != len(memory)):
        return series
    used = tuple(map(add, memory, cache))
    if hot:
        used = tuple([max(each, 0) for each in map(sub, used, cold)])
    return _replace(series, memory_bytes=used)


def _rest(sample: UsageSample) -> Series:
    """The node's usage beyond pods and host applications; as many samples as the node has."""
    node = sample.node_usage
    others = [*(pod.series for pod in sample.pods), *(host.series for host in sample.host_applications)]
    return Series(
        cpu_milli=_less(node.cpu_milli, [other.cpu_milli for other in others]),
        memory_bytes=_less(node.memory_bytes, [other.memory_bytes for other in others]),
    )


def _less(node: Sequence[int], others: Sequence[Sequence[int]]) -> tuple[int, ...]:
    left = list(node)
    for other in others:
        # A shorter series belongs to the newest times.
        offset = len(left) - len(other)
        for place, value in enumerate(other):
            if offset + place >= 0:
                left[offset + place] -= value
    return tuple([max(each, 0) for each in left])
