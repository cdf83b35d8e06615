"""Sentences about migration jobs, evictions and the descheduler's cycles.

In: events of descheduler-arbiter, and the gateway's answers to eviction requests. Out: a sentence for each (`sentences`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cotenant.events.descheduling import DeschedulingCycle
from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome, Migration, NodeLoadJudged


def _migration(data: Migration, _: Event) -> str:
    pod = f"{data.namespace}/{data.pod}"
    why = data.message or data.evict_reason
    place = ""
    if data.reservation and not data.finished:
        held = f"holds its next place on node {data.reservation_node}" if data.reservation_node else "is to hold its next place"
        place = f"; Reservation {data.reservation} {held}"
    waits = f" ({data.reason})" if data.reason and not data.message else ""
    return f"migration {data.job} of pod {pod}: {data.phase.lower()}{waits}" + (f": {why}" if why else "") + place


def _eviction(data: EvictionOutcome, event: Event) -> str:
    if event.tombstone:
        return f"the answer to the eviction of pod {data.namespace}/{data.name} is no longer kept"
    verdict = "eviction allowed" if data.allowed else "eviction refused"
    return f"pod {data.namespace}/{data.name}: {verdict}" + (f": {data.message}" if data.message else "")


def _cycle(data: DeschedulingCycle, event: Event) -> str:
    if event.tombstone:
        return f"profile {data.profile} of the descheduler is not configured any more"
    evicted = sum(plugin.evicted for plugin in data.plugins)
    text = f"descheduling cycle of profile {data.profile}: {evicted} of {data.pods} pods on {data.nodes} nodes shall go"
    if data.kept:
        first = data.kept[0]
        text += f", {data.kept_count} stay, as {first.namespace}/{first.name}: {first.reason}"
    return text + (f" ({data.message})" if data.message else "")


def _load(data: NodeLoadJudged, _: Event) -> str:
    return f"node {data.node} judged {data.load_class}" + (f": {data.message}" if data.message else "")


# Each function takes the payload type that it is listed with.
DESCHEDULING: dict[type, Callable[[Any, Event], str]] = {
    Migration: _migration,
    EvictionOutcome: _eviction,
    DeschedulingCycle: _cycle,
    NodeLoadJudged: _load,
}
