"""Which requests count for a placed pod: those that its manifest asks for, or those of its placement."""

from __future__ import annotations

import pytest

from cotenant.domain.resizing import counted_requests
from cotenant.events.placements import Placement
from cotenant.events.resizes import PlacementResize

ASKED, PLACED = {"cpu": 1000}, {"cpu": 3000}


@pytest.mark.parametrize(
    ("resized", "placed_from", "object_sequence", "counted"),
    [
        (False, 7, 7, ASKED),
        (True, 7, 7, PLACED),
        (True, 7, 0, PLACED),
        (False, 7, 9, PLACED),
        (False, 0, 9, ASKED),
        (False, 7, 0, ASKED),
    ],
    ids=["same object", "resized", "resized, by manifest", "object changed since", "no object named", "by manifest"],
)
def test_the_placement_counts_while_it_is_resized_or_older_than_the_object(
    resized: bool, placed_from: int, object_sequence: int, counted: dict[str, int]
) -> None:
    resize = PlacementResize(sequence=7) if resized else None
    placement = Placement(
        node="a", namespace="default", name="p", uid="u", requests=PLACED, object_sequence=placed_from, resize=resize
    )
    assert counted_requests(placement, ASKED, object_sequence) == counted
