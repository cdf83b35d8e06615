"""The models of one node: a CPU and a memory histogram for the node, the system, each tier and each pod.

In: once a minute the P90 of the last interval, of the node and of each pod. Out: percentiles for each model. Training:

- each pod: its P90, weight 1; also added to the sum of its tier, and of all pods
- the node: its P90 (nothing where it is not known)
- each known tier, the one of no name too: the sum of its pods, 0 without any
- the system: max(node - all pods, 0) for each resource, host applications included

A model that was not trained for EXPIRED_SECONDS is dropped. Percentiles are those of `histogram`: a series that is always 0
predicts the first bucket, 25 milli-cores and 5 MiB; every value is overestimated by up to 5 %.

Memory: at most MAX_ROWS + 7 models of at most 158 and 205 buckets of 12 bytes; some 500 bytes for a pod whose use varies by a
factor of five. Source: Koordinator pkg/koordlet/prediction; the memory model reaches 2 TiB as from v1.7 on.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from cotenant.events.node.metrics import Usage
from cotenant.model.tiers import PriorityClass
from cotenant_metrics_ingest.prediction.buckets import Buckets, Floats
from cotenant_metrics_ingest.prediction.histogram import Histograms
from cotenant_metrics_ingest.prediction.predictors import Peaks

CPU_BUCKETS = Buckets(1024.0, 0.025, 1.05)
"""Cores."""
MEMORY_BUCKETS = Buckets(2.0**41, 5 * 2.0**20, 1.05)
"""Bytes."""
CPU_HALF_LIFE_SECONDS = 12 * 3600.0
MEMORY_HALF_LIFE_SECONDS = 24 * 3600.0
EPSILON = 1e-4
EXPIRED_SECONDS = 30 * 60
PERCENTILES = (0.6, 0.9, 0.95, 0.98, 1.0)

NODE = "__node__"
SYSTEM = "__node-sys__"
TIERS = (PriorityClass.PROD, PriorityClass.MID, PriorityClass.BATCH, PriorityClass.FREE, PriorityClass.NONE)


def tier_model(tier: str) -> str:
    """The id of a tier's model."""
    return f"__node-{tier}__"


TIER_MODELS = tuple(tier_model(tier.value) for tier in TIERS)
COUNTED_MODELS = (SYSTEM, tier_model(PriorityClass.PROD), tier_model(PriorityClass.NONE))
"""What the priority predictor counts."""
OWN_MODELS = (NODE, SYSTEM, *TIER_MODELS)


def model_ids(pods: Iterable[str], *, node_known: bool = True) -> tuple[str, ...]:
    """The models of a node with these pods."""
    return (*(OWN_MODELS if node_known else OWN_MODELS[1:]), *pods)


def unknown_models(models: Iterable[str], pods: Collection[str], *, node_known: bool = True) -> list[str]:
    """Models that belong to nothing that is there."""
    known = {*model_ids((), node_known=node_known), *pods}
    return [model for model in models if model not in known]


def living(ages_seconds: Mapping[str, float], expired_seconds: float = EXPIRED_SECONDS) -> list[str]:
    """The models that stay, by the time since they were trained."""
    return [model for model, age in ages_seconds.items() if age <= expired_seconds]


class PodSample(msgspec.Struct, frozen=True):
    """A pod's P90 over the last interval: milli-cores, bytes."""

    uid: str
    tier: str
    cpu_milli: int
    memory_bytes: int


