"""The strategy protocol: one node policy per file, listed in `registry`.

In: the situation of a cycle and the memory of the strategy's last decision. Out: a decision: desired values, orders, the new
memory. `of_pod` gives the values that depend on a pod's shape alone; it is computed once for all pods of a shape. All structs
are immutable, and a strategy has no state of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from msgspec import Struct

from cotenant.events.node.resources import NodeSLORendered
from cotenant.model.values import Value
from cotenant_node_executor.strategies.pod_view import PodShape
from cotenant_node_executor.strategies.sections import SectionShape
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.targets.address import Attribute, Place
from cotenant_node_executor.targets.interface import NodeCapabilities


class NodePolicy(Struct, frozen=True):
    """The node SLO and the kernel's capabilities."""

    capabilities: NodeCapabilities
    slo: NodeSLORendered | None


class Desired(Struct, frozen=True, cache_hash=True):
    """One strategy's desired value for one attribute of a place."""

    attribute: Attribute
    value: str
    strategy: str
    why: str = ""


DesiredValues = Mapping[Place, tuple[Desired, ...]]
"""By place."""


class PodDesired(Struct, frozen=True):
    """Desired values for all pods of a shape: for the pod's group, and for its containers' groups in order."""

    pod: tuple[Desired, ...] = ()
    containers: tuple[tuple[Desired, ...], ...] = ()
    """One entry per container, or empty."""


class Evict(Struct, frozen=True):
    """Evict a pod: its processes get SIGTERM, then SIGKILL; it is reported as failed, reason `Evicted`."""

    uid: str
    why: str
    grace_seconds: int = 30
    by_offer: bool = False
    """What the node offers decided it."""


class Reset(Struct, frozen=True):
    """Restore an attribute's initial value (`address.INITIAL_VALUES`) while the newest decision contains this order."""

    place: Place
    attribute: Attribute
    why: str


class Reclaim(Struct, frozen=True):
    """Reclaim memory of a group that it does not need: page cache first. Once, in the background; the
    freed amount is published."""

    group: str
    memory_bytes: int
    why: str


StrategyOrder = Evict | Reset | Reclaim


class StrategyDecision(Struct, frozen=True):
    """A strategy's decision. `memory` is an immutable struct that is passed to its next decision."""

    values: DesiredValues = {}
    orders: tuple[StrategyOrder, ...] = ()
    memory: Struct | None = None
    keep: bool = False
    """The values of the last decision stay, whatever `values` is: inputs are missing."""
    problems: tuple[str, ...] = ()
    """Requirements of the policy or an annotation that cannot be met: what, where, why. Published when they change."""


class Problems(Value, frozen=True):
    """A strategy's problem: what cannot be done, where, why. `strategy` is "" for values of the NodeSLO that cannot be read."""

    strategy: str
    texts: tuple[str, ...]


class Input(Enum):
    """Inputs whose change makes a strategy decide again. A changed policy always does."""

    PODS = "pods"
    """A pod, a group or the identity sysctl changed."""
    TREE = "tree"
    """The best-effort tree or the pods' exclusive CPUs changed."""
    USAGE = "usage"
    """The sample or a watched file differs from the last one."""
    SPIKE = "spike"
    """Services suddenly use more CPU than in the last sample."""
    RESOURCES = "resources"
    """The overcommitted resources of the node changed."""
    CYCLE = "cycle"
    """Every cycle; a node with such a strategy is never idle."""


class Cause(Enum):
    """The cause that an event names for a changed value."""

    POLICY = "policy"
    USAGE = "usage"
    """The newest usage message, then the policy."""
    PLACEMENTS = "placements"
    """The placements of the affected pods; the policy where there are none."""


def no_decision(_situation: Situation, _memory: Struct | None) -> StrategyDecision:
    """The decision of a strategy whose gate is off."""
    return StrategyDecision()


def on_pods(_policy: NodePolicy) -> frozenset[Input]:
    """The inputs of a strategy that follows from the pods, and the policy, alone."""
    return frozenset((Input.PODS,))


def _no_inputs(_policy: NodePolicy) -> frozenset[Input]:
    return frozenset()


def _no_figures(_memory: Struct | None) -> dict[str, int]:
    return {}


class Strategy(Struct, frozen=True):
    """One strategy. `sets`: the attributes that it may desire; any other is an error. `topic`, `cause`: of the events on
    EXECUTION about its changes. `figures`: the numbers in those events, from the memory of the decision. The evictor begins no
    evictions of it within `cool_down_seconds` of its last ones, and at most `evictions_a_minute`."""

    name: str
    topic: str
    sets: tuple[Attribute, ...]
    of_pod: Callable[[PodShape, NodePolicy], PodDesired] | None = None
    decide: Callable[[Situation, Struct | None], StrategyDecision] | None = None
    inputs: Callable[[NodePolicy], frozenset[Input]] = _no_inputs
    cause: Cause = Cause.POLICY
    figures: Callable[[Struct | None], dict[str, int]] = _no_figures
    pressure: Callable[[Struct | None], str] | None = None
    """From the memory of its last decision: why the node shall get no further best-effort pods; empty for no reason."""
    cool_down_seconds: float = 0.0
    cools_down_first: bool = False
    """The cool-down also passes between the executor's start and its first eviction."""
    evictions_a_minute: int = 30
    section: str = ""
    """The section of the NodeSLO that it follows: with `dryRun` there, its values and evictions are reported and not done."""
    part: str = ""
    """The part of the QoS classes that it follows, such as blkioQOS: with `dryRun` there, in any class, likewise."""
    reads: tuple[SectionShape, ...] = ()
    """The parts of the NodeSLO that it reads. A value of another type is replaced before it decides (`strategies.node_slo`)."""


RESTORE = Strategy(name="restore", topic="restored", sets=())
"""The source of initial values of targets without a desired value; every strategy takes precedence."""
