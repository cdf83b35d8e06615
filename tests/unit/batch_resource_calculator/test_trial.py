"""What another configuration would change, asked of a core that goes on."""

from __future__ import annotations

import json

import msgspec

from cotenant.events.requests import ConfigEffect
from cotenant_batch_resource_calculator.trial import SLICE, effect_of
from tests.unit.batch_resource_calculator.builders_batch_resource_calculator import ENABLED, NOON, Bench, used


def cell(nodes: int) -> Bench:
    bench = Bench()
    bench.configure('{"enable": true, "cpuReclaimThresholdPercent": 60}')
    for number in range(nodes):
        name = f"n{number:03}"
        bench.node(name, labels={"pool": "x" if number % 2 else "y"})
        bench.place(f"web-{name}", node=name)
        bench.metric(name, system=used(5, 5), pods={f"web-{name}": used(10, 10)}, prod_reclaimable=used(8, 8))
    bench.decide()
    return bench


def asked(bench: Bench, data: object) -> ConfigEffect:
    steps = list(effect_of(bench.core, NOON, data if isinstance(data, bytes) else json.dumps(data).encode()))
    assert all(step is None for step in steps[:-1])
    answer = steps[-1]
    assert answer is not None
    return msgspec.json.decode(answer, type=ConfigEffect)


def test_the_change_is_told_by_nodes_and_percent_of_the_sum() -> None:
    """45 of 100 CPUs are lent of each of 4 nodes; half of them would lend 22.5 instead: 10 less to the margin."""
    colocation = {
        "enable": True,
        "cpuReclaimThresholdPercent": 60,
        "nodeConfigs": [{"nodeSelector": {"matchLabels": {"pool": "x"}}, "cpuReclaimThresholdPercent": 50}],
    }
    effect = asked(cell(4), {"colocation-config": json.dumps(colocation)})
    assert effect == ConfigEffect(nodes=2, changes={"batch-cpu": round(-100 * 20 / 180, 2)})


def test_the_same_configuration_changes_nothing() -> None:
    assert asked(cell(2), {"colocation-config": '{"enable": true}'}) == ConfigEffect()


def test_amplified_amounts_of_the_nodes_themselves_are_told() -> None:
    """Two of four nodes would offer half as much memory again."""
    entry = {"nodeSelector": {"matchLabels": {"pool": "x"}}, "enable": True, "resourceAmplificationRatio": {"memory": 1.5}}
    data = {"colocation-config": ENABLED, "resource-amplification-config": json.dumps({"nodeConfigs": [entry]})}
    assert asked(cell(4), data) == ConfigEffect(nodes=2, changes={"memory": 25.0})
    bench = cell(4)
    bench.configure(ENABLED, resource_amplification_config=data["resource-amplification-config"])
    bench.decide()
    assert asked(bench, data) == ConfigEffect()
    assert asked(bench, {"colocation-config": ENABLED}).changes == {"memory": -20.0}


def test_nodes_whose_slo_would_change_are_counted() -> None:
    entry = {"nodeSelector": {"matchLabels": {"pool": "x"}}, "cpuSuppressThresholdPercent": 70}
    threshold = {"resource-threshold-config": json.dumps({"nodeStrategies": [entry]})}
    assert asked(cell(3), {"colocation-config": ENABLED, **threshold}) == ConfigEffect(slos=1)


def test_what_nothing_is_lent_of_becomes_new() -> None:
    bench = cell(1)
    bench.configure('{"enable": false}')
    bench.decide()
    effect = asked(bench, {"colocation-config": '{"enable": true}'})
    assert effect.nodes == 1
    assert effect.changes["batch-cpu"] == effect.changes["mid-memory"] == 100.0


def test_without_colocation_everything_is_taken_back() -> None:
    assert asked(cell(3), {}).changes == dict.fromkeys(("batch-cpu", "batch-memory", "mid-cpu", "mid-memory"), -100.0)


def test_rejected_sections_are_named_with_their_field_and_change_nothing() -> None:
    effect = asked(cell(1), {"colocation-config": '{"degradeTimeMinutes": 0}', "cpu-normalization-config": "["})
    assert list(effect.rejected) == ["colocation-config", "cpu-normalization-config"]
    assert "degradeTimeMinutes is 0" in effect.rejected["colocation-config"]
    assert (effect.nodes, effect.changes, effect.error) == (0, {}, "")


def test_beside_a_rejected_section_the_others_are_computed() -> None:
    """45 of 100 CPUs are lent now; at 50 % 35."""
    colocation = '{"enable": true, "cpuReclaimThresholdPercent": 50}'
    effect = asked(cell(2), {"colocation-config": colocation, "cpu-burst-config": "["})
    assert list(effect.rejected) == ["cpu-burst-config"]
    assert (effect.nodes, effect.changes) == (2, {"batch-cpu": round(-100 * 10 / 45, 2)})


def test_a_request_that_cannot_be_read_is_answered_with_why() -> None:
    for data in (b"", b"[]", b'{"a": 1}', b"\xff"):
        assert "is not the data of a ConfigMap" in asked(cell(1), data).error


def test_asking_decides_nothing_and_changes_no_decision() -> None:
    bench = cell(2)
    assert bench.decide() == []
    asked(bench, {"colocation-config": '{"enable": true, "cpuReclaimThresholdPercent": 10}'})
    assert bench.decide() == []
    bench.metric("n000", system=used(50, 5))
    (event,) = bench.decide()
    assert bench.resources("n000").batch_cpu_milli == 0
    assert event.subject == "node.n000.resources"


def test_the_service_goes_on_between_slices_and_ended_nodes_are_left_out() -> None:
    bench = cell(SLICE + 1)
    steps = effect_of(bench.core, NOON, b"{}")
    assert next(steps) is None
    bench.delete_node(f"n{SLICE:03}")
    bench.decide()
    answer = next(steps)
    assert answer is not None
    assert msgspec.json.decode(answer, type=ConfigEffect).nodes == SLICE
