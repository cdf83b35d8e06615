"""Pods that act as reservations in the whole control plane, under faults: every promise holds, and a defect is noticed."""

from __future__ import annotations

from random import Random

import pytest

from cotenant_scheduler.cycle.reservations import candidates, matched
from cotenant_verification.chaos.run import run, schedule_of
from cotenant_verification.workload.schedule import Schedule, ScheduleEntry, in_order

pytestmark = pytest.mark.timeout(3600)

MINUTES = 4


def with_acting_pods(seed: int) -> Schedule:
    """A schedule with pods that act as reservations, pods that they are for, and deletions of both."""
    schedule = schedule_of(seed, MINUTES * 60, 4)
    chance = Random(f"acting/{seed}")
    entries = list(schedule.entries)
    for number in range(12):
        at = chance.randrange(20_000, MINUTES * 60_000 - 90_000)
        claim = f"acting-{chance.randrange(4)}"
        acting: dict[str, int | str] = {"class": "ls", "cpu": chance.choice((500, 1000)), "memory_mib": 128, "acts_for": claim}
        entries.append(ScheduleEntry(at_ms=at, kind="create-pod", target=f"acting-{number}", args=acting))
        for index in range(3):
            born = at + chance.choice((0, 5_000, 20_000))
            user: dict[str, int | str] = {
                "class": "job",
                "cpu": chance.choice((250, 500, 1000)),
                "memory_mib": 64,
                "lasts": chance.choice((5, 40)),
                "claim": claim,
            }
            entries.append(ScheduleEntry(at_ms=born, kind="create-pod", target=f"user-{number}-{index}", args=user))
        if chance.random() < 0.5:
            gone = at + chance.randrange(5_000, 60_000)
            entries.append(ScheduleEntry(at_ms=gone, kind="delete-pod", target=f"acting-{number}", args={"grace": -1}))
    return schedule.having(in_order(entries))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_promises_hold(seed: int) -> None:
    report = run(with_acting_pods(seed))
    assert report.violation is None, report.violation


def test_two_pods_in_one_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (candidates, matched):
        monkeypatch.setattr(module, "allocates_once", lambda spec: spec.ttl != "0s")
    seen = [run(with_acting_pods(seed)).violation for seed in (1, 2, 3)]
    assert any(found is not None and found.invariant == 22 for found in seen), seen
