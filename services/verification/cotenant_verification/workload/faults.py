"""The faults of a run, from its seed, as entries.

In: a header. Out: entries. Each ends by itself before the idle phase that follows the span; each has a kind, and all kinds come
up over the seeds.

| kind | target | what |
|---|---|---|
| delay | any participant | deliveries come late by `by_ms` for `for_ms`, in order |
| redeliver | any | `count` messages that are overtaken by now come once more |
| reset | a service | its consumer is lost: a fresh core, a new load |
| answer-lost, write-lost, refused | any | the next `count` writes are stored unanswered; do not arrive; are refused |
| stall | the log | no leader for `for_ms` |
| partition | any | cut off for `for_ms`: its writes do not arrive, its deliveries are lost |
| switch | the first `nodes` machines | cut off for `for_ms`, all at once; in some runs all machines stand in one zone |
| gap | any | deliveries of `for_ms` are lost; then it continues after the last delivered message |
| crash | a service, a gateway | killed `where` (between, before, after a batch is stored), back after `down_ms` |
| pause | a service | stopped for `for_ms` between deciding and storing |
| executor-crash | a node | the executor dies, the pods go on; a fresh core on the same machine |
| slow-executor | a node | a step only every `every_ms` for `for_ms`: samples are far apart, orders late |
| node-death | a node | the machine is gone for `down_ms` and comes back empty |
| capacity | a node | as node-death, and it comes back with another size |
| rename | a node | the machine comes back under another name |
| clock | a node | its clock jumps by `by_ms` and drifts by `drift_ppm` |
| sample-repeat | a node | its next `count` samples and executions are sent again, `after_ms` later or with the next |
| sample-loss | a node | `permille` of its samples are lost for `for_ms` |
| shuffle | metrics-ingest | samples overtake one another for `for_ms` |
| request-lost | a service | its requests do not reach the gateway for `for_ms` |
| yarn-lost, yarn-restart | a NodeManager | not heard for `for_ms`; registers again, back at what it announced |
| yarn-silent | YARN | no ResourceManager is active for `for_ms` |
"""

from __future__ import annotations

from random import Random

from cotenant.log.contract import DEDUPLICATION_SECONDS
from cotenant_console.up.services import DECIDING
from cotenant_verification.workload.machines import node_shape
from cotenant_verification.workload.schedule import SETTLE_MS, Header, ScheduleEntry

RESTARTED_SERVICES = tuple(service for service in DECIDING if service != "yarn-copilot")
REPLICATED = ("metrics-ingest", "batch-resource-calculator", "quota-tree", "scheduler", "descheduler-arbiter")
GATEWAYS = ("gateway-a", "gateway-b")
COPILOT = "yarn-copilot/a"
FAULTS_PER_HOUR = (60, 120, 400, 1_200)
"""Seeds differ in the number and kinds of faults: rare ones show only if others do not mask them."""
LATE_MS = (DEDUPLICATION_SECONDS + 1) * 1_000
"""A message that is resent after this is stored again: the log has dropped its id."""
LONG_MS = 600_000
LAST_FAULT = 0.8
"""Faults begin in this part of the span; the longest ends within it or soon after."""
KINDS = (
    "delay",
    "redeliver",
    "reset",
    "answer-lost",
    "write-lost",
    "refused",
    "stall",
    "partition",
    "gap",
    "crash",
    "crash",
    "crash",
    "pause",
    "executor-crash",
    "slow-executor",
    "node-death",
    "capacity",
    "rename",
    "clock",
    "sample-loss",
    "sample-repeat",
    "shuffle",
    "request-lost",
    "yarn",
)


def replica_names(header: Header) -> list[str]:
    """The services' replicas as participants are named."""
    letters = "ab"[: header.replicas]
    return [
        f"{service}/{letter}"
        for service in RESTARTED_SERVICES
        for letter in (letters if service in REPLICATED else letters[:1])
    ]


