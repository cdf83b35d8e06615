"""Which reservations a pod may use, by plain rules: owners, affinity, exact match, and what a Restricted one has left.

In: typed pods and Reservations, a node's labels, amounts. Out: why a pod may not use a reservation, empty if it may. Part of
the independent check: it shares no code with the scheduler, only typed views, quantities and names. The rules, in order:

    owners         one rule: `object` (uid, name, namespace, apiVersion; the kind is ignored), `controller` (the pod's
                   namespace, and one owner reference in every given field) and `labelSelector`, all that are given; a rule
                   without any is for everybody, no rules are for nobody
    name           an affinity that names one is for that one alone; then only the exact match is looked at
    unschedulable  also one that is being deleted; the affinity may tolerate it
    taints         hard ones, which the affinity tolerates; they do not concern a pod without affinity
    affinity       selector and one of the terms, over the node's labels overlaid by the reservation's
    exact match    equal amounts of each listed resource; one that neither has ends the comparison
    resources      it has something that the pod requests, unless the pod has affinity
    Restricted     each resource that it holds (of its option, where given) comes from it alone; `pods` bounds its owners
Source: Koordinator's reservation plugin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from cotenant.api.objects.metadata import LabelSelectorRequirement, OwnerReference
from cotenant.api.objects.pod import NodeSelectorTerm, Pod, PodSpec
from cotenant.api.objects.reservation import ControllerReference, OwnerRule, Reservation, StatedAffinity, StatedExactMatch
from cotenant.domain.reservations.names import (
    ANNOTATION_AFFINITY,
    ANNOTATION_EXACT_MATCH,
    ANNOTATION_RESTRICTED_OPTIONS,
    POLICY_RESTRICTED,
)
from cotenant.model.names import ANNOTATION_NODE_RESERVATION, RESOURCE_PODS
from cotenant.model.quantities import resource_amount
from cotenant_verification.bench.audit.rooms import holds, selects, tolerated

HARD = ("NoSchedule", "NoExecute")


class _Resources(msgspec.Struct, frozen=True):
    resources: dict[str, str | int | float] = {}


class _Names(msgspec.Struct, frozen=True):
    resources: list[str] = []


def needs_one(pod: Pod) -> bool:
    """Whether a pod may be placed in a reservation only."""
    return bool(pod.metadata.annotations.get(ANNOTATION_AFFINITY))


def owners_match(owners: Sequence[OwnerRule], pod: Pod) -> bool:
    """Whether a reservation with these owners is for a pod."""
    return any(_is_owner(rule, pod) for rule in owners)


def _is_owner(rule: OwnerRule, pod: Pod) -> bool:
    metadata, wanted, controller = pod.metadata, rule.object, rule.controller
    if wanted is not None and not _agree(
        (wanted.uid, metadata.uid),
        (wanted.name, metadata.name),
        (wanted.namespace, metadata.namespace),
        (wanted.api_version, "v1"),
    ):
        return False
    if controller is not None:
        if not _agree((controller.namespace, metadata.namespace)):
            return False
        if not any(_is_controller(controller, reference) for reference in metadata.owner_references):
            return False
    return rule.label_selector is None or selects(rule.label_selector, metadata.labels)


def _is_controller(wanted: ControllerReference, reference: OwnerReference) -> bool:
    if wanted.controller is not None and wanted.controller != (reference.controller is True):
        return False
    return _agree(
        (wanted.uid, reference.uid),
        (wanted.name, reference.name),
        (wanted.kind, reference.kind),
        (wanted.api_version, reference.api_version),
    )


def _agree(*pairs: tuple[str, str]) -> bool:
    """Whether each wanted text that is given is the one found."""
    return all(wanted in ("", found) for wanted, found in pairs)


def refuses(
    reservation: Reservation, pod: Pod, requests: Mapping[str, int], held: Mapping[str, int], node_labels: Mapping[str, str]
) -> str:
    """Return why a pod may not use a reservation that holds these amounts on a node; empty if it may."""
    metadata, spec, annotations = reservation.metadata, reservation.spec, pod.metadata.annotations
    if not owners_match(spec.owners, pod):
        return "owners do not match"
    affinity = None
    if needs_one(pod):
        try:
            affinity = msgspec.json.decode(annotations[ANNOTATION_AFFINITY], type=StatedAffinity)
        except msgspec.DecodeError:
            return "the pod's reservation affinity cannot be read"
    if affinity is not None and affinity.name:
        if affinity.name != metadata.name:
            return f"the pod's affinity names {affinity.name}"
    else:
        tolerating = PodSpec(tolerations=affinity.tolerations if affinity is not None else [])
        closed = spec.unschedulable or metadata.deletion_timestamp is not None
        if closed and not tolerated(tolerating, ("node.kubernetes.io/unschedulable", "", "NoSchedule")):
            return "it takes no new owners"
        for taint in spec.taints if affinity is not None else ():
            if taint.effect in HARD and not tolerated(tolerating, (taint.key, taint.value, taint.effect)):
                return f"taint {taint.key}"
        if affinity is not None and not _selects(affinity, metadata.name, {**node_labels, **metadata.labels}):
            return "the pod's affinity does not select it"
    if not _equals_exactly(annotations.get(ANNOTATION_EXACT_MATCH, ""), requests, held):
        return "it has not exactly what the pod requests"
    if affinity is None and not any(requests.get(name) for name in restricted(reservation, held)):
        return "it has nothing that the pod requests"
    return ""


def _selects(affinity: StatedAffinity, name: str, labels: Mapping[str, str]) -> bool:
    if any(labels.get(key) != value for key, value in affinity.reservation_selector.items()):
        return False
    return affinity.required is None or any(
        _term_holds(term, name, labels) for term in affinity.required.reservation_selector_terms
    )


def _term_holds(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    fields: list[LabelSelectorRequirement] = list(term.match_fields)
    if not term.match_expressions and not fields:
        return False
    return all(holds(each, labels) for each in term.match_expressions) and all(
        holds(each, {"metadata.name": name}) for each in fields
    )


def _equals_exactly(text: str, requests: Mapping[str, int], held: Mapping[str, int]) -> bool:
    for name in msgspec.json.decode(text, type=StatedExactMatch).resource_names if text else ():
        if name not in requests and name not in held:
            return True
        if requests.get(name) != held.get(name):
            return False
    return True


def restricted(reservation: Reservation, held: Mapping[str, int]) -> list[str]:
    """Return the resources that a reservation is looked at for: all it holds; of a Restricted one those of its option, if that
    names any."""
    text = reservation.metadata.annotations.get(ANNOTATION_RESTRICTED_OPTIONS, "")
    if reservation.spec.allocate_policy != POLICY_RESTRICTED or not text:
        return list(held)
    wanted = msgspec.json.decode(text, type=_Names).resources
    return [name for name in wanted if name in held] if wanted else list(held)


def kept_inside(reservation: Reservation) -> dict[str, int]:
    """Return the part of a reservation that nobody may be given."""
    text = reservation.metadata.annotations.get(ANNOTATION_NODE_RESERVATION, "")
    if not text:
        return {}
    amounts = msgspec.json.decode(text, type=_Resources).resources
    return {name: resource_amount(name, amount) for name, amount in amounts.items()}


def overdraws(
    reservation: Reservation, requests: Mapping[str, int], held: Mapping[str, int], used: Mapping[str, int], owners: int
) -> str:
    """Return what a Restricted reservation lacks for one more pod beside `owners` that use these amounts; empty for nothing."""
    if reservation.spec.allocate_policy != POLICY_RESTRICTED:
        return ""
    if RESOURCE_PODS in held and owners + 1 > held[RESOURCE_PODS]:
        return f"it is Restricted to {held[RESOURCE_PODS]} pods"
    inside = kept_inside(reservation)
    for name in restricted(reservation, held):
        wanted, left = requests.get(name, 0), held[name] - inside.get(name, 0) - used.get(name, 0)
        if name != RESOURCE_PODS and wanted > max(left, 0):
            return f"it is Restricted and has {left} {name} left, of which the pod requests {wanted}"
    return ""
