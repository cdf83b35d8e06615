"""The prediction of one node: its models, its pods' requests, and the forecast for a report.

In: usage messages, placements, the node's allocatable, a stored state. Out: `Forecast`. Pods are those that the node reports;
the request, the age and the tier of a pod come from its placement. Nothing of a pod without one is reclaimable,
and it is counted (`unplaced`).

After a restart the models are the stored ones. Samples after they were stored and before the last report are known as
means by slots only: the largest of a pod's means then replaces all missing P90s, with their weight.

Bound: one PlacedPod of some 300 bytes for each placement of a node. Over 300 lines: restoring, training and forecasting use the
same models and pods.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec
import numpy as np

from cotenant.api.objects.pod import decode_pod
from cotenant.api.times import parse_rfc3339
from cotenant.domain.qos import priority_default
from cotenant.events.envelope import PayloadView, null_document
from cotenant.events.node.metrics import PredictorTerms, ProdPrediction, ResourceForecast, Usage
from cotenant.events.node.predictions import PredictionState
from cotenant.events.node.usage import UsageSample
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.model.bounds import Amount
from cotenant.model.names import CPU, MEMORY
from cotenant.model.quantities import QuantityError
from cotenant.model.tiers import NOT_PROD, PriorityClass
from cotenant.model.values import Value
from cotenant_metrics_ingest.means import NODE_ROW as NODE_ROW
from cotenant_metrics_ingest.prediction import checkpoints
from cotenant_metrics_ingest.prediction.buckets import Floats
from cotenant_metrics_ingest.prediction.models import (
    COUNTED_MODELS,
    IntervalFigures,
    ModelStore,
    NodeModels,
    Predicted,
    Training,
    tier_places,
)
from cotenant_metrics_ingest.prediction.predictors import PodRequest, Prediction, Terms, larger, predict, with_forecast
from cotenant_metrics_ingest.prediction.seasons import Seasons
from cotenant_metrics_ingest.prediction.services import services_peaks
from cotenant_metrics_ingest.prediction.training import INTERVAL_MS, Ended, Interval, figures_of
from cotenant_metrics_ingest.samples import Samples

_TERMINATING = PlacementPhase.TERMINATING
MOST_CAUGHT_UP = 10.0
"""Intervals that one mean may represent: states are stored every ten minutes."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PredictionPlacement(PayloadView, frozen=True, kw_only=True):
    """The decoded part of a placement; its figures, allocation and reasons are not decoded."""

    OF = Placement

    node: str
    namespace: str
    name: str
    uid: str
    phase: PlacementPhase = PlacementPhase.BOUND
    pod: msgspec.Raw = msgspec.field(default_factory=null_document)
    requests: dict[str, Amount] = {}
    bound_at: datetime | None = None


class PredictedPod(Value, frozen=True):
    """A placement as prediction sees it. `created_seconds`: since the epoch; `tier` with its default."""

    uid: str
    tier: str
    created_seconds: float
    cpu_milli: int
    memory_bytes: int
    ended: bool

    @classmethod
    def of(cls, placement: Placement | PredictionPlacement) -> "PredictedPod":
        """One with an unreadable manifest counts as a prod pod that was created just now: nothing of it is reclaimable."""
        tier, created = PriorityClass.PROD.value, float("inf")
        try:
            pod = decode_pod(placement.pod)
            tier = priority_default(pod).value
            time = parse_rfc3339(pod.metadata.creation_timestamp) or placement.bound_at
            created = (time - _EPOCH).total_seconds() if time is not None else created
        except (msgspec.DecodeError, QuantityError):
            pass
        requests = placement.requests
        ended = placement.phase is _TERMINATING
        return cls(placement.uid, tier, created, requests.get(CPU, 0), requests.get(MEMORY, 0), ended)

    def request(self, now: datetime) -> PodRequest:
        """The pod as the predictors see it."""
        return PodRequest(
            uid=self.uid,
            prod=self.tier not in NOT_PROD,
            age_seconds=(now - _EPOCH).total_seconds() - self.created_seconds,
            request=Usage(cpu_milli=self.cpu_milli, memory_bytes=self.memory_bytes),
            ended=self.ended,
        )


class Forecast(msgspec.Struct, frozen=True):
    """The prediction in a report."""

    reclaimable: Usage | None
    peak: Usage | None
    terms: ProdPrediction


