"""`cotenant up` as a process: it ends by itself with a summary, counts a killed service, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

COTENANT = Path(sys.executable).parent / "cotenant"
WAIT_SECONDS = 180
CGROUPS = Path("/sys/fs/cgroup")


def start(folder: Path, *flags: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [COTENANT, "up", "--data", str(folder), "--nodes", "1", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def within(condition: Callable[[], bool]) -> None:
    """Wait for another process' doing, within a bound."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def processes_naming(text: str) -> list[str]:
    """Command lines of living processes in which a text occurs."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if text in line:
                found.append(line)
    return found


def child_pid(parent: int, module: str) -> int:
    """The process id of a child that runs a module; 0 while there is none."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            status = (entry / "status").read_text()
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if f"\nPPid:\t{parent}\n" in status and module.encode() in line:
            return int(entry.name)
    return 0


def replayed(folder: Path) -> None:
    """Every decision of a stack that has ended can be computed again from its folder, and looking leaves nothing behind."""
    verified = subprocess.run(
        [COTENANT, "replay", "--verify", "--data", str(folder), "-o", "json"], capture_output=True, text=True, check=False
    )
    report = json.loads(verified.stdout)
    assert (verified.returncode, report["differing"], report["holes"]) == (0, 0, 0), report
    assert report["verified"] > 0
    assert processes_naming(str(folder)) == []


def test_a_run_ends_by_itself_keeps_the_log_and_leaves_nothing(tmp_path: Path) -> None:
    up = start(tmp_path, "--for", "2s")
    output, _ = up.communicate(timeout=WAIT_SECONDS)
    assert up.returncode == 0, output
    ready = re.search(r"ready after \d+\.\d s: API http://127\.0\.0\.1:\d+, NATS (nats://127\.0\.0\.1:\d+)", output)
    assert ready is not None, output
    assert re.search(r"ran 0:\d\d, 0 pods placed", output)
    assert processes_naming(ready.group(1)) == []
    assert processes_naming(str(tmp_path)) == []
    assert not (tmp_path / "endpoint.json").exists()
    replayed(tmp_path)


def test_a_killed_service_comes_back_and_is_counted_and_a_second_run_is_refused(tmp_path: Path) -> None:
    up = start(tmp_path)
    within((tmp_path / "endpoint.json").exists)
    second = subprocess.run([COTENANT, "up", "--data", str(tmp_path)], capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert f"in use by another `cotenant up` (process {up.pid})" in second.stderr

    first_pid = child_pid(up.pid, "cotenant_quota_tree")
    os.kill(first_pid, signal.SIGKILL)
    within(lambda: child_pid(up.pid, "cotenant_quota_tree") not in (0, first_pid))
    up.send_signal(signal.SIGINT)
    output, _ = up.communicate(timeout=WAIT_SECONDS)
    assert up.returncode == 1, output
    assert "quota-tree ended by itself (killed by SIGKILL)" in output
    assert processes_naming(str(tmp_path)) == []
    replayed(tmp_path)


def cgroups_of(node: str) -> list[Path]:
    """Control groups of a node's executor."""
    return [path for path in CGROUPS.glob(f"**/cotenant/{node}") if path.is_dir()]


def test_ctrl_c_ends_the_demonstration_with_nothing_left(tmp_path: Path) -> None:
    up = start(tmp_path, "--demo")
    within((tmp_path / "demo.json").exists)
    listed = subprocess.run(
        [COTENANT, "get", "nodes", "-o", "json", "--data", str(tmp_path)], capture_output=True, text=True, check=True
    )
    real = [
        node["metadata"]["name"]
        for node in json.loads(listed.stdout)["items"]
        if not node["metadata"]["name"].startswith("simulated")
    ]
    service = json.loads((tmp_path / "demo.json").read_text())["service"].split(":")[1]
    within(lambda: bool(processes_naming(f"service.py --port {service}")))
    up.send_signal(signal.SIGINT)
    output, _ = up.communicate(timeout=WAIT_SECONDS)
    assert up.returncode == 0, output
    assert "no service crashed" in output
    assert processes_naming(f"service.py --port {service}") == []
    assert processes_naming(str(tmp_path)) == []
    assert [path for node in real for path in cgroups_of(node)] == []
