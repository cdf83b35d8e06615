"""One resource among siblings, kept current: what one child gets without sharing, and that it is never wrong."""

from __future__ import annotations

from random import Random

import pytest

from cotenant.domain.quota.sums import QuotaNode
from cotenant.domain.quota.trees.family import Family
from cotenant.domain.quota.trees.line import Line
from cotenant.domain.quota.trees.share import MANY
from cotenant.domain.quota.trees.splits import ROUNDS, Split, split
from tests.unit.quota_tree.plain_share import plain_share


def line_of(weights: list[int], floors: list[int], lends: list[bool], requests: list[int]) -> Line:
    line = Line(weights, floors, lends)
    for index, amount in enumerate(requests):
        line.request(index, amount)
    return line


def all_of(line: Line, total: int, number: int) -> list[int]:
    """What each child gets, asked one by one."""
    return [line.of(index, total) for index in range(number)]


@pytest.fixture
def splits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What was split, in one split after the other."""
    found: list[int] = []
    split_of = Split.__init__

    def counted(one: Split, rest: int, weights: list[int], whole: int) -> None:
        found.append(rest)
        split_of(one, rest, weights, whole)

    monkeypatch.setattr(Split, "__init__", counted)
    return found


def test_before_any_request_a_child_has_its_floor_where_it_does_not_lend() -> None:
    line = Line([1, 1], [2, 3], [True, False])
    assert (line.least, line.base, line.wanted) == (5, 3, 3)
    assert all_of(line, 9, 2) == [0, 3]
    assert all_of(line, 0, 2) == [0, 3], "floors are granted, whatever there is"


def test_changed_names_the_children_that_get_something_else_than_when_it_was_last_asked() -> None:
    line = line_of([1, 1, 1], [0, 0, 0], [True] * 3, [4, 4, 4])
    assert list(line.changed(12)) == [0, 1, 2]
    line.request(1, 9)
    assert list(line.changed(12)) == []
    assert line.amounts(12) == [4, 4, 4]
    assert list(line.changed(17)) == [1]
    assert line.amounts(17) == [4, 9, 4]
    line.request(1, 8)
    line.request(1, 9)
    assert list(line.changed(17)) == []


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
def test_while_all_fits_a_child_has_its_request_or_its_floor(
    weight: int, floor: int, lends: bool, asked: int, gets: int, splits: list[int]
) -> None:
    line = line_of([weight, 1], [floor, 0], [lends, True], [3, 3])
    line.request(0, asked)
    assert line.wanted == gets + 3
    assert all_of(line, 100, 2) == [gets, 3]
    assert all_of(line, gets + 3, 2) == [gets, 3], "just enough"
    assert splits == []


@pytest.mark.parametrize(
    ("total", "weights", "floor", "requests", "asked", "gets"),
    [
        (10, [1, 1], 0, [3, 20], 0, 3),  # its part of the first split is 5
        (10, [1, 1], 0, [5, 20], 0, 5),  # just its part
        (12, [1, 1], 2, [7, 20], 0, 7),  # just its part above the floor
        (10, [1, 0], 0, [20, 20], 0, 10),  # nobody else competes
        (10, [1, 0], 2, [20, 20], 0, 10),
        (10, [1, 0], 0, [20, 20], 1, 0),
    ],
)
def test_a_child_whose_part_follows_from_sums_needs_no_split(
    total: int, weights: list[int], floor: int, requests: list[int], asked: int, gets: int, splits: list[int]
) -> None:
    line = line_of(weights, [floor, 0], [True, True], requests)
    assert line.of(asked, total) == gets
    assert splits == []


def test_a_child_with_which_nobody_competes_any_more_needs_no_split(splits: list[int]) -> None:
    line = line_of([1, 1], [0, 0], [True, True], [20, 20])
    line.request(1, 0)
    assert line.of(0, 10) == 10
    line.request(1, 20)
    line.floor(1, 20)
    assert line.of(0, 25) == 5
    assert splits == []


def test_a_child_that_gets_what_others_leave_is_split_with_them(splits: list[int]) -> None:
    """10 by 1:1 is 5 each, of which the first needs 3."""
    line = line_of([1, 1], [0, 0], [True, True], [3, 20])
    assert line.of(1, 10) == 7
    assert splits == [10, 2]
    assert all_of(line, 10, 2) == [3, 7]
    assert splits == [10, 2], "known from now on"
    assert line.of(1, 11) == 8
    assert splits == [10, 2, 11, 3], "5.5 and 5.5: the first of equal remainders has 6"


def test_where_nobody_needs_less_than_its_part_there_is_one_split(splits: list[int]) -> None:
    """11 by 1:1 is 5 and 6: the first has the unit that is left over, and needs no more."""
    line = line_of([1, 1], [0, 0], [True, True], [6, 30])
    assert all_of(line, 11, 2) == [6, 5]
    assert line.of(1, 13) == 7
    assert splits == [11, 13, 1], "6.5 and 6.5: the first leaves a unit"


def test_a_split_is_found_again_for_children_asked_one_by_one(splits: list[int]) -> None:
    line = line_of([1] * 9, [0] * 9, [True] * 9, [50] * 9)
    assert all_of(line, 91, 9) == [11, *[10] * 8]
    assert splits == [91]
    line.request(0, 3)
    assert all_of(line, 91, 9) == [3, *[11] * 8]
    assert splits == [91, 91, 8]


def test_after_many_rounds_everybody_is_computed() -> None:
    """In every round one more child needs a little less than its share by then, the surplus of which is shared."""
    number, each = 30, 1 << 160
    total, requests, surplus = number * each, [], number * each >> 10
    for others in range(number - 1, 5, -1):
        requests.append(each - surplus)
        each += surplus // others
        surplus = surplus // others >> 1
    requests += [2 * each] * (number - len(requests))
    columns = [1] * number, [0] * number, [True] * number
    line = line_of(*columns, requests)
    assert len(line.splits(total).rounds) > ROUNDS + 5
    assert all_of(line, total, number) == plain_share(total, columns[0], requests, *columns[1:])


def test_nothing_above_the_floors_is_left() -> None:
    line = line_of([1, 1], [6, 0], [True, True], [20, 20])
    assert all_of(line, 6, 2) == [6, 0]
    assert all_of(line, 2, 2) == [6, 0]
    assert line.amounts(6) == [6, 0]
    assert all_of(line, 7, 2) == [7, 0], "the last unit has two equal remainders: the first gets it"


def test_a_child_that_gets_less_than_it_asks_for_before_and_after_changes_nothing(splits: list[int]) -> None:
    line = line_of([1, 1], [0, 0], [True, True], [20, 20])
    assert all_of(line, 10, 2) == [5, 5]
    line.request(0, 30)
    line.request(0, 6)
    assert all_of(line, 10, 2) == line.amounts(10) == [5, 5]
    line.request(0, 7)
    assert splits == [10]
    line.request(0, 5)
    assert line.amounts(10) == [5, 5]
    assert splits == [10, 10], "it asks for just what it gets: from here on others may get more"
    line.request(0, 4)
    assert line.amounts(10) == [4, 6]


def test_a_child_that_asks_for_just_what_it_gets_may_have_that_before_the_last_split(splits: list[int]) -> None:
    """12 by 7:7:2:2 is 5, 5, 1, 1, of which the first leaves 2; by 7:2:2 the last one gets none of them. Asking for no more
    than its 1, it does not compete for them, and by 7:2 both go to the second."""
    line = line_of([7, 7, 2, 2], [0] * 4, [True] * 4, [3, 11, 14, 6])
    assert all_of(line, 12, 4) == [3, 6, 2, 1]
    line.request(3, 1)
    assert all_of(line, 12, 4) == [3, 7, 1, 1]
    assert splits == [12, 2, 12, 2]


def test_a_child_that_got_just_what_it_asked_for_may_ask_for_more(splits: list[int]) -> None:
    line = line_of([1, 1], [0, 0], [True, True], [5, 20])
    assert line.of(1, 10) == 5
    line.request(0, 9)
    assert all_of(line, 10, 2) == [5, 5]
    assert splits == [10], "nothing was left of the split"


def test_a_child_without_weight_changes_nothing(splits: list[int]) -> None:
    line = line_of([0, 1], [6, 0], [True, True], [20, 20])
    assert line.amounts(16) == [6, 10]
    line.request(0, 7)
    assert line.amounts(16) == [6, 10]
    assert splits == [10]
    line.request(0, 5)
    assert line.amounts(16) == [5, 11]


def test_a_floor_is_shared_again_only_if_it_is_another_one(splits: list[int]) -> None:
    line = line_of([1, 1], [1, 0], [True, True], [4, 4])
    assert line.amounts(4) == [3, 1]
    line.floor(0, 1)
    assert line.amounts(4) == [3, 1]
    assert splits == [3]
    line.floor(0, 3)
    assert line.amounts(4) == [4, 0], "the last unit has two equal remainders: the first gets it"


@pytest.mark.parametrize("number", [2, 3, 25, MANY, MANY + 40])
@pytest.mark.parametrize("largest", [4, 1_000, 2**45, 2**62, 2**70])
def test_a_line_kept_current_equals_one_shared_from_scratch(number: int, largest: int) -> None:
    """Requests, floors and totals change in any order; many children are shared in arrays where 64 bits hold the amounts."""
    random = Random(number * 31 + largest)
    weights = [random.randint(0, 5) if random.random() < 0.5 else random.randint(1, largest) for _ in range(number)]
    floors = [random.choice([0, random.randint(0, largest // 3)]) for _ in range(number)]
    lends = [random.random() < 0.7 for _ in range(number)]
    requests = [random.randint(0, largest) for _ in range(number)]
    line = line_of(weights, floors, lends, requests)
    total, reported = 0, [0] * number
    for _ in range(250):
        drawn = [random.randint(-2, sum(requests) + 2), random.randint(0, sum(requests) // 3 + 1)]
        total = random.choice([total, *drawn, sum(requests), line.wanted])
        plain = plain_share(total, weights, requests, floors, lends)
        for index in random.sample(range(number), min(number, random.choice([1, 2, 9]))):
            assert line.of(index, total) == plain[index]
        if random.random() < 0.3:
            assert list(line.changed(total)) == [index for index in range(number) if reported[index] != plain[index]]
            reported = plain
            assert line.amounts(total) == plain
        for _ in range(random.randint(0, 3)):
            index = random.randrange(number)
            if random.random() < 0.2:
                floors[index] = random.choice([0, random.randint(0, largest // 3)])
                line.floor(index, floors[index])
            else:
                now = requests[index]
                requests[index] = random.choice([0, floors[index], plain[index], now + 1, random.randint(0, largest)])
                line.request(index, requests[index])


def test_siblings_without_weight_have_no_part_of_a_split() -> None:
    random = Random(5)
    for _ in range(400):
        largest = 2 ** random.randint(1, 60)
        weights = [random.choice([1, random.randint(1, largest)]) for _ in range(random.randint(1, 12))]
        rest = random.randint(1, 2 ** random.randint(1, 61))
        whole = split(rest, weights)
        assert split(rest, [*weights[:1], 0, *weights[1:], 0]) == [*whole[:1], 0, *whole[1:], 0]


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
    family.changed({"cpu": 12})
    assert [family.scaled_min(index) for index in range(2)] == [{"cpu": 6}, {"cpu": 6}]
    assert family.changed({"cpu": 11}) == {0, 1}
    assert [family.scaled_min(index) for index in range(2)] == [{"cpu": 5}, {"cpu": 5}]
    assert [family.of(index, {"cpu": 11})["cpu"] for index in range(2)] == [6, 5]
    assert [family.of(index, {"cpu": 20})["cpu"] for index in range(2)] == [10, 10]
    assert [family.scaled_min(index) for index in range(2)] == [{"cpu": 6}, {"cpu": 6}]


def test_mins_that_were_scaled_for_one_child_are_reported_of_all() -> None:
    family = family_of({"cpu": 6}, {"cpu": 6}, {})
    family.lines["cpu"].request(0, 50)
    assert family.changed({"cpu": 12}) == {0}
    assert family.of(0, {"cpu": 9})["cpu"] == 9
    assert family.changed({"cpu": 9}) == {0, 1, 2}
    assert [family.scaled_min(index) for index in range(2)] == [{"cpu": 4}, {"cpu": 4}]
    assert family.changed({"cpu": 9}) == set()


def test_without_scaling_mins_are_granted_beyond_the_total() -> None:
    family = family_of({"cpu": 6}, {"cpu": 6}, scale_min=False)
    for index in range(2):
        family.lines["cpu"].request(index, 50)
    assert [family.of(index, {"cpu": 4})["cpu"] for index in range(2)] == [6, 6]
    assert family.changed({"cpu": 4}) == {0, 1}
    assert family.scaled_min(0) == {"cpu": 6}


def test_a_resource_that_is_not_shared_has_no_runtime_and_its_min_no_part_in_scaling() -> None:
    family = family_of({"cpu": 6, "gpu": 3}, {"cpu": 6})
    family.lines["cpu"].request(0, 50)
    assert family.of(0, {"cpu": 20}) == {"cpu": 20, "memory": 0}
    assert family.scaled_min(0) == {"cpu": 6, "gpu": 3}


def test_a_guarantee_raises_the_floor_above_the_scaled_min() -> None:
    family = family_of({"cpu": 4}, {"cpu": 4})
    for index in range(2):
        family.lines["cpu"].request(index, 50)
    family.changed({"cpu": 8})
    family.guarantee(0, "cpu", 2)
    assert family.changed({"cpu": 8}) == set(), "less than its min: nothing changes"
    family.guarantee(0, "cpu", 7)
    assert [family.of(index, {"cpu": 12})["cpu"] for index in range(2)] == [8, 4]
    family.guarantee(0, "gpu", 7)
    assert family.of(0, {"cpu": 12}) == {"cpu": 8, "memory": 0}


def test_nothing_changed_is_nothing_to_report() -> None:
    family = family_of({"cpu": 1}, {})
    family.lines["cpu"].request(0, 5)
    assert family.changed({"cpu": 20}) == {0}
    assert family.changed({"cpu": 20}) == set()
    assert family.changed({"cpu": 9}) == set(), "all still fits"
    assert family.changed({"cpu": 4}) == {0}
    assert family.changed({"cpu": 5}) == {0}


def test_mins_that_are_just_what_there_is_fit_so_a_child_without_any_is_not_touched() -> None:
    family = family_of({"cpu": 6}, {"cpu": 6}, {})
    for index in range(2):
        family.lines["cpu"].request(index, 50)
    assert family.changed({"cpu": 12}) == {0, 1}
    assert [family.of(index, {"cpu": 12})["cpu"] for index in range(3)] == [6, 6, 0]


def test_a_min_of_a_resource_that_is_not_shared_follows_what_there_is_of_it() -> None:
    family = family_of({"cpu": 6, "gpu": 3}, {"cpu": 6, "gpu": 3}, resources=("cpu",))
    family.lines["cpu"].request(0, 50)
    assert family.changed({"cpu": 20, "gpu": 6}) == {0}, "the mins just fit"
    assert [family.scaled_min(index)["gpu"] for index in range(2)] == [3, 3]
    family.of(0, {"cpu": 20, "gpu": 4})
    assert [family.scaled_min(index)["gpu"] for index in range(2)] == [2, 2]
