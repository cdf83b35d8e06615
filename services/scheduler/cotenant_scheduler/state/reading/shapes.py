"""Shapes: pods whose scheduling-relevant spec is the same share one.

In: everything that a shape is made of (`ShapeKey`). Out: `Shape`: requests, constraints on nodes, estimate of its load; and
`ParsedPod`, the individual data of a pod. Everything that filters and scores read is in the shape, so
results for one pod of a shape hold for all. `pod_reader` creates them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import msgspec
import numpy as np

from cotenant.api.objects.pod import NodeAffinity, Toleration
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, RESOURCE_PODS
from cotenant.model.tiers import PriorityClass
from cotenant_scheduler.state.columns import IntArray
from cotenant_scheduler.state.load.load_estimate import Vector
from cotenant_scheduler.state.reading.pod_needs import HostPort
from cotenant_scheduler.state.reading.pod_traits import PodTraits
from cotenant_scheduler.state.reading.relations import NO_RELATIONS, Relations


class ShapeKey(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a shape is made of, hashable."""

    requests: tuple[tuple[str, int], ...]
    nonzero_cpu: int
    nonzero_memory: int
    priority: int
    preempts: bool
    tier: PriorityClass
    daemon: bool
    estimate: Vector
    node_selector: tuple[tuple[str, str], ...]
    affinity: bytes
    tolerations: tuple[Toleration, ...]
    host_ports: tuple[HostPort, ...]
    images: tuple[str, ...]
    asks: tuple[tuple[str, Hashable], ...]
    relations: Relations
    selected_by: tuple[int, ...]


class Shape:
    """The input of filters and scores. Compared by identity: equal shapes are one object."""

    __slots__ = (
        "__weakref__",
        "affinity",
        "asks",
        "batch",
        "daemon",
        "estimate",
        "estimate_column",
        "held",
        "host_ports",
        "images",
        "key",
        "needs",
        "node_selector",
        "nonzero_column",
        "nonzero_cpu",
        "nonzero_memory",
        "preempts",
        "priority",
        "prod",
        "relational",
        "relations",
        "request_column",
        "requests",
        "selected_by",
        "tier",
        "tolerations",
        "wanted",
    )

    def __init__(self, key: ShapeKey) -> None:
        self.key = key
        self.requests = dict(key.requests)
        self.needs = ((RESOURCE_PODS, 1), *((name, amount) for name, amount in key.requests if amount))
        """What must fit, in the order in which a shortage is reported: pods, then by name."""
        self.nonzero_cpu = key.nonzero_cpu
        self.nonzero_memory = key.nonzero_memory
        self.priority = key.priority
        self.preempts = key.preempts
        """Pods of a lower priority may be preempted for it."""
        self.tier = key.tier
        self.prod = key.tier is PriorityClass.PROD
        self.batch = any(self.requests.get(name) for name in (BATCH_CPU, BATCH_MEMORY))
        """Requests batch resources."""
        self.daemon = key.daemon
        """Owned by a DaemonSet: not refused for load."""
        self.estimate: Vector = key.estimate
        self.node_selector = key.node_selector
        self.affinity = key.affinity
        self.tolerations = key.tolerations
        self.host_ports = key.host_ports
        self.images = key.images
        self.asks = dict(key.asks)
        """Plugins' readings of the pod, by plugin."""
        self.relations = key.relations
        self.selected_by = key.selected_by
        """Numbers of the selectors of other pods' (and its own) terms that select the pod."""
        self.held = key.relations.held
        """Numbers of the selectors of its terms."""
        self.wanted = key.relations.wanted
        """Numbers of the selectors of pods whose presence can make a node feasible."""
        self.relational = bool(key.selected_by) or key.relations != NO_RELATIONS
        """Whether the positions of other pods matter to it, or its own to them."""
        self.request_column = _column((self.requests.get(CPU, 0), self.requests.get(MEMORY, 0)))
        self.nonzero_column = _column((self.nonzero_cpu, self.nonzero_memory))
        self.estimate_column = _column(self.estimate)

    def __deepcopy__(self, _memo: dict[int, object]) -> Shape:
        """A shape never changes: copies refer to the same object."""
        return self


def _column(amounts: Iterable[int]) -> IntArray:
    return np.array(tuple(amounts), dtype=np.int64)[:, np.newaxis]


class ParsedPod(msgspec.Struct, eq=False, gc=False):
    """What the scheduler reads of one pod object."""

    namespace: str
    name: str
    uid: str
    created: str
    deleting: bool
    grace_seconds: int
    traits: PodTraits
    scheduler_name: str
    node_name: str
    priority: int
    from_class: bool
    """Whether a class gave the priority or the preemption policy."""
    gated: tuple[str, ...]
    shape: Shape | None
    error: str
    """Why there is no shape; empty if there is one."""
    ended: bool = False
    """Its own status reports that it has ended permanently."""
    ends: bool = False
    """It ends by itself: its restartPolicy is not Always, or it has a deadline."""
    nominated: str = ""
    """The node that its own status says it is nominated to: another scheduler wrote that."""

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its metadata."""
        return self.traits.labels

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations of its metadata."""
        return self.traits.annotations


def decoded_affinity(shape: Shape) -> NodeAffinity | None:
    """Return the shape's node affinity."""
    return msgspec.json.decode(shape.affinity, type=NodeAffinity) if shape.affinity else None
