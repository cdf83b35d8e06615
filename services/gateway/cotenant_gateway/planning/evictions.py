"""Evictions: end a pod if its budgets allow it.

In: the read model and an EvictionRequest. Out: one plan that holds the budgets' statuses, the pod's deletion and the
outcome, so that two gateways cannot overshoot a budget; or, refused, the outcome alone, which is an event too.

A request that names a reservation is refused unless that is Available on another node; the outcome names the share of that
node as a cause. With the policy Delete budgets are not checked. With SoftEviction the plan holds the outcome and the pod with
the annotation `scheduling.koordinator.sh/soft-eviction`, whose reader ends the pod.

Source of the policies and of the annotation: koord-descheduler's evictors.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from cotenant.api.edits import with_annotation
from cotenant.api.snapshots import Snapshot
from cotenant.api.times import rfc3339
from cotenant.events.migrations import (
    DELETE_POLICY,
    EVICT_POLICIES,
    SOFT_EVICTION_POLICY,
    EvictionOutcome,
    EvictionRequest,
)
from cotenant.events.objects import ObjectStored
from cotenant.kinds.koordinator.pod_migration_jobs import MIGRATION_JOBS
from cotenant.kinds.pods import PODS
from cotenant.log.contract import replaces
from cotenant.log.plans import Plan, PlannedWrite, object_write, outcome_write
from cotenant.model.names import ANNOTATION_EVICTED_BY, ANNOTATION_SOFT_EVICTION
from cotenant_gateway.planning.budgets import EvictionVerdict, charged_status, judge
from cotenant_gateway.planning.endings import deletion
from cotenant_gateway.planning.migration_places import node_of, share_elsewhere
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.statuses import bad_request


class EvictionPlanned(msgspec.Struct, frozen=True):
    """What the eviction stores (None: the pod is ending already), and the answer."""

    plan: Plan | None
    outcome: EvictionOutcome


def plan_eviction(core: GatewayCore, request: EvictionRequest, now: datetime) -> EvictionPlanned:
    """Return the plan and the answer of an eviction request. Raises ApiError if it names no pod."""
    if not request.namespace or not request.name:
        raise bad_request("an eviction needs the namespace and the name of a pod")
    if request.policy not in EVICT_POLICIES:
        raise bad_request(f"an eviction's policy {request.policy!r} is none of {', '.join(EVICT_POLICIES)}")
    pod = core.get(PODS, request.namespace, request.name)
    if pod is None or pod.stored is None or (request.uid and pod.uid != request.uid):
        gone = _outcome(request, request.uid, True, "Gone", f"pod {request.namespace}/{request.name} has already ended")
        causes = _causes(core, request, core.own_sequence(PODS, request.namespace, request.name))
        return EvictionPlanned(Plan((outcome_write(gone, causes),)) if request.job else None, gone)
    causes = _causes(core, request, pod.version)
    if pod.meta.deletion_timestamp is not None:
        ending = _outcome(request, pod.uid, True, "Terminating", f"pod {request.namespace}/{request.name} is ending already")
        return EvictionPlanned(Plan((outcome_write(ending, causes),)) if request.job else None, ending)
    if request.reservation:
        held = share_elsewhere(core, request.reservation, node_of(pod))
        if not held:
            lost = f"Reservation {request.reservation} is not Available on another node"
            refused = _outcome(request, pod.uid, False, "ReservationMissing", lost)
            return EvictionPlanned(Plan((outcome_write(refused, causes),)), refused)
        causes = (*causes, f"LOG:{held}")
    if request.policy == SOFT_EVICTION_POLICY:
        return _asked_to_go(pod, request, causes, now)
    unasked = request.ignore_budgets or request.policy == DELETE_POLICY
    verdict = EvictionVerdict(True) if unasked else judge(core, pod, now)
    if not verdict.allowed:
        refused = _outcome(request, pod.uid, False, "DisruptionBudget", verdict.message, verdict.budget)
        return EvictionPlanned(Plan((outcome_write(refused, causes),)), refused)
    ended = deletion(pod, now, request.grace_period_seconds)
    allowed = _outcome(request, pod.uid, True, "Evicted", request.reason or "eviction allowed")
    writes: list[PlannedWrite] = [_marked(write, request, causes) for write in (ended.writes if ended is not None else ())]
    for budget, figures in verdict.budgets:
        assert budget.stored is not None
        payload = charged_status(budget, figures, request.name, now)
        writes.append(object_write(budget.address, payload, budget.stored.sequence, causes=causes))
    return EvictionPlanned(Plan((*writes, outcome_write(allowed, causes))), allowed)


class _SoftEviction(msgspec.Struct, omit_defaults=True, rename="camel"):
    """Value of the annotation."""

    timestamp: str
    delete_options: dict[str, int] = {}
    initiator: str = ""
    reason: str = ""


def _asked_to_go(pod: Snapshot, request: EvictionRequest, causes: tuple[str, ...], now: datetime) -> EvictionPlanned:
    """Return the plan of a soft eviction: the pod's annotation."""
    assert pod.stored is not None
    grace = request.grace_period_seconds
    recorded = _SoftEviction(
        timestamp=rfc3339(now),
        delete_options={} if grace is None else {"gracePeriodSeconds": grace},
        initiator=request.trigger,
        reason=request.reason,
    )
    text = msgspec.json.encode(recorded).decode()
    marked = ObjectStored(object=with_annotation(pod.stored.raw, ANNOTATION_SOFT_EVICTION, text))
    write = object_write(pod.address, marked, pod.stored.sequence, causes=causes, replaces=replaces(pod.stored.time, now))
    asked = _outcome(request, pod.uid, True, "SoftEvicted", f"pod {request.namespace}/{request.name} is asked to end")
    asked = msgspec.structs.replace(asked, soft=True)
    return EvictionPlanned(Plan((write, outcome_write(asked, causes))), asked)


def _causes(core: GatewayCore, request: EvictionRequest, pod_version: int) -> tuple[str, ...]:
    """The migration job that requests it, and the pod as it was, or its end (0: not known)."""
    job = core.get(MIGRATION_JOBS, "", request.job) if request.job else None
    return tuple(f"LOG:{version}" for version in (job.version if job is not None else 0, pod_version) if version)


def _marked(write: PlannedWrite, request: EvictionRequest, causes: tuple[str, ...]) -> PlannedWrite:
    """The pod with a record of its evictor, for as long as it exists."""
    write = msgspec.structs.replace(write, causes=tuple(dict.fromkeys((*causes, *write.causes))))
    by = request.trigger or request.job
    if not by or not isinstance(write.payload, ObjectStored):
        return write
    marked = msgspec.structs.replace(write.payload, object=with_annotation(write.payload.object, ANNOTATION_EVICTED_BY, by))
    return msgspec.structs.replace(write, payload=marked)


def _outcome(request: EvictionRequest, uid: str, allowed: bool, reason: str, message: str, budget: str = "") -> EvictionOutcome:
    return EvictionOutcome(
        namespace=request.namespace,
        name=request.name,
        uid=uid,
        allowed=allowed,
        job=request.job,
        reason=reason,
        message=message,
        budget=budget,
    )
