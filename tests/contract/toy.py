"""A toy service: it doubles every CPU figure of `metrics.<node>` into `node.<node>.resources`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cotenant.engine.commit import Identity
from cotenant.engine.definition import ServiceDefinition
from cotenant.events import Event, NodeMetricComputed, NodeResources
from cotenant.events.node.metrics import Usage
from cotenant.model.subjects import metrics_subject, resources_subject


class ToyConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`factor` multiplies the figure."""

    factor: int = 2


class ToyCore:
    """State: the last metric and the last own answer of each node."""

    def __init__(self, config: ToyConfig) -> None:
        self.config = config
        self.metrics: dict[str, Event] = {}
        self.answers: dict[str, NodeResources] = {}
        self.applied = 0

    def apply(self, event: Event) -> None:
        self.applied += 1
        match event.data:
            case NodeMetricComputed(node=node):
                if event.tombstone:
                    self.metrics.pop(node, None)
                elif node not in self.metrics or self.metrics[node].sequence < event.sequence:
                    self.metrics[node] = event
            case NodeResources(node=node):
                if event.tombstone:
                    self.answers.pop(node, None)
                else:
                    self.answers[node] = event.data

    def decide(self, now: datetime) -> Sequence[Event]:
        decided: list[Event] = []
        for node in sorted(self.metrics.keys() | self.answers.keys()):
            metric, answer = self.metrics.get(node), self.answers.get(node)
            if metric is None:
                decided.append(
                    Event(subject=resources_subject(node), data=NodeResources(node=node), tombstone=True, ttl_seconds=3600)
                )
                continue
            assert isinstance(metric.data, NodeMetricComputed)
            wanted = metric.data.node_usage.cpu_milli * self.config.factor
            if answer is None or answer.batch_cpu_milli != wanted:
                decided.append(
                    Event(
                        subject=resources_subject(node),
                        data=NodeResources(node=node, batch_cpu_milli=wanted, update_time=now),
                        causes=(metric.ref,),
                    )
                )
        return decided[:999]


class AssumingToyCore(ToyCore):
    """The toy, which also decides on answers of its own that are still being stored. An answer that follows another one
    of the same node names it as a cause."""

    def __init__(self, config: ToyConfig) -> None:
        super().__init__(config)
        self.answered_at: dict[str, int] = {}
        self.assumed: list[tuple[str, NodeResources | None, int]] = []

    def apply(self, event: Event) -> None:
        super().apply(event)
        if isinstance(event.data, NodeResources):
            self.answered_at[event.data.node] = event.sequence

    def decide(self, now: datetime) -> Sequence[Event]:
        return [
            msgspec.structs.replace(event, causes=(*event.causes, f"LOG:{self.answered_at[event.data.node]}"))
            if isinstance(event.data, NodeResources) and event.data.node in self.answered_at
            else event
            for event in super().decide(now)
        ]

    def assume(self, events: Sequence[Event]) -> None:
        assert not self.assumed, "one batch at a time"
        for index, event in enumerate(events, 1):
            assert isinstance(event.data, NodeResources)
            node = event.data.node
            self.assumed.append((node, self.answers.get(node), self.answered_at.get(node, 0)))
            self.apply(msgspec.structs.replace(event, sequence=-index))

    def confirm(self, first: int) -> None:
        for index, (node, _, _) in enumerate(self.assumed):
            self.answered_at[node] = first + index
        self.assumed = []

    def withdraw(self) -> None:
        for node, answer, sequence in reversed(self.assumed):
            if answer is None:
                self.answers.pop(node, None)
            else:
                self.answers[node] = answer
            if sequence:
                self.answered_at[node] = sequence
            else:
                self.answered_at.pop(node, None)
        self.assumed = []


TOY = ServiceDefinition(
    name="toy",
    core_version="1",
    filters=("metrics.*", "node.*.resources"),
    config_type=ToyConfig,
    make_core=ToyCore,
)
ASSUMING_TOY = msgspec.structs.replace(TOY, make_core=AssumingToyCore)


def toy_identity(replica: str = "a") -> Identity:
    return Identity(service="toy", replica=replica)


def metric(node: str, cpu_milli: int, *, event_id: str = "") -> Event:
    """A metric fact as some other service would store it."""
    return Event(
        subject=metrics_subject(node),
        data=NodeMetricComputed(node=node, node_usage=Usage(cpu_milli=cpu_milli)),
        id=event_id or f"metric/{node}/{cpu_milli}",
        source="/cell/other/0",
    )
