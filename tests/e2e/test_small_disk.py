"""A disk that is small: the streams follow it, or the screen says within ten seconds what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.stack import BIN, WAIT_SECONDS

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root for a file system of its own"),
]


def up_on(folder: Path, mebibytes: int, *options: str) -> subprocess.CompletedProcess[str]:
    """Run `cotenant up` on a tmpfs of this size, in a mount namespace that ends with it."""
    mounted = f"mount -t tmpfs -o size={mebibytes}m tmpfs {folder} && exec {BIN / 'cotenant'} up --nodes 0 {' '.join(options)}"
    command = ("unshare", "--mount", "sh", "-c", f"{mounted} --data {folder}/data")
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)


def test_streams_follow_a_small_disk(tmp_path: Path) -> None:
    done = up_on(tmp_path, 400, "--for", "3s")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ready after" in done.stdout


def test_a_disk_without_room_is_named_at_once(tmp_path: Path) -> None:
    began = time.monotonic()
    done = up_on(tmp_path, 100)
    assert done.returncode == 1
    assert "nats-server needs 256 MiB at least; name a data folder on another disk (--data)" in done.stdout
    assert time.monotonic() - began < 10
