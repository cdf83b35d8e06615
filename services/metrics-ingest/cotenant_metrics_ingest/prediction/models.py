"""The models of nodes: a CPU and a memory histogram for the node, the system, each tier and each pod.

In: once a minute the P90 of the last interval, of the node and of each pod. Out: percentiles for each model. All models of all
nodes are rows of two `Histograms`, so that many nodes are trained and evaluated at once. Training:

- each pod: its P90, weight 1; also added to the sum of its tier, and of all pods
- the node: its P90 (nothing where it is not known)
- each known tier, the one of no name too: the sum of its pods, 0 without any
- the system: max(node - all pods, 0) for each resource, host applications included

A model that was not trained for EXPIRED_SECONDS is dropped. Percentiles are those of `histogram`: a series that is always 0
predicts the first bucket, 25 milli-cores and 5 MiB; every value is overestimated by up to 5 %.

Memory: at most MAX_ROWS + 7 models a node, each of two windows (`windows`) of at most 158 and 205 buckets; some 700 bytes for a
pod whose use varies by a factor of five. Source: Koordinator pkg/koordlet/prediction; the memory model reaches 2 TiB as from
v1.7 on.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from cotenant.events.node.metrics import ModelPeaks, Usage
from cotenant.model.tiers import PriorityClass
from cotenant_metrics_ingest.prediction.buckets import Buckets, Floats, Indices
from cotenant_metrics_ingest.prediction.histogram import Histograms
from cotenant_metrics_ingest.prediction.predictors import peak_of

CPU_BUCKETS = Buckets(1024.0, 0.025, 1.05)
"""Cores."""
MEMORY_BUCKETS = Buckets(2.0**41, 5 * 2.0**20, 1.05)
"""Bytes."""
CPU_HALF_LIFE_SECONDS = 12 * 3600.0
MEMORY_HALF_LIFE_SECONDS = 24 * 3600.0
EPSILON = 1e-4
EXPIRED_SECONDS = 30 * 60
PERCENTILES = (0.6, 0.9, 0.95, 0.98, 1.0)

NODE_MODEL = "__node__"
SYSTEM_MODEL = "__node-sys__"
TIERS = (PriorityClass.PROD, PriorityClass.MID, PriorityClass.BATCH, PriorityClass.FREE, PriorityClass.NONE)


def tier_model(tier: str) -> str:
    """The id of a tier's model."""
    return f"__node-{tier}__"


TIER_MODELS = tuple(tier_model(tier.value) for tier in TIERS)
COUNTED_MODELS = (SYSTEM_MODEL, tier_model(PriorityClass.PROD), tier_model(PriorityClass.NONE))
"""The models that the priority predictor counts."""
OWN_MODELS = (NODE_MODEL, SYSTEM_MODEL, *TIER_MODELS)
_TIER_PLACES = {tier.value: place for place, tier in enumerate(TIERS)}
_NO_TIER = _TIER_PLACES[PriorityClass.NONE.value]
_NO_ROWS: Indices = np.zeros(0, dtype=np.int64)


def model_ids(pods: Iterable[str], *, node_known: bool = True) -> tuple[str, ...]:
    """The models of a node with these pods."""
    return (*(OWN_MODELS if node_known else OWN_MODELS[1:]), *pods)


def unknown_models(models: Iterable[str], pods: Collection[str], *, node_known: bool = True) -> list[str]:
    """Models without a node, tier or pod any more."""
    known = {*model_ids((), node_known=node_known), *pods}
    return [model for model in models if model not in known]


def living(ages_seconds: Mapping[str, float], expired_seconds: float = EXPIRED_SECONDS) -> list[str]:
    """The models that stay, by the time since they were trained."""
    return [model for model, age in ages_seconds.items() if age <= expired_seconds]


def tier_places(pods: Iterable[str], tiers: Mapping[str, str]) -> Indices:
    """The place in TIERS of each pod's tier, int64 (pods,); one that is not known counts as none."""
    return np.array([_TIER_PLACES.get(tiers.get(pod, ""), _NO_TIER) for pod in pods], dtype=np.int64)


class IntervalFigures(msgspec.Struct, frozen=True):
    """P90s of one interval of a node. `pods`: distinct uids; `tiers`: int64 (pods,), places in TIERS; `values`: int64
    (2, pods), milli-cores and bytes; `node`: the same two, None where they are not known."""

    pods: list[str]
    tiers: Indices
    values: Indices
    node: tuple[int, int] | None


class NodeModels:
    """Mutable: which rows of the store belong to one node. Times are seconds since the epoch."""

    __slots__ = ("all_pods", "pod_rows", "pods", "rows", "trained_at", "trainings")

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        """A model's row in both histograms."""
        self.trained_at = 0.0
        self.trainings = 0
        self.pods: list[str] = []
        self.pod_rows = _NO_ROWS
        """The pods of the last training, and their rows."""
        self.all_pods = False
        """Whether none of them has a name like those of other models."""


