"""Percentiles, slots and means as properties."""

from bisect import bisect_left

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.events.node.metrics import SlotDigest
from cotenant_metrics_ingest.aggregation import AggregationError, percentile_rank
from cotenant_metrics_ingest.means import NODE_ROW, MeanSlots, digests
from cotenant_metrics_ingest.points import MAX_OPEN, POINTS, thinning
from cotenant_metrics_ingest.slots import MAX_SLOTS, PercentileSlots, encode_ended, settle
from cotenant_metrics_ingest.varints import VarintError, decode, encode_each
from cotenant_metrics_ingest.windows.node_windows import WindowSizes
from cotenant_metrics_ingest.windows.percentiles import figures_of
from cotenant_metrics_ingest.windows.waiting import cut
from tests.unit.metrics_ingest.builders_metrics_ingest import int64s, mean_of, percentile_of


def digest_of(ring: PercentileSlots) -> SlotDigest:
    settle([ring])
    encode_ended([ring])
    return ring.digest()


VALUES = st.integers(0, 2**44)


@given(st.lists(st.lists(st.integers(0, 2**63 - 1))))
def test_decoding_inverts_encoding(parts: list[list[int]]) -> None:
    values = np.array([value for part in parts for value in part], dtype=np.int64)
    encoded = encode_each(values, np.array([len(part) for part in parts], dtype=np.int64))
    assert [decode(part).tolist() for part in encoded] == parts


@given(st.binary(max_size=40))
def test_any_bytes_are_integers_or_refused(data: bytes) -> None:
    try:
        assert all(value >= 0 for value in decode(data).tolist())
    except VarintError:
        assert data


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_a_percentile_is_a_sample_and_not_above_its_share(values: list[float], percentile: float) -> None:
    found = percentile_of(values, percentile)
    assert found in values
    rank = bisect_left(sorted(values), found)
    assert rank <= max(int(np.float32(len(values)) * np.float32(percentile)) - 1, 0)


@pytest.mark.parametrize("percentile", [0.0, -1.0, 1.5])
def test_a_percentile_outside_its_range_is_refused(percentile: float) -> None:
    with pytest.raises(AggregationError, match="is not in"):
        percentile_rank(1, percentile)


@given(st.integers(0, MAX_OPEN))
def test_thinning_stands_for_every_sample_once(count: int) -> None:
    kept = thinning(count)
    assert len(kept) == min(count, POINTS)
    assert sum(weight for _, weight in kept) == count
    start = 0
    for index, weight in kept:
        assert start <= index < start + weight
        start += weight


@given(st.lists(st.lists(VALUES, min_size=1, max_size=POINTS), min_size=1, max_size=20))
def test_percentiles_are_exact_while_slots_hold_few_samples(slots: list[list[int]]) -> None:
    ring = PercentileSlots(1000, 40)
    for number, samples in enumerate(slots):
        ring.add(number, number * 1000, number * 1000 + 999, int64s(samples, samples, [], []))
    settle([ring])
    (figures,) = figures_of(list(ring.windows([100_000])))
    everything = [value for samples in slots for value in samples]
    assert figures.counts == (len(everything), 0)
    for row, percentile in enumerate((0.5, 0.9, 0.95, 0.99)):
        assert figures.rows[0][row] == percentile_of(everything, percentile)
    assert figures.rows[0][4] == sum(everything) // len(everything)


@given(st.lists(st.lists(VALUES, min_size=30, max_size=30), min_size=1, max_size=10))
def test_percentiles_of_full_slots_are_off_by_two_ranks_a_slot_at_most(slots: list[list[int]]) -> None:
    ring = PercentileSlots(30_000, 70)
    for number, samples in enumerate(slots):
        ring.add(number, number * 30_000, number * 30_000 + 29_000, int64s(samples, samples, samples, samples))
    settle([ring])
    (figures,) = figures_of(list(ring.windows([1_800_000])))
    everything = sorted(value for samples in slots for value in samples)
    for row, percentile in enumerate((0.5, 0.9, 0.95, 0.99)):
        rank = max(int(np.float32(len(everything)) * np.float32(percentile)) - 1, 0)
        low, high = max(rank - 2 * len(slots), 0), min(rank + 2 * len(slots), len(everything) - 1)
        assert everything[low] <= figures.rows[0][row] <= everything[high]


