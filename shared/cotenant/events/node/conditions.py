"""Readiness of nodes, written by descheduler-arbiter."""

from __future__ import annotations

from datetime import datetime

from cotenant.events.envelope import Part, Payload
from cotenant.model.bounds import Count

TAINT_NOT_READY = "node.kubernetes.io/not-ready"
"""The executor reports that it cannot run pods."""

TAINT_UNREACHABLE = "node.kubernetes.io/unreachable"
"""The node is silent."""


TAINT_MEMORY_PRESSURE = "node.kubernetes.io/memory-pressure"
"""The executor reports memory pressure: no further best-effort pods. All others tolerate it, as in Kubernetes."""

NO_EXECUTE = "NoExecute"
"""The effect of a taint that evicts pods that do not tolerate it."""


class ObservedTaint(Part, frozen=True, kw_only=True):
    """A NoExecute taint of the node's object or executor. `since`: when the arbiter first folded it; tolerationSeconds count
    from then.
    """

    key: str
    value: str = ""
    since: datetime


class ZoneDisruption(Part, frozen=True, kw_only=True):
    """The disruption of a node's zone: `lost` of its `nodes` are not ready, as counted at `since`.

    `state`: PartialDisruption, or FullDisruption when no node of the zone is ready. `nodes_per_second`: how many of its nodes
    get the NoExecute taint; 0: none, so that no further node loses its pods.
    """

    state: str
    lost: Count = 0
    nodes: Count = 0
    nodes_per_second: float = 0.0
    since: datetime


class NodeCondition(Payload, frozen=True, kw_only=True):
    """Subject `node.<node>.condition`: whether the node is ready, since when, and the taints that follow from it.

    `taints` are (key, value, effect), to be added to those of the Node's object. A node that is not ready has the NoSchedule
    taint at once, and the NoExecute one when the eviction rate of its zone allows it; pods that do not tolerate that one are
    evicted after their tolerationSeconds, 300 s by default. `status` is Kubernetes' text of the Ready condition:
    True, False or Unknown. A node without this event is ready.
    """

    TYPE = "cotenant.node.condition.v1"
    SUBJECT = "node.{node}.condition"

    node: str
    status: str = "True"
    since: datetime | None = None
    reason: str = ""
    message: str = ""
    taints: tuple[tuple[str, str, str], ...] = ()

    tainted_at: datetime | None = None
    """When the node got the NoExecute taint last: tolerationSeconds count from then while it has it. Kept when the taint is
    removed, and in the tombstone, as the zone's rate counts from it."""
    zone: str = ""
    """`<region>/<zone>` of the node at `tainted_at`; empty where it had neither label."""
    no_execute: tuple[ObservedTaint, ...] = ()
    """NoExecute taints that users or the executor set on the node."""
    disruption: ZoneDisruption | None = None
    """That of the node's zone, while the node is not ready and the zone is disrupted."""

    @property
    def ready(self) -> bool:
        return self.status == "True"

    @property
    def evicts(self) -> bool:
        """Whether the node has the NoExecute taint of a lost node."""
        return not self.ready and any(effect == NO_EXECUTE for _, _, effect in self.taints)


def disruption_text(disruption: ZoneDisruption) -> str:
    """Return the disruption of a zone in words."""
    rate = disruption.nodes_per_second
    pace = f"at most {rate:g} of them a second lose their pods" if rate > 0 else "no further node loses its pods"
    return f"{disruption.lost} of the {disruption.nodes} nodes of its zone are not ready: {pace}"
