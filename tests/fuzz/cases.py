"""One case: a plan of steps, carried out on a core.

In: a service, a plan as Hypothesis draws it: for each step what it does, a seed, and how hot it is. Out: the number of messages
that were folded; a fault is raised with the step at which it came. A plan shrinks to few steps with few values at an edge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import cache
from random import Random

import msgspec
from hypothesis import strategies as st

from cotenant.model.subjects import matches, object_subject
from tests.fuzz import gateway
from tests.fuzz.cores import SUBJECTS
from tests.fuzz.extremes import NOW
from tests.fuzz.facts import DELETED, DOCUMENTS, OBJECT, TTL_SECONDS, Message, envelope, event, stream_of
from tests.fuzz.facts import SUBJECTS as PATTERNS

HEATS = (0.0, 0.01, 0.05, 0.3)
SAY, AGAIN, END, PASS, ACT = range(5)
_WEIGHTED = (SAY,) * 7 + (AGAIN, END, PASS, ACT, ACT)
SPANS = (
    timedelta(0),
    timedelta(milliseconds=100),
    timedelta(seconds=1),
    timedelta(seconds=61),
    timedelta(minutes=20),
    timedelta(days=1),
)
_OBJECT_TYPES = (OBJECT, OBJECT, OBJECT, DELETED)

Step = tuple[int, int, int]
"""Which of `_WEIGHTED`, a seed, which of HEATS."""
PLANS = st.lists(
    st.tuples(st.integers(0, len(_WEIGHTED) - 1), st.integers(0, 2**32 - 1), st.integers(0, len(HEATS) - 1)),
    min_size=1,
    max_size=24,
)

assert gateway.Gateway in SUBJECTS.values()


@cache
def readable(service: str) -> tuple[str, ...]:
    """The types that a service reads."""
    filters = SUBJECTS[service]().filters
    return tuple(sorted({
        wire for wire, pattern in PATTERNS.items()
        if wire not in (OBJECT, DELETED) and any(_may_match(each, pattern) for each in filters)
    }))  # fmt: skip


def _may_match(filter_subject: str, pattern: str) -> bool:
    concrete = pattern.replace("<node>", "n1")
    return matches(filter_subject, ".".join("x" if part.startswith("<") else part for part in concrete.split(".")))


@cache
def _reads_objects(service: str) -> bool:
    filters = SUBJECTS[service]().filters
    return any(
        matches(each, object_subject(of.group, of.plural, "koordinator-system" if of.namespaced else "",
        "slo-controller-config")) for of in DOCUMENTS for each in filters
    )  # fmt: skip


def said(service: str, filters: Sequence[str], random: Random, heat: float) -> Message | None:
    """Return a message that the service reads; None where none of ten is."""
    wires = readable(service)
    for _ in range(10):
        objects = _reads_objects(service) and (random.random() < 0.5 or not wires)
        message = event(random, random.choice(_OBJECT_TYPES if objects else wires), heat)
        if any(matches(each, message.subject) for each in filters):
            return message
    return None


def messages(service: str, plan: Sequence[Step]) -> Iterator[Message]:
    """Yield what the steps of a plan say to a service."""
    filters = SUBJECTS[service]().filters
    for _, seed, hot in plan:
        message = said(service, filters, Random(seed), HEATS[hot])
        if message is not None:
            yield message


def run(service: str, plan: Sequence[Step]) -> int:
    """Carry out a plan; return how many messages were folded."""
    subject = SUBJECTS[service]()
    journal, now = subject.journal, NOW
    for kind, seed, hot in plan:
        random, heat = Random(seed), HEATS[hot]
        op = _WEIGHTED[kind]
        if op == SAY:
            message = said(service, subject.filters, random, heat)
            made = journal.take(message, stream=stream_of(message.subject)) if message is not None else None
            if made is not None:
                subject.fold(made)
        elif op == AGAIN and journal.events:
            subject.fold(random.choice(journal.events))
        elif op == END and journal.events:
            _end(subject, random)
        elif op == PASS:
            now += random.choice(SPANS)
        elif op == ACT:
            subject.act(now, random, heat)
    subject.act(now + timedelta(seconds=5), Random(1), 0.0)
    subject.finish(now + timedelta(seconds=5))
    folded: int = subject.folded
    return folded


def _end(subject: gateway.Gateway, random: Random) -> None:
    """End an entity that was spoken of, with the tombstone that its writer stores."""
    journal = subject.journal
    about = random.choice(journal.events)
    if about.stream != "LOG":
        return
    if about.subject.startswith("objects."):
        message = envelope(random, about.subject, DELETED, {}, 0.0, tombstone=True)
        ended = journal.take(message)
    else:
        journal.sequence += 1
        ended = msgspec.structs.replace(about, sequence=journal.sequence, tombstone=True, ttl_seconds=TTL_SECONDS)
        journal.note(ended)
    if ended is not None:
        subject.fold(ended)
