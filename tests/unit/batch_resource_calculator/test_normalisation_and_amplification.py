"""How fast a node's CPUs are and by how much its allocatable is amplified, decided through apply and decide."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.domain.amplification import MAX_RATIO, amplified, format_ratios, parse_ratios
from cotenant.events import MachineTopology
from cotenant.events.node.metrics import Usage
from cotenant.events.node.topology import CpuBasicInfo, LogicalCPU, NumaNode
from cotenant.model.bounds import MAX_AMOUNT
from cotenant.model.names import ANNOTATION_AMPLIFICATION_RATIO
from cotenant.model.subjects import object_subject, topology_subject
from cotenant_batch_resource_calculator.config.ratios import (
    AMPLIFICATION,
    NORMALIZATION,
    AmplificationStrategy,
    ModelRatios,
    NormalizationStrategy,
    load_ratios,
    select_ratios,
)
from cotenant_batch_resource_calculator.formulas.amplification import amplification
from cotenant_batch_resource_calculator.formulas.normalization import (
    HIGHEST_RATIO,
    LOWEST_RATIO,
    RatioError,
    normalization,
    ratio_from_model,
)
from tests.unit.batch_resource_calculator.builders_batch_resource_calculator import (
    GIB,
    NOON,
    Bench,
    last_per_subject,
    used,
)

ENABLED = '{"enable": true}'
MODEL = "Xeon 8369B"
NORMALIZED = json.dumps({"enable": True, "ratioModel": {MODEL: {"baseRatio": 1.2, "hyperThreadTurboEnabledRatio": 1.5}}})


def machine(
    bench: Bench, *, model: str = MODEL, turbo: bool = False, threads: bool = False, numa: tuple[NumaNode, ...] = ()
) -> None:
    cpus = tuple(LogicalCPU(cpu=cpu, core=cpu, node=cpu % max(len(numa), 1)) for cpu in range(8))
    info = CpuBasicInfo(cpu_model=model, turbo_enabled=turbo, hyper_thread_enabled=threads)
    bench.store(topology_subject("a"), MachineTopology(node="a", cpus=cpus, cpu=info, numa_nodes=numa))


def nrt(bench: Bench, info: dict[str, Any] | str, zones: list[dict[str, object]] | None = None) -> None:
    text = info if isinstance(info, str) else json.dumps(info)
    metadata = {"name": "a", "annotations": {"node.koordinator.sh/cpu-basic-info": text}}
    subject = object_subject("topology.node.k8s.io", "noderesourcetopologies", "", "a")
    bench.store_object(subject, {"metadata": metadata, "zones": zones or []})


@pytest.fixture
def bench() -> Bench:
    """A node of 100 CPUs that nobody uses, with the CPUs of MODEL."""
    bench = Bench()
    bench.configure(ENABLED, cpu_normalization_config=NORMALIZED)
    bench.node()
    bench.metric(system=used(0, 1))
    machine(bench)
    return bench


# -- normalisation -------------------------------------------------------------------------------------------------


def test_the_model_that_the_executor_reports_decides_the_ratio(bench: Bench) -> None:
    bench.decide()
    assert bench.resources().cpu_normalization == "1.20"
    assert bench.resources().cpu_normalization_ratio == 1.2
    assert bench.resources().batch_cpu_milli == 72_000


def test_threads_and_turbo_choose_the_ratio_of_the_model(bench: Bench) -> None:
    machine(bench, turbo=True, threads=True)
    bench.decide()
    assert bench.resources().cpu_normalization == "1.50"


def test_an_nrt_object_stands_before_what_the_executor_reports(bench: Bench) -> None:
    nrt(bench, {"cpuModel": MODEL, "hyperThreadEnabled": True, "turboEnabled": True})
    bench.decide()
    assert bench.resources().cpu_normalization == "1.50"


def test_the_nodes_label_stands_before_the_section(bench: Bench) -> None:
    bench.node(labels={"node.koordinator.sh/cpu-normalization-enabled": "false"})
    bench.decide()
    assert bench.resources().cpu_normalization == "1.00"
    assert bench.resources().batch_cpu_milli == 60_000


def test_without_the_section_and_the_label_the_annotation_of_the_object_counts(bench: Bench) -> None:
    bench.configure(ENABLED)
    bench.node(annotations={"node.koordinator.sh/cpu-normalization-ratio": "1.10"})
    bench.decide()
    assert bench.resources().cpu_normalization == ""
    assert bench.resources().batch_cpu_milli == 66_000


def test_a_ratio_that_cannot_be_found_any_more_stays_for_annotation_and_batch_alike(bench: Bench) -> None:
    bench.decide()
    machine(bench, model="unheard of")
    bench.metric(system=used(30, 1))
    bench.decide()
    assert bench.resources().cpu_normalization == "1.20"
    assert bench.resources().batch_cpu_milli == 36_000
    assert "the ratio 1.20 stays" in bench.resources().message


def test_a_rejected_section_keeps_the_ratio_and_says_so(bench: Bench) -> None:
    bench.decide()
    bench.configure(ENABLED, cpu_normalization_config='{"enable": 1}')
    bench.decide()
    assert bench.resources().cpu_normalization == "1.20"
    assert bench.resources().reason == "ConfigRejected"
    assert "cpu-normalization-config" in bench.resources().message


def test_a_node_that_lends_nothing_is_normalised_all_the_same(bench: Bench) -> None:
    bench.configure(None, cpu_normalization_config=NORMALIZED)
    bench.decide()
    assert bench.resources().withdrawn
    assert bench.resources().cpu_normalization == "1.20"
    assert bench.resources().amplification == {"cpu": 1.2}


@pytest.mark.parametrize("ratio", [0.99, 5.01, 0.0, -1.0, 1e300])
def test_a_ratio_out_of_range_is_an_error(ratio: float) -> None:
    strategy = NormalizationStrategy(enable=True, ratio_model={MODEL: ModelRatios(base_ratio=ratio)})
    with pytest.raises(RatioError, match=r"must be between 1\.0 and 5\.0"):
        normalization({}, strategy, CpuBasicInfo(cpu_model=MODEL))


def test_models_and_states_that_are_not_listed_have_the_default_ratio() -> None:
    strategy = NormalizationStrategy(enable=True, ratio_model={MODEL: ModelRatios(base_ratio=2.0)}, default_ratio=1.3)
    assert ratio_from_model(CpuBasicInfo(cpu_model=MODEL), strategy) == 2.0
    assert ratio_from_model(CpuBasicInfo(cpu_model=MODEL, turbo_enabled=True), strategy) == 1.3
    assert ratio_from_model(CpuBasicInfo(cpu_model="another"), strategy) == 1.3


def test_nothing_known_of_the_cpus_is_an_error() -> None:
    with pytest.raises(RatioError, match="CPUs are unknown"):
        normalization({}, NormalizationStrategy(enable=True, default_ratio=1.3), None)


@given(st.floats(LOWEST_RATIO, HIGHEST_RATIO))
def test_every_ratio_is_written_with_two_decimals(ratio: float) -> None:
    text = normalization({}, NormalizationStrategy(enable=True, default_ratio=ratio), CpuBasicInfo(cpu_model="x"))
    assert abs(float(text) - ratio) <= 0.005 + 1e-9
    assert len(text.partition(".")[2]) == 2


# -- configuration -------------------------------------------------------------------------------------------------


def test_an_entry_replaces_models_as_a_whole_and_keeps_the_others() -> None:
    given_text = {
        "enable": True,
        "RatioModel": {"x": {"BaseRatio": 1.1, "turboEnabledRatio": 1.2}, "y": {"baseRatio": 1.3}},
        "nodeConfigs": [{"nodeSelector": {"matchLabels": {"pool": "a"}}, "ratioModel": {"x": {"baseRatio": 2}}}],
    }
    section = load_ratios(NORMALIZATION, json.dumps(given_text))
    assert select_ratios(section, {}).ratio_model["x"] == ModelRatios(base_ratio=1.1, turbo_enabled_ratio=1.2)
    assert select_ratios(section, {"pool": "a"}).ratio_model == {
        "x": ModelRatios(base_ratio=2.0),
        "y": ModelRatios(base_ratio=1.3),
    }


def test_without_a_section_nothing_is_enabled() -> None:
    assert select_ratios(load_ratios(AMPLIFICATION, None), {}) == AmplificationStrategy(enable=False)
    assert not load_ratios(NORMALIZATION, None).given


# -- amplification -------------------------------------------------------------------------------------------------


def test_amplification_is_the_product_with_the_ratio_decided_at_the_same_time(bench: Bench) -> None:
    text = '{"enable": true, "resourceAmplificationRatio": {"cpu": 1.5, "memory": 1.25}}'
    bench.configure(ENABLED, cpu_normalization_config=NORMALIZED, resource_amplification_config=text)
    bench.decide()
    assert bench.resources().amplification == {"cpu": 1.8, "memory": 1.25}
    terms = {term.name: term for term in bench.resources().terms}
    assert (terms["allocatable"].cpu_milli, terms["amplified"].cpu_milli) == (100_000, 180_000)
    assert terms["amplified"].memory_bytes == 125 * GIB


def test_normalised_cpus_alone_amplify_cpu(bench: Bench) -> None:
    bench.decide()
    assert bench.resources().amplification == {"cpu": 1.2}


def test_an_amplification_below_one_is_an_error_and_the_ratios_before_stay(bench: Bench) -> None:
    bench.decide()
    text = '{"enable": true, "resourceAmplificationRatio": {"memory": 0.5}}'
    bench.configure(ENABLED, cpu_normalization_config=NORMALIZED, resource_amplification_config=text)
    bench.decide()
    assert bench.resources().amplification == {"cpu": 1.2}


def test_batch_is_computed_from_what_the_machine_has(bench: Bench) -> None:
    """An amplified allocatable in the object does not make the kubelet's reserve smaller."""
    annotations = {"node.koordinator.sh/raw-allocatable": '{"cpu": "60"}'}
    bench.configure(ENABLED)
    bench.node(allocatable={"cpu": "120", "memory": "100Gi"}, annotations=annotations)
    bench.decide()
    terms = {term.name: term for term in bench.resources().terms}
    assert terms["kubelet-reserved"].cpu_milli == 40_000
    assert bench.resources().batch_cpu_milli == 20_000


