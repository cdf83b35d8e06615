"""The independent check knows which namespaces a term of (anti-)affinity is about."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.api.objects.node import decode_node
from cotenant.api.objects.pod import decode_pod
from cotenant_verification.bench.audit.neighbours import Neighbours
from cotenant_verification.bench.audit.rooms import Facts, PodRequirements, need_of
from tests.builders import encoded, node_document, pod_document

HOST = "kubernetes.io/hostname"
GOLD = {"matchLabels": {"tier": "gold"}}


def need(namespace: str, app: str, side: str = "", **term: Any) -> PodRequirements:
    wanted = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "loud"}}, **term}
    affinity = {side: {"requiredDuringSchedulingIgnoredDuringExecution": [wanted]}} if side else None
    pod = pod_document(app, namespace=namespace, labels={"app": app}, affinity=affinity)
    return need_of(decode_pod(encoded(pod)), "")


def neighbours(tier: str) -> Neighbours:
    """A loud pod of the namespace `a`, whose tier is given, is on n0."""
    nodes = [decode_node(encoded(node_document(f"n{i}", labels={HOST: f"n{i}"}))) for i in range(2)]
    found = Neighbours({node.metadata.name: Facts(node) for node in nodes}, {"a": {"tier": tier}})
    found.add(need("a", "loud"), "n0")
    return found


@pytest.mark.parametrize(
    ("term", "tier", "meant"),
    [
        ({}, "gold", False),
        ({"namespaces": ["a"]}, "silver", True),
        ({"namespaceSelector": GOLD}, "gold", True),
        ({"namespaceSelector": GOLD}, "silver", False),
        ({"namespaceSelector": {}}, "silver", True),
        ({"namespaces": ["c"], "namespaceSelector": GOLD}, "gold", True),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "a"}}}, "silver", True),
    ],
)
def test_a_term_is_about_the_namespaces_that_it_lists_and_selects(term: dict[str, Any], tier: str, meant: bool) -> None:
    apart = neighbours(tier).judge(need("b", "calm", "podAntiAffinity", **term))
    assert (bool(apart("n0")), bool(apart("n1"))) == (meant, False)
    near = neighbours(tier).judge(need("b", "calm", "podAffinity", **term))
    assert (bool(near("n0")), bool(near("n1"))) == (not meant, True)


@pytest.mark.parametrize(("tier", "kept_away"), [("gold", True), ("silver", False)])
def test_a_pod_keeps_those_away_whose_namespace_its_term_selects(tier: str, kept_away: bool) -> None:
    found = neighbours(tier)
    found.add(need("b", "calm", "podAntiAffinity", namespaceSelector=GOLD), "n1")
    assert bool(found.judge(need("a", "loud"))("n1")) is kept_away
    assert not found.judge(need("b", "loud"))("n1"), "b has no tier"


def test_a_pod_on_a_node_that_nobody_knows_is_in_no_domain() -> None:
    found = neighbours("gold")
    found.add(need("b", "loud"), "gone")
    assert not found.judge(need("b", "calm", "podAntiAffinity"))("n1")
