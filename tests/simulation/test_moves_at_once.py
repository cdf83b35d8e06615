"""Promise 6, as a person reads it when it is broken: both jobs, their pods and the events that say so."""

from __future__ import annotations

from datetime import UTC, datetime

from cotenant.events import Event, Payload
from cotenant.events.commits import Commit
from cotenant.events.migrations import Migration
from cotenant.model.subjects import migration_subject, pod_subject
from cotenant_verification.chaos.report import failure_lines
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.records import CommitSeen
from cotenant_verification.checks.violations import Violation
from cotenant_verification.promises.evicting.evictions import moves_at_once_stay_in_limits
from tests.builders import pod_document, stored

NOW = datetime(2026, 1, 1, 0, 5, tzinfo=UTC)
ARBITER = "descheduler-arbiter"


def job(name: str, pod: str, phase: str = "Pending") -> Migration:
    """A job that the arbiter has let through."""
    return Migration(
        job=name,
        namespace="team",
        pod=pod,
        uid=f"uid-{pod}",
        node="n1",
        phase=phase,
        passed_arbitration=True,
        workload="uid-web",
        created_at=NOW,
    )


class Log:
    """A log that a view has seen, with one workload of two pods."""

    def __init__(self) -> None:
        self.view = LogView()
        self.view.configs["c"] = "{}"
        for pod in ("web-1", "web-2"):
            document = pod_document(pod, namespace="team", uid=f"uid-{pod}", owner="web")
            self.see(pod_subject("team", pod), stored(document))

    def see(self, subject: str, data: Payload) -> Event:
        event = Event(subject=subject, data=data, sequence=self.view.seen + 1, source=f"{ARBITER}/0", time=NOW)
        self.view.see(event)
        return event

    def decides(self, *jobs: Migration) -> list[tuple[str, str]]:
        """Store jobs with one commit of the arbiter; return what the promise says of it."""
        commit = Commit(prior=0, folded=self.view.seen, now=NOW, count=len(jobs), config="c")
        record = self.see(f"commits.{ARBITER}", commit)
        events = tuple(self.see(migration_subject(each.job), each) for each in jobs)
        return list(moves_at_once_stay_in_limits(self.view, CommitSeen(ARBITER, record, commit, events)))


def test_a_workload_that_moves_too_much_is_told_with_both_jobs_their_pods_and_events() -> None:
    log = Log()
    assert log.decides(job("a", "web-1", "Running")) == []
    first = log.view.last[migration_subject("a")]
    [(subject, text)] = log.decides(job("b", "web-2"))
    second = log.view.last[migration_subject("b")]
    assert text == (
        "2 pods of workload uid-web migrate at once, limit 1: "
        f"a (team/web-1, Running, {first.ref}), b (team/web-2, Pending, {second.ref})"
    )
    assert subject == migration_subject("b"), "the job that was one too many, not the commit"
    broken = Violation(6, "evictions_stay_in_limits", subject, text, log.view.seen, NOW)
    lines = failure_lines(broken, log.view, "cotenant simulate --chaos --seed 1 --for 30m")
    assert f"  about   {migration_subject('b')}" in lines
    assert any(line.startswith(f"  {second.ref} ") for line in lines), "its events"


def test_one_pod_at_a_time_is_no_more_than_the_workload_may_move() -> None:
    log = Log()
    assert log.decides(job("a", "web-1", "Running")) == []
    assert log.decides(job("a", "web-1", "Succeeded"), job("b", "web-2")) == []
