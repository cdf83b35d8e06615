"""Promise 25: a node's evictor keeps the rate and the cool-down of its strategies, whichever of its lives began an eviction.

In: the pods' reports, which say who evicts a pod and since when, by the node's clock. The limits are stated here again, so that
a check does not share a slip with the executor. A clock that goes back tells nothing of the time between: counting begins anew.
"""

from __future__ import annotations

from datetime import timedelta

from cotenant.events.envelope import Event
from cotenant.events.node.runs import RunStatus
from cotenant_verification.checks.invariants import Wrong
from cotenant_verification.checks.log_view import LogView

COOL_DOWN = {"cpu-evict": timedelta(seconds=20), "memory-evict": timedelta(seconds=4)}
"""By strategy, between evictions of different cycles."""
WINDOW = timedelta(minutes=1)
MOST_IN_WINDOW = 30


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
