"""Placements and waiting reasons, written by the scheduler."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from cotenant.events.envelope import Part, Payload


class PlacementPhase(StrEnum):
    """bound: shall run; terminating: shall end; gone: has ended (a tombstone)."""

    BOUND = "bound"
    TERMINATING = "terminating"
    GONE = "gone"


class Figure(Part, frozen=True, kw_only=True):
    """A named integer that the decision rests on, for example `score.load-aware` 83 or `node.cpu.usage-percent` 41."""

    name: str
    value: int


class Placement(Payload, frozen=True, kw_only=True):
    """Subject `node.<node>.placement.<namespace>.<pod>`: the pod as this node shall have it.

    `pod` is the manifest (null once gone); `requests` what it counts for (cpu in milli-cores, others in units).
    """
    TYPE = "cotenant.placement.v1"

    node: str
    namespace: str
    name: str
    uid: str
    phase: PlacementPhase = PlacementPhase.BOUND
    pod: msgspec.Raw = msgspec.Raw(b"null")
    requests: dict[str, int] = {}
    quota: str = ""
    quota_tree: str = ""
    bound_at: datetime | None = None
    grace_period_seconds: int = 30
    reason: str = ""
    figures: tuple[Figure, ...] = ()


class WaitingReason(Part, frozen=True, kw_only=True):
    """Nodes refused for one reason. `detail` carries the figures, for example "short by 1500m"."""

    code: str
    count: int
    resource: str = ""
    detail: str = ""


class Waiting(Payload, frozen=True, kw_only=True):
    """Subject `waiting.<namespace>.<pod>`: why the pod is not placed, and what would change that."""
    TYPE = "cotenant.waiting.v1"

    namespace: str
    name: str
    uid: str
    nodes: int = 0
    reasons: tuple[WaitingReason, ...] = ()
    wakes_on: tuple[str, ...] = ()
    message: str = ""
