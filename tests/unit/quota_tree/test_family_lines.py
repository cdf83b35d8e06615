"""One resource among siblings, kept current: what a change costs nothing, and that it is never wrong."""

from __future__ import annotations

from random import Random

import pytest

from cotenant.domain.quota.sums import QuotaNode
from cotenant.domain.quota.trees.family import Family, Line
from cotenant.domain.quota.trees.share import MANY
from tests.unit.quota_tree.plain_share import plain_share


def line_of(weights: list[int], floors: list[int], lends: list[bool], requests: list[int], total: int) -> Line:
    line = Line(weights, floors, lends)
    for index, amount in enumerate(requests):
        assert line.request(index, amount) is False, "nothing is known before the first sharing"
    line.share(total)
    return line


def test_before_the_first_sharing_a_line_is_empty_and_stale() -> None:
    line = Line([1, 1], [2, 3], [True, True])
    assert (line.runtime, line.requests, line.total, line.wanted, line.least, line.stale) == ([0, 0], [0, 0], 0, 0, 5, True)


def test_sharing_names_the_children_whose_runtime_changed() -> None:
    line = line_of([1, 1, 1], [0, 0, 0], [True] * 3, [4, 4, 4], 12)
    assert line.runtime == [4, 4, 4]
    line.request(1, 9)
    assert list(line.share(12)) == []
    assert line.stale is False
    assert line.runtime == [4, 4, 4]
    assert list(line.share(17)) == [1]
    assert line.runtime == [4, 9, 4]


@pytest.mark.parametrize(
    ("weight", "floor", "lends", "asked", "gets"),
    [
        (1, 2, True, 5, 5),
        (0, 2, True, 5, 2),
        (0, 2, True, 1, 1),
        (1, 2, True, 2, 2),
        (1, 2, False, 1, 2),
        (0, 2, False, 0, 2),
        (1, 0, False, 0, 0),
    ],
)
def test_while_all_fits_a_child_has_its_request_or_its_floor_at_once(
    weight: int, floor: int, lends: bool, asked: int, gets: int
) -> None:
    line = line_of([weight, 1], [floor, 0], [lends, True], [3, 3], 100)
    before = line.runtime[0]
    assert line.request(0, asked) is (gets != before)
    assert line.stale is False
    assert line.runtime == [gets, 3]
    assert line.wanted == gets + 3


def test_all_fits_as_long_as_it_is_no_more_than_the_total() -> None:
    line = line_of([1, 1], [0, 0], [True, True], [4, 4], 10)
    assert line.request(0, 6) is True
    assert (line.runtime, line.stale) == ([6, 4], False)
    assert line.request(0, 7) is False
    assert line.stale is True, "one more than there is: it must be shared"
    assert list(line.share(10)) == []
    assert line.runtime == [6, 4]


def test_a_child_that_gets_less_than_it_asks_for_before_and_after_changes_nothing() -> None:
    line = line_of([1, 1], [0, 0], [True, True], [20, 20], 10)
    assert line.runtime == [5, 5]
    assert line.request(0, 30) is False
    assert line.stale is False
    assert line.request(0, 6) is False
    assert line.stale is False
    assert line.request(0, 5) is False
    assert line.stale is True, "it asks for just what it gets: from here on others may get more"


def test_a_child_at_its_floor_is_shared_again() -> None:
    line = line_of([1, 1], [6, 0], [True, True], [20, 20], 6)
    assert line.runtime == [6, 0]
    assert line.request(0, 6) is False
    assert line.stale is True
    line = line_of([0, 1], [6, 0], [True, True], [20, 20], 6)
    assert line.request(0, 7) is False
    assert line.stale is False


def test_a_change_from_too_much_to_enough_is_shared() -> None:
    line = line_of([1, 1], [0, 0], [True, True], [8, 4], 10)
    assert line.runtime == [6, 4]
    assert line.request(0, 5) is False
    assert line.stale is True
    assert list(line.share(10)) == [0]
    assert line.runtime == [5, 4]


def test_another_total_that_holds_all_as_the_last_one_did_changes_nothing() -> None:
    line = line_of([1, 1], [0, 0], [True, True], [4, 4], 10)
    assert list(line.share(8)) == []
    assert line.total == 8
    assert list(line.share(7)) == [1]
    assert line.runtime == [4, 3]
    assert list(line.share(8)) == [1]
    assert line.runtime == [4, 4]


