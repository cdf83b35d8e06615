"""A reader that is cut off is compared with the log when it has read on, not before."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cotenant.simulation import START
from cotenant_verification.actions import ACTIONS
from cotenant_verification.checks import checker as checker_module
from cotenant_verification.checks.checker import Checker
from cotenant_verification.harness.harness import Harness
from cotenant_verification.promises.log.replay import state_is_the_fold
from cotenant_verification.workload.schedule import Header, Schedule, ScheduleEntry

READER = "batch-resource-calculator/a"
CONFIG: dict[str, int | str] = {"reclaim": 65, "threshold": 65, "policy": "cpuset", "broken": 0}


@pytest.mark.parametrize("kind", ["partition", "gap"])
def test_what_a_service_cannot_have_read_is_not_held_against_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker_module, "FOLD_EVERY", 1)
    entries = (
        ScheduleEntry(at_ms=1_500, kind="node", target="n0", args={"cpu": 8_000, "memory_gib": 16, "cgroup": 2}),
        ScheduleEntry(at_ms=2_000, kind="config", args=CONFIG),
        ScheduleEntry(at_ms=10_000, kind=kind, target=READER, fault=True, args={"for_ms": 10_000}),
        ScheduleEntry(at_ms=11_000, kind="config", args={**CONFIG, "reclaim": 60}),
    )
    checker = Checker((), state_is_the_fold)
    harness = Harness(Schedule(Header(seed=1, span_ms=30_000, nodes=1, hop_ms=20), entries), ACTIONS, checker.view)
    checker.watch(harness)
    harness.open()
    checker.listen(harness)
    world = harness.world
    world.run_until(START + timedelta(seconds=15))
    assert world.interrupted(READER)
    world.run_until(START + timedelta(seconds=30))
    assert not world.interrupted(READER)
    assert checker.counts["10"] > 100
