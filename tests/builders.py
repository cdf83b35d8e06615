"""Documents of pods and nodes as users and executors write them: one place for all tests.

In: what a test cares about. Out: the document as JSON members, with nothing in it that was not asked for but a uid of
`uid-<name>` and one container called main. Each area's builders add the defaults that its tests take for granted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cotenant.events.objects import ObjectStored

Document = dict[str, Any]
Amounts = Mapping[str, str]


def container(name: str = "main", *, requests: Amounts | None = None, limits: Amounts | None = None, **more: Any) -> Document:
    """One container; `more` are further members by their JSON names."""
    resources = _given(requests=requests, limits=limits)
    return {"name": name, **({"resources": resources} if resources else {}), **more}


def pod_document(
    name: str = "p",
    *,
    namespace: str = "default",
    uid: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: str | None = None,
    created: str | None = None,
    deleted: str | None = None,
    requests: Amounts | None = None,
    limits: Amounts | None = None,
    image: str | None = None,
    phase: str | None = None,
    **spec: Any,
) -> Document:
    """A pod. `requests`, `limits` and `image` are those of its one container, which `containers` replaces; `owner` is the
    name of its ReplicaSet; `spec` are further members of the spec, left out where None. A uid or namespace of "" is left out.
    """
    metadata = _given(
        name=name,
        namespace=namespace or None,
        uid=(f"uid-{name}" if uid is None else uid) or None,
        creationTimestamp=created,
        deletionTimestamp=deleted,
        labels=labels,
        annotations=annotations,
        ownerReferences=None if owner is None else [owner_reference(owner)],
    )
    only = container(requests=requests, limits=limits, **_given(image=image))
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [only], **_given(**spec)}}
    return document if phase is None else {**document, "status": {"phase": phase}}


def owner_reference(name: str) -> Document:
    """The ReplicaSet of this name as the controller of an object; its uid is `uid-<name>`."""
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": f"uid-{name}", "controller": True}


def node_document(
    name: str = "n",
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    deleted: str | int | None = None,
    taints: Sequence[Mapping[str, object]] = (),
    unschedulable: bool = False,
    capacity: Amounts | None = None,
    allocatable: Amounts | None = None,
    **status: Any,
) -> Document:
    """A node; `status` are further members of its status, left out where None."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _given(name=name, labels=labels, annotations=annotations, deletionTimestamp=deleted),
        "spec": _given(taints=list(taints) or None, unschedulable=unschedulable or None),
        "status": _given(capacity=capacity, allocatable=allocatable, **status),
    }


def encoded(document: object) -> msgspec.Raw:
    """The document as events carry it."""
    return msgspec.Raw(msgspec.json.encode(document))


def stored(document: object) -> ObjectStored:
    """The fact that the document is stored."""
    return ObjectStored(object=encoded(document))


def _given(**members: Any) -> Document:
    return {name: value for name, value in members.items() if value is not None}
