"""Overcommitment of a node, written by batch-resource-calculator: every figure with the terms that it was made from."""

from __future__ import annotations

from datetime import datetime

from cotenant.events.envelope import Part, Payload
from cotenant.events.metrics import Usage


class Term(Part, frozen=True, kw_only=True):
    """One term of the formula: name, value, and the event that it came from (empty: configuration)."""

    name: str
    cpu_milli: int = 0
    memory_bytes: int = 0
    source: str = ""


class NodeResources(Payload, frozen=True, kw_only=True):
    """Subject `node.<node>.resources`. `batch_cpu_milli` and `batch_memory_bytes` are what batch pods may request in sum.

    `degraded` says that the metric is stale and the stated rule for that applied; `message` says everything in words.
    """
    TYPE = "cotenant.noderesources.v1"

    node: str
    batch_cpu_milli: int = 0
    batch_memory_bytes: int = 0
    mid_cpu_milli: int = 0
    mid_memory_bytes: int = 0
    cpu_policy: str = "usage"
    memory_policy: str = "usage"
    terms: tuple[Term, ...] = ()
    degraded: bool = False
    reason: str = ""
    message: str = ""
    update_time: datetime | None = None
    third_party: Usage = Usage()


class CpuIdentity(Part, frozen=True, kw_only=True):
    """CPU identity of one QoS class: -1 gives way, 0 normal, 1 and 2 latency-sensitive. Counts only while enabled."""

    enable: bool = False
    group_identity: int = 0


class NodeSLORendered(Payload, frozen=True, kw_only=True):
    """Subject `node.<node>.slo`: the NodeSLO's sections that the executor enforces. Percent values are 0..100."""
    TYPE = "cotenant.nodeslo.v1"

    node: str
    enable: bool = False
    cpu_suppress_threshold_percent: int = 65
    cpu_suppress_min_percent: int = 0
    cpu_suppress_policy: str = "cpuset"
    reason: str = ""
    cpu_policy: str = "groupIdentity"
    """groupIdentity, or coreSched (then no identity is given)."""
    lsr_identity: CpuIdentity = CpuIdentity(group_identity=2)
    ls_identity: CpuIdentity = CpuIdentity(group_identity=2)
    be_identity: CpuIdentity = CpuIdentity(group_identity=-1)
    reserved_cpu_milli: int = 0
    """The node's reservation annotation, in milli-cores."""
    reserved_cpus: str = ""
    """CPUs that it keeps from pods, as a list in the kernel's format."""
