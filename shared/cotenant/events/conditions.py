"""Readiness of nodes, written by descheduler-arbiter."""

from __future__ import annotations

from datetime import datetime

from cotenant.events.envelope import Payload

TAINT_NOT_READY = "node.kubernetes.io/not-ready"
"""The executor answers and says that it cannot run pods."""

TAINT_UNREACHABLE = "node.kubernetes.io/unreachable"
"""Nothing is heard from the node."""


class NodeCondition(Payload, frozen=True, kw_only=True):
    """Subject `node.<node>.condition`: whether the node is ready, since when, and the taints that follow from it.

    `taints` are (key, value, effect), to be added to those of the Node's object; pods that do not tolerate the NoExecute
    one are evicted after their tolerationSeconds, 300 s where they do not say. `status` is Kubernetes' text of the Ready
    condition: True, False or Unknown. A node without this event is ready.
    """

    TYPE = "cotenant.node.condition.v1"
    SUBJECT = "node.{node}.condition"

    node: str
    status: str = "True"
    since: datetime | None = None
    reason: str = ""
    message: str = ""
    taints: tuple[tuple[str, str, str], ...] = ()

    @property
    def ready(self) -> bool:
        return self.status == "True"
