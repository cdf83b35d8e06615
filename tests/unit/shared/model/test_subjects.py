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
    assert REGISTRY.find("nonsense") is None


@pytest.mark.parametrize("name", ["eq", "eqs", "elasticquota", "elasticquotas", "ElasticQuota"])
def test_a_kind_may_be_named_with_its_group(name: str) -> None:
    kind = REGISTRY.find(f"{name}.scheduling.sigs.k8s.io")
    assert kind is not None
    assert kind is REGISTRY.find(name)
    assert kind.qualified == "elasticquota.scheduling.sigs.k8s.io"
    assert REGISTRY.find(f"{name}.example.io") is None


def test_no_two_kinds_share_a_name_that_users_type_without_the_group() -> None:
    names = [name for each in REGISTRY for name in (each.kind.plural, each.kind.singular, *each.kind.short_names)]
    assert len(names) == len(set(names))


def test_kinds_lead_to_their_paths() -> None:
    quota = REGISTRY.type("scheduling.sigs.k8s.io/v1alpha1", "ElasticQuota")
    pod = REGISTRY.type("v1", "Pod")
    assert quota is not None
    assert pod is not None
    assert quota.path("team a", "q") == "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/team%20a/elasticquotas/q"
    assert quota.path() == "/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas"
    assert pod.path("default", "a", "log") == "/api/v1/namespaces/default/pods/a/log"


WORDS = st.sampled_from(["a", "b", "a+", "x_1"])
FILTERS = st.tuples(st.lists(st.one_of(WORDS, st.just("*")), min_size=1, max_size=3), st.sampled_from(["", ".>"]))


@given(st.lists(FILTERS, min_size=1, max_size=4), st.lists(WORDS, min_size=1, max_size=4))
def test_one_expression_selects_what_any_of_its_filters_matches(parts: list[tuple[list[str], str]], words: list[str]) -> None:
    filters = [".".join(tokens) + rest for tokens, rest in parts]
    subject = ".".join(words)
    selected = subjects.selecting(filters).fullmatch(subject.encode()) is not None
    assert selected == any(subjects.matches(one, subject) for one in filters)
