"""The jobs that wait, in the order in which the scheduler tries them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cotenant_console.api.client import Document
from cotenant_console.commands.queue import HEADINGS, jobs, queue_table
from tests.builders import pod_document

NOW = datetime(2026, 1, 1, 12, 5, tzinfo=UTC)


def pod(
    name: str, *, gang: str = "", least: int = 0, priority: int = 0, created: str = "2026-01-01T12:00:00Z", **more: Any
) -> dict[str, Any]:
    prefix = "gang.scheduling.koordinator.sh/"
    annotations = {f"{prefix}name": gang, f"{prefix}min-available": str(least)} if gang else {}
    metadata = more.pop("metadata", {})
    condition = {"type": "PodScheduled", "status": "False", "message": f"{name} does not fit"}
    status = {"phase": "Pending", "conditions": [condition]} | more.pop("status", {})
    document = pod_document(name, created=created, annotations=annotations, priority=priority, **more)
    return {**document, "metadata": document["metadata"] | metadata, "status": status}


def test_a_gang_is_one_job_at_the_place_of_its_first_pod() -> None:
    found = jobs(
        [
            pod("late", created="2026-01-01T12:01:00Z"),
            pod("g1", gang="g", least=2, created="2026-01-01T12:02:00Z"),
            pod("g0", gang="g", least=2),
            pod("high", priority=9000, created="2026-01-01T12:03:00Z"),
        ],
        [],
    )
    assert [(job.name, len(job.pods)) for job in found] == [("default/high", 1), ("default/g", 2), ("default/late", 1)]


def test_gangs_that_wait_for_one_another_are_one_job() -> None:
    group: Any = {"gang.scheduling.koordinator.sh/groups": '["default/a", "default/b"]'}
    pod_groups: list[Document] = [
        {"metadata": {"namespace": "default", "name": name, "annotations": group}, "spec": {"minMember": 1}} for name in "ab"
    ]
    labelled = [pod(f"{name}0", metadata={"labels": {"pod-group.scheduling.sigs.k8s.io": name}}) for name in "ab"]
    assert [(job.name, len(job.pods)) for job in jobs(labelled, pod_groups)] == [("default/a,default/b", 2)]


def test_what_has_a_node_is_over_ends_or_is_gated_does_not_wait() -> None:
    others = [
        pod("placed", nodeName="n"),
        pod("over", status={"phase": "Succeeded"}),
        pod("ending", metadata={"deletionTimestamp": "2026-01-01T12:00:00Z"}),
        pod("gated", schedulingGates=[{"name": "later"}]),
    ]
    assert jobs(others, []) == []


def test_the_table_says_who_waits_how_long_and_for_what() -> None:
    labels = {"labels": {"quota.scheduling.koordinator.sh/name": "team"}}
    table = queue_table(
        [
            pod("g0", gang="g", least=3, priority=100, metadata=labels),
            pod("alone", status={"nominatedNodeName": "n1"}),
            pod("new", created="2026-01-01T12:04:50Z", status={"conditions": []}),
        ],
        [],
        NOW,
        starts={("default", "g0"): NOW + timedelta(minutes=4), ("default", "new"): NOW},
    )
    assert table.headings == HEADINGS
    assert table.rows == [
        ("1", "default/g", "1/3", "team", "100", "5m", "in 4m", "g0 does not fit"),
        ("2", "default/alone", "1", "<none>", "0", "5m", "unknown", "alone does not fit (room is reserved on n1)"),
        ("3", "default/new", "1", "<none>", "0", "10s", "now", "its turn"),
    ]


def test_one_that_fits_and_is_refused_is_held_back_by_what_the_run_ahead_does_not_know() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "load"}
    table = queue_table([pod("hot", status={"conditions": [condition]})], [], NOW, starts={("default", "hot"): NOW})
    assert table.rows[0][6] == "unknown"


@pytest.mark.parametrize("document", [{}, {"metadata": None}, {"metadata": {"name": 3}, "spec": "x", "status": []}])
def test_documents_of_another_shape_are_shown_as_far_as_they_go(document: Any) -> None:
    assert len(jobs([document], [document])) == 1


def quota(name: str, runtime: int, used: int = 0) -> Any:
    noted = {"quota.scheduling.koordinator.sh/runtime": f'{{"cpu": {runtime}}}'}
    return {
        "metadata": {"name": name, "namespace": "team", "annotations": noted},
        "spec": {"max": {"cpu": "100"}},
        "status": {"used": {"cpu": str(used)}},
    }


def of_tenant(name: str, tenant: str, cpu: str, **more: Any) -> dict[str, Any]:
    labels = {"labels": {"quota.scheduling.koordinator.sh/name": tenant}}
    return pod(name, metadata=labels, containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **more)


def test_priorities_do_not_count_first_in_first_out() -> None:
    found = jobs([pod("high", priority=9, created="2026-01-01T12:01:00Z"), pod("old")], [], "fifo")
    assert [job.name for job in found] == ["default/old", "default/high"]


def test_tenants_take_turns_by_the_share_that_they_use_of_their_runtime() -> None:
    waiting = [of_tenant(f"red-{n}", "red", "4") for n in range(2)] + [of_tenant(f"blue-{n}", "blue", "2") for n in range(2)]
    found = jobs(waiting, [], "fair", [quota("red", 8), quota("blue", 8, used=3)])
    # red 0/8, blue 3/8, red 4/8, blue 5/8
    assert [job.name for job in found] == [f"default/{name}" for name in ("red-0", "blue-0", "red-1", "blue-1")]


def test_a_tenant_without_a_runtime_comes_last_once_it_uses_anything() -> None:
    quotas = [quota("none", 0, used=1), quota("red", 8, used=7)]
    found = jobs([of_tenant("a", "none", "1"), of_tenant("b", "red", "1")], [], "fair", quotas)
    assert [job.name for job in found] == ["default/b", "default/a"]
