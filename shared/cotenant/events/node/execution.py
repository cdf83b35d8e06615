"""Actions carried out on a node, on stream EXECUTION."""

from __future__ import annotations

from cotenant.events.envelope import Part, Payload
from cotenant.model.bounds import Int64


class Change(Part, frozen=True, kw_only=True):
    """One file (or process) that was changed. `error` is set where the kernel refused."""

    target: str
    old: str = ""
    new: str = ""
    error: str = ""


class Execution(Payload, frozen=True, kw_only=True):
    """Subject `execution.<node>.<topic>`: changes with old and new values, and why, with the figures."""
    TYPE = "cotenant.execution.v1"

    node: str
    topic: str
    summary: str
    changes: tuple[Change, ...] = ()
    figures: dict[str, Int64] = {}
    namespace: str = ""
    pod: str = ""
