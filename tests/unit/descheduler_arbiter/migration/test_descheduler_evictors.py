"""How a job's pod is ended: the policy of the pod, of the job and of the configuration; delete options."""

import msgspec
import pytest

from cotenant.events.migrations import EvictionOutcome, EvictionRequest
from cotenant.model.subjects import eviction_subject
from tests.unit.descheduler_arbiter.builders_descheduler_arbiter import Cluster, configuration


def one_pod(*, labels: dict[str, str] | None = None, **jobs: object) -> Cluster:
    cluster = Cluster(configuration(balance=False, jobs={"skipCheckExpectedReplicas": True, **jobs}))
    cluster.node("a")
    cluster.node("b")
    for name in ("web-0", "web-1", "web-2", "web-3"):
        cluster.pod(name, "a", labels=labels)
    return cluster


def request_of(cluster: Cluster) -> EvictionRequest:
    (request,) = cluster.requests()
    return msgspec.json.decode(request.body, type=EvictionRequest)


@pytest.mark.parametrize(
    ("of_pod", "of_job", "configured", "expected"),
    [
        (None, None, "Eviction", "Eviction"),
        (None, None, "Delete", "Delete"),
        (None, "SoftEviction", "Delete", "SoftEviction"),
        ("Delete", "SoftEviction", "Eviction", "Delete"),
        ("Explode", "Delete", "SoftEviction", "SoftEviction"),
        (None, "Explode", "Delete", "Delete"),
    ],
)
def test_the_pods_label_comes_before_the_jobs_before_the_configured_policy(
    of_pod: str | None, of_job: str | None, configured: str, expected: str
) -> None:
    key = "koordinator.sh/evict-policy"
    cluster = one_pod(labels={key: of_pod} if of_pod else None, evictionPolicy=configured)
    cluster.job("move", "web-0", labels={key: of_job} if of_job else None)
    cluster.decide()
    assert request_of(cluster).policy == expected
    cluster.restart()
    assert request_of(cluster).policy == expected


def test_the_jobs_delete_options_come_before_the_configured_ones() -> None:
    cluster = one_pod(defaultDeleteOptions={"gracePeriodSeconds": 30})
    cluster.job("move", "web-0", deleteOptions={"gracePeriodSeconds": 5})
    cluster.decide()
    assert request_of(cluster).grace_period_seconds == 5
    cluster = one_pod(defaultDeleteOptions={"gracePeriodSeconds": 30})
    cluster.job("move", "web-0")
    cluster.decide()
    assert request_of(cluster).grace_period_seconds == 30


def test_delete_options_that_cannot_be_meant_fail_the_job() -> None:
    cluster = one_pod()
    cluster.job("move", "web-0", deleteOptions={"gracePeriodSeconds": 10**18})
    cluster.decide()
    job = cluster.migration("move")
    assert (job.phase, job.reason) == ("Failed", "InvalidDeleteOptions")
    assert "spec.deleteOptions: gracePeriodSeconds" in job.message


def soft_answer(cluster: Cluster, name: str, job: str) -> None:
    outcome = EvictionOutcome(
        namespace="default", name=name, uid=f"uid-{name}", allowed=True, job=job, reason="SoftEvicted", soft=True
    )
    cluster.publish(eviction_subject("default", name), outcome)


def test_a_pod_that_was_asked_to_go_is_waited_for_and_the_job_succeeds_when_it_is_gone() -> None:
    cluster = one_pod(evictionPolicy="SoftEviction")
    cluster.job("move", "web-0")
    cluster.decide()
    soft_answer(cluster, "web-0", "move")
    cluster.decide()
    assert (cluster.migration("move").phase, cluster.migration("move").reason) == ("Running", "Evicting")
    assert cluster.requests() == []
    cluster.end_pod("web-0")
    cluster.decide()
    assert cluster.migration("move").phase == "Succeeded"


def test_a_pod_that_was_asked_to_go_and_stayed_may_be_evicted_by_another_job() -> None:
    cluster = one_pod(evictionPolicy="SoftEviction")
    cluster.job("ask", "web-0", ttl="10s")
    cluster.decide()
    soft_answer(cluster, "web-0", "ask")
    cluster.decide()
    cluster.advance()
    assert cluster.migration("ask").reason == "Timeout"
    cluster.job("end", "web-0", labels={"koordinator.sh/evict-policy": "Delete"})
    cluster.decide()
    request = request_of(cluster)
    assert (request.job, request.policy) == ("end", "Delete")
