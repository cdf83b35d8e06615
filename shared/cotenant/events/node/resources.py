"""Overcommitment of a node, written by batch-resource-calculator: every figure with its terms."""

from __future__ import annotations

from datetime import datetime

import msgspec

from cotenant.events.envelope import Part, Payload, empty_document
from cotenant.events.node.metrics import Usage
from cotenant.model.bounds import Amount, Count, Int32, Int64, SignedAmount


class Term(Part, frozen=True, kw_only=True):
    """One term of the formula: name, value, and the event that it came from (empty: configuration)."""

    name: str
    cpu_milli: SignedAmount = 0
    memory_bytes: SignedAmount = 0
    source: str = ""


class ZoneResources(Part, frozen=True, kw_only=True):
    """Batch resources of one NUMA zone, before the foreign share; batch-cpu in normalised units as the node's."""

    name: str
    batch_cpu_milli: Amount = 0
    batch_memory_bytes: Amount = 0


class NodeRisk(Part, frozen=True, kw_only=True):
    """A node under a risk budget: the budget, the node's history, and the margin in force until its hour ends.

    `group`: the node entry of the configuration whose nodes' hours are counted together, empty for the cluster's strategy.
    `broken_permille`: thousandths of node-hours that may break; the percentages bound the threshold, `start_percent` counts
    until a node of the group has `least_hours` hours.

    `hour`: the present hour since the epoch, -1 before the first; `worst`: the largest margin that a report of it needed;
    `counts`: past hours by the margin that they needed. Margins are in steps of `formulas.risk_budget`; zeros at the end of
    `counts` are left out.

    `margin_permille`: the margin in force, in thousandths of services' requests; -1: not enough hours yet; more than 1000:
    more than all of it. It was chosen when the hour began, from `node_hours` of the group, `above` of which had needed more.
    `percent`: the resulting reclaim threshold of the node.
    """

    group: str = ""
    broken_permille: Int32 = 0
    lowest_percent: Int32 = 0
    highest_percent: Int32 = 0
    start_percent: Int32 = 0
    least_hours: Int32 = 0
    hour: Int64 = -1
    worst: Count = 0
    counts: tuple[Count, ...] = ()
    margin_permille: Int32 = -1
    node_hours: Count = 0
    above: Count = 0
    percent: Int32 = 0


class NodeResources(Payload, frozen=True, kw_only=True):
    """Subject `node.<node>.resources`. `batch_cpu_milli` and `batch_memory_bytes`: the allocatable of batch pods.

    `withdrawn`: the node offers no batch and mid resources at all, which differs from 0 left: colocation
    is off, or the metric is too old (`degraded`). `reason` is a code, `message` is the text.
    `origin` is batch before `third_party`, the share of foreign schedulers such as YARN, was subtracted.
    `assumed` names pods that have no metric yet and count by their request; `dangling` those that have a metric and no
    placement. `strategy` is the colocation strategy (JSON) without the node's own annotation and labels: it is kept
    when a configuration is rejected. It has the defaults of all fields but `metric...`, for which metrics-ingest has its
    own configuration. `config` is the event that it came from.

    `cpu_normalization_ratio` is the factor of batch-cpu; `cpu_normalization` the annotation's text that the calculator
    decided, empty while it decides none. `amplification`: the factors of the node's allocatable, by resource; no
    figure of this event is. `devices`: sums over the node's Device object, by resource name; `device_labels`: labels of it that
    the Node gets. `yarn`: YARN's own report within `third_party`, None where YARN reports nothing. Mid terms are among `terms`
    under names that begin with `mid`.
    """
    TYPE = "cotenant.noderesources.v1"
    SUBJECT = "node.{node}.resources"

    node: str
    batch_cpu_milli: Amount = 0
    batch_memory_bytes: Amount = 0
    mid_cpu_milli: Amount = 0
    mid_memory_bytes: Amount = 0
    cpu_policy: str = "usage"
    memory_policy: str = "usage"
    terms: tuple[Term, ...] = ()
    degraded: bool = False
    reason: str = ""
    message: str = ""
    update_time: datetime | None = None
    third_party: Usage = Usage()
    withdrawn: bool = False
    origin: Usage = Usage()
    zones: tuple[ZoneResources, ...] = ()
    assumed: tuple[str, ...] = ()
    dangling: tuple[str, ...] = ()
    cpu_normalization_ratio: float = 1.0
    cluster_enable: bool = False
    strategy: msgspec.Raw = msgspec.field(default_factory=empty_document)
    config: str = ""
    cpu_normalization: str = ""
    amplification: dict[str, float] = {}
    devices: dict[str, Amount] = {}
    device_labels: dict[str, str] = {}
    yarn: Usage | None = None
    risk: NodeRisk | None = None
    """Where the strategy has a risk budget."""
    failed: tuple[str, ...] = ()
    """Calculations without usable input, by the names of Koordinator's plugins: normalisation, amplification, devices."""


class CpuIdentity(Part, frozen=True, kw_only=True):
    """CPU identity of one QoS class: -1 best-effort, 0 normal, 1 and 2 latency-sensitive. Effective only while enabled."""

    enable: bool = False
    group_identity: Int32 = 0


class NodeSLORendered(Payload, frozen=True, kw_only=True):
    """Subject `node.<node>.slo`: the NodeSLO's sections that the executor enforces. Percent values are 0..100."""
    TYPE = "cotenant.nodeslo.v1"
    SUBJECT = "node.{node}.slo"

    node: str
    enable: bool = False
    cpu_suppress_threshold_percent: Int32 = 65
    cpu_suppress_min_percent: Int32 = 0
    cpu_suppress_policy: str = "cpuset"
    reason: str = ""
    cpu_policy: str = "groupIdentity"
    """groupIdentity, or coreSched (then no identity is given)."""
    lsr_identity: CpuIdentity = CpuIdentity(group_identity=2)
    ls_identity: CpuIdentity = CpuIdentity(group_identity=2)
    be_identity: CpuIdentity = CpuIdentity(group_identity=-1)
    reserved_cpu_milli: Amount = 0
    """The node's reservation annotation, in milli-cores."""
    reserved_cpus: str = ""
    """CPUs that it keeps from pods, as a list in the kernel's format."""
    memory_collect_policy: str = "usageWithoutPageCache"
    """Which memory NodeMetrics are computed from: `metricMemoryCollectPolicy` of the node's colocation strategy."""
    reservation_annotation: str = ""
    system_qos_annotation: str = ""
    numa_reservation: bool = False
    """The node's annotations `node.koordinator.sh/reservation` and `system-qos-resource`, and its label
    `enable-numa-reservation`: its NodeResourceTopology shows them."""
    spec: msgspec.Raw = msgspec.field(default_factory=empty_document)
    """The whole NodeSLO spec as JSON, sections and spelling as Koordinator's."""
    config: str = ""
    """The ConfigMap's event that it was rendered from; empty: built-in defaults."""
