"""Which pods are evicted for memory, and in which order.

In: candidates, and tasks: the amount of its target that each feature must release. Out: the pods to evict in
order, each with the feature that chose it. A pod counts for all tasks of its target, also one that is being evicted already,
so that features never evict twice for the same amount.

Order among BE pods (feature BEMemoryEvict): the lower priority first, only where both have one and they differ; then the larger
usage, pods without any last, those by name, the last first. Order of the features by priority: annotation
`koordinator.sh/eviction-priority`, spec.priority, label `koordinator.sh/priority` (by default spec.priority), each the lower
first, then the larger amount. Source: memory eviction, koordlet rule.

A pod's amount is what it uses in bytes, or requests in units of the resource; upstream counts a thousandfold in MemoryEvict and
stops too early.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cmp_to_key

from msgspec import Struct

from cotenant.api.objects.pod import Pod
from cotenant.domain.qos import QoSClass, priority_value_default, qos_raw
from cotenant.model.by_identity import by_identity
from cotenant_node_executor.strategies.pod_eviction import grace_seconds, is_enabled, policies_of, rank_of


class Traits(Struct, frozen=True):
    """A pod's traits for eviction. `policies`: the features that may evict it; None: all; empty also where
    the annotation cannot be read."""

    best_effort: bool
    enabled: bool
    priority: int | None
    rank: tuple[int, int, int]
    """Eviction priority, priority, label's priority; the lowest is evicted first."""
    policies: frozenset[str] | None
    grace_seconds: int
    priority_value: int = 0
    """The priority, or that of its class where it names none."""

    def allows(self, feature: str) -> bool:
        """Whether this feature may evict the pod."""
        return self.policies is None or feature in self.policies


@by_identity
def traits(pod: Pod) -> Traits:
    """Return a pod's traits."""
    labels, annotations, priority = pod.metadata.labels, pod.metadata.annotations, pod.spec.priority
    return Traits(
        best_effort=qos_raw(pod) is QoSClass.BE,
        enabled=is_enabled(labels),
        priority=priority,
        rank=rank_of(priority, labels, annotations),
        policies=policies_of(annotations),
        grace_seconds=grace_seconds(pod),
        priority_value=priority_value_default(pod),
    )


class MemoryEvictionCandidate(Struct, frozen=True):
    """A pod that may be evicted. `amounts`: by target what its end releases; a target that is absent counts 0."""

    uid: str
    name: str
    traits: Traits
    amounts: dict[str, int] = {}

    def amount(self, target: str) -> int:
        """The amount of a target that its end releases."""
        return self.amounts.get(target, 0)


class Task(Struct, frozen=True):
    """What one feature needs: `release` of `target`, from pods that `concerns` accepts, in the order of `key`."""

    feature: str
    target: str
    release: int
    why: str
    by_priority: bool
    highest_priority: int = 0
    """The order of pods for features by priority."""

    def concerns(self, candidate: MemoryEvictionCandidate) -> bool:
        """Whether this feature may evict the pod."""
        own = candidate.traits
        if not own.allows(self.feature):
            return False
        if not self.by_priority:
            return own.best_effort
        return own.enabled and own.priority is not None and own.priority <= self.highest_priority


class MemoryVictim(Struct, frozen=True):
    """A pod to evict, for a task."""

    candidate: MemoryEvictionCandidate
    task: Task


def best_effort_order(candidates: Iterable[MemoryEvictionCandidate], target: str) -> list[MemoryEvictionCandidate]:
    """Return BE pods in the order in which they are evicted."""

    def compare(one: MemoryEvictionCandidate, other: MemoryEvictionCandidate) -> int:
        first, second = one.traits.priority, other.traits.priority
        if first is not None and second is not None and first != second:
            return -1 if first < second else 1
        used, more = one.amount(target), other.amount(target)
        if used or more:
            return (more > used) - (more < used)
        return (other.name > one.name) - (other.name < one.name)

    return sorted(sorted(candidates, key=lambda each: (each.name, each.uid)), key=cmp_to_key(compare))


def priority_order(candidates: Iterable[MemoryEvictionCandidate], target: str) -> list[MemoryEvictionCandidate]:
    """Return pods of any class in the order in which they are evicted."""
    return sorted(candidates, key=lambda each: (each.traits.rank, -each.amount(target), each.name, each.uid))


def victims(
    tasks: Sequence[Task], candidates: Sequence[MemoryEvictionCandidate], leaving: frozenset[str] = frozenset()
) -> list[MemoryVictim]:
    """Return the pods to evict. `leaving`: uids that are being evicted already, whose amounts count as released."""
    gone = [each for each in candidates if each.uid in leaving]
    chosen: list[MemoryVictim] = []
    for task in tasks:
        released = sum([each.amount(task.target) for each in gone])
        taken = {each.uid for each in gone}
        free = [each for each in candidates if each.uid not in taken and task.concerns(each)]
        order = priority_order if task.by_priority else best_effort_order
        for candidate in order(free, task.target):
            if released >= task.release:
                break
            released += candidate.amount(task.target)
            gone.append(candidate)
            chosen.append(MemoryVictim(candidate, task))
    return chosen
