"""A server's disk of `bench chaos` can be filled to the last byte and emptied again, and what is on it can be kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WAIT_SECONDS = 60
SCRIPT = """
import sys
from pathlib import Path
from cotenant_verification.stack_chaos.disks import DISK_BYTES, ServerDisk, mount_privately

assert mount_privately()
folder = Path(sys.argv[1])
disk = ServerDisk(folder / "nats-1")
(folder / "nats-1" / "stored").write_text("before")
print(disk.free_bytes > DISK_BYTES // 2)
disk.fill()
print(disk.free_bytes)
try:
    (folder / "nats-1" / "more").write_bytes(bytes(1 << 16))
except OSError as error:
    print(error.strerror)
disk.empty()
print(disk.free_bytes > DISK_BYTES // 2)
disk.close(keep=sys.argv[2] == "keep")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount file systems of its own")
@pytest.mark.parametrize(("end", "left"), [("keep", ["more", "stored"]), ("drop", [])])
def test_a_disk_is_filled_and_emptied_and_kept_on_request(tmp_path: Path, end: str, left: list[str]) -> None:
    command = (sys.executable, "-c", SCRIPT, str(tmp_path), end)
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    assert done.stdout.splitlines() == ["True", "0", "No space left on device", "True"], done.stderr
    assert sorted(path.name for path in (tmp_path / "nats-1").iterdir()) == left
