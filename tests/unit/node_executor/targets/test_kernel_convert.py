"""Conversions between cgroup v1's terms and v2's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_node_executor.targets import convert
from cotenant_node_executor.targets.cgroup.files import KNOB_FILES, check_value, holds, kernel_text, own_value
from cotenant_node_executor.targets.cpulist import format_cpu_list, parse_cpu_list, smallest_cpu_list
from cotenant_node_executor.targets.interface import CgroupVersion, InvalidValueError, Knob

V1, V2 = CgroupVersion.V1, CgroupVersion.V2


@given(st.integers(convert.MIN_SHARES, convert.MAX_SHARES))
def test_every_share_has_a_weight_and_converts_back_almost_exactly(shares: int) -> None:
    weight = convert.shares_to_weight(shares)
    assert convert.MIN_WEIGHT <= weight <= convert.MAX_WEIGHT
    assert abs(convert.weight_to_shares(weight) - shares) <= 27  # one weight is worth 26.2 shares


@given(st.integers(convert.MIN_SHARES, convert.MAX_SHARES))
def test_what_was_written_is_recognised_when_read_back(shares: int) -> None:
    wanted = str(shares)
    for version in (V1, V2):
        shown = own_value(version, Knob.CPU_SHARES, kernel_text(version, Knob.CPU_SHARES, wanted))
        assert holds(version, Knob.CPU_SHARES, wanted, shown)


@given(st.integers(-10, 10**7))
def test_shares_and_quota_of_any_milli_are_what_the_kernel_takes(milli: int) -> None:
    check_value(Knob.CPU_SHARES, str(convert.milli_to_shares(milli)))
    check_value(Knob.CPU_QUOTA, str(convert.milli_to_quota_us(milli)))


@pytest.mark.parametrize(("milli", "shares", "quota"), [(0, 2, -1), (1, 2, 1000), (500, 512, 50_000), (1500, 1536, 150_000)])
def test_milli_cpu_becomes_shares_and_quota(milli: int, shares: int, quota: int) -> None:
    assert (convert.milli_to_shares(milli), convert.milli_to_quota_us(milli)) == (shares, quota)


@pytest.mark.parametrize(("shares", "weight"), [(2, 1), (1024, 39), (262_144, 10_000)])
def test_shares_become_weight(shares: int, weight: int) -> None:
    assert convert.shares_to_weight(shares) == weight


@pytest.mark.parametrize(("weight", "shares"), [(1, 2), (39, 998), (9_999, 262_117), (10_000, 262_144)])
def test_weight_becomes_shares(weight: int, shares: int) -> None:
    assert convert.weight_to_shares(weight) == shares


def test_shares_and_weight_out_of_range_are_refused() -> None:
    for shares in (1, 262_145):
        with pytest.raises(ValueError, match=f"cpu.shares {shares} is outside 2..262144"):
            convert.shares_to_weight(shares)
    for weight in (0, 10_001):
        with pytest.raises(ValueError, match=f"cpu.weight {weight} is outside 1..10000"):
            convert.weight_to_shares(weight)


@pytest.mark.parametrize(
    "text", ["", "-", "1_0", "1 0", " 1", "1\t", "--1", "1.5", "1e3", "0x1", "\N{ARABIC-INDIC DIGIT ONE}", "\u00b2"]
)
def test_what_the_kernel_would_not_write_is_no_integer(text: str) -> None:
    with pytest.raises(ValueError, match=r"cpu\.shares: .* is not an integer"):
        convert.parse_int(text, "cpu.shares")


def test_an_integer_may_have_a_sign_and_the_end_of_its_line() -> None:
    assert [convert.parse_int(text, "cpu.shares") for text in ("7\n", "-12", "007")] == [7, -12, 7]


@given(st.sets(st.integers(0, 300)))
def test_a_cpu_list_survives_writing_and_reading(cpus: set[int]) -> None:
    assert parse_cpu_list(format_cpu_list(cpus)) == tuple(sorted(cpus))


def test_a_cpu_list_is_written_as_the_kernel_writes_it() -> None:
    assert format_cpu_list([3, 1, 2, 8, 10, 9, 0]) == "0-3,8-10"
    assert format_cpu_list([]) == ""


@pytest.mark.parametrize("text", ["a", "3-1", "1,,2", "-1", "1-", "0-9999999", "1;2"])
def test_a_malformed_cpu_list_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="cpu list"):
        parse_cpu_list(text)


def test_best_effort_can_use_the_smallest_of_its_cpusets() -> None:
    assert smallest_cpu_list("0-3", ["0-3", "2", "0"]) == (2,)


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        (Knob.CPU_SHARES, "1"),
        (Knob.CPU_SHARES, "262145"),
        (Knob.CPU_QUOTA, "0"),
        (Knob.CPU_QUOTA, "999"),
        (Knob.CPU_QUOTA, "1e5"),
        (Knob.CPU_PERIOD, "-1"),
        (Knob.CPU_BURST, "-1"),
        (Knob.CPU_IDLE, "2"),
        (Knob.CPU_BVT, "3"),
        (Knob.CPU_UCLAMP_MAX, "100.5"),
        (Knob.CPU_UCLAMP_MAX, "-1"),
        (Knob.MEMORY_LIMIT, "-2"),
        (Knob.MEMORY_LIMIT, "max"),
        (Knob.BLKIO_READ_BPS, "8:0"),
        (Knob.IO_WEIGHT, "0"),
        (Knob.CPUSET_CPUS, "x"),
    ],
)
def test_a_value_that_no_kernel_takes_is_refused_with_the_knobs_name(knob: Knob, value: str) -> None:
    with pytest.raises(InvalidValueError, match=knob.value):
        check_value(knob, value)


@pytest.mark.parametrize(
    ("version", "knob", "value", "text"),
    [
        (V1, Knob.CPU_QUOTA, "-1", "-1"),
        (V2, Knob.CPU_QUOTA, "-1", "max"),
        (V2, Knob.CPU_QUOTA, "50000", "50000"),
        (V1, Knob.MEMORY_LIMIT, "-1", "-1"),
        (V2, Knob.MEMORY_LIMIT, "-1", "max"),
        (V1, Knob.MEMORY_HIGH, "-1", "max"),
        (V1, Knob.PIDS_MAX, "-1", "max"),
        (V2, Knob.CPU_SHARES, "1024", "39"),
    ],
)
def test_a_value_is_written_as_the_version_wants_it(version: CgroupVersion, knob: Knob, value: str, text: str) -> None:
    check_value(knob, value)
    assert kernel_text(version, knob, value) == text


@pytest.mark.parametrize(
    ("version", "knob", "content", "value"),
    [
        (V1, Knob.MEMORY_LIMIT, "9223372036854771712\n", "-1"),
        (V2, Knob.MEMORY_LIMIT, "max\n", "-1"),
        (V2, Knob.CPU_QUOTA, "max 100000\n", "-1"),
        (V2, Knob.CPU_QUOTA, "20000 50000\n", "20000"),
        (V2, Knob.CPU_PERIOD, "20000 50000\n", "50000"),
        (V1, Knob.CPU_QUOTA, "20000\n", "20000"),
        (V2, Knob.CPUSET_CPUS, "0-3\n", "0-3"),
    ],
)
def test_a_files_content_is_read_in_v1_units(version: CgroupVersion, knob: Knob, content: str, value: str) -> None:
    assert own_value(version, knob, content) == value


def test_values_are_compared_by_meaning() -> None:
    assert holds(V2, Knob.CPUSET_CPUS, "0,1,2", "0-2")
    assert not holds(V2, Knob.CPUSET_CPUS, "0,1", "0-2")
    assert holds(V1, Knob.MEMORY_LIMIT, "4097", "4096")
    assert not holds(V1, Knob.MEMORY_LIMIT, "4096", "-1")
    assert holds(V2, Knob.CPU_UCLAMP_MAX, "50", "50.00")
    assert holds(V2, Knob.IO_MAX, "8:0 rbps=1048576", "8:16 rbps=1 wbps=max\n8:0 rbps=1048576 wbps=max riops=max wiops=max")
    assert not holds(V2, Knob.IO_MAX, "8:0 rbps=1", "8:16 rbps=1")
    assert holds(V1, Knob.BLKIO_READ_BPS, "8:0 0", "")
    assert holds(V2, Knob.IO_WEIGHT, "200", "default 200")


def test_every_knob_has_a_file_on_at_least_one_version() -> None:
    assert set(KNOB_FILES) == set(Knob)
    assert all(entry.v1_file or entry.v2_file for entry in KNOB_FILES.values())


def test_every_weight_comes_back_from_its_exact_shares() -> None:
    for weight in range(convert.MIN_WEIGHT, convert.MAX_WEIGHT + 1):
        shares = convert.weight_to_shares(weight)
        exact = convert.exact_shares(shares)
        assert convert.shares_to_weight(exact) == weight
        assert exact - shares in (0, 1)
