"""Promise 21: no commit places half a gang.

Read from the pods' manifests and the PodGroups alone, by code that shares nothing with the scheduler's: a pod of a chaos run
either has the label of a PodGroup, which states everything, or annotations, which are the same on all pods of a gang. Gangs of
one group have one match policy.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter

import msgspec

from cotenant.domain.gangs import LABEL_POD_GROUP, MatchPolicy
from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement
from cotenant.model.subjects import object_subject, placement_subject
from cotenant_verification.checks.invariants import Wrong
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.records import CommitSeen
from cotenant_verification.promises.placements import new_placements

PREFIX = "gang.scheduling.koordinator.sh/"


class _Metadata(msgspec.Struct, frozen=True):
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _GroupSpec(msgspec.Struct, frozen=True, rename="camel"):
    min_member: int = 0


class _PodGroup(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _GroupSpec = _GroupSpec()


_POD = msgspec.json.Decoder(_Pod)
_POD_GROUP = msgspec.json.Decoder(_PodGroup)


class StatedGang(msgspec.Struct, frozen=True):
    """The gang of a pod as users state it. `least` None: it names a PodGroup that there is not."""

    name: str
    least: int | None
    group: frozenset[str]
    """The gangs that are placed together, itself among them."""
    policy: str = MatchPolicy.ONCE_SATISFIED

    def needed(self, had: int, *, begun: bool) -> int:
        """Return how many of its pods must be placed at once. `had`: pods that have a place; `begun`: one of its group has."""
        least = self.least or 0
        if self.policy == MatchPolicy.ONLY_WAITING:
            return least
        if self.policy == MatchPolicy.WAITING_AND_RUNNING:
            return max(least - had, 0)
        return 0 if begun else least


def in_gang(pod: bytes | msgspec.Raw) -> bool:
    """Return whether a manifest names a gang."""
    metadata = _POD.decode(pod).metadata
    return bool(_name(metadata))


def _name(metadata: _Metadata) -> str:
    name = metadata.labels.get(LABEL_POD_GROUP) or metadata.annotations.get(f"{PREFIX}name", "")
    return f"{metadata.namespace}/{name}" if name else ""


def gang_of(view: LogView, pod: bytes | msgspec.Raw, folded: int | None = None) -> StatedGang | None:
    """Return the gang of a manifest, as of a sequence (None: now); None for a pod of no gang."""
    metadata = _POD.decode(pod).metadata
    gang = _name(metadata)
    if not gang:
        return None
    if LABEL_POD_GROUP not in metadata.labels:
        return _stated(gang, int(metadata.annotations[f"{PREFIX}min-available"]), metadata.annotations)
    group = _pod_group(view, metadata.namespace, metadata.labels[LABEL_POD_GROUP], folded)
    if group is None:
        return StatedGang(gang, None, frozenset((gang,)))
    return _stated(gang, group.spec.min_member, group.metadata.annotations)


def _stated(gang: str, least: int, annotations: dict[str, str]) -> StatedGang:
    groups: list[str] = msgspec.json.decode(annotations.get(f"{PREFIX}groups") or "[]")
    policy = annotations.get(f"{PREFIX}match-policy", MatchPolicy.ONCE_SATISFIED)
    return StatedGang(gang, least, frozenset(groups or [gang]), policy)


def _pod_group(view: LogView, namespace: str, name: str, folded: int | None) -> _PodGroup | None:
    subject = object_subject("scheduling.sigs.k8s.io", "podgroups", namespace, name)
    event = view.last.get(subject)
    if folded is not None and (event is None or event.sequence > folded):
        event = _version_at(view, subject, folded)
    stored = event.data if event is not None else None
    return _POD_GROUP.decode(stored.object) if isinstance(stored, ObjectStored) else None


def _version_at(view: LogView, subject: str, folded: int) -> Event | None:
    """The last message of a subject up to a sequence, among those that the view keeps: its newest is younger, which is rare."""
    for index in range(bisect_right(view.log, folded, key=lambda event: event.sequence) - 1, -1, -1):
        if view.log[index].subject == subject:
            return view.log[index]
    return None


def no_half_gang_is_placed(view: LogView, seen: CommitSeen) -> Wrong:
    """A commit that places members of a gang places as many as its match policy asks for, of each gang of its group."""
    if seen.service != "scheduler":
        return
    placed: Counter[str] = Counter()
    stated: dict[str, StatedGang] = {}
    groups: dict[frozenset[str], Placement] = {}
    fresh: set[str] = set()
    for event in new_placements(view, seen):
        assert isinstance(event.data, Placement)
        gang = gang_of(view, event.data.pod, seen.commit.folded)
        if gang is None:
            continue
        if gang.least is None:
            yield event.subject, f"{event.ref} places a pod of gang {gang.name}, whose PodGroup does not exist"
        placed[gang.name] += 1
        stated[gang.name] = gang
        groups[gang.group] = event.data
        fresh.add(event.data.uid)
    if not groups:
        return
    had = _with_a_place(view, fresh)
    for group, one in groups.items():
        begun = any(had[gang] for gang in group)
        known = next(stated[gang] for gang in sorted(group) if gang in stated)
        needed = {
            # Of a gang of which nobody was placed only the policy is known: that of its group.
            gang: (stated[gang] if gang in stated else StatedGang(gang, 1, group, known.policy)).needed(had[gang], begun=begun)
            for gang in sorted(group)
        }
        short = [gang for gang, least in needed.items() if placed[gang] < least]
        if short:
            found = ", ".join(f"{gang}: {placed[gang]} of {needed[gang] if gang in stated else 'more'}" for gang in short)
            subject = placement_subject(one.node, one.namespace, one.name)
            yield subject, f"{seen.record.ref} places a gang in part: {found}"


def _with_a_place(view: LogView, fresh: set[str]) -> Counter[str]:
    """How many pods of each gang had a place before."""
    events = (event.data for placed in view.placed.values() for event in placed.values())
    pods = (data.pod for data in events if isinstance(data, Placement) and data.uid not in fresh)
    return Counter(_name(_POD.decode(pod).metadata) for pod in pods)
