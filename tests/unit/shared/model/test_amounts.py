"""Amounts of quotas: what a missing dimension means in each operation."""

from __future__ import annotations

from cotenant.model.amounts import (
    LARGEST_AMOUNT,
    add_to,
    exceeding,
    exceeding_complete,
    fits,
    fits_in_its_own,
    format_amounts,
    larger,
    limited,
    masked,
    minus,
    parse_amount,
    parse_amounts,
    plus,
    total,
    without_zeros,
)


def test_amounts_are_read_in_milli_cores_and_units_and_capped_at_64_bits() -> None:
    assert parse_amounts({"cpu": "1500m", "memory": "1Ki"}) == {"cpu": 1500, "memory": 1024}
    assert parse_amount("cpu", str(2**63 - 1)) == LARGEST_AMOUNT == 9_223_372_036_854_775_807


def test_amounts_are_written_sorted() -> None:
    assert format_amounts({"memory": 3, "cpu": 1000}) == "cpu:1,memory:3"
    assert format_amounts({}) == "<empty>"


def test_sums_and_differences_take_a_missing_dimension_as_zero() -> None:
    assert plus({"a": 1, "b": 2}, {"b": 3, "c": 4}) == {"a": 1, "b": 5, "c": 4}
    assert minus({"a": 1, "b": 2}, {"b": 3, "c": 4}) == {"a": 1, "b": -1, "c": -4}
    assert total([{"a": 1}, {"a": 2, "b": 3}]) == {"a": 3, "b": 3}


def test_a_dimension_of_one_side_is_the_larger_one_whatever_its_sign() -> None:
    assert larger({"a": 1, "b": 5}, {"a": 2, "b": 3, "c": -1}) == {"a": 2, "b": 5, "c": -1}


def test_a_dimension_that_the_bound_lacks_is_not_limited() -> None:
    assert limited({"a": 5, "b": 5, "c": 1}, {"a": 3, "c": 2}) == {"a": 3, "b": 5, "c": 1}


def test_masking_keeps_the_named_dimensions() -> None:
    assert masked({"a": 1, "b": 2}, {"b", "c"}) == {"b": 2}


def test_adding_so_many_times_drops_what_becomes_zero() -> None:
    amounts = {"a": 1, "b": 2}
    add_to(amounts, {"a": 2, "c": 3, "d": 0}, 2)
    assert amounts == {"a": 5, "b": 2, "c": 6}
    add_to(amounts, {"b": 2, "c": 1}, -1)
    assert amounts == {"a": 5, "c": 5}


def test_a_sum_fits_up_to_the_limit_in_every_dimension_that_both_have() -> None:
    limit = {"a": 5, "b": 5}
    assert fits({"a": 2}, {"a": 3, "c": 9}, limit)
    assert not fits({"a": 2}, {"a": 4}, limit)
    assert fits({}, {"b": 5}, limit)
    assert not fits({}, {"b": 6}, limit)
    assert fits({"a": 5}, {}, limit)
    assert not fits({"a": 6}, {"b": 1}, limit)


def test_only_the_dimensions_that_are_added_matter_to_its_own_fit() -> None:
    limit = {"a": 5, "b": 5}
    assert fits_in_its_own({"a": 6, "b": 2}, {"b": 3, "c": 9}, limit)
    assert not fits_in_its_own({"b": 2}, {"b": 4}, limit)
    assert not fits_in_its_own({}, {"a": 1, "b": 6}, limit)
    assert fits_in_its_own({}, {"b": 5}, limit)
    assert not fits_in_its_own({}, {"b": 6}, limit)


def test_amounts_without_zeros_are_the_same_object() -> None:
    amounts = {"a": 1}
    assert without_zeros(amounts) is amounts
    assert without_zeros({"a": 0, "b": 2}) == {"b": 2}


def test_a_dimension_without_a_limit_is_exceeded_only_in_the_complete_comparison() -> None:
    need = {"c": 1, "b": 3, "a": 4, "d": 0}
    assert exceeding(need, {"a": 3, "b": 3}) == ("a",)
    assert exceeding_complete(need, {"a": 3, "b": 3}) == ("a", "c")
