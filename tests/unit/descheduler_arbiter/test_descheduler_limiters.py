"""How many pods may be evicted, how soon and how many at once; expected figures are worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cotenant.events.migrations import Migration
from cotenant_descheduler_arbiter.config.policy import CycleLimits
from cotenant_descheduler_arbiter.eviction.backoff import latest_moves, needed_until, next_consecutive, pause, workload_key
from cotenant_descheduler_arbiter.eviction.cycle_limits import CycleCounts
from cotenant_descheduler_arbiter.eviction.object_limiter import limited, tokens_left
from cotenant_descheduler_arbiter.migration.max_unavailable import max_away

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def test_a_bucket_is_full_at_first_and_fills_at_its_rate() -> None:
    assert tokens_left([], 1.0, 3, NOON) == 3
    assert tokens_left([NOON], 0.5, 3, NOON) == 2
    assert tokens_left([NOON], 0.5, 3, NOON + seconds(1)) == 2.5
    assert tokens_left([NOON], 0.5, 3, NOON + seconds(9)) == 3
    # 3 - 1, + 0.5 of the second between, - 1, + 1 of two seconds
    assert tokens_left([NOON, NOON + seconds(1)], 0.5, 3, NOON + seconds(3)) == 2.5
    # the second one full again before it takes its token
    assert tokens_left([NOON, NOON + seconds(100)], 0.5, 3, NOON + seconds(100)) == 2


def test_an_eviction_without_a_token_takes_none() -> None:
    assert tokens_left([NOON, NOON, NOON], 1.0, 1, NOON) == 0
    assert tokens_left([NOON, NOON + seconds(0.5)], 1.0, 1, NOON + seconds(0.5)) == 0.5


def test_a_clock_that_goes_back_adds_no_tokens() -> None:
    assert tokens_left([NOON, NOON - seconds(5)], 1.0, 3, NOON - seconds(9)) == 1


def test_another_eviction_waits_for_a_whole_token() -> None:
    def waits(after: float, evictions: int = 1, burst: int = 1, duration: float = 10, migrating: int = 1) -> bool:
        return limited(
            [NOON] * evictions,
            duration=seconds(duration),
            max_migrating=migrating,
            burst=burst,
            now=NOON + seconds(after),
        )

    assert waits(9)
    assert not waits(10)
    assert not waits(100)
    assert waits(4, migrating=2)
    assert not waits(5, migrating=2)
    assert not waits(0, burst=2)
    assert waits(0, evictions=2, burst=2)
    assert waits(9, burst=0)
    assert not waits(10, burst=0)
    assert not waits(0, evictions=0)
    assert not waits(0, duration=0)
    assert not waits(0, migrating=0)


def test_an_empty_bucket_of_many_fills_at_its_rate() -> None:
    def waits(after: float) -> bool:
        evictions = [NOON] * 100
        return limited(evictions, duration=seconds(1000), max_migrating=1, burst=100, now=NOON + seconds(after))

    assert waits(999)
    assert not waits(1000)


def test_a_cycle_refuses_by_node_then_namespace_then_in_all() -> None:
    limits = CycleLimits(
        max_no_of_pods_to_evict_per_node=1, max_no_of_pods_to_evict_per_namespace=2, max_no_of_pods_to_evict_total=3
    )
    counts = CycleCounts(limits, [("a", "x")])
    assert counts.refusal("a", "x") == "node a has reached its 1 evictions of this cycle"
    assert counts.refusal("b", "x") is None
    counts.count("b", "x")
    assert counts.refusal("c", "x") == "namespace x has reached its 2 evictions of this cycle"
    assert counts.refusal("c", "y") is None
    counts.count("", "y")
    assert counts.refusal("c", "z") == "this cycle has reached its 3 evictions"
    assert counts.per_node == {"a": 1, "b": 1}
    assert counts.per_namespace == {"x": 2, "y": 1}
    assert not counts.node_full("")


def test_a_pod_without_a_node_is_not_refused_by_node_and_no_limit_refuses_nothing() -> None:
    closed = CycleCounts(CycleLimits(max_no_of_pods_to_evict_per_node=0))
    assert closed.refusal("", "x") is None
    assert closed.refusal("a", "x") is not None
    assert not CycleCounts(CycleLimits(max_no_of_pods_to_evict_per_namespace=1)).namespace_full("x")
    assert CycleCounts(CycleLimits(), [("a", "x")] * 9).refusal("a", "x") is None


# -- the back-off of workloads ---------------------------------------------------------------------------------------

BASE, MAXIMUM = seconds(10), seconds(60)


def moved(
    job: str, at: datetime | None = NOON, *, moves: int = 1, workload: str = "w", retry_at: datetime | None = None
) -> Migration:
    return Migration(
        job=job,
        namespace="n",
        pod="p",
        uid="u",
        workload=workload,
        evicted_at=at,
        workload_moves=moves,
        workload_retry_at=retry_at,
    )


def test_pauses_double_up_to_the_maximum() -> None:
    found = [pause(moves, BASE, MAXIMUM).total_seconds() for moves in (-1, 0, 1, 2, 3, 4, 10_000)]
    assert found == [0, 0, 10, 20, 40, 60, 60]


def test_a_pause_is_the_maximum_however_large_its_base() -> None:
    base, maximum = timedelta(days=1), timedelta(days=3)
    assert [pause(moves, base, maximum) for moves in (1, 2, 3, 31)] == [base, 2 * base, maximum, maximum]


def test_moves_within_a_pause_after_the_pause_are_consecutive() -> None:
    last = moved("j", moves=2, retry_at=NOON)
    assert next_consecutive(last, BASE, MAXIMUM, NOON + seconds(19)) == 3
    assert next_consecutive(last, BASE, MAXIMUM, NOON + seconds(20)) == 1
    assert next_consecutive(None, BASE, MAXIMUM, NOON) == next_consecutive(moved("j", moves=2), BASE, MAXIMUM, NOON) == 1
    assert needed_until(last, BASE, MAXIMUM) == NOON + seconds(20)
    assert needed_until(moved("j"), BASE, MAXIMUM) is None


def test_the_last_granted_move_of_a_workload_counts() -> None:
    first, second = moved("b", NOON), moved("a", NOON + seconds(1))
    same_time, waiting, refused = moved("c", NOON), moved("d", None), moved("e", NOON + seconds(9), moves=0)
    bare = moved("f", workload="")
    found = latest_moves([waiting, second, first, refused, bare])
    assert found == {"w": second, "n/p": bare}
    assert latest_moves([first, second])["w"] is second
    assert latest_moves([same_time, first])["w"] is latest_moves([first, same_time])["w"] is same_time
    assert workload_key("", "n", "p") == "n/p"
    assert workload_key("w", "n", "p") == "w"


# -- max unavailable -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replicas", "value", "expected"),
    [
        (11, None, 1),
        (29, None, 2),
        (100, None, 10),
        (10, None, 2),
        (4, None, 2),
        (3, None, 1),
        (1, None, 1),
        (0, None, 0),
        (10, 3, 3),
        (10, 0, 1),
        (2, 5, 2),
        (10, "25%", 2),
        (3, "10%", 1),
        (200, "1%", 2),
    ],
)
def test_how_many_pods_may_be_away(replicas: int, value: int | str | None, expected: int) -> None:
    assert max_away(replicas, value) == expected


@pytest.mark.parametrize("text", ["", "%", "5", "a%", "-1%", "1.5%"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="neither a whole number nor a percentage"):
        max_away(10, text)
