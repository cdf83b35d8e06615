"""A class name stands for one thing in all packages: a reader who meets it in one service knows what it is in another."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[4]
SOURCES = [path for base in (ROOT / "shared", *ROOT.glob("services/*")) for path in base.glob("cotenant*/**/*.py")]

_NODE_SLO = "a section of the NodeSLO: batch-resource-calculator writes what is configured, node-executor fills in defaults"
_COLLECT_POLICY = "of a NodeMetric: batch-resource-calculator writes what is configured, metrics-ingest fills in defaults"

ALLOWED = {
    "AggregatePolicy": _COLLECT_POLICY,
    "CollectPolicy": _COLLECT_POLICY,
    "BlkioQOS": _NODE_SLO,
    "HostApplication": _NODE_SLO,
    "MemoryQOS": _NODE_SLO,
    "ResctrlQOS": _NODE_SLO,
    "SystemStrategy": _NODE_SLO,
}
"""Names that two modules define, with the reason: it is one thing, of which the two services see different members."""


@cache
def classes() -> dict[str, list[str]]:
    """The modules of each public class; classes within classes and functions count too."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(ROOT)))
    return found


def test_a_class_name_has_one_meaning() -> None:
    found = classes()
    assert len(found) > 1000
    assert {name: modules for name, modules in found.items() if len(modules) > 1 and name not in ALLOWED} == {}


def test_allowed_names_are_defined_twice() -> None:
    found = classes()
    assert [name for name in ALLOWED if len(found[name]) != 2] == []
