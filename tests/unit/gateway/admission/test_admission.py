"""What is refused, with which reason and at which field; and what admission changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from cotenant.api.objects.pod import decode_pod
from cotenant.domain.colocation import colocation_errors
from cotenant_gateway.admission.pods.rules import REMEMBERED_LABELS
from cotenant_gateway.planning.creations import plan_creation
from cotenant_gateway.planning.deletions import DeletionRequest, plan_deletion
from cotenant_gateway.planning.documents import MAX_OBJECT_BYTES, TooNew
from cotenant_gateway.planning.updates import plan_patch, plan_replacement
from cotenant_gateway.statuses import ApiError
from tests.unit.gateway.builders_gateway import World, as_json, kind, manifest, raw


def refused(world: World, plural: str, body: bytes, namespace: str = "default") -> ApiError:
    """The error of creating this; fails if it is accepted."""
    found = kind(plural)
    with pytest.raises(ApiError) as caught:
        plan_creation(world.core, found, namespace if found.namespaced else "", body, world.now, "u", lambda: "x")
    return caught.value


def fields(error: ApiError) -> dict[str, str]:
    """Field to reason of an error's causes."""
    assert error.status.details is not None
    return {cause.field: cause.reason for cause in error.status.details.causes}


def container(**members: object) -> list[dict[str, object]]:
    return [{"name": "main", "image": "app:1", **members}]


def resources(requests: dict[str, object], limits: dict[str, object] | None = None) -> list[dict[str, object]]:
    return container(resources={"requests": requests, "limits": limits or {}})


BATCH = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"}


def labelled(labels: dict[str, str], **spec: Any) -> dict[str, object]:
    document = manifest(**spec)
    document["metadata"] = {"name": "web", "labels": labels}
    return document


def test_pods_of_one_spec_are_judged_by_their_own_labels() -> None:
    world = World()
    wrong = labelled({"koordinator.sh/qosClass": "LSR"}, priority=9500, containers=resources({"cpu": "1500m"}))
    for turn in range(REMEMBERED_LABELS + 1):
        assert fields(refused(world, "pods", as_json(wrong)))
        assert world.create("pods", manifest(f"web-{turn}", priority=9500, containers=resources({"cpu": "1500m"}))).plan


@pytest.mark.parametrize(
    ("document", "field", "reason"),
    [
        (manifest(containers=resources({"cpu": "-1"})), "spec.containers[0].resources.requests[cpu]", "FieldValueInvalid"),
        (
            manifest(containers=resources({"memory": "1Qi"})),
            "spec.containers[0].resources.requests[memory]",
            "FieldValueInvalid",
        ),
        (
            manifest(containers=resources({"cpu": "2"}, {"cpu": "1"})),
            "spec.containers[0].resources.requests[cpu]",
            "FieldValueInvalid",
        ),
        (
            manifest(containers=resources({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "2"})),
            "spec.containers[0].resources.requests[nvidia.com/gpu]",
            "FieldValueInvalid",
        ),
        (
            manifest(containers=resources({"nvidia.com/gpu": "1"})),
            "spec.containers[0].resources.limits[nvidia.com/gpu]",
            "FieldValueRequired",
        ),
        (
            manifest(containers=resources({"nvidia.com/gpu": "500m"}, {"nvidia.com/gpu": "500m"})),
            "spec.containers[0].resources.requests[nvidia.com/gpu]",
            "FieldValueInvalid",
        ),
        (manifest(containers=[]), "spec.containers", "FieldValueRequired"),
        (manifest(containers=[{"name": "main"}]), "spec.containers[0].image", "FieldValueRequired"),
        (manifest(containers=[*container(), *container()]), "spec.containers[1].name", "FieldValueDuplicate"),
        (manifest(restartPolicy="Sometimes"), "spec.restartPolicy", "FieldValueNotSupported"),
        (manifest(priorityClassName="nope"), "spec.priorityClassName", "FieldValueNotFound"),
        (manifest(priorityClassName="koord-batch", priority=1), "spec.priority", "FieldValueInvalid"),
        (manifest(runtimeClassName="nope"), "spec.runtimeClassName", "FieldValueNotFound"),
        (
            manifest(tolerations=[{"key": "a", "operator": "Like"}]),
            "spec.tolerations[0].operator",
            "FieldValueNotSupported",
        ),
        (manifest("Bad_Name"), "metadata.name", "FieldValueInvalid"),
        (manifest("x" * 254), "metadata.name", "FieldValueInvalid"),
        (labelled({"a b": "c"}), "metadata.labels", "FieldValueInvalid"),
        (labelled({"koordinator.sh/qosClass": "BE"}, priority=9500), "Pod", "FieldValueForbidden"),
        (labelled({}, containers=resources({**BATCH}, {**BATCH})), "labels.koordinator.sh/qosClass", "FieldValueRequired"),
        (
            labelled({"koordinator.sh/qosClass": "LSR"}, priority=9500, containers=resources({"cpu": "1500m"})),
            "pod.spec.containers[*].resources.requests",
            "FieldValueInvalid",
        ),
    ],
)
def test_a_wrong_pod_is_refused_at_its_field(document: dict[str, object], field: str, reason: str) -> None:
    error = refused(World(), "pods", as_json(document))
    assert (error.code, error.status.reason) == (422, "Invalid")
    assert fields(error)[field] == reason


