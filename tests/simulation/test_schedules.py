"""What seeds come up with: every kind of fault and of work over a few of them, each with something that carries it out."""

from __future__ import annotations

from collections import Counter

from cotenant.log.contract import TOMBSTONE_TTL_SECONDS
from cotenant_verification.actions import ACTIONS
from cotenant_verification.chaos.run import schedule_of
from cotenant_verification.workload.quota_profiles import LEAVES as OF_PROFILES
from cotenant_verification.workload.quotas import LEAVES, SHAPES

SEEDS = range(1, 41)
SPAN = 600.0


def kinds(*, faults: bool) -> Counter[str]:
    return Counter(
        entry.kind for seed in SEEDS for entry in schedule_of(seed, SPAN).entries if entry.fault is faults
    )


def test_every_kind_of_entry_comes_up_and_is_carried_out() -> None:
    assert set(kinds(faults=True)) | set(kinds(faults=False)) == set(ACTIONS)
    assert not set(kinds(faults=True)) & set(kinds(faults=False))


def test_seeds_differ_in_how_many_faults_and_which_kinds_they_have() -> None:
    schedules = [schedule_of(seed, SPAN) for seed in SEEDS]
    assert max(schedule.faults for schedule in schedules) > 8 * min(schedule.faults for schedule in schedules)
    few = [schedule for schedule in schedules if len({entry.kind for entry in schedule.entries if entry.fault}) < 8]
    assert len(few) > len(schedules) // 4


def test_tombstones_run_out_within_some_runs() -> None:
    kept = sorted({schedule_of(seed, SPAN).header.tombstone_s for seed in SEEDS})
    assert len(kept) == 2
    assert kept[0] < kept[1] == TOMBSTONE_TTL_SECONDS


def test_pods_are_in_quotas_at_the_leaves_of_trees_of_several_levels() -> None:
    parents = {shape.name: shape.parent for shape in SHAPES}
    depth = {name: len(_way_up(name, parents)) for name in LEAVES}
    assert max(depth.values()) == 3
    assert not set(LEAVES) & set(parents.values())
    entries = [entry for seed in SEEDS for entry in schedule_of(seed, SPAN).entries if "quota" in entry.args]
    below_profiles = {f"zonal-{zone}-{leaf}" for zone in (0, 1) for leaf in OF_PROFILES}
    assert {entry.args["quota"] for entry in entries} == set(LEAVES) | below_profiles


def _way_up(name: str, parents: dict[str, str]) -> list[str]:
    way = [name]
    while parents[way[-1]]:
        way.append(parents[way[-1]])
    return way
