"""Contention of pods since the last report: throttling, PSI and CPI, averaged over messages.

In: usage messages of one node. Out: the averages of each pod, over those of its messages that have the figure; CPI as all
cycles by all instructions. Taking a message only flattens its integers. Bound: the last MAX_MESSAGES messages, 64 bytes a pod
and message.
"""

from collections import deque
from collections.abc import Sequence

import msgspec
import numpy as np

from cotenant.events.node.metrics import Contention
from cotenant.events.node.usage import PodUsage, Pressure
from cotenant_metrics_ingest.varints import packed

MAX_MESSAGES = 64
_COLUMNS = 8
_AVERAGED = 6
_CYCLES, _INSTRUCTIONS = 6, 7
NO_CONTENTION = Contention()
_NO_PRESSURE = Pressure()
_UNSAID = PodUsage(namespace="", name="", uid="").pressure
"""The value for a message without pressure: always the same object."""


class _Message(msgspec.Struct, gc=False):
    uids: list[str]
    figures: bytes


class ContentionMessages:
    """Mutable."""

    __slots__ = ("_messages",)

    def __init__(self) -> None:
        self._messages: deque[_Message] = deque(maxlen=MAX_MESSAGES)

    def add(self, pods: Sequence[PodUsage]) -> None:
        """Take a message's pods."""
        measured = [
            pod
            for pod in pods
            if pod.throttled_permille >= 0 or pod.cycles or (pod.pressure is not _UNSAID and pod.pressure != _NO_PRESSURE)
        ]
        if not measured:
            return
        figures: list[int] = []
        for pod in measured:
            pressure = pod.pressure
            figures += (
                pod.throttled_permille,
                pressure.cpu_some,
                pressure.memory_some,
                pressure.memory_full,
                pressure.io_some,
                pressure.io_full,
                pod.cycles,
                pod.instructions,
            )
        uids = [pod.uid for pod in measured]
        if self._messages and self._messages[-1].uids == uids:
            uids = self._messages[-1].uids
        self._messages.append(_Message(uids, packed((figures,))))

    def clear(self) -> None:
        """Begin a new report's span."""
        self._messages.clear()

    def averages(self) -> dict[str, Contention]:
        """Return the averages of each pod that has any, by uid."""
        rows: dict[str, int] = {}
        for message in self._messages:
            for uid in message.uids:
                rows.setdefault(uid, len(rows))
        if not rows:
            return {}
        sums = np.zeros((len(rows), _COLUMNS), dtype=np.float64)
        counts = np.zeros((len(rows), _COLUMNS), dtype=np.int64)
        for message in self._messages:
            table = np.frombuffer(message.figures, dtype=np.int64).reshape(-1, _COLUMNS)
            at = [rows[uid] for uid in message.uids]
            known = table >= 0
            np.add.at(sums, at, np.where(known, table, 0))
            np.add.at(counts, at, known)
        means = np.where(counts > 0, np.trunc(sums / np.maximum(counts, 1)), -1).astype(np.int64)
        instructions = sums[:, _INSTRUCTIONS]
        cpi = np.divide(1000 * sums[:, _CYCLES], instructions, out=np.full(len(rows), -1.0), where=instructions > 0)
        found: dict[str, Contention] = {}
        for uid, row in rows.items():
            throttled, cpu_some, memory_some, memory_full, io_some, io_full = means[row, :_AVERAGED].tolist()
            contention = Contention(
                throttled_permille=throttled,
                cpu_some=cpu_some,
                memory_some=memory_some,
                memory_full=memory_full,
                io_some=io_some,
                io_full=io_full,
                cpi_thousandths=int(min(cpi[row], 2.0**53)),
            )
            if contention != NO_CONTENTION:
                found[uid] = contention
        return found
