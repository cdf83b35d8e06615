"""The table of tiers holds what Koordinator's API names."""

from __future__ import annotations

import pytest

from cotenant.model.tiers import (
    NOT_PROD,
    PRIORITY_VALUES,
    RECLAIMING,
    TIER_RESOURCES,
    PriorityClass,
    priority_default_value,
    priority_of_label,
    priority_of_value,
    tier_resource,
)


@pytest.mark.parametrize(
    ("lowest", "highest", "tier"),
    [
        (9000, 9999, PriorityClass.PROD),
        (7000, 7999, PriorityClass.MID),
        (5000, 5999, PriorityClass.BATCH),
        (3000, 3999, PriorityClass.FREE),
    ],
)
def test_a_tier_is_an_inclusive_range_of_priorities(lowest: int, highest: int, tier: PriorityClass) -> None:
    assert priority_of_value(lowest) is priority_of_value(highest) is tier
    assert priority_of_value(lowest - 1) is priority_of_value(highest + 1) is PriorityClass.NONE
    assert PRIORITY_VALUES[tier] == lowest
    assert priority_default_value(tier) == lowest + 500


def test_no_tier_has_no_priority_and_no_range() -> None:
    assert priority_default_value(PriorityClass.NONE) == 0
    assert priority_of_value(None) is priority_of_label("koord-gold") is PriorityClass.NONE


def test_mid_and_batch_pods_request_resources_of_their_own() -> None:
    assert TIER_RESOURCES == {
        PriorityClass.MID: {"cpu": "kubernetes.io/mid-cpu", "memory": "kubernetes.io/mid-memory"},
        PriorityClass.BATCH: {"cpu": "kubernetes.io/batch-cpu", "memory": "kubernetes.io/batch-memory"},
    }


@pytest.mark.parametrize(
    ("tier", "resource", "estimated_by"),
    [
        (PriorityClass.PROD, "cpu", "cpu"),
        (PriorityClass.NONE, "memory", "memory"),
        (PriorityClass.MID, "cpu", "kubernetes.io/mid-cpu"),
        (PriorityClass.BATCH, "memory", "kubernetes.io/batch-memory"),
        (PriorityClass.BATCH, "nvidia.com/gpu", ""),
        (PriorityClass.FREE, "cpu", ""),
    ],
)
def test_the_load_of_a_pod_is_estimated_by_its_tiers_request(tier: PriorityClass, resource: str, estimated_by: str) -> None:
    assert tier_resource(tier, resource) == estimated_by


def test_pods_of_no_tier_count_as_prod() -> None:
    assert frozenset(PriorityClass) - NOT_PROD == {PriorityClass.NONE, PriorityClass.PROD}
    assert frozenset({PriorityClass.BATCH, PriorityClass.FREE}) == RECLAIMING