def test_all_violations_are_told_at_once() -> None:
    document = manifest("Bad_Name", restartPolicy="x", containers=resources({"cpu": "-1", "memory": "z"}))
    assert len(fields(refused(World(), "pods", as_json(document)))) == 4


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        (b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"', 400, "truncated"),
        (b"[1,2]", 400, "not a JSON object"),
        (b"", 400, "not a JSON object"),
        (b"\xff\xfe", 400, "not a JSON object"),
        (b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a\xff"}}', 400, "UTF-8"),
        (b'{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}}', 400, "Kind=Node"),
        (b'{"metadata":{"name":"a"}}', 400, "'Kind' is missing"),
        (b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"other"}}', 400, "does not match the namespace"),
        (b'{"apiVersion":"v1","kind":"Pod","metadata":' + b"[" * 5000 + b"]" * 5000 + b"}", 400, "too deeply"),
    ],
)
def test_what_is_not_an_object_of_the_kind_is_a_bad_request(body: bytes, code: int, text: str) -> None:
    error = refused(World(), "pods", body)
    assert error.code == code
    assert text in error.status.message


def test_a_wrong_type_names_its_field() -> None:
    document = manifest(containers=[{"name": "main", "image": "x", "ports": [{"containerPort": "eighty"}]}])
    error = refused(World(), "pods", as_json(document))
    assert (error.code, error.status.reason) == (400, "BadRequest")
    assert fields(error) == {"spec.containers[0].ports[0].containerPort": "FieldValueTypeInvalid"}


def test_an_object_beyond_the_limit_is_too_large() -> None:
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"x": "y" * MAX_OBJECT_BYTES}}
    error = refused(World(), "configmaps", as_json(document))
    assert (error.code, error.status.reason) == (413, "RequestEntityTooLarge")


def test_a_namespace_must_exist_and_must_not_be_ending() -> None:
    world = World()
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    assert refused(world, "configmaps", as_json(document), "team").code == 404
    world.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    world.store(plan_deletion(world.core, kind("namespaces"), "", "team", DeletionRequest(), world.now).plan)
    assert refused(world, "configmaps", as_json(document), "team").code == 403


def test_unknown_fields_and_number_literals_survive() -> None:
    world = World()
    body = as_json(manifest())[:-1] + b',"later":{"x":1.10,"big":12345678901234567890123}}'
    planned = plan_creation(world.core, kind("pods"), "default", body, world.now, "u", lambda: "x")
    world.store(planned.plan)
    snapshot = world.core.get(kind("pods"), "default", "web")
    assert snapshot is not None
    assert b'"later":{"x":1.10,"big":12345678901234567890123}' in snapshot.document
    patched = plan_patch(
        world.core, kind("pods"), "default", "web", "application/merge-patch+json", b'{"metadata":{"labels":{"a":"b"}}}'
    )
    assert b'"later":{"x":1.10,"big":12345678901234567890123}' in bytes(patched.document)


