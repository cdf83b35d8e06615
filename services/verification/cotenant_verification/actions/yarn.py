"""YARN: NodeManagers join, are lost and restart, demand rises and falls, the ResourceManager stops answering."""

from __future__ import annotations

from datetime import datetime

from cotenant_verification.harness.harness import Harness
from cotenant_verification.workload.schedule import ScheduleEntry, ms
from cotenant_yarn_copilot.capacity import YarnResource


def register(harness: Harness, entry: ScheduleEntry, _now: datetime) -> bool:
    """Register a NodeManager; with `yarn-restart`, one that is registered does so again and returns to the total that it
    announced."""
    cluster = harness.yarn()
    known = next((manager for manager in cluster.managers.values() if manager.host == entry.target), None)
    if entry.kind == "yarn-restart":
        if known is None:
            return False
        cluster.register(entry.target, known.announced)
        return True
    cluster.register(entry.target, YarnResource(entry.number("vcores"), entry.number("memory_mb")))
    return True


def lose(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """Lose a NodeManager; it returns later."""
    if not harness.yarn().lose(entry.target, lost=True):
        return False
    harness.at(min(now + ms(entry.number("for_ms")), harness.ends), lambda _: harness.yarn().lose(entry.target, lost=False))
    return True


def demand(harness: Harness, entry: ScheduleEntry, _now: datetime) -> bool:
    """Change the demand of applications."""
    vcores = entry.number("vcores")
    harness.yarn().want(vcores, entry.number("memory_mb") // max(vcores, 1))
    return True


def fall_silent(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """Leave YARN without an active ResourceManager for a while."""
    cluster = harness.yarn()
    if cluster.silent or not cluster.managers:
        return False
    cluster.silent = True

    def speak(_: datetime) -> None:
        cluster.silent = False

    harness.at(min(now + ms(entry.number("for_ms")), harness.ends), speak)
    return True


ACTIONS = {
    "yarn-register": register,
    "yarn-restart": register,
    "yarn-lost": lose,
    "yarn-demand": demand,
    "yarn-silent": fall_silent,
}
