"""The headers that an event depends on are found in a block without reading all of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.log.nats.decoding import EXPECTED_SUBJECT, REPLACES, headers_of_event
from cotenant.log.nats.frames import inline_status, parse_headers

READ = ("Nats-Rollup", "Nats-TTL", "Nats-Expected-Last-Subject-Sequence", EXPECTED_SUBJECT, REPLACES, "Nats-Stream-Source")
OTHERS = ("Nats-Batch-Id", "Nats-Expected-Last-Subject-Sequence-Subject", "X-Nats-Rollup", "Nats-Subject", "traceparent")
VALUES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x2FF), max_size=20)


def block_of(lines: list[tuple[str, str]]) -> bytes:
    return ("NATS/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines) + "\r\n").encode()


@given(st.lists(st.tuples(st.sampled_from((*READ, *OTHERS)), VALUES), max_size=12, unique_by=lambda line: line[0]))
def test_the_headers_of_an_event_are_those_of_the_whole_block(lines: list[tuple[str, str]]) -> None:
    block = block_of(lines)
    assert headers_of_event(block) == {name: value for name, value in parse_headers(block).items() if name in READ}


def test_the_first_of_several_lines_counts_as_for_the_server() -> None:
    block = block_of([("Nats-Rollup", "sub"), ("Nats-TTL", "600s"), ("Nats-Rollup", "all")])
    assert headers_of_event(block) == {"Nats-Rollup": "sub", "Nats-TTL": "600s"}


def test_a_block_that_is_cut_off_is_read_to_its_end() -> None:
    assert headers_of_event(b"NATS/1.0\r\nNats-Rollup:sub") == {"Nats-Rollup": "sub"}


@pytest.mark.parametrize(
    ("block", "status"),
    [
        (b"NATS/1.0\r\nNats-TTL: 1s\r\n\r\n", ""),
        (b"NATS/1.0\r\n\r\n", ""),
        (b"NATS/1.0 100 Idle Heartbeat\r\n\r\n", "100"),
        (b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\n\r\n", "204"),
        (b"NATS/1.0 404\r\n\r\n", "404"),
        (b"", ""),
    ],
)
def test_the_status_of_a_block(block: bytes, status: str) -> None:
    assert inline_status(block) == status
