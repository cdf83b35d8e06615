"""Lists of owners that are found by the same label."""

from __future__ import annotations

from cotenant_scheduler.state.reservations.rules import OwnerIndex
from tests.unit.scheduler.state.test_owner_index import labelled, meant


def test_a_list_is_found_after_another_with_its_key_is_let_go() -> None:
    index = OwnerIndex()
    first, second = index.hold(labelled(app="a")), index.hold(labelled(app="a", tier="t"))
    labels = {"app": "a", "tier": "t"}
    assert meant(index, labels=labels) == (first, second)
    index.let_go(first)
    assert meant(index, labels=labels) == (second,)
    index.let_go(second)
    assert meant(index, labels=labels) == ()
