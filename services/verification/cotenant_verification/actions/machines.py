"""Machines: they join, fail, return unchanged or changed; their executors crash, their clocks jump."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from cotenant.model.subjects import object_subject
from cotenant_verification.harness.harness import Harness
from cotenant_verification.harness.nodes import MachineShape
from cotenant_verification.workload.schedule import ScheduleEntry, ms

NODES = ("", "nodes")
AGAIN = timedelta(seconds=30)
ASKED = 20
"""The interval at which an administrator removes a machine: faults last minutes at most."""


def join(harness: Harness, entry: ScheduleEntry, _now: datetime) -> bool:
    """Add a machine to the cluster."""
    machine = MachineShape(
        entry.number("cpu"),
        entry.number("memory_gib"),
        entry.number("cgroup"),
        int(entry.args.get("gpus", 0)),
        str(entry.args.get("model", "")),
        str(entry.args.get("zone", "")),
    )
    return harness.add_node(entry.target, machine)


def crash_executor(harness: Harness, entry: ScheduleEntry, _now: datetime) -> bool:
    """Crash the executor's process; its pods keep running."""
    node = harness.nodes.get(entry.target)
    if node is None:
        return False
    node.crash(ms(entry.number("down_ms")))
    return True


def slow_down(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """Run the executor only once in a while; its samples are far apart."""
    node = harness.nodes.get(entry.target)
    if node is None:
        return False
    node.slow_down(ms(entry.number("every_ms")), now + ms(entry.number("for_ms")))
    return True


def set_clock(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """Let a node's clock jump and drift."""
    node = harness.nodes.get(entry.target)
    if node is None:
        return False
    node.set_clock(ms(entry.number("by_ms")), entry.number("drift_ppm"), now)
    return True


def die(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """Fail a machine; it returns later without pods, perhaps with another size or under another name."""
    node = harness.nodes.pop(entry.target, None)
    if node is None:
        return False
    harness.world.remove(node)
    name = f"{entry.target}x" if entry.kind == "rename" else entry.target
    args: Mapping[str, int | str] = entry.args
    before = node.machine
    size = int(args.get("cpu", before.cpu_milli)), int(args.get("memory_gib", before.memory_gib))
    machine = MachineShape(*size, before.cgroup, before.gpus, before.model, before.zone)
    if entry.kind == "rename":
        _remove(harness, entry.target, now, ASKED)
    back = min(now + ms(entry.number("down_ms")), harness.ends)
    harness.at(max(back, now + ms(1)), lambda _: harness.add_node(name, machine))
    return True


def _remove(harness: Harness, name: str, now: datetime, tries: int) -> None:
    """Let the administrator delete the Node of a machine that is gone, and retry while its object exists. The log is
    checked rather than a gateway, which may be loading and show nothing."""
    harness.gateway().request_deletion(now, NODES, "", name, None)

    def again(later: datetime) -> None:
        log = harness.world.streams.log
        node = log.event(log.last_of(object_subject(*NODES, "", name)))
        if tries > 1 and node is not None and not node.tombstone:
            _remove(harness, name, later, tries - 1)

    harness.at(now + AGAIN, again)


ACTIONS = {
    "node": join,
    "executor-crash": crash_executor,
    "slow-executor": slow_down,
    "clock": set_clock,
    "node-death": die,
    "capacity": die,
    "rename": die,
}
