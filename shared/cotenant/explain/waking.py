"""What can change that a pod or a reservation waits, in words.

In: the subjects, with NATS' wildcards, whose events cause another try (`Waiting.wakes_on`). Out: one phrase for each kind of
event. A subject without a phrase is given as it is.
"""

from __future__ import annotations

from collections.abc import Iterable

from cotenant.model.subjects import tokens

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
