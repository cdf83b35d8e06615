"""An explanation says in words what can change that a pod or a reservation waits."""

from __future__ import annotations

import pytest

from cotenant.events.envelope import Event
from cotenant.events.placements import Waiting, WaitingReason
from cotenant.explain.causes import CauseWalk, explain_pod
from cotenant.explain.sentences import figures
from cotenant.explain.waking import what_can_change_that
from tests.unit.gateway.builders_gateway import NOW


@pytest.mark.parametrize(
    ("subject", "phrase"),
    [
        ("objects.core.nodes._.*", "a node that joins or changes"),
        ("objects.core.nodes._.n1", "a change of node n1"),
        ("objects.core.pods.default.web", "a change of pod default/web"),
        ("objects.core.pods.>", "further pods, or a change of these"),
        ("objects.storage%2Ek8s%2Eio.csinodes.>", "a node's attach limits"),
        ("node.*.placement.>", "a pod that is placed or leaves"),
        ("node.*.run.default.web", "the end of the former pod default/web"),
        ("metrics.*", "lower usage of a node"),
        ("quotas._.team-a", "the runtime of quota team-a"),
        ("objects.scheduling%2Esigs%2Ek8s%2Eio.elasticquotas.>", "a quota's min, max or weight"),
        ("objects.scheduling%2Esigs%2Ek8s%2Eio.podgroups.>", "a PodGroup"),
        ("unknown.*", "unknown.*"),
    ],
)
def test_each_subject_has_its_phrase(subject: str, phrase: str) -> None:
    assert what_can_change_that((subject,)) == phrase


def test_a_phrase_is_given_once_and_the_number_of_phrases_is_bounded() -> None:
    assert what_can_change_that(("objects.core.nodes._.*", "objects.core.nodes._.>")) == "a node that joins or changes"
    assert len(what_can_change_that(f"quotas._.q{number}" for number in range(50)).split(", ")) == 8
    assert what_can_change_that(()) == ""


def test_the_explanation_of_a_waiting_pod_says_what_can_change_that() -> None:
    waiting = Waiting(
        namespace="default",
        name="web",
        uid="u",
        nodes=4,
        reasons=(WaitingReason(code="insufficient", count=4, resource="cpu", detail="short by 2"),),
        wakes_on=("node.*.placement.>", "node.*.run.>", "objects.core.nodes._.*"),
    )
    root = Event(subject="waiting.default.web", data=waiting, sequence=5, stream="LOG", time=NOW)
    explanation = explain_pod("default", "web", [root], CauseWalk([root]))
    assert explanation.reasons == (
        "what can change that: a pod that is placed or leaves, a pod that ends, a node that joins or changes",
    )


def test_a_reason_that_is_not_about_nodes_counts_none() -> None:
    waiting = Waiting(
        namespace="default",
        name="web",
        uid="u",
        reasons=(WaitingReason(code="quota", count=0, resource="cpu", detail="quota a: cpu 14 needed, runtime is 12"),),
    )
    root = Event(subject="waiting.default.web", data=waiting, sequence=5, stream="LOG", time=NOW)
    assert figures(root) == {"quota cpu": "quota a: cpu 14 needed, runtime is 12"}
