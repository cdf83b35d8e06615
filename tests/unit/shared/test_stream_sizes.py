"""Sizes of streams follow the disk that the server has."""

from __future__ import annotations

import pytest

from cotenant.log.nats.streams import DEFAULT_SIZES, StreamSizes, stream_configs

GIB, MIB = 1 << 30, 1 << 20


@pytest.mark.parametrize(
    ("store", "history", "execution"),
    [(0, GIB, 256 * MIB), (16 * GIB, GIB, 256 * MIB), (2 * GIB, 512 * MIB, 256 * MIB), (128 * MIB, 32 * MIB, 16 * MIB)],
)
def test_bounded_streams_take_less_than_half_of_a_small_disk(store: int, history: int, execution: int) -> None:
    sizes = StreamSizes.within(store)
    assert (sizes.history, sizes.execution) == (history, execution)
    bounds = {config["name"]: config.get("max_bytes") for config in stream_configs(sizes=sizes)}
    assert bounds == {"LOG": None, "HISTORY": history, "USAGE": None, "EXECUTION": execution}


def test_no_limit_means_the_default_sizes() -> None:
    assert StreamSizes.within(0) == DEFAULT_SIZES
