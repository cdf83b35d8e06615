"""The facts of a migration job that arbitration uses."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class JobFacts(msgspec.Struct, frozen=True):
    """A migration job. `uid`: its pod's uid, empty if unknown; `created`: whole seconds since 1970."""

    name: str
    namespace: str
    pod: str
    uid: str = ""
    created: int = 0
    phase: str = "Pending"
    passed: bool = False
    """Whether arbitration let it through."""

    @property
    def pod_key(self) -> str:
        """`namespace/name` of its pod."""
        return f"{self.namespace}/{self.pod}"

    @property
    def active(self) -> bool:
        """Neither succeeded, failed nor aborted; an empty phase is Pending."""
        return self.phase in ("", "Pending", "Running")

    def counts(self, *, arbitrating: bool) -> bool:
        """Whether the job counts in the budgets: running, or pending and (during arbitration) let through."""
        if self.phase == "Running":
            return True
        return self.phase in ("", "Pending") and (self.passed or not arbitrating)


def job_moving(jobs: Iterable[JobFacts], pod_key: str, uid: str) -> JobFacts | None:
    """Return the first unfinished job of a pod, or None; if both have a uid, the uids must be equal."""
    for job in jobs:
        if job.active and job.pod_key == pod_key and (not (job.uid and uid) or job.uid == uid):
            return job
    return None
