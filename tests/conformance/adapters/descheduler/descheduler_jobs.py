"""Descheduler vectors of a migration job's way: what is asked of the gateway is answered by events here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from cotenant.api.objects.metadata import ObjectMeta
from cotenant.api.objects.pod import Pod
from cotenant.api.snapshots import Address, Snapshot
from cotenant.domain.reservations.of_migrations import reservation_of_pod
from cotenant.events.envelope import Event
from cotenant.events.migrations import JobCondition, Migration, ReservationRequest
from cotenant.events.reservations import ReservationOwner
from cotenant.kinds.koordinator.pod_migration_jobs import MIGRATION_JOBS, compose_migration
from cotenant.model.durations import parse_duration
from cotenant.model.subjects import migration_subject
from cotenant_descheduler_arbiter.config.delete_options import grace_period
from cotenant_descheduler_arbiter.config.policy import EVICT_DIRECTLY, CycleLimits, JobDefaults
from cotenant_descheduler_arbiter.eviction.cycle_limits import CycleCounts
from cotenant_descheduler_arbiter.migration.conditions import condition_of
from cotenant_descheduler_arbiter.migration.jobs.view import Answer, JobView
from cotenant_descheduler_arbiter.migration.new_jobs import JobContext, new_job
from cotenant_descheduler_arbiter.migration.reconcile import EVICTING, EVICTION, EVICTION_REFUSED, reconcile
from cotenant_descheduler_arbiter.migration.reservation_first import FORBIDDEN
from cotenant_descheduler_arbiter.plugins.cycle_evictor import CycleEvictor
from cotenant_descheduler_arbiter.state.facts import PodFacts
from cotenant_descheduler_arbiter.state.reservations import ReservationFacts
from tests.conformance.mended import mended

Json = dict[str, Any]

START = datetime(2024, 1, 1, 12, 0, tzinfo=UTC)
ANNOTATION_PASSED = "descheduler.koordinator.sh/passed-arbitration"


def migration_job(given: Json, *, name: str) -> object:
    world = _World(given)
    for step in given["steps"]:
        match step["do"]:
            case "advance":
                world.now += timedelta(seconds=step["seconds"])
            case "deletePod":
                world.pods.pop((world.job.namespace, world.job.pod), None)
            case "createPod":
                document = step["pod"]
                world.pods[document["metadata"]["namespace"], document["metadata"]["name"]] = document
            case "setReservation":
                world.set_reservation(step["reservation"])
            case "setJob":
                world.set_job(step["patch"])
            case "reconcile":
                world.reconcile(step)
            case "reconcileUntilDone":
                world.reconcile_until_done(step)
            case other:
                raise NotImplementedError(other)
    result = {"afterEachReconcile": world.seen}
    # Only a later reconcile could differ: it polls, where here the pod's end is an event.
    if not world.waited or world.asked <= 1 or given["args"]["defaultJobMode"] != EVICT_DIRECTLY:
        return result
    return mended(result, "$.afterEachReconcile[[]*].requeueAfterSeconds", trap="nothing is polled: the pod's end is an event")


class _World:
    """A job with its pods and its reservation. A reservation is made when the job asks for it; those who take it show once the
    job's pod is gone, as nobody else can take the place before."""

    def __init__(self, given: Json) -> None:
        status = given["job"].get("status") or {}
        self.job = msgspec.structs.replace(
            _job(given["job"], given["args"]["defaultJobMode"]),
            phase=status.get("phase", "Pending"),
            status=status.get("status", ""),
        )
        self.first = self.job
        self.shown_phase = status.get("phase", "")
        self.pods = {(pod["metadata"]["namespace"], pod["metadata"]["name"]): pod for pod in given["pods"]}
        self.reservation: Json | None = given["reservation"]
        self.made = self.job.reservation_given
        self.now, self.asked, self.waited = START, 0, False
        self.seen: list[Json] = []

    def set_job(self, patch: Json) -> None:
        self.job = msgspec.structs.replace(self.job, paused=patch.get("spec", {}).get("paused", self.job.paused))
        self.first = msgspec.structs.replace(self.first, paused=self.job.paused)

    def set_reservation(self, document: Json | None) -> None:
        self.reservation = document

    def reconcile(self, step: Json) -> None:
        self._settle(step)
        self.seen.append(self._shown())

    def reconcile_until_done(self, step: Json) -> None:
        for _ in range(20):
            self._settle(step)
            if self.job.finished:
                break
            if step.get("whenEvicting") and self.job.reason == EVICTING:
                self._end_pod(again=step["whenEvicting"] == "recreatePodSameName")
        self.seen.append(self._shown())

    def _end_pod(self, *, again: bool) -> None:
        document = self.pods.pop((self.job.namespace, self.job.pod), None)
        if again and document is not None:
            metadata = {**document["metadata"], "uid": "recreated"}
            self.pods[self.job.namespace, self.job.pod] = {**document, "metadata": metadata}

    def _settle(self, step: Json) -> None:
        """One reconciliation there is what follows here until nothing does; what is asked for is answered at once."""
        self.asked += 1
        answer = Answer(f"LOG:{self.asked}", "evict" not in step, step.get("evict", ""))
        refusal = Answer(f"LOG:{self.asked}", False, step.get("createReservation", ""))
        while True:
            before = self.job
            if before.phase != "Running" and not before.passed_arbitration:
                # The vector's reconciler does not look at arbitration (trap 15).
                before = msgspec.structs.replace(before, passed_arbitration=True)
            pod = self._pod(before.namespace, before.pod)
            refused = before.reservation and not before.reservation_uid and step.get("createReservation", "ok") != "ok"
            if before.reservation and not refused:
                self.made = True
            known = answer if before.evict_ordered and pod is not None else refusal if refused else None
            found = self._found(before)
            bound = self._pod(found.owners[0].namespace, found.owners[0].name) if found and found.owners else None
            after = reconcile(before, JobView(pod, known, None, found, bound), self.now)
            if after == before:
                break
            self.job = after
        self.waited = self.waited or self.job.reason == EVICTING

    def _pod(self, namespace: str, name: str) -> PodFacts | None:
        document = self.pods.get((namespace, name))
        if document is None:
            return None
        pod = msgspec.convert(document, Pod)
        conditions = (document.get("status") or {}).get("conditions") or ()
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        return PodFacts(pod=pod, node=pod.spec.node_name, ready=ready)

    def _found(self, job: Migration) -> ReservationFacts | None:
        document = self.reservation
        if document is None or not self.made or not job.reservation:
            return None
        status = document.get("status") or {}
        conditions = {each["type"]: each for each in status.get("conditions") or ()}
        scheduled = conditions.get("Scheduled", {})
        gone = condition_of(job, EVICTION)
        owners = status.get("currentOwners") or () if gone is not None and gone.status == "True" else ()
        return ReservationFacts(
            name=job.reservation,
            uid=document["metadata"]["uid"],
            phase=status.get("phase") or "Pending",
            node=status.get("nodeName", "") if scheduled.get("reason") == "Scheduled" else "",
            expired=conditions.get("Ready", {}).get("reason") == "Expired",
            reason=scheduled.get("reason", ""),
            message=scheduled.get("message", ""),
            owners=tuple(ReservationOwner(namespace=each["namespace"], name=each["name"]) for each in owners),
            of_pod=any("object" in rule for rule in document["spec"].get("owners") or ()),
        )

    def _shown(self) -> Json:
        shown = _shown(self.job)
        if self.job == self.first:
            shown["phase"] = self.shown_phase
        return shown


