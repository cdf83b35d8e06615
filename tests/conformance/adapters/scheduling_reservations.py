"""Scheduling vectors of reservations: matching, allocation and lifecycle, through the rules that scheduler and gateway run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np

from cotenant.api.objects.pod import Pod
from cotenant.api.objects.reservation import OwnerRule, Reservation, decode_reservation
from cotenant.domain.reservation import parse_reservation, trim_allocatable
from cotenant.domain.reservations.affinity import affinity_of, exactly_matches, ignores_reservations
from cotenant.domain.reservations.diagnosis import Diagnosis, reservation_message, reservation_reasons
from cotenant.domain.reservations.lifecycle import (
    State,
    allocates_once,
    collectable,
    expires_at,
    following,
    phase_figures,
    unschedulable,
)
from cotenant.domain.reservations.operating import is_available, reservation_of
from cotenant.domain.reservations.options import restricted_resources
from cotenant.domain.reservations.order import order_of
from cotenant.domain.reservations.owners import PodIdentity, owners_match
from cotenant.domain.reservations.reserve_pod import reserve_pod, template_requests
from cotenant.events.allocations import Allocation, ReservationUsed
from cotenant.events.node.runs import ContainerRun, RunPhase, RunStatus
from cotenant.events.reservations import ReservationCondition, ReservationOwner, ReservationPhase, available_conditions
from cotenant.model.cpu_lists import format_cpu_list
from cotenant.model.names import RESOURCE_PODS
from cotenant.model.quantities import format_amount, resource_amount
from cotenant_scheduler.cycle.reservations.events import share_of, state_of
from cotenant_scheduler.cycle.reservations.matched import lift
from cotenant_scheduler.plugins.host_ports import NodePorts
from cotenant_scheduler.plugins.reservation.fitting import (
    Ignored,
    ReservationCapacity,
    Victims,
    allocated_of,
    judged,
    may_be_nominated,
    refuses_reserve_pod,
    short_in_room,
    short_on_node,
)
from cotenant_scheduler.plugins.reservation.matching import Ask, ask_of, missed, takes_no_owners
from cotenant_scheduler.plugins.reservation.scoring import nominated, normalised, preferring, room_score
from cotenant_scheduler.state.disruption_budgets import DisruptionBudgets
from cotenant_scheduler.state.load.load_aware_args import LoadAwareArgs, thresholds_of
from cotenant_scheduler.state.load.load_estimate import AssignedPod
from cotenant_scheduler.state.nodes import NodeDescription, NodeTable
from cotenant_scheduler.state.reading.pod_reader import PodReader
from cotenant_scheduler.state.reading.priorities import PriorityValues
from cotenant_scheduler.state.reservations.records import ReserveRecord, reserve_key
from tests.conformance.mended import mended

Json = dict[str, Any]

_EXACT_EXPIRY = "23: a reservation expires when its time is over, with or without a node: nothing is looked at again by a timer"
_CHECKED = "32: ids that cannot be read reserve nothing, for CPU binding as for resources"


def reservation_match(given: Json) -> object:
    operations: dict[str, Callable[[Json], Json]] = {
        "ownerMatch": _owner_match,
        "available": lambda given: {"available": _available_now(given["kind"], given["object"])},
        "unschedulable": lambda given: {"unschedulable": takes_no_owners(_reservation(given["object"]))},
        "matchable": _matchable,
        "affinity": _affinity,
        "ignored": lambda given: {"ignored": ignores_reservations(_labels(given["pod"]))},
        "exactMatch": lambda given: {
            "matched": exactly_matches(
                given["spec"]["resourceNames"], _amounts(given["podRequests"]), _amounts(given["reservationAllocatable"])
            )
        },
        "tolerateUnschedulable": _tolerates,
        "match": _match,
        "postFilterReasons": _reasons,
        "podEvent": _pod_event,
    }
    return _run(operations, given)


def reservation_allocate(given: Json) -> object:
    if given["op"] == "reservedCPUs":
        return _reserved_cpus(given["annotations"])
    operations: dict[str, Callable[[Json], Json]] = {
        "filter": _filter,
        "restrictedResources": _restricted,
        "score": lambda given: {"score": room_score(_amounts(given["podRequests"]), _room(given["reservation"]))},
        "scoreNodes": _score_nodes,
        "nominate": _nominate,
        "nominateFilter": _nominate_filter,
        "fitsNode": _fits_node,
        "fitsReservation": lambda given: {
            "fits": not short_in_room(_amounts(given["podRequests"]), _room(given["reservation"]), ignored=_ignored(given))
        },
        "reservePodFilter": _reserve_pod_filter,
        "available": _available,
        "restore": _restore,
        "nodeReservation": _node_reservation,
        "trimAllocatable": _trim,
        "pdbSplit": _budgets,
    }
    return _run(operations, given)


def reservation_lifecycle(given: Json) -> object:
    if given["op"] == "sync":
        return _sync(given)
    operations: dict[str, Callable[[Json], Json]] = {
        "phase": _phase,
        "setUnschedulable": _set_unschedulable,
        "setAvailable": _set_available,
        "reservePod": _reserve_pod,
        "requests": lambda given: {"requests": _quantities(template_requests(_reservation(given["reservation"])))},
        "gc": _collected,
        "phaseGauge": lambda given: {
            "gauge": phase_figures(ReservationPhase(given["phase"]) if given["phase"] else None)
        },
    }
    return _run(operations, given)


def _run(operations: dict[str, Callable[[Json], Json]], given: Json) -> Json:
    return operations[given["op"]](given)


# -- reading what is given -------------------------------------------------------------------------------------------------


def _amounts(quantities: Json | None) -> dict[str, int]:
    return {name: resource_amount(name, quantity) for name, quantity in (quantities or {}).items()}


def _quantities(amounts: dict[str, int]) -> Json:
    return {name: format_amount(name, amount) for name, amount in amounts.items()}


def _labels(document: Json) -> dict[str, str]:
    return document.get("metadata", {}).get("labels") or {}


def _annotations(document: Json) -> dict[str, str]:
    return document.get("metadata", {}).get("annotations") or {}


def _reservation(document: Json) -> Reservation:
    return decode_reservation(msgspec.Raw(msgspec.json.encode(document)))


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text).astimezone(UTC) if text else None


def _now(given: Json) -> datetime:
    return _time(given["now"]) or datetime(2024, 1, 1, 12, tzinfo=UTC)


def _state(document: Json) -> State:
    status = document.get("status") or {}
    conditions = tuple(
        ReservationCondition(
            type=one["type"],
            status=one["status"],
            reason=one.get("reason", ""),
            message=one.get("message", ""),
            last_probe_time=_time(one.get("lastProbeTime")),
            last_transition_time=_time(one.get("lastTransitionTime")),
        )
        for one in status.get("conditions") or ()
    )
    return State(
        phase=ReservationPhase(status.get("phase") or "Pending"),
        node=status.get("nodeName", ""),
        allocatable=_amounts(status.get("allocatable")),
        allocated=_amounts(status.get("allocated")),
        owners=tuple(ReservationOwner(**owner) for owner in status.get("currentOwners") or ()),
        conditions=conditions,
    )


def _requests(pod: Json) -> dict[str, int]:
    facts = PodReader(LoadAwareArgs()).read(msgspec.json.encode(pod), PriorityValues())
    assert facts.shape is not None, facts.error
    return facts.shape.requests


def _room(record: Json) -> ReservationCapacity:
    return ReservationCapacity(
        name=record["name"],
        uid=record.get("uid", ""),
        policy=record.get("allocatePolicy", ""),
        names=tuple(record.get("resourceNames") or record["allocatable"]),
        allocatable=_amounts(record["allocatable"]),
        allocated=_amounts(record.get("allocated")),
        reserved=_amounts(record.get("reserved")),
        pods=record.get("assignedPods", 0),
        allocate_once=record.get("allocateOnce", False),
        order=order_of(record.get("labels") or {}),
    )


def _list(value: str | list[str]) -> frozenset[str]:
    return frozenset([value] if isinstance(value, str) else value)


def _ignored(given: Json) -> Ignored:
    return Ignored(_list(given.get("ignoredResources") or []), _list(given.get("ignoredResourceGroups") or []))


# -- matching --------------------------------------------------------------------------------------------------------------


def _identity(pod: Json) -> PodIdentity:
    metadata = pod.get("metadata", {})
    view = msgspec.convert(pod, Pod)
    return PodIdentity(
        metadata.get("namespace", ""),
        metadata.get("name", ""),
        metadata.get("uid", ""),
        _labels(pod),
        view.metadata.owner_references,
    )


def _owner_match(given: Json) -> Json:
    rules = msgspec.convert(given["reservation"].get("spec", {}).get("owners") or [], list[OwnerRule])
    return {"matched": owners_match(rules, _identity(given["pod"]))}


def _matchable(given: Json) -> Json:
    reservation = _reservation(given["object"])
    if given["kind"] == "Pod":
        reservation = reservation_of(reservation.metadata)
    available = _available_now(given["kind"], given["object"])
    return {"matchable": available and not (allocates_once(reservation.spec) and bool(given["assignedPods"]))}


def _available_now(of: str, document: Json) -> bool:
    """Of a Reservation, or of a pod that acts as one: then by the run that says what its status does."""
    if of != "Pod":
        return _state(document).available
    metadata, status = document["metadata"], document["status"]
    node = document["spec"].get("nodeName", "")
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or ())
    run = RunStatus(
        node=node,
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        phase=RunPhase(status["phase"].lower()),
        containers=(ContainerRun(name="main", ready=ready),),
    )
    return is_available(node, run)


def _affinity(given: Json) -> Json:
    wanted = given["reservationAffinity"]
    text = msgspec.json.encode(wanted).decode() if wanted is not None else ""
    miss = missed(Ask(affinity=text), {}, _reservation(given["reservation"]), {}, given["nodeLabels"])
    return {"matched": miss is None}


def _tolerates(given: Json) -> Json:
    affinity = affinity_of(_annotations(given["pod"]))
    return {"hasAffinity": affinity is not None, "tolerates": affinity is not None and affinity.tolerates_unschedulable}


def _match(given: Json) -> Json:
    pod = given["pod"]
    requests = _requests(pod)

    def matches(document: Json) -> bool:
        reservation, state = _reservation(document), _state(document)
        if not owners_match(reservation.spec.owners, _identity(pod)):
            return False
        ask = ask_of(_labels(pod), _annotations(pod), (1,))
        assert ask is not None
        return missed(ask, requests, reservation, state.allocatable, _labels(given["node"])) is None

    return {"anyMatched": any(map(matches, given["reservations"]))}


def _reasons(given: Json) -> Json:
    names = {
        "ownerMatched": "owner_matched",
        "nameMatched": "name_matched",
        "nameUnmatched": "name_unmatched",
        "isUnschedulableUnmatched": "unschedulable",
        "affinityUnmatched": "affinity_unmatched",
        "notExactMatched": "not_exact",
        "taintsUnmatched": "taints",
        "taintsUnmatchedReasons": "taint_counts",
        "ignored": "ignored",
    }
    found = {
        node: Diagnosis(**{names[name]: value for name, value in counts.items()})
        for node, counts in given["diagnosis"].items()
    }
    return {"reasons": reservation_reasons(found, given["nodeReasons"], required=given["hasAffinity"])}


def _pod_event(given: Json) -> Json:
    message = reservation_message(given["message"])
    return {"isReservationEvent": bool(message), "message": message or None}


# -- allocating ------------------------------------------------------------------------------------------------------------


def _filter(given: Json) -> Json:
    state, requests = given["nodeState"], _amounts(given["podRequests"])
    allocatable = _amounts(given["node"]["status"]["allocatable"])
    taken, of_rooms = _amounts(state["podRequested"]), _amounts(state["rAllocated"])
    free = {name: amount - taken.get(name, 0) + of_rooms.get(name, 0) for name, amount in allocatable.items()}
    rooms = [_room(record) for record in given["matched"]]
    inside = {uid: _amounts(amounts) for uid, amounts in (given.get("preemptibleInReservations") or {}).items()}
    verdict = judged(
        requests,
        free,
        allocatable[RESOURCE_PODS] - state["podsOnNode"] + len(rooms),
        rooms,
        required=given["requireReservation"],
        name=given.get("reservationName") or "",
        victims=Victims(_amounts(given.get("preemptible")), inside),
        skip_node=given.get("skipReservationFitsNode", False),
    )
    return {"code": "Success" if verdict.fits else "Unschedulable", "reasons": list(verdict.reasons)}


def _restricted(given: Json) -> Json:
    options = (given["options"] or {}).get("resources", ())
    return {"resources": list(restricted_resources(given["allocatableResources"], options))}


def _score_nodes(given: Json) -> Json:
    requests = _amounts(given["podRequests"])
    names = [node["name"] for node in given["nodes"]]
    rooms = [nominated(requests, [_room(record) for record in node["reservations"]]) for node in given["nodes"]]
    ordered = [(room.order, index) for index, room in enumerate(rooms) if room is not None and room.order]
    first = min(ordered)[1] if ordered else -1
    of_rooms = np.array([room_score(requests, room) if room is not None else 0 for room in rooms], dtype=np.int64)
    scores = preferring(of_rooms, first)
    return {
        "scores": dict(zip(names, scores.tolist(), strict=True)),
        "normalized": dict(zip(names, normalised(scores).tolist(), strict=True)),
        "preferredNode": names[first] if ordered else None,
    }


def _nominate(given: Json) -> Json:
    room = nominated(_amounts(given["podRequests"]), [_room(record) for record in given["candidates"]])
    return {"nominated": room.name if room is not None else None}


def _nominate_filter(given: Json) -> Json:
    why = may_be_nominated(
        _amounts(given["podRequests"]), _room(given["reservation"]), required=given["requireReservation"]
    )
    return {"code": "Unschedulable" if why else "Success", "reasons": [why] if why else []}


def _fits_node(given: Json) -> Json:
    allocatable, taken = _amounts(given["nodeAllocatable"]), _amounts(given["podRequested"])
    free = {name: amount - taken.get(name, 0) for name, amount in allocatable.items()}
    pods_free = allocatable[RESOURCE_PODS] - given["podsOnNode"] + given["matchedReservations"]
    return {"insufficient": short_on_node(_amounts(given["podRequests"]), free, pods_free, ignored=_ignored(given))}


def _reserve_pod_filter(given: Json) -> Json:
    wanted = given["specifiedNodeName"] or ""
    why = refuses_reserve_pod(given["nodeName"], wanted, given["allocatePolicy"], given["policiesOnNode"])
    return {"code": "UnschedulableAndUnresolvable" if why else "Success", "reasons": [why] if why else []}


def _available(given: Json) -> Json:
    room = _room(given["reservation"])
    allocated = allocated_of((_amounts(requests) for requests in given["assignedPodRequests"]), room.names)
    used = msgspec.structs.replace(room, allocated=allocated)
    return {
        "allocated": _quantities(allocated),
        "available": {name: format_amount(name, used.available(name)) for name in room.allocatable},
    }


def _restore(given: Json) -> Json:
    """Reserve pods, owners and other pods on a row of the table that the scheduler keeps."""
    ports, reader = NodePorts(), PodReader(LoadAwareArgs())
    nodes = NodeTable(LoadAwareArgs().defaulted(), (ports,))
    plenty = {"cpu": 1_000_000, "memory": 1 << 50, RESOURCE_PODS: 1000}
    nodes.declare(
        NodeDescription(
            name="n",
            allocatable=plenty,
            capacity_for_load=plenty,
            labels={},
            taints=(),
            unschedulable=False,
            thresholds=thresholds_of(LoadAwareArgs().defaulted(), {}),
        )
    )
    rest, free_ports = _amounts(given["nodeRequested"]), set(given["nodePorts"])

    def place(key: tuple[str, str], amounts: dict[str, int], taken: list[int], allocation: Allocation | None) -> None:
        container: Json = {"name": "c", "resources": {"requests": _quantities(amounts)}}
        container["ports"] = [{"containerPort": port, "hostPort": port} for port in taken]
        facts = reader.read(msgspec.json.encode({"spec": {"containers": [container]}}), PriorityValues())
        assert facts.shape is not None, facts.error
        nodes.place("n", key, facts.shape, AssignedPod(facts.shape.estimate, False, 0), allocation)
        for name, amount in amounts.items():
            rest[name] -= amount
        free_ports.difference_update(taken)

    for record in (*given["unmatched"], *given["matched"]):
        used = Allocation(reservation=ReservationUsed(name=record["name"], uid=record["name"]))
        place(reserve_key(record["name"]), _amounts(record["allocatable"]), record.get("ports") or [], used)
        if record["allocated"]:
            place(("default", record["name"]), _amounts(record["allocated"]), [], used)
    place(("default", "others"), dict(rest), sorted(free_ports), None)
    row = nodes.rows["n"]

    def requested() -> Json:
        return {name: format_amount(name, int(nodes.requested[nodes.dims[name], row])) for name in given["nodeRequested"]}

    before = requested()
    uses = [nodes.held.on(row)[record["name"]] for record in given["matched"]]
    lift(nodes, row, uses, -1)
    return {
        "podRequested": before,
        "rAllocated": {},
        "nodeRequestedAfterRestore": requested(),
        "nodePortsAfterRestore": [port for port in given["nodePorts"] if _taken(ports, nodes, reader, port, row)],
    }


def _taken(ports: NodePorts, nodes: NodeTable, reader: PodReader, port: int, row: int) -> bool:
    container = {"name": "c", "ports": [{"containerPort": port, "hostPort": port}]}
    facts = reader.read(msgspec.json.encode({"spec": {"containers": [container]}}), PriorityValues())
    assert facts.shape is not None
    return bool(ports.filter(nodes, facts.shape, slice(row, row + 1)).item(0))


def _node_reservation(given: Json) -> Json:
    found = parse_reservation(given["annotations"])
    return {"reserved": _quantities(found.resources) if found.resources else None}


def _trim(given: Json) -> Json:
    node = given["node"]
    amounts, trimmed = trim_allocatable(_amounts(node["status"]["allocatable"]), parse_reservation(_annotations(node)))
    return {"allocatable": _quantities(amounts), "trimmed": trimmed}


def _reserved_cpus(annotations: dict[str, str]) -> object:
    found = parse_reservation(annotations)
    if found.reserved_cpus:
        return {"cpus": format_cpu_list(found.reserved_cpus), "count": 0}
    result = {"cpus": "", "count": -(-found.resources.get("cpu", 0) // 1000)}
    return mended(result, "$.cpus", trap=_CHECKED) if found.error else result


def _budgets(given: Json) -> Json:
    budgets = DisruptionBudgets()
    for document in given["pdbs"]:
        metadata = document["metadata"]
        budgets.set(metadata["namespace"], metadata["name"], msgspec.Raw(msgspec.json.encode(document)))
    pods = [(pod["metadata"]["namespace"], pod["metadata"]["name"], _labels(pod)) for pod in given["pods"]]
    violating = sum(budgets.violating(pods))
    return {"violating": violating, "nonViolating": len(pods) - violating}


# -- lifecycle -------------------------------------------------------------------------------------------------------------


def _phase(given: Json) -> Json:
    state = _state(given["reservation"])
    return {name: getattr(state, name) for name in ("active", "available", "succeeded", "failed", "expired")}


def _shown(state: State) -> list[Json]:
    return [
        {"type": one.type, "status": one.status, "reason": one.reason, "message": one.message} for one in state.conditions
    ]


def _set_unschedulable(given: Json) -> Json:
    state = _state(given["reservation"])
    now = datetime(2024, 1, 1, 13, tzinfo=UTC)
    conditions = unschedulable(state.conditions, given["message"], now)
    return {"phase": state.phase.value, "conditions": _shown(msgspec.structs.replace(state, conditions=conditions))}


def _set_available(given: Json) -> Json:
    record = ReserveRecord(given["reservation"]["metadata"]["name"])
    record.source = msgspec.Raw(msgspec.json.encode(given["reservation"]))
    record.reservation = decode_reservation(record.source)
    state = state_of(share_of(record, given["nodeName"], datetime(2024, 1, 1, 12, tzinfo=UTC)))
    return {
        "phase": state.phase.value,
        "nodeName": state.node,
        "allocatable": _quantities(dict(state.allocatable)),
        "conditions": _shown(state),
    }


def _reserve_pod(given: Json) -> Json:
    state = _state(given["reservation"])
    raw = msgspec.Raw(msgspec.json.encode(given["reservation"]))
    held = dict(state.allocatable) if state.available else None
    pod = reserve_pod(raw, decode_reservation(raw), state.node, held)
    return {"pod": msgspec.json.decode(msgspec.json.encode(pod))}


def _sync(given: Json) -> object:
    document, now = given["reservation"], _now(given)
    state, reservation = _state(document), _reservation(document)
    state = msgspec.structs.replace(state, conditions=state.conditions or available_conditions(None))
    uid = document["metadata"]["uid"]
    owners, requests = [], []
    for pod in given["pods"]:
        named = msgspec.json.decode(_annotations(pod).get("scheduling.koordinator.sh/reservation-allocated", "{}"))
        if named.get("uid") == uid and pod["spec"].get("nodeName") == state.node:
            metadata = pod["metadata"]
            owners.append(ReservationOwner(namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"]))
            requests.append(_requests(pod))
    found = following(
        state,
        now,
        expires=expires_at(reservation.spec, _time(document["metadata"].get("creationTimestamp"))),
        once=allocates_once(reservation.spec),
        node_exists=state.node in given["nodes"],
        owners=sorted(owners, key=lambda owner: owner.uid),
        allocated=allocated_of(requests, tuple(state.allocatable)),
    )
    ready = next(condition for condition in found.conditions if condition.type == "Ready")
    result = {
        "phase": found.phase.value,
        "ready": {"status": ready.status, "reason": ready.reason},
        "allocated": _quantities(dict(found.allocated)),
        "currentOwners": [{"namespace": o.namespace, "name": o.name, "uid": o.uid} for o in found.owners],
    }
    return mended(result, "$.requeueAfter", trap=_EXACT_EXPIRY) if not found.failed else result


def _collected(given: Json) -> Json:
    now, kept = _now(given), timedelta(hours=24)
    assert given["gcDuration"] == "24h0m0s"
    gone = [
        document["metadata"]["name"]
        for document in given["reservations"]
        if collectable(
            _state(document),
            now,
            node_exists=(document.get("status") or {}).get("nodeName", "") in given["nodes"],
            kept=kept,
        )
    ]
    return {"deleted": sorted(gone)}
