"""What the scheduler would do with a pod, node by node, its gangs, reservations and nodes: for people who look for a fault.

In: a `SchedulerQuestion`, the core between two decisions. Out: a `DebugAnswer`. Nothing is decided and nothing changes
but caches.

    scores    the nodes that can take the pod, the best first: total and weighted score by plugin, as a Markdown table
              (Koordinator's `--debug-scores`)
    filters   the other nodes with the filter that refuses each and its reason (`--debug-filters`)
    gangs     every gang as JSON, `gang` one of them: the fields of Koordinator's debug API
    node, load      one node, and the estimates of its load, as JSON (`node_debugging`)
    reservations    those of a node as JSON, with the pods that use them, and pods that act as one: the fields of its debug API

What is measured of a node is as of the last decision; rooms that are kept for nominated pods are those of the pod asked last.
Bounds: MOST_DEBUG_ROWS lines of a table, MOST_GANGS gangs, MOST_RESERVATIONS of a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from cotenant.domain.reservations.names import ANNOTATION_OWNERS
from cotenant.events.placements import Placement
from cotenant.events.requests import MOST_DEBUG_ROWS, DebugAnswer, SchedulerQuestion, debug_answer
from cotenant.events.reservations import ReservationShare
from cotenant.model.amounts import as_texts
from cotenant_scheduler.core import SchedulerCore
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.framework.profile import CODES_PER_FILTER
from cotenant_scheduler.node_debugging import node_info, node_load
from cotenant_scheduler.plugins.reservation.fitting import allocated_of
from cotenant_scheduler.state.gangs import Gang
from cotenant_scheduler.state.reservations.records import ReserveRecord

MOST_GANGS = 1000
MOST_RESERVATIONS = 1000


def answer(core: SchedulerCore, _: datetime, body: bytes) -> Iterator[bytes | None]:
    """Yield the answer to a question; one that cannot be answered says why in `error`."""
    yield debug_answer(body, SchedulerQuestion, lambda asked: _found(core, asked))


def _found(core: SchedulerCore, asked: SchedulerQuestion) -> DebugAnswer:
    if asked.about in ("scores", "filters"):
        return _of_pod(core, asked)
    if asked.about in ("gangs", "gang"):
        return _of_gangs(core, asked)
    if asked.about == "reservations":
        return _of_reservations(core, asked.name)
    if asked.about in ("node", "load"):
        return _of_node(core, asked)
    return DebugAnswer(error=f"{asked.about!r} is none of scores, filters, gangs, gang, reservations, node, load")


def _of_node(core: SchedulerCore, asked: SchedulerQuestion) -> DebugAnswer:
    core.settle()
    found = node_load(core, asked.name) if asked.about == "load" else node_info(core, asked.name)
    if found is None:
        return DebugAnswer(error=f"cannot find node {asked.name}")
    return DebugAnswer(text=_json(found), json=True)


def _of_pod(core: SchedulerCore, asked: SchedulerQuestion) -> DebugAnswer:
    pod = f"{asked.namespace}/{asked.name}"
    core.settle()
    record = core.pods.records.get((asked.namespace, asked.name))
    facts = record.facts if record is not None else None
    if facts is None or facts.shape is None:
        why = facts.error if facts is not None else "there is none"
        return DebugAnswer(error=f"pod {pod}: {why}")
    core.nodes.rank()
    evaluation = core.placing.evaluation(facts.shape)
    lines = min(max(asked.rows, 1), MOST_DEBUG_ROWS)
    table = _scores(evaluation, pod, lines) if asked.about == "scores" else _filters(evaluation, pod, lines)
    return DebugAnswer(text=table)


def _scores(evaluation: Evaluation, pod: str, lines: int) -> str:
    profile, nodes, keys = evaluation.profile, evaluation.nodes, evaluation.keys
    names = [score.name for score in profile.scores]
    names += [score.name for score, _ in profile.spanning_scores]
    order = np.argsort(-keys, kind="stable")
    rows = [row for row in order.tolist() if keys[row] >= 0][:lines]
    found = []
    for place, row in enumerate(rows):
        scores = evaluation.scores(row)
        scores += [0] * (len(names) - len(scores))
        found.append([place, pod, nodes.names[row], evaluation.total(row), *scores])
    return _markdown(["#", "Pod", "Node", "Score", *names], found)


def _filters(evaluation: Evaluation, pod: str, lines: int) -> str:
    profile, nodes, codes = evaluation.profile, evaluation.nodes, evaluation.codes
    refused = [row for row in np.flatnonzero(codes > 0).tolist() if nodes.declared[row]]
    found = []
    for place, row in enumerate(sorted(refused, key=lambda row: nodes.names[row])[:lines]):
        index, own = divmod(int(codes[row]), CODES_PER_FILTER)
        plugin = profile.filters[index]
        reason = plugin.reason(nodes, evaluation.shape, own, np.array([row]))
        found.append([place, pod, nodes.names[row], plugin.name, reason.text, reason.detail])
    return _markdown(["#", "Pod", "Node", "Plugin", "Reason", "Detail"], found)


def _markdown(head: list[str], rows: list[list[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |\n" for line in lines)


def _of_gangs(core: SchedulerCore, asked: SchedulerQuestion) -> DebugAnswer:
    core.settle()
    gangs = core.gangs.gangs
    if asked.about == "gang":
        wanted = gangs.get(f"{asked.namespace}/{asked.name}")
        if wanted is None:
            return DebugAnswer(error=f"there is no gang {asked.namespace}/{asked.name}")
        return DebugAnswer(text=_json(_gang(core, wanted)), json=True)
    shown = {name: _gang(core, gangs[name]) for name in islice(sorted(gangs), MOST_GANGS)}
    return DebugAnswer(text=_json(shown), json=True)


def _json(document: object) -> str:
    return msgspec.json.encode(document).decode()


def _gang(core: SchedulerCore, gang: Gang) -> dict[str, Any]:
    """A gang as Koordinator's debug API has it. Nothing waits for a permit here, so that list is empty."""
    spec = gang.spec
    members = {f"{namespace}/{name}": pod for (namespace, name), pod in sorted(gang.members.items())}
    created = min((pod.created for pod in members.values()), default="")
    if gang.pod_group is not None:
        created = gang.pod_group.metadata.creation_timestamp or ""
    return {
        "name": gang.id,
        "waitTime": int(spec.wait.total_seconds() * 1_000_000_000) if spec is not None else 0,
        "createTime": created,
        "mode": str(spec.mode) if spec is not None else "",
        "gangMatchPolicy": str(spec.match_policy) if spec is not None else "",
        "minRequiredNumber": spec.min_member if spec is not None else 0,
        "totalChildrenNum": spec.total_member if spec is not None else 0,
        "gangGroup": list(spec.groups) if spec is not None else [],
        "children": list(members),
        "pendingChildren": [name for name, pod in members.items() if not pod.bound],
        "waitingForBindChildren": [],
        "boundChildren": [name for name, pod in members.items() if pod.bound],
        "onceResourceSatisfied": core.gangs.satisfied(gang.id),
        "gangGroupInfo": {"gangGroupId": spec.group_id if spec is not None else gang.id},
        "gangFrom": "GangFromPodGroupCrd" if gang.pod_group is not None else "GangFromPodAnnotation",
        "hasGangInit": spec is not None,
    }


