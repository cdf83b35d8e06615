"""Numbers that no user means: refused at admission with the field's path, and survived where an older log holds them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cotenant.api.objects.pod import decode_pod
from cotenant.events.objects import ObjectStored
from cotenant.kinds.pods import PODS
from cotenant.model.bounds import MAX_SECONDS
from cotenant.model.subjects import object_subject
from cotenant_gateway.planning.deletions import DeletionRequest, plan_deletion
from cotenant_gateway.planning.endings import deletion, endings
from cotenant_gateway.statuses import ApiError
from tests.unit.gateway.builders_gateway import World, kind, manifest, raw

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def container(**resources: Any) -> list[dict[str, Any]]:
    return [{"name": "main", "image": "app:1", "resources": resources}]


def weighted(section: str, weight: int) -> dict[str, Any]:
    term = {"weight": weight, "podAffinityTerm": {"topologyKey": "zone"}}
    preference = {"weight": weight, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}
    return {section: {PREFERRED: [preference if section == "nodeAffinity" else term]}}


def spread(**fields: Any) -> list[dict[str, Any]]:
    return [{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1, **fields}]


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("spec.containers[0].resources.requests[cpu]", {"containers": container(requests={"cpu": "9e18"})}),
    ("spec.containers[0].resources.limits[memory]", {"containers": container(limits={"memory": "1e99"})}),
    ("spec.containers[0].resources.requests[memory]", {"containers": container(requests={"memory": 10**30})}),
    ("spec.overhead[cpu]", {"overhead": {"cpu": "9e18"}}),
    ("spec.terminationGracePeriodSeconds", {"terminationGracePeriodSeconds": 10**12}),
    ("spec.terminationGracePeriodSeconds", {"terminationGracePeriodSeconds": -1}),
    ("spec.activeDeadlineSeconds", {"activeDeadlineSeconds": 10**12}),
    (f"spec.affinity.nodeAffinity.{PREFERRED}[0].weight", {"affinity": weighted("nodeAffinity", 101)}),
    (f"spec.affinity.podAffinity.{PREFERRED}[0].weight", {"affinity": weighted("podAffinity", 101)}),
    (f"spec.affinity.podAntiAffinity.{PREFERRED}[0].weight", {"affinity": weighted("podAntiAffinity", 0)}),
    ("spec.topologySpreadConstraints[0].maxSkew", {"topologySpreadConstraints": spread(maxSkew=0)}),
    ("spec.topologySpreadConstraints[0].minDomains", {"topologySpreadConstraints": spread(minDomains=0)}),
]
"""The field that the answer names, and the members of the spec."""

BEYOND_THEIR_TYPE: list[dict[str, Any]] = [
    {"terminationGracePeriodSeconds": 10**30},
    {"activeDeadlineSeconds": -(10**30)},
    {"priority": 10**12},
    {"affinity": weighted("nodeAffinity", 10**30)},
    {"affinity": weighted("podAffinity", 10**30)},
    {"topologySpreadConstraints": spread(maxSkew=10**15)},
    {"topologySpreadConstraints": spread(minDomains=10**15)},
    {"tolerations": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10**30}]},
    {"securityContext": {"runAsUser": 10**30}},
]


@pytest.mark.parametrize(("field", "spec"), REFUSED)
def test_a_pod_beyond_the_bounds_is_refused_and_the_field_named(field: str, spec: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        World().create("pods", manifest(**spec))
    assert refused.value.code == 422
    details = refused.value.status.details
    assert details is not None
    assert [cause.field for cause in details.causes] == [field]


@pytest.mark.parametrize("spec", BEYOND_THEIR_TYPE)
def test_an_integer_beyond_its_type_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        World().create("pods", manifest(**spec))
    assert 400 <= refused.value.code < 500
    assert "spec" in str(refused.value)


@pytest.mark.parametrize("amounts", [{"cpu": "9e18"}, {"memory": "1e99"}, {"pods": 10**30}])
def test_a_node_beyond_the_bounds_is_refused(amounts: dict[str, Any]) -> None:
    document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": amounts}}
    with pytest.raises(ApiError) as refused:
        World().create("nodes", document)
    assert refused.value.code == 422


@pytest.mark.parametrize("grace", [10**12, 9 * 10**18, -1])
def test_pods_of_an_older_log_with_an_absurd_grace_end_with_their_namespace(grace: int) -> None:
    world = World()
    world.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    document = manifest(terminationGracePeriodSeconds=grace)
    document["metadata"] = {"name": "web", "namespace": "team", "uid": "uid-web", "finalizers": ["example.com/keep"]}
    world.put(object_subject("", "pods", "team", "web"), ObjectStored(object=raw(document)))
    namespace = world.core.get(kind("namespaces"), "", "team")
    assert namespace is not None
    world.store(deletion(namespace, world.now, None))
    (plan,) = endings(world.core, world.now)
    assert plan.writes[0].subject == "objects.core.pods.team.web"
    world.store(plan)
    pod = world.core.get(PODS, "team", "web")
    assert pod is not None
    assert decode_pod(pod.document).metadata.deletion_timestamp is not None
    marked = json.loads(pod.document)["metadata"]["deletionGracePeriodSeconds"]
    assert marked == (MAX_SECONDS if grace > 0 else 30)


@pytest.mark.parametrize("asked", [10**12, 10**30])
def test_a_deletion_with_an_absurd_grace_is_marked_with_the_longest(asked: int) -> None:
    world = World()
    world.create("pods", manifest())
    world.place("web")
    planned = plan_deletion(world.core, PODS, "default", "web", DeletionRequest(asked), world.now)
    world.store(planned.plan)
    assert world.show("pods", "web")["metadata"]["deletionGracePeriodSeconds"] == MAX_SECONDS
