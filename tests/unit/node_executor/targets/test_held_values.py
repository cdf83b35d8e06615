"""What was set outside of control groups and is put back by the next executor: on real threads, and on imitated targets."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from cotenant_node_executor.targets.address import (
    Attribute,
    EgressAttribute,
    EgressClass,
    NonCgroup,
    OomScore,
    OomScoreAttribute,
    ProcessAttribute,
    Processes,
    TcTree,
    TcTreeAttribute,
    TerwayAttribute,
    TerwayFile,
    Thread,
    ThreadAttribute,
)
from cotenant_node_executor.targets.cpulist import format_cpu_list
from cotenant_node_executor.targets.other.held import HeldValues, born_at
from cotenant_node_executor.targets.other.oom_scores import OomScoreAccessor
from cotenant_node_executor.targets.other.terway import TerwayAccessor
from cotenant_node_executor.targets.other.threads import ThreadAccessor
from cotenant_node_executor.targets.other.writer import OtherWriter
from tests.other_processes import wait_for

AFFINITY, SLICE = ThreadAttribute.AFFINITY, ThreadAttribute.SLICE
Values = Mapping[NonCgroup, Mapping[Attribute, str]]
OWN = format_cpu_list(os.sched_getaffinity(0))
FIRST = str(min(os.sched_getaffinity(0)))


def writer(file: Path) -> OtherWriter:
    """Of one executor's life."""
    return OtherWriter({Thread: ThreadAccessor()}, HeldValues(file))


def affinity(tid: int) -> str:
    return format_cpu_list(os.sched_getaffinity(tid))


@pytest.mark.skipif(OWN == FIRST, reason="needs two CPUs")
def test_the_next_executor_gives_a_thread_its_cpus_back(tmp_path: Path, thread: int) -> None:
    file = tmp_path / "held.json"
    report = writer(file).apply({Thread(thread): {AFFINITY: FIRST}})
    assert (affinity(thread), report.refused) == (FIRST, ())

    next_one = writer(file)
    assert next_one.holding
    report = next_one.apply({})
    assert affinity(thread) == OWN
    assert [(each.place, each.old, each.new) for each in report.written] == [(Thread(thread), FIRST, OWN)]
    assert not next_one.holding
    assert json.loads(file.read_text()) == []


@pytest.mark.skipif(OWN == FIRST, reason="needs two CPUs")
def test_a_thread_that_somebody_asks_for_again_stays_where_it_is(tmp_path: Path, thread: int) -> None:
    file = tmp_path / "held.json"
    asked: Values = {Thread(thread): {AFFINITY: FIRST}}
    writer(file).apply(asked)
    next_one = writer(file)
    assert next_one.apply(asked).written == ()
    next_one.apply({})
    assert affinity(thread) == OWN, "what it held before the first executor"


def test_another_thread_of_the_same_number_is_left_alone(tmp_path: Path, thread: int) -> None:
    file = tmp_path / "held.json"
    writer(file).apply({Thread(thread): {AFFINITY: FIRST}})
    entries = json.loads(file.read_text())
    file.write_text(json.dumps([{**entry, "born": "1"} for entry in entries]))
    next_one = writer(file)
    assert (next_one.holding, entries[0]["born"]) == (False, born_at(Path("/proc"), thread))
    next_one.apply({})
    assert affinity(thread) == FIRST


def test_a_thread_that_has_ended_is_forgotten(tmp_path: Path) -> None:
    begun, end = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        end.wait()

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert begun.wait(10)
    assert waiting.native_id is not None
    found = writer(tmp_path / "held.json")
    found.apply({Thread(waiting.native_id): {AFFINITY: FIRST}})
    assert found.holding
    end.set()
    waiting.join()
    # Python knows of the end before the kernel has removed the thread.
    wait_for("the thread's end", lambda: not Path(f"/proc/{waiting.native_id}").exists(), 10)
    report = found.apply({})
    assert (report.written, report.refused, found.holding) == ((), (), False)


class Counted(HeldValues):
    """Counts how often the file is written."""

    saved = 0

    def _save(self) -> None:
        if not self._together:
            self.saved += 1
        super()._save()


