"""Usage messages and nodes for the metrics-ingest core, and the two streams that give them sequences."""

from array import array
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from cotenant.api.times import rfc3339
from cotenant.events.envelope import WHOLE, Event, MessageDecoders, Payload, decode_event, encode_event
from cotenant.events.node.metrics import NodeMetricComputed, Usage
from cotenant.events.node.predictions import PredictionState
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import ExecutorStatus
from cotenant.events.node.sized_usage import UsageView
from cotenant.events.node.usage import HostApplicationUsage, NumaUsage, PodUsage, Series, UsageSample
from cotenant.events.objects import ObjectDeleted
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.log.contract import USAGE
from cotenant.model.subjects import (
    executor_subject,
    metrics_subject,
    node_subject,
    placement_subject,
    resources_subject,
    usage_subject,
)
from cotenant_metrics_ingest.aggregation import percentile_rank
from cotenant_metrics_ingest.config import MetricsConfig
from cotenant_metrics_ingest.core import MetricsIngestCore
from cotenant_metrics_ingest.means import MeanSlots, MeansWindow, means_of
from cotenant_metrics_ingest.prediction.checkpoints import StoredModels, states_of
from cotenant_metrics_ingest.prediction.models import ModelStore, NodeModels
from tests.builders import node_document, stored

START = datetime(2026, 1, 1, tzinfo=UTC)
KEPT_BY_USAGE = 4
_BY_SIZE = MessageDecoders([UsageView])


def series(cpu: Sequence[int], memory: Sequence[int] | None = None) -> Series:
    return Series(cpu_milli=tuple(cpu), memory_bytes=tuple(memory if memory is not None else [1000] * len(cpu)))


def int64s(*series: Iterable[int]) -> list[bytes]:
    return [array("q", values).tobytes() for values in series]


def percentile_of(values: Sequence[float], percentile: float) -> float:
    """The percentile of samples in any order, by sorting all of them: what arrays of many series must agree with."""
    return sorted(values)[percentile_rank(len(values), percentile)]


def pod(name: str, cpu: Sequence[int], memory: Sequence[int] | None = None, *, qos: str = "LS") -> PodUsage:
    return PodUsage(
        namespace="default", name=name, uid=f"uid-{name}", qos=qos, priority="koord-prod", series=series(cpu, memory)
    )


def host(name: str, cpu: Sequence[int]) -> HostApplicationUsage:
    return HostApplicationUsage(name=name, qos="LS", series=series(cpu))


def mean_of(slots: MeanSlots, end_ms: int, duration_ms: int, keys: Sequence[str]) -> dict[str, Usage]:
    """The means of one node's rows with samples."""
    (found,) = means_of([MeansWindow(slots, end_ms, duration_ms, keys)])
    return {key: mean for key, mean in zip(keys, found, strict=True) if mean is not None}


def state_of(node: str, store: ModelStore, models: NodeModels, trained_ms: int, now: datetime) -> PredictionState:
    """The state of one node, as it is stored."""
    (state,) = states_of([StoredModels(node, models, trained_ms)], store, now)
    return state


