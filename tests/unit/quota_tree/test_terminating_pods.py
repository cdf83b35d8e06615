"""Terminating pods and overhead: what counts in a quota, by setting."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cotenant.domain.quota.trees.rules import QuotaRules
from cotenant.domain.quota.trees.terminating import Terminating
from cotenant.events.quotas import QuotaRuntime
from cotenant.model.subjects import pod_subject
from cotenant_quota_tree.core import QuotaTreeCore
from tests.builders import pod_document, stored
from tests.unit.quota_tree.builders_quota_tree import PREFIX, START, QuotaLog


def log_with(rule: Terminating, *, ignore_overhead: bool = False) -> QuotaLog:
    log = QuotaLog(QuotaTreeCore(QuotaRules(terminating=rule, ignore_overhead=ignore_overhead)))
    log.node("n1", cpu="10")
    log.quota("a", maximum={"cpu": "10"})
    return log


def terminating(log: QuotaLog, *, grace: int | None = 30) -> None:
    """A pod of three cores on a node, that is to end ten seconds from the start."""
    document = pod_document("p", labels={PREFIX + "name": "a"}, requests={"cpu": "3"}, deleted="2026-01-01T00:00:10Z")
    if grace is not None:
        document["metadata"]["deletionGracePeriodSeconds"] = grace
    log.publish(pod_subject("default", "p"), stored(document))
    log.place("p")


def used(log: QuotaLog) -> dict[str, int]:
    quota = log.published("a")
    assert isinstance(quota, QuotaRuntime)
    return quota.used


@pytest.mark.parametrize(
    ("rule", "seconds", "counts"),
    [
        (Terminating.COUNT, 3600, True),
        (Terminating.IGNORE, 1, False),
        (Terminating.IGNORE_EXPIRED, 40, True),
        (Terminating.IGNORE_EXPIRED, 41, False),
    ],
)
def test_a_terminating_pod_counts_as_the_setting_says(rule: Terminating, seconds: int, counts: bool) -> None:
    log = log_with(rule)
    terminating(log)
    log.decide(after=timedelta(seconds=seconds))
    assert log.now == START + timedelta(seconds=seconds)
    assert used(log) == ({"cpu": 3000} if counts else {})


def test_time_alone_ends_it_and_a_restart_changes_nothing() -> None:
    log = log_with(Terminating.IGNORE_EXPIRED)
    terminating(log)
    log.decide(after=timedelta(seconds=20))
    assert used(log) == {"cpu": 3000}
    log.decide(after=timedelta(seconds=30))
    assert used(log) == {}
    assert log.reloaded().decide(log.now) == []


def test_without_a_grace_period_it_ends_with_the_deletion_timestamp() -> None:
    log = log_with(Terminating.IGNORE_EXPIRED)
    terminating(log, grace=None)
    log.decide(after=timedelta(seconds=11))
    assert used(log) == {}


@pytest.mark.parametrize(("ignore", "expected"), [(False, 1250), (True, 1000)])
def test_overhead_counts_unless_a_setting_leaves_it_out(ignore: bool, expected: int) -> None:
    log = log_with(Terminating.COUNT, ignore_overhead=ignore)
    document = pod_document("p", labels={PREFIX + "name": "a"}, requests={"cpu": "1"}, overhead={"cpu": "250m"})
    log.publish(pod_subject("default", "p"), stored(document))
    log.decide()
    quota = log.published("a")
    assert quota is not None
    assert quota.request == {"cpu": expected}
