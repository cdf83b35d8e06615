"""The descheduler's plugins under faults: the promises hold, and some of the moves are theirs."""

from __future__ import annotations

import json
from collections import Counter

import pytest

import cotenant_verification.harness.harness as harness
from cotenant.events.envelope import Event
from cotenant.events.migrations import Migration
from cotenant_verification.chaos.run import run, schedule_of
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.records import CommitSeen

pytestmark = pytest.mark.timeout(3600)

DESCHEDULE = {
    "RemovePodsHavingTooManyRestarts": {"podRestartThreshold": 3},
    "RemovePodsViolatingNodeTaints": {},
    "RemoveFailedPods": {"minPodLifetimeSeconds": 30},
    "PodLifeTime": {"maxPodLifeTimeSeconds": 120, "states": ["Running"]},
}
BALANCE = {"RemoveDuplicates": {}, "LowNodeUtilization": {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}}}
CONFIG = {
    "maxNoOfPodsToEvictPerNode": 1,
    "maxNoOfPodsToEvictTotal": 2,
    "profiles": [
        {
            "name": "all",
            "plugins": {
                "deschedule": {"enabled": [{"name": name} for name in DESCHEDULE]},
                "balance": {"enabled": [{"name": name} for name in (*BALANCE, "LowNodeLoad")]},
            },
            "pluginConfig": [
                *({"name": name, "args": args} for name, args in (DESCHEDULE | BALANCE).items()),
                {"name": "LowNodeLoad", "args": {"lowThresholds": {"cpu": 45}, "highThresholds": {"cpu": 75}}},
                {"name": "MigrationController", "args": {"evictAllBarePods": True, "nodeFit": True}},
            ],
        }
    ],
}


@pytest.mark.parametrize("seed", [2])
def test_the_promises_hold_while_plugins_move_pods(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "CONFIGS", {"descheduler-arbiter": json.dumps(CONFIG)})
    moved: Counter[str] = Counter()
    see = LogView.see

    def watched(self: LogView, event: Event) -> CommitSeen | None:
        job = event.data
        if isinstance(job, Migration) and not event.tombstone and job.phase == "Succeeded":
            moved[job.trigger] += 1
        return see(self, event)

    monkeypatch.setattr(LogView, "see", watched)
    violation = run(schedule_of(seed, 240, 3)).violation
    assert violation is None, violation.text
    assert {"PodLifeTime", "RemoveDuplicates"} & set(moved), moved
