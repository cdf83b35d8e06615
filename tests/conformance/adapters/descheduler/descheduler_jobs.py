"""Descheduler vectors of a migration job's way, in evict-directly mode; an eviction is ordered and answered by events here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from cotenant.api.objects.pod import Pod
from cotenant.events.migrations import JobCondition, Migration
from cotenant_descheduler_arbiter.migration.reconcile import EVICTION_REFUSED, Answer, JobView, reconcile
from cotenant_descheduler_arbiter.state.facts import PodFacts
from tests.conformance.mended import mended

Json = dict[str, Any]

START = datetime(2024, 1, 1, 12, 0, tzinfo=UTC)
ANNOTATION_PASSED = "descheduler.koordinator.sh/passed-arbitration"


def migration_job(given: Json, *, name: str) -> object:
    if given["args"]["defaultJobMode"] != "EvictDirectly":
        raise NotImplementedError("there are no reservations yet")
    job, status = _job(given["job"]), given["job"].get("status") or {}
    job = msgspec.structs.replace(job, phase=status.get("phase", "Pending"), status=status.get("status", ""))
    pods = {(pod["metadata"]["namespace"], pod["metadata"]["name"]): pod for pod in given["pods"]}
    now, asked, seen, waited = START, 0, [], False
    for step in given["steps"]:
        match step["do"]:
            case "advance":
                now += timedelta(seconds=step["seconds"])
            case "deletePod":
                pods.pop((job.namespace, job.pod), None)
            case "reconcile":
                asked += 1
                document = pods.get((job.namespace, job.pod))
                pod = None if document is None else PodFacts(pod=msgspec.convert(document, Pod))
                job = _settled(job, pod, Answer(f"LOG:{asked}", "evict" not in step, step.get("evict", "")), now)
                waited = waited or job.reason == "Evicting"
                seen.append(_shown(job))
            case other:
                raise NotImplementedError(other)
    result = {"afterEachReconcile": seen}
    # Only a later reconcile could differ: it polls, where here the pod's end is an event.
    if not waited or asked <= 1:
        return result
    return mended(result, "$.afterEachReconcile[[]*].requeueAfterSeconds", trap="nothing is polled: the pod's end is an event")


def _job(document: Json) -> Migration:
    reference, spec = document["spec"]["podRef"], document["spec"]
    conditions = (document.get("status") or {}).get("conditions") or []
    return Migration(
        job=document["metadata"]["name"],
        namespace=reference["namespace"],
        pod=reference["name"],
        uid=reference.get("uid", ""),
        mode=spec.get("mode") or "EvictDirectly",
        ttl_seconds=spec.get("ttlSeconds", 0),
        created_at=START,
        passed_arbitration=(document["metadata"].get("annotations") or {}).get(ANNOTATION_PASSED) == "true",
        conditions=tuple(JobCondition(type=each["type"], status=each["status"]) for each in conditions),
    )


def _settled(job: Migration, pod: PodFacts | None, answer: Answer, now: datetime) -> Migration:
    """One reconciliation there is an order, its answer and what follows here."""
    while True:
        known = answer if job.evict_ordered and pod is not None else None
        after = reconcile(job, JobView(pod=pod, answer=known), now)
        if after == job:
            return job
        job = after


def _shown(job: Migration) -> Json:
    return {
        "phase": job.phase,
        "status": job.status,
        "reason": job.reason,
        "message": job.message,
        "error": job.reason == EVICTION_REFUSED,
        "absentConditions": [kind for kind in ("Eviction",) if all(each.type != kind for each in job.conditions)],
        "conditions": [msgspec.to_builtins(each) for each in job.conditions],
    }
