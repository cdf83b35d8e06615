"""The Reservation that holds room for a migrating pod's replacement.

In: the pod's document and whether it has a node, what is asked for, the template that the job's object gives. Out: the document
of the Reservation.

    name                   as asked, unless the template names it
    spec.template          metadata and spec of the pod, without nodeName; `withoutClaims`: without volumes of persistent volume
                           claims, and ephemeral ones
    spec.allocateOnce      true
    spec.owners            a pod without a node: the pod itself (object); else its controller (controller, with the namespace);
                           a pod without a controller: a pod created again under its name
    spec.ttl               that of the job, if the template has neither ttl nor expires
    node affinity          every required term gets the field `metadata.name NotIn [node]`: another node than the pod's own
    labels                 app.kubernetes.io/created-by, scheduling.koordinator.sh/reservation-order; an annotation: the job

Source: koord-descheduler migration controller (CreateOrUpdateReservationOptions). There a pod without a controller gets a
reservation without owners, which no pod can use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from cotenant.api.times import go_duration
from cotenant.domain.reservations.names import LABEL_ORDER
from cotenant.events.migrations import ReservationRequest

LABEL_CREATED_BY = "app.kubernetes.io/created-by"
CREATED_BY = "koord-descheduler"
ANNOTATION_JOB = "descheduler.cotenant.io/job"
"""On a Reservation: the migration job that it was created for."""
_API_VERSION, _KIND = "scheduling.koordinator.sh/v1alpha1", "Reservation"
_OF_THE_POD_ALONE = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
    "managedFields",
    "selfLink",
)
_CLAIMS = ("persistentVolumeClaim", "ephemeral")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

Document = dict[str, Any]


def job_of(annotations: dict[str, str]) -> str:
    """Return the job that a Reservation was made for, by its annotations; empty for others."""
    return annotations.get(ANNOTATION_JOB, "")


def reservation_of_pod(
    pod: msgspec.Raw, node: str, wanted: ReservationRequest, template: Document | None = None
) -> Document:
    """Return the Reservation. `node`: the pod's, empty without; `template`: metadata and spec of the job's object. Raises
    msgspec.DecodeError where the pod cannot be read."""
    document: Document = msgspec.json.decode(pod)
    given = template or {}
    metadata, spec = dict(given.get("metadata") or {}), dict(given.get("spec") or {})
    metadata.setdefault("name", wanted.name)
    labels = {LABEL_CREATED_BY: CREATED_BY, LABEL_ORDER: str(wanted.order_ms)}
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), ANNOTATION_JOB: wanted.job}
    spec.setdefault("template", _template(document, node, wanted))
    spec["allocateOnce"] = True
    if not spec.get("owners"):
        spec["owners"] = owners_of(document, node)
    if "ttl" not in spec and "expires" not in spec:
        spec["ttl"] = go_duration(wanted.ttl_seconds)
    return {"apiVersion": _API_VERSION, "kind": _KIND, "metadata": metadata, "spec": spec}


def owners_of(pod: Document, node: str) -> list[Document]:
    """Return the owners that may use the reservation."""
    metadata = pod.get("metadata") or {}
    named = {"namespace": metadata.get("namespace", ""), "name": metadata.get("name", "")}
    if not node:
        return [{"object": {"apiVersion": "v1", "kind": "Pod", **named, "uid": metadata.get("uid", "")}}]
    owners = metadata.get("ownerReferences") or ()
    controller = next((owner for owner in owners if owner.get("controller")), None)
    if controller is None:
        return [{"object": {"apiVersion": "v1", "kind": "Pod", **named}}]
    return [{"controller": {**controller, "namespace": named["namespace"]}}]


def _template(pod: Document, node: str, wanted: ReservationRequest) -> Document:
    metadata = {name: value for name, value in (pod.get("metadata") or {}).items() if name not in _OF_THE_POD_ALONE}
    spec = {name: value for name, value in (pod.get("spec") or {}).items() if name != "nodeName"}
    if wanted.without_claims and spec.get("volumes"):
        spec["volumes"] = [volume for volume in spec["volumes"] if not any(each in volume for each in _CLAIMS)]
    if node:
        affinity = dict(spec.get("affinity") or {})
        of_nodes = dict(affinity.get("nodeAffinity") or {})
        terms: Sequence[Document] = (of_nodes.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ({},)
        of_nodes[_REQUIRED] = {"nodeSelectorTerms": [_elsewhere(term, node) for term in terms]}
        spec["affinity"] = {**affinity, "nodeAffinity": of_nodes}
    return {"metadata": metadata, "spec": spec}


def _elsewhere(term: Document, node: str) -> Document:
    fields = [*(term.get("matchFields") or ()), {"key": "metadata.name", "operator": "NotIn", "values": [node]}]
    return {**term, "matchFields": fields}
