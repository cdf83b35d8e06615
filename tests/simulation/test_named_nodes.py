"""A pod that names its node and does not fit there: gateway, scheduler and executor agree that it never ran."""

from __future__ import annotations

import json
from typing import Any

from cotenant.kinds.pods import DEFINITION, PODS
from cotenant.model.subjects import placement_subject, run_subject
from cotenant.simulation import START
from cotenant_gateway.http.tables import TableFormat, table
from tests.builders import node_document
from tests.simulation.test_deleted_nodes import Cell, pod


def documents(cell: Cell) -> list[Any]:
    return list(cell.gateway.documents("pods"))


def shown(cell: Cell, name: str) -> Any:
    return next(found for found in documents(cell) if found["metadata"]["name"] == name)


def test_a_pod_without_room_fails_and_does_not_count_on_the_node() -> None:
    cell = Cell("a")
    cell.create(2, node_document("a", cpu="4", memory="16Gi", pods="110"))
    cell.create(3, pod("first", "2"))
    large = pod("large", "3")
    large["spec"]["nodeName"] = "a"
    cell.create(5, large)
    # It would not fit beside the large one.
    cell.create(8, pod("second", "2"))
    cell.run(12)
    failed = shown(cell, "large")["status"]
    assert (failed["phase"], failed["reason"]) == ("Failed", "OutOfcpu")
    assert failed["message"].endswith("cpu, requested: 3000, used: 2000, capacity: 4000")
    assert "containerStatuses" not in failed
    listed = json.loads(table(DEFINITION.layout, cell.gateway.core.objects(PODS), {}, START, TableFormat()))
    assert [row["cells"][2] for row in listed["rows"]] == ["Running", "OutOfcpu", "Running"]
    assert [shown(cell, name)["status"]["phase"] for name in ("first", "second")] == ["Running", "Running"]
    assert len(cell.of(run_subject("a", "default", "large"))) == 1
    cell.delete(13, "pods", "large", "default")
    cell.run(20)
    assert [found["metadata"]["name"] for found in documents(cell)] == ["first", "second"]
    assert cell.of(placement_subject("a", "default", "large"))[-1].tombstone
