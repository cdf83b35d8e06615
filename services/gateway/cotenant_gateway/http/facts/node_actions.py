"""The last actions of a node's executor, as core/v1 Events of the node, so that `kubectl describe node` shows them.

In: a node's name. Out: an Event for each topic of EXECUTION with an action, with the text of its last message. They
are read when a client requests the events of one node, and are never part of a watch: EXECUTION has an order of its own.

Bound: one message a topic.
"""

from __future__ import annotations

import asyncio

from cotenant.api.snapshots import Address
from cotenant.events.envelope import Event
from cotenant.events.node.execution import Execution
from cotenant.kinds.events import EVENTS
from cotenant.log.contract import LogUnavailableError
from cotenant.log.nats.log import NatsLog
from cotenant_gateway.read_model.narration import Narrated, narrated_once
from cotenant_gateway.read_model.narrators import Narration
from cotenant_gateway.read_model.selectors import Selector

TOPICS = (
    "suppress", "core-sched", "identity", "protection", "cpuset", "cpu-burst", "cpu-normalization", "cpu-evict", "batch-values",
    "memory-qos", "page-cache", "oom-scores", "memory-relief", "memory-evict", "blkio", "resctrl", "system-config", "network",
    "restored", "refusals", "kubelet",
)  # fmt: skip
"""Topics of strategies; a pod's own history is in the pod's events."""
_WARNINGS = frozenset(("cpu-evict", "memory-evict", "refusals"))


class NodeActions:
    """Reads them from EXECUTION."""

    def __init__(self, log: NatsLog) -> None:
        self._log = log

    async def of(self, node: str, version: int) -> list[Narrated]:
        """The node's Events, oldest first, as of a version of the list; none if EXECUTION cannot be read now."""
        try:
            found = await asyncio.gather(*(self._log.last_execution(node, topic) for topic in TOPICS))
        except LogUnavailableError:
            return []
        events = [event for event in found if event is not None and isinstance(event.data, Execution)]
        return [action(event, version) for event in sorted(events, key=lambda event: event.sequence)]


def action(event: Event, version: int) -> Narrated:
    """One action as an Event object."""
    execution = event.data
    assert isinstance(execution, Execution)
    reason = "".join(word.capitalize() for word in execution.topic.split("-"))
    normal = execution.topic not in _WARNINGS
    narration = Narration("Node", "", execution.node, "", normal, reason, execution.summary, "node-executor")
    return narrated_once(Address(EVENTS, "default", f"{execution.node}.node.{execution.topic}"), narration, version, event.time)


def node_of(fields: Selector) -> str:
    """The one node whose events a field selector selects; "" for anything else."""
    asked = {each.key: each.values for each in fields.requirements if each.operator == "In" and len(each.values) == 1}
    if asked.get("involvedObject.kind") != ["Node"]:
        return ""
    return next(iter(asked.get("involvedObject.name", ())), "")
