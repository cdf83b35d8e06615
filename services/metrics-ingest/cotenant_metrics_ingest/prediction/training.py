"""The samples of one training interval, and their P90s.

In: usage messages of one node, as they are taken. Out: once an interval the P90 of each pod's and of the node's samples, by the
rank rule of `aggregation`; memory is the working set, whatever the collect policy says. Intervals are cut by the node's clock,
at a phase that its name decides, so that nodes are trained one after the other.

Taking a message only flattens its integers; figures are computed once an interval. Values that nothing can have are left out
with their pod. Memory: at most INTERVAL_SAMPLES samples a series, 16 bytes each (15 KiB a node of 30 pods, on average).
"""

import struct
from collections.abc import Sequence
from zlib import crc32

import msgspec
import numpy as np
import numpy.typing as npt

from cotenant.events.node.usage import PodUsage, UsageSample
from cotenant.model.tiers import PriorityClass, priority_of_label
from cotenant_metrics_ingest.aggregation import percentile_rank
from cotenant_metrics_ingest.points import MAX_OPEN
from cotenant_metrics_ingest.prediction.models import PodSample
from cotenant_metrics_ingest.varints import packed

INTERVAL_MS = 60_000
INTERVAL_SAMPLES = MAX_OPEN
"""Maximum number of samples of one series in an interval; older ones are dropped, a message at a time."""
PERCENTILE = 0.9
LARGEST_VALUE = 2**44
"""As in `node_windows`."""

Table = npt.NDArray[np.int64]


class _Part(msgspec.Struct, gc=False):
    """One message: per series (node, then its pods) how many samples, and all samples in a row."""

    end_ms: int
    keys: list[str]
    sizes: list[int]
    cpu: bytes
    memory: bytes


class Interval:
    """Mutable. Times are milliseconds since the epoch, by the node's clock."""

    def __init__(self, node: str) -> None:
        self._phase = crc32(node.encode()) % INTERVAL_MS
        self._number = -1
        self._parts: list[_Part] = []
        self._keys: list[str] = []
        self._tiers: dict[str, str] = {}
        self._samples = 0

    def add(self, sample: UsageSample, first: int, newest_ms: int) -> bool:
        """Take a message's samples from index `first` on; returns whether an interval is over."""
        series = [sample.node_usage, *(pod.series for pod in sample.pods)]
        cpus = [each.cpu_milli for each in series]
        memories = [each.memory_bytes for each in series]
        size = len(sample.offsets_ms) - first
        lengths = list(map(len, cpus))
        if first or lengths != list(map(len, memories)) or max(lengths) > size:
            pairs = [
                (cpu[-length:], memory[-length:]) if (length := min(len(cpu), len(memory), size)) else ((), ())
                for cpu, memory in zip(cpus, memories, strict=True)
            ]
            cpus, memories = [cpu for cpu, _ in pairs], [memory for _, memory in pairs]
        try:
            flat = packed(cpus), packed(memories)
        except struct.error:
            cpus, memories = [_possible(values) for values in cpus], [_possible(values) for values in memories]
            flat = packed(cpus), packed(memories)
        self._remember(sample.pods)
        self._parts.append(_Part(newest_ms, self._keys, list(map(len, cpus)), *flat))
        self._samples += size
        while self._samples > INTERVAL_SAMPLES and len(self._parts) > 1:
            self._samples -= self._parts.pop(0).sizes[0]
        number = (newest_ms + self._phase) // INTERVAL_MS
        over = self._number not in (-1, number)
        self._number = number
        return over

    def _remember(self, pods: Sequence[PodUsage]) -> None:
        keys = [pod.uid or f"{pod.namespace}/{pod.name}" for pod in pods]
        if keys != self._keys:
            self._keys = keys
            self._tiers = {}
        if len(self._tiers) != len(keys):
            self._tiers = {key: tier_of(pod) for key, pod in zip(keys, pods, strict=True)}

    def samples(self) -> tuple[list[PodSample], tuple[int, int] | None]:
        """Return the P90s of pods with samples, by uid, and of the node; the next interval begins."""
        parts, self._parts, self._samples = self._parts, [], 0
        newest = parts[-1].end_ms if parts else 0
        parts = [part for part in parts if part.end_ms > newest - 2 * INTERVAL_MS]
        keys, counts, cpu, memory = _tables(parts)
        figures = _p90s(np.concatenate((cpu, memory)), np.concatenate((counts, counts))).tolist()
        size = len(keys)
        pods = [
            PodSample(key, self._tiers.get(key, PriorityClass.NONE.value), figures[row], figures[size + row])
            for row, key in enumerate(keys)
            if row and figures[row] >= 0 and figures[size + row] >= 0
        ]
        node = (figures[0], figures[size]) if size and figures[0] >= 0 and figures[size] >= 0 else None
        return pods, node


