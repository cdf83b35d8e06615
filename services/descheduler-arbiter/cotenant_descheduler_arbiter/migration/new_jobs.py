"""The jobs that this service creates: of plugins, of taints, of preemption.

In: the pod, the trigger and reason of the move, the defaults of the policy, and the caller's settings (`JobContext`).
Out: a pending Migration. A context's mode and ttl replace the defaults; its labels are the job's.

    mode, ttl, deleteOptions    the context's, else defaultJobMode, defaultJobTTL, defaultDeleteOptions
    podRef                      namespace, name and uid of the pod

Source: koord-descheduler migration controller (CreatePodMigrationJob). There the name is random; here it follows from the
pod and the cause, so that a decision that is computed again has the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import blake2b

import msgspec

from cotenant.events.migrations import Migration
from cotenant_descheduler_arbiter.config.policy import JobDefaults
from cotenant_descheduler_arbiter.state.facts import PodFacts

LABEL_DESCHEDULER_PROFILE = "descheduler.cotenant.io/profile"
"""On jobs of plugins: the profile that ran the plugin."""

ANNOTATION_CYCLE = "descheduler.cotenant.io/cycle"
"""On jobs of plugins: when the cycle's interval began."""


class JobContext(msgspec.Struct, frozen=True):
    """What a caller says about its job. `mode` "" and `ttl` None: the default. `arbitrated`: it needs no arbitration."""

    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    mode: str = ""
    ttl: timedelta | None = None
    arbitrated: bool = False
    ignore_budgets: bool = False


AT_ONCE = JobContext(mode="EvictDirectly", ttl=timedelta(0), arbitrated=True)
"""Of evictions by taint and preemption: without arbitration, reservation and end."""


def job_name(pod: PodFacts, cause: str) -> str:
    """Return the name of a job created by this service, deterministic for one pod and one cause."""
    return f"{pod.name[:52]}-{blake2b(cause.encode(), digest_size=5).hexdigest()}"


def new_job(
    name: str, pod: PodFacts, trigger: str, reason: str, defaults: JobDefaults, context: JobContext, now: datetime
) -> Migration:
    """Return the job."""
    ttl = context.ttl if context.ttl is not None else defaults.ttl
    return Migration(
        job=name,
        namespace=pod.namespace,
        pod=pod.name,
        uid=pod.uid,
        node=pod.node,
        mode=context.mode or defaults.mode,
        ttl_seconds=int(ttl.total_seconds()),
        grace_period_seconds=defaults.grace_period_seconds,
        trigger=trigger,
        evict_reason=reason,
        labels=dict(context.labels),
        annotations=dict(context.annotations),
        ignore_budgets=context.ignore_budgets,
        passed_arbitration=context.arbitrated,
        workload=pod.workload,
        created_at=now,
        updated_at=now,
    )


def arbitrated_job(
    pod: PodFacts, trigger: str, cause: str, reason: str, now: datetime, *, ignore_budgets: bool
) -> Migration:
    """Return the job of a pod that is evicted at once, without arbitration, reservation and ttl. `cause`: identifies the
    job."""
    context = msgspec.structs.replace(AT_ONCE, ignore_budgets=ignore_budgets)
    return new_job(job_name(pod, f"{trigger}/{pod.uid}/{cause}"), pod, trigger, reason, JobDefaults(), context, now)
