"""Sizes of streams follow the disk that the server has."""

from __future__ import annotations

import pytest

from cotenant.log.contract import EXTENSIONS, extension_bytes
from cotenant.log.nats.streams import DEFAULT_SIZES, StreamSizes, stream_configs

GIB, MIB = 1 << 30, 1 << 20


@pytest.mark.parametrize(
    ("store", "log", "history", "execution"),
    [
        (0, 8 * GIB, GIB, 256 * MIB),
        (16 * GIB, 8 * GIB, GIB, 256 * MIB),
        (2 * GIB, GIB, 512 * MIB, 256 * MIB),
        (128 * MIB, 64 * MIB, 32 * MIB, 16 * MIB),
    ],
)
def test_log_gets_half_of_a_small_disk_and_an_eighth_is_left(store: int, log: int, history: int, execution: int) -> None:
    sizes = StreamSizes.within(store)
    bounds = {config["name"]: config.get("max_bytes") for config in stream_configs(sizes=sizes)}
    assert bounds == {"LOG": log, "HISTORY": history, "USAGE": None, "EXECUTION": execution}


@pytest.mark.parametrize("store", [128 * MIB, 300 * MIB, GIB, 10 * GIB, 64 * GIB])
def test_all_extensions_of_log_fit_the_disk(store: int) -> None:
    sizes = StreamSizes.within(store)
    assert sizes.log + EXTENSIONS * extension_bytes(sizes.log) + sizes.history + sizes.execution < store


def test_only_log_refuses_at_its_bound() -> None:
    discarding = {config["name"]: config["discard"] for config in stream_configs()}
    assert discarding == {"LOG": "new", "HISTORY": "old", "USAGE": "old", "EXECUTION": "old"}


def test_no_limit_means_the_default_sizes() -> None:
    assert StreamSizes.within(0) == DEFAULT_SIZES