class MetricsLog:
    """LOG and USAGE with one metrics-ingest core reading both; what it decides is stored, as bytes, and folded."""

    def __init__(self, config: MetricsConfig | None = None) -> None:
        self.core = MetricsIngestCore(config or MetricsConfig())
        self.now = START
        self.log: list[Event] = []
        self.usage: list[Event] = []
        self.counter = 0

    def _store(self, event: Event) -> Event:
        """Through the wire's form: what a reader gets is what was encoded."""
        stream = self.usage if event.stream == USAGE else self.log
        stamped = msgspec.structs.replace(event, id="test", source="/cell/test", time=event.time or self.now)
        stored = decode_event(
            encode_event(stamped),
            subject=event.subject,
            stream=event.stream,
            sequence=len(stream) + 1,
            tombstone=event.tombstone,
            replaces=event.replaces,
            decoders=_BY_SIZE if event.stream == USAGE else WHOLE,
        )
        stream.append(stored)
        self.core.apply(stored)
        return stored

    def node(self, name: str = "n1") -> str:
        return self._store(Event(subject=node_subject(name), data=stored(node_document(name)))).ref

    def delete_node(self, name: str = "n1") -> str:
        return self._store(Event(subject=node_subject(name), data=ObjectDeleted(), tombstone=True)).ref

    def fact(self, subject: str, data: Payload, *, tombstone: bool = False) -> str:
        return self._store(Event(subject=subject, data=data, tombstone=tombstone)).ref

    def strategy(self, document: object, node: str = "n1") -> str:
        """The colocation strategy as the resource calculator stores it."""
        raw = msgspec.Raw(msgspec.json.encode(document))
        return self.fact(resources_subject(node), NodeResources(node=node, strategy=raw))

    def executor(self, cpu_milli: int, memory_bytes: int, node: str = "n1") -> str:
        allocatable = {"cpu": cpu_milli, "memory": memory_bytes}
        return self.fact(executor_subject(node), ExecutorStatus(node=node, allocatable=allocatable))

    def place(
        self,
        name: str,
        cpu_milli: int,
        memory_bytes: int = 1 << 30,
        *,
        created: datetime = START - timedelta(days=2),
        priority: int = 9500,
        phase: PlacementPhase = PlacementPhase.BOUND,
    ) -> str:
        manifest = {
            "metadata": {"namespace": "default", "name": name, "uid": f"uid-{name}", "creationTimestamp": rfc3339(created)},
            "spec": {"priority": priority, "containers": [{"name": "main"}]},
        }
        placement = Placement(
            node="n1",
            namespace="default",
            name=name,
            uid=f"uid-{name}",
            phase=phase,
            pod=msgspec.Raw(msgspec.json.encode(manifest)),
            requests={"cpu": cpu_milli, "memory": memory_bytes},
        )
        return self.fact(placement_subject("n1", "default", name), placement, tombstone=phase is PlacementPhase.GONE)

    def sample(
        self,
        cpu: Sequence[int],
        memory: Sequence[int] | None = None,
        *,
        node: str = "n1",
        system: Sequence[int] | None = None,
        pods: Sequence[PodUsage] = (),
        hosts: Sequence[HostApplicationUsage] = (),
        period_ms: int = 1000,
        at: datetime | None = None,
        boot: str = "b1",
        counter: int | None = None,
        offsets_ms: Sequence[int] | None = None,
        numa: Sequence[NumaUsage] = (),
    ) -> str:
        """One message; its newest sample is of `at` (now)."""
        self.counter += 1
        offsets = offsets_ms if offsets_ms is not None else range(-period_ms * (len(cpu) - 1), 1, period_ms)
        data = UsageSample(
            node=node,
            boot=boot,
            counter=self.counter if counter is None else counter,
            period_ms=period_ms,
            offsets_ms=tuple(offsets),
            node_usage=series(cpu, memory),
            system_usage=series(system) if system is not None else Series(),
            pods=tuple(pods),
            host_applications=tuple(hosts),
            numa=tuple(numa),
        )
        return self._store(Event(subject=usage_subject(node), data=data, time=at or self.now, stream=USAGE)).ref

    def decide(self, after: float = 0) -> list[Event]:
        """Let seconds pass, then decide until nothing more follows."""
        self.now += timedelta(seconds=after)
        decided: list[Event] = []
        while events := self.core.decide(self.now):
            decided += [self._store(msgspec.structs.replace(event, time=self.now)) for event in events]
        return decided

    def run(self, values: Sequence[int], *, each: int = 15, node: str = "n1", **wanted: object) -> None:
        """One sample a second, a message every `each` seconds, deciding after each message."""
        for start in range(0, len(values), each):
            part = values[start : start + each]
            self.now += timedelta(seconds=len(part))
            self.sample(part, node=node, **wanted)  # type: ignore[arg-type]
            self.decide()

    def minutes(self, count: int, cpu: int, memory: int = 1000, **wanted: object) -> None:
        """A message of 15 equal samples every 15 s for so many minutes, deciding after each."""
        for _ in range(4 * count):
            self.now += timedelta(seconds=15)
            self.sample([cpu] * 15, [memory] * 15, **wanted)  # type: ignore[arg-type]
            self.decide()

    def metric(self, node: str = "n1") -> NodeMetricComputed:
        """The last metrics event of the node."""
        last = next(event for event in reversed(self.log) if event.subject == metrics_subject(node))
        assert isinstance(last.data, NodeMetricComputed)
        return last.data

    def reloaded(self) -> MetricsIngestCore:
        """A fresh core that read what the streams hold: the last four messages of a node on USAGE, then the last one of each
        subject on LOG."""
        core = MetricsIngestCore(self.core.config)
        for stream, count in ((self.usage, KEPT_BY_USAGE), (self.log, 1)):
            held: dict[str, list[Event]] = {}
            for event in stream:
                held[event.subject] = [*held.get(event.subject, []), event][-count:]
            for event in sorted((event for events in held.values() for event in events), key=lambda event: event.sequence):
                core.apply(event)
        return core
