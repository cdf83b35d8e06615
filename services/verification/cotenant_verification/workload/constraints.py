"""Pods with constraints, and changes around them: namespaces, priorities, taints, zones.

In: a header, the machines' CPUs. Out: entries. Applications in three namespaces, each of one kind of constraint; a run has some
of the kinds. Two teams' namespaces change their tier, which (anti-)affinity of other namespaces is about, and end at times.
Modest pods fill the machines, vital ones come later and have them end where their budget allows it; patient ones wait. Some
modest pods must not be preempted.
"""

from __future__ import annotations

from random import Random

from cotenant_verification.workload.machines import ZONES
from cotenant_verification.workload.pod_constraints import TEAMS
from cotenant_verification.workload.schedule import SETTLE_MS, Header, ScheduleEntry

Args = dict[str, int | str]

KINDS = ("apart", "near", "spread", "port", "zones", "dedicated", "gated", "preferring")
TIERS = ("gold", "silver")
NAMESPACES_MS = 1_800
PRIORITIES_MS = 1_900
CHANGE_EVERY_MS = 100_000
CLASSES = {"vital": (9_900, "PreemptLowerPriority"), "modest": (9_100, "PreemptLowerPriority"), "patient": (9_800, "Never")}
"""Value and preemption policy."""
WHERE = ("own", "listed", "selected")


