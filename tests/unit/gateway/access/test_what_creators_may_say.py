"""What a new object cannot claim: a status, a priority of its own, figures that nodes do not have."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from cotenant.events.objects import ObjectStored
from cotenant.kinds.nodes import NODES
from cotenant.kinds.pods import PODS
from cotenant.kinds.rbac.bindings import CLUSTER_ROLE_BINDINGS
from cotenant.kinds.rbac.roles import CLUSTER_ROLES
from cotenant_gateway.access.pods import refuse_priority
from cotenant_gateway.access.users import MASTERS, User, authenticated
from cotenant_gateway.planning.creations import plan_creation
from cotenant_gateway.planning.updates import plan_patch
from cotenant_gateway.statuses import ApiError
from tests.builders import node_document
from tests.unit.gateway.builders_gateway import NOW, World, as_json, manifest

ANNA, BOSS = authenticated("anna"), authenticated("boss", (MASTERS,))
RESERVATION, THIRD = "node.koordinator.sh/reservation", "node.koordinator.sh/thirdPartyAllocations"
ORIGIN = "node.koordinator.sh/originExtendedAllocatable"


@pytest.mark.parametrize("status", [{"phase": "Succeeded"}, {"qosClass": "Guaranteed"}, {"startTime": "2020-01-01T00:00:00Z"}])
def test_a_new_pod_has_no_status_of_its_own(status: object) -> None:
    world = World()
    planned = world.create("pods", {**manifest(), "status": status})
    assert "status" not in json.loads(bytes(planned.document))
    assert world.show("pods", "web")["status"]["phase"] == "Pending"


def test_a_new_node_brings_its_capacity() -> None:
    world = World()
    world.create("nodes", node_document("n1", capacity={"cpu": "4"}))
    assert world.show("nodes", "n1")["status"]["capacity"]["cpu"] == "4"


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (RESERVATION, {"resources": {"cpu": "-1"}}),
        (RESERVATION, {"resources": {"memory": "9e30"}}),
        (RESERVATION, {"resources": {"cpu": "NaN"}}),
        (RESERVATION, {"reservedCPUs": "9-0"}),
        (RESERVATION, {"reservedCPUs": "0-99999999"}),
        (RESERVATION, []),
        (THIRD, {"allocations": [{"name": "y", "priority": "koord-batch", "resources": {"kubernetes.io/batch-cpu": "-5"}}]}),
        (THIRD, {"allocations": [{"name": "y", "resources": {"kubernetes.io/batch-memory": "1e40"}}]}),
        (THIRD, {"allocations": 7}),
        (ORIGIN, {"resources": {"kubernetes.io/batch-cpu": "-1"}}),
    ],
)
def test_figures_that_no_node_has_are_refused(annotation: str, value: object) -> None:
    world = World()
    with pytest.raises(ApiError) as refusal:
        world.create("nodes", node_document("n1", annotations={annotation: json.dumps(value)}))
    assert refusal.value.code == 422
    assert annotation in str(refusal.value)


def test_a_node_that_has_such_figures_already_can_still_be_changed() -> None:
    world = World()
    world.create("nodes", node_document("n1"))
    snapshot = world.core.get(NODES, "", "n1")
    assert snapshot is not None
    assert snapshot.stored is not None
    stored = json.loads(bytes(snapshot.stored.raw))
    stored["metadata"]["annotations"] = {RESERVATION: '{"resources": {"cpu": "-1"}}'}
    before = next(event for event in world.events if event.subject.endswith(".n1"))
    world.put(before.subject, ObjectStored(object=msgspec.Raw(as_json(stored))))
    patch = b'{"metadata": {"labels": {"a": "b"}}}'
    assert plan_patch(world.core, NODES, "", "n1", "application/merge-patch+json", patch, subresource="").plan is not None
    worse = b'{"metadata": {"annotations": {"' + RESERVATION.encode() + b'": "{\\"resources\\": {\\"cpu\\": \\"-2\\"}}"}}}'
    with pytest.raises(ApiError):
        plan_patch(world.core, NODES, "", "n1", "application/merge-patch+json", worse, subresource="")


def refused(world: World, who: User, **spec: Any) -> str:
    planned = plan_creation(world.core, PODS, "default", as_json(manifest(**spec)), NOW, "uid", lambda: "abcde")
    try:
        refuse_priority(world.core, who, planned)
    except ApiError as error:
        return f"{error.code}: {error}"
    return ""


def test_priority_comes_from_a_class_or_a_right() -> None:
    world = World()
    assert refused(world, ANNA) == ""
    assert refused(world, ANNA, priorityClassName="koord-batch") == ""
    assert refused(world, ANNA, priority=9000).startswith("403: ")
    assert refused(world, ANNA, priorityClassName="koord-batch", priority=5000) == ""
    assert refused(world, BOSS, priority=9000) == ""
    rule = {"verbs": ["use"], "apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"]}
    api = CLUSTER_ROLES.api_version
    world.create(CLUSTER_ROLES, {"apiVersion": api, "kind": "ClusterRole", "metadata": {"name": "p"}, "rules": [rule]})
    world.create(
        CLUSTER_ROLE_BINDINGS,
        {
            "apiVersion": api,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "p"},
            "subjects": [{"kind": "User", "name": "anna"}],
            "roleRef": {"kind": "ClusterRole", "name": "p"},
        },
    )
    assert refused(world, ANNA, priority=9000) == ""


def test_a_priority_that_is_there_can_be_written_again() -> None:
    world = World()
    world.create("pods", manifest(priority=9000))
    patch = b'{"metadata": {"labels": {"a": "b"}}}'
    planned = plan_patch(world.core, PODS, "default", "web", "application/merge-patch+json", patch, subresource="")
    refuse_priority(world.core, ANNA, planned)
    raised = b'{"spec": {"priority": 9500}}'
    with pytest.raises(ApiError):
        refuse_priority(
            world.core,
            ANNA,
            plan_patch(world.core, PODS, "default", "web", "application/merge-patch+json", raised, subresource=""),
        )
