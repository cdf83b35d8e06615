"""One arbitration round: which waiting jobs may run now, which wait on, which never will.

In: the waiting jobs in order, and for each the two filters. Out: a verdict a job. A job whose pod is missing passes (its run
will say what is missing). A pod that may never be moved fails the job; a budget that is used up keeps it waiting. What
passed counts in the budgets at once, so later jobs of the round see less.

Source: koord-descheduler arbitrator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from cotenant_descheduler_arbiter.migration.job_facts import JobFacts

REASON_FORBIDDEN = "ForbiddenMigratePod"


class ArbitrationResult(StrEnum):
    """What becomes of a waiting job."""

    PASSED = "passed"
    WAITING = "waiting"
    FAILED = "failed"


class Decision(msgspec.Struct, frozen=True):
    """A verdict and why; the reason is empty where the job passed."""

    job: str
    verdict: ArbitrationResult
    reason: str = ""


def decide(pod_exists: bool, forbidden: str | None, exhausted: str | None) -> tuple[ArbitrationResult, str]:
    """Return the verdict from the two filters' reasons (None: the filter lets the pod through)."""
    if not pod_exists:
        return ArbitrationResult.PASSED, ""
    if forbidden is not None:
        return ArbitrationResult.FAILED, forbidden
    if exhausted is not None:
        return ArbitrationResult.WAITING, exhausted
    return ArbitrationResult.PASSED, ""


def run_round(
    waiting: Sequence[JobFacts],
    pod_exists: Callable[[JobFacts], bool],
    why_forbidden: Callable[[JobFacts], str | None],
    why_exhausted: Callable[[JobFacts], str | None],
    let_through: Callable[[JobFacts], None],
) -> list[Decision]:
    """Return a decision a job. `let_through` is called with each job that passes, before the next one is asked."""
    decisions: list[Decision] = []
    for job in waiting:
        exists = pod_exists(job)
        forbidden = why_forbidden(job) if exists else None
        exhausted = why_exhausted(job) if exists and forbidden is None else None
        verdict, reason = decide(exists, forbidden, exhausted)
        if verdict is ArbitrationResult.PASSED:
            let_through(job)
        decisions.append(Decision(job.name, verdict, reason))
    return decisions
