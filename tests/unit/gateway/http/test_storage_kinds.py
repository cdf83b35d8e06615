"""Claims, volumes, storage classes and CSI nodes in the API: what is refused, what is shown."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cotenant.kinds.registry import REGISTRY
from cotenant_gateway.planning.creations import plan_creation
from cotenant_gateway.planning.updates import plan_replacement
from tests.unit.gateway.builders_gateway import World, as_json, causes, kind, refusal_of

CLAIM: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}, "storageClassName": "fast"},
}
VOLUME: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "pv"},
    "spec": {
        "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
        "capacity": {"storage": "10Gi"},
        "csi": {"driver": "disk.example.com", "volumeHandle": "h"},
        "storageClassName": "fast",
        "nodeAffinity": {
            "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]}]}
        },
    },
}
CLASS: dict[str, Any] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "disk.example.com",
    "volumeBindingMode": "WaitForFirstConsumer",
}
CSI_NODE: dict[str, Any] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "CSINode",
    "metadata": {"name": "n1"},
    "spec": {"drivers": [{"name": "disk.example.com", "nodeID": "i-1", "topologyKeys": None, "allocatable": {"count": 25}}]},
}
DOCUMENTS = {
    "persistentvolumeclaims": CLAIM,
    "persistentvolumes": VOLUME,
    "storageclasses": CLASS,
    "csinodes": CSI_NODE,
}


def with_value(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The document with another value at a path of names and numbers; `...` as value: left out."""
    changed = copy.deepcopy(document)
    *way, last = path.split("/")
    at: Any = changed
    for step in way:
        at = at[int(step)] if step.isdigit() else at[step]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return changed


def wrong(plural: str, document: dict[str, Any]) -> dict[str, str]:
    """What is wrong with a new object, by field."""
    world, found = World(), kind(plural)
    namespace = "default" if found.namespaced else ""
    error = refusal_of(lambda: plan_creation(world.core, found, namespace, as_json(document), world.now, "u", lambda: "x"))
    return causes(error) if error is not None else {}


def wrong_change(plural: str, path: str, value: Any) -> dict[str, str]:
    """What is wrong with a change of the object."""
    world, found = World(), kind(plural)
    world.create(plural, DOCUMENTS[plural])
    namespace = "default" if found.namespaced else ""
    body = as_json(with_value(DOCUMENTS[plural], path, value))
    name = DOCUMENTS[plural]["metadata"]["name"]
    error = refusal_of(lambda: plan_replacement(world.core, found, namespace, name, body))
    return causes(error) if error is not None else {}


@pytest.mark.parametrize("plural", DOCUMENTS)
def test_objects_as_users_write_them_are_taken(plural: str) -> None:
    assert wrong(plural, DOCUMENTS[plural]) == {}


@pytest.mark.parametrize(
    ("plural", "path", "value", "field"),
    [
        ("persistentvolumeclaims", "spec/accessModes", [], "spec.accessModes"),
        ("persistentvolumeclaims", "spec/accessModes", ["RWO"], "spec.accessModes[0]"),
        ("persistentvolumeclaims", "spec/accessModes", ["ReadWriteOncePod", "ReadWriteOnce"], "spec.accessModes"),
        ("persistentvolumeclaims", "spec/resources/requests", {}, "spec.resources.requests[storage]"),
        ("persistentvolumeclaims", "spec/resources/requests/storage", "0", "spec.resources.requests[storage]"),
        ("persistentvolumeclaims", "spec/resources/requests/storage", "-1Gi", "spec.resources.requests[storage]"),
        ("persistentvolumeclaims", "spec/volumeMode", "Tape", "spec.volumeMode"),
        ("persistentvolumeclaims", "spec/volumeName", "Not A Name", "spec.volumeName"),
        ("persistentvolumeclaims", "spec/storageClassName", "Not A Name", "spec.storageClassName"),
        ("persistentvolumes", "spec/capacity", {}, "spec.capacity[storage]"),
        ("persistentvolumes", "spec/csi/driver", "", "spec.csi.driver"),
        ("persistentvolumes", "spec/csi/volumeHandle", ..., "spec.csi.volumeHandle"),
        ("persistentvolumes", "spec/persistentVolumeReclaimPolicy", "Burn", "spec.persistentVolumeReclaimPolicy"),
        ("persistentvolumes", "spec/nodeAffinity", {}, "spec.nodeAffinity.required"),
        (
            "persistentvolumes",
            "spec/nodeAffinity/required/nodeSelectorTerms",
            [],
            "spec.nodeAffinity.required.nodeSelectorTerms",
        ),
        (
            "persistentvolumes",
            "spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/operator",
            "Like",
            "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].operator",
        ),
        ("storageclasses", "provisioner", ..., "provisioner"),
        ("storageclasses", "volumeBindingMode", "Later", "volumeBindingMode"),
        ("storageclasses", "reclaimPolicy", "Recycle", "reclaimPolicy"),
        (
            "storageclasses",
            "allowedTopologies",
            [{"matchLabelExpressions": [{"key": "zone", "values": []}]}],
            "allowedTopologies[0].matchLabelExpressions[0].values",
        ),
        ("csinodes", "spec/drivers/0/nodeID", "", "spec.drivers[0].nodeID"),
        ("csinodes", "spec/drivers/0/name", "", "spec.drivers[0].name"),
        ("csinodes", "spec/drivers/0/allocatable/count", -1, "spec.drivers[0].allocatable.count"),
        ("csinodes", "spec/drivers", [CSI_NODE["spec"]["drivers"][0]] * 2, "spec.drivers[1].name"),
    ],
)
def test_what_is_wrong_is_named_by_its_field(plural: str, path: str, value: Any, field: str) -> None:
    assert field in wrong(plural, with_value(DOCUMENTS[plural], path, value))


