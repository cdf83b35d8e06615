"""`cotenant bench` as a process: what it prints, what it refuses, and that nothing is left when it is interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.other_processes import processes_naming, wait_for

LIMIT_SECONDS = 120


def bench(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "cotenant_console", "bench", *arguments]
    env = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def outcome(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, errors = process.communicate(timeout=LIMIT_SECONDS)
    return process.returncode, out, errors


def test_a_mixed_workload_is_placed_and_verified(tmp_path: Path) -> None:
    status, out, errors = outcome(bench(tmp_path, "schedule", "--nodes", "60", "--pods", "600", "--mix", "40", "-o", "json"))
    assert status == 0, errors
    figures = json.loads(out)
    assert figures["verified"] is True
    assert figures["placed"] + figures["waiting"] == 600
    assert figures["waiting"] > 0
    assert figures["pods_per_second"] > 0
    latency = figures["submit_to_placed_ms"]
    assert 0 < latency["p50"] <= latency["p99"] <= latency["max"]
    assert {"nats-server", "scheduler", "submitter", "watcher"} <= figures["cpu_ms_per_pod"].keys()
    assert figures["peak_memory_mib"]["scheduler"] > 0
    assert (figures["conflicts"], figures["loads"]) == (0, 1)
    assert list(tmp_path.iterdir()) == []


def test_the_stack_runs_what_was_submitted_by_the_api(tmp_path: Path) -> None:
    arguments = ("schedule", "--stack", "--nodes", "10", "--pods", "60", "-o", "json")
    status, out, errors = outcome(bench(tmp_path, *arguments))
    assert status == 0, errors
    figures = json.loads(out)
    assert (figures["placed"], figures["running"], figures["verified"]) == (60, 60, True)
    assert figures["submit_to_running_ms"]["p50"] >= figures["submit_to_placed_ms"]["p50"]
    assert {"gateway", "quota-tree", "executors", "batch-resource-calculator"} <= figures["cpu_ms_per_pod"].keys()
    of_stack = [value for name, value in figures["cpu_ms_per_pod"].items() if name not in ("submitter", "watcher")]
    assert figures["stack_cpu_ms_per_pod"] == pytest.approx(sum(of_stack), abs=0.01)


def test_a_killed_scheduler_places_again(tmp_path: Path) -> None:
    status, out, errors = outcome(bench(tmp_path, "recover", "--nodes", "20", "--pods", "400", "-o", "json"))
    assert status == 0, errors
    figures = json.loads(out)
    assert (figures["placed"], figures["waiting"], figures["verified"], figures["loads"]) == (400, 0, True, 2)
    assert figures["first_placement_seconds"] > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    process = bench(tmp_path, "schedule", "--nodes", "20", "--pods", "1000", "--rate", "10")

    def started() -> bool:
        """The submitter's orders are the last file that is written before it starts."""
        assert process.poll() is None, outcome(process)
        return any(tmp_path.glob("cotenant-bench-*/submitter.log"))

    wait_for("the submitter", started, LIMIT_SECONDS)
    assert processes_naming(str(tmp_path))
    process.send_signal(number)
    status, _, errors = outcome(process)
    assert status == 1
    assert "Aborted" in errors
    assert list(tmp_path.iterdir()) == []
    assert processes_naming(str(tmp_path)) == []


def test_a_churn_that_is_told_to_end_leaves_nothing(tmp_path: Path) -> None:
    process = bench(tmp_path, "churn", "--rate", "1", "--for", "10m", "--nodes", "1")

    def started() -> bool:
        """The stack writes where it is once it is ready, and then the pods are created."""
        assert process.poll() is None, outcome(process)
        return any(tmp_path.glob("cotenant-churn-*/data/endpoint.json"))

    wait_for("the stack", started, LIMIT_SECONDS)
    assert processes_naming(str(tmp_path))
    process.send_signal(signal.SIGTERM)
    status, _, errors = outcome(process)
    assert status == 1
    assert "Aborted" in errors
    assert list(tmp_path.iterdir()) == []
    assert processes_naming(str(tmp_path)) == []