def test_a_floor_is_shared_again_only_if_it_is_another_one() -> None:
    line = line_of([1, 1], [1, 0], [True, True], [4, 4], 4)
    line.floor(0, 1)
    assert line.stale is False
    line.floor(0, 3)
    assert line.stale is True
    assert list(line.share(4)) == [0, 1]
    assert line.runtime == [4, 0], "the last unit has two equal remainders: the first gets it"


@pytest.mark.parametrize("number", [3, MANY, MANY + 40])
@pytest.mark.parametrize("largest", [4, 1_000, 2**45, 2**62])
def test_a_line_kept_current_equals_one_shared_from_scratch(number: int, largest: int) -> None:
    """Requests, floors and totals change in any order; many children are shared in arrays where 64 bits hold the amounts."""
    random = Random(number * 31 + largest)
    weights = [random.randint(0, 5) for _ in range(number)]
    floors = [random.choice([0, random.randint(0, largest // 3)]) for _ in range(number)]
    lends = [random.random() < 0.7 for _ in range(number)]
    requests = [random.randint(0, largest) for _ in range(number)]
    line = Line(weights, floors, lends)
    for index, amount in enumerate(requests):
        line.request(index, amount)
    for _ in range(120):
        total = random.choice([line.total, random.randint(-2, sum(requests) + 2), sum(requests), line.wanted])
        before = list(line.runtime)
        changed = list(line.share(total))
        plain = plain_share(total, weights, requests, floors, lends)
        assert line.runtime == plain
        assert changed in ([], [index for index in range(number) if before[index] != plain[index]])
        assert changed or before == plain or total == line.total
        assert line.stale is False
        for _ in range(random.randint(0, 4)):
            index = random.randrange(number)
            if random.random() < 0.2:
                floors[index] = random.choice([0, random.randint(0, largest // 3)])
                line.floor(index, floors[index])
            else:
                requests[index] = random.choice([0, floors[index], random.randint(0, largest)])
                line.request(index, requests[index])


def family_of(*minimums: dict[str, int], scale_min: bool = True, resources: tuple[str, ...] = ("cpu", "memory")) -> Family:
    children = [
        QuotaNode(
            name=f"q{index}",
            parent="root",
            min=minimum,
            max={"cpu": 100, "memory": 100, "gpu": 100},
            shared_weight={"cpu": 1, "memory": 1},
        )
        for index, minimum in enumerate(minimums)
    ]
    return Family(children, resources, scale_min=scale_min)


def test_mins_that_fit_are_not_scaled_and_those_that_do_not_are() -> None:
    family = family_of({"cpu": 6}, {"cpu": 6})
    for index in range(2):
        family.lines["cpu"].request(index, 50)
    family.refresh(None, 0, {"cpu": 12})
    assert [family.scaled_min(index) for index in range(2)] == [{"cpu": 6}, {"cpu": 6}]
    assert set(family.refresh(None, 0, {"cpu": 11})) == {0, 1}
    assert [family.scaled_min(index) for index in range(2)] == [{"cpu": 5}, {"cpu": 5}]
    assert [family.has(index, "cpu") for index in range(2)] == [6, 5]
    family.refresh(None, 0, {"cpu": 20})
    assert [family.scaled_min(index) for index in range(2)] == [{"cpu": 6}, {"cpu": 6}]
    assert [family.has(index, "cpu") for index in range(2)] == [10, 10]


def test_without_scaling_mins_are_granted_beyond_the_total() -> None:
    family = family_of({"cpu": 6}, {"cpu": 6}, scale_min=False)
    for index in range(2):
        family.lines["cpu"].request(index, 50)
    family.refresh(None, 0, {"cpu": 4})
    assert [family.has(index, "cpu") for index in range(2)] == [6, 6]


def test_a_resource_that_is_not_shared_has_no_runtime_and_its_min_no_part_in_scaling() -> None:
    family = family_of({"cpu": 6, "gpu": 3}, {"cpu": 6})
    family.lines["cpu"].request(0, 50)
    family.refresh(None, 0, {"cpu": 20})
    assert family.has(0, "gpu") == 0
    assert family.scaled_min(0) == {"cpu": 6, "gpu": 3}
    assert family.runtime(0) == {"cpu": 20, "memory": 0}


def test_a_guarantee_raises_the_floor_above_the_scaled_min() -> None:
    family = family_of({"cpu": 4}, {"cpu": 4})
    for index in range(2):
        family.lines["cpu"].request(index, 50)
    family.refresh(None, 0, {"cpu": 8})
    family.guarantee(0, "cpu", 2)
    assert family.refresh(None, 0, {"cpu": 8}) == (), "less than its min: nothing changes"
    family.guarantee(0, "cpu", 7)
    family.refresh(None, 0, {"cpu": 12})
    assert [family.has(index, "cpu") for index in range(2)] == [8, 4]
    family.guarantee(0, "gpu", 7)
    assert family.has(0, "gpu") == 0


def test_nothing_changed_is_nothing_to_do() -> None:
    family = family_of({"cpu": 1}, {})
    family.lines["cpu"].request(0, 5)
    assert set(family.refresh(None, 0, {"cpu": 20})) == {0}
    assert family.refresh(None, 0, {"cpu": 20}) == ()
    assert family.refresh(None, 0, {"cpu": 9}) == (), "all still fits"
    assert family.lines["cpu"].total == 9
    assert set(family.refresh(None, 0, {"cpu": 4})) == {0}
    assert set(family.refresh(None, 0, {"cpu": 5})) == {0}


def test_a_family_below_another_shares_what_its_parent_got_there() -> None:
    above, below = family_of({}, {}), family_of({"cpu": 3}, {"cpu": 3})
    for index, amount in enumerate((8, 90)):
        above.lines["cpu"].request(index, amount)
    above.refresh(None, 0, {"cpu": 20})
    assert [above.has(index, "cpu") for index in range(2)] == [8, 12]
    for index in range(2):
        below.lines["cpu"].request(index, 50)
    below.refresh(above, 1, {"cpu": 1})
    assert [below.has(index, "cpu") for index in range(2)] == [6, 6]
    above.refresh(None, 0, {"cpu": 4})
    below.refresh(above, 1, {})
    assert sum(below.has(index, "cpu") for index in range(2)) == above.has(1, "cpu") == 2


def test_all_fits_where_it_is_just_the_total_and_a_smaller_request_is_granted_at_once() -> None:
    line = line_of([1, 1], [0, 0], [True, True], [4, 4], 8)
    assert line.request(0, 3) is True
    assert (line.runtime, line.stale, line.wanted) == ([3, 4], False, 7)


def test_a_request_that_64_bits_do_not_hold_is_taken_over_after_a_sharing_in_arrays() -> None:
    line = line_of([1] * MANY, [0] * MANY, [True] * MANY, [4] * MANY, 4 * MANY - 64)
    assert line.runtime == [3] * MANY
    line.request(0, 2**64)
    assert list(line.share(4 * MANY)) == list(range(MANY))
    assert line.runtime == [4] * MANY, "the first has weight 1 as the others, which need no more"
    line.request(0, 2)
    assert list(line.share(4 * MANY - 2)) == [0]
    assert line.runtime == [2, *[4] * (MANY - 1)]


def test_mins_that_are_just_what_there_is_fit_so_a_child_without_any_is_not_touched() -> None:
    family = family_of({"cpu": 6}, {"cpu": 6}, {})
    for index in range(2):
        family.lines["cpu"].request(index, 50)
    assert set(family.refresh(None, 0, {"cpu": 12})) == {0, 1}
    assert [family.has(index, "cpu") for index in range(3)] == [6, 6, 0]


def test_a_min_of_a_resource_that_is_not_shared_follows_what_there_is_of_it() -> None:
    family = family_of({"cpu": 6, "gpu": 3}, {"cpu": 6, "gpu": 3}, resources=("cpu",))
    family.lines["cpu"].request(0, 50)
    assert set(family.refresh(None, 0, {"cpu": 20, "gpu": 6})) == {0}, "the mins just fit"
    assert [family.scaled_min(index)["gpu"] for index in range(2)] == [3, 3]
    family.refresh(None, 0, {"cpu": 20, "gpu": 4})
    assert [family.scaled_min(index)["gpu"] for index in range(2)] == [2, 2]
