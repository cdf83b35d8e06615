"""Page-cache limit: how much page cache a pod may have, as far as the kernel supports it.

In: `pageCacheLimitEnable`, `pageCacheLimitSize` (bytes) and `pageCacheLimitSync` in the `memoryQOS` of a class, overlaid by a
pod's annotation `koordinator.sh/memoryQOS`. Out, on Anolis' kernel: `memory.pagecache_limit.size`, `.sync` and `.enable` of the
pod and its containers, the size at most the group's memory limit, and written before the limit is on. Out, on any other
kernel: an order to reclaim what a pod has above its limit, for the pod that is furthest above, at each sample:

    over = page cache of the pod - pageCacheLimitSize           at least 16 MiB

v2 reclaims this much of the pod, which is page cache as long as there is no swap; v1 drops as much of it as possible.
A pod that stalls for memory (some, avg10, 5 % or more) is skipped. That bounds the page cache once a second, not at
each page. A disabled class has no limit, nor has a pod whose annotation has the policy `none`; `auto` begins without the
class's. A field that is out of range is refused by its name. Source: memory QoS, the page-cache fields of koordlet's newest
MemoryQOS.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from cotenant.events.node.resources import NodeSLORendered
from cotenant.model.by_identity import by_identity
from cotenant_node_executor.strategies.memory.qos_config import (
    PART,
    POLICY_AUTO,
    POLICY_NONE,
    asked_by,
    document_of,
    in_range,
    where_of,
)
from cotenant_node_executor.strategies.pod_view import ContainerShape, PodView
from cotenant_node_executor.strategies.readings import MIN_CACHE_BYTES, page_cache_bytes, stalls_for_memory
from cotenant_node_executor.strategies.sections import (
    CLASSES,
    QOS,
    class_part,
    fitted,
    lower_name,
    of_classes,
    raw_section,
)
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Cause, Desired, Input, NodePolicy, Reclaim, Strategy, StrategyDecision
from cotenant_node_executor.targets.address import Place
from cotenant_node_executor.targets.cgroup.files import INT64_MAX
from cotenant_node_executor.targets.interface import RECLAIM, Knob, NodeCapabilities

NAME = "page-cache"
KNOBS = (Knob.MEMORY_PAGECACHE_SIZE, Knob.MEMORY_PAGECACHE_SYNC, Knob.MEMORY_PAGECACHE_ENABLE)
RANGES = {"pageCacheLimitEnable": (0, 1), "pageCacheLimitSize": (-1, INT64_MAX), "pageCacheLimitSync": (0, 1)}
"""What the kernel's files take; a size of -1, as of 0, is no limit and not written."""


class PageCacheLimit(Struct, frozen=True, kw_only=True, rename=lower_name, cache_hash=True):
    """As stated; None: not stated. The size is in bytes."""

    page_cache_limit_enable: int | None = None
    page_cache_limit_size: int | None = None
    page_cache_limit_sync: int | None = None

    @property
    def is_on(self) -> bool:
        """Whether there is a limit to keep."""
        return self.page_cache_limit_enable == 1 and (self.page_cache_limit_size or 0) > 0


Rule = Mapping[str, PageCacheLimit]
"""By LSR, LS, BE and SYSTEM."""
NO_LIMIT = PageCacheLimit()
OFF = PageCacheLimit(page_cache_limit_enable=0, page_cache_limit_size=0, page_cache_limit_sync=0)


class PageCache(Struct, frozen=True):
    """The last decision: how many pods have a limit, and how much the one furthest above was above it, in bytes."""

    limited: int = 0
    over_bytes: int = 0


@by_identity
def _rule(slo: NodeSLORendered) -> Rule:
    strategy = raw_section(slo, QOS)
    return {
        name: in_range(
            fitted(class_part(strategy, field, PART, {}, {}), PageCacheLimit, f"{field}.{PART}"), where_of(field), RANGES
        )
        for name, field in CLASSES.items()
    }


@lru_cache(maxsize=256)
def limit_of(of_class: PageCacheLimit, annotation: str | None) -> PageCacheLimit:
    """Return the limit of a pod with this annotation. One that is unreadable or out of range counts as absent."""
    if annotation is None:
        return of_class
    try:
        policy, stated = asked_by(annotation)
        if policy == POLICY_NONE:
            return NO_LIMIT
        base = NO_LIMIT if policy == POLICY_AUTO else of_class
        return in_range(fitted({**document_of(base), **stated}, PageCacheLimit, PART), PART, RANGES)
    except ValueError:
        return of_class


