"""A cache of pod objects, decoded on demand; an idle cluster decodes only their owner references.

In: pod events. Out: a decoded pod with values computed once from its object, and the pods of a workload. An unreadable object
counts as absent and is listed in `refused`. Bound: one event or one decoded pod per existing object.
"""

from __future__ import annotations

import msgspec

from cotenant.api.objects.metadata import OwnerReference, View
from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.domain.qos import kube_qos, priority_default
from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectStored
from cotenant.model.tiers import PriorityClass
from cotenant.model.values import Value
from cotenant_descheduler_arbiter.state.facts import controller_of
from cotenant_descheduler_arbiter.state.known import Known


class StoredPod(Value, frozen=True):
    """A pod object with its effective requests, as (resource, amount)."""

    pod: Pod
    amounts: tuple[tuple[str, int], ...]
    prod: bool


class _Owned(View, frozen=True, kw_only=True):
    owner_references: list[OwnerReference] = []


class _Owners(View, frozen=True, kw_only=True):
    metadata: _Owned = _Owned()


_OWNERS = msgspec.json.Decoder(_Owners)


class StoredPodCache:
    """A mutable fold over the last object of each pod, by `namespace/name`."""

    def __init__(self, refused: dict[str, str]) -> None:
        self._refused = refused
        """By subject, why its object is not used."""
        self._unread: dict[str, Event] = {}
        self._read: dict[str, Known[StoredPod]] = {}
        self._unsorted: set[str] = set()
        """Undecoded pods that are not indexed by their controller yet."""
        self._workload: dict[str, str] = {}
        """The controller's uid, by pod."""
        self._replicas: dict[str, dict[str, None]] = {}
        """Pods by their controller's uid."""

    def store(self, key: str, event: Event) -> None:
        """Fold the pod's object."""
        self._read.pop(key, None)
        self._leave(key)
        self._unread[key] = event
        self._unsorted.add(key)

    def drop(self, key: str) -> None:
        """Fold the deletion of the pod's object."""
        self._unread.pop(key, None)
        self._unsorted.discard(key)
        self._read.pop(key, None)
        self._leave(key)

    def _leave(self, key: str) -> None:
        """Remove the pod from its controller's index."""
        workload = self._workload.pop(key, None)
        if workload is not None:
            replicas = self._replicas[workload]
            del replicas[key]
            if not replicas:
                del self._replicas[workload]

    def get(self, key: str) -> Known[StoredPod] | None:
        """Return the pod, or None if its object is absent or unreadable."""
        if key in self._unread:
            self._decode(key)
        return self._read.get(key)

    def of_workload(self, workload: str) -> list[str]:
        """Return the `namespace/name` of a workload's pods, sorted."""
        for key in list(self._unsorted):
            self._sort(key)
        return sorted(self._replicas.get(workload, {}))

    def _sort(self, key: str) -> None:
        """Add an undecoded pod to its controller's index, if it has a controller."""
        self._unsorted.discard(key)
        try:
            controller = controller_of(_OWNERS.decode(_document(self._unread[key])).metadata.owner_references)
        except msgspec.DecodeError:
            return  # the error is reported when the object is decoded
        if controller is not None and controller.uid:
            self._workload[key] = controller.uid
            self._replicas.setdefault(controller.uid, {})[key] = None

    def decode_all(self) -> None:
        """Decode all pods that are not decoded yet."""
        for key in list(self._unread):
            self._decode(key)

    def _decode(self, key: str) -> None:
        if key in self._unsorted:
            self._sort(key)
        event = self._unread.pop(key)
        try:
            pod = decode_pod(_document(event))
            # A malformed limit would fail a later sort.
            kube_qos(pod)
            prod = priority_default(pod) is PriorityClass.PROD
            self._read[key] = Known(StoredPod(pod, tuple(pod_requests(pod).items()), prod), event.sequence)
        except (msgspec.DecodeError, ValueError) as error:
            self._refused[event.subject] = f"{event.subject} at {event.ref} is not used: {error}"


def _document(event: Event) -> msgspec.Raw:
    assert isinstance(event.data, ObjectStored)
    return event.data.object
