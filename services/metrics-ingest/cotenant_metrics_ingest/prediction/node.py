"""The prediction of one node: its models, its pods' requests, and what comes of them for a report.

In: usage messages, placements, what the node can give, a stored state. Out: `Forecast`. Pods are those that the node reports;
the request, the age and the tier of a pod come from its placement. Of a pod without one nothing is known, so it lends nothing
and is counted (`unplaced`).

After a restart the models are the stored ones. What was sampled after they were stored and before the last report is there as
means by slots only: the largest of a pod's means then stands for all the P90s that are missing, with their weight.

Bound: one PlacedPod of some 300 bytes for each placement of a node.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from cotenant.api.objects.pod import decode_pod
from cotenant.api.times import parse_rfc3339
from cotenant.domain.qos import priority_default
from cotenant.events.node.metrics import ModelPeaks, PredictorTerms, ProdPrediction, Usage
from cotenant.events.node.predictions import PredictionState
from cotenant.events.node.usage import UsageSample
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.model.names import CPU, MEMORY
from cotenant.model.quantities import QuantityError
from cotenant.model.tiers import NOT_PROD, PriorityClass
from cotenant_metrics_ingest.means import NODE as NODE_ROW
from cotenant_metrics_ingest.prediction import checkpoints
from cotenant_metrics_ingest.prediction.models import COUNTED_MODELS, OWN_MODELS, PeakModels, PodSample
from cotenant_metrics_ingest.prediction.predictors import Peaks, PodRequest, Prediction, Terms, predict
from cotenant_metrics_ingest.prediction.training import INTERVAL_MS, Interval

_TERMINATING = PlacementPhase.TERMINATING
_NO_TIER = PriorityClass.NONE.value
MOST_CAUGHT_UP = 10.0
"""Intervals that one mean may stand for: states are stored every ten minutes."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PlacedPod(msgspec.Struct, frozen=True, gc=False):
    """What prediction reads of a placement. `created_seconds`: since the epoch; `tier` with its default."""

    uid: str
    tier: str
    created_seconds: float
    cpu_milli: int
    memory_bytes: int
    ended: bool

    @classmethod
    def of(cls, placement: Placement) -> "PlacedPod":
        """One with an unreadable manifest counts as a prod pod that was created just now: it lends nothing."""
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
    """What prediction adds to a report."""

    reclaimable: Usage | None
    peak: Usage | None
    terms: ProdPrediction


class NodePrediction:
    """Mutable. `restored`: the event of the state that the models come from; empty if they began from nothing."""

    def __init__(self, node: str) -> None:
        self.models = PeakModels()
        self.interval = Interval(node)
        self.trained_ms = 0
        self.began_ms = 0
        """The first training since the process began."""
        self.restored = ""

    def take(self, sample: UsageSample, first: int, newest_ms: int) -> None:
        """Take a message's samples from index `first` on; once an interval is over the models are trained."""
        if self.interval.add(sample, first, newest_ms):
            pods, node = self.interval.samples()
            self.models.train(pods, node, newest_ms / 1000)
            self.trained_ms = newest_ms
            self.began_ms = self.began_ms or newest_ms

    @property
    def trained(self) -> bool:
        """Whether there is anything to predict from, and to store."""
        return bool(self.models.rows)

    def restore(self, state: PredictionState, ref: str, pods: Iterable[str]) -> None:
        """Take the models of a stored state; a damaged one is as none."""
        models = checkpoints.restored(state, {*pods})
        if models is not None:
            self.models, self.trained_ms, self.restored = models, state.trained_ms, ref

    def catch_up(self, means: Mapping[str, tuple[int, int]], tiers: Mapping[str, str], until_ms: int) -> None:
        """Train with what was sampled between the stored state and the last report: each row's largest mean of a slot."""
        missing = (until_ms - self.trained_ms) / INTERVAL_MS
        if not self.trained or missing < 1 or NODE_ROW not in means:
            return
        of_pods = [(key, mean) for key, mean in means.items() if key[:1] != "\0"]
        pods = [PodSample(key, tiers.get(key, _NO_TIER), cpu, memory) for key, (cpu, memory) in of_pods]
        self.models.train(pods, means[NODE_ROW], until_ms / 1000, weight=min(missing, MOST_CAUGHT_UP))
        self.trained_ms = until_ms

    def state(self, node: str, now: datetime) -> PredictionState:
        """The models for a restart."""
        return checkpoints.state_of(node, self.models, self.trained_ms, now)

    def forecast(
        self,
        pods: Sequence[str],
        placed: Mapping[str, PlacedPod],
        allocatable: Usage | None,
        now: datetime,
        *,
        cold_start_seconds: int,
        margin_percent: int,
    ) -> Forecast:
        """What is predicted of the reported pods (uids)."""
        predicted = self.models.predicted()
        known = [placed[uid] for uid in pods if uid in placed]
        found = predict(
            [pod.request(now) for pod in known],
            {pod.uid: peak for pod in known if (peak := predicted.peak(pod.uid)) is not None},
            {model: predicted.peak(model) for model in COUNTED_MODELS},
            allocatable=allocatable,
            cold_start_seconds=cold_start_seconds,
            margin_percent=margin_percent,
        )
        terms = ProdPrediction(
            predictors=tuple(_shown(found)),
            models=tuple(
                _model(model, peaks) for model in OWN_MODELS if (peaks := predicted.peaks(model)) is not None
            ),
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
        )
        return Forecast(found.reclaimable, found.node_peak, terms)


def _shown(found: Prediction) -> Iterable[PredictorTerms]:
    terms: tuple[tuple[str, Terms | None], ...] = (("pod", found.pod), ("priority", found.priority))
    for predictor, each in terms:
        if each is not None:
            yield PredictorTerms(
                predictor=predictor, request=each.request, peak=each.peak, cap=each.cap, reclaimable=each.reclaimable
            )


def _model(model: str, peaks: Peaks) -> ModelPeaks:
    return ModelPeaks(model=model, p60=peaks.p60, p90=peaks.p90, p95=peaks.p95, p98=peaks.p98, max=peaks.max)
