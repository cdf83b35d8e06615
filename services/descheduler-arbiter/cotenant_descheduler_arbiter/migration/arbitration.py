"""One arbitration round: which waiting jobs run now, keep waiting, or fail.

In: the waiting jobs in order, and for each the two filters. Out: a decision per job. A job whose pod is missing passes (its run
reports the missing pod). A pod that may never be moved fails the job; an exhausted budget keeps it waiting. A job that passed
counts in the budgets at once, for the following jobs of the round.

Source: koord-descheduler arbitrator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from cotenant_descheduler_arbiter.migration.jobs.facts import JobFacts

REASON_FORBIDDEN = "ForbiddenMigratePod"


class ArbitrationResult(StrEnum):
    """The result for a waiting job."""

    PASSED = "passed"
    WAITING = "waiting"
    FAILED = "failed"


class ArbitrationDecision(msgspec.Struct, frozen=True):
    """A result and its reason; the reason is empty if the job passed."""

    job: str
    verdict: ArbitrationResult
    reason: str = ""


def decide(pod_exists: bool, forbidden: str | None, exhausted: str | None) -> tuple[ArbitrationResult, str]:
    """Return the result for the two filters' reasons (None: the filter accepts the pod)."""
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
) -> list[ArbitrationDecision]:
    """Return a decision per job. `let_through` is called for each job that passes, before the next job is evaluated."""
    decisions: list[ArbitrationDecision] = []
    for job in waiting:
        exists = pod_exists(job)
        forbidden = why_forbidden(job) if exists else None
        exhausted = why_exhausted(job) if exists and forbidden is None else None
        verdict, reason = decide(exists, forbidden, exhausted)
        if verdict is ArbitrationResult.PASSED:
            let_through(job)
        decisions.append(ArbitrationDecision(job.name, verdict, reason))
    return decisions
