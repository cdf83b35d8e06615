"""ClusterColocationProfiles: what they make of a pod at its creation, which of them, and how that is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.events.objects import ObjectDeleted, ObjectStored
from cotenant.kinds.koordinator.cluster_colocation_profiles import PROFILES
from cotenant.kinds.pods import PODS
from cotenant.model.subjects import object_subject
from cotenant.model.tiers import PriorityClass
from cotenant_gateway.admission.pods.tier_resources import translated_spec
from cotenant_gateway.admission.profiles.selection import draw
from cotenant_gateway.planning.creations import plan_creation
from cotenant_gateway.planning.documents import Planned
from cotenant_gateway.planning.updates import plan_patch
from cotenant_gateway.statuses import ApiError
from tests.unit.gateway.builders_gateway import World, as_json, kind, manifest, raw

EXAMPLES = Path(__file__).parents[4] / "examples"
APPLIED = "cotenant.io/colocation-profiles"
EXTENDED = "node.koordinator.sh/extended-resource-spec"
Json = dict[str, Any]


def profile(name: str = "batch", *, skips: bool = False, **spec: object) -> dict[str, object]:
    return {
        "apiVersion": "config.koordinator.sh/v1alpha1",
        "kind": "ClusterColocationProfile",
        "metadata": {"name": name, "annotations": {"config.koordinator.sh/skip-update-resources": ""} if skips else {}},
        "spec": spec,
    }


BATCH: Json = {"qosClass": "BE", "priorityClassName": "koord-batch"}


def world_with(*profiles: dict[str, object]) -> World:
    world = World()
    for document in profiles:
        world.create("clustercolocationprofiles", document)
    return world


def created(world: World, document: object | None = None, name: str = "web") -> Json:
    world.create("pods", document or manifest(name))
    return world.show("pods", name)


def last_stored(world: World) -> ObjectStored:
    data = world.events[-1].data
    assert isinstance(data, ObjectStored)
    return data


def refusal(world: World, document: object, plural: str = "pods") -> ApiError:
    with pytest.raises(ApiError) as caught:
        world.create(plural, document)
    return caught.value


def causes(error: ApiError) -> dict[str, str]:
    assert error.status.details is not None
    return {cause.field: cause.message for cause in error.status.details.causes}


# -- what a profile does ---------------------------------------------------------------------------------------------


def test_in_a_namespace_of_the_control_plane_no_profile_matches() -> None:
    world = world_with(profile(labels={"colocated": "yes"}))
    labelled = {"name": "system", "labels": {"control-plane": ""}}
    world.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": labelled})
    world.create("pods", manifest(), namespace="system")
    assert world.show("pods", "web", "system")["metadata"]["labels"] == {"app": "web"}


def test_an_ordinary_pod_becomes_a_batch_pod() -> None:
    world = world_with(
        profile(selector={"matchLabels": {"app": "web"}}, **BATCH, koordinatorPriority=1111, schedulerName="cotenant")
    )
    pod = created(world)
    assert pod["metadata"]["labels"] == {"app": "web", "koordinator.sh/qosClass": "BE", "koordinator.sh/priority": "1111"}
    spec = pod["spec"]
    assert (spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]) == (
        "koord-batch",
        5000,
        "PreemptLowerPriority",
    )
    assert spec["schedulerName"] == "cotenant"
    assert spec["containers"][0]["resources"] == {
        "requests": {"kubernetes.io/batch-cpu": "500"},
        "limits": {"kubernetes.io/batch-cpu": "1k"},
    }


def test_a_pod_that_no_profile_selects_stays_byte_for_byte() -> None:
    world, without = world_with(profile(selector={"matchLabels": {"app": "other"}}, **BATCH)), World()
    body = (
        b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","x":1.10},'
        b'"spec":{"containers":[{"name":"a","image":"b"}],"y":1e400}}'
    )
    plans = [plan_creation(each.core, PODS, "default", body, each.now, "u", lambda: "x") for each in (world, without)]
    assert bytes(plans[0].document) == bytes(plans[1].document)


def test_unknown_fields_and_number_literals_survive_a_profile() -> None:
    world = world_with(profile(selector={}, **BATCH, patch={"spec": {"hostNetwork": True}}))
    body = (
        b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","x":1.10},"spec":{"containers":[{"name":"a","image":"b",'
        b'"resources":{"requests":{"memory":"1.50Gi","cpu":1.5},"claims":[ 1E3 ]}}],"y":1e400}}'
    )
    document = bytes(plan_creation(world.core, PODS, "default", body, world.now, "u", lambda: "x").document)
    for kept in (b'"x":1.10', b'"kubernetes.io/batch-memory":"1.50Gi"', b"[ 1E3 ]", b'"y":1e400'):
        assert kept in document
    assert b'"kubernetes.io/batch-cpu":"1500"' in document


def test_labels_and_annotations_are_mapped_and_suffixed_after_they_were_set() -> None:
    mapped = profile(
        selector={},
        labels={"a": "1"},
        annotations={"n": "2"},
        labelKeysMapping={"a": "b", "missing": "empty"},
        annotationKeysMapping={"n": "m"},
        labelSuffixes={"b": "-x", "absent": "-y"},
    )
    pod = created(world_with(mapped))
    assert pod["metadata"]["labels"] == {"app": "web", "a": "1", "b": "1-x", "empty": ""}
    assert pod["metadata"]["annotations"] == {"n": "2", "m": "2", APPLIED: "batch"}


def test_a_patch_is_merged_strategically() -> None:
    patch = {"metadata": {"labels": {"app": None, "new": "1"}}, "spec": {"containers": [{"name": "main", "tty": True}]}}
    pod = created(world_with(profile(selector={}, patch=patch)))
    assert pod["metadata"]["labels"] == {"new": "1"}
    assert pod["spec"]["containers"][0]["image"] == "app:1"
    assert pod["spec"]["containers"][0]["tty"] is True


def test_a_class_that_a_patch_names_is_resolved() -> None:
    pod = created(world_with(profile(selector={}, qosClass="BE", patch={"spec": {"priorityClassName": "koord-batch"}})))
    assert pod["spec"]["priority"] == 5000
    assert "kubernetes.io/batch-cpu" in pod["spec"]["containers"][0]["resources"]["requests"]


def test_init_containers_and_overhead_are_translated_and_a_limit_alone_is_the_request_too() -> None:
    world = world_with(profile(selector={}, **BATCH))
    limits = {"resources": {"limits": {"cpu": "250m", "memory": "1Gi", "nvidia.com/gpu": "1"}}}
    init = [{"name": "init", "image": "b", **limits}]
    pod = created(world, manifest(initContainers=init, overhead={"cpu": "0.1", "memory": "2Mi"}))
    batch = {"kubernetes.io/batch-cpu": "250", "kubernetes.io/batch-memory": "1Gi"}
    assert pod["spec"]["initContainers"][0]["resources"] == {"limits": {"nvidia.com/gpu": "1", **batch}, "requests": batch}
    assert pod["spec"]["overhead"] == {"kubernetes.io/batch-cpu": "100", "kubernetes.io/batch-memory": "2Mi"}


def test_mid_pods_get_mid_resources_and_prod_and_free_pods_keep_theirs() -> None:
    for name, expected in (("koord-mid", "kubernetes.io/mid-cpu"), ("koord-prod", "cpu"), ("koord-free", "cpu")):
        pod = created(world_with(profile(selector={}, priorityClassName=name)))
        assert list(pod["spec"]["containers"][0]["resources"]["requests"]) == [expected]


def test_a_profile_may_leave_the_resources_as_they_are() -> None:
    keeping = profile(selector={}, skips=True, **BATCH)
    pod = created(world_with(keeping))
    assert list(pod["spec"]["containers"][0]["resources"]["requests"]) == ["cpu"]


def test_the_overhead_of_a_runtime_class_is_translated_with_the_pod() -> None:
    world = world_with(profile(selector={}, **BATCH))
    sandbox = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "sandbox"}, "handler": "sandbox"}
    world.create("runtimeclasses", {**sandbox, "overhead": {"podFixed": {"cpu": "100m", "memory": "64Mi"}}})
    pod = created(world, manifest(runtimeClassName="sandbox"))
    assert pod["spec"]["overhead"] == {"kubernetes.io/batch-cpu": "100", "kubernetes.io/batch-memory": "64Mi"}


def test_the_example_makes_a_batch_pod_of_a_report() -> None:
    world = World()
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "process"}, "handler": "process"}
    world.create("runtimeclasses", runtime)
    for document in yaml.safe_load_all((EXAMPLES / "colocation-profile.yaml").read_text()):
        world.create(f"{document['kind'].lower()}s", document)
    report = world.show("pods", "report")
    assert report["metadata"]["annotations"][APPLIED] == "reports-are-batch"
    assert report["spec"]["terminationGracePeriodSeconds"] == 2


# -- which profiles ---------------------------------------------------------------------------------------------------


def test_profiles_are_applied_by_name_and_the_later_one_wins_and_says_so() -> None:
    world = world_with(
        profile("second", selector={}, labels={"tier": "second"}, schedulerName="cotenant"),
        profile("first", selector={}, labels={"tier": "first"}),
    )
    pod = created(world)
    assert pod["metadata"]["labels"]["tier"] == "second"
    assert pod["metadata"]["annotations"][APPLIED] == "first,second"
    assert last_stored(world).admission == (
        "ClusterColocationProfile first: label tier first",
        "ClusterColocationProfile second: label tier second (over first), schedulerName cotenant",
    )


def test_profiles_are_matched_with_the_labels_that_the_pod_was_given_with() -> None:
    world = world_with(
        profile("a", selector={}, labels={"added": "yes"}),
        profile("b", selector={"matchLabels": {"added": "yes"}}, labels={"b": "1"}),
    )
    assert created(world)["metadata"]["annotations"][APPLIED] == "a"


def test_the_namespace_selector_reads_the_namespaces_labels() -> None:
    world = world_with(profile(namespaceSelector={"matchLabels": {"colocation": "on"}}, **BATCH))
    for name, labels in (("with", {"colocation": "on"}), ("without", {})):
        world.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        world.create("pods", manifest(), namespace=name)
    assert APPLIED in world.show("pods", "web", "with")["metadata"]["annotations"]
    assert "annotations" not in world.show("pods", "web", "without")["metadata"]


def test_selectors_with_several_labels_and_expressions_are_found() -> None:
    both = profile("both", selector={"matchLabels": {"app": "web", "z": "1"}}, labels={"x": "both"})
    expression = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "other"]}]}
    world = world_with(both, profile("expression", selector=expression, labels={"x": "expression"}))
    assert created(world)["metadata"]["annotations"][APPLIED] == "expression"
    document = manifest("two")
    document["metadata"] = {"name": "two", "labels": {"app": "web", "z": "1"}}
    assert created(world, document, "two")["metadata"]["annotations"][APPLIED] == "both,expression"


def test_a_change_of_a_profile_counts_for_the_next_pod_and_its_end_too() -> None:
    world = world_with(profile(selector={}, labels={"v": "1"}))
    assert created(world, name="one")["metadata"]["labels"]["v"] == "1"
    patch = as_json({"spec": {"labels": {"v": "2"}}})
    world.store(plan_patch(world.core, PROFILES, "", "batch", "application/merge-patch+json", patch).plan)
    assert created(world, name="two")["metadata"]["labels"]["v"] == "2"
    subject = object_subject(PROFILES.group, PROFILES.plural, "", "batch")
    world.put(subject, ObjectDeleted(), tombstone=True)
    assert "v" not in created(world, name="three")["metadata"]["labels"]


def test_a_pod_that_exists_is_not_touched_by_profiles() -> None:
    world = World()
    created(world)
    world.create("clustercolocationprofiles", profile(selector={}, **BATCH))
    patch = as_json({"metadata": {"labels": {"x": "y"}}})
    planned = plan_patch(world.core, PODS, "default", "web", "application/merge-patch+json", patch)
    assert json.loads(bytes(planned.document))["metadata"]["labels"] == {"app": "web", "x": "y"}


def test_the_same_manifest_can_be_applied_again_and_another_one_is_refused() -> None:
    world = world_with(profile(selector={}, **BATCH))
    created(world)

    def applied(cpu: str) -> Planned:
        resources = {"requests": {"cpu": cpu}, "limits": {"cpu": "1"}}
        patch = as_json({"spec": {"containers": [{"name": "main", "resources": resources}]}})
        return plan_patch(world.core, PODS, "default", "web", "application/strategic-merge-patch+json", patch)

    assert applied("500m").plan is None
    with pytest.raises(ApiError, match="pod updates may not change fields"):
        applied("600m")


# -- probability ------------------------------------------------------------------------------------------------------


def test_a_profile_with_probability_0_sets_nothing_but_resources_follow_the_pods_tier() -> None:
    world = world_with(profile(selector={}, probability=0, labels={"x": "y"}, **BATCH))
    document = manifest(priority=5500)
    document["metadata"] = {"name": "web", "labels": {"koordinator.sh/qosClass": "BE"}}
    pod = created(world, document)
    assert "x" not in pod["metadata"]["labels"]
    assert "kubernetes.io/batch-cpu" in pod["spec"]["containers"][0]["resources"]["requests"]
    assert last_stored(world).admission[0] == "ClusterColocationProfile batch left out: its probability is 0%"


def test_two_gateways_and_a_dry_run_come_to_the_same_pods() -> None:
    one = world_with(profile(selector={}, probability="50%", labels={"x": "y"}))
    documents = [manifest(f"p{number}") for number in range(40)]

    def plan(world: World, document: object, uid: str) -> Planned:
        return plan_creation(world.core, PODS, "default", as_json(document), world.now, uid, lambda: "x")

    def drawn(uid: str) -> list[bool]:
        return ["x" in json.loads(bytes(plan(one, document, uid).document))["metadata"]["labels"] for document in documents]

    assert drawn("u1") == drawn("u2")
    assert 5 < sum(drawn("u1")) < 35


def test_the_draw_has_the_stated_share_and_a_growing_share_keeps_its_pods() -> None:
    numbers = [draw("batch", "default", f"pod-{number}") for number in range(10_000)]
    assert {*numbers} == {*range(100)}
    for percent in (1, 10, 50, 99):
        share = sum(number < percent for number in numbers) / 100
        assert percent - 2 < share < percent + 2


# -- what is refused --------------------------------------------------------------------------------------------------


def test_a_missing_priority_class_refuses_the_pod_and_names_the_profile() -> None:
    error = refusal(world_with(profile(selector={}, priorityClassName="gone")), manifest())
    assert error.status.code == 422
    assert "ClusterColocationProfile batch sets this PriorityClass" in causes(error)["spec.priorityClassName"]


def test_what_a_profile_makes_invalid_is_refused_with_what_was_done() -> None:
    error = refusal(world_with(profile(selector={}, qosClass="BE")), manifest())
    assert "cannot be used in combination" in error.status.message
    assert "ClusterColocationProfile batch: label koordinator.sh/qosClass BE" in error.status.message


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"qosClass": "NONSENSE"}, "spec.qosClass"),
        ({"qosClass": "BE", "priorityClassName": "koord-prod"}, "spec.priorityClassName"),
        ({"qosClass": "LSR", "priorityClassName": "koord-mid"}, "spec.priorityClassName"),
        ({"priorityClassName": "Not A Name"}, "spec.priorityClassName"),
        ({"probability": 101}, "spec.probability"),
        ({"probability": -1}, "spec.probability"),
        ({"probability": "half"}, "spec.probability"),
        ({"probability": "101%"}, "spec.probability"),
        ({"koordinatorPriority": 2**31}, "spec.koordinatorPriority"),
        ({"schedulerName": "Not A Name"}, "spec.schedulerName"),
        ({"labels": {"a b": "c"}}, "spec.labels"),
        ({"annotations": {"a b": "c"}}, "spec.annotations"),
        ({"labelKeysMapping": {"a": "b c"}}, "spec.labelKeysMapping[a]"),
        ({"annotationKeysMapping": {"b c": "a"}}, "spec.annotationKeysMapping"),
        ({"labelSuffixes": {"a": "b c"}}, "spec.labelSuffixes[a]"),
        ({"labelSuffixes": {"a": "-"}}, "spec.labelSuffixes[a]"),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}, "spec.selector.matchExpressions[0].operator"),
        ({"namespaceSelector": {"matchLabels": {"a": "b c"}}}, "spec.namespaceSelector.matchLabels[a]"),
        ({"patch": [1]}, "spec.patch"),
        ({"patch": {"metadata": {"name": "other"}}}, "spec.patch.metadata.name"),
        ({"patch": {"metadata": {"labels": {"a": "b c"}}}}, "spec.patch.metadata.labels"),
        ({"patch": {"metadata": "no object"}}, "spec.patch"),
        ({"patch": {"kind": "Node"}}, "spec.patch.kind"),
        ({"patch": {"status": {"phase": "Running"}}}, "spec.patch.status"),
        ({"patch": {"spec": {"$patch": "scramble"}}}, "spec.patch"),
        ({"patch": {"spec": {"priority": "high"}}}, "spec.patch.spec.priority"),
        ({"patch": {"spec": {"containers": [{"tty": True}]}}}, "spec.patch.spec.containers[*].name"),
        ({"patch": {"spec": {"containers": None}}}, "spec.patch.spec.containers"),
    ],
)
def test_a_profile_that_could_not_be_applied_is_refused_when_it_is_written(spec: Json, field: str) -> None:
    error = refusal(World(), profile(**spec), "clustercolocationprofiles")
    assert (error.status.code, error.status.reason) == (422, "Invalid")
    assert field in causes(error)


def test_a_profile_cannot_be_changed_to_an_invalid_one() -> None:
    world = world_with(profile(selector={}, **BATCH))
    patch = as_json({"spec": {"qosClass": "NONSENSE"}})
    with pytest.raises(ApiError, match=r"spec\.qosClass: Unsupported value"):
        plan_patch(world.core, PROFILES, "", "batch", "application/merge-patch+json", patch)


@pytest.mark.parametrize(
    "spec",
    [
        {"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}, "labels": {"x": "y"}},
        {"selector": {}, "probability": "half", "labels": {"x": "y"}},
        {"selector": {}, "patch": {"metadata": {"name": "other"}}},
        {"selector": {}, "labels": ["x"]},
    ],
)
def test_an_invalid_profile_that_somebody_else_stored_is_not_applied_and_pods_say_so(spec: Json) -> None:
    world = World()
    world.put(object_subject(PROFILES.group, PROFILES.plural, "", "batch"), ObjectStored(object=raw(profile(**spec))))
    pod = created(world)
    assert pod["metadata"]["labels"] == {"app": "web"}
    assert "annotations" not in pod["metadata"]
    (note,) = last_stored(world).admission
    assert note.startswith("ClusterColocationProfile batch is not applied, it is invalid: spec")


# -- how it is told ---------------------------------------------------------------------------------------------------


def test_the_pods_event_names_the_profiles_as_causes() -> None:
    world = world_with(profile(selector={}, **BATCH))
    declared = world.sequence
    planned = world.create("pods", manifest())
    assert planned.plan is not None
    assert planned.plan.writes[0].causes == (f"LOG:{declared}",)
    assert last_stored(world).admission == (
        "ClusterColocationProfile batch: label koordinator.sh/qosClass BE, priorityClassName koord-batch",
        "resources in kubernetes.io/batch-cpu and kubernetes.io/batch-memory, those of koord-batch",
        f"annotation {EXTENDED} from the containers' batch resources",
    )


def test_a_copied_manifest_does_not_carry_on_what_was_applied_to_its_model() -> None:
    document = manifest()
    document["metadata"] = {"name": "web", "annotations": {APPLIED: "batch", "mine": "1"}}
    assert created(World(), document)["metadata"]["annotations"] == {"mine": "1"}


# -- the annotation of batch resources --------------------------------------------------------------------------------


def test_batch_resources_stand_in_the_extended_resource_spec() -> None:
    pod = created(world_with(profile(selector={}, **BATCH)))
    assert json.loads(pod["metadata"]["annotations"][EXTENDED]) == {
        "containers": {"main": {"limits": {"kubernetes.io/batch-cpu": "1k"}, "requests": {"kubernetes.io/batch-cpu": "500"}}}
    }


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('{ "containers": {"main": {"requests": {"kubernetes.io/batch-cpu": "0.5k"}}} }', True),
        ('{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"501"}}}}', False),
        ("", False),
    ],
)
def test_an_extended_resource_spec_that_says_the_same_stays(text: str, kept: bool) -> None:
    resources = {"requests": {"kubernetes.io/batch-cpu": "500"}}
    document = manifest(containers=[{"name": "main", "image": "b", "resources": resources}], priority=5500)
    document["metadata"] = {"name": "web", "labels": {"koordinator.sh/qosClass": "BE"}, "annotations": {EXTENDED: text}}
    written = created(World(), document)["metadata"]["annotations"][EXTENDED]
    assert (written == text) is kept
    assert json.loads(written)["containers"]["main"]["requests"].keys() == {"kubernetes.io/batch-cpu"}


def test_an_extended_resource_spec_that_cannot_be_read_refuses_the_pod() -> None:
    document = manifest()
    document["metadata"] = {"name": "web", "annotations": {EXTENDED: "{"}}
    assert "leave it out" in causes(refusal(World(), document))[f"metadata.annotations[{EXTENDED}]"]


# -- the nodes of a quota tree ----------------------------------------------------------------------------------------


def test_a_pod_of_a_quota_tree_is_kept_on_the_trees_nodes() -> None:
    world = World()
    tree = {"quota.scheduling.koordinator.sh/tree-id": "t1"}
    nodes = {"quotaName": "team-root", "nodeSelector": {"matchLabels": {"pool": "a"}}}
    quota_kind, profile_kind = kind("elasticquotas"), kind("elasticquotaprofiles")
    for found, spec in ((quota_kind, {"max": {"cpu": "4"}}), (profile_kind, nodes)):
        declared = {
            "apiVersion": found.api_version,
            "kind": found.kind,
            "metadata": {"name": "team", "labels": tree},
            "spec": spec,
        }
        world.create(found.plural, declared)
    document = manifest()
    document["metadata"] = {"name": "web", "labels": {"quota.scheduling.koordinator.sh/name": "team"}}
    required = created(world, document)["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    wanted = {"key": "pool", "operator": "In", "values": ["a"]}
    assert required == {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    assert "affinity" not in created(world, name="free")["spec"]


# -- properties -------------------------------------------------------------------------------------------------------

_AMOUNTS = st.dictionaries(
    st.sampled_from(("cpu", "memory", "kubernetes.io/batch-cpu", "kubernetes.io/mid-cpu", "nvidia.com/gpu")),
    st.sampled_from(("0", "1", "500m", "1.5", "3Gi", "1e3")),
)
_CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.just("a")},
        optional={"resources": st.fixed_dictionaries({}, optional={"requests": _AMOUNTS, "limits": _AMOUNTS})},
    ),
    max_size=3,
)


@given(containers=_CONTAINERS, init=_CONTAINERS, tier=st.sampled_from(list(PriorityClass)))
@settings(max_examples=200, deadline=None)
def test_translation_leaves_no_native_amounts_and_is_done_once(
    containers: list[Json], init: list[Json], tier: PriorityClass
) -> None:
    spec = json.dumps({"containers": containers, "initContainers": init}).encode()
    once = translated_spec(spec, tier)
    assert translated_spec(once, tier) == once
    if tier not in (PriorityClass.BATCH, PriorityClass.MID):
        assert once == spec
        return
    for container in (found for section in json.loads(once).values() for found in section):
        for amounts in container.get("resources", {}).values():
            assert not {"cpu", "memory"} & amounts.keys()
