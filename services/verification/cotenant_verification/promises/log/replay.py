"""Promises 10, 15 and 19: a service's state is a fold of the log, decisions can be recomputed, `decide` has no effect."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from cotenant.engine.core import Core
from cotenant.events.envelope import Event, encode_payload
from cotenant.log.memory import MemoryStream
from cotenant.model.subjects import tokens
from cotenant.simulation import ServiceParticipant, World
from cotenant_verification.checks.copying import copied
from cotenant_verification.checks.invariants import Moment, Wrong
from cotenant_verification.checks.probes import probes
from cotenant_verification.checks.reference_cores import ReferenceCores

LATER = (timedelta(seconds=61), timedelta(minutes=20))
"""Offsets at which the cores decide besides now: when back-offs and pauses are over, and when every metric has expired."""
FIRST_QUESTION = "asked"


def state_is_the_fold(participant: ServiceParticipant, world: World, references: ReferenceCores, number: int) -> Wrong:
    """A live core that has folded everything decides like one that has folded the log from its start and never decided, and, in
    the next comparison, like a fresh one that loads the last message of each subject: now, later, and with pods that reveal its
    state of nodes and quotas. The first decision is the live core's own, with all its caches; the others are a copy's. `number`
    distinguishes comparisons."""
    now, core = world.now, participant.cycle.core
    name = "folded the whole log" if number % 2 else "loaded the last message of each subject"
    fresh = references.of(participant.definition.name) if number % 2 else _loaded(world, participant)
    copy = copied(core)
    for asked in _questions(_probes(world, number), now):
        live, answer = _answer(core if asked[1] == FIRST_QUESTION else copy, asked), _answer(fresh, asked)
        if answer != live and (parted := _difference(live, answer)):
            yield (
                participant.identity.commit_subject,
                f"{asked[1]} at {asked[0]}, {participant.name} and a core that {name} differ: {parted}",
            )
            return


def deciding_changes_nothing(participant: ServiceParticipant, world: World, number: int) -> Wrong:
    """`decide` has no observable effect except the events that it returns: called twice a core returns the same, and after any
    calls it folds new facts and decides like a copy on which it was never called. The core in use is only copied."""
    now = world.now
    asked, unasked = copied(participant.cycle.core), copied(participant.cycle.core)
    again = (now, "asked again", ())
    first, second = _answer(asked, again), _answer(asked, again)
    if parted := _difference(first, second):
        yield participant.identity.commit_subject, (
            f"at {now}, {participant.name} decides differently when it decides twice: "
            f"{parted}"
        )
        return
    *before, (when, _, new) = _questions(_probes(world, number), now)
    for question in before:
        _answer(asked, question)
    last = (when + LATER[-1], "asked last", new)
    if parted := _difference(_answer(asked, last), _answer(unasked, last)):
        text = f"at {last[0]}, {participant.name} and a copy that never decided decide differently: {parted}"
        yield participant.identity.commit_subject, text


def _loaded(world: World, participant: ServiceParticipant) -> Core:
    fresh = participant.definition.make_core(participant.config)
    for event in last_messages(world.streams.log, participant):
        fresh.apply(event)
    return fresh


def last_messages(stream: MemoryStream, participant: ServiceParticipant) -> Iterator[Event]:
    """The messages that a starting process loads: the last of each subject that it reads."""
    found = (stream.event(sequence) for sequence in stream.snapshot(participant.definition.filters))
    return (event for event in found if event is not None)


def _probes(world: World, number: int) -> tuple[Event, ...]:
    nodes, quotas = set(), set()
    for subject in world.streams.log.subjects():
        match tokens(subject):
            case ("node", node, "executor"):
                nodes.add(node)
            case ("quotas", _, quota):
                quotas.add(quota)
    return probes(sorted(nodes), sorted(quotas), number)


Question = tuple[datetime, str, tuple[Event, ...]]


def _questions(new: tuple[Event, ...], now: datetime) -> list[Question]:
    return [
        (now, FIRST_QUESTION, ()),
        *((now + later, "asked later", ()) for later in LATER),
        (now, "asked after new pods", new),
    ]


Answer = list[tuple[str, bytes, tuple[str, ...], bool]]
"""A decided event: subject, data, causes, whether it ends the subject."""


def _answer(core: Core, asked: Question) -> Answer:
    for event in asked[2]:
        core.apply(event)
    return [
        (event.subject, encode_payload(event.data), event.causes, event.tombstone) for event in core.decide(asked[0])
    ]


def _difference(live: Answer, fresh: Answer) -> str:
    """The first place where two decisions differ."""
    if len(live) != len(fresh):
        named = [" ".join(decided[0] for decided in answer[:5]) or "nothing" for answer in (live, fresh)]
        return f"{len(live)} and {len(fresh)} events: {named[0]} | {named[1]}"
    for old, new in zip(live, fresh, strict=True):
        if old == new:
            continue
        if old[1] != new[1]:
            at = next(i for i, (a, b) in enumerate(zip(old[1] + b"!", new[1] + b"?", strict=False)) if a != b)
            begin = max(at - 80, 0)
            texts = [text[begin : at + 80].decode(errors="replace") for text in (old[1], new[1])]
            return f"{old[0]}: ...{texts[0]}... | ...{texts[1]}..."
        if (old[0], old[2:]) != (new[0], new[2:]):
            return f"{old[0]} {' '.join(old[2])} | {new[0]} {' '.join(new[2])}"
    return ""


def decisions_can_be_recomputed(moment: Moment) -> Wrong:
    """The state that each commit names was rebuilt from the log as it grew, and `decide` returned the same events."""
    report = moment.verifier.report
    moment.counts["decisions recomputed"] += report.verified
    found = report.first_difference
    if found is not None:
        yield found.commit, (
            f"{found.service}, commit {found.commit}, event {found.index}, {found.field}: recorded {found.recorded[:500]}, "
            f"recomputed {found.recomputed[:500]}"
        )