class PredictionStore:
    """The models of all nodes together. `margin_percent`: the safety margin on the histograms' peaks."""

    def __init__(self, margin_percent: int) -> None:
        self.models = ModelStore()
        self.seasons = Seasons()
        self.margin_percent = margin_percent

    def by_histogram(self, nodes: Sequence[NodeModels]) -> Floats:
        """The peak of the system and tiers prod and none, with the margin, (2, nodes); NaN where it is not known."""
        return np.trunc(self.models.counted_peaks(nodes) * ((100 + self.margin_percent) / 100))


class NodePrediction:
    """Mutable. `restored`: the event of the state that the models come from; empty if there was none."""

    __slots__ = (
        "_peak",
        "began_ms",
        "interval",
        "models",
        "over",
        "restored",
        "season",
        "services_peak",
        "store",
        "trained_ms",
    )

    def __init__(self, node: str, store: PredictionStore) -> None:
        self.store = store
        self.models = NodeModels()
        self.interval = Interval(node)
        self.over: list[tuple[Ended, Usage]] = []
        """Intervals to be trained with, and the peak of the system and prod pods in each."""
        self.season: int | None = None
        """The row of the forecast by time of day, of a node that is configured for it."""
        self.services_peak: Usage | None = None
        """The peak of services and the system since the last report."""
        self.trained_ms = 0
        self.began_ms = 0
        """The first training since the process began."""
        self.restored = ""
        self._peak = Usage()

    def take(self, sample: UsageSample, samples: Samples | None, keys: list[str], first: int, newest_ms: int) -> bool:
        """Take a message's samples from index `first` on (see `Interval.add`); returns whether there is an interval more to be
        trained with."""
        over = self.interval.add(sample, samples, keys, first, newest_ms)
        services, counted = services_peaks(sample, samples, first, self.interval.lower)
        self.services_peak = services if self.services_peak is None else larger(self.services_peak, services)
        if self.season is not None:
            self._peak = larger(self._peak, counted)
        if over:
            self.over.append((self.interval.end(), self._peak))
            self._peak = Usage()
        return over

    def choose(self, *, by_time_of_day: bool) -> None:
        """Enable the forecast by time of day, or disable it."""
        if by_time_of_day and self.season is None:
            self.season = self.store.seasons.begin()
        elif not by_time_of_day and self.season is not None:
            self.store.seasons.end(self.season)
            self.season = None

    @property
    def trained(self) -> bool:
        """Whether there are models to predict from, and to store."""
        return bool(self.models.rows)

    def end(self) -> None:
        """Drop all models."""
        self.over = []
        self.store.models.keep(self.models, ())
        self.choose(by_time_of_day=False)

    def restore(self, state: PredictionState, ref: str, pods: Iterable[str]) -> None:
        """Take the models of a stored state; a damaged one counts as none."""
        models = checkpoints.restored(state, {*pods}, self.store.models)
        if models is None:
            return
        self.store.models.keep(self.models, ())
        self.models, self.trained_ms, self.restored = models, state.trained_ms, ref
        if self.season is not None:
            self.store.seasons.restore(self.season, state.seasons)

    def catching_up(
        self, means: Mapping[str, tuple[int, int]], tiers: Mapping[str, str], until_ms: int
    ) -> Training | None:
        """Samples between the stored state and the last report, to be trained with: each row's largest mean of a
        slot."""
        missing = (until_ms - self.trained_ms) / INTERVAL_MS
        if not self.trained or missing < 1 or NODE_ROW not in means:
            return None
        pods = [key for key in means if key[:1] != "\0"]
        values = np.array([means[key] for key in pods], dtype=np.int64).reshape(-1, 2).T
        figures = IntervalFigures(pods, tier_places(pods, tiers), values, means[NODE_ROW])
        self.trained_ms = until_ms
        return Training(self.models, figures, until_ms / 1000, min(missing, MOST_CAUGHT_UP))

    def to_store(self, node: str) -> checkpoints.StoredModels:
        """The models for a restart."""
        seasons = self.store.seasons.state(self.season) if self.season is not None else ()
        return checkpoints.StoredModels(node, self.models, self.trained_ms, seasons)

    def forecast(
        self,
        predicted: Predicted,
        by_time: Sequence[ResourceForecast],
        pods: Sequence[str],
        placed: Mapping[str, PredictedPod],
        allocatable: Usage | None,
        now: datetime,
        *,
        cold_start_seconds: int,
        margin_percent: int,
    ) -> Forecast:
        """The prediction for the reported pods (uids), from the percentiles of the node's models. `by_time`: the forecasts by
        time of day, of CPU and memory; empty where the node is not configured for them."""
        known = [placed[uid] for uid in pods if uid in placed]
        found = predict(
            [pod.request(now) for pod in known],
            predicted.pods,
            {model: predicted.peak(model) for model in COUNTED_MODELS},
            allocatable=allocatable,
            cold_start_seconds=cold_start_seconds,
            margin_percent=margin_percent,
        )
        if any(each.by_time_of_day for each in by_time):
            cpu, memory = (each.time_of_day if each.by_time_of_day else None for each in by_time)
            found = with_forecast(found, cpu, memory, allocatable)
        terms = ProdPrediction(
            predictors=tuple(_shown(found)),
            models=tuple(predicted.own.values()),
            allocatable=allocatable or Usage(),
            margin_percent=margin_percent,
            cold_start_seconds=cold_start_seconds,
            cold=len(found.cold),
            unpredicted=len(found.unpredicted),
            unplaced=len(pods) - len(known),
            trained_at=datetime.fromtimestamp(self.trained_ms / 1000, UTC) if self.trained_ms else None,
            trainings=self.models.trainings,
            restored=self.restored,
            error=found.error,
            forecasts=tuple(by_time),
        )
        return Forecast(found.reclaimable, found.node_peak, terms)


