"""A pod of kubelet's as the executor reports it: nothing is started or ended, nothing is said that is not seen."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from cotenant.api.objects.pod import decode_pod
from cotenant.events.node.runs import RunPhase, RunStatus
from cotenant.events.placements import Placement, PlacementPhase
from cotenant_node_executor.core.kubelet_pods import REASON_NO_GROUP, kubelet_step
from cotenant_node_executor.core.placed import container_ids
from cotenant_node_executor.core.pod_lifecycle import States
from cotenant_node_executor.runtime.interface import AskEviction, ContainerState, PodToRun
from cotenant_node_executor.strategies.strategy import Evict
from tests.builders import container, encoded, pod_document
from tests.unit.node_executor.builders_node_executor import START as NOW

UID = "uid-web"
RUNNING = {"main": ContainerState("main", 0, pid=7, started_at=NOW)}
PLACED = Placement(node="n", namespace="default", name="web", uid=UID)
ENDING = replace(PLACED, phase=PlacementPhase.TERMINATING, reason="deleted")


def step(
    states: States | None, last: RunStatus | None = None, placement: Placement = PLACED, *, phase: str | None = None,
    evict: Evict | None = None,
) -> tuple[RunStatus, tuple[object, ...]]:
    document = pod_document("web", containers=[container("main")], phase=phase)
    pod = PodToRun(decode_pod(msgspec.json.encode(document)), f"burstable/pod{UID}", "n")
    found = kubelet_step(pod, placement, last, states, NOW, evict)
    return found.report, found.orders


def test_a_pod_is_pending_until_a_container_is_there_then_running_and_waits_without_a_group() -> None:
    pending, orders = step(None)
    assert (pending.phase, pending.containers[0].state, orders) == (RunPhase.PENDING, "waiting", ())
    running, orders = step(RUNNING, pending)
    assert (running.phase, running.containers[0].state, running.started_at, orders) == (RunPhase.RUNNING, "running", NOW, ())
    gone, orders = step({}, running)
    assert (gone.phase, gone.containers[0].state, gone.containers[0].reason) == (RunPhase.RUNNING, "waiting", REASON_NO_GROUP)
    assert orders == ()


def test_a_pod_has_ended_only_where_kubelet_says_so_and_nothing_of_it_runs() -> None:
    running, _ = step(RUNNING)
    assert step(RUNNING, running, phase="Succeeded")[0].phase is RunPhase.RUNNING
    assert step({}, running, phase="Succeeded")[0].phase is RunPhase.SUCCEEDED
    assert step(None, running, phase="Failed")[0].phase is RunPhase.FAILED
    failed, _ = step(None, running, phase="Failed")
    assert step(RUNNING, failed)[0] == failed


def test_a_terminating_pod_is_stopped_once_its_group_is_gone() -> None:
    running, _ = step(RUNNING)
    assert step({}, running, ENDING)[0].phase is RunPhase.RUNNING
    stopped, _ = step(None, running, ENDING)
    assert (stopped.phase, stopped.reason) == (RunPhase.STOPPED, "deleted")


def test_an_eviction_is_asked_for_until_the_pod_is_terminating() -> None:
    running, _ = step(RUNNING)
    evict = Evict(UID, "too much", 7)
    report, orders = step(RUNNING, running, evict=evict)
    assert (report.phase, orders) == (RunPhase.RUNNING, (AskEviction(UID, "default", "web", "too much", 7),))
    assert step(RUNNING, running, ENDING, evict=evict)[1] == ()


def test_names_of_containers_are_read_from_a_status_and_rubbish_names_nothing() -> None:
    status = {"containerStatuses": [{"name": "main", "containerID": "containerd://1"}, {"name": "new", "containerID": ""}]}
    assert container_ids(encoded({"status": status})) == {"containerd://1": "main"}
    for rubbish in (b"null", b"7", b'{"status":{"containerStatuses":{}}}', b'{"status":null}'):
        assert container_ids(msgspec.Raw(rubbish)) == {}
