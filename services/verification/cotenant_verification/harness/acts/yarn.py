"""YARN: NodeManagers come, are lost and restart, applications want more and less, the ResourceManager is silent."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from cotenant_verification.workload.schedule import Entry, ms
from cotenant_yarn_copilot.capacity import YarnResource

if TYPE_CHECKING:
    from cotenant_verification.harness.harness import Stage


def register(stage: Stage, entry: Entry, _now: datetime) -> bool:
    """A NodeManager registers; `yarn-restart`: one that is there does so again, and is back at what it announced."""
    cluster = stage.yarn()
    known = next((manager for manager in cluster.managers.values() if manager.host == entry.target), None)
    if entry.kind == "yarn-restart":
        if known is None:
            return False
        cluster.register(entry.target, known.announced)
        return True
    cluster.register(entry.target, YarnResource(entry.number("vcores"), entry.number("memory_mb")))
    return True


def lose(stage: Stage, entry: Entry, now: datetime) -> bool:
    """A NodeManager is lost, and comes back."""
    if not stage.yarn().lose(entry.target, lost=True):
        return False
    stage.at(min(now + ms(entry.number("for_ms")), stage.ends), lambda _: stage.yarn().lose(entry.target, lost=False))
    return True


def demand(stage: Stage, entry: Entry, _now: datetime) -> bool:
    """What applications want changes."""
    vcores = entry.number("vcores")
    stage.yarn().want(vcores, entry.number("memory_mb") // max(vcores, 1))
    return True


def fall_silent(stage: Stage, entry: Entry, now: datetime) -> bool:
    """No ResourceManager is active for a while."""
    cluster = stage.yarn()
    if cluster.silent or not cluster.managers:
        return False
    cluster.silent = True

    def speak(_: datetime) -> None:
        cluster.silent = False

    stage.at(min(now + ms(entry.number("for_ms")), stage.ends), speak)
    return True


ACTS = {
    "yarn-register": register,
    "yarn-restart": register,
    "yarn-lost": lose,
    "yarn-demand": demand,
    "yarn-silent": fall_silent,
}
