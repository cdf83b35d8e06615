"""The order of a cycle's writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_node_executor.targets.cgroup.levels import FileChange, WritePhase, level_values, plan
from cotenant_node_executor.targets.cpulist import parse_cpu_list
from cotenant_node_executor.targets.interface import Knob

TIER, POD, CONTAINER = "besteffort", "besteffort/poda", "besteffort/poda/main"


def order(*changes: FileChange) -> list[tuple[str, Knob, str]]:
    return [(step.group, step.knob, step.value) for step in plan(changes)]


def everywhere(knob: Knob, old: str, new: str) -> list[FileChange]:
    return [FileChange(group, knob, old, new) for group in (CONTAINER, TIER, POD)]


def test_widening_goes_from_the_top() -> None:
    steps = order(*everywhere(Knob.CPU_QUOTA, "10000", "-1"))
    assert [group for group, _, _ in steps] == [TIER, POD, CONTAINER]


def test_narrowing_goes_from_the_bottom() -> None:
    steps = order(*everywhere(Knob.CPU_QUOTA, "-1", "10000"))
    assert [group for group, _, _ in steps] == [CONTAINER, POD, TIER]


def test_disjoint_cpusets_pass_through_their_union_and_end_exact() -> None:
    steps = plan(everywhere(Knob.CPUSET_CPUS, "0-1", "2-3"))
    assert [(step.group, step.value, step.final) for step in steps] == [
        (TIER, "0-3", False),
        (POD, "0-3", False),
        (CONTAINER, "0-3", False),
        (CONTAINER, "2-3", True),
        (POD, "2-3", True),
        (TIER, "2-3", True),
    ]


def test_a_burst_shrinks_before_its_quota_does() -> None:
    steps = order(FileChange(POD, Knob.CPU_QUOTA, "90000", "10000"), FileChange(POD, Knob.CPU_BURST, "90000", "5000"))
    assert [knob for _, knob, _ in steps] == [Knob.CPU_BURST, Knob.CPU_QUOTA]


def test_a_burst_grows_after_its_quota_has() -> None:
    steps = order(FileChange(POD, Knob.CPU_BURST, "0", "90000"), FileChange(POD, Knob.CPU_QUOTA, "10000", "90000"))
    assert [knob for _, knob, _ in steps] == [Knob.CPU_QUOTA, Knob.CPU_BURST]


def test_idle_goes_off_before_shares_are_written_and_on_after() -> None:
    off = order(FileChange(POD, Knob.CPU_SHARES, None, "512"), FileChange(POD, Knob.CPU_IDLE, "1", "0"))
    assert [knob for _, knob, _ in off] == [Knob.CPU_IDLE, Knob.CPU_SHARES]
    on = order(FileChange(POD, Knob.CPU_IDLE, "0", "1"), FileChange(POD, Knob.CPU_SHARES, "2", "512"))
    assert [knob for _, knob, _ in on] == [Knob.CPU_SHARES, Knob.CPU_IDLE]


def test_a_value_without_an_order_is_written_whole_on_the_way_down() -> None:
    (step,) = plan([FileChange(POD, Knob.CPU_SHARES, "2", "512")])
    assert (step.phase, step.final) == (WritePhase.WIDEN, True)


def test_an_unknown_old_value_is_overwritten() -> None:
    assert order(FileChange(POD, Knob.CPU_QUOTA, None, "10000")) == [(POD, Knob.CPU_QUOTA, "10000")]


def test_an_old_value_that_cannot_be_compared_is_an_error() -> None:
    with pytest.raises(ValueError, match="cfs_quota_us"):
        level_values(Knob.CPU_QUOTA, "much", "10000")


quotas = st.sampled_from(["-1", "1000", "20000", "50000", "99999"])


@given(quotas, quotas)
def test_a_number_is_written_exactly_once_or_not_at_all(old: str, new: str) -> None:
    first, second = level_values(Knob.CPU_QUOTA, old, new)
    assert [value for value in (first, second) if value is not None] == ([] if old == new else [new])


@given(st.sets(st.integers(0, 7), min_size=1), st.sets(st.integers(0, 7), min_size=1))
def test_the_last_cpuset_written_is_the_wanted_one(old: set[int], new: set[int]) -> None:
    def text(cpus: set[int]) -> str:
        return ",".join(str(cpu) for cpu in sorted(cpus))

    first, second = level_values(Knob.CPUSET_CPUS, text(old), text(new))
    last = second or first
    assert (last is None) is (old == new)
    assert last is None or set(parse_cpu_list(last)) == new
