"""Submits batch jobs at a bounded rate, and deletes finished ones.

In: the demonstration's job pods as the gateway shows them. Out: which to create and which to delete now. At most
`most_open` jobs are not finished, one is submitted at a time, and the newest few finished ones are
kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cotenant.kinds.pods import PODS
from cotenant_console.api.client import Client, Document, Json, StatusError, list_at, text_at
from cotenant_console.demo.interpreter import Interpreter
from cotenant_console.demo.objects import APP_LABEL, JOB_APP, NAMESPACE, job_pod

KEEP_FINISHED = 3
FINISHED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class JobPlan:
    """What to do with the jobs now."""

    submit: bool
    clear: tuple[str, ...]
    open_jobs: int


def is_finished(pod: Json) -> bool:
    """Whether a pod's processes have ended for good."""
    return text_at(pod, "status", "phase") in FINISHED


def plan_jobs(pods: Sequence[Json], most_open: int) -> JobPlan:
    """Decide from the job pods that exist."""
    unfinished = [pod for pod in pods if not is_finished(pod)]
    finished = sorted(
        (text_at(pod, "metadata", "creationTimestamp"), text_at(pod, "metadata", "name"))
        for pod in pods
        if is_finished(pod) and not text_at(pod, "metadata", "deletionTimestamp")
    )
    clear = tuple(name for _, name in finished[: max(0, len(finished) - KEEP_FINISHED)])
    return JobPlan(len(unfinished) < most_open, clear, len(unfinished))


class Jobs:
    """Submits jobs and counts their outcomes."""

    def __init__(self, client: Client, interpreter: Interpreter, cpu_seconds: float, batch_cpu_milli: int) -> None:
        self.submitted = 0
        self.done = 0
        self.failed = 0
        self._counted: frozenset[str] = frozenset()
        self._client = client
        self._interpreter = interpreter
        self._cpu_seconds = cpu_seconds
        self._batch_cpu_milli = batch_cpu_milli
        self._number = 0

    @property
    def cpu_seconds_done(self) -> float:
        """CPU seconds of finished jobs: each ends when its own CPU clock shows that its work is done."""
        return self.done * self._cpu_seconds

    def step(self, most_open: int) -> None:
        """Read the jobs, count outcomes, delete finished ones, and submit at most one."""
        listed = self._client.get(PODS.path(NAMESPACE), {"labelSelector": f"{APP_LABEL}={JOB_APP}"})
        pods = list_at(listed, "items")
        ended = {text_at(pod, "metadata", "uid"): text_at(pod, "status", "phase") for pod in pods if is_finished(pod)}
        news = [phase for uid, phase in ended.items() if uid not in self._counted]
        self.done += news.count("Succeeded")
        self.failed += news.count("Failed")
        self._counted = frozenset(ended)
        plan = plan_jobs(pods, most_open)
        for name in plan.clear:
            self._tolerating(404, lambda name=name: self._client.delete(PODS.path(NAMESPACE, name)))  # type: ignore[misc]
        if plan.submit:
            self._submit()

    def _submit(self) -> None:
        """Create the next job; a name left by an earlier `up` is skipped."""
        self._number += 1
        name = f"{JOB_APP}-{self._number}"
        document = job_pod(self._interpreter, name, self._cpu_seconds, self._batch_cpu_milli)
        if self._tolerating(409, lambda: self._client.create(PODS.path(NAMESPACE), document)):
            self.submitted += 1

    def _tolerating(self, code: int, call: Callable[[], Document]) -> bool:
        try:
            call()
        except StatusError as error:
            if error.code != code:
                raise
            return False
        return True
