"""Usage messages and execution events on their way to the server.

In: what a cycle publishes on USAGE and EXECUTION. Out: the same on the log, in the order in which it was made. Usage is stored
by itself, as its reference is a cause of later events; execution events are gathered for GATHER_SECONDS and sent together:
they are not urgent. Values that follow from which pods there are change with each pod that comes or goes: of those gathered,
one event a topic has all changes.

Bounds: MAX_OUTBOX events and MAX_OUTBOX_BYTES wait, MAX_TOGETHER are sent at a time, each is tried PUBLISH_TRIES times; beyond
that the oldest are dropped and counted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.node.execution import Change, Execution
from cotenant.log.contract import EXECUTION, USAGE, Log
from cotenant.log.traces import about
from cotenant.model.trace_context import traceparent_of
from cotenant_node_executor.core.executions import DRY_RUN, MAX_CAUSES, MAX_CHANGES, OF_PODS
from cotenant_node_executor.core.node import ExecutorNode
from cotenant_node_executor.tracing import NodeTracing

logger = logging.getLogger(__name__)

MAX_OUTBOX = 1000
MAX_OUTBOX_BYTES = 8 << 20
"""As JSON."""
GATHER_SECONDS = 0.5
"""How long the first of several execution events waits for the others."""
MAX_TOGETHER = 100
PUBLISH_TRIES = 20
PUBLISH_PAUSE_SECONDS = 0.5
Posted = tuple[Event, int, int]
"""An event, and when its cycle began and ended (ns since the epoch)."""


class Outbox:
    """One node's events in progress. `node` returns the node, which a reload replaces."""

    def __init__(self, log: Log, cell: str, node: Callable[[], ExecutorNode], tracing: NodeTracing | None) -> None:
        self._log = log
        self._cell = cell
        self._node = node
        self._tracing = tracing
        self.dropped_of = {USAGE: 0, EXECUTION: 0}
        """Events that were given up, by stream."""
        self._events: deque[Posted] = deque()
        self._sizes: deque[int] = deque()
        """Bytes of each; 0 for one that nothing waited before."""
        self._bytes = 0
        self._sending = 0
        """The number of events being sent."""
        self._sending_since_ns: int | None = None
        """Creation time of the event that is being published."""
        self._wake = asyncio.Event()

    @property
    def dropped(self) -> int:
        """Events that were given up."""
        return sum(self.dropped_of.values())

    @property
    def waiting(self) -> int:
        """Events that wait for the server."""
        return len(self._events) + self._sending

    @property
    def waiting_since_ns(self) -> int | None:
        """When the oldest of them was made (ns of the epoch), None where none waits."""
        if self._sending_since_ns is not None:
            return self._sending_since_ns
        return self._events[0][2] if self._events else None

    def post(self, events: Sequence[Event], began_ns: int) -> None:
        """Add the events of a cycle that began then."""
        for event in events:
            size = len(msgspec.json.encode(event.data)) if self._events else 0
            while self._events and (len(self._events) >= MAX_OUTBOX or self._bytes + size > MAX_OUTBOX_BYTES):
                self.dropped_of[self._take()[0].stream] += 1
            self._events.append((event, began_ns, time.time_ns()))
            self._sizes.append(size)
            self._bytes += size
            self._wake.set()

    def _take(self) -> Posted:
        """Remove the oldest event."""
        self._bytes -= self._sizes.popleft()
        return self._events.popleft()

    async def send(self) -> None:
        """Send posted events until cancelled."""
        while True:
            while not self._events:
                self._wake.clear()
                await self._wake.wait()
            if self._events[0][0].stream != USAGE:
                await asyncio.sleep(GATHER_SECONDS)
            together = [self._take()]
            while (
                self._events
                and len(together) < MAX_TOGETHER
                and USAGE not in (together[0][0].stream, self._events[0][0].stream)
            ):
                together.append(self._take())
            together = _joined_by_topic(together)
            self._sending, self._sending_since_ns = len(together), min(ended for _, _, ended in together)
            await self._send_together(together)
            self._sending, self._sending_since_ns = 0, None

    async def _send_together(self, together: Sequence[Posted]) -> None:
        node = self._node()
        events = [self._traced(node.identified(node.refer(event), self._cell)) for event, _, _ in together]
        sequences = [await self._publish(events[0])] if len(events) == 1 else await asyncio.gather(*map(self._publish, events))
        node = self._node()
        for event, sequence, (_, began_ns, ended_ns) in zip(events, sequences, together, strict=True):
            if sequence is None:
                self.dropped_of[event.stream] += 1
                text = f"{event.subject} was not confirmed in {PUBLISH_TRIES} tries"
                logger.warning("node %s: %s", node.name, text, extra=about(event))
                continue
            stored = msgspec.structs.replace(event, sequence=sequence)
            if stored.stream == USAGE:
                node.usage_stored(stored.ref)
                node.note(stored)
            else:
                node.execution_stored(stored)
            if self._tracing is not None:
                self._tracing.published(stored, began_ns, ended_ns)

    def _traced(self, event: Event) -> Event:
        """Return the event, with a new trace if it continues none."""
        if event.traceparent or event.causes:
            return event
        trace = self._tracing.root(event) if self._tracing is not None else traceparent_of((), event.id)
        return msgspec.structs.replace(event, traceparent=trace)

    async def _publish(self, event: Event) -> int | None:
        """Publish until acknowledged, a bounded number of times; a server restart takes seconds."""
        for _ in range(PUBLISH_TRIES):
            sequence = await self._log.publish(event)
            if sequence is not None:
                return sequence
            await asyncio.sleep(PUBLISH_PAUSE_SECONDS)
        return None


def _joined_by_topic(together: Sequence[Posted]) -> list[Posted]:
    """Join the events about values that follow from which pods there are, by topic, in the place of the newest."""
    gathered: dict[str, list[Posted]] = {}
    groups: list[list[Posted]] = []
    for posted in together:
        event = posted[0]
        own = gathered.get(event.subject)
        if not _follows_from_pods(event):
            own = []
        elif own is None or sum(len(_changes(other)) for other, _, _ in own) + len(_changes(event)) > MAX_CHANGES:
            own = gathered[event.subject] = []
        own.append(posted)
        groups.append(own)
    return [_joined(own) for own, posted in zip(groups, together, strict=True) if posted is own[-1]]


def _follows_from_pods(event: Event) -> bool:
    """Whether an event is about such values, and nothing else."""
    data = event.data
    return isinstance(data, Execution) and data.topic in OF_PODS and not data.pod and not data.summary.startswith(DRY_RUN)


def _changes(event: Event) -> Sequence[Change]:
    return event.data.changes if isinstance(event.data, Execution) else ()


def _joined(own: Sequence[Posted]) -> Posted:
    """Make one of several events of a topic, the oldest first: all their changes, and the newest summary."""
    event, _, ended_ns = own[-1]
    if len(own) == 1:
        return own[0]
    changes = tuple([change for each, _, _ in own for change in _changes(each)])
    causes = tuple(dict.fromkeys([cause for each, _, _ in own for cause in each.causes]))[:MAX_CAUSES]
    assert isinstance(event.data, Execution)
    summary = f"{event.data.summary}; {len(changes) - len(event.data.changes)} more just before"
    data = msgspec.structs.replace(event.data, summary=summary, changes=changes)
    return msgspec.structs.replace(event, causes=causes, data=data), own[0][1], ended_ns
