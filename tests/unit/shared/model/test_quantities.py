"""Quantities are exact and round up, as Kubernetes' do."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.model.bounds import MAX_AMOUNT
from cotenant.model.quantities import (
    QuantityError,
    Scalar,
    format_amount,
    format_binary,
    format_decimal,
    format_milli,
    multiply_milli,
    multiply_value,
    parse_milli,
    parse_nanos,
    parse_value,
    resource_amount,
)

SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(1000),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "Ki": Fraction(1024),
    "Mi": Fraction(1024**2),
    "Gi": Fraction(1024**3),
    "e3": Fraction(1000),
    "E-2": Fraction(1, 100),
}


def ceil(value: Fraction) -> int:
    return -((-value.numerator) // value.denominator)


@pytest.mark.parametrize(
    ("text", "milli", "value"),
    [
        ("1500m", 1500, 2),
        ("1", 1000, 1),
        ("0.1", 100, 1),
        ("1Gi", 1024**3 * 1000, 1024**3),
        ("1.5Gi", 1536 * 1024**2 * 1000, 1536 * 1024**2),
        ("2e3", 2_000_000, 2000),
        ("1E", 10**21, 10**18),
        ("-250m", -250, 0),
        (".5", 500, 1),
        ("5.", 5000, 5),
        ("+3", 3000, 3),
        ("100n", 1, 1),
        (2, 2000, 2),
        (0.25, 250, 1),
    ],
)
def test_quantities_read_as_kubernetes_reads_them(text: str | int | float, milli: int, value: int) -> None:
    assert parse_milli(text) == milli
    assert parse_value(text) == value


MALFORMED = ["", "abc", "1.2.3", "1 Gi", "1gi", "Gi", "--1", "1e", "0x10", "1_000", "NaN", "inf", "1" * 65, "\uff11"]


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_quantities_are_refused_with_what_is_expected(text: str) -> None:
    with pytest.raises(QuantityError, match="expected a number"):
        parse_nanos(text)


@pytest.mark.parametrize("value", [True, None, [], {}])
def test_other_types_are_refused(value: object) -> None:
    with pytest.raises(QuantityError, match="expected text or a number"):
        parse_nanos(value)  # type: ignore[arg-type]


@given(st.integers(0, 10**6), st.integers(0, 999), st.sampled_from(sorted(SUFFIXES)))
def test_parsing_is_exact_and_rounds_up(whole: int, thousandths: int, suffix: str) -> None:
    exact = (whole + Fraction(thousandths, 1000)) * SUFFIXES[suffix]
    text = f"{whole}.{thousandths:03d}{suffix}"
    assert parse_nanos(text) == ceil(exact * 10**9)
    assert parse_milli(text) == ceil(Fraction(parse_nanos(text), 10**6))
    assert parse_value(text) == ceil(Fraction(parse_nanos(text), 10**9))


@given(st.integers(0, 2**53))
def test_what_is_formatted_parses_to_the_same(amount: int) -> None:
    assert parse_milli(format_milli(amount)) == amount
    assert parse_value(format_binary(amount)) == amount
    assert parse_value(format_decimal(amount)) == amount
    for resource in ("cpu", "memory", "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory", "pods", "nvidia.com/gpu"):
        assert resource_amount(resource, format_amount(resource, amount)) == min(amount, MAX_AMOUNT)


@pytest.mark.parametrize(("quantity", "amount"), [("1e99", MAX_AMOUNT), ("-9e18", -MAX_AMOUNT), (10**30, MAX_AMOUNT), (5, 5)])
def test_amounts_are_saturated(quantity: Scalar, amount: int) -> None:
    assert resource_amount("memory", quantity) == amount
    assert resource_amount("cpu", quantity) == (amount if abs(amount) == MAX_AMOUNT else 1000 * amount)


@pytest.mark.parametrize(("suffix", "power"), [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)])
def test_binary_suffixes_are_powers_of_1024(suffix: str, power: int) -> None:
    assert parse_value(f"1{suffix}") == 2**power
    assert format_binary(2**power) == f"1{suffix}"


@pytest.mark.parametrize(("suffix", "power"), [("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)])
def test_decimal_suffixes_are_powers_of_1000(suffix: str, power: int) -> None:
    assert parse_value(f"1{suffix}") == 10**power
    assert format_decimal(10**power) == f"1{suffix}"


def test_what_is_beyond_the_largest_suffix_is_written_in_it() -> None:
    assert format_decimal(10**21) == "1000E"
    assert format_binary(2**70) == "1024Ei"


def test_a_text_of_64_characters_is_read() -> None:
    assert parse_value("0" * 63 + "7") == 7


def test_numbers_become_integers_rounded_up() -> None:
    assert parse_nanos(1e-10) == 1
    assert isinstance(parse_nanos(0.25), int)
    assert parse_nanos(2**63) == parse_nanos(str(2**63)) == (2**63 - 1) * 10**9


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("memory", 1024, "1Ki"),
        ("kubernetes.io/batch-memory", 1024, "1Ki"),
        ("ephemeral-storage", 1024, "1Ki"),
        ("hugepages-2Mi", 2 << 20, "2Mi"),
        ("pods", 1024, "1024"),
        ("kubernetes.io/batch-cpu", 2000, "2k"),
    ],
)
def test_memory_and_storage_are_written_in_binary_units(resource: str, amount: int, text: str) -> None:
    assert format_amount(resource, amount) == text


def test_canonical_texts() -> None:
    assert [format_milli(value) for value in (1500, 2000, 2_000_000, 0)] == ["1500m", "2", "2k", "0"]
    assert [format_binary(value) for value in (120 << 30, 1000, 1 << 20)] == ["120Gi", "1000", "1Mi"]
    assert [format_decimal(value) for value in (50_000, 1000, 1001)] == ["50k", "1k", "1001"]


def test_multiplication_truncates_towards_zero_in_doubles() -> None:
    assert multiply_milli(3333, 0.65) == 2166
    assert multiply_milli(-3333, 0.65) == -2166
    assert multiply_value(1001, 0.5) == 500
    assert multiply_value(-1001, 0.5) == -500
