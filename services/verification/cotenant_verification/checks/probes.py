"""Probes: artificial pods, passed to copies of a core, whose decisions reveal its state.

In: the nodes and quotas there are, a number. Out: events beyond the log. Pods with minimal requests reveal the scores and
figures of the best node, and of each node; a pod with a huge request of one resource, bound to one node, reveals how much of it
is free there; one in a quota reveals its usage and runtime. So two cores with equal answers have equal state of every node
and quota.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectStored
from cotenant.model.subjects import pod_subject
from cotenant_console.api.client import Document
from cotenant_verification.workload.manifests import pod

FIRST = 10**12
_AT = datetime(2026, 1, 1, tzinfo=UTC)


LOOKED_AT = 3
"""Nodes that one comparison probes; the next one probes others."""
GIANT_MILLI, GIANT_MIB = 10_000_000, 1 << 30


def probes(nodes: Sequence[str], quotas: Sequence[str], number: int) -> tuple[Event, ...]:
    """Small pods and giants, for any node, for LOOKED_AT nodes by name, and for each quota."""
    documents: list[tuple[str, Document]] = []
    for kind in ("ls", "batch"):
        documents.append((f"small-{kind}", pod("", {"class": kind, "cpu": 1, "memory_mib": 1})))
        documents.append((f"giant-{kind}", pod("", {"class": kind, "cpu": GIANT_MILLI, "memory_mib": GIANT_MIB})))
        for quota in quotas:
            args: dict[str, int | str] = {"class": kind, "cpu": GIANT_MILLI, "memory_mib": 1, "quota": quota}
            documents.append((f"{quota}-{kind}", pod("", args)))
        for node in [nodes[(number * LOOKED_AT + index) % len(nodes)] for index in range(min(LOOKED_AT, len(nodes)))]:
            for what, cpu, memory in (("small", 1, 1), ("cpu", GIANT_MILLI, 1), ("memory", 1, GIANT_MIB)):
                document = pod("", {"class": kind, "cpu": cpu, "memory_mib": memory})
                documents.append((f"{node}-{what}-{kind}", _bound_to(node, document)))
    return tuple(_event(name, document, number, index) for index, (name, document) in enumerate(documents))


def _bound_to(node: str, document: Document) -> Document:
    spec = document["spec"]
    assert isinstance(spec, dict)
    field: Document = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms: Document = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return document


def _event(name: str, document: Document, number: int, index: int) -> Event:
    metadata = document["metadata"]
    assert isinstance(metadata, dict)
    metadata |= {"name": f"probe-{name}", "uid": f"probe-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return Event(
        subject=pod_subject("default", f"probe-{name}"),
        data=ObjectStored(object=msgspec.Raw(json.dumps(document).encode())),
        time=_AT,
        id=f"probe/{index}",
        source="/probe",
        # Beyond everything on the log, so that no core takes it for overtaken.
        sequence=FIRST + number * 10_000 + index,
    )