def test_members_that_are_null_count_as_absent() -> None:
    world = World()
    document = manifest(nodeSelector=None, tolerations=None)
    document["metadata"] = {"name": "web", "creationTimestamp": None, "labels": None}
    world.create("pods", document)
    snapshot = world.core.get(kind("pods"), "default", "web")
    assert snapshot is not None
    assert snapshot.stored is not None
    assert decode_pod(snapshot.stored.raw).spec.node_selector == {}


def test_a_priority_class_gives_priority_and_policy() -> None:
    world = World()
    world.create("pods", manifest(priorityClassName="koord-prod"))
    shown: Any = world.show("pods", "web")
    assert (shown["spec"]["priority"], shown["spec"]["preemptionPolicy"]) == (9000, "PreemptLowerPriority")


def test_a_runtime_class_merges_selector_tolerations_and_overhead() -> None:
    world = World()
    world.create(
        "runtimeclasses",
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "process"},
            "handler": "process",
            "scheduling": {
                "nodeSelector": {"cotenant.io/runtime": "process"},
                "tolerations": [
                    {"key": "cotenant.io/runtime", "operator": "Equal", "value": "process", "effect": "NoSchedule"}
                ],
            },
            "overhead": {"podFixed": {"memory": "1Mi"}},
        },
    )
    document = manifest(runtimeClassName="process", containers=[{"name": "main", "command": ["sleep", "1"]}])
    planned = world.create("pods", document)
    shown: Any = world.show("pods", "web")
    assert shown["spec"]["nodeSelector"] == {"cotenant.io/runtime": "process"}
    assert shown["spec"]["tolerations"][0]["key"] == "cotenant.io/runtime"
    assert shown["spec"]["overhead"] == {"memory": "1Mi"}
    assert planned.plan is not None
    assert "RuntimeClass process" in json.dumps(planned.plan.writes[0].payload.admission)  # type: ignore[attr-defined]


def quota(name: str, minimum: str, maximum: str = "10", **labels: str) -> dict[str, object]:
    prefix = "quota.scheduling.koordinator.sh/"
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "labels": {prefix + key.replace("_", "-"): value for key, value in labels.items()}},
        "spec": {"min": {"cpu": minimum}, "max": {"cpu": maximum}},
    }


def test_a_quota_whose_min_exceeds_its_parents_is_refused() -> None:
    world = World()
    world.create("elasticquotas", quota("top", "4", is_parent="true"))
    error = refused(world, "elasticquotas", as_json(quota("leaf", "5", parent="top")))
    assert fields(error) == {"spec.min[cpu]": "FieldValueInvalid"}


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (None, {"cpu": "10"}),
        ("", {"cpu": "10"}),
        ('{"memory": "5Gi"}', {"cpu": "10"}),
        ('{"cpu": 3, "memory": "5Gi"}', {"cpu": 3}),
        ('{"cpu": "3"}', {"cpu": "3"}),
    ],
)
def test_a_new_quota_is_stored_with_a_weight_in_every_dimension_of_max(given: str | None, stored: dict[str, object]) -> None:
    world = World()
    document = quota("q", "2")
    key = "quota.scheduling.koordinator.sh/shared-weight"
    if given is not None:
        document["metadata"]["annotations"] = {key: given}  # type: ignore[index]  # a document of the test's own making
    world.create("elasticquotas", document)
    snapshot = world.core.get(kind("elasticquotas"), "default", "q")
    assert snapshot is not None
    assert json.loads(snapshot.meta.annotations[key]) == stored


def test_a_quota_with_pods_does_not_become_a_parent() -> None:
    world = World()
    for name in ("used", "free"):
        world.create("elasticquotas", quota(name, "2"))
    world.create("pods", labelled({"quota.scheduling.koordinator.sh/name": "used"}))

    def made_a_parent(name: str) -> None:
        document = as_json(quota(name, "2", is_parent="true"))
        world.store(plan_replacement(world.core, kind("elasticquotas"), "default", name, document).plan)

    made_a_parent("free")
    with pytest.raises(ApiError, match="bound pods"):
        made_a_parent("used")