def constraints(header: Header, capacity: int) -> list[ScheduleEntry]:
    """Return the entries."""
    chance = Random(f"constraints/{header.seed}")
    entries = [_tier(NAMESPACES_MS, team, chance.choice(TIERS)) for team in TEAMS]
    kinds = chance.sample(KINDS, chance.randrange(2, len(KINDS)))
    for number, kind in enumerate(kinds):
        entries += _application(chance, header, kind, f"{kind}-{number}")
    if chance.random() < 0.6:
        entries += _contest(chance, header, capacity)
    for _ in range(1 + header.span_ms // CHANGE_EVERY_MS):
        entries += _change(chance, header, kinds)
    if chance.random() < 0.3:
        entries += _end(chance, header)
    return entries


def _tier(at_ms: int, team: str, tier: str) -> ScheduleEntry:
    return ScheduleEntry(at_ms=at_ms, kind="namespace", target=team, args={"tier": tier})


def _application(chance: Random, header: Header, kind: str, app: str) -> list[ScheduleEntry]:
    """Some pods of one kind; a few come and go all the time, and some of each are in another namespace."""
    entries: list[ScheduleEntry] = []
    home = chance.choice(("default", *TEAMS))
    topology, where = chance.choice(("host", "zone")), chance.choice(WHERE)
    for index in range(3 + header.span_ms // CHANGE_EVERY_MS):
        born = chance.randrange(SETTLE_MS, header.span_ms - 1_000)
        namespace = home if chance.random() < 0.7 else chance.choice(("default", *TEAMS))
        args: Args = {"class": "ls", "app": app, "cpu": chance.choice((50, 100, 400)), "memory_mib": 64}
        if chance.random() < 0.4:
            args["lasts"] = chance.choice((20, 60, 180))
        args |= _term(chance, kind, app, topology, where)
        name = f"{namespace}/{app}-{index}"
        entries.append(ScheduleEntry(at_ms=born, kind="create-pod", target=name, args=args))
        if kind == "gated" and chance.random() < 0.7:
            opened = min(born + chance.choice((0, 1_000, 40_000)), header.span_ms - 1)
            entries.append(ScheduleEntry(at_ms=opened, kind="open-gate", target=name))
        if chance.random() < 0.3:
            gone = chance.randrange(born, header.span_ms)
            entries.append(ScheduleEntry(at_ms=gone, kind="delete-pod", target=name, args={"grace": chance.choice((-1, 0))}))
        elif chance.random() < 0.3:
            move: Args = {"pod": name, "ttl": 300, "paused": 0}
            at_ms = chance.randrange(born, header.span_ms)
            entries.append(ScheduleEntry(at_ms=at_ms, kind="create-move", target=f"move-{app}-{index}", args=move))
    return entries


def _term(chance: Random, kind: str, app: str, topology: str, where: str) -> Args:
    match kind:
        case "apart":
            return {"apart": topology, "of": app, "where": where}
        case "near":
            # With its own kind, or with a service that stays and that may be absent there.
            return {"near": topology, "of": chance.choice((app, app, "service-0")), "where": where}
        case "spread":
            spread: Args = {"spread": topology, "skew": chance.choice((1, 2))}
            if chance.random() < 0.3:
                spread["domains"] = chance.choice((2, ZONES + 1))
            return spread | ({"revision": chance.choice(("old", "new"))} if chance.random() < 0.4 else {})
        case "port":
            return {"port": chance.choice((20_000, 20_001))}
        case "zones":
            return {"zones": "|".join(f"zone-{zone}" for zone in chance.sample(range(ZONES), 2))}
        case "dedicated":
            return {"tolerates": app, "zones": f"zone-{chance.randrange(ZONES)}"}
        case "preferring":
            preference = chance.choice(("prefers", "likes", "shuns", "loose"))
            value = f"zone-{chance.randrange(ZONES)}" if preference == "prefers" else topology
            return {preference: value, "of": app, "where": where}
        case _:
            return {"gated": 1}


def _contest(chance: Random, header: Header, capacity: int) -> list[ScheduleEntry]:
    """Low-priority pods fill the machines, with a budget; high-priority ones preempt them, and non-preempting ones wait."""
    entries = [
        ScheduleEntry(at_ms=PRIORITIES_MS + index, kind="priority-class", target=name, args={"value": value, "policy": policy})
        for index, (name, (value, policy)) in enumerate(CLASSES.items())
    ]
    budget: Args = {"min_available": chance.choice((0, 1, 2)), "app": "modest"}
    entries.append(ScheduleEntry(at_ms=NAMESPACES_MS + 700, kind="create-budget", target=f"{TEAMS[0]}/modest", args=budget))
    each, protected = 1_000, Random(f"protected-modest/{header.seed}")
    begin = chance.randrange(SETTLE_MS, header.span_ms // 2)
    for index in range(min(capacity * 6 // 10 // each, 40)):
        args: Args = {"class": "ls", "app": "modest", "cpu": each, "memory_mib": 64, "priority": "modest"}
        args |= {"use_low": 20, "use_high": 60, "period": 300}
        if chance.random() < 0.5:
            args["lasts"] = chance.choice((60, 180, 600))
        if protected.random() < 0.25:
            args["protected"] = protected.choice(("quota", "preemption"))
        entries.append(
            ScheduleEntry(at_ms=begin + 20 * index, kind="create-pod", target=f"{TEAMS[0]}/modest-{index}", args=args)
        )
    for index in range(4):
        args = {"class": "ls", "app": "vital", "cpu": chance.choice((1_000, 2_000, 3_000)), "memory_mib": 64}
        args["priority"] = "patient" if chance.random() < 0.3 else "vital"
        if chance.random() < 0.3:
            args |= {"apart": "host", "of": "vital"}
        if chance.random() < 0.5:
            args["lasts"] = chance.choice((20, 180))
        at_ms = chance.randrange(begin, header.span_ms)
        entries.append(ScheduleEntry(at_ms=at_ms, kind="create-pod", target=f"{TEAMS[1]}/vital-{index}", args=args))
    return entries


def _change(chance: Random, header: Header, kinds: list[str]) -> list[ScheduleEntry]:
    """Something around the pods changes; nodes are rarely cordoned permanently."""
    at_ms = chance.randrange(SETTLE_MS, header.span_ms)
    node = f"n{chance.randrange(header.nodes)}"
    over_ms = at_ms + chance.choice((2_000, 20_000, 60_000, header.span_ms))
    # The only node is never cordoned: nothing would happen any more.
    match chance.choice(("namespace", "relabel", *(("taint", "cordon") if header.nodes > 1 else ()))):
        case "namespace":
            return [_tier(at_ms, chance.choice(TEAMS), chance.choice(TIERS))]
        case "taint":
            owner = f"dedicated-{kinds.index('dedicated')}" if "dedicated" in kinds else "nobody"
            effect = chance.choice(("NoSchedule", "PreferNoSchedule", "NoExecute"))
            begin: Args = {"value": owner, "effect": effect}
            end: Args = {"value": "", "effect": ""}
            return _for_a_while(header, "taint", node, (at_ms, begin), (over_ms, end))
        case "cordon":
            return _for_a_while(header, "cordon", node, (at_ms, {"on": 1}), (over_ms, {"on": 0}))
        case _:
            zone = f"zone-{chance.randrange(ZONES)}"
            return _for_a_while(header, "relabel", node, (at_ms, {"zone": zone}), (over_ms, {"zone": ""}))


def _end(chance: Random, header: Header) -> list[ScheduleEntry]:
    """A team's namespace is deleted and declared again, while it is still ending or later."""
    team, at_ms = chance.choice(TEAMS), chance.randrange(header.span_ms // 2, header.span_ms)
    entries = [ScheduleEntry(at_ms=at_ms, kind="end-namespace", target=team)]
    for again_ms in (at_ms + chance.choice((10, 2_000)), at_ms + chance.choice((20_000, 60_000))):
        if again_ms < header.span_ms:
            entries.append(_tier(again_ms, team, chance.choice(TIERS)))
    return entries


def _for_a_while(header: Header, kind: str, node: str, begin: tuple[int, Args], end: tuple[int, Args]) -> list[ScheduleEntry]:
    return [ScheduleEntry(at_ms=at, kind=kind, target=node, args=args) for at, args in (begin, end) if at < header.span_ms]