def _of_reservations(core: SchedulerCore, node: str) -> DebugAnswer:
    core.settle()
    if not core.nodes.is_declared(node):
        return DebugAnswer(error=f"there is no node {node}")
    assigned: dict[str, list[Placement]] = {}
    for key in sorted(core.pods.on_node.get(node, ())):
        placed = core.pods.records[key].placements[node]
        used = placed.data.allocation.reservation if placed.data.allocation is not None else None
        if used is not None and used.uid != placed.data.uid and placed.charge is not None:
            assigned.setdefault(used.uid, []).append(placed.data)
    there = (
        (record, share)
        for _, record in sorted(core.reservations.by_name.items())
        if (share := record.share()) is not None and share.node == node
    )
    items = [
        _reservation(record, share, assigned.get(share.uid, ()), over=record.name in core.reservations.over)
        for record, share in islice(there, MOST_RESERVATIONS)
    ]
    return DebugAnswer(text=_json({"items": items}), json=True)


def _reservation(
    record: ReserveRecord, share: ReservationShare, assigned: Sequence[Placement], *, over: bool
) -> dict[str, Any]:
    """A reservation as Koordinator's debug API has it. `reserved` is the part of it that no pod may be given."""
    reservation = record.reservation
    assert reservation is not None
    spec, metadata = reservation.spec, reservation.metadata
    once = spec.allocate_once is not False
    return {
        "name": metadata.name,
        "namespace": metadata.namespace,
        "uid": share.uid,
        "kind": "Reservation" if record.source is not None else "Pod",
        "available": not over and not (once and assigned),
        "allocateOnce": once,
        "allocatable": as_texts(share.allocatable),
        "reserved": as_texts(record.inside),
        "allocated": as_texts(allocated_of((pod.requests for pod in assigned), list(share.allocatable))),
        "owners": _owners(record),
        "allocatePolicy": spec.allocate_policy,
        "assignedPods": [
            {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "requests": as_texts(pod.requests)}
            for pod in assigned
        ],
    }


def _owners(record: ReserveRecord) -> object:
    """The rules of the owners, as they are written in the object."""
    if record.source is not None:
        return msgspec.json.decode(record.source)["spec"]["owners"]
    assert record.reservation is not None
    return msgspec.json.decode(record.reservation.metadata.annotations[ANNOTATION_OWNERS])
