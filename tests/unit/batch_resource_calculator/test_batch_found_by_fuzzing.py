"""What fuzzing found: a zone's number of thousands of digits."""

from __future__ import annotations

import json

from cotenant_batch_resource_calculator.topology import declared_topology


def test_a_zone_with_a_number_of_thousands_of_digits_comes_last() -> None:
    resources = [{"name": "cpu", "allocatable": "1"}]
    zones = [{"name": name, "resources": resources} for name in ("node-" + "9" * 5000, "node-10", "node-2")]
    assert list(declared_topology(json.dumps({"zones": zones}).encode()).zones)[:2] == ["node-2", "node-10"]
