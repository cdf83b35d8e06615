"""Sharing among many siblings is computed in arrays: the same rule, up to numbers that 64 bits do not hold."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from cotenant.domain.quota.trees.line import Line
from cotenant.domain.quota.trees.share import MANY, share_arrays, split_array
from cotenant.domain.quota.trees.splits import split
from tests.sharing import share_out
from tests.unit.quota_tree.plain_share import plain_share


def in_arrays(
    total: int, weights: Sequence[int], requests: Sequence[int], floors: Sequence[int], lends: Sequence[bool]
) -> tuple[list[int], int]:
    w, r, f = (np.array(column, dtype=np.int64) for column in (weights, requests, floors))
    runtime, rounds = share_arrays(total, w, r, f, np.array(lends, dtype=np.bool_))
    found: list[int] = runtime.tolist()
    return found, rounds


@pytest.mark.parametrize(
    ("total", "weights", "requests", "floors", "lends", "runtime", "rounds"),
    [
        # All floors are granted, although they exceed the total.
        (5, [1, 1], [9, 9], [4, 4], [True, True], [4, 4], 0),
        # Nothing is left beyond the floors; then one unit is, for the first of two equal remainders.
        (8, [1, 1], [9, 9], [4, 4], [True, True], [4, 4], 0),
        (9, [1, 1], [9, 9], [4, 4], [True, True], [5, 4], 1),
        # A request below the floor: the whole floor where the quota does not lend. One that equals it does not compete.
        (20, [1, 1, 1], [1, 1, 9], [4, 4, 4], [True, False, True], [1, 4, 9], 1),
        (20, [1, 1], [4, 9], [4, 0], [False, True], [4, 9], 1),
        # Nobody asks: no split, and what there is stays unassigned.
        (20, [1, 1], [0, 0], [0, 0], [True, True], [0, 0], 0),
        # 30 by 1:2:3 is 5, 10, 15; the second needs 4, so 6 are split again by 1:3, and the last unit goes to the larger part.
        (30, [1, 2, 3], [20, 4, 30], [0, 0, 0], [True, True, True], [7, 4, 19], 2),
        # Weight 1 competes, weight 0 keeps its floor.
        (10, [1, 0], [9, 9], [0, 3], [True, True], [7, 3], 1),
        # 60: 20 each, of which two take 5 and 10, and the last one the other 25. By 4:2:1 it takes three splits.
        (60, [1, 1, 1], [5, 10, 100], [0, 0, 0], [True, True, True], [5, 10, 45], 2),
        (60, [4, 2, 1], [5, 18, 100], [0, 0, 0], [True, True, True], [5, 18, 37], 3),
    ],
)
def test_examples_by_hand(
    total: int,
    weights: list[int],
    requests: list[int],
    floors: list[int],
    lends: list[bool],
    runtime: list[int],
    rounds: int,
) -> None:
    assert plain_share(total, weights, requests, floors, lends) == runtime
    assert share_out(total, weights, requests, floors, lends) == (runtime, rounds)
    assert in_arrays(total, weights, requests, floors, lends) == (runtime, rounds)


@pytest.mark.parametrize("number", [2, 7, MANY, 200])
@pytest.mark.parametrize("largest", [3, 1_000, 2**40])
def test_arrays_give_what_the_rule_gives(number: int, largest: int) -> None:
    random = Random(number + largest)
    for _ in range(20):
        weights, requests, floors = ([random.randint(0, largest) for _ in range(number)] for _ in range(3))
        floors = [floor // 3 if random.random() < 0.5 else 0 for floor in floors]
        lends = [random.random() < 0.8 for _ in range(number)]
        total = random.randint(sum(floors), sum(floors) + sum(requests))
        plain = plain_share(total, weights, requests, floors, lends)
        assert in_arrays(total, weights, requests, floors, lends)[0] == plain
        assert share_out(total, weights, requests, floors, lends)[0] == plain


HUGE = 2**62


@pytest.mark.parametrize(
    ("total", "weight", "asked", "floor"),
    [
        (1_000, HUGE, 1_000, 0),
        (1_000, 2**70, 1_000, 0),
        (1_000, 1, 2**70, 0),
        (1_000, 1, HUGE, 0),
        (HUGE * MANY // 2, 1, HUGE, HUGE // 4),
        (HUGE * MANY * 2, 1, 1_000, 0),
        (-HUGE * MANY * 2, 1, 1_000, 0),
    ],
)
def test_numbers_that_64_bits_do_not_hold_are_shared_too(total: int, weight: int, asked: int, floor: int) -> None:
    """Of many siblings the first is the odd one."""
    weights, requests, floors = ([huge, *[small] * (MANY - 1)] for huge, small in ((weight, 1), (asked, 900), (floor, 0)))
    lends = [True] * MANY
    plain = plain_share(total, weights, requests, floors, lends)
    assert share_out(total, weights, requests, floors, lends)[0] == plain


@pytest.mark.parametrize(
    ("rest", "weights"),
    [
        (10, [1, 1, 1]),
        (7, [3, 3, 1]),
        (2**50 + 12_345, [1, 2, 3, 2**12]),
        (2**55 + 1, [2**10 + 1, 2**10 - 1, 7]),
        (2**61, [2**40, 2**40 + 1, 1]),
        (2**40 - 1, [2**40, 2**40 - 3, 2**39, 1]),
        (999_999_999_999_999, [999, 998, 997, 1]),
        (2**61, [2**60, 2**60 + 1, 3]),
        (2**61 - 1, [2**60 - 7, 2**59 + 3, 12_345]),
    ],
)
def test_a_split_of_arrays_is_exact(rest: int, weights: list[int]) -> None:
    """Also where a quotient in floating point is off by one, or a product of two numbers exceeds 64 bits."""
    assert split_array(rest, np.array(weights, dtype=np.int64)).tolist() == split(rest, weights)


def test_random_splits_of_arrays_are_exact() -> None:
    random = Random(7)
    for _ in range(400):
        weights = [random.randint(1, 2 ** random.randint(1, 40)) for _ in range(random.randint(1, 9))]
        rest = random.randint(1, 2 ** random.randint(1, 61))
        assert split_array(rest, np.array(weights, dtype=np.int64)).tolist() == split(rest, weights), (rest, weights)


def test_several_weights_the_sum_of_which_64_bits_do_not_hold() -> None:
    weights, requests, floors = [HUGE] * 3 + [1] * (MANY - 3), [900] * MANY, [0] * MANY
    found = share_out(1_000, weights, requests, floors, [True] * MANY)[0]
    assert found == [334, 333, 333] + [0] * (MANY - 3)


def test_equal_weights_the_sum_of_which_64_bits_do_not_hold() -> None:
    weights = [*[HUGE // 16] * (MANY - 1), 1]
    found = share_out(20_000, weights, [1_000] * MANY, [0] * MANY, [True] * MANY)[0]
    assert found == [318] * 29 + [317] * 34 + [0], "20,000 by 63 is 317, and 29 are left"


def test_a_request_that_64_bits_do_not_hold_may_come_later() -> None:
    line = Line([1] * MANY, [0] * MANY, [True] * MANY)
    for index in range(MANY):
        line.request(index, 20)
    assert line.amounts(MANY * 10) == [10] * MANY
    line.request(0, 2**70)
    line.request(1, 5)
    assert line.amounts(MANY * 10) == [11, 5, *[11] * 4, *[10] * (MANY - 6)]


def test_several_floors_the_sum_of_which_64_bits_do_not_hold() -> None:
    floors, lends = [HUGE] * 3 + [0] * (MANY - 3), [False] * 3 + [True] * (MANY - 3)
    assert share_out(1_000, [1] * MANY, [900] * MANY, floors, lends)[0] == floors


def test_several_requests_the_sum_of_which_64_bits_do_not_hold() -> None:
    requests = [HUGE] * 3 + [0] * (MANY - 3)
    found = share_out(1_000, [1] * MANY, requests, [0] * MANY, [True] * MANY)[0]
    assert found == [334, 333, 333] + [0] * (MANY - 3)


def test_splits_among_many_are_exact() -> None:
    random = Random(11)
    for number in (50, 300, 2_000):
        for _ in range(8):
            weights = [random.randint(1, 10**6) for _ in range(number)]
            rest = random.randint(1, 10**9)
            parts = split_array(rest, np.array(weights, dtype=np.int64)).tolist()
            assert sum(parts) == rest
            assert parts == split(rest, weights)
