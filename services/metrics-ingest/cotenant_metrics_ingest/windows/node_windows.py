"""The windows of one node, and the rules by which samples are accepted.

In: usage messages of that node. Out: acceptance, or a reason for refusal; and figures for a report. The time axis is
the node's clock, checked against the log's:

- A message whose newest sample is not after the last accepted one is refused: it is a duplicate (same incarnation and counter
  of the executor; not an error), or its time runs backwards.
- A message more than FUTURE_TOLERANCE ahead of the log, or older than every window, is refused.
- A message whose series have different lengths is refused. Of a message that overlaps accepted samples only the newer samples
  count.

Windows end at the newest sample, not at the time of the report, so a report describes the node as of its last sample. Pods and
host applications are those of the last message; their means cover the part of the window in which they were seen.

Over 300 lines: accepting a message and reporting read the same rings.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from sys import intern

import msgspec
import numpy as np

from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.usage import NumaUsage, Series, UsageSample
from cotenant_metrics_ingest.means import HOST_ROW, MAX_ROWS, NODE_ROW, SLOTS_PER_WINDOW, SYSTEM_ROW, MeanSlots, Rows
from cotenant_metrics_ingest.points import MAX_OPEN
from cotenant_metrics_ingest.samples import LARGEST_VALUE, Samples, Table
from cotenant_metrics_ingest.slots import MAX_SLOTS, PercentileSlots, encode_ended, settle
from cotenant_metrics_ingest.windows.irregular import newest, node_and_system, values_fault
from cotenant_metrics_ingest.windows.waiting import Cuts, WaitingMessage, counts_and_sums, cut

FUTURE_TOLERANCE_MS = 60_000
LONGEST_MS = 86_400_000
"""A day: the longest sampling period, and the longest span of one message."""
SHORTEST_SLOT_MS = 1_000
MAX_WAITING = 8
"""So many messages of a node wait at most: those before its next report or training."""
FOLDED_AT_ONCE = 32
"""Nodes whose waiting messages, some 100 KiB, fit in a CPU core's cache."""
REPEATED = "repeated"
BACKWARDS = "TimeRunsBackwards"
FUTURE = "FromTheFuture"
TOO_OLD = "OlderThanEveryWindow"
MALFORMED = "Malformed"


_NUL = "\0"
_TIMES = "offsetsMs must ascend to at most 0, and periodMs be positive"


