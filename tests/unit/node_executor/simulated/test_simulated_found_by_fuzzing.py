"""What fuzzing found: annotations and requests with which a simulated node could not be sampled any more."""

from __future__ import annotations

import pytest

from cotenant_node_executor.simulated.containers import parse_duration, simulated_duration, simulated_exit_code
from cotenant_node_executor.simulated.usage import DEFAULT_MILLI, wanted_usage
from tests.unit.node_executor.builders_node_executor import pod


@pytest.mark.parametrize("text", ["9" * 18 + "h", "9" * 400 + "h"])
def test_a_duration_beyond_all_times_counts_as_absent(text: str) -> None:
    with pytest.raises(ValueError, match="is too long"):
        parse_duration(text)
    assert simulated_duration(pod("a", annotations={"cotenant.io/simulated-duration": text})) is None


@pytest.mark.parametrize("text", ["²", "9" * 5000, "256", "-1", "١"])
def test_an_exit_code_that_is_none_counts_as_0(text: str) -> None:
    assert simulated_exit_code(pod("a", annotations={"cotenant.io/simulated-exit-code": text})) == 0


def test_requests_that_cannot_be_read_count_as_absent() -> None:
    assert wanted_usage(pod("a", requests={"cpu": "0x10"}), 1).cpu.low == DEFAULT_MILLI
