"""The subresource pods/resize: what may change, what is refused, and what the pod's status shows meanwhile."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from cotenant.events.node.runs import ContainerRun, RunPhase, RunStatus
from cotenant.events.placements import Placement
from cotenant.events.resizes import ContainerResources, PlacementResize, ResizeState, ResizeStatus
from cotenant.kinds.koordinator.cluster_colocation_profiles import PROFILES
from cotenant.kinds.pods import PODS
from cotenant.model.subjects import placement_subject, run_subject
from cotenant_gateway.planning.documents import Planned
from cotenant_gateway.planning.updates import plan_patch, plan_replacement
from cotenant_gateway.statuses import ApiError
from tests.builders import container, pod_document
from tests.unit.gateway.builders_gateway import World, as_json, causes

STRATEGIC = "application/strategic-merge-patch+json"


def asking(requests: dict[str, Any] | None = None, limits: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A patch of the container `main`."""
    return {"spec": {"containers": [container(requests=requests, limits=limits, **more)]}}


def resize(world: World, patch: dict[str, Any], name: str = "web") -> Planned:
    planned = plan_patch(world.core, PODS, "default", name, STRATEGIC, as_json(patch), subresource="resize")
    world.store(planned.plan)
    return planned


def refused(world: World, patch: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(ApiError) as error:
        resize(world, patch)
    assert error.value.code == 422
    return causes(error.value)


def resources(world: World, name: str = "web") -> dict[str, Any]:
    found: dict[str, Any] = world.show("pods", name)["spec"]["containers"][0]["resources"]
    return found


@pytest.fixture
def world() -> World:
    """A burstable pod that runs on n1."""
    world = World()
    requests = {"cpu": "1", "memory": "1Gi", "example.com/x": "1"}
    document = pod_document("web", image="app:1", requests=requests, limits={"example.com/x": "1"})
    world.create("pods", document)
    return world


def test_requests_and_limits_change_and_the_generation_counts_it(world: World) -> None:
    before = world.show("pods", "web")["metadata"].get("generation", 0)
    resize(world, asking({"cpu": "2"}, {"memory": "4Gi"}))
    assert resources(world) == {
        "requests": {"cpu": "2", "memory": "1Gi", "example.com/x": "1"},
        "limits": {"memory": "4Gi", "example.com/x": "1"},
    }
    assert world.show("pods", "web")["metadata"]["generation"] == before + 1


def test_the_pod_itself_refuses_what_the_subresource_takes(world: World) -> None:
    with pytest.raises(ApiError) as error:
        plan_patch(world.core, PODS, "default", "web", STRATEGIC, as_json(asking({"cpu": "2"})))
    assert "pod updates may not change fields other than" in causes(error.value)["spec"]


def test_all_else_in_the_document_stays_as_it_is(world: World) -> None:
    shown = world.show("pods", "web")
    shown["metadata"]["labels"] = {"new": "label"}
    shown["spec"]["containers"][0]["image"] = "another"
    shown["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    planned = plan_replacement(world.core, PODS, "default", "web", as_json(shown), subresource="resize")
    world.store(planned.plan)
    found = world.show("pods", "web")
    assert resources(world)["requests"]["cpu"] == "3"
    assert "labels" not in found["metadata"]
    assert found["spec"]["containers"][0]["image"] == "app:1"


def test_a_request_or_limit_cannot_be_removed(world: World) -> None:
    resize(world, asking(limits={"cpu": "4"}))
    assert refused(world, asking({"memory": None})) == {
        "spec.containers[0].resources.requests": "Forbidden: resource requests cannot be removed"
    }
    assert refused(world, asking(limits={"cpu": None})) == {
        "spec.containers[0].resources.limits": "Forbidden: resource limits cannot be removed"
    }


def test_other_resources_cannot_change(world: World) -> None:
    found = refused(world, asking({"example.com/x": "2"}, {"example.com/x": "2"}))
    assert found == {"spec": "Forbidden: only cpu and memory resources are mutable"}


def test_the_class_stays(world: World) -> None:
    every = {"cpu": "1", "memory": "1Gi"}
    found = refused(world, asking(every, every))
    assert found == {"spec": 'Invalid value: "Guaranteed": Pod QOS Class may not change as a result of resizing'}


def test_a_limit_below_its_request_is_refused(world: World) -> None:
    assert "spec.containers[0].resources.requests[cpu]" in refused(world, asking({"cpu": "3"}, {"cpu": "2"}))


@pytest.mark.parametrize("amount", ["-1", "1e40", "NaN", "x"])
def test_absurd_amounts_are_refused(world: World, amount: str) -> None:
    assert refused(world, asking({"cpu": amount}))


def test_init_containers_that_end_cannot_be_resized() -> None:
    world = World()
    first = container("first", image="app:1", requests={"cpu": "1"})
    beside = container("beside", image="app:1", requests={"cpu": "1"}, restartPolicy="Always")
    world.create("pods", pod_document("web", image="app:1", requests={"cpu": "1"}, initContainers=[first, beside]))
    more = {"resources": {"requests": {"cpu": "2"}}}
    patch: dict[str, Any] = {"spec": {"initContainers": [{"name": "beside", **more}]}}
    resize(world, patch)
    patch["spec"]["initContainers"][0]["name"] = "first"
    assert refused(world, patch) == {
        "spec.initContainers[0].resources": "Forbidden: only sidecar containers can be resized among init containers"
    }


def test_resize_policies_are_checked(world: World) -> None:
    good = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    resize(world, asking(resizePolicy=good))
    assert world.show("pods", "web")["spec"]["containers"][0]["resizePolicy"] == good
    bad = [{"resourceName": "disk", "restartPolicy": "NotRequired"}, {"resourceName": "memory", "restartPolicy": "Maybe"}]
    assert set(refused(world, asking(resizePolicy=bad))) == {
        "spec.containers[0].resizePolicy[0].resourceName",
        "spec.containers[0].resizePolicy[1].restartPolicy",
    }


def test_cpu_and_memory_of_a_translated_pod_become_those_of_its_tier() -> None:
    world = World()
    selector, labels = {"matchLabels": {"batch": "yes"}}, {"koordinator.sh/qosClass": "BE"}
    spec = {"selector": selector, "labels": labels, "priorityClassName": "koord-batch"}
    profile = {"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile", "metadata": {"name": "p"}}
    world.create(PROFILES, {**profile, "spec": spec}, namespace="")
    amounts = {"cpu": "1", "memory": "1Gi"}
    world.create("pods", pod_document("web", image="app:1", labels={"batch": "yes"}, requests=amounts, limits=amounts))
    assert resources(world)["requests"] == {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "1Gi"}
    resize(world, asking({"cpu": "2"}, {"cpu": "2"}))
    expected = {"kubernetes.io/batch-cpu": "2k", "kubernetes.io/batch-memory": "1Gi"}
    assert resources(world) == {"requests": expected, "limits": expected}
    annotation = world.show("pods", "web")["metadata"]["annotations"]["node.koordinator.sh/extended-resource-spec"]
    assert json.loads(annotation)["containers"]["main"]["requests"] == expected
    resize(world, asking({"kubernetes.io/batch-cpu": "3k"}, {"kubernetes.io/batch-cpu": "3k"}))
    assert resources(world)["requests"]["kubernetes.io/batch-cpu"] == "3k"


# -- what the status shows -----------------------------------------------------------------------------------------------


def of(cpu: str) -> tuple[ContainerResources, ...]:
    return (ContainerResources(name="main", requests={"cpu": cpu, "memory": "1Gi"}),)


def placed(world: World, resize: PlacementResize | None, report: ResizeStatus | None) -> dict[str, Any]:
    """The pod's status with this placement, which has the object's manifest, and this report."""
    stored = world.core.get(PODS, "default", "web")
    assert stored is not None
    assert stored.stored is not None
    names: dict[str, Any] = {"node": "n1", "namespace": "default", "name": "web", "uid": stored.uid}
    world.put(
        placement_subject("n1", "default", "web"),
        Placement(**names, pod=stored.stored.raw, object_sequence=stored.stored.sequence, resize=resize),
    )
    container = ContainerRun(name="main", state="running", ready=True, started_at=world.now)
    world.put(
        run_subject("n1", "default", "web"),
        RunStatus(**names, phase=RunPhase.RUNNING, started_at=world.now, containers=(container,), resize=report),
    )
    found: dict[str, Any] = world.show("pods", "web")["status"]
    return found


def conditions(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["type"]: each for each in status["conditions"] if "Resize" in each["type"]}


def test_a_pod_that_is_not_resized_shows_its_resources(world: World) -> None:
    status = placed(world, None, None)
    [main] = status["containerStatuses"]
    requests = {"cpu": "1", "memory": "1Gi", "example.com/x": "1"}
    assert main["allocatedResources"] == requests
    assert main["resources"] == {"requests": requests, "limits": {"example.com/x": "1"}}
    assert conditions(status) == {}


@pytest.mark.parametrize(
    ("state", "kind", "reason"),
    [
        (ResizeState.DEFERRED, "PodResizePending", "Deferred"),
        (ResizeState.INFEASIBLE, "PodResizePending", "Infeasible"),
        (ResizeState.IN_PROGRESS, "PodResizeInProgress", "Error"),
    ],
)
def test_a_resize_that_is_not_finished_is_a_condition(world: World, state: ResizeState, kind: str, reason: str) -> None:
    resize(world, asking({"cpu": "2"}))
    since = world.now - timedelta(seconds=5)
    pending = PlacementResize(sequence=9, admitted=of("1"), counted=of("2"))
    in_progress = state is ResizeState.IN_PROGRESS
    admitted, applied = (of("2"), of("1")) if in_progress else (of("1"), ())
    report = ResizeStatus(sequence=9, state=state, since=since, message="why", admitted=admitted, applied=applied)
    status = placed(world, pending, report)
    found = conditions(status)
    assert set(found) == {kind}
    assert (found[kind]["status"], found[kind]["reason"], found[kind]["message"]) == ("True", reason, "why")
    [main] = status["containerStatuses"]
    assert main["allocatedResources"]["cpu"] == ("2" if in_progress else "1")
    assert main["resources"]["requests"]["cpu"] == "1"
    assert world.show("pods", "web")["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "2"


def test_the_observed_generation_is_that_of_the_manifest_that_the_node_acts_on(world: World) -> None:
    assert placed(world, None, None)["observedGeneration"] == 1
    resize(world, asking({"cpu": "2"}))
    assert world.show("pods", "web")["metadata"]["generation"] == 2
    assert world.show("pods", "web")["status"]["observedGeneration"] == 1
    pending = PlacementResize(sequence=9, admitted=of("1"), counted=of("2"))
    assert "observedGeneration" not in placed(world, pending, None)
    seen = ResizeStatus(sequence=9, state=ResizeState.DEFERRED, message="why", admitted=of("1"))
    assert placed(world, pending, seen)["observedGeneration"] == 2


def test_a_report_on_an_earlier_resize_says_nothing_of_this_one(world: World) -> None:
    resize(world, asking({"cpu": "2"}))
    pending = PlacementResize(sequence=9, admitted=of("1"), counted=of("2"))
    status = placed(world, pending, ResizeStatus(sequence=8, state=ResizeState.DEFERRED, message="old", admitted=of("1")))
    assert conditions(status) == {}
    assert status["containerStatuses"][0]["allocatedResources"]["cpu"] == "1"


def test_members_that_are_not_known_are_kept() -> None:
    world = World()
    document = pod_document("web", image="app:1", requests={"cpu": "1"})
    document["spec"]["containers"][0]["unknown"] = {"a": 1}
    world.create("pods", document)
    resize(world, asking({"cpu": "2"}))
    assert world.show("pods", "web")["spec"]["containers"][0]["unknown"] == {"a": 1}
