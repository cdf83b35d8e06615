"""Resources of containers while a pod is resized in place: in its placement and in its node's report."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from cotenant.events.envelope import Part
from cotenant.model.bounds import Count


class ContainerResources(Part, frozen=True, kw_only=True):
    """The resources of one container that a resize can change, as quantities."""

    name: str
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class PlacementResize(Part, frozen=True, kw_only=True):
    """A resize that the node has not finished. `sequence`: the object's message that asked for it; `admitted`: what the node
    had admitted before, as far as the scheduler knew; `counted`: what `requests` of the placement is the sum of: the larger of
    what is asked for and what the node may have admitted, or what is admitted if the node has refused."""

    sequence: Count
    admitted: tuple[ContainerResources, ...] = ()
    counted: tuple[ContainerResources, ...] = ()


class ResizeState(StrEnum):
    """deferred: the node has no room at present; infeasible: it never will have; in-progress: admitted, not all of it in
    force; done: in force."""

    DEFERRED = "deferred"
    INFEASIBLE = "infeasible"
    IN_PROGRESS = "in-progress"
    DONE = "done"


class ResizeStatus(Part, frozen=True, kw_only=True):
    """What became of the last resize that the node's executor looked at. `sequence` is that of `PlacementResize`; `admitted`
    what the containers have; `applied` what is in force, empty if it is the same; `since` when it got into this state;
    `restarts` the containers that are restarted for it, with the attempt that is ended."""

    sequence: Count
    state: ResizeState
    since: datetime | None = None
    message: str = ""
    admitted: tuple[ContainerResources, ...] = ()
    applied: tuple[ContainerResources, ...] = ()
    restarts: dict[str, Count] = {}