def decide(situation: Situation, memory: Struct | None) -> StrategyDecision:
    """The files of every pod with a limit, or the reclaim of the pod furthest above it. The first decision switches
    off, once, limits of an earlier executor."""
    if situation.slo is None:
        return StrategyDecision(memory=memory)
    rule = _rule(situation.slo)
    limited: dict[str, PageCacheLimit] = {}
    for group, pod in situation.pods.items():
        limit = limit_of(rule[pod.shape.config_class], pod.shape.memory_qos)
        if limit.is_on:
            limited[group] = limit
    if _has_files(situation.capabilities):
        values: dict[Place, tuple[Desired, ...]] = {}
        for group in situation.pods if memory is None else limited:
            values.update(_files(situation.pods[group], limited.get(group, OFF)))
        return StrategyDecision(values, memory=PageCache(len(limited)))
    if not limited:
        return StrategyDecision(memory=PageCache())
    if not situation.capabilities.supports(RECLAIM):
        problem = f"page-cache limits of {len(limited)} pods: this kernel can neither limit nor reclaim a group's page cache"
        return StrategyDecision(memory=PageCache(len(limited)), problems=(problem,))
    return _reclaimed(situation, limited)


def _files(pod: PodView, limit: PageCacheLimit) -> dict[Place, tuple[Desired, ...]]:
    limits = [_limit_bytes(container) for container in pod.shape.containers]
    of_pod = sum(limits) if all(own > 0 for own in limits) else 0
    return {group: _desired(limit, most) for group, most in zip(pod.groups, (of_pod, *limits), strict=True)}


def _limit_bytes(container: ContainerShape) -> int:
    own = container.limit_memory_bytes or 0
    return own if own > 0 or container.batch is None else container.batch.limit_memory_bytes or 0


def _desired(limit: PageCacheLimit, most: int) -> tuple[Desired, ...]:
    """`most`: the group's memory limit, 0 for none."""
    size = limit.page_cache_limit_size or 0
    stated = (min(size, most) if most > 0 else size, limit.page_cache_limit_sync, limit.page_cache_limit_enable)
    values = zip(KNOBS, stated, strict=True)
    return tuple([Desired(knob, str(value), NAME, "page-cache limit") for knob, value in values if value is not None])


def _reclaimed(situation: Situation, limited: Mapping[str, PageCacheLimit]) -> StrategyDecision:
    over: list[tuple[int, str]] = []
    snapshot = situation.snapshot
    for sample in snapshot.pods.values() if snapshot is not None else ():
        limit = limited.get(sample.usage.group)
        if limit is not None and not stalls_for_memory(sample.usage):
            over.append((page_cache_bytes(sample.usage) - (limit.page_cache_limit_size or 0), sample.usage.group))
    most, group = max(over, default=(0, ""))
    memory = PageCache(len(limited), max(most, 0))
    if most < MIN_CACHE_BYTES:
        return StrategyDecision(memory=memory)
    size = limited[group].page_cache_limit_size
    return StrategyDecision(
        orders=(Reclaim(group, most, f"its page cache is {most} bytes above its limit of {size}"),), memory=memory
    )


@by_identity
def _has_files(capabilities: NodeCapabilities) -> bool:
    return all(capabilities.supports(knob) for knob in KNOBS)


def _inputs(policy: NodePolicy) -> frozenset[Input]:
    if _has_files(policy.capabilities):
        return frozenset((Input.PODS,))
    return frozenset((Input.PODS, Input.USAGE) if policy.slo is not None else ())


def _figures(memory: Struct | None) -> dict[str, int]:
    if not isinstance(memory, PageCache):
        return {}
    return {"limited.pods": memory.limited, "over.memory-bytes": memory.over_bytes}


STRATEGY = Strategy(
    name=NAME,
    topic=NAME,
    sets=KNOBS,
    decide=decide,
    inputs=_inputs,
    cause=Cause.USAGE,
    figures=_figures,
    section=QOS,
    part=PART,
    reads=of_classes(PART, PageCacheLimit),
)
