"""Spread constraints of pods that state none: kube-scheduler's defaults of PodTopologySpread.

In: the configuration; a pod without constraints of its own. Out: the constraints that it gets. `System`: two soft ones, over
hosts (maxSkew 3) and over zones (maxSkew 5); `List`: the configured ones, none by default. They are for pods of a ReplicaSet,
ReplicationController or StatefulSet, and count the pods of the same one. Source: kube-scheduler's PodTopologySpreadArgs.

kube-scheduler takes the selectors from these objects and from Services, which are not on the log. So the selector is the
namespace and the labels of the pod, as the template of its controller gives them to all of its pods, but for those that differ
between the pods of a StatefulSet. A pod without labels or without such a controller gets no constraint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated

import msgspec

from cotenant.api.objects.metadata import LabelSelector
from cotenant.api.objects.pod import TopologySpreadConstraint
from cotenant.model.names import LABEL_HOSTNAME, LABEL_ZONE

CONTROLLERS = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet"})
OF_ONE_POD = frozenset({"statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index", "controller-revision-hash"})
MAX_CONSTRAINTS = 16


class Defaulting(StrEnum):
    SYSTEM = "System"
    LIST = "List"


class Unsatisfiable(StrEnum):
    DO_NOT_SCHEDULE = "DoNotSchedule"
    SCHEDULE_ANYWAY = "ScheduleAnyway"


class DefaultConstraint(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A constraint without a selector: that follows from the pod."""

    max_skew: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    topology_key: Annotated[str, msgspec.Meta(min_length=1, max_length=317)]
    when_unsatisfiable: Unsatisfiable


class PodTopologySpreadArgs(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Constraints of pods that state none. Raises ValueError for a list beside `System`, or two constraints of one key and
    effect."""

    defaulting_type: Defaulting = Defaulting.LIST
    default_constraints: Annotated[tuple[DefaultConstraint, ...], msgspec.Meta(max_length=MAX_CONSTRAINTS)] = ()

    def __post_init__(self) -> None:
        if self.defaulting_type is Defaulting.SYSTEM and self.default_constraints:
            raise ValueError("defaultConstraints must be empty when defaultingType is System")
        seen = [(one.topology_key, one.when_unsatisfiable) for one in self.default_constraints]
        if len(set(seen)) < len(seen):
            raise ValueError("defaultConstraints has two constraints of the same topologyKey and whenUnsatisfiable")

    @property
    def constraints(self) -> tuple[DefaultConstraint, ...]:
        """The constraints in force."""
        return SYSTEM if self.defaulting_type is Defaulting.SYSTEM else self.default_constraints


SYSTEM = (
    DefaultConstraint(3, LABEL_HOSTNAME, Unsatisfiable.SCHEDULE_ANYWAY),
    DefaultConstraint(5, LABEL_ZONE, Unsatisfiable.SCHEDULE_ANYWAY),
)


def controlled(kinds: Iterable[str]) -> bool:
    """Return whether the kinds of a pod's owners are those of pods that get constraints."""
    return not CONTROLLERS.isdisjoint(kinds)


def constraints_of(args: PodTopologySpreadArgs, labels: Mapping[str, str]) -> list[TopologySpreadConstraint]:
    """Return the constraints of a controlled pod that states none."""
    shared = {key: value for key, value in labels.items() if key not in OF_ONE_POD}
    if not shared:
        return []
    return [
        TopologySpreadConstraint(
            max_skew=one.max_skew,
            topology_key=one.topology_key,
            when_unsatisfiable=one.when_unsatisfiable.value,
            label_selector=LabelSelector(match_labels=shared),
        )
        for one in args.constraints
    ]
