"""Pods: services that stay, jobs that end, and what users do to them.

In: a header, the machines' CPUs. Out: entries. Some services are greedy: they use far more than they ask for, so that their
nodes become hot. Jobs run on overcommitted or on the machines' own resources, in quotas or not; some name their node, or select
it by its label, and that node may not be there. Some of those in quotas are not preemptible.
"""

from __future__ import annotations

from bisect import bisect
from random import Random

from cotenant_verification.workload.quotas import LEAVES
from cotenant_verification.workload.schedule import SETTLE_MS, Header, ScheduleEntry

PERIODS = (60, 300, 1800)
"""Seconds in which a service's load rises and falls: spikes, and slow waves."""
DAY = 86_400
LONG_MS = 6 * 3_600_000
"""From here on a run is long enough for some services to follow the day."""
TIDE_MS = 3_600_000
"""From here on busy times, in which jobs request more than there is, alternate with idle ones."""
CROWDED_MS = (600_000, 1_200_000)
IDLE_MS = (1_800_000, 3_600_000)
IDLE_GAP = 8
"""The gap between two jobs in idle times, as a multiple of that in busy times."""


def pods(header: Header, capacity: int) -> list[ScheduleEntry]:
    """Return the entries."""
    chance = Random(f"pods/{header.seed}")
    return [*_services(chance, header, capacity), *_jobs(chance, header, capacity)]


def _services(chance: Random, header: Header, capacity: int) -> list[ScheduleEntry]:
    """A handful of services; together they request up to half of the machines."""
    entries: list[ScheduleEntry] = []
    for app in range(2 + header.nodes // 3):
        request = chance.choice((500, 1000, 1500))
        replicas = max(1, min(6, capacity * chance.randrange(8, 20) // 100 // request))
        for index in range(replicas):
            at = chance.randrange(SETTLE_MS, SETTLE_MS + header.span_ms // 4)
            name = f"service-{app}-{index}"
            low = request * chance.randrange(10, 40) // 100
            high = request * chance.randrange(60, 140) // 100
            if app % 3 == 1:
                # Greedy ones use far more than they request: their nodes become hot and the descheduler moves them.
                low, high = request * chance.randrange(100, 200) // 100, request * chance.randrange(250, 500) // 100
            args: dict[str, int | str] = {
                "class": "ls",
                "app": f"service-{app}",
                "cpu": request,
                "memory_mib": 256,
                "use_low": low,
                "use_high": high,
                "period": chance.choice(PERIODS if header.span_ms < LONG_MS else (*PERIODS, DAY)),
            }
            entries.append(ScheduleEntry(at_ms=at, kind="create-pod", target=name, args=args))
            entries += _meddling(chance, header, name, at, args)
    return entries


def _jobs(chance: Random, header: Header, capacity: int) -> list[ScheduleEntry]:
    """Jobs arrive all the time, more than the machines can hold; in long runs there are idle times in which the queue empties.
    """
    entries: list[ScheduleEntry] = []
    mean_gap_ms = max(2_000, 120_000_000 // max(capacity, 1))
    protected = Random(f"protected/{header.seed}")
    tide = _tide(header)
    at, index = float(SETTLE_MS), 0
    while True:
        idle = bisect(tide, at) % 2
        at += chance.expovariate(1.0 / mean_gap_ms) * (IDLE_GAP if idle else 1)
        if at >= header.span_ms - 1_000:
            return entries
        name = f"job-{index}"
        index += 1
        borrowed = chance.random() < 0.7
        args: dict[str, int | str] = {
            "class": "batch" if borrowed else "job",
            "cpu": chance.choice((250, 500, 1000, 2000)),
            "memory_mib": chance.choice((128, 256, 512)),
            "lasts": chance.choice((5, 20, 60, 180, 600)),
            "exit": 0 if chance.random() < 0.9 else 1,
        }
        if chance.random() < 0.6:
            args["quota"] = LEAVES[chance.randrange(len(LEAVES))]
            if protected.random() < 0.2:
                args["protected"] = "quota"
        if chance.random() < 0.08:
            # One beyond the last: a node that does not exist, unless a machine comes back under another name.
            args[chance.choice(("named", "selects"))] = f"n{chance.randrange(header.nodes + 1)}"
        entries.append(ScheduleEntry(at_ms=int(at), kind="create-pod", target=name, args=args))
        if chance.random() < 0.15:
            entries += _meddling(chance, header, name, int(at), args)


def _tide(header: Header) -> list[int]:
    """When busy and idle times alternate, in ms: none in runs shorter than TIDE_MS."""
    chance = Random(f"tide/{header.seed}")
    changes: list[int] = []
    while header.span_ms >= TIDE_MS and (not changes or changes[-1] < header.span_ms):
        crowded_until = (changes[-1] if changes else 0) + chance.randrange(*CROWDED_MS)
        changes += [crowded_until, crowded_until + chance.randrange(*IDLE_MS)]
    return changes


def _meddling(chance: Random, header: Header, name: str, born_ms: int, args: dict[str, int | str]) -> list[ScheduleEntry]:
    """What users do to a pod: updates, including racing ones; deletion; creation under the same name."""
    entries: list[ScheduleEntry] = []
    if born_ms >= header.span_ms - 2_000:
        return entries
    for _ in range(chance.randrange(3)):
        at = chance.randrange(born_ms, header.span_ms)
        kind = "stale-update" if chance.random() < 0.4 else "update-pod"
        entries.append(ScheduleEntry(at_ms=at, kind=kind, target=name, args={"gateway": 0}))
        if chance.random() < 0.5:
            # Another user, at another gateway, at the same moment or a little later.
            later = at + chance.choice((0, 1, 10))
            entries.append(ScheduleEntry(at_ms=later, kind="update-pod", target=name, args={"gateway": 1}))
    if chance.random() < 0.5:
        at = chance.randrange(born_ms, header.span_ms)
        entries.append(ScheduleEntry(at_ms=at, kind="delete-pod", target=name, args={"grace": chance.choice((-1, -1, 0, 5))}))
        again = at + chance.choice((0, 10, 500, 5_000, 45_000, 330_000))
        if chance.random() < 0.6 and again < header.span_ms:
            entries.append(ScheduleEntry(at_ms=again, kind="create-pod", target=name, args=args))
    return entries
