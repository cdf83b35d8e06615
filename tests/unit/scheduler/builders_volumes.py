"""Claims, volumes, storage classes and CSI drivers as documents, and a story that tells them."""

from __future__ import annotations

from typing import Any

from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectDeleted
from cotenant.model.subjects import object_subject
from tests.builders import stored
from tests.unit.scheduler.asking import Asking
from tests.unit.scheduler.builders_scheduler import pod

STORAGE = "storage.k8s.io"


def on_nodes(*names: str, key: str = "kubernetes.io/hostname") -> dict[str, Any]:
    """A node affinity of a volume."""
    expression = {"key": key, "operator": "In", "values": list(names)}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def using(name: str, *claims: str, **more: Any) -> dict[str, Any]:
    """A small pod with volumes of these claims."""
    volumes = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": claim}} for i, claim in enumerate(claims)]
    return pod(name, cpu="100m", memory="64Mi", volumes=volumes, **more)


class VolumeStory(Asking):
    """A story with storage."""

    def storage_class(self, name: str, *, wait: bool = True, provisioner: str = "csi.example.com", **more: Any) -> Event:
        mode = "WaitForFirstConsumer" if wait else "Immediate"
        document = {"metadata": {"name": name, **more.pop("metadata", {})}, "provisioner": provisioner}
        return self.say(
            object_subject(STORAGE, "storageclasses", "", name), stored({**document, "volumeBindingMode": mode, **more})
        )

    def claim(
        self,
        name: str,
        *,
        volume: str = "",
        of: str | None = "local",
        size: str = "1Gi",
        modes: tuple[str, ...] = ("ReadWriteOnce",),
        namespace: str = "default",
        metadata: dict[str, Any] | None = None,
        **more: Any,
    ) -> Event:
        spec = {"accessModes": list(modes), "resources": {"requests": {"storage": size}}, **more}
        spec |= {"volumeName": volume} if volume else {}
        spec |= {"storageClassName": of} if of is not None else {}
        document = {"metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", **(metadata or {})}, "spec": spec}
        return self.say(object_subject("", "persistentvolumeclaims", namespace, name), stored(document))

    def claim_deleted(self, name: str) -> Event:
        return self.say(object_subject("", "persistentvolumeclaims", "default", name), ObjectDeleted(), tombstone=True)

    def volume(
        self,
        name: str,
        *,
        of: str = "local",
        size: str = "10Gi",
        modes: tuple[str, ...] = ("ReadWriteOnce",),
        nodes: tuple[str, ...] = (),
        labels: dict[str, str] | None = None,
        driver: str = "",
        phase: str = "",
        **more: Any,
    ) -> Event:
        spec = {"accessModes": list(modes), "capacity": {"storage": size}, "storageClassName": of, **more}
        spec |= {"nodeAffinity": on_nodes(*nodes)} if nodes else {}
        spec |= {"csi": {"driver": driver, "volumeHandle": name}} if driver else {}
        document = {"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": {"phase": phase}}
        return self.say(object_subject("", "persistentvolumes", "", name), stored(document))

    def volume_deleted(self, name: str) -> Event:
        return self.say(object_subject("", "persistentvolumes", "", name), ObjectDeleted(), tombstone=True)

    def csi_node(self, node: str, **limits: int | None) -> Event:
        """How many volumes each driver attaches there; `_` in its name is a dot."""
        drivers = [
            {"name": name.replace("_", "."), "nodeID": node, **({} if count is None else {"allocatable": {"count": count}})}
            for name, count in limits.items()
        ]
        document = {"metadata": {"name": node}, "spec": {"drivers": drivers}}
        return self.say(object_subject(STORAGE, "csinodes", "", node), stored(document))

    def given(self, name: str) -> dict[str, str]:
        """The volumes that a placed pod's claims were given; empty text: to be made."""
        placement = self.placement(name)
        assert placement is not None
        shares = placement.allocation.volumes if placement.allocation is not None else ()
        return {share.claim: share.volume for share in shares}

    def message(self, name: str) -> str:
        waiting = self.waiting(name)
        assert waiting is not None, f"{name} does not wait"
        return waiting.message
