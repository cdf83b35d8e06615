"""The guard of the real-time class, on real threads of this machine and on groups imitated by folders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant_node_executor.runtime.realtime import guard as program
from cotenant_node_executor.runtime.realtime.guard import HUNG_SECONDS, Guard, Meter, demote, promote, threads_below, usage_ns
from tests.other_processes import wait_for

SECOND = 1_000_000_000


def test_a_meter_says_nothing_before_its_window_is_full_and_then_the_cpus_used_over_it() -> None:
    meter = Meter(SECOND)
    for tick in range(100):
        meter.add(tick * SECOND // 100, tick * 2 * SECOND // 100)
        assert meter.used == 0.0
    meter.add(SECOND, 2 * SECOND)
    assert meter.used == 2.0
    for tick in range(101, 201):
        meter.add(tick * SECOND // 100, 2 * SECOND)
    assert meter.used == 0.0


@pytest.mark.parametrize(
    ("text", "wanted"), [("123456\n", 123456), ("usage_usec 5\nuser_usec 3\n", 5000)]
)
def test_the_cpu_time_of_a_group_is_read_on_both_cgroup_versions(tmp_path: Path, text: str, wanted: int) -> None:
    (tmp_path / "file").write_text(text)
    assert usage_ns(str(tmp_path / "file")) == wanted
    assert usage_ns(str(tmp_path / "none")) is None


class Group:
    """A group imitated by a folder with a file of threads and one of CPU time."""

    def __init__(self, folder: Path, *tids: int) -> None:
        (folder / "main").mkdir(parents=True)
        (folder / "cgroup.threads").write_text("")
        (folder / "main/cgroup.threads").write_text("".join(f"{tid}\n" for tid in tids))
        self.folder, self.usage = folder, folder / "cpuacct.usage"
        self.used(0.0)

    def used(self, seconds: float) -> None:
        self.usage.write_text(str(int(seconds * SECOND)))


def line(**groups: Group) -> dict[str, object]:
    return told(groups)


def told(groups: dict[str, Group]) -> dict[str, object]:
    """What the executor says: two CPUs, budgets as for two pods."""
    return {
        "groups": {name: [str(group.folder)] for name, group in groups.items()},
        "usage": {name: str(group.usage) for name, group in groups.items()},
        "cpus": 2,
        "share": 0.85,
        "budgets": dict.fromkeys(groups, 0.425),
        "procs": [],
    }


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the guard does to groups, by folder, in the place of the kernel's classes."""
    found: dict[str, str] = {}

    def given(directories: list[str]) -> tuple[list[int], str]:
        found.update(dict.fromkeys(directories, "realtime"))
        return [], ""

    def taken(directories: list[str]) -> bool:
        found.update(dict.fromkeys(directories, "fair"))
        return True

    monkeypatch.setattr(program, "promote", given)
    monkeypatch.setattr(program, "demote", taken)
    return found


def run(guard: Guard, groups: dict[str, tuple[Group, float]], begin: float, seconds: float) -> tuple[float, dict[str, str]]:
    """Let groups use so many CPUs; when something was taken away after how long, and what; 0 and nothing where not."""
    for tick in range(int(seconds * 100)):
        now = begin + tick / 100
        for group, cpus in groups.values():
            group.used(100 + cpus * now)
        if tick % 100 == 0:
            guard.take(told({name: group for name, (group, _) in groups.items()}), now)
        if found := guard.tick(now):
            return now - begin, found
    return 0.0, {}


def test_groups_that_use_little_keep_the_class(tmp_path: Path, asked: dict[str, str]) -> None:
    groups = {"a": (Group(tmp_path / "a"), 0.3), "b": (Group(tmp_path / "b"), 0.3)}
    assert run(Guard(0.0), groups, 0.0, 30.0) == (0.0, {})
    assert set(asked.values()) == {"realtime"}


def test_all_lose_it_once_they_used_together_what_they_may_for_a_second(tmp_path: Path, asked: dict[str, str]) -> None:
    groups = {"a": (Group(tmp_path / "a"), 0.85), "b": (Group(tmp_path / "b"), 0.8)}
    after, found = run(Guard(0.0), groups, 0.0, 5.0)
    assert after == pytest.approx(1.0, abs=0.03)
    assert set(found) == {"a", "b"}
    assert "used 1.65 of the 1.70 CPUs" in found["a"]
    assert set(asked.values()) == {"fair"}


@pytest.mark.parametrize(("cpus", "overloaded"), [(1.84, True), (1.75, False)])
def test_without_budgets_an_overload_is_most_of_what_the_kernel_does_not_keep_for_others(
    tmp_path: Path, asked: dict[str, str], cpus: float, overloaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "process_time_ns", lambda: 0)
    group, guard = Group(tmp_path / "a"), Guard(0.0)
    found: dict[str, str] = {}
    for tick in range(300):
        now = tick / 100
        group.used(cpus * now)
        if tick % 100 == 0:
            guard.take(line(a=group) | {"share": 0.95, "budgets": {}}, now)
        found |= guard.tick(now)
    assert bool(found) is overloaded
    assert not found or "used 1.84 of the 1.90 CPUs" in found["a"]


