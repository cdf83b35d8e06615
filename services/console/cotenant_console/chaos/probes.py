"""Probes: pods that nobody created, put before copies of a core to see its state in its answer.

In: a number. Out: events beyond the log, and those that take the pods away again. One pod wants next to nothing and shows the
scores and figures of the best node; one wants more than any node has and shows by how much each falls short.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectDeleted, ObjectStored
from cotenant.subjects import pod_subject
from cotenant_console.chaos.manifests import pod
from cotenant_console.chaos.workload.quotas import LEAVES

FIRST = 10**12
_AT = datetime(2026, 1, 1, tzinfo=UTC)


def probes(number: int) -> tuple[tuple[Event, ...], tuple[Event, ...]]:
    """A small pod, a small one in a quota, a small borrower, and giants of both kinds; and the ends of them all."""
    wanted: tuple[tuple[str, dict[str, int | str]], ...] = (
        ("small", {"class": "ls", "cpu": 1, "memory_mib": 1}),
        ("small-quota", {"class": "ls", "cpu": 1, "memory_mib": 1, "quota": LEAVES[0]}),
        ("small-batch", {"class": "batch", "cpu": 1, "memory_mib": 1}),
        ("giant", {"class": "ls", "cpu": 10_000_000, "memory_mib": 1 << 30}),
        ("giant-batch", {"class": "batch", "cpu": 10_000_000, "memory_mib": 1 << 30}),
    )
    events, ends = [], []
    for index, (name, args) in enumerate(wanted):
        document = pod(f"probe-{name}", args)
        metadata = document["metadata"]
        assert isinstance(metadata, dict)
        metadata |= {"uid": f"probe-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
        raw = msgspec.Raw(json.dumps(document).encode())
        event = Event(
            subject=pod_subject("default", f"probe-{name}"),
            data=ObjectStored(object=raw),
            time=_AT,
            id=f"probe/{index}",
            source="/probe",
            # Beyond everything on the log, so that no core takes it for overtaken.
            sequence=FIRST + number * 100 + index,
        )
        events.append(event)
        ended = ObjectDeleted(uid=f"probe-{name}", object=raw)
        ends.append(msgspec.structs.replace(event, data=ended, tombstone=True, sequence=event.sequence + 50))
    return tuple(events), tuple(ends)