def pmj_reservation_template(given: Json, *, name: str) -> object:
    pod, job = given["pod"], given["job"]
    wanted = ReservationRequest(
        job="job",
        name=job["metadata"]["uid"],
        namespace=pod["metadata"].get("namespace", ""),
        pod=pod["metadata"].get("name", ""),
        uid=pod["metadata"].get("uid", ""),
        without_claims=given["featureGates"]["DisablePVCReservation"],
    )
    options = job["spec"].get("reservationOptions") or {}
    document = msgspec.Raw(msgspec.json.encode(pod))
    made = reservation_of_pod(document, pod["spec"].get("nodeName", ""), wanted, options.get("template"))
    spec = made["spec"]
    required = spec["template"]["spec"].get("affinity", {}).get("nodeAffinity", {})
    labels = made["metadata"]["labels"]
    return {
        "allocateOnce": spec["allocateOnce"],
        "nodeName": spec["template"]["spec"].get("nodeName", ""),
        "labels": labels,
        "hasLabel": next((label for label in labels if label.endswith("/reservation-order")), ""),
        "owners": spec["owners"],
        "requiredNodeAffinityTerms": required.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get(
            "nodeSelectorTerms", []
        ),
        "volumeCount": len(spec["template"]["spec"].get("volumes") or ()),
    }


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


def _job(document: Json, default_mode: str) -> Migration:
    reference, spec = document["spec"]["podRef"], document["spec"]
    conditions = (document.get("status") or {}).get("conditions") or []
    named = ((spec.get("reservationOptions") or {}).get("reservationRef") or {}).get("name", "")
    return Migration(
        job=document["metadata"]["name"],
        namespace=reference["namespace"],
        pod=reference["name"],
        uid=reference.get("uid", ""),
        mode=spec.get("mode") or default_mode,
        paused=spec.get("paused", False),
        ttl_seconds=spec.get("ttlSeconds", 0),
        created_at=START,
        passed_arbitration=(document["metadata"].get("annotations") or {}).get(ANNOTATION_PASSED) == "true",
        reservation=named,
        reservation_given=bool(named),
        conditions=tuple(JobCondition(type=each["type"], status=each["status"]) for each in conditions),
    )


def _shown(job: Migration) -> Json:
    kinds = {each.type for each in job.conditions}
    failed = ("MissingPod", FORBIDDEN, EVICTION_REFUSED, "FailedCreateReservation")
    return {
        "phase": job.phase,
        "status": job.status,
        "reason": job.reason,
        "message": job.message,
        "nodeName": job.reservation_node,
        "error": job.reason in failed,
        "absentConditions": [kind for kind in ("Eviction",) if kind not in kinds],
        "conditions": [msgspec.to_builtins(each) for each in job.conditions],
    }