@given(st.dictionaries(st.sampled_from(["cpu", "memory", "x"]), st.floats(1.0, MAX_RATIO)), st.floats(1.0, 5.0))
def test_ratios_survive_their_text(ratios: dict[str, float], normalized: float) -> None:
    strategy = AmplificationStrategy(enable=True, resource_amplification_ratio=ratios)
    try:
        found = amplification(strategy, normalized)
    except RatioError:
        assert ratios.get("cpu", 1.0) * normalized > MAX_RATIO
        return
    text = format_ratios(found)
    assert parse_ratios({ANNOTATION_AMPLIFICATION_RATIO: text} if text else {}) == found


@given(st.integers(0, MAX_AMOUNT), st.integers(0, MAX_AMOUNT), st.floats(-1.0, MAX_RATIO, allow_nan=False))
def test_amplified_amounts_are_never_below_the_raw_ones_nor_beyond_the_bounds(cpu: int, memory: int, ratio: float) -> None:
    found = amplified({"cpu": cpu, "memory": memory, "pods": 1}, {"cpu": ratio, "memory": ratio, "pods": ratio})
    assert found.keys() <= {"cpu", "memory"}
    for name, raw in (("cpu", cpu), ("memory", memory)):
        if name in found:
            # A double holds 53 bits of the thousandths.
            assert raw - (raw >> 40) - 1 <= found[name] <= MAX_AMOUNT


