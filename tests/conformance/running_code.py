"""Which definitions of the services' code a service can reach from its `__main__`.

In: the source of all packages. Out: (module, name) of every top-level function, class and constant that is named by code that
runs: the statements of a module that a `__main__` imports, however indirectly, and the bodies of the definitions that such code
names. A class counts as a whole. What only tests name is not there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "shared", *sorted((ROOT / "services").iterdir()))
SERVICES = tuple(folder for folder in FOLDERS if folder.parent.name == "services" and folder.name != "verification")

Definition = tuple[str, str]
"""Module and name; the name is empty for the module's own statements."""


@cache
def sources() -> dict[str, ast.Module]:
    """Return the parsed modules of all packages, by name."""
    found: dict[str, ast.Module] = {}
    for folder in FOLDERS:
        for path in sorted(folder.glob("cotenant*/**/*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text())
    return found


@cache
def imports(module: str) -> dict[str, Definition]:
    """Return what each imported name of a module stands for."""
    found: dict[str, Definition] = {}
    for node in ast.walk(sources()[module]):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("cotenant"):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found[alias.asname or alias.name] = (whole, "") if whole in sources() else (node.module, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in sources():
                    found[alias.asname or alias.name] = (alias.name, "")
    return found


@cache
def definitions(module: str) -> dict[str, list[ast.stmt]]:
    """Return the statements that define each top-level name of a module; under "" all others."""
    found: dict[str, list[ast.stmt]] = {"": []}
    for node in sources()[module].body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.setdefault(name, []).append(node)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found.setdefault(name, []).append(node)
            case _:
                found[""].append(node)
    return found


def _named(module: str, statements: list[ast.stmt]) -> Iterator[Definition]:
    """Walk what statements of a module name."""
    own, known = definitions(module), imports(module)
    for statement in statements:
        for node in ast.walk(statement):
            match node:
                case ast.Name(id=name) | ast.Constant(value=str(name)) if name in own or name in known:
                    yield known.get(name, (module, name))
                case ast.Attribute(value=ast.Name(id=alias), attr=name) if known.get(alias, ("", "x"))[1] == "":
                    yield (known[alias][0], name)
                case ast.Import() | ast.ImportFrom():
                    yield from _imported(node)


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[Definition]:
    """Walk the modules whose statements an import runs."""
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    if isinstance(node, ast.ImportFrom):
        names += [f"{node.module}.{alias.name}" for alias in node.names]
    for name in names:
        if name in sources():
            yield (name, "")


@cache
def running() -> frozenset[Definition]:
    """Return every definition that a service can reach."""
    roots = [name for name in sources() if name.endswith((".__main__", ".definition"))]
    mains = {folder.name.replace("-", "_") for folder in SERVICES}
    waiting: list[Definition] = [(name, "") for name in roots if name.split(".")[0].removeprefix("cotenant_") in mains]
    found: set[Definition] = set()
    while waiting:
        module, name = waiting.pop()
        if (module, name) in found or module not in sources():
            continue
        found.add((module, name))
        if name and name not in definitions(module):
            if name in imports(module):
                waiting.append(imports(module)[name])
            continue
        waiting.append((module, ""))
        waiting.extend(_named(module, definitions(module)[name]))
    return frozenset(found)
