"""Label and field selectors read as kubectl's."""

from __future__ import annotations

import pytest

from cotenant.domain.selectors import SelectorError
from cotenant_gateway.read_model.selectors import parse_field_selector, parse_label_selector

LABELS = {"app": "web", "tier": "front", "size": "7", "koordinator.sh/qosClass": "BE"}


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", True),
        ("app=web", True),
        ("app==web,tier=front", True),
        ("app=db", False),
        ("app!=db", True),
        ("missing!=x", True),
        ("app in (db, web)", True),
        ("app notin (db,web)", False),
        ("missing notin (a)", True),
        ("app", True),
        ("missing", False),
        ("!missing", True),
        ("!app", False),
        ("size>6,size<8", True),
        ("size>7", False),
        ("tier>1", False),
        ("koordinator.sh/qosClass=BE", True),
        ("app=", False),
    ],
)
def test_a_label_selector_selects(text: str, selected: bool) -> None:
    assert parse_label_selector(text).matches(LABELS) is selected


@pytest.mark.parametrize(
    "text", ["app=web,", "=x", "app in web", "app in (web", "a b", "app>x", "-bad=1", "a,,b", "x" * 20_000]
)
def test_a_malformed_label_selector_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(SelectorError, match="selector"):
        parse_label_selector(text)


def test_a_field_selector_compares_fields() -> None:
    supported = frozenset({"metadata.name", "status.phase"})
    selector = parse_field_selector("metadata.name=a,status.phase!=Running", supported)
    assert selector.matches({"metadata.name": "a", "status.phase": "Pending"})
    assert not selector.matches({"metadata.name": "a", "status.phase": "Running"})


def test_an_unsupported_field_is_named_with_those_that_are() -> None:
    with pytest.raises(SelectorError, match=r"spec\.x \(supported: metadata\.name\)"):
        parse_field_selector("spec.x=1", frozenset({"metadata.name"}))
