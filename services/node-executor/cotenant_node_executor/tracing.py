"""The spans of one node: usage published, resources seen, pods from the placement's arrival to each report, values written.

In: folded, stored and published events with their times. Out: spans by `cotenant.runtime.tracing`, only if spans are sent.
A pod's reports and the values of its groups continue the trace of its placement, a suppression that of the usage before it.
A cycle's events have the cycle's times.

Bound: the arrival of MAX_SEEN placements without a report yet; beyond it the oldest is dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cotenant.events.envelope import Event
from cotenant.events.node.execution import Execution
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import RunStatus, reports_stop
from cotenant.events.placements import Placement

if TYPE_CHECKING:
    from cotenant.runtime.tracing import Tracing

MAX_SEEN = 500
CHANGES = "cgroup write"


class NodeTracing:
    """One node's spans. `parent_of` returns the traceparent of the first of an event's causes."""

    def __init__(self, tracing: Tracing, node: str, parent_of: Callable[[Sequence[str]], str]) -> None:
        self._tracing = tracing
        self._node = node
        self._parent_of = parent_of
        self._seen: dict[str, int] = {}
        """When a placement arrived, by its reference."""

    def root(self, event: Event) -> str:
        """Return the traceparent of an event without causes."""
        return self._tracing.root(event.id, event.data.TYPE)

    def folded(self, events: Sequence[Event]) -> None:
        """Take delivered events."""
        now_ns = time.time_ns()
        for event in events:
            if isinstance(event.data, Placement):
                self._seen[event.ref] = now_ns
                if len(self._seen) > MAX_SEEN:
                    del self._seen[next(iter(self._seen))]
            elif isinstance(event.data, NodeResources) and event.traceparent:
                own = self._tracing.begin(event.traceparent, "resources seen")
                attributes = {"cotenant.node": self._node, "cotenant.ref": event.ref}
                self._tracing.record("resources seen", own, event.traceparent, now_ns, now_ns, attributes)

    def stored(self, report: Event, began_ns: int) -> None:
        """Take a report that is on LOG; `began_ns`: when it was sent."""
        name = report.data.TYPE
        if isinstance(report.data, RunStatus):
            gone = report.tombstone and not reports_stop(report)
            name = "pod gone" if gone else f"pod {report.data.phase.value}"
        if report.causes:
            began_ns = self._seen.pop(report.causes[0], began_ns)
        self._send(report, name, began_ns, time.time_ns())

    def published(self, event: Event, began_ns: int, ended_ns: int) -> None:
        """Take events on USAGE or EXECUTION of a cycle with these times."""
        data = event.data
        if not isinstance(data, Execution):
            self._send(event, data.TYPE, began_ns, ended_ns)
            return
        name = CHANGES if data.changes and not any(change.error for change in data.changes) else data.topic
        self._send(event, name, began_ns, ended_ns, **{"cotenant.topic": data.topic, "cotenant.summary": data.summary})

    def _send(self, event: Event, name: str, began_ns: int, ended_ns: int, **more: str) -> None:
        parent = self._parent_of(event.causes)
        self._tracing.event(
            event, parent, began_ns, ended_ns, name=name, attributes={"cotenant.node": self._node, **more}
        )