def train(predictions: Sequence[NodePrediction], store: PredictionStore) -> None:
    """Train with all intervals that are over; each node's in their order."""
    while waiting := [each for each in dict.fromkeys(predictions) if each.over]:
        intervals = [each.over.pop(0) for each in waiting]
        seconds = np.array([ended.newest_ms / 1000 for ended, _ in intervals])
        figures = figures_of([ended for ended, _ in intervals])
        store.models.train(list(map(Training, (each.models for each in waiting), figures, seconds.tolist())))
        for prediction, (ended, _) in zip(waiting, intervals, strict=True):
            prediction.trained_ms = ended.newest_ms
            prediction.began_ms = prediction.began_ms or ended.newest_ms
        _train_seasons(waiting, seconds, [peak for _, peak in intervals], store)


def _train_seasons(
    predictions: Sequence[NodePrediction], seconds: Floats, peaks: Sequence[Usage], store: PredictionStore
) -> None:
    rows = np.array([-1 if each.season is None else each.season for each in predictions], dtype=np.int64)
    places = np.flatnonzero(rows >= 0)
    if not len(places):
        return
    values = np.array([(peaks[place].cpu_milli, peaks[place].memory_bytes) for place in places.tolist()], dtype=np.float64)
    models = [predictions[place].models for place in places.tolist()]
    store.seasons.observe(
        rows[places],
        seconds[places],
        values.T,
        lambda asked: store.by_histogram([models[place] for place in asked.tolist()]),
    )


def by_time_of_day(
    predictions: Sequence[NodePrediction], newest_ms: Sequence[int], store: PredictionStore
) -> list[tuple[ResourceForecast, ...]]:
    """The forecasts by time of day of each node as of its newest sample; none of nodes that are not configured for them."""
    rows = np.array([-1 if each.season is None else each.season for each in predictions], dtype=np.int64)
    places = np.flatnonzero(rows >= 0)
    found: list[tuple[ResourceForecast, ...]] = [()] * len(predictions)
    if len(places):
        by_histogram = store.by_histogram([predictions[place].models for place in places.tolist()])
        seconds = np.array(newest_ms, dtype=np.float64)[places] / 1000
        for place, each in zip(places.tolist(), store.seasons.forecasts(rows[places], seconds, by_histogram), strict=True):
            found[place] = each
    return found


def _shown(found: Prediction) -> Iterable[PredictorTerms]:
    terms: tuple[tuple[str, Terms | None], ...] = (
        ("pod", found.pod),
        ("priority", found.priority),
        ("timeOfDay", found.season),
    )
    for predictor, each in terms:
        if each is not None:
            yield PredictorTerms(
                predictor=predictor, request=each.request, peak=each.peak, cap=each.cap, reclaimable=each.reclaimable
            )
