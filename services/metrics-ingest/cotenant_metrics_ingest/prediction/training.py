"""The samples of one training interval of each node, and their P90s.

In: usage messages of one node, as they are taken. Out: once an interval the P90 of each pod's and of the node's samples, by the
rank rule of `aggregation`; memory is the working set, whatever the collect policy says. Intervals are cut by the node's clock,
at a phase that its name decides, so that nodes are trained one after the other. P90s are computed for many nodes at once.

Pods with impossible values are left out. Memory: at most INTERVAL_SAMPLES samples a series, 16 bytes each (15
KiB a node of 30 pods, on average).
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from zlib import crc32

import msgspec
import numpy as np

from cotenant.events.node.usage import PodUsage, UsageSample
from cotenant.model.tiers import PriorityClass, priority_of_label
from cotenant_metrics_ingest.aggregation import percentile_rank
from cotenant_metrics_ingest.points import MAX_OPEN
from cotenant_metrics_ingest.prediction.models import IntervalFigures, tier_places
from cotenant_metrics_ingest.prediction.services import LowerPods, lower_pods
from cotenant_metrics_ingest.samples import LARGEST_VALUE, Samples, Table
from cotenant_metrics_ingest.varints import packed

INTERVAL_MS = 60_000
INTERVAL_SAMPLES = MAX_OPEN
"""Maximum number of samples of one series in an interval; older ones are dropped, a message at a time."""
PERCENTILE = 0.9
FIGURES_AT_ONCE = 32
"""Nodes whose samples, some 30 KiB each, fit in a CPU core's cache."""
_FIRST_POD = 2
"""The series before pods: the node, the system."""


class _Part(msgspec.Struct, gc=False):
    """One message. `data`: int64, the milli-cores of all series and then their bytes; `sizes`: how many of each series, None
    where all have `size`."""

    end_ms: int
    pods: list[str]
    data: bytes
    size: int
    sizes: list[int] | None = None

    def series(self) -> Iterator[tuple[str, list[int], list[int]]]:
        """Name, milli-cores and bytes of the node, which has no name, and of each pod."""
        values = np.frombuffer(self.data, dtype=np.int64).tolist()
        half = len(values) // 2
        sizes = self.sizes if self.sizes is not None else [self.size] * (_FIRST_POD + len(self.pods))
        at = 0
        for key, size in zip(("", None, *self.pods), sizes, strict=True):
            if key is not None:
                yield key, values[at : at + size], values[half + at : half + at + size]
            at += size


class Ended(msgspec.Struct, frozen=True):
    """The messages of an interval that is over; it was when the one of `newest_ms` came. `pods`: of the last message, and
    their tiers, also as places in TIERS."""

    newest_ms: int
    parts: list[_Part]
    pods: list[str]
    tiers: dict[str, str]
    tier_places: Table


class Interval:
    """Mutable. Times are milliseconds since the epoch, by the node's clock."""

    __slots__ = ("_keys", "_number", "_parts", "_phase", "_pods", "_samples", "_tier_places", "_tiers", "lower")

    def __init__(self, node: str) -> None:
        self._phase = crc32(node.encode()) % INTERVAL_MS
        self._number = -1
        self._parts: list[_Part] = []
        self._keys: list[str] = []
        self._pods: list[str] = []
        self._tiers: dict[str, str] = {}
        self._tier_places: Table = tier_places((), {})
        self.lower = LowerPods()
        """Of the last message: the given list, the pods in it, their tiers, those of lower tiers."""
        self._samples = 0

    def add(self, sample: UsageSample, samples: Samples | None, keys: list[str], first: int, newest_ms: int) -> bool:
        """Take a message's samples from index `first` on; returns whether an interval is over. `samples`: its table, where it
        is regular; `keys`: of its series, another list when they or tiers change."""
        if keys is not self._keys:
            self._keys = keys
            self._pods = keys[_FIRST_POD : _FIRST_POD + len(sample.pods)]
            self._tiers = {key: tier_of(pod) for key, pod in zip(self._pods, sample.pods, strict=True)}
            self._tier_places = tier_places(self._pods, self._tiers)
            self.lower = lower_pods(self._pods, self._tiers)
        size = len(sample.offsets_ms) - first
        if samples is not None and not first:
            self._parts.append(_Part(newest_ms, self._pods, samples.data, size))
        else:
            self._parts.append(_irregular(sample, self._pods, size, newest_ms))
        self._samples += size
        while self._samples > INTERVAL_SAMPLES and len(self._parts) > 1:
            self._samples -= self._parts.pop(0).size
        number = (newest_ms + self._phase) // INTERVAL_MS
        over = self._number not in (-1, number)
        self._number = number
        return over

    def end(self) -> Ended:
        """Return the interval, which has a message at least; the next one begins."""
        parts, self._parts, self._samples = self._parts, [], 0
        newest = parts[-1].end_ms
        lately = [part for part in parts if part.end_ms > newest - 2 * INTERVAL_MS]
        return Ended(newest, lately, self._pods, self._tiers, self._tier_places)


def tier_of(pod: PodUsage) -> str:
    """A pod's tier from its message; if missing, batch for BE and prod for any other QoS."""
    tier = priority_of_label(pod.priority) if pod.priority else PriorityClass.NONE
    if tier is PriorityClass.NONE and pod.qos:
        tier = PriorityClass.BATCH if pod.qos == "BE" else PriorityClass.PROD
    return tier.value


