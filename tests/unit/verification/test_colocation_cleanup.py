"""What `bench colocation` removes: its own group and folder, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cotenant_verification.bench.colocation import cleanup
from cotenant_verification.bench.colocation.ground import Ground
from cotenant_verification.bench.testbed import BenchError
from tests.other_processes import wait_for

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real control groups")


@pytest.mark.parametrize("name", ["", "cotenant", "cotenant-colocation-/..", "process_api"])
def test_a_group_of_somebody_else_is_never_cleared(name: str) -> None:
    with pytest.raises(ValueError, match="was not made by this benchmark"):
        cleanup.clear_group(name)


def test_a_folder_of_somebody_else_is_never_removed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", cleanup.__name__, f"{cleanup.FOLDER_PREFIX}none", str(tmp_path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    assert done.returncode != 0
    assert tmp_path.is_dir()


@needs_root
def test_a_fork_bomb_in_the_group_is_ended_and_the_group_removed() -> None:
    with Ground() as ground:
        bomb = ground.start([ground.interpreter.path, str(ground.neighbour), "fork"])
        wait_for("the bomb to have forked", lambda: len(_processes(ground.base)) > 20, 60)
        assert len(_processes(ground.base)) <= 2000
    assert bomb.returncode == -signal.SIGKILL
    assert cleanup.group_roots(ground.base) == []
    assert not ground.folder.exists()


@needs_root
def test_neighbours_are_ended_between_two_windows_and_others_can_be_started_afterwards() -> None:
    with Ground() as ground:
        ground.start([ground.interpreter.path, str(ground.neighbour), "fork"])
        wait_for("the bomb to have forked", lambda: len(_processes(ground.base)) > 20, 60)
        ground.end_plain()
        assert _processes(ground.base) == []
        ground.start([ground.interpreter.path, str(ground.neighbour), "burn"])
        wait_for("a neighbour", lambda: len(_processes(ground.base)) == 1, 60)


@needs_root
def test_plain_processes_are_ended_before_pods_where_memory_ends() -> None:
    with Ground() as ground:
        plain = ground.start([ground.interpreter.path, str(ground.neighbour), "burn"])
        score = Path(f"/proc/{plain.pid}/oom_score_adj")
        wait_for("the score above every pod's", lambda: score.read_text() == "1000\n", 60)


@needs_root
def test_a_killed_benchmark_leaves_nothing(tmp_path: Path) -> None:
    script = (
        "import time\nfrom cotenant_verification.bench.colocation.ground import Ground\n"
        "with Ground() as ground:\n    ground.start([ground.interpreter.path, str(ground.neighbour), 'burn'])\n"
        "    print(ground.folder, flush=True)\n    time.sleep(600)\n"
    )
    command = [sys.executable, "-c", script]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as benchmark:
        assert benchmark.stdout is not None
        folder = Path(benchmark.stdout.readline().strip())
        wait_for("a neighbour", lambda: len(_processes(folder.name)) > 0, 60)
        benchmark.kill()
        wait_for("everything to be removed", lambda: not cleanup.group_roots(folder.name) and not folder.exists(), 90)


def test_without_permission_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("cotenant_verification.bench.colocation.ground.open_driver", refused)
    with pytest.raises(BenchError, match="run it as root"), Ground():
        pass


def _processes(base: str) -> list[str]:
    found: set[str] = set()
    for root in cleanup.group_roots(base):
        for file in root.rglob("cgroup.procs"):
            found.update(file.read_text().split())
    return sorted(found)
