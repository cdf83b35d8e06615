"""When jobs that wait start, by a run of the scheduler ahead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from cotenant_verification.simulate.queue_starts import HORIZON, MOST_PODS, starts
from tests.builders import node_document, pod_document

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
OWNER = [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train", "controller": True}]


def node(name: str, cpu: str = "4") -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    return node_document(name, allocatable=amounts, capacity=amounts)


def pod(name: str, cpu: str = "4", *, created: str = "2026-01-01T11:00:00Z", **more: Any) -> dict[str, Any]:
    metadata, status = more.pop("metadata", {}), {"phase": "Pending"} | more.pop("status", {})
    document = pod_document(name, created=created, requests={"cpu": cpu, "memory": "1Gi"}, image="i", **more)
    return {**document, "metadata": document["metadata"] | metadata, "status": status}


def running(name: str, cpu: str = "4", *, on: str = "n1", started: str = "2026-01-01T11:30:00Z", **more: Any) -> dict[str, Any]:
    return pod(name, cpu, nodeName=on, status={"phase": "Running", "startTime": started}, **more)


def finished(name: str, minutes: int) -> dict[str, Any]:
    """A pod of the Job train that ran so long."""
    state = {"terminated": {"finishedAt": f"2026-01-01T10:{minutes:02d}:00Z"}}
    status = {"phase": "Succeeded", "startTime": "2026-01-01T10:00:00Z", "containerStatuses": [{"state": state}]}
    return pod(name, nodeName="n1", status=status, metadata={"ownerReferences": OWNER}, restartPolicy="Never")


def test_a_deadline_says_when_the_next_starts() -> None:
    found = starts([node("n1")], [running("a", activeDeadlineSeconds=3600), pod("b")], [], NOW)
    assert found == {("default", "b"): NOW + timedelta(minutes=30)}


def test_jobs_behind_one_another_start_one_after_the_other() -> None:
    pods = [
        running("a", activeDeadlineSeconds=3600),
        pod("b", activeDeadlineSeconds=600),
        pod("c", created="2026-01-01T11:01:00Z"),
        pod("d", created="2026-01-01T11:02:00Z"),
    ]
    found = starts([node("n1")], pods, [], NOW)
    # Nothing says when c ends, so nothing says when d starts.
    assert found == {("default", "b"): NOW + timedelta(minutes=30), ("default", "c"): NOW + timedelta(minutes=40)}


def test_finished_pods_of_the_same_job_say_how_long_one_runs() -> None:
    past = [finished("p1", 40), finished("p2", 50), finished("p3", 55)]
    family: dict[str, Any] = {"metadata": {"ownerReferences": OWNER}, "restartPolicy": "Never"}
    found = starts([node("n1")], [*past, running("a", **family), pod("b")], [], NOW)
    assert found == {("default", "b"): NOW + timedelta(minutes=20)}
    late = running("a", started="2026-01-01T11:08:00Z", **family)
    assert starts([node("n1")], [*past, late, pod("b")], [], NOW) == {("default", "b"): NOW + timedelta(minutes=3)}
    over = running("a", started="2026-01-01T10:08:00Z", **family)
    assert starts([node("n1")], [*past, over, pod("b")], [], NOW) == {}


def test_nothing_is_said_where_nothing_ends() -> None:
    assert starts([node("n1")], [running("a"), pod("b")], [], NOW) == {}
    assert starts([node("n1")], [running("a", activeDeadlineSeconds=60), pod("b", "8")], [], NOW) == {}
    far = int(2 * HORIZON.total_seconds())
    assert starts([node("n1")], [running("a", activeDeadlineSeconds=far), pod("b")], [], NOW) == {}


def test_a_gang_starts_once_it_fits_whole() -> None:
    prefix = "gang.scheduling.koordinator.sh/"
    member: dict[str, Any] = {"metadata": {"annotations": {f"{prefix}name": "g", f"{prefix}min-available": "2"}}}
    gang = []
    for name in ("g0", "g1"):
        document = pod(name)
        document["metadata"]["annotations"] = dict(member["metadata"]["annotations"])
        gang.append(document)
    pods = [
        running("a", activeDeadlineSeconds=3600),
        running("b", on="n2", activeDeadlineSeconds=7200),
        *gang,
        pod("small", "4", created="2026-01-01T11:59:59Z"),
    ]
    found = starts([node("n1"), node("n2")], pods, [], NOW)
    assert found["default", "g0"] == found["default", "g1"] == NOW + timedelta(minutes=90)


def test_a_pod_that_preempts_starts_when_its_victim_has_had_its_grace_period() -> None:
    pods = [running("a", priority=1, terminationGracePeriodSeconds=20), pod("b", priority=9)]
    assert starts([node("n1")], pods, [], NOW) == {("default", "b"): NOW + timedelta(seconds=20)}


def test_absurd_numbers_and_unreadable_times_are_borne() -> None:
    odd = [
        running("a", activeDeadlineSeconds=10**18),
        running("b", on="n2", started="yesterday", activeDeadlineSeconds=-1),
        pod("c", terminationGracePeriodSeconds=-5),
    ]
    assert starts([node("n1"), node("n2")], odd, [], NOW) == {}


def test_a_cluster_that_is_too_large_is_left_alone() -> None:
    assert starts([node("n1")], [pod("a")] * (MOST_PODS + 1), [], NOW) == {}
