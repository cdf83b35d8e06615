"""Promise 25: a node's evictor keeps the rate and the cool-down of its strategies, and their order of pods, whichever of its
lives began an eviction.

In: the pods' reports, which say who evicts a pod and since when, by the node's clock. The limits and the order are stated here
again, so that a check does not share a slip with the executor. A clock that goes back tells nothing of the time between:
counting begins anew.
"""

from __future__ import annotations

import re
from datetime import timedelta

from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.events.envelope import Event
from cotenant.events.node.runs import RunStatus
from cotenant.events.placements import Placement
from cotenant_verification.checks.invariants import Wrong
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.records import RankedEviction
from cotenant_verification.workload.manifests import EVICTION_ENABLED, EVICTION_PRIORITY, MOST_PRIORITY, QOS_LABEL

COOL_DOWN = {"cpu-evict": timedelta(seconds=20), "memory-evict": timedelta(seconds=4)}
"""By strategy, between evictions of different cycles."""
WINDOW = timedelta(minutes=1)
MOST_IN_WINDOW = 30
FEATURE = re.compile(r"\b(BECPUEvict|CPUEvict|CPUAllocatableEvict|BEMemoryEvict|MemoryEvict|MemoryAllocatableEvict)\b")
OF_BEST_EFFORT = ("BECPUEvict", "BEMemoryEvict")
BY_USAGE = ("CPUEvict", "MemoryEvict")
MEASURED = timedelta(seconds=5)
"""From a pod's start to a figure of its usage, without which it is not evicted by priority."""


def node_evictions_stay_in_limits(view: LogView, event: Event) -> Wrong:
    """A strategy evicts nobody within its cool-down after evictions of an earlier cycle, and at most MOST_IN_WINDOW pods in a
    minute."""
    data = event.data
    if not isinstance(data, RunStatus) or data.eviction is None or event.tombstone:
        return
    begun = data.eviction
    if begun.strategy not in COOL_DOWN:
        yield event.subject, f"{event.ref}: {data.namespace}/{data.name} is evicted by {begun.strategy!r}, which evicts nobody"
        return
    times = view.node_evictions[data.node, begun.strategy]
    if times.get(data.uid) == begun.at:
        return
    last = max(times.values(), default=None)
    if last is not None and begun.at < last:
        times.clear()
    elif last is not None and timedelta(0) < begun.at - last < COOL_DOWN[begun.strategy]:
        text = f"{begun.strategy} evicts {data.namespace}/{data.name} {begun.at - last} after its last evictions"
        yield event.subject, f"{event.ref}: {text}, cool-down {COOL_DOWN[begun.strategy]}"
    times[data.uid] = begun.at
    for uid in [uid for uid, at in times.items() if begun.at - at >= WINDOW]:
        del times[uid]
    if len(times) > MOST_IN_WINDOW:
        yield event.subject, f"{event.ref}: {begun.strategy} evicts {len(times)} pods in a minute, limit {MOST_IN_WINDOW}"


def an_eviction_is_begun_once(view: LogView, event: Event) -> Wrong:
    """A pod's reports name one eviction: the next life of an executor finishes what the last began."""
    data, before = event.data, view.before(event)
    if not isinstance(data, RunStatus) or event.tombstone or before is None or not isinstance(before.data, RunStatus):
        return
    earlier = before.data.eviction
    if before.data.uid == data.uid and earlier is not None and data.eviction != earlier:
        now = f"of {data.eviction.at}" if data.eviction is not None else "of nobody"
        yield event.subject, f"{event.ref}: {data.namespace}/{data.name} was evicted at {earlier.at}, and is {now}"


def only_permitted_pods_are_evicted(view: LogView, event: Event) -> Wrong:
    """Features for best-effort pods evict these alone, the others pods that permit it and are not prod."""
    data = event.data
    if not isinstance(data, RunStatus) or event.tombstone or data.eviction is None or _begun_before(view, event):
        return
    pod, feature = _pod(view, data), _feature(data.eviction.why)
    if pod is None:
        return
    labels, priority = pod.metadata.labels, pod.spec.priority or 0
    if feature in OF_BEST_EFFORT:
        if labels.get(QOS_LABEL) != "BE":
            yield event.subject, f"{event.ref}: {feature} evicts {data.namespace}/{data.name}, which is not best-effort"
    elif labels.get(EVICTION_ENABLED) != "true" or priority > MOST_PRIORITY:
        text = f"{data.namespace}/{data.name}, of priority {priority}, which does not permit it or is prod"
        yield event.subject, f"{event.ref}: {feature or 'no feature'} evicts {text}"


def the_lowest_priority_is_evicted_first(view: LogView, event: Event) -> Wrong:
    """A pod is not evicted for usage after one of a higher rank that was evicted while it ran: the lower one goes first."""
    data = event.data
    if not isinstance(data, RunStatus) or event.tombstone or data.eviction is None or _begun_before(view, event):
        return
    begun, feature, pod = data.eviction, _feature(data.eviction.why), _pod(view, data)
    if feature not in BY_USAGE or pod is None:
        return
    own = _rank(pod)
    earlier = view.ranked_evictions[data.node, feature]
    for uid in [uid for uid, each in earlier.items() if not timedelta(0) <= begun.at - each.at < WINDOW]:
        del earlier[uid]
    for each in earlier.values():
        ran = data.started_at is not None and data.started_at + MEASURED <= each.at
        if ran and each.at < begun.at and each.rank > own:
            text = f"{data.namespace}/{data.name} of rank {own} at {begun.at}, after {each.name} of rank {each.rank}"
            yield event.subject, f"{event.ref}: {feature} evicts {text} at {each.at}"
    earlier[data.uid] = RankedEviction(f"{data.namespace}/{data.name}", own, begun.at)


def _begun_before(view: LogView, event: Event) -> bool:
    """Whether an earlier report of the pod names its eviction."""
    before, data = view.before(event), event.data
    if before is None or not isinstance(before.data, RunStatus) or not isinstance(data, RunStatus):
        return False
    return before.data.uid == data.uid and before.data.eviction is not None


def _feature(why: str) -> str:
    found = FEATURE.search(why)
    return found.group() if found is not None else ""


def _pod(view: LogView, data: RunStatus) -> Pod | None:
    """The pod as it is placed; None where it is placed no longer."""
    placed = view.placed[data.node].get((data.namespace, data.name))
    if placed is None or not isinstance(placed.data, Placement) or placed.data.uid != data.uid:
        return None
    return decode_pod(placed.data.pod)


def _rank(pod: Pod) -> tuple[int, int]:
    """Eviction priority, priority: the lowest goes first."""
    return int(pod.metadata.annotations.get(EVICTION_PRIORITY, "0")), pod.spec.priority or 0
