"""The cores under fuzz, each behind one interface: fold a message, decide at a time, show what it holds.

In: messages as bytes, a time, a random source for what is no message (requests to the gateway, reports of a ResourceManager).
Out: nothing where all is well. A core that raises, decides events that cannot be stored, decides twice and differently, does
not come to rest, or differs from one that has loaded the last messages fails the case.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any, Protocol

import msgspec

from cotenant.engine.core import MAX_EVENTS_PER_DECISION
from cotenant.engine.definition import ServiceDefinition
from cotenant.engine.last_messages import LastMessages
from cotenant.events.envelope import (
    WHOLE,
    Event,
    EventError,
    MessageDecoders,
    decode_event,
    encode_event,
    encode_payload,
)
from cotenant.events.node.usage import UsageSample
from cotenant.events.requests import QuotaQuestion, SchedulerQuestion
from cotenant.log.contract import LOG, USAGE
from cotenant.model.subjects import matches
from cotenant_batch_resource_calculator.definition import DEFINITION as CALCULATOR
from cotenant_descheduler_arbiter.definition import DEFINITION as ARBITER
from cotenant_metrics_ingest.definition import DEFINITION as METRICS
from cotenant_node_executor.simulated.machine import NodeSize, simulated_node
from cotenant_quota_tree.definition import DEFINITION as QUOTAS
from cotenant_scheduler.definition import DEFINITION as SCHEDULER
from cotenant_yarn_copilot.capacity import Rounding
from cotenant_yarn_copilot.core import FILTERS as YARN_FILTERS
from cotenant_yarn_copilot.core import YarnCopilot
from cotenant_yarn_copilot.rm_messages import AnswerError, RmNode, read_nodes, update_body
from tests.fuzz.extremes import json_bytes, junk
from tests.fuzz.facts import TTL_SECONDS, Message
from tests.fuzz.making import Maker
from tests.fuzz.texts import CONFIGURATION, as_text

ROUNDS = 40
"""Decisions at one time until there is nothing left to decide."""
LATER = (timedelta(seconds=61), timedelta(minutes=20))


class Subject(Protocol):
    """A core under fuzz."""

    filters: tuple[str, ...]
    folded: int
    """Messages that could be decoded and were folded."""

    def fold(self, event: Event) -> None:
        """Fold one event. Whatever it raises is a fault."""

    def act(self, now: datetime, random: Random, heat: float) -> None:
        """Do what the service does at this time: decide and store, answer requests."""

    def finish(self, now: datetime) -> None:
        """Compare with a core that has loaded the last messages, where that is possible."""


class Journal:
    """What was stored: sequences, the last messages, and events to deliver again."""

    def __init__(self, decoders: MessageDecoders = WHOLE) -> None:
        self.sequence = 0
        self.kept = LastMessages()
        self.events: list[Event] = []
        self._decoders = decoders

    def take(self, message: Message, *, stream: str = LOG) -> Event | None:
        """Store a message and decode it; None where it would be a dead letter."""
        self.sequence += 1
        ttl = TTL_SECONDS if message.tombstone else 0
        try:
            event = decode_event(
                message.data, subject=message.subject, stream=stream, sequence=self.sequence, tombstone=message.tombstone,
                ttl_seconds=ttl, decoders=self._decoders,
            )  # fmt: skip
        except EventError:
            return None
        self.note(event)
        return event

    def note(self, event: Event) -> None:
        self.events.append(event)
        if event.stream == LOG:
            self.kept.note(event)

    def store(self, event: Event, now: datetime) -> Event:
        """Store what a core decided: it must come back as it was."""
        self.sequence += 1
        stamped = msgspec.structs.replace(event, id=f"own/{self.sequence}", source="/own", time=now, sequence=self.sequence)
        stored = decode_event(
            encode_event(stamped), subject=event.subject, stream=event.stream, sequence=self.sequence,
            tombstone=event.tombstone, ttl_seconds=event.ttl_seconds, decoders=self._decoders,
        )  # fmt: skip
        whole = decode_event(encode_event(stamped), subject=event.subject, stream=event.stream, sequence=self.sequence)
        assert encode_payload(whole.data) == encode_payload(event.data), f"{event.subject} is another one when it is read again"
        assert whole.causes == event.causes
        self.note(stored)
        return stored


def answer(events: Sequence[Event]) -> list[tuple[str, bytes, tuple[str, ...], bool]]:
    """What of a decision is compared."""
    return [(event.subject, encode_payload(event.data), event.causes, event.tombstone) for event in events]


class Deciding:
    """A deciding service's core, by its definition."""

    def __init__(self, definition: ServiceDefinition) -> None:
        self.definition = definition
        self.filters = (*definition.filters, *definition.usage_filters)
        self.journal = Journal(MessageDecoders(definition.views))
        self.core = self._fresh()
        self.folded = 0

    def _fresh(self) -> Any:
        return self.definition.make_core(self.definition.config_from(b"{}"))

    def fold(self, event: Event) -> None:
        self.folded += 1
        self.core.apply(event)

    def act(self, now: datetime, random: Random, heat: float) -> None:
        for _ in range(ROUNDS):
            decided = self.core.decide(now)
            assert len(decided) <= MAX_EVENTS_PER_DECISION
            self._ask(now, random, heat)
            if self.definition.recomputed:
                assert answer(self.core.decide(now)) == answer(decided), "asked twice it decides differently"
            if not decided:
                return
            for event in decided:
                self.core.apply(self.journal.store(event, now))
        raise AssertionError(f"{ROUNDS} decisions at one time, and still: {decided[0].subject} {decided[0].data}")

    def _ask(self, now: datetime, random: Random, heat: float) -> None:
        """Each question gets an answer, whatever it is; that it changes nothing shows in the decision afterwards."""
        for question in self.definition.questions:
            asked = _asked(question.name, random, heat)
            *_, said = question.answer(self.core, now, asked)
            assert said is not None
            json.loads(said)

    def finish(self, now: datetime) -> None:
        if not self.definition.recomputed:
            return
        fresh = self._fresh()
        for event in self.journal.kept.in_order():
            fresh.apply(event)
        for later in (timedelta(0), *LATER):
            assert answer(fresh.decide(now + later)) == answer(self.core.decide(now + later)), (
                f"a core that loads the last messages decides differently after {later}"
            )


