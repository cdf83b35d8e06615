"""Quotas drawn as trees, and why a quota has its runtime."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from cotenant.events.envelope import Event
from cotenant.events.quotas import QuotaRuntime
from cotenant.explain.causes import CauseWalk, explain_quota
from cotenant.explain.quotas import runtime_reasons
from cotenant_console.api.client import Document
from cotenant_console.commands.explain import explanation_lines
from cotenant_console.commands.quota_tree import BAR, bar, tree_lines
from tests.causes import lookup_all

PREFIX = "quota.scheduling.koordinator.sh/"


def document(
    name: str, parent: str = "", tree: str = "", *, used: str = "0", runtime: str = "0", request: str = "0"
) -> Document:
    noted: Document = {PREFIX + "runtime": json.dumps({"cpu": runtime}), PREFIX + "request": json.dumps({"cpu": request})}
    return {
        "metadata": {
            "name": name,
            "labels": {PREFIX + "parent": parent, PREFIX + "tree-id": tree},
            "annotations": noted,
        },
        "spec": {"min": {"cpu": "2"}, "max": {"cpu": "20"}},
        "status": {"used": {"cpu": used}},
    }


@pytest.mark.parametrize(
    ("used", "runtime", "wanted", "drawn"),
    [
        (10, 20, 10, "##########.........."),
        (10, 20, 15, "##########=====....."),
        (20, 10, 20, "##########!!!!!!!!!!"),
        (5, 10, 20, "#####=====++++++++++"),
        (0, 0, 0, " " * BAR),
    ],
)
def test_a_bar_shows_use_request_and_runtime(used: int, runtime: int, wanted: int, drawn: str) -> None:
    assert bar(used, runtime, wanted) == drawn


def test_quotas_stand_below_their_parents_each_tree_by_itself() -> None:
    lines = list(
        tree_lines(
            [
                document("b", "team", used="1", runtime="2", request="2"),
                document("team", "koordinator-root-quota", used="1", runtime="4", request="2"),
                document("a", "team"),
                document("other", "", "t1"),
            ]
        )
    )
    assert [line[:12].rstrip() for line in lines[1:7]] == [
        "default tree",
        "└─ team",
        "   ├─ a",
        "   └─ b",
        "tree t1",
        "└─ other",
    ]
    assert "#####=====.........." in lines[2]
    assert "##########==========" in lines[4]


def test_quotas_on_a_cycle_are_drawn_all_the_same() -> None:
    text = "\n".join(tree_lines([document("a", "b"), document("b", "a")]))
    assert "─ a" in text
    assert "─ b" in text


def quota(name: str, **fields: Any) -> QuotaRuntime:
    most = {"cpu": 20_000}
    return QuotaRuntime(tree="", quota=name, parent="top", max=most, shared_weight=most, **fields)


def test_the_reasons_say_what_the_sharing_did() -> None:
    top = QuotaRuntime(tree="", quota="top", runtime={"cpu": 10_000})
    wanted = {"min": {"cpu": 4000}, "scaled_min": {"cpu": 2000}, "request": {"cpu": 25_000}}
    mine = quota("mine", **wanted, runtime={"cpu": 6000}, used={"cpu": 1000})
    hungry = quota("hungry", request={"cpu": 9000}, runtime={"cpu": 4000})
    [line] = runtime_reasons(mine, top, [hungry, quota("idle")])
    assert line == (
        "cpu: runtime 6; min 4 is scaled to 2: the mins below top are more than it has (10); "
        "requests 25, limited by max 20; beyond its 2 it competes for what top (10) has left, weight 20 of 40: "
        "it gets 4 of 18; uses 1"
    )
    [idle] = runtime_reasons(quota("idle", scaled_min={"cpu": 2000}, request={"cpu": 500}, runtime={"cpu": 500}), top, [])
    assert idle == "cpu: runtime 500m; requests 500m; less than its 2: others may use the rest; uses 0"


def test_explain_prints_the_reasons_before_the_causes() -> None:
    mine = quota("mine", runtime={"cpu": 6000})
    event = Event(subject="quotas._.mine", data=mine, sequence=7)
    walk = lookup_all(CauseWalk([event]), {})
    explanation = explain_quota("default", mine, "mine", ["cpu: why"], [event], walk)
    plain = json.loads(msgspec.json.encode(explanation))
    lines = list(explanation_lines(plain, 5))
    assert lines[0].startswith("quota default/mine: quota mine may use cpu 6")
    assert lines[1] == "  cpu: why"


@pytest.mark.parametrize(
    ("name", "tree", "reason"),
    [
        (
            "koordinator-default-quota",
            "",
            "cpu: limited by its max, 20: what it uses is taken off the total before that is shared; requests 7; uses 5",
        ),
        (
            "koordinator-root-quota",
            "",
            "cpu: 20 are shared below it: what the nodes offer, less the totals of other trees and what the default and the "
            "system quota use; requests 7; uses 5",
        ),
        ("koordinator-root-quota", "t1", "cpu: 20 of the tree are shared below it; requests 7; uses 5"),
    ],
)
def test_built_in_quotas_take_no_part_in_the_sharing(name: str, tree: str, reason: str) -> None:
    quota = QuotaRuntime(tree=tree, quota=name, runtime={"cpu": 20_000}, request={"cpu": 7_000}, used={"cpu": 5_000})
    assert list(runtime_reasons(quota, None, [])) == [reason]
