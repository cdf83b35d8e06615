"""Promise 21: no commit places half a gang.

Read from the pods' manifests alone, by code that shares nothing with the scheduler's: chaos runs state gangs by annotations,
with the match policy once-satisfied.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from cotenant.events.placements import Placement
from cotenant.model.subjects import placement_subject
from cotenant_verification.checks.invariants import Wrong
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.records import CommitSeen
from cotenant_verification.promises.placements import new_placements

PREFIX = "gang.scheduling.koordinator.sh/"


class _Metadata(msgspec.Struct, frozen=True):
    namespace: str = ""
    annotations: dict[str, str] = {}


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


_POD = msgspec.json.Decoder(_Pod)


def gang_of(pod: bytes | msgspec.Raw) -> tuple[str, int, frozenset[str]]:
    """Return the gang that a manifest states, its minimum, and the gangs of its group; an empty name: none."""
    metadata = _POD.decode(pod).metadata
    name = metadata.annotations.get(f"{PREFIX}name", "")
    if not name:
        return "", 0, frozenset()
    gang = f"{metadata.namespace}/{name}"
    groups: list[str] = msgspec.json.decode(metadata.annotations.get(f"{PREFIX}groups") or "[]")
    return gang, int(metadata.annotations[f"{PREFIX}min-available"]), frozenset(groups or [gang])


def no_half_gang_is_placed(view: LogView, seen: CommitSeen) -> Wrong:
    """A commit that places members of a gang places at least its minimum, and that of each gang of its group, unless a member
    of the group had a place before."""
    if seen.service != "scheduler":
        return
    placed: Counter[str] = Counter()
    least: dict[str, int] = {}
    groups: dict[frozenset[str], Placement] = {}
    fresh: set[str] = set()
    for event in new_placements(view, seen):
        assert isinstance(event.data, Placement)
        gang, needed, group = gang_of(event.data.pod)
        if gang:
            placed[gang] += 1
            least[gang] = needed
            groups[group] = event.data
            fresh.add(event.data.uid)
    if not groups:
        return
    satisfied = _with_a_place(view, fresh)
    for group, one in groups.items():
        short = sorted(gang for gang in group if placed[gang] < least.get(gang, 1))
        if short and not satisfied & group:
            found = ", ".join(f"{gang}: {placed[gang]} of {least.get(gang, 'more')}" for gang in short)
            subject = placement_subject(one.node, one.namespace, one.name)
            yield subject, f"{seen.record.ref} places a gang in part: {found}"


def _with_a_place(view: LogView, fresh: set[str]) -> set[str]:
    """The gangs of which a pod had a place before."""
    events = (event.data for placed in view.placed.values() for event in placed.values())
    return {gang_of(data.pod)[0] for data in events if isinstance(data, Placement) and data.uid not in fresh}
