"""The quotas as metrics."""

from __future__ import annotations

from cotenant_quota_tree.gauges import GAUGES, MAX_QUOTAS_SHOWN
from tests.unit.quota_tree.builders_quota_tree import QuotaLog


def test_each_amount_of_a_quota_is_a_value_with_koordinators_labels() -> None:
    log = QuotaLog()
    log.node("n1", cpu="10")
    log.quota("a", minimum={"cpu": "2"}, maximum={"cpu": "10"})
    log.decide()
    labels = {"name": "a", "tree": "", "is_parent": "false", "parent": "koordinator-root-quota", "resource": "cpu"}
    values = list(GAUGES[0].read(log.core))
    assert (2000, {**labels, "field": "min"}) in values
    assert (10_000, {**labels, "field": "max"}) in values


def test_the_number_of_quotas_shown_has_a_bound() -> None:
    log = QuotaLog()
    for index in range(MAX_QUOTAS_SHOWN + 5):
        log.quota(f"q{index}", maximum={"cpu": "1"})
    log.decide()
    assert len({labels["name"] for _, labels in GAUGES[0].read(log.core)}) <= MAX_QUOTAS_SHOWN
