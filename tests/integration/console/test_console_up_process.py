"""`cotenant up` as a process: it ends by itself with a summary, counts a killed service, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.other_processes import child_pid, processes_naming, wait_for

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
    api = r"API https://127\.0\.0\.1:\d+, NATS (tls://127\.0\.0\.1:\d+), KUBECONFIG="
    ready = re.search(rf"ready after \d+\.\d s: {api}", output)
    assert ready is not None, output
    assert re.search(r"ran 0:\d\d, 0 pods placed", output)
    assert processes_naming(ready.group(1)) == []
    assert processes_naming(str(tmp_path)) == []
    assert not (tmp_path / "endpoint.json").exists()
    replayed(tmp_path)


def test_a_killed_service_comes_back_and_is_counted_and_a_second_run_is_refused(tmp_path: Path) -> None:
    up = start(tmp_path)
    wait_for("the stack's addresses", (tmp_path / "endpoint.json").exists, WAIT_SECONDS)
    second = subprocess.run([COTENANT, "up", "--data", str(tmp_path)], capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert f"in use by another `cotenant up` (process {up.pid})" in second.stderr

    first_pid = child_pid(up.pid, "cotenant_quota_tree")
    os.kill(first_pid, signal.SIGKILL)
    wait_for("another one", lambda: child_pid(up.pid, "cotenant_quota_tree") not in (0, first_pid), WAIT_SECONDS)
    up.send_signal(signal.SIGINT)
    output, _ = up.communicate(timeout=WAIT_SECONDS)
    assert up.returncode == 1, output
    assert "quota-tree ended unexpectedly (killed by SIGKILL)" in output
    assert processes_naming(str(tmp_path)) == []
    replayed(tmp_path)


def cgroups_of(node: str) -> list[Path]:
    """Control groups of a node's executor."""
    return [path for path in CGROUPS.glob(f"**/cotenant/{node}") if path.is_dir()]


def test_ctrl_c_ends_the_demonstration_with_nothing_left(tmp_path: Path) -> None:
    up = start(tmp_path, "--demo")
    wait_for("the demonstration", (tmp_path / "demo.json").exists, WAIT_SECONDS)
    listed = subprocess.run(
        [COTENANT, "get", "nodes", "-o", "json", "--data", str(tmp_path)], capture_output=True, text=True, check=True
    )
    real = [
        node["metadata"]["name"]
        for node in json.loads(listed.stdout)["items"]
        if not node["metadata"]["name"].startswith("simulated")
    ]
    service = json.loads((tmp_path / "demo.json").read_text())["service"].split(":")[1]
    wait_for("its service", lambda: processes_naming(f"service.py --port {service}"), WAIT_SECONDS)
    up.send_signal(signal.SIGINT)
    output, _ = up.communicate(timeout=WAIT_SECONDS)
    assert up.returncode == 0, output
    assert "no service crashed" in output
    assert processes_naming(f"service.py --port {service}") == []
    assert processes_naming(str(tmp_path)) == []
    assert [path for node in real for path in cgroups_of(node)] == []
