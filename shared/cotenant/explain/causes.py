"""The chain of causes from a decision back to the samples and objects that it is based on.

Pure: `CauseWalk` returns the references to look up (`wanted`) and takes the events found (`add`); a caller that can read LOG
and HISTORY drives it. `explain_pod` and `explain_node` then lay the events out as a tree: each link with
stream:sequence, time, sentence and figures. `event_line` and `concerns` turn single events into lines for `events`.

Bounds: MAX_DEPTH steps back, MAX_EVENTS events in all; omitted and expired events are reported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome, Migration
from cotenant.events.node.conditions import NodeCondition
from cotenant.events.node.execution import Execution
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import RunStatus
from cotenant.events.objects import ObjectDeleted
from cotenant.events.placements import Placement, PlacementPhase, Waiting
from cotenant.events.quotas import QuotaRuntime
from cotenant.events.reservations import ReservationShare, ReservationStatus
from cotenant.explain.sentences import figures, sentence
from cotenant.explain.waking import members_and_changes, short_line, why_waiting
from cotenant.model.subjects import tokens
from cotenant.model.trace_context import trace_of

MAX_DEPTH = 12
MAX_EVENTS = 200


class EventLine(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One event as a line: position, time, sentence, causes."""

    stream: str
    sequence: int
    time: str
    type: str
    subject: str
    sentence: str
    causes: tuple[str, ...] = ()
    actor: str = ""
    figures: dict[str, str] = {}
    trace_id: str = ""


def event_line(event: Event) -> EventLine:
    """Return an event as a line."""
    return EventLine(
        stream=event.stream,
        sequence=event.sequence,
        time=event.time.isoformat(timespec="milliseconds") if event.time is not None else "",
        type=event.data.TYPE,
        subject=event.subject,
        sentence=sentence(event),
        causes=event.causes,
        actor=event.actor,
        figures=figures(event),
        trace_id=trace_of(event.traceparent),
    )


_KIND_WORDS = {
    **dict.fromkeys(("po", "pod"), "pods"),
    **dict.fromkeys(("no", "node"), "nodes"),
    **dict.fromkeys(("pmj", "podmigrationjob"), "podmigrationjobs"),
    **dict.fromkeys(("eq", "eqs", "elasticquota", "quota", "quotas"), "elasticquotas"),
}
"""Plurals by what users write."""


def concerns(event: Event, kind: str, namespace: str, name: str) -> bool:
    """Return whether an event concerns an object (`kind` as users write it; empty: every event does). Empty namespace: any."""
    if not kind:
        return True
    plural = _KIND_WORDS.get(kind, kind)
    parts = tokens(event.subject)
    if parts[0] == "objects" and len(parts) == 5:
        same_kind = plural in (parts[2], parts[2].removesuffix("s"), f"{parts[2]}.{parts[1]}") or f"{plural}s" == parts[2]
        return same_kind and parts[4] == name and (not namespace or parts[3] in (namespace, "_"))
    if plural == "pods":
        return _concerns_pod(event, parts, namespace, name)
    if plural == "nodes":
        return (
            len(parts) >= 2
            and parts[0] in ("node", "metrics", "usage", "execution", "yarn", "descheduling")
            and parts[1] == name
        )
    if plural == "podmigrationjobs":
        return parts[0] == "migrations" and parts[1] == name
    if plural == "elasticquotas":
        return parts[0] == "quotas" and len(parts) > 2 and parts[2] == name
    return False


def _concerns_pod(event: Event, parts: Sequence[str], namespace: str, name: str) -> bool:
    if isinstance(event.data, Migration):
        return event.data.pod == name and namespace in ("", event.data.namespace)
    if isinstance(event.data, Execution):
        return event.data.pod == name and namespace in ("", event.data.namespace)
    if (parts[0] == "node" and len(parts) == 5) or (parts[0] in ("waiting", "evictions") and len(parts) == 3):
        return parts[-1] == name and namespace in ("", parts[-2])
    return False


