"""Nodes when they are written: annotations and labels of overcommitment, and entries of the configuration that select them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant_batch_resource_calculator.config.colocation import ratio_percent
from cotenant_gateway.statuses import ApiError
from tests.unit.gateway.builders_gateway import World, causes

DOMAIN = "node.koordinator.sh"
ANNOTATIONS = (
    "resource-amplification-ratio",
    "raw-allocatable",
    "cpu-normalization-ratio",
    "network-bandwidth",
    "colocation-strategy",
)
ODD = ("1" * 4_000, "{" * 5_000, '{"cpu":1e400}', '{"cpu":NaN}', "null", "-0", "1e999")


def node(name: str = "n1", annotations: dict[str, str] | None = None, **labels: str) -> dict[str, object]:
    noted = {f"{DOMAIN}/{key}": value for key, value in (annotations or {}).items()}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels, "annotations": noted}}


def faults(document: object) -> dict[str, str]:
    """Field to message of what is refused; nothing if the node is taken."""
    try:
        World().create("nodes", document)
    except ApiError as error:
        return causes(error)
    return {}


@pytest.mark.parametrize(
    ("annotation", "text", "below"),
    [
        ("resource-amplification-ratio", "1.2", ""),
        ("resource-amplification-ratio", "{", ""),
        ("resource-amplification-ratio", '{"cpu": 0.9}', "[cpu]"),
        ("resource-amplification-ratio", '{"cpu": "1.2"}', "[cpu]"),
        ("resource-amplification-ratio", '{"cpu": 1e18}', "[cpu]"),
        ("raw-allocatable", '{"cpu": "many"}', "[cpu]"),
        ("raw-allocatable", '{"cpu": 9e30}', "[cpu]"),
        ("cpu-normalization-ratio", "0", ""),
        ("cpu-normalization-ratio", "-1", ""),
        ("cpu-normalization-ratio", "fast", ""),
        ("cpu-normalization-ratio", "1e3", ""),
        ("network-bandwidth", "fast", ""),
        ("colocation-strategy", "[]", ""),
        ("colocation-strategy", '{"degradeTimeMinutes": 0}', ".degradeTimeMinutes"),
        ("colocation-strategy", '{"enable": "yes"}', ".enable"),
    ],
)
def test_an_annotation_that_nobody_could_read_is_refused(annotation: str, text: str, below: str) -> None:
    assert [*faults(node(annotations={annotation: text}))] == [f"metadata.annotations[{DOMAIN}/{annotation}]{below}"]


@pytest.mark.parametrize(
    ("text", "below"),
    [
        ("{", ""),
        ("[]", ""),
        ('{"usageThresholds": {"cpu": 1e30}}', ".usageThresholds[cpu]"),
        ('{"usageThresholds": {"cpu": 101}}', ".usageThresholds[cpu]"),
        ('{"prodUsageThresholds": {"memory": -1}}', ".prodUsageThresholds[memory]"),
        ('{"aggregatedUsage": {"usageThresholds": {"cpu": "65"}}}', ".aggregatedUsage.usageThresholds[cpu]"),
        ('{"aggregatedUsage": {"usageAggregationType": "p10"}}', ".aggregatedUsage.usageAggregationType"),
        ('{"aggregatedUsage": {"usageAggregatedDuration": "soon"}}', ".aggregatedUsage.usageAggregatedDuration"),
    ],
)
def test_usage_thresholds_that_the_scheduler_could_not_read_are_refused(text: str, below: str) -> None:
    document = node()
    metadata = document["metadata"]
    assert isinstance(metadata, dict)
    metadata["annotations"] = {"scheduling.koordinator.sh/usage-thresholds": text}
    assert [*faults(document)] == [f"metadata.annotations[scheduling.koordinator.sh/usage-thresholds]{below}"]


def test_a_label_that_nobody_could_read_is_refused() -> None:
    labels = {f"{DOMAIN}/cpu-reclaim-ratio": "half", f"{DOMAIN}/cpu-normalization-enabled": "on"}
    assert {*faults(node("n1", None, **labels))} == {f"metadata.labels[{label}]" for label in labels}


@pytest.mark.parametrize("label", ["cpu-reclaim-ratio", "memory-reclaim-ratio", "mid-static-cpu-reserved-ratio"])
def test_a_ratio_label_that_the_calculator_would_ignore_is_refused(label: str) -> None:
    assert ratio_percent("100") == 10_000
    assert ratio_percent("100.1") is None
    assert not faults(node("n1", None, **{f"{DOMAIN}/{label}": "100"}))
    assert [*faults(node("n1", None, **{f"{DOMAIN}/{label}": "100.1"}))] == [f"metadata.labels[{DOMAIN}/{label}]"]


def test_what_koordinators_manuals_write_on_a_node_is_taken() -> None:
    annotations = {
        "resource-amplification-ratio": '{"cpu":1.22,"memory":1}',
        "raw-allocatable": '{"cpu":"8","memory":"16Gi"}',
        "cpu-normalization-ratio": "1.20",
        "network-bandwidth": "10G",
        "colocation-strategy": '{"enable":true,"cpuReclaimThresholdPercent":120}',
        "reservation": '{"resources":{"cpu":"2"},"applyPolicy":"ReservedCPUsOnly"}',
    }
    labels = {f"{DOMAIN}/cpu-normalization-enabled": "true", f"{DOMAIN}/cpu-reclaim-ratio": "0.29"}
    assert not faults(node(annotations=annotations, **labels))


def test_an_apply_policy_of_a_reservation_that_nobody_knows_is_refused() -> None:
    world = World()
    annotation = f"{DOMAIN}/reservation"
    with pytest.raises(ApiError) as caught:
        world.create("nodes", node(annotations={"reservation": '{"reservedCPUs":"0-1","applyPolicy":"reservedCPUsOnly"}'}))
    assert "must be Default or ReservedCPUsOnly" in causes(caught.value)[f"metadata.annotations[{annotation}]"]


def test_a_value_that_stands_already_does_not_keep_a_node_from_changing() -> None:
    world = World()
    world.create("nodes", node())
    broken = {"metadata": {"annotations": {f"{DOMAIN}/colocation-strategy": "{"}}}
    with pytest.raises(ApiError, match="is not JSON"):
        world.patch("nodes", "n1", broken)
    world.patch("nodes", "n1", {"metadata": {"labels": {"zone": "a"}}})


def world_with_configuration(*selectors: dict[str, str], section: str = "colocation-config") -> World:
    world = World()
    entries = [{"nodeSelector": {"matchLabels": selector}} for selector in selectors]
    member = "nodeConfigs" if section == "colocation-config" else "nodeStrategies"
    data = {section: json.dumps({member: entries})}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "slo-controller-config"}, "data": data}
    world.create("configmaps", config, namespace="koordinator-system")
    return world


@pytest.mark.parametrize("section", ["colocation-config", "cpu-burst-config"])
def test_labels_by_which_two_entries_would_select_a_node_are_refused(section: str) -> None:
    world = world_with_configuration({"pool": "a"}, {"zone": "b"}, section=section)
    world.create("nodes", node(pool="a"))
    with pytest.raises(ApiError) as caught:
        world.patch("nodes", "n1", {"metadata": {"labels": {"zone": "b"}}})
    assert f"the entries [0, 1] of {section}" in causes(caught.value)["metadata.labels"]
    world.patch("nodes", "n1", {"metadata": {"labels": {"zone": "b", "pool": None}}})


def test_a_node_whose_labels_do_not_change_is_not_asked() -> None:
    world = World()
    world.create("nodes", node(pool="a", zone="b"))
    configured = world_with_configuration({"pool": "a"}, {"zone": "b"})
    created = configured.create("nodes", node(pool="a", zone="b"))
    assert "the entries [0, 1] of colocation-config" in created.warnings[0]
    configured.patch("nodes", "n1", {"spec": {"unschedulable": True}})


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(ANNOTATIONS),
        st.text(max_size=30) | st.sampled_from(ODD),
    )
)
def test_whatever_is_annotated_is_taken_or_refused_with_a_field(annotations: dict[str, str]) -> None:
    assert all(field.startswith("metadata.annotations") for field in faults(node(annotations=annotations)))


def test_an_annotation_of_a_megabyte_is_refused_by_its_size() -> None:
    assert "metadata.annotations" in faults(node(annotations={"colocation-strategy": json.dumps({"x": "a" * 300_000})}))