def tier_of(pod: PodUsage) -> str:
    """A pod's tier as its message says it; where it does not, batch for BE and prod for any other QoS."""
    tier = priority_of_label(pod.priority) if pod.priority else PriorityClass.NONE
    if tier is PriorityClass.NONE and pod.qos:
        tier = PriorityClass.BATCH if pod.qos == "BE" else PriorityClass.PROD
    return tier.value


def _possible(values: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(value if 0 <= value <= LARGEST_VALUE else -1 for value in values)


def _tables(parts: Sequence[_Part]) -> tuple[list[str], Table, Table, Table]:
    """Return keys, the number of samples of each, and their samples as rows, padded at the front with -1; the node is first."""
    if not parts:
        empty = np.zeros((0, 1), dtype=np.int64)
        return [], np.zeros(0, dtype=np.int64), empty, empty
    last = parts[-1]
    alike = all(part.keys is last.keys or part.keys == last.keys for part in parts) and len({*last.keys}) == len(last.keys)
    if alike and all(len({*part.sizes}) == 1 for part in parts):
        rows = len(last.sizes)
        cpu = np.concatenate([np.frombuffer(part.cpu, dtype=np.int64).reshape(rows, -1) for part in parts], axis=1)
        memory = np.concatenate([np.frombuffer(part.memory, dtype=np.int64).reshape(rows, -1) for part in parts], axis=1)
        return ["", *last.keys], np.full(rows, cpu.shape[1]), cpu, memory
    found: dict[str, tuple[list[int], list[int]]] = {"": ([], [])}
    for part in parts:
        at, twice = 0, set()
        cpu_values, memory_values = np.frombuffer(part.cpu, np.int64).tolist(), np.frombuffer(part.memory, np.int64).tolist()
        for key, size in zip(("", *part.keys), part.sizes, strict=True):
            if key not in twice:
                twice.add(key)
                of_key = found.setdefault(key, ([], []))
                of_key[0].extend(cpu_values[at : at + size])
                of_key[1].extend(memory_values[at : at + size])
            at += size
    counts = np.array([len(cpu) for cpu, _ in found.values()], dtype=np.int64)
    longest = max(int(counts.max()), 1)
    tables = np.full((2, len(found), longest), -1, dtype=np.int64)
    for row, (cpus, memories) in enumerate(found.values()):
        if cpus:
            tables[0, row, longest - len(cpus) :] = cpus
            tables[1, row, longest - len(memories) :] = memories
    return list(found), counts, tables[0], tables[1]


def _p90s(table: Table, counts: Table) -> Table:
    """Return each row's P90 over its last `count` columns; -1 without samples, and where one is impossible."""
    if not len(counts):
        return counts
    longest = table.shape[1]
    if longest == 0:
        return np.full(len(counts), -1, dtype=np.int64)
    padding = longest - counts
    if counts.min() == longest and table.min() >= 0 and table.max() <= LARGEST_VALUE:
        rank = percentile_rank(longest, PERCENTILE)
        found: Table = np.partition(table, rank, axis=1)[:, rank]
        return found
    impossible = (table > LARGEST_VALUE).any(axis=1) | ((table < 0).sum(axis=1) != padding)
    ranks = {count: percentile_rank(count, PERCENTILE) if count else 0 for count in set(counts.tolist())}
    places = padding + np.array([ranks[count] for count in counts.tolist()], dtype=np.int64)
    table.sort(axis=1)
    found = np.take_along_axis(table, np.minimum(places, longest - 1)[:, np.newaxis], axis=1)[:, 0]
    return np.where(impossible | (counts == 0), -1, found)
