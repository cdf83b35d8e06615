"""Any name survives its way through a subject."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.kinds.registry import REGISTRY
from cotenant.model import subjects


@given(st.text(min_size=1, max_size=50))
def test_a_token_holds_any_text(text: str) -> None:
    token = subjects.encode_token(text)
    assert not set(token) & set(".*> \t\r\n")
    assert subjects.decode_token(token) == text


def test_subjects_are_those_of_the_design() -> None:
    assert subjects.object_subject("", "pods", "default", "web.1") == "objects.core.pods.default.web%2E1"
    assert subjects.object_subject("slo.koordinator.sh", "nodeslos", "", "n") == "objects.slo%2Ekoordinator%2Esh.nodeslos._.n"
    assert subjects.placement_subject("n.1", "d", "p") == "node.n%2E1.placement.d.p"
    assert subjects.tokens("node.n%2E1.placement.d.p") == ("node", "n.1", "placement", "d", "p")


@pytest.mark.parametrize(
    ("pattern", "subject", "selected"),
    [
        ("node.*.run.>", "node.a.run.d.p", True),
        ("node.*.run.>", "node.a.run", False),
        ("metrics.*", "metrics.a", True),
        ("metrics.*", "metrics.a.b", False),
        (">", "anything.at.all", True),
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
    ],
)
def test_filters_select_as_nats_does(pattern: str, subject: str, selected: bool) -> None:
    assert subjects.matches(pattern, subject) is selected


@pytest.mark.parametrize("word", ["pods", "pod", "po", "Pod", "PODS"])
def test_kinds_are_found_by_every_name_that_users_type(word: str) -> None:
    kind = REGISTRY.find(word)
    assert kind is not None
    assert kind.plural == "pods"
    assert REGISTRY.find("elasticquotas.scheduling.sigs.k8s.io") is REGISTRY.find("eq")
    assert REGISTRY.find("nonsense") is None


WORDS = st.sampled_from(["a", "b", "a+", "x_1"])
FILTERS = st.tuples(st.lists(st.one_of(WORDS, st.just("*")), min_size=1, max_size=3), st.sampled_from(["", ".>"]))


@given(st.lists(FILTERS, min_size=1, max_size=4), st.lists(WORDS, min_size=1, max_size=4))
def test_one_expression_selects_what_any_of_its_filters_matches(parts: list[tuple[list[str], str]], words: list[str]) -> None:
    filters = [".".join(tokens) + rest for tokens, rest in parts]
    subject = ".".join(words)
    selected = subjects.selecting(filters).fullmatch(subject.encode()) is not None
    assert selected == any(subjects.matches(one, subject) for one in filters)
