"""Prediction models as one small event, for a restart; and which are due to be stored.

In: a node's models. Out: `PredictionState`, at most MAX_BYTES, and models from it. Weights are scaled so that the heaviest
bucket of a model is 10000, as in Koordinator's checkpoint files; where that is too large 1000, then 120; then the pods with the
smallest peaks are left out. A weight is then off by at most half of such a part, so a restored percentile is one whose rank is
off by at most (buckets in use) / (2 · heaviest).

At most one message a node in INTERVAL_SECONDS, oldest first, MAX_AT_ONCE at once. A damaged state counts as none. Source:
Koordinator pkg/koordlet/prediction (checkpoints), which writes a file a model.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec
import numpy as np

from cotenant.events.envelope import encode_payload
from cotenant.events.node.predictions import HistogramState, PredictionState, SeasonState
from cotenant_metrics_ingest import varints
from cotenant_metrics_ingest.prediction.buckets import Indices
from cotenant_metrics_ingest.prediction.histogram import HEAVIEST, HistogramError, Histograms
from cotenant_metrics_ingest.prediction.models import ModelStore, NodeModels, unknown_models

MAX_BYTES = 7_400
"""Of the payload: with its envelope a message is at most 8 KiB."""
INTERVAL_SECONDS = 600.0
MAX_AT_ONCE = 200
SCALES = (HEAVIEST, 1_000, 120)
_UUID_BYTES = 16
_DAY_SECONDS = 86_400
_LATEST_MS = 9_000_000_000_000
"""In the year 2255: beyond any clock, within the bounds of times."""
_MILLI = 1000


def due_checkpoints(
    seconds_since: Mapping[str, float], interval_seconds: float = INTERVAL_SECONDS, most: int = MAX_AT_ONCE
) -> list[str]:
    """Nodes whose state is due to be stored, oldest first: not younger than the interval, at most this many."""
    oldest = sorted(seconds_since, key=lambda name: (-seconds_since[name], name))[:most]
    return [name for name in oldest if seconds_since[name] >= interval_seconds]


def state_of(
    node: str,
    store: ModelStore,
    models: NodeModels,
    trained_ms: int,
    now: datetime,
    seasons: tuple[SeasonState, ...] = (),
) -> PredictionState:
    """The models' state, and that of the forecast by time of day, within MAX_BYTES."""
    own = [model for model in models.rows if model.startswith("__")]
    pods = [model for model in models.rows if not model.startswith("__")]
    for heaviest in SCALES:
        state = _state(node, store, models, own, pods, heaviest, trained_ms, now, seasons)
        if _size(state) <= MAX_BYTES:
            return state
    (predicted,) = store.predicted([models])

    def size(pod: str) -> tuple[int, int]:
        peak = predicted.peak(pod)
        return (peak.cpu_milli, peak.memory_bytes) if peak is not None else (0, 0)

    pods.sort(key=size)
    everyone = len(pods)
    while pods and _size(state) > MAX_BYTES:
        pods = pods[max(len(pods) - int(len(pods) * MAX_BYTES / _size(state)), 1) :]
        fewer = _state(node, store, models, own, pods, SCALES[-1], trained_ms, now, seasons)
        state = msgspec.structs.replace(fewer, dropped=everyone - len(pods))
    return state


def _size(state: PredictionState) -> int:
    return len(encode_payload(state))


def _state(
    node: str,
    store: ModelStore,
    models: NodeModels,
    own: Sequence[str],
    pods: Sequence[str],
    heaviest: int,
    trained_ms: int,
    now: datetime,
    seasons: tuple[SeasonState, ...],
) -> PredictionState:
    packed: list[str] = []
    other: list[str] = []
    for pod in pods:
        (packed if _is_uuid(pod) else other).append(pod)
    rows = np.array([models.rows[model] for model in (*own, *packed, *other)], dtype=np.int64)
    return PredictionState(
        node=node,
        stored_at=now,
        trained_ms=trained_ms,
        models=tuple(own),
        packed_pods=b"".join(UUID(pod).bytes for pod in packed),
        pods=tuple(other),
        cpu=_histograms(store.cpu, rows, heaviest, models.trained_at),
        memory=_histograms(store.memory, rows, heaviest, models.trained_at),
        seasons=seasons,
    )


def _is_uuid(text: str) -> bool:
    try:
        return len(text) == 36 and str(UUID(text)) == text
    except ValueError:
        return False


def _histograms(histograms: Histograms, rows: Indices, heaviest: int, seconds: float) -> HistogramState:
    """The rows in this order, counted in samples of `seconds`."""
    at, buckets, weights = histograms.scaled(rows, heaviest)
    counts = np.bincount(at, minlength=len(rows)).astype(np.int64)
    deltas = np.diff(buckets, prepend=0)
    begins = np.concatenate(([0], counts.cumsum()[:-1]))[counts > 0]
    deltas[begins] = buckets[begins]
    totals = np.floor(histograms.totals_at(rows, seconds) * _MILLI + 0.5).astype(np.int64)
    values = np.concatenate((counts, deltas, weights, totals))
    (encoded,) = varints.encode_each(values, np.array([len(values)]))
    return HistogramState(reference_seconds=round(seconds), heaviest=heaviest, models=encoded)


def restored(state: PredictionState, pods: Collection[str], store: ModelStore) -> NodeModels | None:
    """Return the models of a state that belong to the node or to one of its pods, put into the store; None where it is damaged
    or empty."""
    if len(state.packed_pods) % _UUID_BYTES:
        return None
    names = [*state.models, *_uids(state.packed_pods), *state.pods]
    if not names or len(set(names)) < len(names):
        return None
    if not 0 < state.trained_ms < _LATEST_MS:
        return None
    seconds = state.trained_ms / 1000
    if any(abs(each.reference_seconds - seconds) > _DAY_SECONDS for each in (state.cpu, state.memory)):
        return None
    models = NodeModels()
    rows = np.array(store.rows_of(models, names), dtype=np.int64)
    try:
        _restore(store.cpu, rows, state.cpu)
        _restore(store.memory, rows, state.memory)
    except (varints.VarintError, HistogramError, OverflowError):
        store.keep(models, ())
        return None
    store.updated[rows] = seconds
    models.trained_at = seconds
    unknown = set(unknown_models(names, pods))
    if unknown:
        store.keep(models, {name for name in names if name not in unknown})
    return models


def _uids(packed: bytes) -> list[str]:
    """UUIDs as they are written, of 16 bytes each."""
    found: list[str] = []
    for start in range(0, len(packed), _UUID_BYTES):
        digits = packed[start : start + _UUID_BYTES].hex()
        found.append(f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}")
    return found


def _restore(histograms: Histograms, into: Indices, state: HistogramState) -> None:
    values = varints.decode(state.models)
    size = len(into)
    counts = values[:size]
    buckets_end = size + int(min(counts.sum(), len(values))) if len(counts) == size else len(values) + 1
    weights_end = 2 * buckets_end - size
    if len(values) != weights_end + size or len(counts) != size or int(counts.max()) > histograms.buckets.count:
        raise varints.VarintError("the models do not fit")
    rows = np.repeat(np.arange(size), counts)
    deltas = values[size:buckets_end]
    ends = deltas.cumsum()
    begins = np.concatenate(([0], counts.cumsum()[:-1]))
    before = np.concatenate(([0], ends))[begins]
    buckets = ends - before[rows] if len(rows) else ends
    weights = values[buckets_end:weights_end].astype(np.float64)
    totals = values[weights_end:].astype(np.float64) / _MILLI
    histograms.restore(into, rows, buckets, weights, totals, float(state.reference_seconds))


