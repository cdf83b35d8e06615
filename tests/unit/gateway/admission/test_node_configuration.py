"""The node configuration when it is written with the label that asks for the check."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.api.objects.metadata import LabelSelector, LabelSelectorRequirement
from cotenant.api.objects.selectors import selector_holds
from cotenant_batch_resource_calculator.config.in_force import load_configuration
from cotenant_gateway.admission.node_configuration.overlaps import MAX_SAMPLE_NODES, EntrySelectors, overlap
from cotenant_gateway.admission.node_configuration.ranges import MAX_ENTRIES, SECTIONS, StrategyRules
from cotenant_gateway.admission.node_configuration.rules import MAX_ERRORS
from cotenant_gateway.planning.updates import plan_patch
from cotenant_gateway.statuses import ApiError
from tests.unit.gateway.builders_gateway import World, as_json, causes, kind

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
        return causes(error)
    return {}


def refusal(document: object) -> ApiError:
    with pytest.raises(ApiError) as caught:
        World().create("configmaps", document, namespace="koordinator-system")
    return caught.value


def for_nodes(**labels: str) -> dict[str, object]:
    return {"nodeSelector": {"matchLabels": labels}}


def warnings(document: object) -> tuple[str, ...]:
    """What is told of a ConfigMap that is taken."""
    return World().create("configmaps", document, namespace="koordinator-system").warnings


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
        ("cpu-burst-config", {"nodeStrategies": [None]}, "nodeStrategies[0].nodeSelector"),
        ("cpu-burst-config", {"clusterStrategy": {"policy": "sometimes"}}, "clusterStrategy.policy"),
        ("colocation-config", {"enable": "yes"}, "enable"),
        ("colocation-config", {"metricMemoryCollectPolicy": "usage"}, "metricMemoryCollectPolicy"),
        ("colocation-config", {"metricAggregatePolicy": {"durations": ["5m", "soon"]}}, "metricAggregatePolicy.durations[1]"),
        ("colocation-config", {"metricAggregatePolicy": {"durations": [300]}}, "metricAggregatePolicy.durations[0]"),
        ("colocation-config", {"degradeTimeMinutes": 10**30}, "degradeTimeMinutes"),
        ("colocation-config", {"extensions": []}, "extensions"),
        ("colocation-config", {"extensions": {"forecast": "weekday"}}, "extensions.forecast"),
        ("colocation-config", {"extensions": {"forecast": 1}}, "extensions.forecast"),
        ("colocation-config", {"extensions": {"riskBudget": []}}, "extensions.riskBudget"),
        ("colocation-config", {"extensions": {"riskBudget": {"brokenPercent": 0.05}}}, "extensions.riskBudget.brokenPercent"),
        ("colocation-config", {"extensions": {"riskBudget": {"BrokenPercent": -1}}}, "extensions.riskBudget.brokenPercent"),
        ("colocation-config", {"extensions": {"riskBudget": {"highestPercent": 101}}}, "extensions.riskBudget.highestPercent"),
        ("colocation-config", {"extensions": {"riskBudget": {"lowestPercent": 96}}}, "extensions.riskBudget.lowestPercent"),
        ("colocation-config", {"extensions": {"riskBudget": {"leastHours": 513}}}, "extensions.riskBudget.leastHours"),
        (
            "colocation-config",
            {"nodeConfigs": [for_nodes(a="b") | {"extensions": {"riskBudget": {"leastHours": 0}}}]},
            "nodeConfigs[0].extensions.riskBudget.leastHours",
        ),
        ("resource-threshold-config", {"clusterStrategy": {"cpuSuppressPolicy": "both"}}, "clusterStrategy.cpuSuppressPolicy"),
        ("resource-threshold-config", {"clusterStrategy": {"enable": 1}}, "clusterStrategy.enable"),
        ("resource-qos-config", {"clusterStrategy": {"policies": {"cpuPolicy": "x"}}}, "clusterStrategy.policies.cpuPolicy"),
        (
            "resource-qos-config",
            {"clusterStrategy": {"lsClass": {"cpuQOS": {"cpuClass": "rt"}}}},
            "clusterStrategy.lsClass.cpuQOS.cpuClass",
        ),
        (
            "resource-qos-config",
            {"clusterStrategy": {"beClass": {"blkioQOS": {"blocks": [{"ioCfg": {"readIOPS": "many"}}]}}}},
            "clusterStrategy.beClass.blkioQOS.blocks[0].ioCfg.readIOPS",
        ),
        (
            "resource-qos-config",
            {"clusterStrategy": {"beClass": {"networkQOS": {"ingressLimit": 101}}}},
            "clusterStrategy.beClass.networkQOS.ingressLimit",
        ),
        (
            "resource-qos-config",
            {"clusterStrategy": {"beClass": {"networkQOS": {"ingressLimit": "fast"}}}},
            "clusterStrategy.beClass.networkQOS.ingressLimit",
        ),
        ("system-config", {"clusterStrategy": {"totalNetworkBandwidth": "-1"}}, "clusterStrategy.totalNetworkBandwidth"),
        ("host-application-config", {"applications": [{"qos": "LS"}]}, "applications[0].name"),
        ("host-application-config", {"applications": [{"name": "y", "priority": "high"}]}, "applications[0].priority"),
        (
            "host-application-config",
            {"nodeConfigs": [for_nodes(a="b") | {"applications": [{"name": "y", "cgroupPath": {"base": "Root"}}]}]},
            "nodeConfigs[0].applications[0].cgroupPath.base",
        ),
        (
            "cpu-normalization-config",
            {"ratioModel": {"Xeon": {"hyperThreadEnabledRatio": 0.82}}},
            "ratioModel[Xeon].hyperThreadEnabledRatio",
        ),
        ("cpu-normalization-config", {"defaultRatio": 5.1}, "defaultRatio"),
        ("cpu-normalization-config", {"nodeConfigs": [{"enable": True}]}, "nodeConfigs[0].nodeSelector"),
        ("resource-amplification-config", {"resourceAmplificationRatio": {"cpu": 0.9}}, "resourceAmplificationRatio[cpu]"),
        ("resource-amplification-config", {"resourceAmplificationRatio": {"cpu": 1e18}}, "resourceAmplificationRatio[cpu]"),
        ("resource-amplification-config", {"resourceAmplificationRatio": ["cpu"]}, "resourceAmplificationRatio"),
    ],
)
def test_a_value_out_of_its_range_is_refused_with_its_place(section: str, value: object, field: str) -> None:
    assert [*faults(World(), config(None, **{section: value}))] == [f"data[{section}].{field}"]


def test_text_that_is_no_json_is_refused() -> None:
    assert "is not JSON" in faults(World(), config(colocation_config="{"))["data[colocation-config]"]


def test_every_violation_is_told() -> None:
    found = faults(World(), config(colocation_config={"degradeTimeMinutes": 0}, system_config=[]))
    assert [*found] == ["data[colocation-config].degradeTimeMinutes", "data[system-config]"]


def test_a_selector_may_be_spelled_in_any_case() -> None:
    entries = [{"NodeSelector": {"MatchLabels": {"pool": "a"}, "matchExpressions": None}}, for_nodes(pool="b")]
    assert not faults(World(), config(system_config={"nodeStrategies": entries}))


def test_what_is_right_is_stored() -> None:
    right = {"enable": True, "cpuReclaimThresholdPercent": 101, "resourceDiffThreshold": 1, "unknown": {"a": None}}
    entries = [for_nodes(pool="a") | {"cpuReclaimThresholdPercent": 50}, for_nodes(pool="b")]
    assert not faults(World(), config(colocation_config={**right, "nodeConfigs": entries}, cpu_burst_config=""))


def test_without_the_label_nothing_is_refused_and_the_writer_is_told_what_would_be() -> None:
    told = warnings(config({}, colocation_config='{"degradeTimeMinutes": 0}', system_config="{"))
    fields = [text.partition(": ")[0] for text in told[:2]]
    assert fields == ["data[colocation-config].degradeTimeMinutes", "data[system-config]"]
    assert "koordinator.sh/configmap-type: slo-controller-config the ConfigMap would have been refused" in told[2]
    assert not warnings(config({}, colocation_config={"enable": True}))


def test_what_a_warning_says_of_a_section_that_is_wrong_is_what_becomes_of_it() -> None:
    document = config({}, resource_threshold_config={"clusterStrategy": {"memoryEvictThresholdPercent": 60}}, system_config="[")
    (_, _, told) = warnings(document)
    assert "that cannot be read leaves the last one that could in force, in place of an entry of colocation-config" in told
    assert "any other is applied as it is" in told
    data = document["data"]
    assert isinstance(data, dict)
    loaded = load_configuration(data)
    threshold = loaded.strategies["resource-threshold-config"]
    assert threshold is not None
    assert threshold.cluster["memoryEvictThresholdPercent"] == 60
    assert loaded.strategies["system-config"] is None


@pytest.mark.parametrize("section", list(SECTIONS))
def test_an_empty_section_that_cannot_be_read_is_warned_of(section: str) -> None:
    told = warnings(config(None, **{section: ""}))
    rejected = load_configuration({section: ""}).rejected
    assert [f"data[{name}]" for name in rejected] == [text.partition(" is empty")[0] for text in told]
    assert all("remove the key for the defaults" in text for text in rejected.values())


def test_policies_that_do_nothing_are_warned_of() -> None:
    section = {"cpuCalculatePolicy": "request", "nodeConfigs": [for_nodes(a="b") | {"midReclaimMode": "dynamic"}]}
    assert warnings(config(colocation_config=section)) == (
        'data[colocation-config].cpuCalculatePolicy: "request" counts as usage; known: usage, maxUsageRequest',
        'data[colocation-config].nodeConfigs[0].midReclaimMode: "dynamic" is ignored; known: static',
    )


@pytest.mark.parametrize("text", ["NaN", '{"degradeTimeMinutes": Infinity}', '"\\ud800"', "[" * 100_000, "1" * 5_000])
def test_what_python_reads_and_json_is_not_is_refused(text: str) -> None:
    found = faults(World(), config(colocation_config=text))
    assert "is not JSON" in found["data[colocation-config]"]


def test_a_section_full_of_errors_is_refused_with_some_of_them() -> None:
    entries = [for_nodes(pool=str(number)) | {"degradeTimeMinutes": 0} for number in range(200)]
    error = refusal(config(colocation_config={"nodeConfigs": entries}))
    assert error.status.details is not None
    assert len(error.status.details.causes) == MAX_ERRORS + 1
    assert "has 150 more errors" in error.status.details.causes[-1].message


def test_entries_are_counted() -> None:
    entries = [for_nodes(pool=str(number)) for number in range(MAX_ENTRIES + 1)]
    found = faults(World(), config(system_config={"nodeStrategies": entries}))
    assert "must have at most 256 entries" in found["data[system-config].nodeStrategies"]


def test_host_applications_of_one_node_may_stand_in_two_entries_the_first_counts() -> None:
    assert not faults(World(), config(host_application_config={"nodeConfigs": [for_nodes(a="b"), for_nodes(a="b")]}))


@pytest.mark.parametrize(("section", "taken"), [(name, not section.by_node) for name, section in SECTIONS.items()])
def test_an_entry_for_every_node_is_taken_where_the_first_that_selects_a_node_counts(section: str, taken: bool) -> None:
    entries = [for_nodes(a="b"), {"nodeSelector": {}}]
    found = faults(World(), {**config(), "data": {section: json.dumps({SECTIONS[section].entries: entries})}})
    assert [*found] == ([] if taken else [f"data[{section}].{SECTIONS[section].entries}[1].nodeSelector"])


def network(**requests: object) -> dict[str, object]:
    """A strategy with the ingress request of each class."""
    return {of_class: {"networkQOS": {"enable": True, "ingressRequest": request}} for of_class, request in requests.items()}


@pytest.mark.parametrize(
    ("cluster", "system", "why"),
    [
        (network(lsClass=60, beClass=41), {}, "101 % together"),
        (network(lsClass=60, beClass="10M"), {}, "all requests are percentages, or all are quantities"),
        (network(lsClass="60M", beClass="41M"), {"totalNetworkBandwidth": "100M"}, "101000000 together"),
    ],
)
def test_network_requests_that_do_not_fit_are_refused(cluster: object, system: object, why: str) -> None:
    found = faults(
        World(), config(resource_qos_config={"clusterStrategy": cluster}, system_config={"clusterStrategy": system})
    )
    assert why in found["data[resource-qos-config].clusterStrategy"]


@pytest.mark.parametrize(
    ("cluster", "system"),
    [
        (network(lsClass=60, beClass=40), {"totalNetworkBandwidth": "1"}),
        (network(lsClass="60M", beClass="41M"), {}),
        (network(lsClass="60M", beClass="40M"), {"totalNetworkBandwidth": "100M"}),
        ({"lsClass": {"networkQOS": {"enable": False, "ingressRequest": 100}}, **network(beClass=40)}, {}),
    ],
)
def test_network_requests_that_fit_are_taken(cluster: object, system: object) -> None:
    assert not faults(
        World(), config(resource_qos_config={"clusterStrategy": cluster}, system_config={"clusterStrategy": system})
    )


def test_a_network_request_does_not_need_the_system_section() -> None:
    assert not faults(World(), config(resource_qos_config={"clusterStrategy": network(beClass=40)}))


def test_network_requests_of_an_entry_are_held_against_the_bandwidth_of_its_nodes() -> None:
    fast, slow = for_nodes(net="fast"), for_nodes(net="slow")
    system = {
        "clusterStrategy": {"totalNetworkBandwidth": "100M"},
        "nodeStrategies": [fast | {"totalNetworkBandwidth": "1G"}, slow],
    }
    entries = [fast | network(beClass="500M"), slow | network(beClass="60M")]
    qos = {"clusterStrategy": network(lsClass="50M"), "nodeStrategies": entries}
    found = faults(World(), config(resource_qos_config=qos, system_config=system))
    assert [*found] == ["data[resource-qos-config].nodeStrategies[1]"]


def test_a_smaller_bandwidth_alone_can_be_what_does_not_fit() -> None:
    world = World()
    qos = {"clusterStrategy": network(lsClass="60M")}
    world.create("configmaps", config(resource_qos_config=qos), namespace="koordinator-system")
    smaller = {"data": {"system-config": json.dumps({"clusterStrategy": {"totalNetworkBandwidth": "50M"}})}}
    with pytest.raises(ApiError, match="totalNetworkBandwidth is 50000000"):
        world.patch("configmaps", "slo-controller-config", smaller, namespace="koordinator-system")


def test_all_that_is_wrong_in_extensions_is_told_at_once() -> None:
    given = {"forecast": "weather", "riskBudget": {"brokenPercent": 101, "leastHours": 0}}
    assert [*faults(World(), config(colocation_config={"extensions": given}))] == [
        "data[colocation-config].extensions.forecast",
        "data[colocation-config].extensions.riskBudget.brokenPercent",
        "data[colocation-config].extensions.riskBudget.leastHours",
    ]


def test_extensions_of_another_spelling_are_warned_of() -> None:
    given = {"riskbudget": {"brokenPercent": 1}, "Forecast": "timeOfDay", "forecast": "timeOfDay", "other": {"x": 1}}
    assert warnings(config(colocation_config={"extensions": given})) == (
        "data[colocation-config].extensions[riskbudget] has no effect: the name of a risk budget is riskBudget",
        "data[colocation-config].extensions[Forecast] has no effect: the name of the forecast is forecast",
    )


def test_windows_that_metrics_ingest_cannot_have_are_warned_of() -> None:
    entry = {"nodeSelector": {"matchLabels": {"pool": "a"}}, "metricAggregatePolicy": {"durations": ["5m", "200h"]}}
    policy = {"durations": ["0"]}
    assert warnings(config(colocation_config={"metricAggregatePolicy": policy, "nodeConfigs": [entry]})) == tuple(
        f"data[colocation-config]{where}.metricAggregatePolicy.durations has no effect: "
        "1 to 8 windows of 1 s to 7 days are possible"
        for where in ("", ".nodeConfigs[0]")
    )
    assert not warnings(config(colocation_config={"metricAggregatePolicy": {"durations": ["5m", "10m", "30m"]}}))


ODD = st.sampled_from([10**18, 0.1, 99.9, "1", True])
NUMBERS = st.none() | st.integers(-1, 600) | st.floats(-1, 101, allow_nan=False) | ODD
BUDGETS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(["brokenPercent", "lowestPercent", "highestPercent", "leastHours"], NUMBERS)
)


@given(BUDGETS)
def test_the_gateway_takes_the_risk_budgets_that_the_calculator_takes(budget: dict[str, object]) -> None:
    section = json.dumps({"extensions": {"riskBudget": budget}})
    rejected = load_configuration({"colocation-config": section}).rejected
    assert bool(faults(World(), config(colocation_config=section))) == bool(rejected)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(
            ["nodeConfigs", "nodeStrategies", "clusterStrategy", "nodeSelector", "matchLabels", "beClass", "networkQOS",
             "ingressRequest", "applications", "ratioModel", "blocks", "ioCfg", "metricAggregatePolicy", "durations", "x"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(SECTIONS)), JSON)
def test_whatever_a_section_says_is_taken_or_refused_with_a_field(section: str, value: object) -> None:
    found = faults(World(), {**config(), "data": {section: json.dumps(value)}})
    assert all(field.startswith(f"data[{section}]") for field in found)


def test_a_section_that_does_not_change_is_not_checked_again() -> None:
    world = World()
    world.create("configmaps", config({}, colocation_config="{"), namespace="koordinator-system")
    name, patch_type = "slo-controller-config", "application/merge-patch+json"

    def patched(document: object) -> None:
        plan_patch(world.core, CONFIG_MAPS, "koordinator-system", name, patch_type, as_json(document))

    patched({"metadata": {"labels": CHECKED}})
    with pytest.raises(ApiError, match="is not JSON"):
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


def test_an_overlap_is_found_among_as_many_entries_of_as_many_hosts_as_there_may_be() -> None:
    """Each entry was tried against each other one for each host name: beyond 500,000 tries no overlap was found."""
    hosts = [[f"h{entry}-{host}" for host in range(100)] for entry in range(MAX_ENTRIES)]
    hosts[-1] = ["h7-99"]
    selectors = [
        LabelSelector(match_expressions=[LabelSelectorRequirement(key="host", operator="In", values=names)]) for names in hosts
    ]
    assert overlap(selectors) == (7, MAX_ENTRIES - 1)
    assert overlap(selectors[:-1]) is None


_EXPRESSIONS = st.builds(
    LabelSelectorRequirement,
    key=st.sampled_from("ab"),
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    values=st.lists(st.sampled_from("xyz"), max_size=3),
)
_SOME_LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xyz"))


_SELECTORS = st.builds(LabelSelector, match_labels=_SOME_LABELS, match_expressions=st.lists(_EXPRESSIONS, max_size=2))


@given(st.lists(_SELECTORS), _SOME_LABELS)
def test_entries_are_found_as_by_trying_each(selectors: list[LabelSelector], labels: dict[str, str]) -> None:
    each = [index for index, selector in enumerate(selectors) if selector_holds(selector, labels)]
    assert EntrySelectors(selectors).selecting(labels) == each


def object_paths(rules: StrategyRules, *path: str) -> Iterator[tuple[str, ...]]:
    """The paths of the objects within a strategy."""
    for name, inner in rules.within.items():
        yield (*path, name)
        yield from object_paths(inner, *path, name)


OBJECTS = [
    (key, path)
    for key, section in SECTIONS.items()
    for path in [*([()] if section.cluster else []), *object_paths(section.rules)]
]
"""Every object of the configuration: the cluster's strategy and what is within it."""


