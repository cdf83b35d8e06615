"""What pods request of their quotas, counted from the pods' records.

In: the records of pods that changed, the time. Out: the demands of the ledger, current. The rules are quota-tree's, so that
both have the same runtimes after the same messages: a pod counts as requesting while its object exists and it has not ended
for good, and as placed while a placement has its uid or its object names a node; a terminating pod as the rules say. Nothing
is counted before a first quota is declared.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from heapq import heappop, heappush

import msgspec

from cotenant.api.objects.pod import decode_pod
from cotenant.api.times import parse_rfc3339
from cotenant.domain.quota.membership import is_preemptible
from cotenant.domain.quota.trees.demands import (
    ENDED_PHASES,
    ChargeClass,
    Demands,
    counted_request,
    kind_of,
    placed_request,
)
from cotenant.domain.quota.trees.rules import QuotaRules
from cotenant.domain.quota.trees.terminating import Terminating, ignored_after
from cotenant.domain.resizing import counts_otherwise
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.model.quantities import QuantityError
from cotenant.model.times import EPOCH
from cotenant_scheduler.state.counting import is_reserve
from cotenant_scheduler.state.pod_records import PodRecord
from cotenant_scheduler.state.reading.shapes import Shape

KINDS_CACHED = 4096
"""Kinds of pods that are found again by their shape; beyond, the cache is cleared."""
_GONE = PlacementPhase.GONE


class QuotaDemands:
    """Counts records; each keeps as what it is counted."""

    def __init__(self, demands: Demands, rules: QuotaRules) -> None:
        self._demands = demands
        self._rules = rules
        self._kinds: dict[tuple[str, str, Shape, bool], ChargeClass] = {}
        self._now = EPOCH
        self._expiring: list[tuple[datetime, int, PodRecord]] = []
        """A heap of terminating pods by the time after which they do not count. Bound: one entry per change of such a pod
        until then."""
        self._pushed = 0
        self.counting = False

    def begin(self, records: Iterable[PodRecord]) -> None:
        """Count all pods: a quota was declared."""
        self.counting = True
        for record in records:
            self.note(record)

    def expire(self, now: datetime) -> None:
        """Stop counting terminating pods that no longer count at this time."""
        self._now = max(self._now, now)
        while self._expiring and self._expiring[0][0] < self._now:
            self.note(heappop(self._expiring)[2])

    def note(self, record: PodRecord) -> None:
        """Count a record as it is now; a reserve pod counts in no quota."""
        facts = record.facts
        known = record.counted_as
        if (
            known is not None
            and facts is not None
            and facts is record.counted_facts
            and not record.runs
            and not (record.placements and _counted_otherwise(record, facts.uid))
        ):
            # It was counted with the same object: only whether it is placed can differ.
            held = bool(facts.node_name) or (bool(record.placements) and _is_placed(record, facts.uid))
            if held is not record.counted_held:
                record.counted_held = held
                self._demands.count(known, 0, 1 if held else -1)
            return
        if is_reserve(record.key):
            return
        record.counted_facts = None
        kind, held = self.counted_as(record) if record.document is not None else (None, False)
        before, held_before = record.counted_as, record.counted_held
        if kind is before or kind == before:
            if held != held_before and kind is not None:
                record.counted_held = held
                self._demands.count(kind, 0, 1 if held else -1)
            return
        record.counted_as, record.counted_held = kind, held
        if kind is not None:
            self._demands.count(kind, 1, 1 if held else 0)
        if before is not None:
            self._demands.count(before, -1, -1 if held_before else 0)

    def counted_as(self, record: PodRecord) -> tuple[ChargeClass | None, bool]:
        """Return the kind of demand as which a pod counts, None if it does not, and whether as placed."""
        facts, rules = record.facts, self._rules
        if facts is None or facts.shape is None or rules.ignore_overhead or (
            facts.deleting and rules.terminating is not Terminating.COUNT
        ):
            return self._read(record)
        uid = facts.uid
        if facts.ended or (record.runs and any(run.uid == uid and run.phase.terminal for run, _ in record.runs.values())):
            return None, False
        if record.placements and _counted_otherwise(record, uid):
            return self._read(record)
        traits = facts.traits
        key = (record.key[0], traits.quota_label, facts.shape, traits.preemptible)
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= KINDS_CACHED:
                self._kinds.clear()
            kind = self._kinds[key] = kind_of(key[0], traits.labels, facts.shape.requests, key[3])
        record.counted_facts = facts
        return kind, bool(facts.node_name) or (bool(record.placements) and _is_placed(record, uid))

    def _read(self, record: PodRecord) -> tuple[ChargeClass | None, bool]:
        """As `counted_as`, from the document: for a pod that has no shape, or of which more counts than a shape says."""
        assert record.document is not None
        try:
            pod = decode_pod(record.document)
            ignored = self._rules.ignore_overhead
            other = _counted_otherwise(record, pod.metadata.uid)
            request = (
                counted_request(pod.spec, ignore_overhead=ignored)
                if other is None
                else placed_request(other.requests, pod.spec.overhead if ignored else {})
            )
        except (msgspec.DecodeError, QuantityError):
            return None, False
        meta, uid = pod.metadata, pod.metadata.uid
        after = ignored_after(
            parse_rfc3339(meta.deletion_timestamp), meta.deletion_grace_period_seconds, self._rules.terminating
        )
        if after is not None and after >= self._now:
            self._pushed += 1
            heappush(self._expiring, (after, self._pushed, record))
        if (
            pod.status.phase in ENDED_PHASES
            or any(run.uid == uid and run.phase.terminal for run, _ in record.runs.values())
            or (after is not None and self._now > after)
        ):
            return None, False
        kind = kind_of(record.key[0], meta.labels, request, is_preemptible(meta.labels))
        return kind, bool(pod.spec.node_name) or _is_placed(record, uid)


def _counted_otherwise(record: PodRecord, uid: str) -> Placement | None:
    """Return the pod's placement if it counts with the requests of that one."""
    for placed in record.placements.values():
        data = placed.data
        resized = data.resize is not None
        if data.uid == uid and counts_otherwise(resized, data.object_sequence, record.object_sequence):
            return data
    return None


def _is_placed(record: PodRecord, uid: str) -> bool:
    for placed in record.placements.values():
        data = placed.stored.data
        if data.uid == uid and data.phase is not _GONE:
            return True
    return False
