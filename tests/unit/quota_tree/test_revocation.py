"""Over-use taken back: streaks, waves, victims, and what is asked of the gateway."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.domain.quota.names import BUILT_IN_NAMESPACE, SYSTEM
from cotenant.events.migrations import EvictionOutcome, EvictionRequest
from cotenant.events.quotas import QuotaRuntime
from cotenant.model.amounts import exceeding, minus, total
from cotenant.model.subjects import eviction_subject
from cotenant_quota_tree.core import QuotaTreeCore
from cotenant_quota_tree.revocation import HeldPod, Revocation, victims_of
from tests.unit.quota_tree.builders_quota_tree import QuotaLog

DELAY = timedelta(seconds=120)


def held(name: str, cpu: int, *, priority: int = 0, preemptible: bool = True, ending: bool = False) -> HeldPod:
    return HeldPod(
        namespace="default",
        name=name,
        uid=name,
        priority=priority,
        request={"cpu": cpu},
        preemptible=preemptible,
        ending=ending,
    )


def names(pods: list[HeldPod]) -> list[str]:
    return [pod.name for pod in pods]


def overused(**pods: str) -> QuotaLog:
    """Quota `a` used all of ten cores; then `b` requests its own five."""
    log = QuotaLog(QuotaTreeCore(revocation=Revocation(True, DELAY)))
    log.node("n1", cpu="10")
    log.quota("a", minimum={"cpu": "5"}, maximum={"cpu": "10"})
    log.quota("b", minimum={"cpu": "5"}, maximum={"cpu": "10"})
    for name, cpu in (pods or {"p1": "4", "p2": "4", "p3": "2"}).items():
        log.pod(name, quota="a", cpu=cpu)
        log.place(name)
    log.decide()
    log.pod("q", quota="b", cpu="5")
    log.decide()
    return log


def quota(log: QuotaLog, name: str = "a") -> QuotaRuntime:
    found = log.published(name)
    assert found is not None
    return found


def asked(log: QuotaLog) -> list[str]:
    return [msgspec.json.decode(request.body, type=EvictionRequest).name for request in log.core.requests(log.now)]


def answered(log: QuotaLog, name: str, *, allowed: bool) -> None:
    outcome = EvictionOutcome(namespace="default", name=name, uid=f"uid-{name}", allowed=allowed)
    log.publish(eviction_subject("default", name), outcome)


def test_nothing_is_taken_back_unless_it_is_switched_on() -> None:
    log = QuotaLog()
    log.node("n1", cpu="2")
    log.quota("a", maximum={"cpu": "10"})
    log.pod("p", quota="a", cpu="4")
    log.place("p")
    log.decide()
    log.decide(after=DELAY * 2)
    assert quota(log).overused == ("cpu",)
    assert (quota(log).overused_since, quota(log).revoke, asked(log)) == (None, (), [])


def test_a_wave_comes_when_the_over_use_has_lasted_longer_than_the_delay() -> None:
    log = overused()
    since = quota(log).overused_since
    assert since == log.now
    log.decide(after=DELAY)
    assert quota(log).revoke == ()
    log.decide(after=timedelta(microseconds=1))
    assert [pod.name for pod in quota(log).revoke] == ["p2", "p1"]
    assert quota(log).overused_since == log.now
    assert asked(log) == ["p2", "p1"]


def test_over_use_that_ends_within_the_delay_ends_the_streak() -> None:
    log = overused()
    log.delete_pod("q")
    log.decide()
    assert quota(log).overused_since is None
    log.pod("q", quota="b", cpu="5")
    log.decide()
    assert quota(log).overused_since == log.now


def test_each_pod_of_a_wave_is_asked_for_until_it_is_answered() -> None:
    log = overused()
    log.decide(after=DELAY * 2)
    assert asked(log) == ["p2", "p1"]
    answered(log, "p1", allowed=False)
    assert asked(log) == ["p2"]
    fresh = log.reloaded()
    fresh.decide(log.now)
    assert fresh.requests(log.now) == log.core.requests(log.now)
    answered(log, "p2", allowed=True)
    assert asked(log) == []
    log.decide()
    assert quota(log).revoke == ()


def test_a_pod_that_its_budget_keeps_is_asked_for_again_with_the_next_wave() -> None:
    log = overused()
    log.decide(after=DELAY * 2)
    answered(log, "p1", allowed=False)
    answered(log, "p2", allowed=False)
    log.decide()
    assert asked(log) == []
    log.decide(after=DELAY * 2)
    assert asked(log) == ["p2", "p1"]


def test_a_restart_goes_on_with_the_streak() -> None:
    log = overused()
    later = log.now + DELAY + timedelta(seconds=1)
    assert log.reloaded().decide(later) == log.core.decide(later) != []


def test_the_system_quota_is_not_watched() -> None:
    log = QuotaLog(QuotaTreeCore(revocation=Revocation(True, DELAY)))
    log.node("n1", cpu="10")
    log.quota(SYSTEM, namespace=BUILT_IN_NAMESPACE, maximum={"cpu": "1"})
    log.pod("p", quota=SYSTEM, cpu="4")
    log.place("p")
    log.decide()
    assert quota(log, SYSTEM).overused == ("cpu",)
    assert quota(log, SYSTEM).overused_since is None


def test_the_least_important_pods_end_and_the_others_that_fit_stay() -> None:
    pods = [held("big", 6, priority=1), held("small", 1, priority=0), held("top", 5, priority=9)]
    assert names(victims_of({"cpu": 6}, {"cpu": 12}, pods)) == ["big"]


def test_all_are_taken_where_they_are_not_enough() -> None:
    pods = [held("low", 1), held("high", 1, priority=5), held("kept", 5, preemptible=False)]
    assert names(victims_of({"cpu": 2}, {"cpu": 7}, pods)) == ["low", "high"]


def test_pods_that_end_already_count_as_gone() -> None:
    pods = [held("ending", 4, priority=9, ending=True), held("low", 3)]
    assert victims_of({"cpu": 3}, {"cpu": 7}, pods) == []


def test_over_use_is_not_forgotten_because_a_pod_does_not_request_the_resource() -> None:
    light = HeldPod(namespace="default", name="light", uid="light", request={"cpu": 1})
    heavy = HeldPod(namespace="default", name="heavy", uid="heavy", priority=5, request={"cpu": 1, "memory": 8})
    assert names(victims_of({"cpu": 2, "memory": 4}, {"cpu": 2, "memory": 8}, [light, heavy])) == ["heavy"]


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 4), st.integers(0, 4), st.booleans(), st.booleans()), max_size=12
    ),
    st.integers(-2, 12),
    st.integers(-2, 12),
)
def test_victims_are_needed_and_never_protected(
    wanted: list[tuple[int, int, int, bool, bool]], cpu: int, memory: int
) -> None:
    pods = [
        HeldPod(
            namespace="default",
            name=str(index),
            uid=str(index),
            priority=priority,
            request={"cpu": cores, "memory": amount},
            preemptible=preemptible,
            ending=ending,
        )
        for index, (priority, cores, amount, preemptible, ending) in enumerate(wanted)
    ]
    runtime, used = {"cpu": cpu, "memory": memory}, total(pod.request for pod in pods)
    victims = victims_of(runtime, used, pods)
    assert all(pod.preemptible and not pod.ending for pod in victims)
    left = minus(minus(used, total(pod.request for pod in pods if pod.ending)), total(pod.request for pod in victims))
    if exceeding(left, runtime):
        assert {pod.name for pod in victims} == {pod.name for pod in pods if pod.preemptible and not pod.ending}
    else:
        for pod in victims:
            assert exceeding({name: left[name] + pod.request.get(name, 0) for name in left}, runtime)


@pytest.mark.parametrize("count", [1, 3])
def test_the_wave_survives_other_events_of_the_quota(count: int) -> None:
    log = overused()
    log.decide(after=DELAY * 2)
    revoked_at = quota(log).revoked_at
    for index in range(count):
        log.pod(f"more-{index}", quota="a", cpu="1")
        log.decide()
    assert quota(log).revoked_at == revoked_at
    assert asked(log) == ["p2", "p1"]
