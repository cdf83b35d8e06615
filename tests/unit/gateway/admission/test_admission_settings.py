"""Feature gates of pods and the check of entries' names: what each changes, and that nothing does by default."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cotenant.domain.quota.gates import GateError, QuotaGates
from cotenant.model.names import ANNOTATION_EXTENDED_RESOURCE_SPEC
from cotenant_gateway.read_model.settings import AdmissionSettings, FeatureGates, feature_gates, settings_of
from cotenant_gateway.statuses import ApiError
from tests.builders import container
from tests.unit.gateway.builders_gateway import World, causes, manifest

BATCH_PROFILE: dict[str, Any] = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "batch"},
    "spec": {"qosClass": "BE", "priorityClassName": "koord-batch"},
}


def created(settings: AdmissionSettings, **spec: Any) -> dict[str, Any]:
    world = World(settings=settings)
    world.create("clustercolocationprofiles", BATCH_PROFILE)
    world.create("pods", manifest(**spec))
    shown: dict[str, Any] = world.show("pods", "web")
    return shown


def test_profiles_translate_resources_unless_the_gate_says_so() -> None:
    for off, resource in ((False, "kubernetes.io/batch-cpu"), (True, "cpu")):
        pod = created(AdmissionSettings(skip_mutating_resources=off))
        assert [*pod["spec"]["containers"][0]["resources"]["requests"]] == [resource]
        assert pod["metadata"]["labels"]["koordinator.sh/qosClass"] == "BE"


def test_the_extended_resource_spec_is_written_unless_it_is_disabled() -> None:
    containers = [container(image="app:1", requests={"kubernetes.io/batch-cpu": "500"})]
    for off in (False, True):
        pod = created(AdmissionSettings(disable_extended_resource_spec=off), containers=containers)
        assert (ANNOTATION_EXTENDED_RESOURCE_SPEC in pod["metadata"]["annotations"]) is not off


def test_gpus_are_written_in_their_parts_unless_that_is_disabled() -> None:
    containers = [container(image="app:1", limits={"koordinator.sh/gpu": "200"}, requests={"koordinator.sh/gpu": "200"})]
    parts = {"koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio", "koordinator.sh/gpu.shared"}
    for off, names in ((False, parts), (True, {"koordinator.sh/gpu"})):
        pod = created(feature_gates(f"DisableDeviceResourceSpec={off}").admission, containers=containers)
        assert {*pod["spec"]["containers"][0]["resources"]["requests"]} - {"cpu", "memory"} == names


def test_the_sub_priority_of_a_live_pod_stays_unless_it_is_not_validated() -> None:
    patch = {"metadata": {"labels": {"koordinator.sh/priority": "7"}}}
    world = World()
    world.create("pods", manifest())
    with pytest.raises(ApiError) as caught:
        world.patch("pods", "web", patch)
    assert [*causes(caught.value)] == ["labels.koordinator.sh/priority"]
    world = World(settings=AdmissionSettings(skip_validating_priority=True))
    world.create("pods", manifest())
    world.patch("pods", "web", patch)
    assert world.show("pods", "web")["metadata"]["labels"]["koordinator.sh/priority"] == "7"


def configuration(*names: object) -> dict[str, Any]:
    entries = [
        {"nodeSelector": {"matchLabels": {"pool": str(index)}}, **({} if name is None else {"name": name})}
        for index, name in enumerate(names)
    ]
    labels = {"koordinator.sh/configmap-type": "slo-controller-config"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "slo-controller-config", "labels": labels},
        "data": {"cpu-burst-config": json.dumps({"nodeStrategies": entries})},
    }


def test_entries_have_names_of_their_own_where_that_is_checked() -> None:
    wrong = configuration("a", None, "a", "")
    World().create("configmaps", wrong, namespace="koordinator-system")
    checked = AdmissionSettings(entries_need_names=True)
    with pytest.raises(ApiError) as caught:
        World(settings=checked).create("configmaps", wrong, namespace="koordinator-system")
    place = "data[cpu-burst-config].nodeStrategies"
    assert [*causes(caught.value)] == [f"{place}[{index}].name" for index in (1, 2, 3)]
    World(settings=checked).create("configmaps", configuration("a", "b"), namespace="koordinator-system")


def test_gates_of_pods_and_quotas_stand_in_one_flag() -> None:
    off = "ColocationProfileSkipMutatingResources=false"
    found = feature_gates(f"DisableExtendedResourceSpec=true, EnableQuotaAdmission=true,{off}")
    assert found == FeatureGates(QuotaGates(admission=True), AdmissionSettings(disable_extended_resource_spec=True))
    assert settings_of(found, "true") == AdmissionSettings(disable_extended_resource_spec=True, entries_need_names=True)
    with pytest.raises(GateError, match="there is no feature gate 'Enable'"):
        feature_gates("Enable=true")
    with pytest.raises(GateError, match="is 'maybe': must be true or false"):
        feature_gates("DisableExtendedResourceSpec=maybe")
