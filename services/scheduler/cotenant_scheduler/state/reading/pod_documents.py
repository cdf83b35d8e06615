"""The parts of a pod's document that the scheduler reads, and no others, as it decodes every pod.

Parts that are only compared, or read once a shape, stay bytes.
"""

from __future__ import annotations

import msgspec

from cotenant.api.objects.metadata import View
from cotenant.model.bounds import Int32, Int64, saturated_seconds

NONE = msgspec.Raw(b"")


class Gate(View, frozen=True, kw_only=True):
    name: str = ""


class Owner(View, frozen=True, kw_only=True):
    kind: str = ""


class ContainerView(View, frozen=True, kw_only=True):
    image: str = ""
    resources: msgspec.Raw = NONE
    ports: msgspec.Raw = NONE
    restart_policy: str | None = None


class PodMetadataView(View, frozen=True, kw_only=True):
    """The parts that pods of one template do not share."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: Int64 | None = None

    def grace_seconds(self, of_spec: int | None) -> int:
        """The pod's grace period; `of_spec` is the one in its spec."""
        grace = self.deletion_grace_period_seconds
        if grace is None:
            grace = of_spec
        return 30 if grace is None else saturated_seconds(grace)


class Metadata(PodMetadataView, frozen=True, kw_only=True):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[Owner] = []


class Spec(View, frozen=True, kw_only=True):
    containers: list[ContainerView] = []
    init_containers: list[ContainerView] = []
    node_name: str = ""
    node_selector: msgspec.Raw = NONE
    affinity: msgspec.Raw = NONE
    tolerations: msgspec.Raw = NONE
    overhead: msgspec.Raw = NONE
    host_network: bool = False
    topology_spread_constraints: msgspec.Raw = NONE
    volumes: msgspec.Raw = NONE
    scheduler_name: str = "default-scheduler"
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    scheduling_gates: list[Gate] = []
    termination_grace_period_seconds: Int64 | None = None
    restart_policy: str = "Always"
    active_deadline_seconds: Int64 | None = None

    @property
    def ends(self) -> bool:
        """Whether the pod ends by itself: its restartPolicy is not Always, or it has a deadline."""
        return self.restart_policy != "Always" or self.active_deadline_seconds is not None

    @property
    def from_class(self) -> bool:
        """Whether priority or preemption policy come from a class."""
        return self.priority is None or (bool(self.priority_class_name) and not self.preemption_policy)


class PodStatusView(View, frozen=True, kw_only=True):
    qos_class: str = ""
    phase: str = ""
    nominated_node_name: str = ""


class PodDocument(View, frozen=True, kw_only=True):
    """The few parts that are read of every pod; the full view is decoded once a shape."""

    metadata: Metadata = Metadata()
    spec: Spec = Spec()
    status: PodStatusView = PodStatusView()


class HeadMetadata(PodMetadataView, frozen=True, kw_only=True):
    labels: msgspec.Raw = NONE
    annotations: msgspec.Raw = NONE
    owner_references: msgspec.Raw = NONE


class PodHead(View, frozen=True, kw_only=True):
    """A pod whose spec and labels need not be decoded, as their bytes are known."""

    metadata: HeadMetadata = HeadMetadata()
    spec: msgspec.Raw = NONE
    status: msgspec.Raw = NONE
