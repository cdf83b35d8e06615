"""What commands use of a module that they import late exists: the type checker does not look behind `import_module`."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[4]
SOURCES = sorted((ROOT / "services" / "console").rglob("*.py"))


def imported_late(node: ast.AST) -> str:
    """The module that an expression imports by a literal name, else ""."""
    match node:
        case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
            return name
    return ""


def uses(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Modules that are imported late and the names used of them."""
    bound = {
        target.id: imported_late(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and imported_late(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            module = bound.get(node.value.id, "") if isinstance(node.value, ast.Name) else imported_late(node.value)
            if module:
                yield module, node.attr


def test_what_is_used_of_a_module_that_is_imported_late_exists() -> None:
    used = {use for path in SOURCES for use in uses(ast.parse(path.read_text()))}
    assert ("cotenant_verification.chaos.command", "simulate_chaos") in used
    missing = [f"{module}.{name}" for module, name in sorted(used) if not hasattr(importlib.import_module(module), name)]
    assert not missing, missing
