"""The state of one node: its object, its windows, its prediction, its last report, and the time of its next evaluation.

Bound: one NodeWindows per declared node (see `slots` and `means`: about 100 KiB with 30 pods), one NodePrediction (see
`prediction`: about 35 KiB), one PlacedPod for each of its placements, MAX_CAUSES references.

Over 300 lines: one short method for each kind of fact about the node.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from sys import intern
from zlib import crc32

import msgspec

from cotenant.api.objects.node import decode_node
from cotenant.domain.node import NodeSources
from cotenant.events.envelope import Event, PayloadView, encode_payload
from cotenant.events.node.metrics import NodeMetricComputed, ResourceForecast, Usage
from cotenant.events.node.predictions import PredictionState
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import ExecutorStatus
from cotenant.events.node.usage import UsageSample
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.model.bounds import Amount
from cotenant.model.names import ANNOTATION_COLOCATION_STRATEGY, CPU, MEMORY
from cotenant.model.quantities import QuantityError
from cotenant.model.values import Value
from cotenant_metrics_ingest.config import MetricsConfig
from cotenant_metrics_ingest.contention import ContentionMessages
from cotenant_metrics_ingest.policy import PolicyInForce, StrategyPolicy, collect_policy, wants_time_of_day
from cotenant_metrics_ingest.prediction.models import Predicted, Training
from cotenant_metrics_ingest.prediction.node import (
    Forecast,
    NodePrediction,
    PredictedPod,
    PredictionPlacement,
    PredictionStore,
    by_time_of_day,
)
from cotenant_metrics_ingest.samples import Samples
from cotenant_metrics_ingest.windows.node_windows import LONGEST_MS, NodeWindows, WindowSizes

MAX_CAUSES = 4
FORECASTS_AT_ONCE = 128
"""Nodes whose percentiles are computed together: some 4,700 models of 30 pods."""
_GONE = PlacementPhase.GONE
NO_STRATEGY = msgspec.Raw(b"{}")


class StrategyView(PayloadView, frozen=True, kw_only=True):
    """The part of a node's resources that is read: the colocation strategy."""

    OF = NodeResources

    node: str
    strategy: msgspec.Raw = NO_STRATEGY


class ExecutorView(PayloadView, frozen=True, kw_only=True):
    """The part of an executor's report that is read: its allocatable."""

    OF = ExecutorStatus

    node: str
    allocatable: dict[str, Amount] = {}


_METRIC = msgspec.json.Decoder(NodeMetricComputed)


class PredictionFigures(Value, frozen=True):
    """The prediction of the last report as metrics show it. `predictors`: name, reclaimable part of requests, peak."""

    reclaimable: Usage | None
    peak: Usage | None
    predictors: tuple[tuple[str, Usage, Usage], ...]

    @classmethod
    def of(cls, metric: NodeMetricComputed) -> "PredictionFigures":
        """That of a report."""
        terms = metric.prediction.predictors if metric.prediction is not None else ()
        predictors = tuple([(each.predictor, each.reclaimable, each.peak) for each in terms])
        return cls(metric.prod_reclaimable, metric.prod_peak, predictors)


class PublishedReport(Value, frozen=True):
    """The node's last report, encoded, which takes a third of the memory: it is needed as a whole only of a silent node. Its
    digest, most of it, is left out if the windows hold the same (`node_report.with_digest`)."""

    update_time: datetime | None
    unknown_since: datetime | None
    measured: bool
    """Whether there were samples."""
    last_ms: int
    span_ms: int
    """The digest's: the newest sample, and how often messages come; 0 without one."""
    encoded: bytes
    prediction: PredictionFigures

    @classmethod
    def of(cls, metric: NodeMetricComputed, *, whole: bool) -> "PublishedReport":
        """A report in stored form; `whole`: with its digest."""
        digest = metric.digest
        last_ms, span_ms = (digest.last_ms, digest.span_ms) if digest is not None else (0, 0)
        encoded = encode_payload(metric) if whole else cls.encoded_without_digest(metric)
        measured = digest is not None
        return cls(metric.update_time, metric.unknown_since, measured, last_ms, span_ms, encoded, PredictionFigures.of(metric))

    @staticmethod
    def encoded_without_digest(metric: NodeMetricComputed) -> bytes:
        """A report whose digest is rebuilt from the windows."""
        return encode_payload(msgspec.structs.replace(metric, digest=None))

    def metric(self) -> NodeMetricComputed:
        """The report."""
        return _METRIC.decode(self.encoded)


