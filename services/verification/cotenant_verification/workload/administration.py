"""Changes during a run: the node configuration, including invalid ones; a budget; migration jobs."""

from __future__ import annotations

from random import Random

from cotenant_verification.workload.schedule import SETTLE_MS, Header, ScheduleEntry

CONFIG_MS = 2_000
BUDGET_MS = 2_400
CHANGE_EVERY_MS = 400_000
MOVE_EVERY_MS = 120_000


def administration(header: Header) -> list[ScheduleEntry]:
    """Return the entries."""
    chance = Random(f"administration/{header.seed}")
    entries = [
        _config(chance, CONFIG_MS, first=True),
        ScheduleEntry(at_ms=BUDGET_MS, kind="create-budget", target="calm", args={"min_available": 1, "app": "service-0"}),
    ]
    for _ in range(1 + header.span_ms // CHANGE_EVERY_MS):
        entries.append(_config(chance, chance.randrange(SETTLE_MS, header.span_ms), first=False))
    for number in range(1 + header.span_ms // MOVE_EVERY_MS):
        entries += _move(chance, header, f"move-{number}")
    return entries


def _config(chance: Random, at_ms: int, *, first: bool) -> ScheduleEntry:
    args: dict[str, int | str] = {
        "reclaim": chance.choice((60, 65, 80)),
        "threshold": chance.choice((55, 65, 75)),
        "policy": chance.choice(("cpuset", "cfsQuota")),
        "broken": int(not first and chance.random() < 0.3),
    }
    return ScheduleEntry(at_ms=at_ms, kind="config", args=args)


def _move(chance: Random, header: Header, name: str) -> list[ScheduleEntry]:
    """A user has a pod moved: one of a service, or of a job that may have ended; some withdraw the request."""
    pod = f"service-{chance.randrange(3)}-{chance.randrange(3)}" if chance.random() < 0.7 else f"job-{chance.randrange(20)}"
    at_ms = chance.randrange(SETTLE_MS, header.span_ms)
    args: dict[str, int | str] = {"pod": pod, "ttl": chance.choice((0, 30, 300)), "paused": int(chance.random() < 0.1)}
    if chance.random() < 0.15:
        args["mode"] = "ReservationFirst"
    entries = [ScheduleEntry(at_ms=at_ms, kind="create-move", target=name, args=args)]
    if chance.random() < 0.3:
        later = at_ms + chance.choice((10, 500, 20_000))
        entries.append(ScheduleEntry(at_ms=later, kind="delete-move", target=name))
    return entries
