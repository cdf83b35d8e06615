"""`cotenant bench` refuses what cannot be, says why, and leaves nothing behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from cotenant_verification.bench.command import command


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("schedule", "--core-only", "--stack"), "leave out --stack"),
        (("schedule", "--rate", "1", "--pods", "1000"), "metrics are written once and expire"),
        (("schedule", "--openb", "/nowhere"), "does not exist"),
        (("schedule", "--mix", "101"), "0<=x<=100"),
        (("schedule", "--stack", "--nodes", "4001"), "at most 4000 nodes"),
        (("recover", "--pods", "1"), "10<=x"),
    ],
)
def test_what_cannot_be_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code in (1, 2)
    assert said in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_openbs_tables_is_named(tmp_path: Path) -> None:
    asked = ["schedule", "--core-only", "--openb", str(tmp_path)]
    result = CliRunner().invoke(command, asked)
    assert result.exit_code == 1
    assert "openb_node_list_all_node.csv cannot be read" in result.stderr
    (tmp_path / "openb_node_list_all_node.csv").write_text("sn,cpu_milli,memory_mib,gpu\nn1,many,1024,0\n")
    result = CliRunner().invoke(command, asked)
    assert result.exit_code == 1
    assert "line 2: cpu_milli is 'many'" in result.stderr
