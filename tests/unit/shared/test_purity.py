"""Cores, plugins and formulas are pure: what they import can do no I/O and reads no clock."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FORBIDDEN = {"asyncio", "nats", "aiohttp", "os", "time", "random", "socket", "subprocess", "threading", "secrets"}
PURE = sorted(
    {
        *ROOT.glob("services/*/cotenant_*/core.py"),
        *ROOT.glob("services/*/cotenant_*/plugins/*.py"),
        *ROOT.glob("services/*/cotenant_*/formulas/*.py"),
        *ROOT.glob("services/*/cotenant_*/strategies/*.py"),
        *ROOT.glob("services/*/cotenant_*/composing/*.py"),
        *ROOT.glob("shared/cotenant/events/*.py"),
        *ROOT.glob("shared/cotenant/objects/*.py"),
        *ROOT.glob("shared/cotenant/quota/*.py"),
        ROOT / "shared/cotenant/cycle.py",
        ROOT / "shared/cotenant/sealing.py",
        ROOT / "shared/cotenant/replay.py",
        ROOT / "shared/cotenant/quantities.py",
        ROOT / "shared/cotenant/qos.py",
    }
)


def imported(path: Path) -> set[str]:
    """Return the top-level modules that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


def test_there_is_something_to_check() -> None:
    assert {path.parent.name for path in PURE if path.name == "core.py"} >= {"cotenant_scheduler", "cotenant_quota_tree"}


@pytest.mark.parametrize("path", PURE, ids=lambda path: str(path.relative_to(ROOT)))
def test_pure_files_import_nothing_that_acts(path: Path) -> None:
    assert not imported(path) & FORBIDDEN


@pytest.mark.parametrize("path", PURE, ids=lambda path: str(path.relative_to(ROOT)))
def test_pure_files_do_not_ask_for_the_time(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr in ("uuid1", "uuid4"):
            pytest.fail(f"random id on line {node.lineno}")
        if isinstance(node, ast.Attribute) and node.attr in ("now", "utcnow", "today"):
            assert not (isinstance(node.value, ast.Name) and node.value.id in ("datetime", "date")), f"line {node.lineno}"