# -- zones ---------------------------------------------------------------------------------------------------------


def test_zones_are_those_of_the_machine_where_no_object_names_any(bench: Bench) -> None:
    machine(bench, numa=(NumaNode(node=1, memory_bytes=40 * GIB), NumaNode(node=0, memory_bytes=60 * GIB)))
    bench.decide()
    zones = [(zone.name, zone.batch_cpu_milli) for zone in bench.resources().zones]
    assert zones == [("node-0", 2_880), ("node-1", 2_880)]
    nrt(bench, "{}", [{"name": "node-0", "resources": [{"name": "cpu", "allocatable": "10"}]}])
    bench.decide()
    assert [zone.name for zone in bench.resources().zones] == ["node-0"]


def test_zones_of_the_machine_lack_the_kubelets_reserve_where_the_label_says_so(bench: Bench) -> None:
    bench.configure('{"enable": true, "cpuReclaimThresholdPercent": 100}')
    allocatable = {"cpu": "99", "memory": "100Gi"}
    label = {"node.koordinator.sh/enable-numa-reservation": "true"}
    numa = (NumaNode(node=0, memory_bytes=50 * GIB), NumaNode(node=1, memory_bytes=50 * GIB))
    machine(bench, numa=numa)
    bench.node(allocatable=allocatable)
    bench.decide()
    before = [zone.batch_cpu_milli for zone in bench.resources().zones]
    bench.node(allocatable=allocatable, labels=label)
    bench.decide()
    after = [zone.batch_cpu_milli for zone in bench.resources().zones]
    assert before == [3_500, 3_500]
    assert after == [3_000, 3_000]


# -- what a restart and a repetition make of it --------------------------------------------------------------------


def test_a_restart_decides_nothing_new(bench: Bench) -> None:
    text = '{"enable": true, "resourceAmplificationRatio": {"memory": 1.25}}'
    bench.configure(ENABLED, cpu_normalization_config=NORMALIZED, resource_amplification_config=text)
    machine(bench, numa=(NumaNode(node=0, memory_bytes=60 * GIB),))
    bench.decide()
    assert bench.decide() == []
    restarted = Bench()
    for event in last_per_subject(bench.log):
        restarted.core.apply(event)
    assert list(restarted.core.decide(NOON)) == []


def test_what_is_held_while_nothing_is_heard_follows_the_devices_and_the_ratios(bench: Bench) -> None:
    bench.decide()
    bench.metric(system=Usage(cpu_milli=1), unknown_since=bench.log[-1].time)
    bench.decide()
    machine(bench, turbo=True, threads=True)
    bench.decide()
    assert bench.resources().reason == "MetricUnknown"
    assert bench.resources().cpu_normalization == "1.50"
    assert bench.resources().batch_cpu_milli == 72_000