def test_the_file_is_written_once_for_all_threads_of_a_cycle(tmp_path: Path, thread: int) -> None:
    held = Counted(tmp_path / "held.json")
    found = OtherWriter({Thread: ThreadAccessor()}, held)
    asked: Values = {Thread(tid): {AFFINITY: FIRST, SLICE: "0"} for tid in (thread, threading.get_native_id())}
    try:
        found.apply(asked)
        assert (held.saved, len([*held.items()])) == (1, 4)
        found.apply({})
        assert (held.saved, len([*held.items()])) == (2, 0)
    finally:
        os.sched_setaffinity(0, range(os.cpu_count() or 1))


class Table:
    """Targets in memory that can be given back."""

    def __init__(self) -> None:
        self.texts: dict[NonCgroup, str] = {}

    def read(self, place: NonCgroup, _attribute: Attribute) -> str | None:
        return self.texts.get(place, "")

    def write(self, place: NonCgroup, _attribute: Attribute, value: str) -> None:
        self.texts[place] = value

    def holds(self, _attribute: Attribute, wanted: str, present: str) -> bool:
        return wanted == present

    def restore(self, place: NonCgroup, attribute: Attribute, text: str) -> None:
        self.write(place, attribute, text)


@pytest.mark.parametrize(
    ("place", "attribute", "value"),
    [
        (TcTree("eth9"), TcTreeAttribute.CLASSES, "1:1 0 1000 1000"),
        (EgressClass("burstable/podx"), EgressAttribute.CLASS, "1:3"),
        (Processes("burstable/podx/main"), ProcessAttribute.CORE_GROUP, "default-group"),
    ],
)
def test_the_next_executor_takes_back_what_lies_outside_of_files(
    tmp_path: Path, place: NonCgroup, attribute: Attribute, value: str
) -> None:
    table, file = Table(), tmp_path / "held.json"
    OtherWriter({type(place): table}, HeldValues(file)).apply({place: {attribute: value}})
    assert table.texts == {place: value}
    OtherWriter({type(place): table}, HeldValues(file)).apply({})
    assert table.texts == {place: ""}


def test_the_next_executor_gives_processes_their_oom_scores_back_also_those_that_came_later(tmp_path: Path) -> None:
    place, attribute, pids = OomScore("besteffort/podx/main"), OomScoreAttribute.ADJUSTMENT, [7, 8]
    file = tmp_path / "held.json"

    def scores(*now: str) -> list[str]:
        files = [tmp_path / str(pid) / "oom_score_adj" for pid in pids]
        for path, text in zip(files, now, strict=False):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return [path.read_text() for path in files]

    def executor() -> OtherWriter:
        return OtherWriter({OomScore: OomScoreAccessor(lambda _: pids, tmp_path)}, HeldValues(file))

    scores("1000", "1000")
    executor().apply({place: {attribute: "321"}})
    pids.append(9)
    assert scores("321", "321", "321") == ["321"] * 3
    next_one = executor()
    next_one.apply({})
    assert (scores(), next_one.holding) == (["1000"] * 3, False)

    scores("0", "500", "500")
    next_one.apply({place: {attribute: "321"}})
    next_one.apply({})
    assert (scores(), next_one.holding) == (["321"] * 3, False), "which process had which is not known"


def test_the_next_executor_gives_terway_its_file_back(tmp_path: Path) -> None:
    place, file = TerwayFile("pod.json"), tmp_path / "held.json"
    folder = tmp_path / "terway"
    folder.mkdir()
    (folder / "pod.json").write_text("theirs")
    for text in ("{}", '{"a": 1}'):
        OtherWriter({TerwayFile: TerwayAccessor(folder)}, HeldValues(file)).apply({place: {TerwayAttribute.TEXT: text}})
    OtherWriter({TerwayFile: TerwayAccessor(folder)}, HeldValues(file)).apply({})
    assert (folder / "pod.json").read_text() == "theirs"


def test_a_file_that_cannot_be_read_is_a_problem_and_counts_as_empty(tmp_path: Path) -> None:
    for text in ("rubbish", '[{"kind": "thread", "name": "x", "attribute": "affinity", "text": "0"}]', '[{"kind": "moon"}]'):
        (tmp_path / "held.json").write_text(text)
        held = HeldValues(tmp_path / "held.json")
        assert "former values are not restored" in held.problem
        assert not held
