"""Reservations for the replacements of migrating pods, as descheduler-arbiter requests them.

In: the read model and a ReservationRequest. Out: the object to create, or the one to delete; or why it cannot be created,
as the EvictionOutcome of the pod: the eviction is refused, since there is no room for the replacement.

Source: koord-descheduler migration controller; the document is `cotenant.domain.reservations.of_migrations`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant.api.snapshots import Snapshot
from cotenant.domain.reservations.of_migrations import job_of, reservation_of_pod
from cotenant.events.migrations import EvictionOutcome, ReservationRequest
from cotenant.events.placements import Placement
from cotenant.events.reservations import ReservationShare
from cotenant.kinds.koordinator.pod_migration_jobs import MIGRATION_JOBS
from cotenant.kinds.koordinator.reservations import RESERVATIONS
from cotenant.kinds.pods import PODS, live_placement
from cotenant.log.plans import Plan, outcome_write
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.statuses import ApiError, bad_request

REFUSED = "ReservationRefused"
_NAME_TAKEN = "a Reservation of this name exists already, and was not made for this job"


class _Options(msgspec.Struct, frozen=True):
    template: dict[str, Any] | None = None


class _JobSpec(msgspec.Struct, frozen=True, rename="camel"):
    reservation_options: _Options | None = None


class _Job(msgspec.Struct, frozen=True):
    spec: _JobSpec = _JobSpec()


def node_of(pod: Snapshot) -> str:
    """Return the node that a pod is placed on, or ""."""
    placed = live_placement(pod)
    return placed.data.node if placed is not None and isinstance(placed.data, Placement) else ""


def made_for_job(core: GatewayCore, wanted: ReservationRequest) -> Snapshot | None:
    """Return the Reservation that was made for the job; None if there is none. Raises ApiError where another has its name."""
    found = core.get(RESERVATIONS, "", wanted.name)
    if found is None or found.stored is None:
        return None
    if job_of(found.stored.meta.annotations) != wanted.job:
        raise ApiError(409, "AlreadyExists", f'reservations "{wanted.name}" cannot be made: {_NAME_TAKEN}')
    return found


def place_document(core: GatewayCore, wanted: ReservationRequest) -> bytes:
    """Return the Reservation to create. Raises ApiError if the pod does not exist, or its job cannot be read."""
    pod = core.get(PODS, wanted.namespace, wanted.pod)
    if pod is None or pod.stored is None or pod.uid != wanted.uid:
        raise ApiError(404, "NotFound", f'pods "{wanted.pod}" of uid {wanted.uid} not found')
    try:
        document = reservation_of_pod(pod.stored.raw, node_of(pod), wanted, _template(core, wanted.job))
    except msgspec.DecodeError as error:
        raise bad_request(f"the template of job {wanted.job} cannot be read: {error}") from error
    if document["metadata"]["name"] != wanted.name:
        raise bad_request(f"the job names the Reservation {document['metadata']['name']}, but {wanted.name} was requested")
    return msgspec.json.encode(document)


def _template(core: GatewayCore, job: str) -> dict[str, Any] | None:
    known = core.get(MIGRATION_JOBS, "", job)
    if known is None or known.stored is None:
        return None
    options = msgspec.json.decode(known.stored.raw, type=_Job).spec.reservation_options
    return options.template if options is not None else None


def refused_place(core: GatewayCore, wanted: ReservationRequest, error: ApiError) -> Plan:
    """Return the answer with the reason why there is no place."""
    job = core.get(MIGRATION_JOBS, "", wanted.job)
    outcome = EvictionOutcome(
        namespace=wanted.namespace,
        name=wanted.pod,
        uid=wanted.uid,
        allowed=False,
        job=wanted.job,
        reason=REFUSED,
        message=str(error),
    )
    return Plan((outcome_write(outcome, (f"LOG:{job.version}",) if job is not None else ()),))


def share_elsewhere(core: GatewayCore, name: str, node: str) -> int:
    """Return the sequence at which the Reservation holds a place on another node than this one; 0 if it holds none."""
    found = core.get(RESERVATIONS, "", name)
    for event in found.parts.values() if found is not None else ():
        if isinstance(event.data, ReservationShare) and not event.tombstone and event.data.node != node:
            return event.sequence
    return 0
