"""The workload of a run, from its seed: what users do, as entries.

In: a seed and a header. Out: entries. Services with a load that rises and falls (some
greedy), batch jobs on borrowed resources that
end by themselves, jobs of a tree of quotas, budgets; quotas whose min and max change, configurations that change in mid-flight
(invalid ones among them), updates that race with others from an old version, deletes at any moment and new pods under old
names.
"""

from __future__ import annotations

from random import Random

from cotenant_console.chaos.schedule import Entry, Header

NODE_SHAPES = ((4_000, 8), (8_000, 16), (16_000, 64))
"""CPU in milli-cores, memory in GiB."""
QUOTAS = ("team-a", "team-b", "team-c")
SETTLE_MS = 4_000
"""Namespaces, quotas and the configuration come before it, pods after."""


def node_shape(chance: Random) -> tuple[int, int]:
    """One of the shapes."""
    return NODE_SHAPES[chance.randrange(len(NODE_SHAPES))]


def workload(header: Header) -> list[Entry]:
    """All that users and machines do in a run."""
    chance = Random(f"workload/{header.seed}")
    entries: list[Entry] = []
    capacity = 0
    for index in range(header.nodes):
        cpu, memory = node_shape(chance)
        capacity += cpu
        entries.append(
            Entry(at_ms=1_500 + index, kind="node", target=f"n{index}", args={"cpu": cpu, "memory_gib": memory})
        )
    entries.append(_config(chance, 2_000, header.span_ms, first=True))
    for index, name in enumerate(QUOTAS):
        entries.append(_quota(chance, 2_100 + index, name, capacity, "create-quota"))
    entries.append(Entry(at_ms=2_300, kind="create-budget", target="calm", args={"min_available": 1, "app": "service-0"}))
    entries += _services(chance, header, capacity)
    entries += _jobs(chance, header, capacity)
    for _ in range(1 + header.span_ms // 400_000):
        at = chance.randrange(SETTLE_MS, header.span_ms)
        entries.append(_quota(chance, at, QUOTAS[chance.randrange(len(QUOTAS))], capacity, "update-quota"))
        entries.append(_config(chance, chance.randrange(SETTLE_MS, header.span_ms), header.span_ms, first=False))
    return entries


def _config(chance: Random, at_ms: int, span_ms: int, *, first: bool) -> Entry:
    del span_ms
    broken = not first and chance.random() < 0.3
    args: dict[str, int | str] = {
        "reclaim": chance.choice((60, 65, 80)),
        "threshold": chance.choice((55, 65, 75)),
        "policy": chance.choice(("cpuset", "cfsQuota")),
        "broken": int(broken),
    }
    return Entry(at_ms=at_ms, kind="config", args=args)


def _quota(chance: Random, at_ms: int, name: str, capacity: int, kind: str) -> Entry:
    least = capacity * chance.randrange(1, 6) // 100
    most = least + capacity * chance.randrange(1, 10) // 100
    return Entry(at_ms=at_ms, kind=kind, target=name, args={"min": least, "max": most})


def _services(chance: Random, header: Header, capacity: int) -> list[Entry]:
    """A handful of services; together they request up to half of the machines."""
    entries: list[Entry] = []
    for app in range(2 + header.nodes // 3):
        request = chance.choice((500, 1000, 1500))
        replicas = max(1, min(6, capacity * chance.randrange(8, 20) // 100 // request))
        for index in range(replicas):
            at = chance.randrange(SETTLE_MS, SETTLE_MS + header.span_ms // 4)
            name = f"service-{app}-{index}"
            low = request * chance.randrange(10, 40) // 100
            high = request * chance.randrange(60, 140) // 100
            if app % 3 == 1:
                # Greedy ones use far more than they ask for: their nodes become hot and the descheduler moves them.
                low, high = request * chance.randrange(100, 200) // 100, request * chance.randrange(250, 500) // 100
            args: dict[str, int | str] = {
                "class": "ls",
                "app": f"service-{app}",
                "cpu": request,
                "memory_mib": 256,
                "use_low": low,
                "use_high": high,
                "period": chance.choice((60, 300, 1800)),
            }
            entries.append(Entry(at_ms=at, kind="create-pod", target=name, args=args))
            entries += _meddling(chance, header, name, at, args)
    return entries


def _jobs(chance: Random, header: Header, capacity: int) -> list[Entry]:
    """Jobs come all the time; a few stay for ever."""
    entries: list[Entry] = []
    mean_gap_ms = max(2_000, 120_000_000 // max(capacity, 1))
    at, index = float(SETTLE_MS), 0
    while True:
        at += chance.expovariate(1.0 / mean_gap_ms)
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
            args["quota"] = QUOTAS[chance.randrange(len(QUOTAS))]
        entries.append(Entry(at_ms=int(at), kind="create-pod", target=name, args=args))
        if chance.random() < 0.15:
            entries += _meddling(chance, header, name, int(at), args)


def _meddling(chance: Random, header: Header, name: str, born_ms: int, args: dict[str, int | str]) -> list[Entry]:
    """What users do to a pod: updates, racing ones among them; deletion; the same name again."""
    entries: list[Entry] = []
    if born_ms >= header.span_ms - 2_000:
        return entries
    for _ in range(chance.randrange(3)):
        at = chance.randrange(born_ms, header.span_ms)
        kind = "stale-update" if chance.random() < 0.4 else "update-pod"
        entries.append(Entry(at_ms=at, kind=kind, target=name, args={"gateway": 0}))
        if chance.random() < 0.5:
            # Another user, at another gateway, at the same moment or a little later.
            later = at + chance.choice((0, 1, 10))
            entries.append(Entry(at_ms=later, kind="update-pod", target=name, args={"gateway": 1}))
    if chance.random() < 0.5:
        at = chance.randrange(born_ms, header.span_ms)
        entries.append(Entry(at_ms=at, kind="delete-pod", target=name, args={"grace": chance.choice((-1, -1, 0, 5))}))
        if chance.random() < 0.6:
            again = at + chance.choice((0, 10, 500, 5_000, 45_000))
            entries.append(Entry(at_ms=again, kind="create-pod", target=name, args=args))
    return entries
