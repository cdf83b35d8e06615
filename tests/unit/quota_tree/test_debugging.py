"""What quota-tree tells people who look for a fault."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from cotenant.events.requests import DebugAnswer, QuotaQuestion
from cotenant_quota_tree.debugging import MOST_QUOTAS, answer
from cotenant_quota_tree.definition import DEFINITION
from tests.unit.quota_tree.builders_quota_tree import PREFIX, START, QuotaLog


def ask(log: QuotaLog, **asked: Any) -> DebugAnswer:
    (body,) = [found for found in answer(log.core, START, msgspec.json.encode(QuotaQuestion(**asked))) if found is not None]
    return msgspec.json.decode(body, type=DebugAnswer)


def told(log: QuotaLog, **asked: Any) -> Any:
    found = ask(log, **asked)
    assert found.json
    return json.loads(found.text)


def with_pods() -> QuotaLog:
    log = QuotaLog()
    log.node("n1", cpu="10", memory="1Gi")
    log.quota("org", is_parent=True, minimum={"cpu": "2"}, maximum={"cpu": "10"}, weight={"cpu": "3"})
    log.quota("team", parent="org", maximum={"cpu": "4"})
    log.quota("pool", maximum={"cpu": "4"}, labels={PREFIX + "tree-id": "t1"})
    log.pod("web", quota="team", cpu="1500m")
    log.pod("job", quota="team", cpu="1")
    log.place("web")
    log.decide()
    return log


def test_a_quota_has_the_fields_of_koordinators_debug_api() -> None:
    team = told(with_pods(), name="team")
    assert team.pop("runtimeVersion") > 0
    assert team == {
        "name": "team",
        "parentName": "org",
        "isParent": False,
        "allowLentResource": True,
        "tree": "",
        "max": {"cpu": "4"},
        "min": {},
        "autoScaleMin": {},
        "used": {"cpu": "1500m"},
        "nonPreemptibleUsed": {},
        "request": {"cpu": "2500m"},
        "nonPreemptibleRequest": {},
        "sharedWeight": {"cpu": "4"},
        "runtime": {"cpu": "2500m"},
        "childRequest": {"cpu": "2500m"},
        "allocated": {},
        "guaranteed": {},
        "selfUsed": {"cpu": "1500m"},
        "selfNonPreemptibleUsed": {},
        "selfRequest": {"cpu": "2500m"},
        "selfNonPreemptibleRequest": {},
    }
    org = told(with_pods(), name="org")
    assert (org["selfUsed"], org["used"], org["sharedWeight"]) == ({}, {"cpu": "1500m"}, {"cpu": "3"})


def test_the_topology_has_each_quota_and_the_children_of_each() -> None:
    found = told(with_pods(), topology=True)
    assert found["quotaInfoMap"]["team"] == {
        "name": "team", "parentName": "org", "isParent": False, "allowLentResource": True, "max": {"cpu": "4"}, "min": {}
    }
    hierarchy = found["quotaHierarchyInfo"]
    assert (hierarchy["org"], hierarchy["team"]) == (["team"], [])
    assert {"org", "pool"} <= set(hierarchy["koordinator-root-quota"])


def test_pods_are_shown_where_they_are_asked_for() -> None:
    assert told(with_pods(), name="team", pods=True)["podCache"] == {
        "default/job": {"isAssigned": False, "resource": {"cpu": "1"}},
        "default/web": {"isAssigned": True, "resource": {"cpu": "1500m"}},
    }


def test_all_quotas_are_those_of_all_trees_or_of_one_without_the_roots() -> None:
    log = with_pods()
    built_in = {"koordinator-default-quota", "koordinator-system-quota"}
    assert set(told(log)) == {"org", "team", "pool", *built_in}
    assert set(told(log, tree="")) == {"org", "team", *built_in}
    assert set(told(log, tree="t1")) == {"pool"}
    assert told(log, tree="nowhere") == {}


def test_a_root_is_shown_by_its_name() -> None:
    root = told(with_pods(), name="koordinator-root-quota")
    assert (root["isParent"], root["used"]) == (True, {"cpu": "1500m"})
    assert root["runtime"]["cpu"] == "10"
    assert told(with_pods(), name="koordinator-root-quota", tree="t1")["used"] == {}


def test_what_cannot_be_answered_says_why() -> None:
    log = with_pods()
    assert ask(log, name="nobody").error == "cannot find quota nobody"
    assert ask(log, name="koordinator-root-quota", tree="nowhere").error == "cannot find quota koordinator-root-quota"
    (body,) = answer(log.core, START, b"[]")
    assert body is not None
    assert msgspec.json.decode(body, type=DebugAnswer).error.startswith("the question cannot be read")


def test_the_number_of_quotas_in_one_answer_has_a_bound() -> None:
    log = QuotaLog()
    for index in range(MOST_QUOTAS + 5):
        log.quota(f"q{index}", maximum={"cpu": "1"})
    log.decide()
    assert len(told(log)) == MOST_QUOTAS


def test_the_service_serves_the_question() -> None:
    assert [(question.name, question.answer) for question in DEFINITION.questions] == [("debug", answer)]
