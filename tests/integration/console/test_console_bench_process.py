"""`cotenant bench` as a process: what it prints, what it refuses, and that nothing is left when it is interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

LIMIT_SECONDS = 120


def bench(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "cotenant_console", "bench", *arguments]
    env = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def outcome(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, errors = process.communicate(timeout=LIMIT_SECONDS)
    return process.returncode, out, errors


def processes_of(folder: Path) -> list[str]:
    """Command lines of processes that work in the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line:
            found.append(line)
    return found


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


def test_a_killed_scheduler_places_again(tmp_path: Path) -> None:
    status, out, errors = outcome(bench(tmp_path, "recover", "--nodes", "20", "--pods", "400", "-o", "json"))
    assert status == 0, errors
    figures = json.loads(out)
    assert (figures["placed"], figures["waiting"], figures["verified"], figures["loads"]) == (400, 0, True, 2)
    assert figures["first_placement_seconds"] > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    process = bench(tmp_path, "schedule", "--nodes", "20", "--pods", "1000", "--rate", "10")
    deadline = time.monotonic() + LIMIT_SECONDS
    # The submitter's orders are the last file that is written before it starts.
    while not any(tmp_path.glob("cotenant-bench-*/submitter.log")):
        assert process.poll() is None, outcome(process)
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert processes_of(tmp_path)
    process.send_signal(number)
    status, _, errors = outcome(process)
    assert status == 1
    assert "Aborted" in errors
    assert list(tmp_path.iterdir()) == []
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("schedule", "--core-only", "--stack"), "leave out --stack"),
        (("schedule", "--rate", "1", "--pods", "1000"), "metrics are written once and expire"),
        (("schedule", "--openb", "/nowhere"), "does not exist"),
        (("schedule", "--mix", "101"), "0<=x<=100"),
        (("schedule", "--stack", "--nodes", "3000"), "at most 2000 nodes"),
        (("recover", "--pods", "1"), "10<=x"),
    ],
)
def test_what_cannot_be_is_said(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    status, _, errors = outcome(bench(tmp_path, *arguments))
    assert status in (1, 2)
    assert said in errors
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_openbs_tables_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    status, _, errors = outcome(bench(tmp_path, "schedule", "--core-only", "--openb", str(tmp_path / "data")))
    assert status == 1
    assert "openb_node_list_all_node.csv cannot be read" in errors
    (tmp_path / "data" / "openb_node_list_all_node.csv").write_text("sn,cpu_milli,memory_mib,gpu\nn1,many,1024,0\n")
    status, _, errors = outcome(bench(tmp_path, "schedule", "--core-only", "--openb", str(tmp_path / "data")))
    assert status == 1
    assert "line 2: cpu_milli is 'many'" in errors
