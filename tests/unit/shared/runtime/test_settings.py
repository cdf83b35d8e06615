"""What a process takes from its command line before it does anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cotenant.runtime.settings import parser, settings_from

SERVICES = ("scheduler", "quota-tree", "gateway", "node-executor")


@pytest.mark.parametrize("service", SERVICES)
def test_another_partition_is_refused_at_start_with_status_2_and_what_to_do(service: str) -> None:
    program = Path(sys.executable).parent / f"cotenant-{service}"
    # It ends before it looks for a server: there is none at this address.
    arguments = ["--nats", "nats://127.0.0.1:1", "--partition", "1"]
    ended = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=90, check=False)
    assert ended.returncode == 2
    assert "--partition: '1'" in ended.stderr
    assert "as replicas (--replica)" in ended.stderr


def test_the_only_partition_may_be_named() -> None:
    made = parser("scheduler", "")
    assert settings_from(made.parse_args(["--partition", "0"])) == settings_from(made.parse_args([]))
