"""Faults of the ways to the log: late, lost, twice, refused, cut off. Each ends by itself, or when the stage is mended."""

from __future__ import annotations

from datetime import datetime
from random import Random
from typing import TYPE_CHECKING

from cotenant_verification.workload.schedule import Entry, ms

if TYPE_CHECKING:
    from cotenant_verification.harness.harness import Stage


def delay(stage: Stage, entry: Entry, now: datetime) -> bool:
    """Deliveries come late."""
    link = stage.world.trouble(entry.target)
    if link is None:
        return False
    link.delay, link.delayed_until = ms(entry.number("by_ms")), now + ms(entry.number("for_ms"))
    return True


def redeliver(stage: Stage, entry: Entry, _now: datetime) -> bool:
    """The last messages come once more."""
    if stage.world.trouble(entry.target) is None:
        return False
    stage.world.redeliver(entry.target, entry.number("count"))
    return True


def lose(stage: Stage, entry: Entry, _now: datetime) -> bool:
    """The next writes fail in one of three ways."""
    link = stage.world.trouble(entry.target)
    if link is None:
        return False
    field = {"answer-lost": "answers_lost", "write-lost": "writes_lost", "refused": "refusals"}[entry.kind]
    setattr(link, field, entry.number("count"))
    return True


def stall(stage: Stage, entry: Entry, now: datetime) -> bool:
    """The log has no leader."""
    stage.world.stalled_until = max(stage.world.stalled_until, now + ms(entry.number("for_ms")))
    return True


def partition(stage: Stage, entry: Entry, now: datetime) -> bool:
    """Cut off from the log: nothing comes, no write arrives; afterwards the reader finds a gap."""
    link = stage.world.trouble(entry.target)
    if link is None:
        return False
    link.severed_until = now + ms(entry.number("for_ms"))
    stage.world.interrupt(entry.target, link.severed_until)
    return True


def gap(stage: Stage, entry: Entry, now: datetime) -> bool:
    """Deliveries are lost on their way, writes arrive; the reader finds the gap and reads what the log still holds."""
    return stage.world.interrupt(entry.target, now + ms(entry.number("for_ms")))


def repeat(stage: Stage, entry: Entry, _now: datetime) -> bool:
    """The answers to the next samples are lost: the executor sends them again, sometimes so late that they are stored twice."""
    link = stage.world.trouble(f"node-{entry.target}")
    if link is None:
        return False
    link.repeats, link.repeated_after = entry.number("count"), ms(entry.number("after_ms"))
    return True


def lose_samples(stage: Stage, entry: Entry, now: datetime) -> bool:
    """Samples of a node do not arrive."""
    link = stage.world.trouble(f"node-{entry.target}")
    if link is None:
        return False
    link.random = Random(entry.number("seed"))
    link.loss_permille, link.lossy_until = entry.number("permille"), now + ms(entry.number("for_ms"))
    return True


def shuffle(stage: Stage, entry: Entry, now: datetime) -> bool:
    """Samples overtake one another."""
    link = stage.world.trouble(entry.target)
    if link is None:
        return False
    link.random = Random(entry.number("seed"))
    link.shuffle, link.shuffled_until = ms(entry.number("by_ms")), now + ms(entry.number("for_ms"))
    return True


ACTS = {
    "delay": delay,
    "redeliver": redeliver,
    "answer-lost": lose,
    "write-lost": lose,
    "refused": lose,
    "stall": stall,
    "partition": partition,
    "gap": gap,
    "sample-repeat": repeat,
    "sample-loss": lose_samples,
    "shuffle": shuffle,
}
