"""No pod is on two nodes, or runs on a node that it is not placed on; evictions leave as many pods as their budget requires.

In: all events of LOG in order; how many pods of which group must stay. Out: violations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome
from cotenant.events.node.runs import RunPhase, RunStatus
from cotenant.events.objects import ObjectDeleted, ObjectStored
from cotenant.events.placements import Placement, PlacementPhase
from cotenant_verification.stack_chaos.records import BrokenPromise

TWICE = "no pod runs on two nodes"
BUDGET = "evictions stay within their budget"
PODS = "objects.core.pods."


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    deletion_timestamp: str = msgspec.field(default="", name="deletionTimestamp")


class _Pod(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Room(msgspec.Struct):
    """The facts of one pod."""

    group: str = ""
    ending: bool = False
    placed: set[str] = set()
    running: set[str] = set()


def check_pods(events: Sequence[Event], label: str, budgets: Mapping[str, int]) -> list[BrokenPromise]:
    """Compare placements, runs and evictions with one another. `budgets`: pods that must stay, by the label's value."""
    return list(_check(events, label, budgets))


def _check(events: Sequence[Event], label: str, budgets: Mapping[str, int]) -> Iterator[BrokenPromise]:
    pods: dict[str, _Room] = {}
    uids: dict[str, str] = {}
    """uid by subject: a tombstone may not say it."""
    for event in events:
        data = event.data
        if isinstance(data, Placement):
            pod = pods.setdefault(data.uid, _Room())
            if data.phase is PlacementPhase.GONE:
                pod.placed.discard(data.node)
                continue
            pod.placed.add(data.node)
            if len(pod.placed) > 1:
                yield BrokenPromise(TWICE, f"{event.ref} {data.namespace}/{data.name} is placed on {_all(pod.placed)}")
        elif isinstance(data, RunStatus):
            pod = pods.setdefault(data.uid, _Room())
            if event.tombstone or data.phase.terminal:
                pod.running.discard(data.node)
            elif data.phase is RunPhase.RUNNING:
                pod.running.add(data.node)
                if len(pod.running) > 1:
                    yield BrokenPromise(TWICE, f"{event.ref} {data.namespace}/{data.name} runs on {_all(pod.running)}")
        elif event.subject.startswith(PODS) and isinstance(data, ObjectStored):
            metadata = msgspec.json.decode(data.object, type=_Pod).metadata
            pod = pods.setdefault(metadata.uid, _Room())
            pod.group = metadata.labels.get(label, "")
            uids[event.subject] = metadata.uid
            if metadata.deletion_timestamp and not pod.ending:
                pod.ending = True
        elif event.subject.startswith(PODS) and isinstance(data, ObjectDeleted):
            gone = pods.get(uids.pop(event.subject, data.uid))
            if gone is not None:
                gone.ending = True
        elif isinstance(data, EvictionOutcome) and data.allowed and data.reason == "Evicted" and not event.tombstone:
            yield from _within(event, data, pods, budgets)


def _within(
    event: Event, outcome: EvictionOutcome, pods: Mapping[str, _Room], budgets: Mapping[str, int]
) -> Iterator[BrokenPromise]:
    """The pod itself is marked in the same batch, ahead of the outcome."""
    evicted = pods.get(outcome.uid)
    if evicted is None or evicted.group not in budgets or not evicted.running:
        return
    left = sum(1 for pod in pods.values() if pod.group == evicted.group and pod.running and not pod.ending)
    if left < budgets[evicted.group]:
        yield BrokenPromise(
            BUDGET,
            f"{event.ref} {outcome.namespace}/{outcome.name} was evicted; {left} pods of {evicted.group} are left, "
            f"{budgets[evicted.group]} must be",
        )


def _all(nodes: set[str]) -> str:
    return " and ".join(sorted(nodes))
