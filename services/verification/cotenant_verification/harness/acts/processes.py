"""Faults of processes: services and gateways that are killed, lose their consumer, stop for a while, are not heard."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cotenant.simulation import Death
from cotenant_verification.workload.schedule import Entry, ms

if TYPE_CHECKING:
    from cotenant_verification.harness.harness import Stage


def crash(stage: Stage, entry: Entry, _now: datetime) -> bool:
    """A process is killed."""
    down = ms(entry.number("down_ms"))
    for gateway in stage.gateways:
        if gateway.name == entry.target:
            gateway.kill(down)
            return True
    if stage.copilot is not None and stage.copilot.name == entry.target:
        stage.copilot.kill(down)
        return True
    service = stage.services.get(entry.target)
    if service is None:
        return False
    service.service.kill(Death(entry.text("where")), down)
    return True


def reset(stage: Stage, entry: Entry, _now: datetime) -> bool:
    """A service's consumer is gone: it starts over at once."""
    service = stage.services.get(entry.target)
    if service is None:
        return False
    service.service.kill(Death.BETWEEN, timedelta(0))
    return True


def pause(stage: Stage, entry: Entry, _now: datetime) -> bool:
    """A process stops between deciding and storing."""
    service = stage.services.get(entry.target)
    if service is None:
        return False
    service.service.pause(ms(entry.number("for_ms")))
    return True


def lose_requests(stage: Stage, entry: Entry, now: datetime) -> bool:
    """A service's wishes do not reach any gateway."""
    service = stage.services.get(entry.target)
    if service is None:
        return False
    service.mute_until = now + ms(entry.number("for_ms"))
    return True


ACTS = {"crash": crash, "reset": reset, "pause": pause, "request-lost": lose_requests}
