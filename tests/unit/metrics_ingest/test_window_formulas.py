"""Aggregates, kept points, percentile windows and means on their own; expected figures are worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import pytest

from cotenant.events.node.metrics import MeanDigest, SlotDigest, Usage
from cotenant_metrics_ingest.aggregation import AggregationError, percentile_rank
from cotenant_metrics_ingest.means import NODE_ROW, SYSTEM_ROW, MeanSlots, MeansWindow, digests, means_of
from cotenant_metrics_ingest.points import thinned, thinning
from cotenant_metrics_ingest.slots import PercentileSlots, encode_ended, settle
from cotenant_metrics_ingest.windows.percentiles import PercentileRows, figures_of
from tests.unit.metrics_ingest.builders_metrics_ingest import int64s, mean_of

# -- percentiles ---------------------------------------------------------------------------------------------------


def test_the_rank_is_the_truncated_product_less_one() -> None:
    assert [percentile_rank(count, 0.5) for count in (1, 2, 3, 4, 5)] == [0, 0, 0, 1, 1]
    assert percentile_rank(10, 1.0) == 9
    assert [percentile_rank(100, percentile) for percentile in (0.5, 0.9, 0.95, 0.99)] == [49, 89, 94, 98]


def test_without_samples_there_is_no_rank() -> None:
    with pytest.raises(AggregationError, match="no samples to take"):
        percentile_rank(0, 0.5)


# -- kept points ---------------------------------------------------------------------------------------------------


def test_of_24_samples_the_highest_four_stay_single_and_the_others_form_eight_groups() -> None:
    groups = [(1, 3), (4, 3), (7, 3), (10, 3), (13, 2), (15, 2), (17, 2), (19, 2)]
    assert thinning(24) == (*groups, (20, 1), (21, 1), (22, 1), (23, 1))
    assert thinning(12) == tuple((index, 1) for index in range(12))


@pytest.mark.parametrize("count", [0, 1, 239, 240])
def test_points_stand_for_every_sample_of_a_full_slot(count: int) -> None:
    kept, sums = thinned(np.arange(count, dtype=np.int64), np.array([count], dtype=np.int64))
    assert int((kept & 127).sum()) == count
    assert sums.tolist() == [sum(range(count))]


# -- percentile windows --------------------------------------------------------------------------------------------


def ring_of(slots: range, *, first: int = 100, last: int = 900, capacity: int = 40) -> PercentileSlots:
    """Slots of a second, each with one sample of its own number."""
    ring = PercentileSlots(1000, capacity)
    for slot in slots:
        ring.add(slot, slot * 1000 + first, slot * 1000 + last, int64s([slot], [slot], [], []))
    settle([ring])
    return ring


def windows(ring: PercentileSlots, *durations: int) -> list[tuple[int, int]]:
    """How many slots belong to each window, and the span of its samples."""
    return [(len(window.places), window.span_ms) for window in ring.windows(durations)]


def test_a_slot_belongs_to_a_window_with_half_of_it() -> None:
    """The newest sample is at 9.5 s: half of slot 6 lies in the last 3000 ms, less than half in the last 2999."""
    assert windows(ring_of(range(10), first=500, last=500), 3000, 2999) == [(4, 3000), (3, 2000)]


def test_a_span_begins_with_the_first_sample_of_the_oldest_slot_or_with_the_window() -> None:
    assert windows(ring_of(range(10)), 3000, 2600, 20_000) == [(3, 2800), (3, 2600), (10, 9800)]


def test_a_window_shorter_than_half_a_slot_is_empty() -> None:
    assert windows(ring_of(range(10)), 100) == [(0, 0)]


def test_without_samples_windows_are_empty_with_zeros() -> None:
    empty = PercentileSlots(1000, 5)
    assert windows(empty, 5000, 9000) == [(0, 0), (0, 0)]
    assert figures_of(list(empty.windows([5000]))) == [PercentileRows((0, 0), [[0] * 5] * 4)]
    assert figures_of([]) == []


def test_figures_of_a_window_name_node_and_system_by_themselves() -> None:
    ring = PercentileSlots(1000, 5)
    ring.add(0, 0, 900, int64s([1, 3], [10, 30], [5], []))
    settle([ring])
    (figures,) = figures_of(list(ring.windows([5000])))
    assert figures.counts == (2, 1)
    assert figures.rows == [[1, 1, 1, 1, 2], [10, 10, 10, 10, 20], [5] * 5, [0] * 5]


def test_at_most_122_slots_are_kept() -> None:
    assert PercentileSlots(1000, 5).capacity == 5
    assert PercentileSlots(1000, 500).capacity == 122


def test_beyond_240_samples_every_second_one_of_a_slot_is_dropped() -> None:
    for count, kept in ((240, list(range(240))), (241, list(range(1, 241, 2)))):
        ring = PercentileSlots(1000, 5)
        ring.add(0, 0, 900, int64s(range(count), [], [], []))
        assert list(ring.digest().open_series[0]) == kept


def test_a_window_continues_from_its_digest_with_the_times_of_its_samples() -> None:
    ring = ring_of(range(10))
    encode_ended([ring])
    again = PercentileSlots.restored(ring.digest(), 1000, 40)
    settle([again])
    assert windows(again, 3000, 20_000) == windows(ring, 3000, 20_000) == [(3, 2800), (10, 9800)]


def digest_of(ring: PercentileSlots) -> SlotDigest:
    settle([ring])
    encode_ended([ring])
    return ring.digest()


def starts_empty(digest: SlotDigest) -> bool:
    return PercentileSlots.restored(digest, 1000, 40).digest() == SlotDigest(width_ms=1000)


def test_a_damaged_digest_starts_empty() -> None:
    good = digest_of(ring_of(range(3, 5)))
    assert not starts_empty(good)
    assert not starts_empty(digest_of(ring_of(range(1))))
    changed: list[Mapping[str, object]] = [
        {"width_ms": 2000},
        {"open_series": good.open_series[:3]},
        {"open_slot": 5},
        {"open_slot": -1, "open_first_ms": -900},
        {"open_last_ms": good.open_first_ms - 1},
        {"open_last_ms": 2**53},
        {"closed": good.closed + good.closed},
        {"closed": good.closed[:-1]},
        {"open_slot": 3, "open_first_ms": 3100},
    ]
    assert [starts_empty(msgspec.structs.replace(good, **fields)) for fields in changed] == [True] * len(changed)
    assert not starts_empty(msgspec.structs.replace(good, open_last_ms=2**53 - 1))


def test_slots_that_do_not_ascend_start_empty() -> None:
    ring = ring_of(range(1, 5))
    good = digest_of(ring)
    for order, empty in (((1, 2, 3), False), ((1, 3, 2), True), ((2, 1, 3), True), ((1, 1, 3), True)):
        closed = b"".join(ring._encoded[number] or b"" for number in order)
        assert starts_empty(msgspec.structs.replace(good, closed=closed)) is empty, order


def test_slots_of_different_numbers_of_samples_continue_with_the_same_points() -> None:
    ring = PercentileSlots(1000, 5)
    for slot, (node, system) in enumerate(((20, 20), (20, 3), (3, 240), (12, 12), (0, 12), (1, 0), (1, 1))):
        of_node, of_system = range(1, node + 1), range(50, 50 + system)
        ring.add(slot, slot * 1000, slot * 1000 + 900, int64s(of_node, of_node, of_system, of_system))
    digest = digest_of(ring)
    again = PercentileSlots.restored(digest, 1000, 5)
    settle([again])
    # Of seven slots a ring of five holds the last five.
    assert windows(again, 9000) == windows(ring, 9000) == [(5, 4900)]
    assert figures_of(list(again.windows([9000, 1000]))) == figures_of(list(ring.windows([9000, 1000])))
    assert again.points.tolist() == ring.points.tolist()
    # 3, 12, 0, 1 and 1 samples of the node, 240, 12, 12, 0 and 1 of the system
    assert figures_of(list(again.windows([9000])))[0].counts == (17, 265)
    encode_ended([again])
    assert again.digest() == digest


# -- means ---------------------------------------------------------------------------------------------------------


def sampled(slots: range, **others: range) -> MeanSlots:
    """Slots of a second: the node uses 1000 x the number of the slot, every other key the same in its own slots."""
    means = MeanSlots(1000)
    for slot in slots:
        means.open(slot)
        for key in (NODE_ROW, *(name for name, own in others.items() if slot in own)):
            (row,) = means.rows_of([key])
            means.add(slice(row, row + 1), np.array([[1], [1000 * slot], [slot]]))
    return means


def test_the_oldest_slot_counts_with_the_share_of_it_that_lies_in_the_window() -> None:
    means = sampled(range(11), pod=range(5, 6))
    # all of slots 6 to 10; half of slot 5 in 64ths: 501 x 64 // 1000 = 32; a 64th of it
    assert mean_of(means, 10_999, 5000, [NODE_ROW]) == {NODE_ROW: Usage(cpu_milli=8000, memory_bytes=8)}
    assert mean_of(means, 10_499, 5000, [NODE_ROW])[NODE_ROW].cpu_milli == (32 * 5000 + 64 * 40_000) // (32 + 5 * 64)
    assert mean_of(means, 10_975, 5000, [NODE_ROW])[NODE_ROW].cpu_milli == (5000 + 64 * 40_000) // (1 + 5 * 64)
    assert mean_of(means, 10_975, 5000, ["pod", "unknown"]) == {"pod": Usage(cpu_milli=5000, memory_bytes=5)}


def test_the_largest_mean_since_a_time_is_one_of_a_closed_slot_that_begins_at_it_or_later() -> None:
    means = sampled(range(5), pod=range(1, 2))
    # Slot 4 is open. The system has no samples.
    assert means.largest_since(1000) == {NODE_ROW: (3000, 3), "pod": (1000, 1)}
    assert means.largest_since(1001) == {NODE_ROW: (3000, 3)}
    assert means.largest_since(3001) == {}
    several = MeanSlots(1000)
    for slot, (count, cpu, memory) in enumerate(((4, 4003, 7), (2, 1000, 9), (1, 0, 0))):
        several.open(slot)
        several.add(slice(0, 1), np.array([[count], [cpu], [memory]]))
    several.open(3)
    # Of slot 0 4003 // 4 milli-cores, of slot 1 9 // 2 bytes.
    assert several.largest_since(0) == {NODE_ROW: (1000, 4)}
    assert several.largest_since(2000) == {NODE_ROW: (0, 0)}


def test_means_of_several_nodes_together_are_those_of_each_alone() -> None:
    keys = (NODE_ROW, SYSTEM_ROW, "a", "b")
    several = [
        sampled(range(11), a=range(5, 6), b=range(9, 11)),
        MeanSlots(1000),
        sampled(range(1)),
        # Rows that come with the open slot are in no closed one.
        sampled(range(8), b=range(7, 8)),
        sampled(range(2, 9), a=range(2, 9)),
    ]
    wanted = [MeansWindow(means, 10_499, 5000, keys[place % 3 :]) for place, means in enumerate(several)]
    alone = [mean_of(each.slots, each.end_ms, each.duration_ms, each.keys) for each in wanted]
    for window, together, own in zip(wanted, means_of(wanted), alone, strict=True):
        assert together == [own.get(key) for key in window.keys]
    assert [list(found) for found in alone] == [[NODE_ROW, "a", "b"], [], [], [NODE_ROW, "b"], ["a"]]
    assert means_of([]) == []


def test_a_key_that_is_not_known_has_no_mean() -> None:
    means = sampled(range(2))
    (row,) = means.rows_of([SYSTEM_ROW])
    means.add(slice(row, row + 1), np.array([[1], [7], [7]]))
    assert mean_of(means, 1999, 5000, [SYSTEM_ROW, "unknown"]) == {SYSTEM_ROW: Usage(cpu_milli=7, memory_bytes=7)}


def test_the_slot_of_number_0_counts() -> None:
    means = sampled(range(2))
    assert mean_of(means, 1999, 5000, [NODE_ROW])[NODE_ROW].cpu_milli == 500
    assert [slot.slot for slot in means.slots()] == [0, 1]


def test_zero_usage_has_a_mean_of_0_and_a_row_without_samples_has_none() -> None:
    means = sampled(range(1))
    assert mean_of(means, 999, 5000, [NODE_ROW, SYSTEM_ROW]) == {NODE_ROW: Usage()}


def test_a_row_is_freed_when_no_slot_has_a_sample_of_it() -> None:
    means = sampled(range(8), gone=range(1), stays=range(8), idle=range(0))
    assert set(means.rows) == {NODE_ROW, SYSTEM_ROW, "stays"}
    idle = MeanSlots(1000)
    for slot in range(9):
        idle.open(slot)
        for key in (NODE_ROW, "idle", *(["gone"] if slot == 0 else [])):
            (row,) = idle.rows_of([key])
            idle.add(slice(row, row + 1), np.array([[1], [0], [0]]))
    assert set(idle.rows) == {NODE_ROW, SYSTEM_ROW, "idle"}


def test_there_are_1024_rows() -> None:
    rows = MeanSlots(1000).rows_of([f"pod-{number}" for number in range(1023)])
    assert rows[-2:] == [1023, -1]


def test_sums_are_cut_before_they_overflow() -> None:
    means = MeanSlots(1000)
    means.open(0)
    means.add(slice(0, 1), np.array([[1], [2**60], [7]]))
    assert mean_of(means, 999, 5000, [NODE_ROW]) == {NODE_ROW: Usage(cpu_milli=2**55, memory_bytes=7)}
    many = MeanSlots(1000)
    many.open(0)
    for _ in range(4096):
        many.add(slice(0, 1), np.array([[1], [2**52], [1]]))
    assert mean_of(many, 999, 5000, [NODE_ROW]) == {NODE_ROW: Usage(cpu_milli=2**43, memory_bytes=1)}


EMPTY_TABLE = b"\x02" + 6 * b"\x00"
"""A slot of the two rows that are always there, without samples."""


def restored(**fields: object) -> list[int]:
    """The slots that a digest of one slot brings back, with these fields of it changed."""
    digest = MeanDigest(width_ms=1000, rows=(NODE_ROW, SYSTEM_ROW), slots=(3,), sums=EMPTY_TABLE)
    return [slot.slot for slot in MeanSlots.restored(msgspec.structs.replace(digest, **fields), 1000).slots()]


def test_means_continue_from_a_digest_of_up_to_seven_slots() -> None:
    assert restored() == [3]
    assert restored(slots=tuple(range(7)), sums=7 * EMPTY_TABLE) == list(range(7))
    assert restored(slots=tuple(range(8)), sums=8 * EMPTY_TABLE) == []
    rows = (NODE_ROW, SYSTEM_ROW, *(f"pod-{number}" for number in range(1022)))
    assert restored(rows=rows) == [3]
    assert restored(rows=(*rows, "one more")) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"width_ms": 2000},
        {"rows": (SYSTEM_ROW, NODE_ROW)},
        {"rows": (NODE_ROW, SYSTEM_ROW, "a", "a")},
        {"slots": ()},
        {"slots": (3, 4)},
        {"sums": b""},
        {"sums": b"\x02\x00"},
        {"sums": b"\x01\x00\x00\x00"},
        {"sums": b"\x03" + 9 * b"\x00"},
        {"sums": b"\x80"},
    ],
)
def test_means_of_a_damaged_digest_start_empty(fields: dict[str, object]) -> None:
    assert restored(**fields) == []


def test_without_samples_a_digest_is_empty() -> None:
    assert digests([MeanSlots(1000)]) == [MeanDigest(width_ms=1000)]
