"""Prediction models as one small event, for a restart; and which are due to be stored.

In: the models of nodes. Out: a `PredictionState` each, at most MAX_BYTES, and models from it. Weights are scaled so that the
heaviest bucket of a model is 10000, as in Koordinator's checkpoint files; where that is too large 1000, then 120; then the pods
with the smallest peaks are left out. A weight is then off by at most half of such a part, so a restored percentile is one whose
rank is off by at most (buckets in use) / (2 · heaviest).

At most one message a node in INTERVAL_SECONDS, oldest first, MAX_AT_ONCE at once: their weights are read and encoded together.
A damaged state counts as none. Source: Koordinator pkg/koordlet/prediction (checkpoints), which writes a file a model.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec
import numpy as np

from cotenant.events.envelope import encode_payload
from cotenant.events.node.predictions import HistogramState, PredictionState, SeasonState
from cotenant_metrics_ingest import varints
from cotenant_metrics_ingest.prediction.buckets import Floats, Indices
from cotenant_metrics_ingest.prediction.histogram import HEAVIEST, HistogramError, Histograms
from cotenant_metrics_ingest.prediction.models import ModelStore, NodeModels, unknown_models

MAX_BYTES = 7_400
"""Of the payload: with its envelope a message is at most 8 KiB."""
INTERVAL_SECONDS = 600.0
MAX_AT_ONCE = 200
SCALES = (HEAVIEST, 1_000, 120)
_UUID_BYTES = 16
_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
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


class StoredModels(msgspec.Struct, frozen=True):
    """A node's models that are to be stored. `trained_ms`: its newest sample that is in them; `seasons`: the state of its
    forecast by time of day."""

    node: str
    models: NodeModels
    trained_ms: int
    seasons: tuple[SeasonState, ...] = ()


def states_of(wanted: Sequence[StoredModels], store: ModelStore, now: datetime) -> list[PredictionState]:
    """The state of each of distinct nodes, within MAX_BYTES."""
    if not wanted:
        return []
    pods = [[model for model in each.models.rows if model[:2] != "__"] for each in wanted]
    states = _states(wanted, pods, store, HEAVIEST, now)
    return [
        state if _size(state) <= MAX_BYTES else _smaller(each, of_node, store, now)
        for each, of_node, state in zip(wanted, pods, states, strict=True)
    ]


def _smaller(wanted: StoredModels, pods: list[str], store: ModelStore, now: datetime) -> PredictionState:
    """A node's state at the finest of the other scales that is small enough, else without its smallest pods."""
    for heaviest in SCALES[1:]:
        (state,) = _states([wanted], [pods], store, heaviest, now)
        if _size(state) <= MAX_BYTES:
            return state
    (predicted,) = store.predicted([wanted.models])

    def size(pod: str) -> tuple[int, int]:
        peak = predicted.peak(pod)
        return (peak.cpu_milli, peak.memory_bytes) if peak is not None else (0, 0)

    pods = sorted(pods, key=size)
    everyone = len(pods)
    while pods and _size(state) > MAX_BYTES:
        pods = pods[max(len(pods) - int(len(pods) * MAX_BYTES / _size(state)), 1) :]
        (fewer,) = _states([wanted], [pods], store, SCALES[-1], now)
        state = msgspec.structs.replace(fewer, dropped=everyone - len(pods))
    return state


def _size(state: PredictionState) -> int:
    return len(encode_payload(state))


def _states(
    wanted: Sequence[StoredModels], pods: Sequence[Sequence[str]], store: ModelStore, heaviest: int, now: datetime
) -> list[PredictionState]:
    """The states of nodes with these pods, all at one scale."""
    own = [[model for model in each.models.rows if model[:2] == "__"] for each in wanted]
    packed = [[pod for pod in of_node if _UUID.fullmatch(pod)] for of_node in pods]
    other = [[pod for pod in of_node if not _UUID.fullmatch(pod)] for of_node in pods]
    models = [[*parts[0], *parts[1], *parts[2]] for parts in zip(own, packed, other, strict=True)]
    rows = np.array(
        [each.models.rows[model] for each, of_node in zip(wanted, models, strict=True) for model in of_node], dtype=np.int64
    )
    sizes = np.array([len(of_node) for of_node in models], dtype=np.int64)
    seconds = [each.models.trained_at for each in wanted]
    cpu, memory = (_histograms(each, rows, sizes, heaviest, seconds) for each in (store.cpu, store.memory))
    return [
        PredictionState(
            node=each.node,
            stored_at=now,
            trained_ms=each.trained_ms,
            models=tuple(own[place]),
            packed_pods=bytes.fromhex("".join(packed[place]).replace("-", "")),
            pods=tuple(other[place]),
            cpu=cpu[place],
            memory=memory[place],
            seasons=each.seasons,
        )
        for place, each in enumerate(wanted)
    ]


def _histograms(
    histograms: Histograms, rows: Indices, sizes: Indices, heaviest: int, seconds: Sequence[float]
) -> list[HistogramState]:
    """The rows in this order, so many of each node, counted in samples of its `seconds`."""
    at, buckets, weights = histograms.scaled(rows, heaviest)
    counts = np.bincount(at, minlength=len(rows)).astype(np.int64)
    deltas = np.diff(buckets, prepend=0)
    begins = np.concatenate(([0], counts.cumsum()[:-1]))[counts > 0]
    deltas[begins] = buckets[begins]
    times: Floats = np.repeat(np.array(seconds), sizes)
    totals = np.floor(histograms.totals_at(rows, times) * _MILLI + 0.5).astype(np.int64)
    ends = sizes.cumsum()
    bucket_ends = np.concatenate(([0], counts.cumsum()))[ends].tolist()
    parts: list[Indices] = []
    row, bucket = 0, 0
    for row_end, bucket_end in zip(ends.tolist(), bucket_ends, strict=True):
        parts += (counts[row:row_end], deltas[bucket:bucket_end], weights[bucket:bucket_end], totals[row:row_end])
        row, bucket = row_end, bucket_end
    lengths = 2 * (sizes + np.diff(np.array(bucket_ends), prepend=0))
    return [
        HistogramState(reference_seconds=round(at_seconds), heaviest=heaviest, models=encoded)
        for at_seconds, encoded in zip(seconds, varints.encode_each(np.concatenate(parts), lengths), strict=True)
    ]


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


