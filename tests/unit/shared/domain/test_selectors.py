"""Label selectors select as Kubernetes' do, and a malformed one is named."""

from __future__ import annotations

import pytest

from cotenant.api.objects.metadata import LabelSelector, LabelSelectorRequirement
from cotenant.domain.selectors import SelectorError, check_selector, predicate, selects, selects_if_valid


def requirement(operator: str, *values: str) -> LabelSelector:
    return LabelSelector(match_expressions=[LabelSelectorRequirement(key="pool", operator=operator, values=list(values))])


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        (LabelSelector(), {}, True),
        (LabelSelector(match_labels={"pool": "x"}), {"pool": "x"}, True),
        (LabelSelector(match_labels={"pool": "x"}), {"pool": "y"}, False),
        (requirement("In", "x", "y"), {"pool": "y"}, True),
        (requirement("In", "x", "y"), {}, False),
        (requirement("NotIn", "x"), {}, True),
        (requirement("NotIn", "x"), {"pool": "x"}, False),
        (requirement("Exists"), {"pool": ""}, True),
        (requirement("Exists"), {}, False),
        (requirement("DoesNotExist"), {"pool": ""}, False),
        (requirement("DoesNotExist"), {}, True),
    ],
)
def test_a_selector_selects(selector: LabelSelector, labels: dict[str, str], expected: bool) -> None:
    assert selects(selector, labels, absent=not expected) is expected
    assert selects_if_valid(selector, labels) is expected
    assert predicate(selector, absent=not expected)(labels) is expected


@pytest.mark.parametrize(
    ("selector", "fault"),
    [
        (requirement("In"), "operator In of label 'pool' needs values"),
        (requirement("NotIn"), "operator NotIn of label 'pool' needs values"),
        (requirement("Exists", "x"), "operator Exists of label 'pool' takes no values"),
        (requirement("DoesNotExist", "x"), "operator DoesNotExist of label 'pool' takes no values"),
        (requirement("Near", "x"), "operator 'Near' of label 'pool' is not one of DoesNotExist, Exists, In, NotIn"),
    ],
)
def test_a_malformed_selector_is_named_and_selects_nothing_where_it_must_not_fail(selector: LabelSelector, fault: str) -> None:
    for evaluated in (
        lambda: check_selector(selector),
        lambda: selects(selector, {"pool": "x"}, absent=True),
        lambda: predicate(selector, absent=True),
    ):
        with pytest.raises(SelectorError) as raised:
            evaluated()
        assert str(raised.value) == fault
    assert not selects_if_valid(selector, {"pool": "x"})
    assert not selects_if_valid(selector, {})


@pytest.mark.parametrize("absent", [True, False])
def test_what_an_absent_selector_selects_is_the_callers_choice(absent: bool) -> None:
    assert selects(None, {}, absent=absent) is absent
    assert predicate(None, absent=absent)({"pool": "x"}) is absent
    assert not selects_if_valid(None, {})