class PeakModels:
    """Mutable. Times are seconds since the epoch."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        """A model's row in both histograms; ascending."""
        self.cpu = Histograms(CPU_BUCKETS, CPU_HALF_LIFE_SECONDS, EPSILON)
        self.memory = Histograms(MEMORY_BUCKETS, MEMORY_HALF_LIFE_SECONDS, EPSILON)
        self.updated: Floats = np.zeros(0)
        """When each row was trained last."""
        self.trained_at = 0.0
        self.trainings = 0

    def rows_of(self, models: Sequence[str]) -> list[int]:
        """The row of each model, allocating missing ones."""
        rows = self.rows
        found = [rows.setdefault(model, len(rows)) for model in models]
        more = len(rows) - len(self.updated)
        if more:
            self.updated = np.concatenate((self.updated, np.zeros(more)))
            self.cpu.widen(len(rows))
            self.memory.widen(len(rows))
        return found

    def train(
        self, pods: Sequence[PodSample], node: tuple[int, int] | None, seconds: float, *, weight: float = 1.0
    ) -> None:
        """Add one interval's samples, of pods with distinct uids and of the node (milli-cores, bytes)."""
        sums = {tier.value: [0, 0] for tier in TIERS}
        for pod in pods:
            of_tier = sums.get(pod.tier) or sums[PriorityClass.NONE]
            of_tier[0] += pod.cpu_milli
            of_tier[1] += pod.memory_bytes
        every_cpu = sum(cpu for cpu, _ in sums.values())
        every_memory = sum(memory for _, memory in sums.values())
        node_cpu, node_memory = node or (0, 0)
        models = [*model_ids((), node_known=node is not None), *(pod.uid for pod in pods)]
        cpu = [*([node_cpu] if node else ()), max(node_cpu - every_cpu, 0), *(each[0] for each in sums.values())]
        memory = [*([node_memory] if node else ()), max(node_memory - every_memory, 0), *(each[1] for each in sums.values())]
        rows = np.array(self.rows_of(models), dtype=np.int64)
        cpu_values = np.array([*cpu, *(pod.cpu_milli for pod in pods)], dtype=np.float64) / 1000
        memory_values = np.array([*memory, *(pod.memory_bytes for pod in pods)], dtype=np.float64)
        order = rows.argsort()
        rows = rows[order]
        self.cpu.add(rows, cpu_values[order], weight, seconds)
        self.memory.add(rows, memory_values[order], weight, seconds)
        self.updated[rows] = seconds
        self.trained_at = seconds
        self.trainings += 1
        self._drop_expired(seconds)

    def _drop_expired(self, seconds: float) -> None:
        if self.updated.min() >= seconds - EXPIRED_SECONDS:
            return
        ages = (seconds - self.updated).tolist()
        self.keep(living({model: ages[row] for model, row in self.rows.items()}))

    def keep(self, models: Iterable[str]) -> None:
        """Drop all models but these."""
        rows = sorted(self.rows[model] for model in models)
        names = {row: model for model, row in self.rows.items()}
        self.cpu.keep(rows)
        self.memory.keep(rows)
        self.updated = self.updated[rows]
        self.rows = {names[row]: place for place, row in enumerate(rows)}

    def predicted(self) -> "Predicted":
        """The percentiles of all models."""
        cpu = np.trunc(self.cpu.percentiles(PERCENTILES) * 1000).astype(np.int64).tolist()
        memory = np.trunc(self.memory.percentiles(PERCENTILES)).astype(np.int64).tolist()
        return Predicted(self.rows, cpu, memory)


class Predicted(msgspec.Struct, frozen=True):
    """Percentiles by row, in the order of PERCENTILES: milli-cores, bytes. A model without samples has none."""

    rows: Mapping[str, int]
    cpu: list[list[int]]
    memory: list[list[int]]

    def peak(self, model: str) -> Usage | None:
        """The peak of a model: p95 of CPU, p98 of memory."""
        row = self.rows.get(model)
        if row is None or not self.cpu[row][0]:
            return None
        return Usage(cpu_milli=self.cpu[row][2], memory_bytes=self.memory[row][3])

    def peaks(self, model: str) -> Peaks | None:
        """All percentiles of a model."""
        row = self.rows.get(model)
        if row is None or not self.cpu[row][0]:
            return None
        usages = zip(self.cpu[row], self.memory[row], strict=True)
        return Peaks(*(Usage(cpu_milli=milli, memory_bytes=size) for milli, size in usages))
