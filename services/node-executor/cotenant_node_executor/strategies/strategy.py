"""What a strategy is: one policy of a node, in one file, listed in `registry`.

In: the situation of a cycle and the memory that the strategy's last decision left. Out: a decision: desired values, orders, the
new memory. What follows from one pod's shape alone is given by `of_pod`, which is worked out once for all pods of a shape.
Everything is immutable; a strategy holds no state of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from msgspec import Struct

from cotenant.events.resources import NodeSLORendered
from cotenant_node_executor.strategies.pod_view import PodShape
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.targets.address import Attribute, Place
from cotenant_node_executor.targets.interface import Capabilities


class Policy(Struct, frozen=True):
    """What the node SLO asks for, on a kernel that can do so much."""

    capabilities: Capabilities
    slo: NodeSLORendered | None


class Desired(Struct, frozen=True, cache_hash=True):
    """One strategy desires one value for one attribute of a place."""

    attribute: Attribute
    value: str
    strategy: str
    why: str = ""


DesiredValues = Mapping[Place, tuple[Desired, ...]]
"""By place."""


class PodDesired(Struct, frozen=True):
    """Desired values of a pod of some shape: for its own group, and for each container's in order."""

    pod: tuple[Desired, ...] = ()
    containers: tuple[tuple[Desired, ...], ...] = ()
    """One entry for each container, or none at all."""


class Evict(Struct, frozen=True):
    """End a pod for good: its processes get SIGTERM, then SIGKILL; it is reported as failed, reason `Evicted`."""

    uid: str
    why: str
    grace_seconds: int = 30


class Reset(Struct, frozen=True):
    """Give an attribute its initial value back (`address.INITIAL_VALUES`), as long as the newest decision says so."""

    place: Place
    attribute: Attribute
    why: str


StrategyOrder = Evict | Reset


class Decision(Struct, frozen=True):
    """What a strategy decided. `memory` is an immutable struct of its own, handed to its next decision."""

    values: DesiredValues = {}
    orders: tuple[StrategyOrder, ...] = ()
    memory: Struct | None = None


class Input(Enum):
    """What makes a strategy decide again. A changed policy always does."""

    PODS = "pods"
    """A pod, a group or the identity sysctl changed."""
    TREE = "tree"
    """The best-effort tree or the CPUs that pods hold changed."""
    USAGE = "usage"
    """A sample differs from the last one, or a watched file does."""
    CYCLE = "cycle"
    """Every cycle; a node with such a strategy is never idle."""


class Cause(Enum):
    """What an event names as the cause of a changed value."""

    POLICY = "policy"
    USAGE = "usage"
    """The newest usage message, then the policy."""
    PLACEMENTS = "placements"
    """The placements of the pods concerned; where there are none the policy."""


def _no_inputs(_policy: Policy) -> frozenset[Input]:
    return frozenset()


def _no_figures(_memory: Struct | None) -> dict[str, int]:
    return {}


class Strategy(Struct, frozen=True):
    """One strategy. `sets`: the attributes that it may desire; any other is an error. `topic` and `cause`: of the events on
    EXECUTION that its changes lead to. `figures`: the numbers of those events, from the memory of the decision."""

    name: str
    topic: str
    sets: tuple[Attribute, ...]
    of_pod: Callable[[PodShape, Policy], PodDesired] | None = None
    decide: Callable[[Situation, Struct | None], Decision] | None = None
    inputs: Callable[[Policy], frozenset[Input]] = _no_inputs
    cause: Cause = Cause.POLICY
    figures: Callable[[Struct | None], dict[str, int]] = _no_figures
