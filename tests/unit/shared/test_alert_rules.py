"""The alert rules in deploy/: valid rules of Prometheus that name metrics which exist."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
_MADE = re.compile(r'(create_(?:observable_)?(?:counter|histogram|gauge)|Gauge)\(\s*"(cotenant_\w+)"')
_NAMED = re.compile(r"\bcotenant_\w+")


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((ROOT / "deploy/alerts.yaml").read_text())
    assert set(document) == {"groups"}
    return [rule for group in document["groups"] for rule in group["rules"]]


def metrics() -> set[str]:
    """The names under which Prometheus finds the metrics that the processes make."""
    names: set[str] = set()
    for path in (*ROOT.glob("shared/**/*.py"), *ROOT.glob("services/**/*.py")):
        for made, name in _MADE.findall(path.read_text()):
            if made.endswith("counter"):
                names.add(f"{name}_total")
            elif made == "create_histogram":
                names |= {f"{name}_{suffix}" for suffix in ("bucket", "sum", "count")}
            else:
                names.add(name)
    return names


def test_each_rule_is_whole() -> None:
    found = rules()
    assert len({rule["alert"] for rule in found}) == len(found) > 0
    for rule in found:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"], rule["alert"]
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
        assert rule["expr"].count("(") == rule["expr"].count(")")


def test_each_rule_names_metrics_that_exist() -> None:
    known = metrics()
    assert {"cotenant_zone_lost_nodes", "cotenant_dead_letters_total"} <= known
    for rule in rules():
        named = set(_NAMED.findall(rule["expr"]))
        assert named, rule["alert"]
        assert named <= known, rule["alert"]


def test_the_documented_metrics_exist() -> None:
    text = (ROOT / "docs/operations.md").read_text()
    table = text[text.index("## What to watch") : text.index("## Dead letters")]
    assert "cotenant_zone_lost_nodes" in table
    bare = {name.removesuffix(suffix) for name in metrics() for suffix in ("_bucket", "_sum", "_count")}
    assert set(_NAMED.findall(table)) <= metrics() | bare
