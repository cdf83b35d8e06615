"""The machines of a run's start."""

from __future__ import annotations

from random import Random

from cotenant_verification.workload.schedule import Header, ScheduleEntry

NODE_SHAPES = ((4_000, 8), (8_000, 16), (16_000, 64))
"""CPU in milli-cores, memory in GiB."""
ZONES = 3


def node_shape(chance: Random) -> tuple[int, int]:
    """One of the shapes."""
    return NODE_SHAPES[chance.randrange(len(NODE_SHAPES))]


def zone_of(index: int) -> str:
    """The zone of a machine."""
    return f"zone-{index % ZONES}"


def machines(header: Header) -> tuple[list[ScheduleEntry], int]:
    """The nodes of a run, with kernels of both cgroup versions, and their CPUs in sum."""
    chance = Random(f"machines/{header.seed}")
    entries, capacity = [], 0
    for index in range(header.nodes):
        cpu, memory = node_shape(chance)
        capacity += cpu
        args: dict[str, int | str] = {"cpu": cpu, "memory_gib": memory, "cgroup": chance.choice((1, 2))}
        args["zone"] = zone_of(index)
        entries.append(ScheduleEntry(at_ms=1_500 + index, kind="node", target=f"n{index}", args=args))
    return entries, capacity
