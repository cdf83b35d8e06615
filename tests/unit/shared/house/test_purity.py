"""Cores, plugins and formulas are pure: what they import can do no I/O and reads no clock."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
FORBIDDEN = {"asyncio", "nats", "aiohttp", "os", "time", "random", "socket", "subprocess", "threading", "secrets"}
FLOORS = ("model", "events", "api", "domain", "kinds", "engine")
CORES = (
    *ROOT.glob("services/*/cotenant_*/core.py"),
    ROOT / "services/gateway/cotenant_gateway/read_model/core.py",
    ROOT / "services/node-executor/cotenant_node_executor/core/node.py",
    *(path for floor in FLOORS for path in ROOT.glob(f"shared/cotenant/{floor}/**/*.py")),
)
"""Every core, and the floors of the contract on which they stand. What they import, wherever it lies, is checked as well."""


def modules() -> dict[str, Path]:
    """Return every module of the project by its dotted name."""
    found: dict[str, Path] = {}
    for base in (ROOT / "shared", *ROOT.glob("services/*")):
        for path in base.glob("cotenant*/**/*.py"):
            found[".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__")] = path
    return found


def reachable(starts: Iterable[Path]) -> list[Path]:
    """Return these files and every file of the project that they import, however far away."""
    known = modules()
    waiting, found = list(starts), set[Path]()
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            waiting += [known[name] for name in names if name in known]
    return sorted(found)


def imported(path: Path) -> set[str]:
    """Return the top-level modules that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


PURE = reachable(CORES)


def test_there_is_something_to_check() -> None:
    assert {path.parent.name for path in PURE if path.name == "core.py"} >= {"cotenant_scheduler", "cotenant_quota_tree"}
    assert len(PURE) > 200


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