def test_what_the_guard_itself_uses_is_not_there_for_real_time_threads(
    tmp_path: Path, asked: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    group, guard = Group(tmp_path / "a"), Guard(0.0)
    found: dict[str, str] = {}
    for tick in range(200):
        now = tick / 100
        monkeypatch.setattr(time, "process_time_ns", lambda now=now: int(0.3 * now * SECOND))
        group.used(1.6 * now)
        if tick % 100 == 0:
            guard.take(line(a=group) | {"share": 0.95, "budgets": {}}, now)
        found |= guard.tick(now)
    assert "used 1.60 of the 1.60 CPUs" in found["a"]


def test_one_that_spends_its_own_budget_loses_it_alone(tmp_path: Path, asked: dict[str, str]) -> None:
    groups = {"a": (Group(tmp_path / "a"), 0.41), "b": (Group(tmp_path / "b"), 0.1)}
    after, found = run(Guard(0.0), groups, 0.0, 30.0)
    assert after == pytest.approx(10.0, abs=0.5)
    assert set(found) == {"a"}
    assert asked == {str(tmp_path / "a"): "fair", str(tmp_path / "b"): "realtime"}


def test_what_was_taken_away_comes_back_only_when_it_is_named_anew(tmp_path: Path, asked: dict[str, str]) -> None:
    group, guard = Group(tmp_path / "a"), Guard(0.0)
    _, found = run(guard, {"a": (group, 1.7)}, 0.0, 5.0)
    assert found
    group.used(0)
    for second in range(10, 20):
        guard.take(line(a=group), second)
        assert guard.tick(second) == {}
    assert set(asked.values()) == {"fair"}
    guard.take(line(), 20)
    guard.take(line(a=group), 21)
    guard.tick(21)
    assert set(asked.values()) == {"realtime"}


def test_a_silent_executor_loses_the_class_for_all(tmp_path: Path, asked: dict[str, str]) -> None:
    guard = Guard(0.0)
    guard.take(line(a=Group(tmp_path / "a")), 0.0)
    assert guard.tick(HUNG_SECONDS) == {}
    assert "silent" in guard.tick(HUNG_SECONDS + 0.01)["a"]
    assert set(asked.values()) == {"fair"}


def test_a_group_that_is_not_wanted_any_more_is_fair_at_once(tmp_path: Path, asked: dict[str, str]) -> None:
    guard = Guard(0.0)
    guard.take(line(a=Group(tmp_path / "a"), b=Group(tmp_path / "b")), 0.0)
    guard.tick(0.5)
    guard.take(line(b=Group(tmp_path / "c")), 1.0)
    assert asked[str(tmp_path / "a")] == "fair"


def test_a_kernel_that_refuses_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "promote", lambda _: ([], "SCHED_FIFO: Operation not permitted"))
    guard = Guard(0.0)
    guard.take(line(a=Group(tmp_path / "a")), 1.0)
    assert "Operation not permitted" in guard.tick(1.0)["a"]
    assert guard.tick(2.0) == {}


# -- real threads ----------------------------------------------------------------------------------------------------------

realtime_allowed = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a real-time class")


@realtime_allowed
def test_threads_get_the_class_and_lose_it_whoever_gave_it(tmp_path: Path, thread: int) -> None:
    group = Group(tmp_path / "a", thread, 4_000_000)
    assert [*threads_below([str(group.folder)])] == [thread, 4_000_000]
    found, refused = promote([str(group.folder)])
    assert found == [thread, 4_000_000]
    if refused:
        pytest.skip(f"this process may not be real-time: {refused}")
    assert os.sched_getscheduler(thread) == os.SCHED_FIFO
    assert demote([str(group.folder)])
    assert os.sched_getscheduler(thread) == os.SCHED_OTHER
    assert not demote([str(group.folder)]), "nobody has it any more"


@realtime_allowed
def test_known_threads_are_fair_before_a_directory_is_looked_into(
    tmp_path: Path, thread: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(tmp_path / "a", thread)
    guard = Guard(0.0)
    guard.take(line(a=group), 0.0)
    guard.tick(0.5)
    if os.sched_getscheduler(thread) != os.SCHED_FIFO:
        pytest.skip("this process may not be real-time")
    seen: list[int] = []

    def below(_: list[str]) -> Iterator[int]:
        seen.append(os.sched_getscheduler(thread))
        yield from ()

    monkeypatch.setattr(program, "threads_below", below)
    (text,) = guard.tick(1.0 + HUNG_SECONDS).values()
    assert seen == [os.SCHED_OTHER]
    assert float(text.rpartition("fair after ")[2].partition(" ms")[0]) < 50


def test_a_guard_without_a_budget_says_so_and_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", program.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None  # noqa: PT018
        process.stdin.write(json.dumps(line() | {"procs": [str(tmp_path / "none/cgroup.procs")]}).encode() + b"\n")
        process.stdin.flush()
        assert "the guard cannot be SCHED_FIFO" in json.loads(process.stdout.readline())["refused"]
        wait_for("its end", lambda: process.poll() is not None, 60)
