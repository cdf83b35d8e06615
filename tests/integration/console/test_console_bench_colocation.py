"""`cotenant bench colocation` as a process: real pods on real control groups, the figures, and that nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cotenant_verification.bench.colocation.cleanup import FOLDER_PREFIX
from tests.other_processes import processes_naming, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real control groups")

LIMIT_SECONDS = 400


def bench(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "cotenant_console", "bench", "colocation", *arguments]
    env = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def groups() -> list[Path]:
    root = Path("/sys/fs/cgroup")
    return [*root.glob(f"{FOLDER_PREFIX}*"), *root.glob(f"*/{FOLDER_PREFIX}*")]


def own_groups(folder: Path) -> list[Path]:
    """Groups that are named as the run's folder."""
    names = {each.name for each in folder.glob(f"{FOLDER_PREFIX}*")}
    return [each for each in groups() if each.name in names]


def test_a_service_is_measured_alone_beside_and_without_control(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    process = bench(tmp_path, "--case", "cpu", "--pairs", "1", "--seconds", "1", "-o", "json")
    out, errors = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 0, errors
    (found,) = json.loads(out)
    assert (found["case"], found["class"], found["pairs"]) == ("cpu", "fair", 1)
    for part in ("alone", "beside", "uncontrolled"):
        assert 0 < found[part]["p50_ms"] <= found[part]["p99_ms"] <= found[part]["p999_ms"]
        assert found[part]["requests"] > 50
        assert 0 < found[part]["utilisation"] <= 1
    assert found["p99_over_alone"] == pytest.approx(found["beside"]["p99_ms"] / found["alone"]["p99_ms"], rel=0.01)
    assert found["p99_over_ideal"] > 0.9
    assert found["utilisation"] == found["beside"]["utilisation"]
    assert found["services_ended"] == 0
    assert found["executor"]["identity"] > 0
    assert list(tmp_path.iterdir()) == []
    assert processes_naming(str(tmp_path)) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_or_killed_run_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    tmp_path.chmod(0o755)
    process = bench(tmp_path, "--case", "fork", "--pairs", "1", "--seconds", "10")

    def bombed() -> bool:
        assert process.poll() is None, process.communicate()
        own = own_groups(tmp_path)
        return any("neighbour.py fork" in line for line in processes_naming(str(tmp_path))) and bool(own)

    try:
        wait_for("a pod to be a fork bomb", bombed, LIMIT_SECONDS)
        own = own_groups(tmp_path)
    finally:
        process.send_signal(number)
        process.communicate(timeout=LIMIT_SECONDS)
    wait_for("everything to be removed", lambda: list(tmp_path.iterdir()) == [], LIMIT_SECONDS)
    assert not [group for group in own if group.exists()]
    assert processes_naming(str(tmp_path)) == []


@pytest.mark.parametrize(
    ("arguments", "said"), [(("--pairs", "0"), "1<=x"), (("--seconds", "nan"), "nan"), (("--case", "x"), "'x'")]
)
def test_what_cannot_be_is_said(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    process = bench(tmp_path, *arguments)
    _, errors = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 2
    assert said in errors