@pytest.mark.parametrize(
    ("plural", "path", "value", "field"),
    [
        ("persistentvolumeclaims", "spec/accessModes", ["ReadWriteMany"], "spec"),
        ("persistentvolumeclaims", "spec/storageClassName", "slow", "spec"),
        ("persistentvolumeclaims", "spec/resources/requests/storage", "1Gi", "spec.resources.requests.storage"),
        ("persistentvolumes", "spec/csi/volumeHandle", "other", "spec.persistentvolumesource"),
        ("persistentvolumes", "spec/nodeAffinity", ..., "spec.nodeAffinity"),
        ("persistentvolumes", "spec/volumeMode", "Block", "spec.volumeMode"),
        ("storageclasses", "provisioner", "other.example.com", "provisioner"),
        ("storageclasses", "volumeBindingMode", "Immediate", "volumeBindingMode"),
        ("storageclasses", "parameters", {"type": "ssd"}, "parameters"),
        ("csinodes", "spec/drivers/0/nodeID", "i-2", "spec.drivers[0]"),
    ],
)
def test_what_may_not_change_does_not(plural: str, path: str, value: Any, field: str) -> None:
    assert field in wrong_change(plural, path, value)


def test_a_claim_grows_and_gets_its_volume_once() -> None:
    assert not wrong_change("persistentvolumeclaims", "spec/resources/requests/storage", "9Gi")
    assert not wrong_change("persistentvolumeclaims", "spec/volumeName", "pv")
    world = World()
    world.create("persistentvolumeclaims", with_value(CLAIM, "spec/volumeName", "pv"))
    again = as_json(with_value(CLAIM, "spec/volumeName", "other"))
    error = refusal_of(
        lambda: plan_replacement(world.core, kind("persistentvolumeclaims"), "default", "data", again)
    )
    assert error is not None
    assert "spec" in causes(error)


def rows(world: World, plural: str) -> list[list[Any]]:
    """The cells of `kubectl get`."""
    found = REGISTRY.of(kind(plural))
    return [list(found.layout.cells(snapshot, world.now)) for snapshot in world.core.objects(found.kind)]


def test_kubectl_prints_them_as_usual() -> None:
    world = World()
    for plural, document in DOCUMENTS.items():
        world.create(plural, document)
    bound_claim = with_value(with_value(CLAIM, "spec/volumeName", "pv"), "metadata/name", "bound")
    world.create("persistentvolumeclaims", bound_claim)
    pending, bound = sorted(rows(world, "persistentvolumeclaims"), key=lambda cells: str(cells[1]), reverse=True)
    assert pending[:6] == ["data", "Pending", "", "", "", "fast"]
    assert bound[:3] == ["bound", "Bound", "pv"]
    assert rows(world, "persistentvolumes")[0][:8] == ["pv", "10Gi", "RWO,RWX", "Retain", "Available", "", "fast", ""]
    assert rows(world, "storageclasses")[0][:5] == [
        "fast (default)",
        "disk.example.com",
        "Delete",
        "WaitForFirstConsumer",
        False,
    ]
    assert rows(world, "csinodes")[0][:2] == ["n1", 1]