def with_value(key: str, path: tuple[str, ...], value: object) -> dict[str, object]:
    for name in reversed(path):
        value = {name: value}
    cluster = SECTIONS[key].cluster
    return {**config(), "data": {key: json.dumps({cluster: value} if cluster else value)}}


@pytest.mark.parametrize("value", ["text", [], [{}], 5, 0.5, True], ids=repr)
@pytest.mark.parametrize(("key", "path"), OBJECTS, ids=[".".join((key, *path)) for key, path in OBJECTS])
def test_a_part_that_is_no_object_is_refused_with_its_name(key: str, path: tuple[str, ...], value: object) -> None:
    where = ".".join((f"data[{key}]", *filter(None, (SECTIONS[key].cluster, *path))))
    assert faults(World(), with_value(key, path, value)) == {where: "Invalid value: must be an object"}


@pytest.mark.parametrize(("key", "path"), OBJECTS, ids=[".".join((key, *path)) for key, path in OBJECTS])
def test_a_part_that_is_null_counts_as_absent_and_the_writer_is_told(key: str, path: tuple[str, ...]) -> None:
    document = with_value(key, path, None)
    where = ".".join((f"data[{key}]", *filter(None, (SECTIONS[key].cluster, *path))))
    assert warnings(document) == (f"{where} is null: it counts as absent, which switches off what it configured",)


def test_a_null_within_an_entry_of_nodes_is_told_with_its_place_once() -> None:
    world = World()
    section = {"nodeStrategies": [for_nodes(a="b") | {"beClass": {"BlkioQOS": None, "resctrlQOS": {}}}]}
    told = world.create("configmaps", config(resource_qos_config=section), namespace="koordinator-system").warnings
    where = "data[resource-qos-config].nodeStrategies[0].beClass.blkioQOS"
    assert told == (f"{where} is null: it counts as absent, which switches off what it configured",)
    touched = {"metadata": {"annotations": {"a": "b"}}}
    again = world.patch("configmaps", "slo-controller-config", touched, namespace="koordinator-system")
    assert again.warnings == ()
