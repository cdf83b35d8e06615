"""The node configuration when it is written with the label that asks for the check."""

from __future__ import annotations

import json

import pytest

from cotenant.api.objects.metadata import LabelSelector, LabelSelectorRequirement
from cotenant_gateway.admission.node_configuration import MAX_SAMPLE_NODES, overlap
from cotenant_gateway.planning.updates import plan_patch
from cotenant_gateway.statuses import ApiError
from tests.unit.gateway.builders_gateway import World, as_json, kind

CHECKED = {"koordinator.sh/configmap-type": "slo-controller-config"}
CONFIG_MAPS = kind("configmaps")


def config(labels: dict[str, str] | None = None, **sections: object) -> dict[str, object]:
    data = {name.replace("_", "-"): text if isinstance(text, str) else json.dumps(text) for name, text in sections.items()}
    metadata = {"name": "slo-controller-config", "labels": CHECKED if labels is None else labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def faults(world: World, document: object) -> dict[str, str]:
    """Field to message of what is refused; nothing if it is stored."""
    try:
        world.create("configmaps", document, namespace="koordinator-system")
    except ApiError as error:
        return {cause.field: cause.message for cause in error.status.details.causes} if error.status.details else {}
    return {}


def for_nodes(**labels: str) -> dict[str, object]:
    return {"nodeSelector": {"matchLabels": labels}}


@pytest.mark.parametrize(
    ("section", "value", "field"),
    [
        ("colocation-config", {"degradeTimeMinutes": 0}, "degradeTimeMinutes"),
        ("colocation-config", {"DegradeTimeMinutes": 0}, "degradeTimeMinutes"),
        ("colocation-config", {"degradeTimeMinutes": 1.5}, "degradeTimeMinutes"),
        ("colocation-config", {"resourceDiffThreshold": 0}, "resourceDiffThreshold"),
        (
            "colocation-config",
            {"nodeConfigs": [for_nodes(a="b") | {"midUnallocatedPercent": 101}]},
            "nodeConfigs[0].midUnallocatedPercent",
        ),
        (
            "resource-threshold-config",
            {"clusterStrategy": {"memoryEvictLowerPercent": 60}},
            "clusterStrategy.memoryEvictThresholdPercent",
        ),
        (
            "resource-threshold-config",
            {"clusterStrategy": {"memoryEvictLowerPercent": 70, "memoryEvictThresholdPercent": 70}},
            "clusterStrategy.memoryEvictLowerPercent",
        ),
        (
            "resource-qos-config",
            {"clusterStrategy": {"lsClass": {"memoryQOS": {"priority": 13}}}},
            "clusterStrategy.lsClass.memoryQOS.priority",
        ),
        ("system-config", {"clusterStrategy": {"watermarkScaleFactor": 401}}, "clusterStrategy.watermarkScaleFactor"),
        ("cpu-burst-config", {"nodeStrategies": [{"cpuBurstPercent": 1}]}, "nodeStrategies[0].nodeSelector"),
        (
            "cpu-burst-config",
            {"nodeStrategies": [{"nodeSelector": {"matchLabels": {"a b": "c"}}}]},
            "nodeStrategies[0].nodeSelector.matchLabels",
        ),
        ("cpu-burst-config", {"nodeStrategies": {}}, "nodeStrategies"),
    ],
)
def test_a_value_out_of_its_range_is_refused_with_its_place(section: str, value: object, field: str) -> None:
    assert [*faults(World(), config(None, **{section: value}))] == [f"data[{section}].{field}"]


def test_text_that_is_no_json_is_refused() -> None:
    assert "is no JSON" in faults(World(), config(colocation_config="{"))["data[colocation-config]"]


def test_every_violation_is_told() -> None:
    found = faults(World(), config(colocation_config={"degradeTimeMinutes": 0}, system_config=[]))
    assert [*found] == ["data[colocation-config].degradeTimeMinutes", "data[system-config]"]


def test_what_is_right_is_stored() -> None:
    right = {"enable": True, "cpuReclaimThresholdPercent": 101, "resourceDiffThreshold": 1, "unknown": {"a": None}}
    entries = [for_nodes(pool="a") | {"cpuReclaimThresholdPercent": 50}, for_nodes(pool="b")]
    assert not faults(World(), config(colocation_config={**right, "nodeConfigs": entries}, cpu_burst_config=""))


def test_without_the_label_nothing_is_checked() -> None:
    assert not faults(World(), config({}, colocation_config="{"))


def test_a_section_that_does_not_change_is_not_checked_again() -> None:
    world = World()
    world.create("configmaps", config({}, colocation_config="{"), namespace="koordinator-system")
    name, patch_type = "slo-controller-config", "application/merge-patch+json"

    def patched(document: object) -> None:
        plan_patch(world.core, CONFIG_MAPS, "koordinator-system", name, patch_type, as_json(document))

    patched({"metadata": {"labels": CHECKED}})
    with pytest.raises(ApiError, match="is no JSON"):
        patched({"metadata": {"labels": CHECKED}, "data": {"colocation-config": "["}})


def test_two_entries_for_one_node_are_refused() -> None:
    entries = [for_nodes(pool="a"), {"nodeSelector": {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}}]
    found = faults(World(), config(system_config={"nodeStrategies": entries}))
    assert "entries 0 and 1 can select the same node" in found["data[system-config].nodeStrategies"]


def test_a_node_that_two_entries_select_is_named() -> None:
    world = World()
    labels = {"pool": "a", "zone": "b"}
    world.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels}})
    found = faults(world, config(system_config={"nodeStrategies": [for_nodes(pool="a"), for_nodes(zone="b")]}))
    assert "node n1 is selected by the entries [0, 1]" in found["data[system-config].nodeStrategies"]


def test_the_search_for_overlaps_has_an_end() -> None:
    primes = (97, 89, 83, 79, 73)
    expressions = [
        LabelSelectorRequirement(key=f"k{size}", operator="In", values=[str(value) for value in range(size)]) for size in primes
    ]
    assert MAX_SAMPLE_NODES < 97 * 89
    assert overlap([LabelSelector(match_expressions=expressions), LabelSelector(match_labels={"other": "1"})]) is None
    assert overlap([LabelSelector(match_expressions=expressions), LabelSelector(match_labels={"k97": "96"})]) == (0, 1)
