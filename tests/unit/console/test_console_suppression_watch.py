"""What counts as flutter of a node's best-effort bound, for the promise that suppression settles."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cotenant_verification.checks.suppression import SuppressionWatch
from cotenant_verification.harness.nodes import Control

START = datetime(2026, 1, 1, tzinfo=UTC)
CAPACITY_MILLI = 4_000


def flutter(wanted: Sequence[int], bounds: Sequence[int]) -> dict[str, int]:
    watched = SuppressionWatch()
    for second, (want, bound) in enumerate(zip(wanted, bounds, strict=True)):
        control = Control(wanted_milli=want, used_milli=0, quota=str(bound * 100), cpus="", services=())
        watched.sampled("n0", control, CAPACITY_MILLI, START + timedelta(seconds=second))
    return watched.flutter(START + timedelta(seconds=len(wanted)))


def test_a_bound_that_goes_to_and_fro_under_constant_load_flutters() -> None:
    assert flutter([1_500] * 10, [1_500, 1_400] * 5) == {"n0": 8}


def test_noise_of_the_load_is_no_reason_to_turn() -> None:
    assert flutter([1_500, 1_480] * 5, [1_500, 1_400] * 5) == {"n0": 8}


def test_a_bound_that_follows_a_load_that_goes_to_and_fro_does_not_flutter() -> None:
    """Seed 5 (6 minutes, 6 nodes): pods came and went every few seconds."""
    load = [1_500, 1_360, 1_490, 1_410, 1_320, 1_440, 1_380, 1_550]
    assert flutter(load, load) == {}


def test_a_bound_that_stays_does_not_flutter() -> None:
    assert flutter([1_500] * 10, [1_500] * 10) == {}