class CauseWalk:
    """Breadth-first walk from some events to their causes. Bounded; every event is visited once."""

    def __init__(self, roots: Sequence[Event]) -> None:
        self.events: dict[str, Event] = {event.ref: event for event in roots}
        self.lost: dict[str, str] = {}
        """References that are no longer kept, with the reason."""
        self.cut = False
        self._depth = {event.ref: 0 for event in roots}
        self._queue: deque[str] = deque()
        for event in roots:
            self._follow(event)

    def wanted(self) -> list[str]:
        """Return the references to look up next, in order; empty when the walk is over."""
        return [ref for ref in self._queue if ref not in self.events and ref not in self.lost]

    def add(self, ref: str, event: Event | None, why: str = "no longer kept in LOG or HISTORY") -> None:
        """Take the event of a reference; None and the reason if it is no longer kept."""
        if ref in self._queue:
            self._queue.remove(ref)
        if event is None:
            self.lost[ref] = why
        elif ref not in self.events:
            self.events[ref] = event
            self._follow(event, ref)

    def _follow(self, event: Event, ref: str = "") -> None:
        depth = self._depth[ref or event.ref] + 1
        for cause in event.causes:
            if cause in self._depth:
                continue
            if depth > MAX_DEPTH or len(self._depth) >= MAX_EVENTS:
                self.cut = True
                continue
            self._depth[cause] = depth
            self._queue.append(cause)


