"""What can change that a pod or a reservation waits, in words; of a gang, for each of its members that do not fit.

In: the subjects, with NATS' wildcards, whose events cause another try (`Waiting.wakes_on`). Out: one phrase for each kind of
event. A subject without a phrase is given as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cotenant.events.placements import RefusedMembers, Waiting, members_line, room_lines, waiting_line
from cotenant.model.subjects import tokens

WHAT_CAN_CHANGE = "what can change that: "

_OF_OBJECTS = {
    "nodes": "a node that joins or changes",
    "namespaces": "a namespace's labels",
    "pods": "further pods, or a change of these",
    "persistentvolumeclaims": "its claims",
    "persistentvolumes": "a volume",
    "storageclasses": "a storage class",
    "csinodes": "a node's attach limits",
    "clusternetworktopologies": "the network's topology",
    "reservations": "a change of a reservation",
    "elasticquotas": "a quota's min, max or weight",
    "podgroups": "a PodGroup",
}
_OF_NODES = {
    "placement": "a pod that is placed or leaves",
    "run": "a pod that ends",
    "condition": "a node's condition",
    "resources": "what a node offers to batch",
    "reservation": "a reservation that is made, used or ends",
}
MOST = 8
"""Phrases that are given."""


def what_can_change_that(subjects: Iterable[str]) -> str:
    """Return the phrases in the order of the subjects, each once, at most `MOST`; empty without subjects."""
    phrases = dict.fromkeys(_phrase(subject) for subject in subjects)
    return ", ".join(list(phrases)[:MOST])


def short_line(waiting: Waiting) -> str:
    """Return the sentence on why a pod waits, above the lines of `why_waiting`."""
    if not (waiting.member and waiting.members):
        return waiting_line(waiting)
    count = sum(members.count for members in waiting.members)
    least = "at least " if waiting.members_not_tried else ""
    pods = "1 pod of its gang does" if count == 1 else f"{count} pods of its gang do"
    return "; ".join([f"{least}{pods} not fit", *room_lines(waiting)])


def why_waiting(waiting: Waiting) -> Iterator[str]:
    """Yield lines below the sentence on why a pod waits: the members of its gang that do not fit, those that are alike in one
    line, and what can change that, for each line by itself where it is not the same for all."""
    return members_and_changes(waiting.members, waiting.members_not_tried, waiting.wakes_on)


def members_and_changes(refused: Sequence[RefusedMembers], not_tried: int, wakes_on: tuple[str, ...]) -> Iterator[str]:
    """Yield those lines; `wakes_on`: of what has no other one."""
    subjects = [members.wakes_on or wakes_on for members in refused]
    differs = any(found != wakes_on for found in subjects)
    for members, found in zip(refused, subjects, strict=True):
        yield members_line(members)
        if differs and found:
            yield f"  {WHAT_CAN_CHANGE}{what_can_change_that(found)}"
    if not_tried:
        yield f"further members that were not tried: {not_tried}"
    if wakes_on and not differs:
        yield WHAT_CAN_CHANGE + what_can_change_that(wakes_on)


def _phrase(subject: str) -> str:
    parts = tokens(subject)
    if parts[0] == "objects" and len(parts) > 2 and parts[2] in _OF_OBJECTS:
        if len(parts) == 5 and not {"*", ">"} & set(parts[3:]):
            return f"a change of {parts[2].removesuffix('s')} {parts[4] if parts[3] == '_' else '/'.join(parts[3:])}"
        return _OF_OBJECTS[parts[2]]
    if parts[0] == "node" and len(parts) > 2 and parts[2] in _OF_NODES:
        if len(parts) == 5 and parts[4] not in ("*", ">"):
            return f"the end of the former pod {'/'.join(parts[3:])}"
        return _OF_NODES[parts[2]]
    if parts[0] == "metrics":
        return "lower usage of a node"
    if parts[0] == "quotas" and len(parts) == 3:
        return f"the runtime of quota {parts[2]}"
    return subject
