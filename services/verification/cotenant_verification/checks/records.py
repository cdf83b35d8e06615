"""The parts of single events that checks read: the head of an object, a commit with its events, the revisions of a pod."""

from __future__ import annotations

from datetime import datetime

import msgspec

from cotenant.events.commits import Commit
from cotenant.events.envelope import Event
from cotenant_verification.harness.gateways import REVISION


class _Owner(msgspec.Struct, frozen=True):
    uid: str = ""
    controller: bool = False


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    uid: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[_Owner, ...] = ()
    deletion_timestamp: str | None = None

    @property
    def controllers(self) -> list[str]:
        """uids of the workloads that the object belongs to."""
        return [owner.uid for owner in self.owner_references if owner.controller]


class ObjectHead(msgspec.Struct, frozen=True):
    """What the checks read of any object."""

    metadata: _Meta = _Meta()


class CommitSeen(msgspec.Struct, frozen=True):
    """A commit with everything that was stored with it."""

    service: str
    record: Event
    commit: Commit
    events: tuple[Event, ...]


class RankedEviction(msgspec.Struct, frozen=True):
    """An eviction by a node's executor, with what its order follows from. `at`: by the node's clock."""

    name: str
    rank: tuple[int, int]
    at: datetime


def revisions_of(annotations: dict[str, str]) -> dict[str, int]:
    """The revisions that a pod shows."""
    return {name: int(text) for name, text in annotations.items() if name.startswith(REVISION)}