def test_a_pod_cannot_name_a_parent_quota_and_a_quota_with_children_stays() -> None:
    world = World()
    world.create("elasticquotas", quota("top", "4", is_parent="true"))
    world.create("elasticquotas", quota("leaf", "2", parent="top"))
    error = refused(world, "pods", as_json(labelled({"quota.scheduling.koordinator.sh/name": "top"})))
    assert fields(error) == {"metadata.labels[quota.scheduling.koordinator.sh/name]": "FieldValueInvalid"}
    with pytest.raises(ApiError, match="child quotas"):
        plan_deletion(world.core, kind("elasticquotas"), "default", "top", DeletionRequest(), world.now)


@pytest.mark.parametrize(
    ("plural", "document", "field"),
    [
        (
            "poddisruptionbudgets",
            {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {"minAvailable": 1, "maxUnavailable": 1}},
            "spec",
        ),
        (
            "poddisruptionbudgets",
            {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {"minAvailable": "half"}},
            "spec.minAvailable",
        ),
        ("priorityclasses", {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 2_000_000_000}, "value"),
        ("runtimeclasses", {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass"}, "handler"),
        (
            "nodes",
            {"apiVersion": "v1", "kind": "Node", "spec": {"taints": [{"key": "a", "effect": "Never"}]}},
            "spec.taints[0].effect",
        ),
        ("configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a/b": "c"}}, "data[a/b]"),
    ],
)
def test_the_other_kinds_have_rules_of_their_own(plural: str, document: dict[str, object], field: str) -> None:
    error = refused(World(), plural, as_json({**document, "metadata": {"name": "x"}}))
    assert list(fields(error)) == [field]


def test_a_live_pods_spec_changes_in_few_fields_only() -> None:
    world = World()
    world.create("pods", manifest())
    merge: Callable[[object], object] = lambda patch: plan_patch(  # noqa: E731
        world.core, kind("pods"), "default", "web", "application/merge-patch+json", as_json(patch)
    )
    with pytest.raises(ApiError, match="may not change fields other than"):
        merge({"spec": {"restartPolicy": "Never"}})
    merge({"spec": {"activeDeadlineSeconds": 5}})
    with pytest.raises(ApiError, match="immutable, it is not set"):
        merge({"metadata": {"labels": {"koordinator.sh/qosClass": "LS"}}})


def test_a_write_with_an_older_version_conflicts_and_one_ahead_of_the_fold_waits() -> None:
    world = World()
    world.create("pods", manifest())
    shown: Any = world.show("pods", "web")
    world.place("web")
    with pytest.raises(ApiError) as caught:
        plan_replacement(world.core, kind("pods"), "default", "web", as_json(shown))
    assert (caught.value.code, caught.value.status.reason) == (409, "Conflict")
    shown["metadata"]["resourceVersion"] = str(world.sequence + 1)
    with pytest.raises(TooNew):
        plan_replacement(world.core, kind("pods"), "default", "web", as_json(shown))


def test_replacing_what_was_read_stores_nothing_of_other_services() -> None:
    world = World()
    world.create("pods", manifest())
    world.place("web")
    world.run("web")
    shown: Any = world.show("pods", "web")
    shown["metadata"]["annotations"] = {"note": "mine"}
    planned = plan_replacement(world.core, kind("pods"), "default", "web", as_json(shown))
    stored = json.loads(bytes(planned.document))
    assert stored["metadata"]["annotations"] == {"note": "mine"}
    assert "nodeName" not in stored["spec"]
    assert "status" not in stored
    assert "resourceVersion" not in stored["metadata"]


