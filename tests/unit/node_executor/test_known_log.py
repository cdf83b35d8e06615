"""Which LOG a node followed: what its file says when it is whole, missing or damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.log.contract import LogIdentity
from cotenant_node_executor.known_log import KnownLog

OWN = LogIdentity(created="2026-01-01T00:00:00Z", last=10)
OTHER = LogIdentity(created="2026-01-02T00:00:00Z", last=10)


def known(path: Path, *pods: str) -> KnownLog:
    return KnownLog(path, lambda: pods)


def test_a_node_without_a_file_takes_any_log(tmp_path: Path) -> None:
    assert known(tmp_path / "log.json", "pod").why_unknown(OTHER) == ""


def test_another_log_and_one_that_ends_earlier_are_unknown_where_pods_run(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    known(path).remember(OWN)
    assert known(path, "pod").why_unknown(OWN) == ""
    assert "was created at 2026-01-02" in known(path, "pod").why_unknown(OTHER)
    assert "LOG ends at 9" in known(path, "pod").why_unknown(LogIdentity(created=OWN.created, last=9))
    assert known(path).why_unknown(OTHER) == ""


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"created":3}'])
def test_a_damaged_file_makes_every_log_unknown_where_pods_run_until_one_is_adopted(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "log.json"
    path.write_bytes(content)
    found = known(path, "pod")
    assert "log.json, which says which LOG this node followed, cannot be read: " in found.why_unknown(OWN)
    assert known(path).why_unknown(OWN) == ""
    found.remember(OWN)
    assert found.why_unknown(OWN) == ""
    assert known(path, "pod").why_unknown(OWN) == ""