class Executor:
    """A simulated node: the executor's core with a machine of tables."""

    def __init__(self) -> None:
        self.filters = ("node.n1.>",)
        self.journal = Journal()
        self.node = simulated_node("n1", NodeSize())
        self.folded = 0
        self._started = False

    def fold(self, event: Event) -> None:
        self.folded += 1
        self.node.apply(event)

    def act(self, now: datetime, random: Random, heat: float) -> None:
        if not self._started or not self.node.core.loaded:
            self._started = True
            self.node.apply(self.journal.store(self.node.start_marker(now), now))
        for step in range(3):
            now += timedelta(seconds=step)
            for event in self.node.step(now):
                stored = self.journal.store(self.node.identified(self.node.refer(event), "cell"), now)
                if stored.stream == LOG:
                    self.node.apply(stored)
                elif stored.stream == USAGE:
                    assert isinstance(stored.data, UsageSample)
                    self.node.usage_stored(stored.ref)
        assert not self.node.core.findings, f"set aside: {self.node.core.findings[0].reason}"

    def finish(self, now: datetime) -> None:
        restarted = self.node.restarted()
        restarted.apply(self.journal.store(restarted.start_marker(now), now))
        for event in self.journal.kept.in_order():
            if matches(self.filters[0], event.subject):
                restarted.apply(event)
        restarted.step(now)
        assert not restarted.core.findings, f"set aside: {restarted.core.findings[0].reason}"


class Copilot:
    """The copilot's core, with reports of ResourceManagers."""

    def __init__(self) -> None:
        self.filters = YARN_FILTERS
        self.journal = Journal()
        self.core = YarnCopilot(Rounding.EXACT)
        self.folded = 0
        self._reports: dict[str, tuple[RmNode, ...]] = {}

    def fold(self, event: Event) -> None:
        self.folded += 1
        self.core.apply(event)

    def act(self, now: datetime, random: Random, heat: float) -> None:
        made = Maker(random, heat, 0.8).make(list[RmNode])
        try:
            nodes = read_nodes(json_bytes({"nodes": {"node": made}}))
        except AnswerError:
            nodes = ()
        self._reports = {"": nodes}
        for setting in self.core.settings(self.core.match(self._reports, now)):
            update_body(setting.total)
        for _ in range(ROUNDS):
            facts = self._facts(self.core, now)
            if not facts:
                return
            for event in facts:
                self.core.apply(self.journal.store(event, now))
        raise AssertionError(f"{ROUNDS} passes at one time, and still: {facts[0].subject} {facts[0].data}")

    def _facts(self, core: YarnCopilot, now: datetime) -> list[Event]:
        return core.facts(core.match(self._reports, now), self._reports, {}, now)

    def finish(self, now: datetime) -> None:
        fresh = YarnCopilot(Rounding.EXACT)
        for event in self.journal.kept.in_order():
            fresh.apply(event)
        assert answer(self._facts(fresh, now)) == answer(self._facts(self.core, now))


def _asked(question: str, random: Random, heat: float) -> bytes:
    """A request of an endpoint: of its type, of another one, or none at all."""
    if random.random() < heat:
        return random.choice((b"", b"\xff", b"null", b"[" * 5000, json_bytes(junk(random))))
    if question == "dry-run":
        said = {key: as_text(random, example, heat) for key, example in CONFIGURATION.items() if random.random() < 0.3}
        return json_bytes(said)
    maker = Maker(random, heat, 0.5)
    made = maker.make(random.choice((SchedulerQuestion, QuotaQuestion)))
    if isinstance(made, dict) and not maker.hot():
        made["about"] = random.choice(("scores", "filters", "gangs", "gang", "reservations", "?"))
    return json_bytes(made)


def _deciding(definition: ServiceDefinition) -> Callable[[], Any]:
    return lambda: Deciding(definition)


SUBJECTS: dict[str, Callable[[], Any]] = {
    **{each.name: _deciding(each) for each in (SCHEDULER, CALCULATOR, QUOTAS, ARBITER, METRICS)},
    "node-executor": Executor,
    "yarn-copilot": Copilot,
}
"""By service, a core under fuzz; `gateway` adds its own."""
