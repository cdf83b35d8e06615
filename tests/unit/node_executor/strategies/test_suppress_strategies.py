"""How much batch work may use, and how that gets into quota and CPU sets."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cotenant_node_executor.strategies.cpu.suppression.cfs_quota import FLOOR_US, next_quota
from cotenant_node_executor.strategies.cpu.suppression.cpu_set import next_cpuset, select_cpus, with_dead_band
from cotenant_node_executor.strategies.cpu.suppression.quantity import UsageSplit, suppress_milli
from cotenant_node_executor.strategies.cpu.suppression.strategy import CPUSET, OFF, Suppression, decide, suppress
from cotenant_node_executor.strategies.situation import Processor
from cotenant_node_executor.targets.interface import BESTEFFORT, Knob
from tests.unit.node_executor.builders_node_executor import batch, capabilities, pod, service, situation, slo, snapshot

QUOTA = (BESTEFFORT, Knob.CPU_QUOTA)
CPUS = (BESTEFFORT, Knob.CPUSET_CPUS)


def values(decided: Suppression | None) -> dict[tuple[str, Knob], str]:
    assert decided is not None
    return {
        (group, each.attribute): each.value
        for group, own in decided.values.items()
        for each in own
        if isinstance(group, str) and isinstance(each.attribute, Knob)
    }


def test_batch_gets_the_threshold_less_services_and_system() -> None:
    decided = suppress(
        situation(
            [service("web"), batch("job")],
            node_slo=slo(cpu_suppress_threshold_percent=65),
            reading=snapshot(4000, {"uid-web": 1500, "uid-job": 2000}),
        )
    )
    assert decided is not None
    assert decided.quantity_milli == 8000 * 65 // 100 - 1500 - 500
    assert values(decided)[QUOTA] == "320000"
    assert "1500m services" in decided.why


def test_a_pod_without_manifest_counts_as_a_service_and_one_without_qos_label_by_its_kubernetes_class() -> None:
    known = suppress(
        situation([pod("plain")], node_slo=slo(), reading=snapshot(3000, {"uid-plain": 1000, "uid-unknown": 2000}))
    )
    assert known is not None
    assert known.split is not None
    assert known.split.pods_non_be_milli == 2000


def test_seed_5_a_batch_pod_that_ended_since_the_sample_is_not_taken_for_a_service() -> None:
    """Found by `cotenant simulate --chaos --seed 5`: the bound of the others dipped by what the ended pod had used."""
    reading = snapshot(3000, {"uid-web": 1000, "uid-ended": 1500})
    ended = msgspec.structs.replace(reading.pods["uid-ended"], tier=BESTEFFORT)
    reading = msgspec.structs.replace(reading, pods={**reading.pods, "uid-ended": ended})
    decided = suppress(situation([service("web")], node_slo=slo(), reading=reading))
    assert decided is not None
    assert decided.split is not None
    assert decided.split.pods_non_be_milli == 1000


def test_nothing_is_written_without_node_slo_or_usage() -> None:
    assert suppress(situation([batch("job")], reading=snapshot(100))) is None
    assert suppress(situation([batch("job")], node_slo=slo())) is None
    assert suppress(situation([batch("job")], node_slo=slo(), reading=snapshot(None))) is None
    kept = decide(situation([batch("job")], node_slo=slo()), None)
    assert (kept.keep, kept.values, kept.memory) == (True, {}, None)


def test_disabled_means_unlimited_and_the_widest_cpu_set() -> None:
    decided = suppress(situation([batch("job")], node_slo=slo(enable=False)))
    assert decided is not None
    assert decided.policy == OFF
    assert values(decided)[QUOTA] == "-1"
    assert values(decided)[CPUS] == "0-7"
    assert values(decided)[("besteffort/poduid-job/main", Knob.CPUSET_CPUS)] == "0-7"


def test_the_cpuset_policy_narrows_the_whole_tree_and_lifts_the_quota() -> None:
    decided = suppress(
        situation(
            [service("web"), batch("job")],
            node_slo=slo(cpu_suppress_policy="cpuset"),
            reading=snapshot(4000, {"uid-web": 3000, "uid-job": 1000}),
            current={CPUS: "0-7"},
        )
    )
    assert decided is not None
    assert decided.policy == CPUSET
    found = values(decided)
    assert found[QUOTA] == "-1"
    assert found[CPUS] == found[("besteffort/poduid-job", Knob.CPUSET_CPUS)] == "0-2"


def test_where_the_kernel_has_no_cpu_sets_the_cpuset_policy_works_by_quota() -> None:
    decided = suppress(
        situation(
            [batch("job")],
            node_slo=slo(cpu_suppress_policy="cpuset"),
            reading=snapshot(1000),
            kernel=capabilities(Knob.CPUSET_CPUS),
        )
    )
    assert decided is not None
    assert decided.policy == "cfsQuota"
    assert values(decided) == {QUOTA: "420000"}


def test_exclusive_and_reserved_cpus_are_never_used_by_batch() -> None:
    lse = pod("lse", "LSE", annotations={"scheduling.koordinator.sh/resource-status": '{"cpuset":"2-3"}'})
    decided = suppress(
        situation([lse, batch("job")], node_slo=slo(enable=False, reserved_cpus="0"), reading=snapshot(0))
    )
    assert decided is not None
    assert values(decided)[CPUS] == "1,4-7"


def test_a_pod_that_holds_cpus_keeps_its_set_while_the_tree_around_it_narrows() -> None:
    bound = pod("bound", "LSR", annotations={"scheduling.koordinator.sh/resource-status": '{"cpuset":"0-1"}'})
    decided = suppress(
        situation(
            [bound, batch("job")],
            node_slo=slo(cpu_suppress_policy="cpuset"),
            reading=snapshot(4000, {"uid-bound": 4000}),
            current={CPUS: "0-7"},
        )
    )
    assert decided is not None
    assert not [group for group, _ in values(decided) if "uid-bound" in group]


def test_constant_load_settles_and_noise_below_one_percent_changes_nothing() -> None:
    current = -1
    for _ in range(30):
        current = next_quota(2000, 8000, current) or current
    assert current == 200_000
    assert next_quota(2079, 8000, current) is None
    assert next_quota(2080, 8000, current) == 208_000


def test_seed_218_a_load_where_one_cpu_ends_and_the_next_begins_does_not_widen_and_narrow_the_set_in_turn() -> None:
    assert with_dead_band(2_001, 2, 4_000) == 2_000
    assert with_dead_band(2_039, 2, 4_000) == 2_000
    assert with_dead_band(2_040, 2, 4_000) == 2_040
    assert with_dead_band(2_000, 3, 4_000) == 2_000  # what services need is given back at once
    assert with_dead_band(3_500, 2, 4_000) == 3_500


def test_unlimited_is_left_at_once_also_for_a_target_below_the_dead_band() -> None:
    assert next_quota(50, 80_000, -1) == 5_000


processors = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 3), st.integers(0, 1)), min_size=1, max_size=24).map(
    lambda rows: [Processor(cpu, core, socket, socket) for cpu, (core, socket, _) in enumerate(rows)]
)


@given(quantity=st.integers(-50_000, 200_000), cpus=st.integers(1, 128), current=st.integers(2_000, 12_800_000))
def test_a_quota_never_falls_below_the_floor_nor_grows_by_more_than_a_tenth_of_the_node(
    quantity: int, cpus: int, current: int
) -> None:
    new = next_quota(quantity, cpus * 1000, current)
    if new is not None:
        assert new >= FLOOR_US
        assert new - current <= cpus * 10_000
        assert new <= max(current, quantity * 100, FLOOR_US)


@given(quantity=st.integers(-5_000, 40_000), machine=processors, current=st.integers(0, 24))
def test_a_cpu_set_is_part_of_the_machine_and_grows_by_at_most_a_tenth(
    quantity: int, machine: list[Processor], current: int
) -> None:
    text = next_cpuset(quantity, machine, frozenset(range(current)), {})
    if text is None:
        return
    chosen = {cpu for part in text.split(",") for cpu in _range(part)}
    assert chosen <= {processor.cpu for processor in machine}
    assert len(chosen) <= max(current + -(-len(machine) // 10), 2)
    assert len(chosen) <= max(-(-quantity // 1000), 2)


@given(machine=processors, count=st.integers(0, 30))
def test_a_selection_has_as_many_different_cpus_as_asked_or_none(machine: list[Processor], count: int) -> None:
    chosen = select_cpus(count, machine)
    assert len(chosen) in (0, count)
    assert len(set(chosen)) == len(chosen)
    assert (len(chosen) == count) == (count <= len(machine))


@given(
    capacity=st.integers(0, 256_000),
    threshold=st.integers(0, 100),
    used=st.tuples(st.integers(0, 300_000), st.integers(0, 300_000), st.integers(0, 300_000)),
    floor=st.none() | st.integers(0, 100),
)
def test_the_quantity_never_exceeds_threshold_or_floor(
    capacity: int, threshold: int, used: tuple[int, int, int], floor: int | None
) -> None:
    quantity = suppress_milli(capacity, threshold, UsageSplit(*used), floor)
    assert quantity <= capacity * max(threshold, floor or 0) // 100
    if floor is not None:
        assert quantity >= capacity * floor // 100


def _range(part: str) -> range:
    low, dash, high = part.partition("-")
    return range(int(low), int(high if dash else low) + 1)