def _irregular(sample: UsageSample, pods: list[str], size: int, newest_ms: int) -> _Part:
    """A message series by series: of each the newest samples of which both resources are known."""
    cpus: list[tuple[int, ...]] = []
    memories: list[tuple[int, ...]] = []
    for series in (sample.node_usage, None, *(pod.series for pod in sample.pods)):
        cpu, memory = (series.cpu_milli, series.memory_bytes) if series is not None else ((), ())
        length = min(len(cpu), len(memory), size)
        cpus.append(cpu[len(cpu) - length :])
        memories.append(memory[len(memory) - length :])
    try:
        data = packed([*cpus, *memories])
    except struct.error:
        data = packed([_possible(values) for values in (*cpus, *memories)])
    return _Part(newest_ms, pods, data, size, list(map(len, cpus)))


def _possible(values: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(value if 0 <= value <= LARGEST_VALUE else -1 for value in values)


def figures_of(intervals: Sequence[Ended]) -> list[IntervalFigures]:
    """The P90s of each interval, of pods with samples and of the node."""
    found: list[IntervalFigures | None] = [None] * len(intervals)
    alike: dict[tuple[int, ...], list[int]] = {}
    for place, ended in enumerate(intervals):
        if _regular(ended.parts):
            shape = [len(ended.parts[-1].pods)]
            for part in ended.parts:
                shape += (part.size, len(part.data))
            alike.setdefault(tuple(shape), []).append(place)
        else:
            pods, counts, table = _table_of(ended.parts)
            p90s = _p90s(table.reshape(-1, table.shape[2]), np.concatenate((counts, counts)))
            found[place] = _figures(ended, pods, p90s.reshape(2, -1))
    for places in _some_at_once(alike.values()):
        own = [intervals[place] for place in places]
        p90s_of_own = _p90s_of_regular([ended.parts for ended in own])
        nodes = p90s_of_own[:, :, 0].tolist()
        for place, ended, p90s, (cpu, memory) in zip(places, own, p90s_of_own, nodes, strict=True):
            pods = ended.parts[-1].pods
            tiers = ended.tier_places if pods is ended.pods else tier_places(pods, ended.tiers)
            found[place] = IntervalFigures(pods, tiers, p90s[:, _FIRST_POD:], (cpu, memory))
    return [figures for figures in found if figures is not None]


def _some_at_once(alike: Iterable[list[int]]) -> Iterator[list[int]]:
    for places in alike:
        for start in range(0, len(places), FIGURES_AT_ONCE):
            yield places[start : start + FIGURES_AT_ONCE]


def _regular(parts: Sequence[_Part]) -> bool:
    """Whether all messages have the same distinct pods, and each as many samples of all."""
    pods = parts[-1].pods
    return all(part.sizes is None and (part.pods is pods or part.pods == pods) for part in parts) and len({*pods}) == len(pods)


def _p90s_of_regular(nodes: Sequence[Sequence[_Part]]) -> Table:
    """The P90s of each node's series, int64 (nodes, 2, series). All have messages of the same sizes, from the same number of
    pods and of host applications, which come after the pods and are left out."""
    first = nodes[0]
    rows, columns = _FIRST_POD + len(first[-1].pods), sum(part.size for part in first)
    table = np.empty((len(nodes), 2, rows, columns), dtype=np.int64)
    column = 0
    for number, part in enumerate(first):
        given = np.frombuffer(b"".join([parts[number].data for parts in nodes]), dtype=np.int64)
        table[:, :, :, column : column + part.size] = given.reshape(len(nodes), 2, -1, part.size)[:, :, :rows]
        column += part.size
    rank = percentile_rank(columns, PERCENTILE)
    table.partition(rank, axis=3)
    return table[:, :, :, rank]


def _figures(ended: Ended, pods: list[str], p90s: Table) -> IntervalFigures:
    node, values = p90s[:, 0].tolist(), p90s[:, _FIRST_POD:]
    if len(pods) and values.min() < 0:
        known = np.flatnonzero((values >= 0).all(axis=0))
        pods, values = [pods[place] for place in known.tolist()], values[:, known]
    tiers = ended.tier_places if pods is ended.pods else tier_places(pods, ended.tiers)
    return IntervalFigures(pods, tiers, values, (node[0], node[1]) if min(node) >= 0 else None)


def _table_of(parts: Sequence[_Part]) -> tuple[list[str], Table, Table]:
    """Return the pods of an interval's messages, how many samples each series has, and the samples, int64 (2, series, samples),
    padded at the front with -1; the series are the node, the system (which is left out), the pods."""
    found: dict[str, tuple[list[int], list[int]]] = {"": ([], [])}
    for part in parts:
        seen: set[str] = set()
        for key, cpu, memory in part.series():
            if key not in seen:
                seen.add(key)
                of_key = found.setdefault(key, ([], []))
                of_key[0].extend(cpu)
                of_key[1].extend(memory)
    every = [found.pop(""), ([], []), *found.values()]
    counts = np.array([len(cpu) for cpu, _ in every], dtype=np.int64)
    longest = max(int(counts.max()), 1)
    table = np.full((2, len(every), longest), -1, dtype=np.int64)
    for row, both in enumerate(every):
        for resource, values in enumerate(both):
            table[resource, row, longest - len(values) :] = values
    return list(found), counts, table


def _p90s(table: Table, counts: Table) -> Table:
    """Return each row's P90 over its last `count` columns; -1 without samples, and where one is impossible."""
    longest = table.shape[1]
    padding = longest - counts
    impossible = (table > LARGEST_VALUE).any(axis=1) | ((table < 0).sum(axis=1) != padding)
    ranks = {count: percentile_rank(count, PERCENTILE) if count else 0 for count in set(counts.tolist())}
    places = padding + np.array([ranks[count] for count in counts.tolist()], dtype=np.int64)
    table.sort(axis=1)
    found = np.take_along_axis(table, np.minimum(places, longest - 1)[:, np.newaxis], axis=1)[:, 0]
    return np.where(impossible | (counts == 0), -1, found)
