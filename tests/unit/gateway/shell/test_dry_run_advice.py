"""What is told of a write that is only tried: of the node configuration, and of profiles."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from nats.errors import MaxPayloadError

from cotenant.events.requests import CONFIG_DRY_RUN
from cotenant_gateway.http.warning_headers import MAX_CHARS, MAX_WARNINGS, quoted, with_warnings
from cotenant_gateway.planning.creations import plan_creation
from cotenant_gateway.planning.documents import Planned
from cotenant_gateway.planning.present_pods import TRIED
from cotenant_gateway.planning.updates import plan_patch
from cotenant_gateway.shell.dry_run_advice import ANSWER_SECONDS, DryRunAdvice, effect_in_words
from tests.unit.gateway.builders_gateway import World, as_json, kind, manifest


class Calculator:
    """What answers in place of batch-resource-calculator, and what it was asked."""

    def __init__(self, answer: object = b"{}", code: int = 0, refusal: str = "") -> None:
        self.asked: list[tuple[str, object, float]] = []
        self._answer = answer
        self._refused = code, refusal

    async def __call__(self, subject: str, body: bytes, seconds: float) -> tuple[bytes, int, str]:
        self.asked.append((subject, json.loads(body), seconds))
        if isinstance(self._answer, Exception):
            raise self._answer
        assert isinstance(self._answer, bytes)
        return self._answer, *self._refused


def config(**data: str) -> dict[str, Any]:
    sections = {name.replace("_", "-"): text for name, text in data.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "slo-controller-config"}, "data": sections}


def tried(world: World, plural: str, document: object, namespace: str = "koordinator-system") -> Planned:
    """The plan of a creation that is not stored."""
    found = kind(plural)
    of = namespace if found.namespaced else ""
    return plan_creation(world.core, found, of, as_json(document), world.now, "uid", lambda: "abcde")


def advice(world: World, calculator: Calculator) -> DryRunAdvice:
    return DryRunAdvice(lambda: world.core, calculator)


NEW = config(colocation_config='{"enable": true}')


async def test_the_calculator_is_asked_with_the_data_as_it_would_be() -> None:
    world = World()
    changes = b'{"batch-cpu": -12.2, "mid-memory": 0.34, "batch-memory": 0}'
    calculator = Calculator(b'{"nodes": 17, "changes": %s, "error": ""}' % changes)
    told = await advice(world, calculator)(tried(world, "configmaps", NEW))
    assert told == ("17 nodes: batch-cpu -12 %, mid-memory +0.3 %",)
    assert calculator.asked == [(CONFIG_DRY_RUN, NEW["data"], ANSWER_SECONDS)]


@pytest.mark.parametrize(
    ("calculator", "told"),
    [
        (Calculator(TimeoutError()), "batch-resource-calculator does not answer within 2 s"),
        (Calculator(MaxPayloadError()), "batch-resource-calculator cannot be reached (MaxPayloadError"),
        (Calculator(b"", 400, "no such section"), "batch-resource-calculator refuses to answer: no such section"),
        (Calculator(b"[]"), "batch-resource-calculator gives an unreadable answer"),
        (Calculator(b'{"error": "the log is loading"}'), "what this would change is unknown: the log is loading"),
        (Calculator(b'{"nodes": 1, "changes": {"batch-cpu": 0.0}}'), "1 node: batch and mid resources would not change"),
    ],
)
async def test_where_there_is_no_figure_that_is_what_is_told(calculator: Calculator, told: str) -> None:
    world = World()
    (text,) = await advice(world, calculator)(tried(world, "configmaps", NEW))
    assert told in text


async def test_rejected_sections_are_named_before_the_effect_of_the_others() -> None:
    effect = b'{"nodes": 2, "changes": {"batch-cpu": -22.0}, "rejected": {"cpu-burst-config": "cpu-burst-config: not JSON"}}'
    told = await advice(World(), Calculator(effect))(tried(World(), "configmaps", NEW))
    assert told == (
        "data[cpu-burst-config] would be rejected, and its previous value stays in force: cpu-burst-config: not JSON",
        "2 nodes: batch-cpu -22 %",
    )


async def test_amounts_of_the_nodes_themselves_and_slos_are_told_too() -> None:
    effect = b'{"nodes": 2, "changes": {"cpu": 25.0, "batch-cpu": -12.0}, "slos": 1}'
    told = await advice(World(), Calculator(effect))(tried(World(), "configmaps", NEW))
    assert told == (
        "2 nodes: allocatable cpu +25 %, batch-cpu -12 %",
        "1 node: the spec of the NodeSLO would change",
    )


async def test_nobody_is_asked_where_the_data_stays_as_it_is() -> None:
    world, calculator = World(), Calculator()
    world.create("configmaps", NEW, namespace="koordinator-system")
    labelled = as_json({"metadata": {"labels": {"a": "b"}}})
    name, merge = "slo-controller-config", "application/merge-patch+json"
    planned = plan_patch(world.core, kind("configmaps"), "koordinator-system", name, merge, labelled)
    assert not await advice(world, calculator)(planned)
    other = {**NEW, "metadata": {"name": "other"}}
    assert not await advice(world, calculator)(tried(world, "configmaps", other))
    assert not await advice(world, calculator)(tried(world, "pods", manifest(), "default"))
    assert not calculator.asked


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60) | st.sampled_from([b"[" * 100_000, b'{"changes":{"a":1e999}}', b'{"nodes":-1}']))
def test_whatever_the_calculator_answers_becomes_a_text(answer: bytes) -> None:
    assert all(effect_in_words(answer))


# -- profiles ----------------------------------------------------------------------------------------------------------------


def profile(*, managed: bool = False, **spec: object) -> dict[str, object]:
    labels = {"config.koordinator.sh/controller-managed": "true"} if managed else {}
    head = {"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile"}
    return {**head, "metadata": {"name": "batch", "labels": labels}, "spec": spec}


def world_with_pods() -> World:
    """Three pods: one waits, one is placed, one is of another application."""
    world = World()
    for name, app in (("waits", "web"), ("placed", "web"), ("other", "other")):
        document: Any = manifest(name)
        document["metadata"]["labels"] = {"app": app}
        world.create("pods", document)
    world.place("placed")
    return world


async def test_a_profile_that_is_tried_counts_the_pods_that_it_matches_and_changes() -> None:
    world = world_with_pods()
    made = profile(selector={"matchLabels": {"app": "web"}}, labels={"colocated": "yes"})
    (told,) = await advice(world, Calculator())(tried(world, "clustercolocationprofiles", made))
    assert told.startswith("ClusterColocationProfile batch: 2 pods of 3 match, it would change 2; existing pods stay")


async def test_one_that_is_applied_to_waiting_pods_says_how_many_would_be_changed_now() -> None:
    world = world_with_pods()
    made = profile(managed=True, labels={"app": "web"})
    (told,) = await advice(world, Calculator())(tried(world, "clustercolocationprofiles", made))
    assert told.startswith("ClusterColocationProfile batch: 3 pods of 3 match, it would change 1: 1 waiting")
    made = profile(managed=True, labels={"colocated": "yes"})
    (told,) = await advice(world, Calculator())(tried(world, "clustercolocationprofiles", made))
    assert "would change 3: 2 waiting to be placed would be changed now" in told


async def test_pods_that_could_not_be_created_with_it_are_told_with_the_reason() -> None:
    world = world_with_pods()
    made = profile(selector={"matchLabels": {"app": "other"}}, priorityClassName="nowhere")
    _, told = await advice(world, Calculator())(tried(world, "clustercolocationprofiles", made))
    assert "1 pod could not be created with it" in told
    assert "nowhere" in told


async def test_of_many_pods_the_first_are_worked_out_and_the_others_counted() -> None:
    world = World()
    for number in range(TRIED + 10):
        world.create("pods", manifest(f"web-{number}"))
    (told,) = await advice(world, Calculator())(tried(world, "clustercolocationprofiles", profile(labels={"a": "b"})))
    assert f"{TRIED + 10} pods of {TRIED + 10} match, it would change {TRIED} of the first {TRIED}" in told


# -- headers -----------------------------------------------------------------------------------------------------------------


def headers(*texts: str) -> list[str]:
    return with_warnings(web.Response(), texts, ()).headers.getall("Warning", [])


def test_a_warning_is_a_quoted_header_of_its_own() -> None:
    assert headers("one", 'say "two"') == ['299 - "one"', '299 - "say \\"two\\""']


def test_warnings_are_bounded_in_count_and_length() -> None:
    found = headers(*(str(number) for number in range(100)))
    assert len(found) == MAX_WARNINGS
    assert found[-1] == f'299 - "{100 - MAX_WARNINGS + 1} more"'
    assert len(headers("x" * 1_000_000)[0]) == MAX_CHARS + len('299 - ""')


@given(st.text())
def test_any_text_becomes_printable_ascii_on_one_line(text: str) -> None:
    shown = quoted(text)
    assert shown.isascii()
    assert not shown or shown.isprintable()
    assert not shown.replace("\\\\", "").replace('\\"', "").count('"')