def test_a_change_of_nothing_is_not_stored_and_generation_counts_changes_of_spec() -> None:
    world = World()
    world.create("configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}})

    def patched(patch: object) -> Any:
        return plan_patch(world.core, kind("configmaps"), "default", "c", "application/merge-patch+json", as_json(patch))

    assert patched({"data": {"a": "1"}}).plan is None
    assert json.loads(bytes(patched({"data": {"a": "2"}}).document))["metadata"]["generation"] == 2
    assert json.loads(bytes(patched({"metadata": {"labels": {"x": "y"}}}).document))["metadata"]["generation"] == 1


def test_nobody_makes_a_pod_one_that_stands_for_a_reservation() -> None:
    annotation = {"scheduling.koordinator.sh/reserve-pod": "true"}
    world = World()
    wrong: dict[str, Any] = {**manifest()}
    wrong["metadata"]["annotations"] = annotation
    field = "metadata.annotations[scheduling.koordinator.sh/reserve-pod]"
    assert fields(refused(world, "pods", as_json(wrong))) == {field: "FieldValueForbidden"}
    world.create("pods", manifest())
    with pytest.raises(ApiError, match="is set by the scheduler only"):
        world.patch("pods", "web", {"metadata": {"annotations": annotation}})


@pytest.mark.parametrize(
    ("labels", "wrong"),
    [
        ({"koordinator.sh/qosClass": "LS"}, ["labels.koordinator.sh/qosClass"]),
        ({"koordinator.sh/priority": "1"}, ["labels.koordinator.sh/priority"]),
        ({"koordinator.sh/priority-class": "koord-prod"}, ["spec.priority"]),
        (
            {"koordinator.sh/qosClass": "BE", "koordinator.sh/priority": "1", "koordinator.sh/priority-class": "koord-prod"},
            ["labels.koordinator.sh/qosClass", "spec.priority", "labels.koordinator.sh/priority", "Pod"],
        ),
        ({"koordinator.sh/qosClass": "none-of-the-five", "koordinator.sh/priority-class": "none-of-the-four"}, []),
    ],
)
def test_classes_of_a_live_pod_stay_what_they_are(labels: dict[str, str], wrong: list[str]) -> None:
    world = World()
    world.create("pods", manifest())
    patch = {"metadata": {"labels": labels}}
    if wrong:
        with pytest.raises(ApiError) as caught:
            world.patch("pods", "web", patch)
        assert [*fields(caught.value)] == wrong
    else:
        world.patch("pods", "web", patch)


def test_in_a_namespace_of_the_control_plane_classes_go_together_as_they_will() -> None:
    world = World()
    labelled = {"name": "system", "labels": {"control-plane": ""}}
    world.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": labelled})
    wrong: dict[str, Any] = {**manifest(priority=9500)}
    wrong["metadata"]["labels"] = {"koordinator.sh/qosClass": "BE"}
    world.create("pods", wrong, namespace="system")
    world.patch("pods", "web", {"metadata": {"labels": {"koordinator.sh/qosClass": "LS"}}}, namespace="system")
    with pytest.raises(ApiError, match="cannot be used in combination"):
        world.create("pods", wrong)


def test_colocation_reads_the_label_before_the_value() -> None:
    pod = decode_pod(
        raw(labelled({"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-mid"}, priority=9500))
    )
    assert colocation_errors(pod) == []


def test_pods_without_a_class_follow_the_default_class_of_the_moment() -> None:
    world = World()

    def priority_of(name: str) -> int | None:
        world.create("pods", manifest(name))
        snapshot = world.core.get(kind("pods"), "default", name)
        assert snapshot is not None
        return snapshot.pod.spec.priority

    before = priority_of("before")
    defaults = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "usual"},
        "value": 77,
        "globalDefault": True,
    }
    world.create("priorityclasses", defaults)
    assert (before, priority_of("after")) == (None, 77)


def test_replicas_share_the_view_of_their_spec_and_nothing_else() -> None:
    world = World()
    views = []
    for name in ("one", "two"):
        world.create("pods", manifest(name))
        snapshot = world.core.get(kind("pods"), "default", name)
        assert snapshot is not None
        views.append(snapshot.pod)
    assert views[0].spec is views[1].spec
    assert [view.metadata.name for view in views] == ["one", "two"]
    assert [view.metadata.labels for view in views] == [{"app": "one"}, {"app": "two"}]
