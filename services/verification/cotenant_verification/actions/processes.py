"""Faults of processes: services and gateways that are killed, lose their consumer, pause, or whose requests are
lost."""

from __future__ import annotations

from datetime import datetime, timedelta

from cotenant.simulation import Death
from cotenant_verification.harness.harness import Harness
from cotenant_verification.workload.schedule import ScheduleEntry, ms


def crash(harness: Harness, entry: ScheduleEntry, _now: datetime) -> bool:
    """Kill a process."""
    down = ms(entry.number("down_ms"))
    for gateway in harness.gateways:
        if gateway.name == entry.target:
            gateway.kill(down)
            return True
    if harness.copilot is not None and harness.copilot.name == entry.target:
        harness.copilot.kill(down)
        return True
    service = harness.services.get(entry.target)
    if service is None:
        return False
    service.service.kill(Death(entry.text("where")), down)
    return True


def reset(harness: Harness, entry: ScheduleEntry, _now: datetime) -> bool:
    """Remove a service's consumer: it starts over at once."""
    service = harness.services.get(entry.target)
    if service is None:
        return False
    service.service.kill(Death.BETWEEN, timedelta(0))
    return True


def pause(harness: Harness, entry: ScheduleEntry, _now: datetime) -> bool:
    """Stop a process between deciding and storing."""
    service = harness.services.get(entry.target)
    if service is None:
        return False
    service.service.pause(ms(entry.number("for_ms")))
    return True


def lose_requests(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """Lose a service's requests to every gateway."""
    service = harness.services.get(entry.target)
    if service is None:
        return False
    service.mute_until = now + ms(entry.number("for_ms"))
    return True


ACTIONS = {"crash": crash, "reset": reset, "pause": pause, "request-lost": lose_requests}
