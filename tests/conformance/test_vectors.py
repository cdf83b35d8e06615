"""Every vector of the folder that COTENANT_VECTORS names, through the adapters; ends with a table a group.

An adapter is a function named like the group in `adapters/<page>/<page>*.py`: `given` to the actual result, by the code that
the services run. One that raises NotImplementedError says that this capability of its group is missing: counted as no
adapter. COTENANT_VECTORS_REPORT names a file for the same counts as JSON.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conformance import results
from tests.conformance.compare import difference, unexplained
from tests.conformance.mended import Mended

HERE = Path(__file__).parent
FOLDER = Path(os.environ.get("COTENANT_VECTORS") or HERE.parents[2] / "shared" / "vectors")


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"adapters_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def adapters(page: str) -> dict[str, Callable[..., Any]]:
    """Return the adapters of a page, by group."""
    found: dict[str, Callable[..., Any]] = {}
    for path in sorted((HERE / "adapters").rglob(f"{page.replace('-', '_')}*.py")):
        for name, value in vars(load(path)).items():
            if inspect.isfunction(value) and not name.startswith("_") and value.__module__ == f"adapters_{path.stem}":
                found[name] = value
    return found


def vectors() -> list[Any]:
    if not FOLDER.is_dir():
        return []
    return [
        pytest.param(file.stem, vector, id=f"{file.stem}/{vector['group']}/{vector['name']}")
        for file in sorted(FOLDER.glob("*.json"))
        for vector in json.loads(file.read_text())
    ]


VECTORS = vectors()


@pytest.mark.skipif(bool(VECTORS), reason="there are vectors")
def test_there_are_vectors() -> None:
    pytest.skip(f"no vectors: {FOLDER} is not there (COTENANT_VECTORS names another folder)")


@pytest.mark.parametrize(("page", "vector"), VECTORS)
def test_vector(page: str, vector: dict[str, Any]) -> None:
    group = vector["group"]
    adapter = adapters(page).get(group)
    if adapter is None:
        results.count(page, group, "missing")
        pytest.skip(f"no adapter for {page}/{group} yet")
    try:
        arguments = {"name": vector["name"]} if "name" in inspect.signature(adapter).parameters else {}
        actual = adapter(vector["given"], **arguments)
    except NotImplementedError as error:
        # The group is there, this capability of it is not.
        results.count(page, group, "missing")
        pytest.skip(f"{page}/{group}: {error}")
    except Exception:
        results.count(page, group, "failed")
        raise
    if isinstance(actual, Mended):
        wrong = unexplained(vector["expect"], actual.result, actual.at)
        results.count(page, group, "failed" if wrong else "mended")
        assert not wrong, f"{wrong}\n  trap: {actual.trap}"
        return
    found = difference(vector["expect"], actual)
    results.count(page, group, "failed" if found else "passed")
    assert not found, f"{found}\n  source: {vector.get('source')}"
