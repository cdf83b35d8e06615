"""Containers are read again only when something may have changed: real processes as shims, an imitated tree of groups."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cotenant_node_executor.runtime.container_files import AttemptFiles, attempt_files
from cotenant_node_executor.runtime.exits import Exits
from cotenant_node_executor.runtime.interface import UNKNOWN_EXIT, ContainerState
from cotenant_node_executor.runtime.observed import ObservedContainers
from cotenant_node_executor.targets.cgroup.sandbox.driver import SandboxDriver
from cotenant_node_executor.targets.interface import CgroupVersion

WAIT_SECONDS = 60
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def shims() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    running: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        running.append(subprocess.Popen(["/bin/sleep", "600"]))
        return running[-1]

    yield start
    for each in running:
        each.kill()
        each.wait()


@pytest.fixture
def observed(tmp_path: Path) -> ObservedContainers:
    driver = SandboxDriver(tmp_path / "tree", "n", version=CgroupVersion.V2)
    return ObservedContainers(driver, lambda uid, container: "")


def attempt(tmp_path: Path, name: str = "main", pid: int = 77) -> AttemptFiles:
    """The files of a container whose program runs."""
    files = attempt_files(tmp_path / name, 0)
    files.stem.parent.mkdir(parents=True)
    files.file("launch").write_text("{}")
    files.file("pid").write_text(f"{pid}\n")
    return files


def state(observed: ObservedContainers, uid: str = "u", name: str = "main") -> ContainerState:
    return observed.poll(NOW)[uid][name]


def until_ended(shim: subprocess.Popen[bytes]) -> None:
    """Wait until the kernel says so, without taking the answer from whoever waits for it."""
    os.waitid(os.P_PID, shim.pid, os.WEXITED | os.WNOWAIT)


class StartsMeanwhile(AttemptFiles, frozen=True):
    """The program starts right after the first look at its pid file, whichever that is."""

    def number(self, ending: str) -> int | None:
        found = super().number(ending)
        self._start(ending)
        return found

    def changed_at(self, ending: str) -> datetime | None:
        found = super().changed_at(ending)
        self._start(ending)
        return found

    def _start(self, ending: str) -> None:
        if ending == "pid" and not self.file("pid").exists():
            self.file("pid").write_text("77\n")


def test_a_program_that_starts_while_it_is_looked_at_has_a_start_once_it_has_a_pid(
    observed: ObservedContainers, tmp_path: Path, shims: Callable[[], subprocess.Popen[bytes]]
) -> None:
    """A container with a pid is not read again while it runs: without its start the pod would be pending for as long."""
    files = StartsMeanwhile(tmp_path / "main/0", 0)
    files.stem.parent.mkdir()
    observed.add("u", "main", files, shims())
    first = state(observed)
    assert bool(first.pid) is (first.started_at is not None)
    second = state(observed)
    assert second.pid == 77
    assert second.started_at is not None


def test_a_running_container_is_not_read_again_before_its_shim_ends(
    observed: ObservedContainers, tmp_path: Path, shims: Callable[[], subprocess.Popen[bytes]]
) -> None:
    shim, files = shims(), attempt(tmp_path)
    observed.add("u", "main", files, shim)
    assert state(observed).pid == 77
    files.file("pid").write_text("78\n")
    assert state(observed).pid == 77
    files.file("status").write_text("3\n")
    shim.send_signal(signal.SIGKILL)
    until_ended(shim)
    assert state(observed).exit_code == 3
    assert observed.changed() == {"u"}
    assert observed.changed() == set()


def test_a_finished_container_is_never_read_again(observed: ObservedContainers, tmp_path: Path) -> None:
    files = attempt(tmp_path)
    files.file("status").write_text("0\n")
    observed.add("u", "main", files)
    assert state(observed).exit_code == 0
    for path in files.stem.parent.iterdir():
        path.unlink()
    assert state(observed).exit_code == 0


def test_a_container_with_neither_process_nor_shim_has_an_unknown_exit(observed: ObservedContainers, tmp_path: Path) -> None:
    files = attempt(tmp_path)
    observed.add("u", "main", files)
    assert state(observed).exit_code == UNKNOWN_EXIT
    assert files.number("status") == UNKNOWN_EXIT


def test_a_shim_that_died_without_an_answer_leaves_an_unknown_exit(
    observed: ObservedContainers, tmp_path: Path, shims: Callable[[], subprocess.Popen[bytes]]
) -> None:
    shim = shims()
    observed.add("u", "main", attempt(tmp_path), shim)
    assert not state(observed).exited
    shim.kill()
    until_ended(shim)
    assert state(observed).exit_code == UNKNOWN_EXIT


def test_a_new_attempt_takes_the_place_of_the_last_one(
    observed: ObservedContainers, tmp_path: Path, shims: Callable[[], subprocess.Popen[bytes]]
) -> None:
    first = attempt(tmp_path)
    first.file("status").write_text("1\n")
    observed.add("u", "main", first)
    assert state(observed).exited
    again = attempt_files(first.stem.parent, 1)
    again.file("launch").write_text("{}")
    observed.add("u", "main", again, shims())
    assert not state(observed).exited
    again.file("pid").write_text("5\n")
    assert state(observed).pid == 5


def test_a_pod_that_is_forgotten_has_no_states_and_is_said_once(observed: ObservedContainers, tmp_path: Path) -> None:
    files = attempt(tmp_path)
    files.file("status").write_text("0\n")
    observed.add("u", "main", files)
    observed.poll(NOW)
    observed.changed()
    observed.drop_pod("u")
    assert dict(observed.poll(NOW)) == {}
    assert observed.changed() == {"u"}
    observed.drop_pod("u")
    assert observed.changed() == set()


def test_an_ended_process_is_said_once_by_its_key_and_others_are_not(
    shims: Callable[[], subprocess.Popen[bytes]],
) -> None:
    exits: Exits[str] = Exits()
    ends, stays = shims(), shims()
    assert exits.watch("ends", ends.pid)
    assert exits.watch("stays", stays.pid)
    assert exits.ended() == []
    ends.kill()
    deadline = time.monotonic() + WAIT_SECONDS
    found: list[str] = []
    while not found and time.monotonic() < deadline:
        found = exits.ended()
    assert found == ["ends"]
    assert exits.ended() == []
    assert exits.watches("stays")
    exits.forget("stays")
    assert not exits.watches("stays")


def test_a_process_that_is_not_there_cannot_be_watched(shims: Callable[[], subprocess.Popen[bytes]]) -> None:
    exits: Exits[str] = Exits()
    gone = shims()
    gone.kill()
    gone.wait()
    assert not exits.watch("gone", gone.pid)
