"""Pods are resized in place: gateway, scheduler and executors agree on what they have, also when an executor dies meanwhile."""

from __future__ import annotations

from typing import Any

from cotenant.events.placements import Placement
from cotenant.model.subjects import placement_subject
from cotenant.simulation import START
from cotenant_node_executor.simulated.machine import simulated_node
from cotenant_node_executor.simulated.participant import NodeParticipant
from cotenant_node_executor.targets.interface import Knob
from tests.builders import container, pod_document
from tests.simulation.test_deleted_nodes import SECOND, SIZE, Cell


class ResizingCell(Cell):
    """One node, `a`, of four CPUs."""

    def __init__(self) -> None:
        super().__init__("a")

    def resize(self, second: float, name: str, cpu: str) -> None:
        patch: Any = {"spec": {"containers": [container(requests={"cpu": cpu})]}}
        self.gateway.resize(START + second * SECOND, "default", name, patch)
        self.world.wake(self.gateway, START + second * SECOND)

    def shown(self, name: str) -> Any:
        documents: list[Any] = list(self.gateway.documents("pods"))
        return next(found for found in documents if found["metadata"]["name"] == name)

    def conditions(self, name: str) -> dict[str, str]:
        conditions = self.shown(name)["status"]["conditions"]
        return {each["type"]: each.get("reason", "") for each in conditions if "Resize" in each["type"]}

    def allocated(self, name: str) -> str:
        found: str = self.shown(name)["status"]["containerStatuses"][0]["allocatedResources"]["cpu"]
        return found

    def counted(self, name: str) -> int:
        """By the scheduler, in milli-CPU."""
        last = self.of(placement_subject("a", "default", name))[-1].data
        assert isinstance(last, Placement)
        return last.requests["cpu"]

    def shares(self, name: str) -> str:
        """The value of the container's control group."""
        placed = self.nodes["a"].node.core.placed["default", name]
        assert placed.view is not None
        desired = self.nodes["a"].node.core.desired(placed.view.groups[1], Knob.CPU_SHARES)
        assert desired is not None
        return desired.value


def pod(name: str, cpu: str) -> Any:
    return pod_document(name, uid="", requests={"cpu": cpu}, image="app")


def test_a_pod_grows_into_free_room_and_shrinks_for_the_one_that_waits() -> None:
    cell = ResizingCell()
    cell.create(2, pod("web", "1"))
    cell.resize(5, "web", "3")
    cell.create(8, pod("next", "2"))
    cell.run(10)
    assert (cell.allocated("web"), cell.counted("web"), cell.shares("web")) == ("3", 3000, "3072")
    assert cell.conditions("web") == {}
    assert cell.shown("next")["status"]["phase"] == "Pending"
    cell.resize(11, "web", "2")
    cell.run(16)
    assert (cell.allocated("web"), cell.counted("web"), cell.shares("web")) == ("2", 2000, "2048")
    assert cell.shown("next")["status"]["phase"] == "Running"
    assert cell.shown("web")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_deferred_pod_gets_the_room_of_the_one_that_ends() -> None:
    cell = ResizingCell()
    cell.create(2, pod("web", "1"))
    cell.create(3, pod("other", "2"))
    cell.resize(6, "web", "3")
    cell.run(10)
    assert cell.conditions("web") == {"PodResizePending": "Deferred"}
    assert (cell.allocated("web"), cell.counted("web"), cell.shares("web")) == ("1", 3000, "1024")
    cell.delete(11, "pods", "other", "default")
    cell.run(60)
    assert cell.conditions("web") == {}
    assert (cell.allocated("web"), cell.counted("web"), cell.shares("web")) == ("3", 3000, "3072")


def test_what_no_node_has_is_infeasible_and_not_counted() -> None:
    cell = ResizingCell()
    cell.create(2, pod("web", "1"))
    cell.resize(5, "web", "9")
    cell.create(8, pod("next", "3"))
    cell.run(12)
    assert cell.conditions("web") == {"PodResizePending": "Infeasible"}
    assert (cell.allocated("web"), cell.counted("web")) == ("1", 1000)
    assert cell.shown("next")["status"]["phase"] == "Running"


def test_an_executor_that_dies_with_a_resize_under_way_goes_on_with_it() -> None:
    """Its room is not given away while it is down."""
    cell = ResizingCell()
    cell.create(2, pod("web", "3"))
    cell.run(5)
    cell.world.remove(cell.nodes["a"])
    cell.resize(6, "web", "1")
    cell.create(7, pod("next", "2"))
    cell.run(20)
    assert cell.counted("web") == 3000
    assert cell.shown("next")["status"]["phase"] == "Pending"
    cell.nodes["a"] = NodeParticipant(simulated_node("a", SIZE, boot="later"))
    cell.world.add(cell.nodes["a"])
    cell.run(60)
    assert cell.counted("web") == 1000
    assert cell.shown("next")["status"]["phase"] == "Running"


def test_a_pod_that_waits_is_resized_before_it_is_placed() -> None:
    cell = ResizingCell()
    cell.create(2, pod("web", "5"))
    cell.resize(5, "web", "3")
    cell.run(10)
    assert cell.shown("web")["status"]["phase"] == "Running"
    assert (cell.allocated("web"), cell.counted("web"), cell.conditions("web")) == ("3", 3000, {})