class NodeMetricState(msgspec.Struct):
    """The state of one node; `last_sample_at` is in log time."""

    declared_at: datetime | None = None
    declared: int = 0
    windows: NodeWindows | None = None
    last_sample_at: datetime | None = None
    changed: bool = False
    refused: int = 0
    refused_reason: str = ""
    causes: deque[int] = msgspec.field(default_factory=lambda: deque(maxlen=MAX_CAUSES))
    published: PublishedReport | None = None
    published_at: datetime | None = None
    to_restore: bool = False
    """Whether the windows of the last report, which the load found, are to be restored."""
    annotation: str = ""
    strategy: msgspec.Raw = NO_STRATEGY
    policy: StrategyPolicy = StrategyPolicy()
    """The collect policy of the colocation strategy."""
    in_force: PolicyInForce | None = None
    by_time_of_day: bool = False
    """Whether it enables the forecast by time of day."""
    declared_amounts: Mapping[str, int] = {}
    raw_amounts: Mapping[str, int] = {}
    reported_amounts: Mapping[str, int] = {}
    placed: dict[str, PredictedPod] = {}
    """By namespace and name."""
    prediction: NodePrediction | None = None
    contention: ContentionMessages | None = None
    stored: tuple[str, PredictionState] | None = None
    """The models' state that the load found, with its reference."""
    stored_at: datetime | None = None
    """When the models were stored last."""
    stored_ms: int = 0
    """The newest sample that is in them."""

    def accepted(self, event: Event, log_time: datetime | None) -> None:
        """A sample of the node was accepted at this time of the log, whatever its own clock shows."""
        self.changed = True
        self.last_sample_at = log_time
        self.causes.appendleft(event.sequence)

    def last_sign(self) -> datetime | None:
        """Return the time of the node's last sample, else of its last metric, else of its object."""
        return self.last_sample_at or (self.published.update_time if self.published is not None else None) or self.declared_at

    # -- prediction ----------------------------------------------------------------------------------------------

    def predict_from(self, sample: UsageSample, samples: Samples | None, first: int, store: PredictionStore) -> bool:
        """Take an accepted message's samples from index `first` on; returns whether there is an interval to be trained with."""
        windows = self.windows
        assert windows is not None
        if self.prediction is None:
            self.prediction, self.contention = NodePrediction(sample.node, store), ContentionMessages()
            self.prediction.choose(by_time_of_day=self.by_time_of_day)
        if self.contention is not None:
            self.contention.add(sample.pods)
        return self.prediction.take(sample, samples, windows.keys, first, windows.last_ms)

    @property
    def period_ms(self) -> int:
        """How often the node's messages come; 0 before the first."""
        if self.windows is None and self.published is not None:
            return self.published.span_ms
        return self.windows.period_ms if self.windows is not None else 0

    def restore(self, sizes: WindowSizes, store: PredictionStore) -> Training | None:
        """Restore windows and models, unless done already; returns the intervals with which to train the models."""
        if not self.to_restore:
            return None
        self.to_restore, stored, self.stored = False, self.stored, None
        if self.published is None:
            return None
        metric = self.published.metric()
        self.windows = NodeWindows.restored(metric, sizes)
        self.published = msgspec.structs.replace(self.published, encoded=PublishedReport.encoded_without_digest(metric))
        return self._restore_models(*stored, store) if stored is not None else None

    def _restore_models(self, ref: str, state: PredictionState, store: PredictionStore) -> Training | None:
        """Take the stored models of the node and its pods; returns the samples after they were stored."""
        windows = self.windows
        assert windows is not None
        if state.trained_ms > windows.last_ms + LONGEST_MS:
            # No clock of a node can be that far ahead: the stored models are ignored.
            self.stored_ms = 0
            return None
        placed = self.placed_by_uid()
        prediction, self.contention = NodePrediction(state.node, store), ContentionMessages()
        prediction.choose(by_time_of_day=self.by_time_of_day)
        prediction.restore(state, ref, {*placed, *(member.key for member in windows.pods)})
        tiers = {member.key: member.priority for member in windows.pods} | {uid: pod.tier for uid, pod in placed.items()}
        self.prediction = prediction
        return prediction.catching_up(windows.means.largest_since(prediction.trained_ms), tiers, windows.last_ms)

    def forecast(
        self, predicted: Predicted, by_time: Sequence[ResourceForecast], now: datetime, config: MetricsConfig
    ) -> Forecast:
        """The prediction for the reported pods, from percentiles of the node's models and forecasts by time of day."""
        assert self.prediction is not None
        assert self.windows is not None
        return self.prediction.forecast(
            predicted,
            by_time,
            [member.key for member in self.windows.pods],
            self.placed_by_uid(),
            self.allocatable(),
            now,
            cold_start_seconds=config.prediction_cold_start_seconds,
            margin_percent=config.prediction_safety_margin_percent,
        )

    def seconds_since_stored(self, name: str, now: datetime, interval_seconds: int) -> float | None:
        """Return the age of the stored models; for a node without any, from a time derived from its name. None
        if nothing is new."""
        prediction = self.prediction
        if not self.declared or prediction is None or not prediction.trained or prediction.trained_ms <= self.stored_ms:
            return None
        if self.stored_at is not None:
            return (now - self.stored_at).total_seconds()
        return now.timestamp() - prediction.began_ms / 1000 + crc32(name.encode()) % interval_seconds

    # -- the node's allocatable and collect policy ----------------------------------------------------------------

    def declare(self, stored: ObjectStored) -> None:
        """Take a Node object; amounts that cannot be read are unknown."""
        self.declared_amounts, self.raw_amounts, self.annotation = {}, {}, ""
        try:
            node = decode_node(stored.object)
            sources = NodeSources(node)
            self.annotation = node.metadata.annotations.get(ANNOTATION_COLOCATION_STRATEGY, "")
            self.raw_amounts = _cpu_and_memory(sources.raw_allocatable())
            self.declared_amounts = _cpu_and_memory(sources.offered())
        except (msgspec.DecodeError, QuantityError):
            pass
        self.configure()

    def undeclare(self) -> None:
        """The Node object was deleted: the node is no longer measured."""
        self.declared, self.declared_at, self.windows, self.last_sample_at = 0, None, None, None
        if self.prediction is not None:
            self.prediction.end()
        self.to_restore = False
        self.prediction = self.contention = self.stored = None
        self.declared_amounts, self.raw_amounts, self.annotation = {}, {}, ""
        self.configure()

    def configure(self) -> None:
        """Compute the collect policy from strategy and annotation."""
        self.policy = collect_policy(self.strategy, self.annotation)
        self.in_force = None
        self.by_time_of_day = wants_time_of_day(self.strategy, self.annotation)
        if self.prediction is not None:
            self.prediction.choose(by_time_of_day=self.by_time_of_day)

    def allocatable(self) -> Usage | None:
        """Return the node's allocatable, before amplification; None while it is unknown."""
        amounts = {**self.declared_amounts, **self.reported_amounts, **self.raw_amounts}
        if CPU not in amounts or MEMORY not in amounts:
            return None
        return Usage(cpu_milli=max(amounts[CPU], 0), memory_bytes=max(amounts[MEMORY], 0))

    def report_amounts(self, executor: ExecutorStatus | ExecutorView | None) -> None:
        """Take an executor's report, or its end."""
        self.reported_amounts = _cpu_and_memory(executor.allocatable) if executor is not None else {}

    # -- its pods ------------------------------------------------------------------------------------------------

    def place(self, event: Event, namespace: str, name: str) -> None:
        """Take a placement of the node."""
        key = f"{namespace}/{name}"
        placement = event.data
        if event.tombstone or not isinstance(placement, Placement | PredictionPlacement) or placement.phase is _GONE:
            self.placed.pop(key, None)
            return
        if not self.placed:
            self.placed = {}
        pod = PredictedPod.of(placement)
        self.placed[key] = msgspec.structs.replace(pod, uid=intern(pod.uid), tier=intern(pod.tier))

    def placed_by_uid(self) -> dict[str, PredictedPod]:
        """Return the placed pods as reports name them: by uid, else by namespace and name."""
        return {pod.uid or key: pod for key, pod in self.placed.items()}

    @property
    def forgotten(self) -> bool:
        """Whether nothing about the node is stored any more, so that its state can be dropped."""
        parts = (self.declared, self.published, self.placed, self.reported_amounts, self.stored_at)
        return not any(parts) and self.strategy is NO_STRATEGY


def forecasts_of(
    nodes: Sequence[NodeMetricState], store: PredictionStore, now: datetime, config: MetricsConfig
) -> list[Forecast | None]:
    """The prediction for each node's reported pods; None before the first training."""
    found: list[Forecast | None] = []
    for start in range(0, len(nodes), FORECASTS_AT_ONCE):
        some = nodes[start : start + FORECASTS_AT_ONCE]
        trained = [node for node in some if node.prediction is not None and node.prediction.trained]
        predictions = [node.prediction for node in trained if node.prediction is not None]
        predicted = store.models.predicted([each.models for each in predictions])
        by_time = by_time_of_day(predictions, [node.windows.last_ms for node in trained if node.windows], store)
        forecasts = {
            id(node): node.forecast(each, season, now, config)
            for node, each, season in zip(trained, predicted, by_time, strict=True)
        }
        found += [forecasts.get(id(node)) for node in some]
    return found


def _cpu_and_memory(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amounts[name] for name in (CPU, MEMORY) if name in amounts}
