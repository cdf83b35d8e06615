"""Ids, units, bodies and answers."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant_yarn_copilot.capacity import MIB, BatchAmounts, Rounding, YarnResource, of_yarn, to_yarn
from cotenant_yarn_copilot.config import CopilotConfig
from cotenant_yarn_copilot.node_id import NodeIdError, parse_node_id
from cotenant_yarn_copilot.rm_messages import NEVER_KILL_MS, AnswerError, read_info, read_node, read_nodes, update_body
from cotenant_yarn_copilot.update_call import UpdateCall, update_steps

UNHURRIED = settings(deadline=None)
"""A busy machine is no counter-example."""

AMOUNTS = st.builds(BatchAmounts, st.integers(0, 10**6), st.integers(0, 1 << 45))


@UNHURRIED
@given(AMOUNTS)
def test_the_total_never_exceeds_the_batch_resources(batch: BatchAmounts) -> None:
    given_back = of_yarn(to_yarn(batch))
    assert batch.cpu_milli - 1000 < given_back.cpu_milli <= batch.cpu_milli
    assert batch.memory_bytes - MIB < given_back.memory_bytes <= batch.memory_bytes


@UNHURRIED
@given(AMOUNTS)
def test_the_compatible_rounding_never_gives_less(batch: BatchAmounts) -> None:
    exact, compatible = to_yarn(batch), to_yarn(batch, Rounding.COMPATIBLE)
    assert compatible.vcores >= exact.vcores
    assert compatible.memory_mb >= exact.memory_mb


def test_negative_figures_count_as_zero() -> None:
    assert to_yarn(BatchAmounts(-1, -1), Rounding.COMPATIBLE) == YarnResource(0, 0)
    assert of_yarn(YarnResource(-2, -1024)) == BatchAmounts(0, 0)


@pytest.mark.parametrize("text", ["a", "a:b", "a:1:2", "[::1]:8041", "a:", "a:1.5", "a:٣"])
def test_an_id_must_be_host_and_port(text: str) -> None:
    with pytest.raises(NodeIdError):
        parse_node_id(text)


def test_an_id_without_a_host_or_a_port_is_not_usable() -> None:
    assert not parse_node_id(":8041").usable
    assert not parse_node_id("a:0").usable
    assert parse_node_id("a:8041").text == "a:8041"


def test_the_bodys_shape_is_exactly_what_the_resource_manager_reads() -> None:
    assert msgspec.json.decode(update_body(YarnResource(10, 6144))) == {
        "resource": {"memory": 6144, "vCores": 10},
        "overCommitTimeout": NEVER_KILL_MS,
    }


@pytest.mark.parametrize(
    ("total", "timeout"),
    [(YarnResource(-1, 0), 0), (YarnResource(0, -1), 0), (YarnResource(1, 1), -1), (YarnResource(2**31, 1), 0)],
)
def test_a_body_that_would_be_misread_is_never_built(total: YarnResource, timeout: int) -> None:
    with pytest.raises(ValueError, match="must be an integer"):
        update_body(total, timeout)


@pytest.mark.parametrize("value", [6400.5, "6144", True, None])
def test_a_total_that_is_no_integer_is_never_sent(value: object) -> None:
    with pytest.raises(ValueError, match="memory"):
        update_body(YarnResource(1, value))  # type: ignore[arg-type]


@pytest.mark.parametrize("body", [b'{"nodes":{}}', b'{"nodes":null}', b"{}", b'{"nodes":{"node":[]}}'])
def test_no_nodes_is_an_answer(body: bytes) -> None:
    assert read_nodes(body) == ()


def test_nodes_come_in_the_order_of_their_ids_and_unknown_fields_are_ignored() -> None:
    body = b'{"nodes":{"node":[{"id":"b:1","rack":"/r"},{"id":"a:1","usedMemoryMB":7,"availMemoryMB":-3}]}}'
    first, second = read_nodes(body)
    assert (first.id, first.total, second.id) == ("a:1", YarnResource(0, 4), "b:1")


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"nodes":{"node":[{"state":"RUNNING"}]}}'])
def test_a_malformed_answer_is_refused(body: bytes) -> None:
    with pytest.raises(AnswerError):
        read_nodes(body)
    with pytest.raises(AnswerError):
        read_node(body)
    with pytest.raises(AnswerError):
        read_info(body)


def test_the_state_of_a_resource_manager_is_read() -> None:
    assert read_info(b'{"clusterInfo":{"haState":"STANDBY","state":"STARTED"}}').ha_state == "STANDBY"


def test_a_failed_update_looks_up_the_active_one_again() -> None:
    steps = update_steps(has_node=True, has_client=True)
    assert next(steps) is UpdateCall.UPDATE
    assert steps.send(False) is UpdateCall.REINITIALIZE
    with pytest.raises(StopIteration) as end:
        steps.send(True)
    assert end.value.value is True


def test_addresses_are_split_and_checked() -> None:
    config = CopilotConfig(resource_manager="http://a:8088, http://b:8088,", clusters={"blue": "https://c:8090"})
    assert config.urls() == {"__default_yarn_cluster__": ("http://a:8088", "http://b:8088"), "blue": ("https://c:8090",)}
    assert CopilotConfig().urls() == {}
    with pytest.raises(ValueError, match="expected a URL"):
        CopilotConfig(resource_manager="a:8088").urls()