class Link(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One event in the tree of causes. `repeated`: shown with its causes above; `lost`: no longer kept."""

    depth: int
    ref: str
    time: str = ""
    type: str = ""
    sentence: str = ""
    figures: dict[str, str] = {}
    repeated: bool = False
    lost: bool = False
    trace_id: str = ""


class Explanation(msgspec.Struct, frozen=True, rename="camel"):
    """Why an object is as it is: a summary in one line, and the links in the order in which they are printed."""

    kind: str
    namespace: str
    name: str
    summary: str
    links: tuple[Link, ...]
    cut: bool = False
    """The walk reached its bounds: older causes exist."""
    reasons: tuple[str, ...] = ()
    """Of a quota: the reason for its runtime, one line per resource. Of a pod that waits: which members of its gang do not
    fit, and what can change that."""


def links(roots: Sequence[Event], walk: CauseWalk) -> tuple[Link, ...]:
    """Return the tree of causes below the roots, depth first, causes in the order in which an event names them."""
    found: list[Link] = []
    shown: set[str] = set()
    stack = [(event.ref, 0) for event in reversed(roots)]
    while stack:
        ref, depth = stack.pop()
        event = walk.events.get(ref)
        if event is None:
            if ref in walk.lost:
                found.append(Link(depth, ref, sentence=walk.lost[ref], lost=True))
            continue
        time = event.time.isoformat(timespec="milliseconds") if event.time is not None else ""
        if ref in shown:
            found.append(Link(depth, ref, time, event.data.TYPE, sentence(event), repeated=True))
            continue
        shown.add(ref)
        trace = trace_of(event.traceparent)
        found.append(Link(depth, ref, time, event.data.TYPE, sentence(event), figures(event), trace_id=trace))
        stack.extend((cause, depth + 1) for cause in reversed(event.causes))
    return tuple(found)


def _newest_first(roots: Sequence[Event]) -> list[Event]:
    return sorted(roots, key=lambda event: (event.tombstone, -event.sequence))


def explain_pod(namespace: str, name: str, roots: Sequence[Event], walk: CauseWalk) -> Explanation:
    """Explain a pod: where it is and why, or why it waits, or why it ended. `roots`: its document and its parts."""
    ordered = _newest_first(roots)
    placed = next((event.data for event in ordered if isinstance(event.data, Placement) and not event.tombstone), None)
    waiting = next((event.data for event in ordered if isinstance(event.data, Waiting) and not event.tombstone), None)
    ran = next((event.data for event in ordered if isinstance(event.data, RunStatus) and not event.tombstone), None)
    evicted = next((event.data for event in ordered if isinstance(event.data, EvictionOutcome)), None)
    ended = next((event for event in ordered if isinstance(event.data, ObjectDeleted)), None)
    reasons: tuple[str, ...] = ()
    if ended is not None:
        summary = "has ended" + (f", deleted by {ended.actor}" if ended.actor else "")
        if isinstance(ended.data, ObjectDeleted) and ended.data.reason:
            summary += f": {ended.data.reason}"
    elif placed is not None and placed.phase is not PlacementPhase.GONE:
        word = "runs" if placed.phase is PlacementPhase.BOUND else "is ending"
        summary = f"{word} on {placed.node}" + (f": {placed.reason}" if placed.reason else "")
        if ran is not None:
            summary = f"{ran.phase.value} on {ran.node}" + (
                f": {ran.message or ran.reason}" if ran.message or ran.reason else ""
            )
    elif waiting is not None:
        summary = f"waits: {short_line(waiting)}"
        reasons = tuple(why_waiting(waiting))
    elif ran is not None:
        summary = f"{ran.phase.value} on {ran.node}"
    else:
        summary = "was stored and nothing has been decided about it yet"
    if evicted is not None:
        summary += f"; {'evicted' if evicted.allowed else 'eviction refused'}: {evicted.message}"
    return Explanation("pod", namespace, name, summary, links(ordered, walk), walk.cut, reasons)


def explain_node(name: str, roots: Sequence[Event], walk: CauseWalk) -> Explanation:
    """Explain a node: whether it is ready, what it offers to batch pods, and why."""
    ordered = _newest_first(roots)
    condition = next((event for event in ordered if isinstance(event.data, NodeCondition) and not event.tombstone), None)
    resources = next((event for event in ordered if isinstance(event.data, NodeResources)), None)
    parts = [sentence(event) for event in (condition, resources) if event is not None]
    return Explanation(
        "node", "", name, "; ".join(parts) or "nothing has been decided about it yet", links(ordered, walk), walk.cut
    )


def explain_reservation(name: str, roots: Sequence[Event], walk: CauseWalk) -> Explanation:
    """Explain a reservation: what it holds where, or why no node takes it, by reason; or how it ended."""
    ordered = _newest_first(roots)
    live = [event for event in ordered if not event.tombstone]
    share = next((event for event in live if isinstance(event.data, ReservationShare)), None)
    status = next((event for event in live if isinstance(event.data, ReservationStatus)), None)
    newest = share or status
    reasons: tuple[str, ...] = ()
    if share is not None and isinstance(share.data, ReservationShare):
        reasons = tuple(f"used by pod {owner.namespace}/{owner.name}" for owner in share.data.owners)
    elif status is not None and isinstance(status.data, ReservationStatus):
        waits = status.data
        if not waits.members:
            reasons = tuple(f"{reason.count or ''} {reason.detail or reason.code}".strip() for reason in waits.reasons)
        reasons += tuple(members_and_changes(waits.members, waits.members_not_tried, waits.wakes_on))
    summary = sentence(newest) if newest is not None else "nothing has been decided about it yet"
    return Explanation("reservation", "", name, summary, links(ordered, walk), walk.cut, reasons)


def explain_quota(
    namespace: str,
    quota: QuotaRuntime | None,
    name: str,
    reasons: Sequence[str],
    roots: Sequence[Event],
    walk: CauseWalk,
) -> Explanation:
    """Explain a quota: what it may use and why (`explain.quotas`)."""
    ordered = _newest_first(roots)
    summary = next((sentence(event) for event in ordered if event.data is quota), "nothing has been decided about it yet")
    return Explanation("quota", namespace, name, summary, links(ordered, walk), walk.cut, tuple(reasons))