@given(st.lists(st.tuples(st.integers(1, 40), st.lists(VALUES, min_size=1, max_size=60)), min_size=1, max_size=30))
def test_slots_continue_from_their_digest(steps: list[tuple[int, list[int]]]) -> None:
    ring, slot = PercentileSlots(1000, 20), 0
    for number, (gap, samples) in enumerate(steps):
        slot += gap
        ring.add(slot, slot * 1000, slot * 1000 + 900, int64s(samples, samples[::-1], samples, samples))
        if number % 3 == 0:
            digest_of(ring)
    again = PercentileSlots.restored(digest_of(ring), 1000, 20)
    assert digest_of(again) == digest_of(ring)
    for other in (ring, again):
        other.add(slot + 1, slot * 1000 + 1000, slot * 1000 + 1500, int64s([1, 2], [3, 4], [], []))
    settle([ring, again])
    windows = [list(other.windows([5000, 20_000])) for other in (ring, again)]
    assert [window.span_ms for window in windows[0]] == [window.span_ms for window in windows[1]]
    together = figures_of([*windows[0], *windows[1]])
    assert together[:2] == together[2:] == [figures for window in windows[0] for figures in figures_of([window])]
    assert digest_of(again) == digest_of(ring)


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abcd"), VALUES), min_size=1, max_size=60))
def test_means_continue_from_their_digest_and_free_their_rows(steps: list[tuple[int, str, int]]) -> None:
    means, slot = MeanSlots(1000), 0
    for gap, key, value in steps:
        slot += gap
        means.open(slot)
        means.add(slice(0, 1), np.array([[1], [value], [value]]))
        (row,) = means.rows_of([key])
        means.add(slice(row, row + 1), np.array([[1], [value], [value]]))
    again = MeanSlots.restored(digests([means])[0], 1000)
    end = slot * 1000 + 999
    keys = [NODE_ROW, *"abcd"]
    assert mean_of(again, end, 5000, keys) == mean_of(means, end, 5000, keys)
    own, others = digests([means, again])
    assert own == others
    for number in range(1, 9):
        means.open(slot + number)
        means.add(slice(0, 1), np.array([[1], [5], [5]]))
    assert set(means.rows) == {NODE_ROW, "\0system"}
    assert mean_of(means, (slot + 8) * 1000 + 999, 5000, keys)[NODE_ROW].cpu_milli == 5


@given(
    st.integers(10**12, 2 * 10**12),
    st.lists(st.integers(-100_000, 0), min_size=1, max_size=40, unique=True),
    st.integers(1000, 60_000),
)
def test_a_message_is_cut_at_slot_borders(end_ms: int, offsets: list[int], width_ms: int) -> None:
    offsets.sort()
    parts = cut(end_ms, offsets, 0, width_ms)
    assert [index for _, start, stop in parts for index in range(start, stop)] == list(range(len(offsets)))
    for slot, start, stop in parts:
        assert {(end_ms + offset) // width_ms for offset in offsets[start:stop]} == {slot}


@given(st.lists(st.integers(1, 7 * 86400), min_size=1, max_size=5), st.integers(1, 86400))
def test_windows_of_any_length_are_bounded_in_memory(durations: list[int], aggregate_seconds: int) -> None:
    sizes = WindowSizes.of(aggregate_seconds, durations)
    assert sizes.slots <= MAX_SLOTS
    assert sizes.slot_ms * (sizes.slots - 1) >= max(durations) * 1000
