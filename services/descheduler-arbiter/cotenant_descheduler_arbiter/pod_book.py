"""Pods' objects, which are read when somebody asks: in a calm cluster nobody does.

In: pod events. Out: a pod with what is computed from its object once, and the pods of a workload. An object that cannot be
read counts as absent, and is named in `refused`. Bound: one event or one read pod per live object.
"""

from __future__ import annotations

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectStored
from cotenant.objects.pod import Pod, decode_pod, pod_requests
from cotenant.qos import PriorityClass, kube_qos, priority_default
from cotenant_descheduler_arbiter.facts import PodFacts
from cotenant_descheduler_arbiter.known import Known


class StoredPod(msgspec.Struct, frozen=True):
    """A pod object with its effective requests; `workload` is its controller's uid."""

    pod: Pod
    requests: dict[str, int]
    prod: bool
    workload: str


class PodBook:
    """Mutable; a fold over the last object of each pod, by `namespace/name`."""

    def __init__(self, refused: dict[str, str]) -> None:
        self._refused = refused
        """Subject to why its object is not used."""
        self._unread: dict[str, tuple[Event, ObjectStored]] = {}
        self._pods: dict[str, Known[StoredPod]] = {}
        self._workloads: dict[str, dict[str, None]] = {}
        """Controller's uid to the `namespace/name` of its pods, of those that are read."""

    def store(self, key: str, event: Event, stored: ObjectStored) -> None:
        """The pod's object as it is now."""
        self.drop(key)
        self._unread[key] = event, stored

    def drop(self, key: str) -> None:
        """The pod's object is gone."""
        self._unread.pop(key, None)
        former = self._pods.pop(key, None)
        if former is not None and former.value.workload:
            siblings = self._workloads[former.value.workload]
            del siblings[key]
            if not siblings:
                del self._workloads[former.value.workload]

    def get(self, key: str) -> Known[StoredPod] | None:
        """Return the pod, or None where its object is absent or cannot be read."""
        if key in self._unread:
            self._read(key, *self._unread.pop(key))
        return self._pods.get(key)

    def of_workload(self, workload: str) -> list[str]:
        """Return the `namespace/name` of a workload's pods, sorted."""
        self.read()
        return sorted(self._workloads.get(workload, {}))

    def read(self) -> None:
        """Read all pods that nobody asked for yet."""
        for key in list(self._unread):
            self._read(key, *self._unread.pop(key))

    def _read(self, key: str, event: Event, stored: ObjectStored) -> None:
        try:
            pod = decode_pod(stored.object)
            # With a malformed limit a later sort would fail.
            kube_qos(pod)
            read = StoredPod(pod, pod_requests(pod), priority_default(pod) is PriorityClass.PROD, PodFacts(pod).workload)
        except (msgspec.DecodeError, ValueError) as error:
            self._refused[event.subject] = f"{event.subject} at {event.ref} is not used: {error}"
            return
        self._pods[key] = Known(read, event.sequence)
        if read.workload:
            self._workloads.setdefault(read.workload, {})[key] = None
