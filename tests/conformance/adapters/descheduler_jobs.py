"""Descheduler vectors of a migration job's way, in evict-directly mode; an eviction is ordered and answered by events here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from cotenant.api.objects.metadata import ObjectMeta
from cotenant.api.objects.pod import Pod
from cotenant.api.snapshots import Address, Snapshot
from cotenant.events.envelope import Event
from cotenant.events.migrations import JobCondition, Migration
from cotenant.kinds.pod_migration_jobs import MIGRATION_JOBS, compose_migration
from cotenant.model.durations import parse_duration
from cotenant.model.subjects import migration_subject
from cotenant_descheduler_arbiter.config.delete_options import grace_period
from cotenant_descheduler_arbiter.config.policy import CycleLimits, JobDefaults
from cotenant_descheduler_arbiter.eviction.cycle_limits import CycleCounts
from cotenant_descheduler_arbiter.migration.new_jobs import JobContext, new_job
from cotenant_descheduler_arbiter.migration.reconcile import EVICTION_REFUSED, Answer, JobView, reconcile
from cotenant_descheduler_arbiter.plugins.cycle_evictor import CycleEvictor
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


def pmj_create(given: Json, *, name: str) -> object:
    args, context, pod = given["args"], given["context"], PodFacts(pod=msgspec.convert(given["pod"], Pod))
    options = msgspec.Raw(msgspec.json.encode(args.get("defaultDeleteOptions")))
    defaults = JobDefaults(
        mode=args["defaultJobMode"],
        ttl=timedelta(seconds=args["defaultJobTTLSeconds"]),
        grace_period_seconds=grace_period(options),
    )
    said = JobContext(
        labels=context.get("labels", {}),
        annotations=context.get("annotations", {}),
        mode=context.get("mode", ""),
        ttl=timedelta(seconds=context["timeoutSeconds"]) if "timeoutSeconds" in context else None,
    )
    wanted = given["options"]
    job = new_job(given["generatedName"], pod, wanted["pluginName"], wanted["reason"], defaults, said, START)
    address = Address(MIGRATION_JOBS, "", job.job)
    event = Event(subject=migration_subject(job.job), data=job, sequence=1)
    snapshot = Snapshot(address, None, {event.subject: event}, event.sequence, compose_migration)
    shown = msgspec.json.decode(snapshot.document)
    shown["spec"]["ttlSeconds"] = int(parse_duration(shown["spec"]["ttl"]).total_seconds())
    return mended(
        {"job": shown},
        "$.job.metadata.annotations.koordinator.sh/job-created-by",
        trap="a restarted process goes on with all jobs, so none is marked with the process that made it",
    )


def pmj_evict(given: Json, *, name: str) -> object:
    evictor = CycleEvictor(
        lambda _: None if given["filterPasses"] else "filtered",
        CycleCounts(CycleLimits()),
        (),
        node_fit=False,
        dry_run=given["args"].get("dryRun", False),
    )
    pod = PodFacts(pod=Pod(metadata=ObjectMeta(name="test-pod", namespace="default")))
    return {"result": evictor.evict(pod, "test"), "jobsCreated": len(evictor.jobs)}


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