class Training(msgspec.Struct, frozen=True):
    """One interval to train a node with, at `seconds` since the epoch; `weight`: how many intervals it stands for."""

    models: NodeModels
    figures: IntervalFigures
    seconds: float
    weight: float = 1.0


class ModelStore:
    """Mutable: the models of many nodes. Rows of removed models are reused."""

    def __init__(self) -> None:
        self.cpu = Histograms(CPU_BUCKETS, CPU_HALF_LIFE_SECONDS, EPSILON)
        self.memory = Histograms(MEMORY_BUCKETS, MEMORY_HALF_LIFE_SECONDS, EPSILON)
        self.updated: Floats = np.zeros(0)
        """When each row was trained last."""
        self._free: list[int] = []

    def rows_of(self, node: NodeModels, models: Sequence[str]) -> list[int]:
        """The row of each model of a node, allocating missing ones."""
        rows = node.rows
        try:
            return [rows[model] for model in models]
        except KeyError:
            self._allocate(rows, [model for model in dict.fromkeys(models) if model not in rows])
        return [rows[model] for model in models]

    def _allocate(self, rows: dict[str, int], missing: Sequence[str]) -> None:
        if len(missing) > len(self._free):
            size = len(self.updated)
            # By an eighth, so that a new pod does not copy everything.
            grown = size + max(len(missing), size // 8)
            self._free += range(grown - 1, size - 1, -1)
            self.updated = np.concatenate((self.updated, np.zeros(grown - size)))
            self.cpu.widen(grown)
            self.memory.widen(grown)
        for model in missing:
            rows[model] = self._free.pop()

    def keep(self, node: NodeModels, models: Collection[str]) -> None:
        """Drop all models of a node but these."""
        gone = [model for model in node.rows if model not in models]
        rows = np.array([node.rows.pop(model) for model in gone], dtype=np.int64)
        self.cpu.clear(rows)
        self.memory.clear(rows)
        self.updated[rows] = 0.0
        self._free += rows.tolist()
        node.pods, node.pod_rows = [], rows[:0]

    # -- training ------------------------------------------------------------------------------------------------

    def train(self, trainings: Sequence[Training]) -> None:
        """Add one interval of each of distinct nodes."""
        if not trainings:
            return
        rows, values = self._samples(trainings)
        known = rows.ravel() >= 0
        pod_rows = [self._pod_rows(each) for each in trainings]
        every_row = np.concatenate((rows.ravel()[known], *pod_rows))
        of_pods = np.concatenate([each.figures.values for each in trainings], axis=1)
        cpu, memory = (
            np.concatenate((own.ravel()[known], pods)).astype(np.float64) for own, pods in zip(values, of_pods, strict=True)
        )
        sizes = [len(each) for each in pod_rows]
        numbers = np.arange(len(trainings))
        whose = np.concatenate((np.repeat(numbers, len(OWN_MODELS))[known], np.repeat(numbers, sizes)))
        seconds = np.array([each.seconds for each in trainings])[whose]
        weights = np.array([each.weight for each in trainings])[whose]
        self.cpu.add(every_row, cpu / 1000, weights, seconds)
        self.memory.add(every_row, memory, weights, seconds)
        self.updated[every_row] = seconds
        for training, size in zip(trainings, sizes, strict=True):
            models = training.models
            models.trained_at = training.seconds
            models.trainings += 1
            own = len(OWN_MODELS) if training.figures.node is not None else len(OWN_MODELS) - 1
            if len(models.rows) > own + size:
                self._drop_expired(models, training.seconds)

    def _samples(self, trainings: Sequence[Training]) -> tuple[Indices, Indices]:
        """Rows and values of the nodes' own models, int64 (nodes, models) and (2, nodes, models); a row of -1: not known."""
        rows: list[list[int]] = []
        of_nodes: list[tuple[int, int]] = []
        for training in trainings:
            if training.figures.node is None:
                rows.append([-1, *self.rows_of(training.models, OWN_MODELS[1:])])
            else:
                rows.append(self.rows_of(training.models, OWN_MODELS))
            of_nodes.append(training.figures.node or (0, 0))
        node = np.array(of_nodes, dtype=np.int64).T
        tiers = np.zeros((2, len(trainings), len(TIERS)), dtype=np.int64)
        whose = np.repeat(np.arange(len(trainings)), [len(each.figures.pods) for each in trainings])
        of_tier = np.concatenate([each.figures.tiers for each in trainings])
        for resource in range(2):
            values = np.concatenate([each.figures.values[resource] for each in trainings])
            np.add.at(tiers[resource], (whose, of_tier), values)
        system = np.maximum(node - tiers.sum(axis=2), 0)
        return np.array(rows, dtype=np.int64), np.concatenate((node[:, :, np.newaxis], system[:, :, np.newaxis], tiers), axis=2)

    def _pod_rows(self, training: Training) -> Indices:
        models, pods = training.models, training.figures.pods
        if pods is not models.pods or not pods:
            models.pods, models.pod_rows = pods, np.array(self.rows_of(models, pods), dtype=np.int64)
            models.all_pods = not any(pod[:2] == "__" for pod in pods)
        return models.pod_rows

    def _drop_expired(self, node: NodeModels, seconds: float) -> None:
        ages = seconds - self.updated[list(node.rows.values())]
        if ages.max() > EXPIRED_SECONDS:
            self.keep(node, {*living(dict(zip(node.rows, ages.tolist(), strict=True)))})

    # -- figures -------------------------------------------------------------------------------------------------

    def predicted(self, nodes: Sequence[NodeModels]) -> list["Predicted"]:
        """The percentiles of the models of each node."""
        own = [[model for model in OWN_MODELS if model in node.rows] for node in nodes]
        own_rows = [node.rows[model] for node, models in zip(nodes, own, strict=True) for model in models]
        pods = [_pods_of(node, len(models)) for node, models in zip(nodes, own, strict=True)]
        of_own = self._percentiles(np.array(own_rows, dtype=np.int64), PERCENTILES, PERCENTILES)
        of_pods = self._percentiles(np.concatenate([rows for _, rows in pods] or [_NO_ROWS]), (0.95,), (0.98,))
        own_figures = zip(*(each.tolist() for each in of_own), strict=True)
        milli, sizes = (iter(each.ravel().tolist()) for each in of_pods)
        return [
            Predicted(
                {
                    model: _model_peaks(model, cpu, memory)
                    for model, (cpu, memory) in zip(models, own_figures, strict=False)
                    if cpu[0]
                },
                {
                    pod: Usage(cpu_milli=cpu, memory_bytes=memory)
                    for pod, cpu, memory in zip(uids, milli, sizes, strict=False)
                    if cpu
                },
            )
            for models, (uids, _) in zip(own, pods, strict=True)
        ]

    def counted_peaks(self, nodes: Sequence[NodeModels]) -> Floats:
        """The sum of the peaks of the models that the priority predictor counts, (2, nodes), milli-cores and bytes; NaN where
        one is missing."""
        rows = np.array([[node.rows.get(model, -1) for model in COUNTED_MODELS] for node in nodes], dtype=np.int64)
        known = np.maximum(rows.ravel(), 0)
        peaks = np.array(
            [np.trunc(self.cpu.percentiles((0.95,), known) * 1000), np.trunc(self.memory.percentiles((0.98,), known))]
        ).reshape(2, len(nodes), len(COUNTED_MODELS))
        sums: Floats = np.where((rows >= 0) & (peaks > 0), peaks, np.nan).sum(axis=2)
        return sums

    def _percentiles(self, rows: Indices, of_cpu: Sequence[float], of_memory: Sequence[float]) -> tuple[Indices, Indices]:
        cpu = np.trunc(self.cpu.percentiles(of_cpu, rows) * 1000).astype(np.int64)
        memory = np.trunc(self.memory.percentiles(of_memory, rows)).astype(np.int64)
        return cpu, memory


def _pods_of(node: NodeModels, own: int) -> tuple[Sequence[str], Indices]:
    """The models of a node with `own` other models that are pods', and their rows."""
    if node.all_pods and own + len(node.pods) == len(node.rows):
        return node.pods, node.pod_rows
    pods = [model for model in node.rows if model[:2] != "__"]
    return pods, np.array([node.rows[pod] for pod in pods], dtype=np.int64)


def _model_peaks(model: str, cpu: Sequence[int], memory: Sequence[int]) -> ModelPeaks:
    return ModelPeaks(
        model=model,
        p60=Usage(cpu_milli=cpu[0], memory_bytes=memory[0]),
        p90=Usage(cpu_milli=cpu[1], memory_bytes=memory[1]),
        p95=Usage(cpu_milli=cpu[2], memory_bytes=memory[2]),
        p98=Usage(cpu_milli=cpu[3], memory_bytes=memory[3]),
        max=Usage(cpu_milli=cpu[4], memory_bytes=memory[4]),
    )


class Predicted(msgspec.Struct, frozen=True):
    """Percentiles of a node's models. `own`: of the node, the system and tiers; `pods`: the peak of each, p95 of CPU and p98 of
    memory. A model without samples is left out."""

    own: Mapping[str, ModelPeaks]
    pods: Mapping[str, Usage]

    def peak(self, model: str) -> Usage | None:
        """The peak of a model."""
        own = self.own.get(model)
        return peak_of(own.p95, own.p98) if own is not None else self.pods.get(model)
