"""The reserve pod: the pod that a reservation is placed as, and by which it counts on its node.

In: the document of a Reservation, the node and what it holds there once it has one. Out: a pod's document. The rules:

    metadata    name and uid are the reservation's uid; namespace the template's, else `default`; labels and annotations of the
                template, overlaid by the reservation's; annotations say that it is a reserve pod, and of which reservation
    spec        the template's; its nodeName moves to an annotation (the pod's own is the node that the reservation has)
    priority    the template's, or that of its class; else the label koordinator.sh/priority; else the highest
    resources   where what it holds is not what its containers request: no container requests anything, and one more container
                requests what the template does, overlaid by what is held
Source: Koordinator `NewReservePod`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.api.objects.pod import Pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.api.objects.reservation import PodTemplate, Reservation
from cotenant.api.splices import Members, elements, is_array, is_object, member_object, members, raw
from cotenant.domain.reservations.names import (
    ANNOTATION_RESERVATION_NAME,
    ANNOTATION_RESERVATION_NODE,
    ANNOTATION_RESERVE_POD,
    HIGHEST_PRIORITY,
    POLICIES,
)
from cotenant.model.amounts import as_texts
from cotenant.model.names import LABEL_PRIORITY

DEFAULT_NAMESPACE = "default"
FAKE_CONTAINER = "__internal_fake_container__"
ANNOTATION_POLICY = "internal.scheduling.koordinator.sh/reservation-allocate-policy"
"""Passes the policy to the scheduler's filter."""


class ReservePodError(ValueError):
    """The reservation cannot be placed; the text says what is wrong with it."""


def check_placeable(reservation: Reservation) -> None:
    """Raise ReservePodError if a reservation lacks what it needs to be placed."""
    spec = reservation.spec
    if spec.template is None:
        raise ReservePodError("it has no pod template")
    if not spec.owners:
        raise ReservePodError("it names no owners")
    if spec.ttl is None and spec.expires is None:
        raise ReservePodError("it has neither ttl nor expires")
    if spec.allocate_policy not in POLICIES:
        raise ReservePodError(f"its allocatePolicy {spec.allocate_policy!r} is unknown")


def template_requests(reservation: Reservation) -> dict[str, int]:
    """Return what the template requests, init containers and overhead included."""
    template = reservation.spec.template or PodTemplate()
    return pod_requests(Pod(metadata=template.metadata, spec=template.spec))


def reserve_pod(
    document: msgspec.Raw, reservation: Reservation, node: str = "", held: Mapping[str, int] | None = None
) -> Members:
    """Return the members of the reserve pod's document. `held` amounts in milli-cores and units. Raises DocumentError."""
    top = members(document)
    template = member_object(member_object(top, "spec"), "template")
    own, of_template = member_object(top, "metadata"), member_object(template, "metadata")
    spec = member_object(template, "spec")
    view = reservation.spec.template or PodTemplate()
    annotations = {**member_object(of_template, "annotations"), **member_object(own, "annotations")}
    annotations[ANNOTATION_RESERVE_POD] = raw("true")
    annotations[ANNOTATION_RESERVATION_NAME] = raw(reservation.metadata.name)
    if view.spec.node_name:
        annotations[ANNOTATION_RESERVATION_NODE] = raw(view.spec.node_name)
    uid = reservation.metadata.uid
    metadata: Members = {
        "name": raw(uid),
        "uid": raw(uid),
        "namespace": raw(view.metadata.namespace or DEFAULT_NAMESPACE),
        "labels": raw({**member_object(of_template, "labels"), **member_object(own, "labels")}),
        "annotations": raw(annotations),
    }
    for name in ("creationTimestamp", "deletionTimestamp"):
        if name in own:
            metadata[name] = own[name]
    spec.pop("nodeName", None)
    if node:
        spec["nodeName"] = raw(node)
    if view.spec.priority is None and not view.spec.priority_class_name:
        spec["priority"] = raw(_priority(reservation.metadata.labels))
    spec.setdefault("schedulerName", raw("default-scheduler"))
    requested = template_requests(reservation)
    if held is not None and _positive(held) != _positive(requested):
        _replace_requests(spec, {**requested, **held})
    return {"apiVersion": raw("v1"), "kind": raw("Pod"), "metadata": raw(metadata), "spec": raw(spec)}


def reserve_pod_document(
    document: msgspec.Raw, reservation: Reservation, node: str = "", held: Mapping[str, int] | None = None
) -> msgspec.Raw:
    """Return the document that the scheduler reads: the reserve pod, with the allocate policy in an annotation."""
    pod = reserve_pod(document, reservation, node, held)
    metadata = member_object(pod, "metadata")
    annotations = member_object(metadata, "annotations")
    annotations[ANNOTATION_POLICY] = raw(reservation.spec.allocate_policy)
    metadata["annotations"] = raw(annotations)
    return raw({**pod, "metadata": raw(metadata)})


def _positive(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}


def _priority(labels: Mapping[str, str]) -> int:
    text = labels.get(LABEL_PRIORITY, "")
    try:
        priority = int(text)
    except ValueError:
        return HIGHEST_PRIORITY
    return priority if -(1 << 31) <= priority < 1 << 31 else HIGHEST_PRIORITY


def _replace_requests(spec: Members, wanted: Mapping[str, int]) -> None:
    for name in ("containers", "initContainers"):
        if name in spec and is_array(spec[name]):
            spec[name] = raw([_without_requests(each) for each in elements(spec[name])])
    amounts = as_texts(wanted)
    added = raw({"name": FAKE_CONTAINER, "resources": {"requests": amounts, "limits": amounts}})
    known = elements(spec["containers"]) if "containers" in spec and is_array(spec["containers"]) else []
    spec["containers"] = raw([*known, added])
    spec.pop("overhead", None)


def _without_requests(container: msgspec.Raw) -> msgspec.Raw:
    return raw({**members(container), "resources": {}}) if is_object(container) else container
