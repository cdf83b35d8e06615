"""The alert rules in deploy/: valid rules of Prometheus over metrics that docs/metrics.md lists, with a row in the docs each.

`tests/integration/test_metrics.py` holds docs/metrics.md against what the services show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

ROOT = Path(__file__).parents[4]
DOCS = (*ROOT.glob("docs/*.md"), ROOT / "README.md")
_NAMED = re.compile(r"\bcotenant_(?!gateway\b|node_executor\b|console\b|\w+\.)\w+")
_PACKAGES = {path.name for path in ROOT.glob("services/*/cotenant_*")}
_SUFFIXES = ("", "_bucket", "_sum", "_count")


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((ROOT / "deploy/alerts.yaml").read_text())
    assert set(document) == {"groups"}
    return [rule for group in document["groups"] for rule in group["rules"]]


def metrics() -> dict[str, set[str]]:
    """The metrics that are listed, and their labels."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / "docs/metrics.md").read_text().splitlines():
        if named := re.match(r"\| `(\w+)(?:\{([\w,]+)\})?` \|", line):
            suffixes = _SUFFIXES[1:] if "| histogram |" in line else ("",)
            for suffix in suffixes:
                found[named[1] + suffix] = set((named[2] or "").split(",")) - {""}
    return found


def selectors(expression: object) -> Iterator[promql_parser.VectorSelector]:
    """What an expression selects."""
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression
    for part in ("lhs", "rhs", "expr", "vector_selector", "args"):
        below = getattr(expression, part, None)
        for each in below if isinstance(below, list) else [below]:
            if each is not None:
                yield from selectors(each)


def test_each_rule_is_whole() -> None:
    found = rules()
    assert len({rule["alert"] for rule in found}) == len(found) > 0
    for rule in found:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"], rule["alert"]
        assert rule["annotations"]["description"], rule["alert"]
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_each_rule_selects_metrics_that_exist_by_labels_that_they_have(rule: dict[str, Any]) -> None:
    known, given = metrics(), {"job", "instance"}
    chosen = list(selectors(promql_parser.parse(rule["expr"])))
    assert chosen
    for selector in chosen:
        assert selector.name in known, selector.name
        assert {matcher.name for matcher in selector.matchers.matchers} <= known[selector.name] | given, selector.name
    labels = {label for selector in chosen if selector.name for label in known[selector.name]}
    told = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    assert told <= labels | given


def test_each_rule_has_a_row_in_the_docs_with_its_expression() -> None:
    text = (ROOT / "docs/operations.md").read_text()
    section = text[text.index("## Alerts") :]
    lines = section[: section.index("\n## ", 3)].splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| `")]
    told = {row[0].strip("`"): row[1].strip("`").replace("\\|", "|") for row in rows}
    assert told == {rule["alert"]: rule["expr"] for rule in rules()}
    assert all(len(row) == 4 and all(row) for row in rows)


def test_the_metrics_that_are_named_anywhere_in_the_docs_exist() -> None:
    known = metrics()
    bare = {name.removesuffix(suffix) for name in known for suffix in _SUFFIXES}
    for path in DOCS:
        named = set(_NAMED.findall(path.read_text())) - _PACKAGES
        assert named <= known.keys() | bare, path.name