def faults(header: Header) -> list[ScheduleEntry]:
    """All faults of a run."""
    chance = Random(f"faults/{header.seed}")
    services = replica_names(header)
    nodes = [f"n{index}" for index in range(header.nodes)]
    count = max(4, chance.choice(FAULTS_PER_HOUR) * header.span_ms // 3_600_000)
    kinds = KINDS if chance.random() < 0.5 else chance.sample(KINDS, len(KINDS) // 3)
    end = int(header.span_ms * LAST_FAULT)
    made = [_fault(chance, chance.choice(kinds), chance.randrange(SETTLE_MS, end), services, nodes) for _ in range(count)]
    return [*switches(header), *made]


def switches(header: Header) -> list[ScheduleEntry]:
    """In every third run of ten minutes and more, most or all machines are lost at once: for so long that pods are evicted, or
    not. In half of these all stand in one zone, which is then in partial disruption.
    """
    chance = Random(f"switches/{header.seed}")
    if header.span_ms < LONG_MS or chance.random() < 2 / 3:
        return []
    entries = []
    if chance.random() < 0.5:
        args: dict[str, int | str] = {"zone": "zone-0"}
        entries += [ScheduleEntry(at_ms=2_500, kind="relabel", target=f"n{index}", args=args) for index in range(header.nodes)]
    for hour in range(1 + header.span_ms // 3_600_000):
        at_ms = 3_600_000 * hour + chance.randrange(SETTLE_MS, 60_000)
        lost = header.nodes - chance.choice((0, 1, 1, 2))
        # A node is silent after 3 minutes; its pods go 5 minutes after that, and 10 s later those of the next.
        cut_ms = chance.choice((60_000, 240_000, 495_000, 530_000))
        entries.append(ScheduleEntry(at_ms=at_ms, kind="switch", fault=True, args={"nodes": max(lost, 1), "for_ms": cut_ms}))
    return entries


def _fault(chance: Random, kind: str, at_ms: int, services: list[str], nodes: list[str]) -> ScheduleEntry:
    service, node = chance.choice(services), chance.choice(nodes)
    anyone = chance.choice((service, service, service, f"node-{node}", chance.choice(GATEWAYS), COPILOT))
    seed = chance.randrange(1 << 30)
    short, long = chance.choice((500, 2_000, 5_000)), chance.choice((5_000, 20_000, 60_000))
    if kind == "yarn":
        kind = chance.choice(("yarn-lost", "yarn-restart", "yarn-silent"))
    target, args = _drawn(chance, kind, service, node, anyone, seed, short, long)
    return ScheduleEntry(at_ms=at_ms, kind=kind, target=target, fault=True, args=args)


def _drawn(
    chance: Random, kind: str, service: str, node: str, anyone: str, seed: int, short: int, long: int
) -> tuple[str, dict[str, int | str]]:
    match kind:
        case "delay":
            return anyone, {"by_ms": chance.choice((50, 1_000, 8_000)), "for_ms": long}
        case "redeliver":
            return anyone, {"count": chance.choice((1, 10, 100))}
        case "reset":
            return service, {}
        case "answer-lost" | "write-lost" | "refused":
            return anyone, {"count": chance.choice((1, 1, 2, 6))}
        case "stall":
            return "", {"for_ms": short}
        case "partition" | "gap":
            return anyone, {"for_ms": long}
        case "crash":
            target = chance.choice((service, service, service, service, chance.choice(GATEWAYS), COPILOT))
            return target, {"where": chance.choice(("between", "before", "after")), "down_ms": chance.choice((0, short, long))}
        case "pause":
            return service, {"for_ms": chance.choice((short, 40_000))}
        case "executor-crash":
            return node, {"down_ms": short}
        case "slow-executor":
            return node, {"every_ms": chance.choice((3_000, 10_000)), "for_ms": long}
        case "node-death":
            return node, {"down_ms": chance.choice((5_000, 120_000, 700_000, 1_500_000))}
        case "capacity" | "rename":
            cpu, memory = node_shape(chance)
            return node, {"down_ms": long, "cpu": cpu, "memory_gib": memory}
        case "clock":
            by = chance.choice((-300_000, -60_000, -1_500, 1_500, 45_000, 240_000))
            return node, {"by_ms": by, "drift_ppm": chance.choice((0, 0, -200, 500))}
        case "sample-loss":
            return node, {"permille": chance.choice((200, 700, 1000)), "for_ms": long * 2, "seed": seed}
        case "sample-repeat":
            return node, {"count": chance.choice((1, 5, 20)), "after_ms": chance.choice((0, 20_000, LATE_MS))}
        case "shuffle":
            reader = chance.choice(("metrics-ingest/a", "metrics-ingest/b"))
            return reader, {"by_ms": chance.choice((1_000, 20_000)), "for_ms": long, "seed": seed}
        case "request-lost":
            return service, {"for_ms": long}
        case "yarn-lost":
            return node, {"for_ms": chance.choice((long, 900_000))}
        case "yarn-restart":
            return node, {}
        case "yarn-silent":
            return "", {"for_ms": long}
    raise ValueError(kind)