class WindowSizes(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of the windows and their slots, in milliseconds; `slots`: a number."""

    aggregate_ms: int
    durations_ms: tuple[int, ...]
    mean_slot_ms: int
    slot_ms: int
    slots: int

    @classmethod
    def of(cls, aggregate_seconds: int, durations_seconds: Sequence[int]) -> "WindowSizes":
        """The mean's window has five slots, the shortest percentile window ten; all together have at most MAX_SLOTS."""
        durations = tuple(seconds * 1000 for seconds in durations_seconds)
        longest, shortest = max(durations), min(durations)
        slot = max(SHORTEST_SLOT_MS, shortest // 10, -(-longest // (MAX_SLOTS - 2)))
        return cls(
            aggregate_ms=aggregate_seconds * 1000,
            durations_ms=durations,
            mean_slot_ms=max(SHORTEST_SLOT_MS, aggregate_seconds * 1000 // SLOTS_PER_WINDOW),
            slot_ms=slot,
            slots=-(-longest // slot) + 2,
        )


class WindowMember(msgspec.Struct, frozen=True):
    """A pod or host application of the last message."""

    key: str
    namespace: str
    name: str
    priority: str
    qos: str


def member_of(key: str, namespace: str, name: str, priority: str, qos: str) -> WindowMember:
    """A member with interned texts."""
    return WindowMember(intern(key), intern(namespace), intern(name), intern(priority), intern(qos))


class RefusedUsage(msgspec.Struct, frozen=True):
    """A refused message: it did not enter the windows."""

    reason: str
    message: str


class NodeWindows:
    """Mutable."""

    __slots__ = (
        "_in_message",
        "_offsets",
        "_parts_in_message",
        "_rows",
        "_rows_alone",
        "_rows_in",
        "_rows_of",
        "_waiting",
        "boot",
        "counter",
        "host_applications",
        "keys",
        "last_ms",
        "means",
        "numa",
        "period_ms",
        "pods",
        "sizes",
        "slots",
    )

    def __init__(self, sizes: WindowSizes) -> None:
        self.sizes = sizes
        self.slots = PercentileSlots(sizes.slot_ms, sizes.slots)
        self.means = MeanSlots(sizes.mean_slot_ms)
        self.last_ms = 0
        """Time of the newest accepted sample; 0 before the first."""
        self.boot = ""
        self.counter = 0
        self.period_ms = 0
        """Span of the last message's samples plus one sampling period: the interval between messages."""
        self.pods: tuple[WindowMember, ...] = ()
        """By namespace and name."""
        self.host_applications: tuple[WindowMember, ...] = ()
        self.numa: tuple[NumaUsage, ...] = ()
        """Of the last message."""
        self._offsets: tuple[int, ...] = ()
        self._in_message = ""
        self._parts_in_message = 0
        self.keys: list[str] = []
        """Of the last message's series, in its order; a new list when its members, a priority or a QoS change."""
        self._rows: list[int] = []
        self._rows_alone: Rows | None = None
        self._rows_in: dict[str, int] = {}
        self._rows_of: list[str] = []
        """Of the last message: its times, which are checked once; its members. Of the last one that was folded: the rows of its
        keys, also as an index if each key has one of its own; the dictionary that the rows are from; and the keys.
        """
        self._waiting: list[WaitingMessage] = []

    def take(self, sample: UsageSample, samples: Samples | None, end_ms: int, log_ms: int) -> RefusedUsage | None:
        """Accept or refuse a message with event time `end_ms`. `samples`: its table, where it is regular; `log_ms`: the log's
        time, 0 if unknown."""
        offsets = sample.offsets_ms
        newest_ms = end_ms + (offsets[-1] if offsets else 0)
        refused = self._refusal(sample, newest_ms, log_ms, regular=samples is not None)
        if refused is not None:
            return refused
        self._remember(sample)
        first = self.first_new(sample, end_ms)
        if samples is not None:
            self._waiting.append(WaitingMessage(end_ms, offsets, first, samples, self.keys))
            if len(self._waiting) == MAX_WAITING:
                fold([self])
        else:
            fold([self])
            self._fold_irregular(sample, end_ms, first)
        self.last_ms, self.boot, self.counter = newest_ms, sample.boot, sample.counter
        self.period_ms = sample.period_ms - offsets[0]
        self.numa = sample.numa
        return None

    def first_new(self, sample: UsageSample, end_ms: int) -> int:
        """The index of a message's first sample after the newest that was taken."""
        return bisect_right(sample.offsets_ms, self.last_ms - end_ms) if self.last_ms else 0

    def resized(self, sizes: WindowSizes) -> "NodeWindows":
        """Return windows of other sizes. Slots of the same width are kept, others start empty."""
        windows = NodeWindows(sizes)
        fold([self])
        settle([self.slots])
        encode_ended([self.slots])
        windows.slots = PercentileSlots.restored(self.slots.digest(), sizes.slot_ms, sizes.slots)
        if sizes.mean_slot_ms == self.sizes.mean_slot_ms:
            windows.means = self.means
        windows.last_ms, windows.boot, windows.counter = self.last_ms, self.boot, self.counter
        windows.period_ms = self.period_ms
        windows.pods, windows.host_applications, windows.numa = self.pods, self.host_applications, self.numa
        return windows

    def _refusal(self, sample: UsageSample, newest_ms: int, log_ms: int, *, regular: bool) -> RefusedUsage | None:
        fault = self._time_fault(sample) or ("" if regular else values_fault(sample))
        if fault:
            return RefusedUsage(MALFORMED, fault)
        if self.last_ms and newest_ms <= self.last_ms:
            if sample.boot == self.boot and sample.counter <= self.counter:
                return RefusedUsage(REPEATED, "")
            return RefusedUsage(
                BACKWARDS, f"its newest sample is {self.last_ms - newest_ms} ms before the newest that was taken"
            )
        if log_ms and newest_ms > log_ms + FUTURE_TOLERANCE_MS:
            return RefusedUsage(FUTURE, f"its newest sample is {newest_ms - log_ms} ms ahead of the log")
        if log_ms and newest_ms < log_ms - max(self.sizes.durations_ms):
            return RefusedUsage(TOO_OLD, f"its newest sample is {log_ms - newest_ms} ms behind the log")
        return None

    def _time_fault(self, sample: UsageSample) -> str:
        offsets = sample.offsets_ms
        size = len(offsets)
        if not size or offsets != self._offsets:
            if not 0 < size <= MAX_OPEN:
                return f"offsetsMs has {size} samples: expected 1 to {MAX_OPEN}"
            if offsets[0] < -LONGEST_MS:
                return f"offsetsMs begins {-offsets[0]} ms before its event: expected at most {LONGEST_MS}"
            if offsets[-1] > 0 or any(later <= earlier for earlier, later in pairwise(offsets)):
                return _TIMES
            self._offsets = offsets
        if sample.period_ms <= 0:
            return _TIMES
        if sample.period_ms > LONGEST_MS:
            return f"periodMs is {sample.period_ms}: expected at most {LONGEST_MS}"
        return ""

    def take_waiting(self) -> list[WaitingMessage]:
        """Return the messages that are not folded yet; they wait no longer."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def fold_one(self, message: WaitingMessage, cuts: Cuts, tables: Table) -> None:
        """Add a message; `cuts`: by the means' slots, `tables`: its counts and sums in each."""
        samples, end_ms, offsets = message.samples, message.end_ms, message.offsets
        for slot, start, stop in message.cut(self.sizes.slot_ms):
            part = samples.node_and_system(start, stop)
            self.slots.add(slot, end_ms + offsets[start], end_ms + offsets[stop - 1], part)
        for (slot, _, _), table in zip(cuts, tables, strict=True):
            self._open(slot, message.keys)
            if self._rows_alone is not None:
                self.means.add(self._rows_alone, table)
                continue
            for place, row in enumerate(self._rows):
                if row >= 0:
                    self.means.add(slice(row, row + 1), table[:, place : place + 1])

    def _fold_irregular(self, sample: UsageSample, end_ms: int, first: int) -> None:
        """Add a message series by series: of each those sums that are possible."""
        offsets = sample.offsets_ms
        for slot, start, stop in cut(end_ms, offsets, first, self.sizes.slot_ms):
            part = node_and_system(sample, start, stop)
            self.slots.add(slot, end_ms + offsets[start], end_ms + offsets[stop - 1], part)
        series: list[Series] = [sample.node_usage, sample.system_usage]
        series += [pod.series for pod in sample.pods]
        series += [host.series for host in sample.host_applications]
        for slot, start, stop in cut(end_ms, offsets, first, self.sizes.mean_slot_ms):
            self._open(slot, self.keys)
            for row, each in zip(self._rows, series, strict=True):
                cpu, memory = newest(each.cpu_milli, each.memory_bytes, start, stop, len(offsets))
                sums, most = (sum(cpu), sum(memory)), LARGEST_VALUE * len(cpu)
                if row >= 0 and min(sums) >= 0 and max(sums) <= most:
                    self.means.add(slice(row, row + 1), np.array([len(cpu), *sums], dtype=np.int64)[:, np.newaxis])

    def _open(self, slot: int, keys: list[str]) -> None:
        """Open a slot of the means for series with these keys."""
        self.means.open(slot)
        if self._rows_in is self.means.rows and self._rows_of is keys:
            return
        rows = self.means.rows_of(keys)
        self._rows, self._rows_in, self._rows_of, self._rows_alone = rows, self.means.rows, keys, None
        if rows == [*range(len(rows))]:
            self._rows_alone = slice(0, len(rows))
        elif len(set(rows)) == len(rows) and -1 not in rows:
            self._rows_alone = np.array(rows, dtype=np.int64)

    def _remember(self, sample: UsageSample) -> None:
        """Update the members from the message; returns at once if they are unchanged."""
        pods, hosts = sample.pods, sample.host_applications
        parts = [pod.uid for pod in pods]
        if "" in parts:
            parts += [f"{pod.namespace}/{pod.name}" for pod in pods]
        parts += [pod.priority for pod in pods]
        parts += [pod.qos for pod in pods]
        if hosts:
            parts += [part for host in hosts for part in (host.name, host.priority, host.qos)]
        # Joined to one text: a single comparison, where separate strings would cost a memory access each.
        in_message = f"{len(pods)}\0{_NUL.join(parts)}"
        if in_message == self._in_message and len(parts) == self._parts_in_message:
            return
        # With a NUL in a part the joined text is ambiguous: it is not kept, so the next message is read in full.
        self._in_message = in_message if in_message.count(_NUL) == max(len(parts), 1) else ""
        self._parts_in_message = len(parts)
        in_pods = [
            member_of(pod.uid or f"{pod.namespace}/{pod.name}", pod.namespace, pod.name, pod.priority, pod.qos) for pod in pods
        ]
        in_hosts = [member_of(HOST_ROW + host.name, "", host.name, host.priority, host.qos) for host in hosts]
        self.keys = [NODE_ROW, SYSTEM_ROW, *(member.key for member in (*in_pods, *in_hosts))]
        self.pods = tuple(sorted(in_pods[:MAX_ROWS], key=lambda pod: (pod.namespace, pod.name, pod.key)))
        self.host_applications = tuple(sorted(in_hosts[:MAX_ROWS], key=lambda host: host.name))

    # -- restart -------------------------------------------------------------------------------------------------

    @classmethod
    def restored(cls, metric: NodeMetricComputed, sizes: WindowSizes) -> "NodeWindows":
        """Restore from a report; windows of other sizes start empty."""
        windows = cls(sizes)
        digest = metric.digest
        if digest is None:
            return windows
        windows.slots = PercentileSlots.restored(digest.slots, sizes.slot_ms, sizes.slots)
        windows.means = MeanSlots.restored(digest.means, sizes.mean_slot_ms)
        windows.last_ms, windows.boot, windows.counter = digest.last_ms, digest.boot, digest.counter
        windows.period_ms = digest.span_ms
        windows.pods = tuple(member_of(pod.uid, pod.namespace, pod.name, pod.priority, pod.qos) for pod in metric.pods)
        windows.host_applications = tuple(
            member_of(HOST_ROW + host.name, "", host.name, host.priority, host.qos) for host in metric.host_applications
        )
        return windows

    @property
    def reported_rows(self) -> tuple[str, ...]:
        """Rows with means in a report: the node, the system, pods, host applications."""
        return (NODE_ROW, SYSTEM_ROW, *[pod.key for pod in self.pods], *[host.key for host in self.host_applications])


def fold(windows: Sequence[NodeWindows]) -> None:
    """Add the nodes' waiting messages to their windows; it comes before any reading."""
    for start in range(0, len(windows), FOLDED_AT_ONCE):
        waiting = [
            (each, message, message.cut(each.sizes.mean_slot_ms))
            for each in windows[start : start + FOLDED_AT_ONCE]
            for message in each.take_waiting()
        ]
        tables = counts_and_sums([(message.samples, cuts) for _, message, cuts in waiting])
        for (each, message, cuts), of_message in zip(waiting, tables, strict=True):
            each.fold_one(message, cuts, of_message)
