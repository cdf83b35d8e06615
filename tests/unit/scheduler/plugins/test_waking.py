"""Each filter states which events can change its refusal: the scheduler reads them, and `explain` has words for them."""

from __future__ import annotations

import pytest

from cotenant.explain.waking import what_can_change_that
from cotenant.model.subjects import matches
from cotenant_scheduler.cycle.folding import FILTERS
from cotenant_scheduler.cycle.reservations import reserving
from cotenant_scheduler.cycle.waiting import OF_GANGS, OF_TOPOLOGY
from cotenant_scheduler.plugins import quota
from cotenant_scheduler.plugins.default_profile import SchedulerConfig, default_profile

STATED = {
    **{each.name: each.wakes_on for each in default_profile(SchedulerConfig()).filters},
    "quotas": quota.WAKES_ON,
    "gangs": OF_GANGS,
    "network topology": OF_TOPOLOGY,
    "reservations": reserving.WAKES_ON,
}


@pytest.mark.parametrize("name", STATED)
def test_what_can_change_a_refusal_is_read_by_the_scheduler_and_has_words(name: str) -> None:
    assert STATED[name], "something can always change it"
    for subject in STATED[name]:
        one = subject.replace("*", "x").replace(">", "x")
        assert any(matches(selected, one) for selected in FILTERS), subject
        assert what_can_change_that((subject,)) != subject


def test_load_may_fall_with_a_report_a_pod_that_leaves_and_another_node() -> None:
    assert what_can_change_that(STATED["LoadAwareScheduling"]) == (
        "lower usage of a node, a pod that is placed or leaves, a pod that ends, a node that joins or changes"
    )
