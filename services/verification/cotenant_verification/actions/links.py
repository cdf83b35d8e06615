"""Faults of connections to the log: delays, losses, duplicates, refusals, partitions. Each ends by itself, or when the harness
lifts all faults."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from random import Random

from cotenant_verification.harness.harness import Harness
from cotenant_verification.harness.nodes import ChaosNode
from cotenant_verification.workload.schedule import ScheduleEntry, ms


def delay(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """Delay deliveries."""
    link = harness.world.trouble(entry.target)
    if link is None:
        return False
    link.delay, link.delayed_until = ms(entry.number("by_ms")), now + ms(entry.number("for_ms"))
    return True


def redeliver(harness: Harness, entry: ScheduleEntry, _now: datetime) -> bool:
    """Deliver the last messages once more."""
    if harness.world.trouble(entry.target) is None:
        return False
    harness.world.redeliver(entry.target, entry.number("count"))
    return True


def lose(harness: Harness, entry: ScheduleEntry, _now: datetime) -> bool:
    """Make the next writes fail in one of three ways."""
    link = harness.world.trouble(entry.target)
    if link is None:
        return False
    field = {"answer-lost": "answers_lost", "write-lost": "writes_lost", "refused": "refusals"}[entry.kind]
    setattr(link, field, entry.number("count"))
    return True


def stall(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """Take the log's leader away for a while."""
    harness.world.stalled_until = max(harness.world.stalled_until, now + ms(entry.number("for_ms")))
    return True


def partition(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """Cut a participant off from the log: no deliveries, no writes; afterwards the reader finds a gap."""
    link = harness.world.trouble(entry.target)
    if link is None:
        return False
    link.severed_until = now + ms(entry.number("for_ms"))
    harness.world.interrupt(entry.target, link.severed_until)
    return True


def lose_machines(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """A switch fails: the machines behind it are disconnected, and their pods keep running. An executor away for longer
    than half of a tombstone's time starts over, as its reader would make it.
    """
    until = now + ms(entry.number("for_ms"))
    behind = [harness.nodes[name] for name in sorted(harness.nodes)[: entry.number("nodes")]]
    for node in behind:
        partition(harness, ScheduleEntry(at_ms=entry.at_ms, kind="partition", target=node.name, args=entry.args), now)
        if 2 * (until - now) > timedelta(seconds=harness.schedule.header.tombstone_s):
            harness.at(until, partial(_starts_over, harness, node))
    return bool(behind)


def _starts_over(harness: Harness, node: ChaosNode, _now: datetime) -> None:
    if harness.nodes.get(node.node_name) is node:
        node.crash(ms(0))


def gap(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """Lose deliveries while writes arrive; the reader finds the gap and reads what the log still holds."""
    return harness.world.interrupt(entry.target, now + ms(entry.number("for_ms")))


def repeat(harness: Harness, entry: ScheduleEntry, _now: datetime) -> bool:
    """Lose the answers to the next samples: the executor sends them again, sometimes so late that they are stored twice."""
    link = harness.world.trouble(f"node-{entry.target}")
    if link is None:
        return False
    link.repeats, link.repeated_after = entry.number("count"), ms(entry.number("after_ms"))
    return True


def lose_samples(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """Lose samples of a node."""
    link = harness.world.trouble(f"node-{entry.target}")
    if link is None:
        return False
    link.random = Random(entry.number("seed"))
    link.loss_permille, link.lossy_until = entry.number("permille"), now + ms(entry.number("for_ms"))
    return True


def shuffle(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """Reorder samples."""
    link = harness.world.trouble(entry.target)
    if link is None:
        return False
    link.random = Random(entry.number("seed"))
    link.shuffle, link.shuffled_until = ms(entry.number("by_ms")), now + ms(entry.number("for_ms"))
    return True


ACTIONS = {
    "delay": delay,
    "redeliver": redeliver,
    "answer-lost": lose,
    "write-lost": lose,
    "refused": lose,
    "stall": stall,
    "partition": partition,
    "gap": gap,
    "switch": lose_machines,
    "sample-repeat": repeat,
    "sample-loss": lose_samples,
    "shuffle": shuffle,
}
