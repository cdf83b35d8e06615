"""What threads used: of real threads of this process, and of files that say what a test wants."""

from __future__ import annotations

import os
from pathlib import Path

from cotenant_node_executor.sampling.threads import IDLE_NS, MOST_THREADS, ThreadSampler, ThreadUsage

SECOND = 1_000_000_000


def used(proc: Path, tid: int, ns: int) -> None:
    (proc / str(tid)).mkdir(exist_ok=True)
    (proc / str(tid) / "schedstat").write_text(f"{ns} 12 3\n")


def test_a_thread_counts_from_its_second_reading_on(tmp_path: Path) -> None:
    sampler = ThreadSampler(lambda _: [7], tmp_path)
    used(tmp_path, 7, 5 * SECOND)
    assert sampler.read({"a": 500}, SECOND) == {"a": (ThreadUsage(7, 0),)}
    used(tmp_path, 7, 5 * SECOND + SECOND // 4)
    assert sampler.read({"a": 500}, 2 * SECOND) == {"a": (ThreadUsage(7, 250),)}


def test_groups_that_use_nothing_are_not_looked_at_until_they_do(tmp_path: Path) -> None:
    looked: list[str] = []

    def threads(group: str) -> list[int]:
        looked.append(group)
        return []

    sampler = ThreadSampler(threads, tmp_path)
    sampler.read({"a": 19, "b": None}, SECOND)
    assert looked == []
    sampler.read({"a": 20, "b": 0}, 2 * SECOND)
    sampler.read({"a": 0, "b": 0}, 3 * SECOND)
    assert looked == ["a", "a"]
    sampler.read({"a": 0, "b": 0}, 2 * SECOND + IDLE_NS)
    assert looked == ["a", "a"]


def test_threads_that_end_and_counters_that_go_back_are_no_error(tmp_path: Path) -> None:
    sampler = ThreadSampler(lambda _: [7, 8], tmp_path)
    used(tmp_path, 7, SECOND)
    assert sampler.read({"a": 100}, SECOND) == {"a": (ThreadUsage(7, 0),)}
    used(tmp_path, 7, 0)
    assert sampler.read({"a": 100}, 2 * SECOND) == {"a": (ThreadUsage(7, 0),)}
    assert sampler.read({}, 3 * SECOND) == {}


def test_no_more_threads_are_read_than_the_bound(tmp_path: Path) -> None:
    for tid in range(1, MOST_THREADS + 10):
        used(tmp_path, tid, 1)
    sampler = ThreadSampler(lambda _: range(1, MOST_THREADS + 10), tmp_path)
    assert len(sampler.read({"a": 100}, SECOND)["a"]) == MOST_THREADS


def test_a_real_thread_has_used_something() -> None:
    sampler = ThreadSampler(lambda _: [os.getpid()])
    sampler.read({"a": 100}, 1)
    assert sampler.read({"a": 100}, 2)["a"][0].tid == os.getpid()
