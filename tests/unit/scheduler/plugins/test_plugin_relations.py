"""Spread and affinity between pods, node by node: the rules in the plugins' docstrings, worked out by hand.

Four nodes: a and b in zone x, c in zone y, d in zone z; e has no zone. All but e have a host label of their own.
"""

from __future__ import annotations

from typing import Any

from tests.unit.scheduler.asking import Asking
from tests.unit.scheduler.builders_scheduler import Story, node, pod

SPREAD, TOGETHER = "PodTopologySpread", "InterPodAffinity"
ZONES = {"a": "x", "b": "x", "c": "y", "d": "z"}


def cluster(**taken: int) -> Asking:
    """The nodes, with so many pods of the app `web` on each."""
    asking = Asking()
    asking.nodes(*(node(name, labels={"zone": zone, "host": name}) for name, zone in ZONES.items()), node("e"))
    for name, count in taken.items():
        for i in range(count):
            asking.put(f"web-{name}-{i}", name, cpu="10m", memory="10Mi", labels={"app": "web"})
    return asking


def about(app: str) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {"app": app}}}


def spread(skew: int = 1, key: str = "zone", *, hard: bool = True, app: str = "web", **more: Any) -> dict[str, Any]:
    when = "DoNotSchedule" if hard else "ScheduleAnyway"
    return {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when, **about(app), **more}


def spread_codes(asking: Asking, *constraints: dict[str, Any], app: str = "web", **more: Any) -> dict[str, int]:
    asking.ask_for("p", labels={"app": app}, topologySpreadConstraints=list(constraints), **more)
    return asking.codes(SPREAD, "p")


# -- spread as a filter --------------------------------------------------------------------------------------------------


def test_a_domain_may_have_so_many_more_than_the_one_with_fewest() -> None:
    taken = {"a": 1, "b": 1, "c": 1, "d": 1}
    assert spread_codes(cluster(**taken), spread(1)) == {"a": 1, "b": 1, "c": 0, "d": 0, "e": 2}
    assert spread_codes(cluster(**taken), spread(2)) == {"a": 0, "b": 0, "c": 0, "d": 0, "e": 2}


def test_a_pod_that_does_not_count_itself_adds_nothing() -> None:
    taken = {"a": 1, "b": 1, "c": 1, "d": 1}
    assert spread_codes(cluster(**taken), spread(1), app="other") == {"a": 0, "b": 0, "c": 0, "d": 0, "e": 2}
    assert spread_codes(cluster(a=3, c=1, d=1), spread(1), app="other") == {"a": 1, "b": 1, "c": 0, "d": 0, "e": 2}


def test_with_fewer_domains_than_wanted_the_fewest_are_none() -> None:
    taken = {"a": 1, "c": 1, "d": 1}
    assert spread_codes(cluster(**taken), spread(1, minDomains=3)) == {"a": 0, "b": 0, "c": 0, "d": 0, "e": 2}
    assert spread_codes(cluster(**taken), spread(1, minDomains=4)) == {"a": 1, "b": 1, "c": 1, "d": 1, "e": 2}
    assert spread_codes(cluster(**taken), spread(2, minDomains=4)) == {"a": 0, "b": 0, "c": 0, "d": 0, "e": 2}


def test_nodes_that_the_pod_cannot_use_make_no_domain_unless_it_ignores_that() -> None:
    taken = {"a": 1, "c": 1}
    only = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x", "y"]}]}
    ]}}}  # fmt: skip
    assert spread_codes(cluster(**taken), spread(1)) == {"a": 1, "b": 1, "c": 1, "d": 0, "e": 2}
    assert spread_codes(cluster(**taken), spread(1), affinity=only) == {"a": 0, "b": 0, "c": 0, "d": 0, "e": 2}
    assert spread_codes(cluster(**taken), spread(1), nodeSelector={"zone": "x"})["a"] == 0
    crowded = spread_codes(cluster(a=2, c=1), spread(1), affinity=only)
    assert crowded == {"a": 1, "b": 1, "c": 0, "d": 0, "e": 2}
    ignoring = spread(1, nodeAffinityPolicy="Ignore")
    assert spread_codes(cluster(**taken), ignoring, affinity=only) == {"a": 1, "b": 1, "c": 1, "d": 0, "e": 2}


def test_tainted_nodes_make_a_domain_unless_taints_are_honoured() -> None:
    taint = {"key": "k", "value": "", "effect": "NoSchedule"}
    for policy, expected in (("Ignore", 1), ("Honor", 0)):
        asking = cluster(a=1, c=1)
        asking.nodes(node("d", labels={"zone": "z", "host": "d"}, taints=[taint]))
        assert spread_codes(asking, spread(1, nodeTaintsPolicy=policy))["a"] == expected
    asking = cluster(a=1, c=1)
    asking.nodes(node("d", labels={"zone": "z", "host": "d"}, taints=[taint]))
    tolerant = spread_codes(asking, spread(1, nodeTaintsPolicy="Honor"), tolerations=[{"operator": "Exists"}])
    assert tolerant["a"] == 1


def test_the_first_constraint_that_fails_is_named_and_soft_ones_refuse_nobody() -> None:
    asking = cluster(a=1, c=1, d=1)
    asking.nodes(node("e", labels={"host": "e"}), node("f", labels={"zone": "x"}))
    soft = spread(1, hard=False)
    codes = spread_codes(asking, soft, spread(1, "zone"), spread(1, "host"))
    # Every zone has one; of the hosts that count only b has none, so that a, c and d would have two more.
    assert codes == {"a": 5, "b": 0, "c": 5, "d": 5, "e": 4, "f": 6}
    behind = spread_codes(cluster(a=1), spread(1), soft, spread(1, "host"))
    assert behind == {"a": 1, "b": 1, "c": 0, "d": 0, "e": 2}, "a soft one between hard ones"
    assert asking.reason(SPREAD, "p", 5).detail == "spread over host would be uneven"
    assert asking.reason(SPREAD, "p", 4).detail == "label zone is missing"
    assert asking.reason(SPREAD, "p", 6).detail == "label host is missing"


def test_only_pods_with_constraints_are_concerned_by_spread() -> None:
    asking = cluster()
    asking.ask_for("p", topologySpreadConstraints=[spread(1)])
    asking.ask_for("plain", labels={"app": "web"})
    asking.current()
    plugin = next(f for f in asking.core.profile.filters if f.name == SPREAD)
    assert plugin.concerns(asking.shape("p"))
    assert not plugin.concerns(asking.shape("plain"))


# -- spread as a score: pods * log(domains + 2) + maxSkew - 1, rounded -----------------------------------------------------


def spread_scores(asking: Asking, *constraints: dict[str, Any], without: str = "") -> dict[str, int]:
    asking.ask_for("p", labels={"app": "web"}, topologySpreadConstraints=list(constraints))
    return asking.spanning_scores(SPREAD, "p", *without)


def test_the_emptier_a_domain_the_better() -> None:
    # Three domains weigh log(5) = 1.609: 4.83, 1.61 and 0 are 5, 2 and 0.
    found = spread_scores(cluster(a=1, b=2, c=1), spread(1, hard=False))
    assert found == {"a": 0, "b": 0, "c": 60, "d": 100, "e": 0}


def test_the_allowed_skew_levels_domains() -> None:
    # 2 more: 6.83, 3.61 and 2 are 7, 4 and 2.
    found = spread_scores(cluster(a=1, b=2, c=1), spread(3, hard=False))
    assert found == {"a": 28, "b": 28, "c": 71, "d": 100, "e": 0}


def test_the_number_of_domains_is_that_of_feasible_nodes() -> None:
    # Two domains weigh log(4) = 1.386: 2.77 and 1.39 are 3 and 1.
    found = spread_scores(cluster(a=2, c=1), spread(1, hard=False), without="d")
    assert {name: found[name] for name in "abce"} == {"a": 33, "b": 33, "c": 100, "e": 0}


def test_constraints_add_up_and_only_nodes_with_all_keys_count() -> None:
    asking = cluster(a=2, c=1)
    asking.nodes(node("f", labels={"zone": "z"}))
    asking.put("web-f", "f", cpu="10m", memory="10Mi", labels={"app": "web"})
    # zone: log(5) = 1.609 by 2, 2, 1, 0 (f does not count); host: four of them weigh log(6) = 1.792 by 2, 0, 1, 0:
    # 6.80, 3.22, 3.40 and 0 are 7, 3, 3 and 0.
    found = spread_scores(asking, spread(1, hard=False), spread(1, "host", hard=False))
    assert found == {"a": 0, "b": 57, "c": 57, "d": 100, "e": 0, "f": 0}


def test_where_nobody_is_all_domains_are_equal() -> None:
    assert spread_scores(cluster(), spread(1, hard=False)) == {"a": 100, "b": 100, "c": 100, "d": 100, "e": 0}
    assert spread_scores(cluster(), spread(1, hard=True)) == dict.fromkeys("abcde", 0)
    nowhere = spread_scores(cluster(a=1), spread(1, hard=False), without="abcd")
    assert nowhere == dict.fromkeys("abcde", 0)


# -- affinity as a filter ------------------------------------------------------------------------------------------------


def term(app: str = "web", key: str = "zone") -> dict[str, Any]:
    return {**about(app), "topologyKey": key}


def needing(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def avoiding(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def affinity_codes(asking: Asking, affinity: dict[str, Any], app: str = "other") -> dict[str, int]:
    asking.ask_for("p", labels={"app": app}, affinity=affinity)
    return asking.codes(TOGETHER, "p")


def test_a_pod_keeps_away_from_whom_it_avoids() -> None:
    asking = cluster(a=1)
    assert affinity_codes(asking, avoiding(term())) == {"a": 2, "b": 2, "c": 0, "d": 0, "e": 0}
    assert asking.reason(TOGETHER, "p", 2).detail == "a pod there is one that this one avoids"
    assert affinity_codes(cluster(a=1), avoiding(term(key="host"))) == {"a": 2, "b": 0, "c": 0, "d": 0, "e": 0}
    assert affinity_codes(cluster(a=1), avoiding(term("else"))) == dict.fromkeys("abcde", 0)


def test_a_pod_keeps_away_from_who_avoids_it() -> None:
    asking = cluster()
    asking.put("holder", "a", affinity=avoiding(term("other")))
    assert affinity_codes(asking, {}, "other") == {"a": 1, "b": 1, "c": 0, "d": 0, "e": 0}
    assert asking.reason(TOGETHER, "p", 1).detail == "a pod there keeps this one away"
    asking = cluster()
    asking.put("holder", "a", affinity=avoiding(term("other")))
    assert affinity_codes(asking, {}, "third") == dict.fromkeys("abcde", 0)


def test_a_pod_goes_where_those_are_that_it_needs() -> None:
    asking = cluster(a=1)
    assert affinity_codes(asking, needing(term())) == {"a": 0, "b": 0, "c": 3, "d": 3, "e": 3}
    assert asking.reason(TOGETHER, "p", 3).detail == "no pod there is one that this one must be with"
    both = affinity_codes(cluster(a=1), needing(term(), term(key="host")))
    assert both == {"a": 0, "b": 3, "c": 3, "d": 3, "e": 3}


def test_who_needs_its_own_kind_may_be_the_first_where_the_key_is() -> None:
    assert affinity_codes(cluster(), needing(term()), "web") == {"a": 0, "b": 0, "c": 0, "d": 0, "e": 3}
    assert affinity_codes(cluster(), needing(term()), "other") == dict.fromkeys("abcde", 3)
    assert affinity_codes(cluster(c=1), needing(term()), "web") == {"a": 3, "b": 3, "c": 0, "d": 3, "e": 3}


# -- affinity as a score: (score - lowest) * 100 // (highest - lowest) -----------------------------------------------------


def preferring(weight: int, app: str = "web", *, away: bool = False) -> dict[str, Any]:
    preferred = [{"weight": weight, "podAffinityTerm": term(app)}]
    return {"podAntiAffinity" if away else "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def affinity_scores(asking: Asking, affinity: dict[str, Any], app: str = "other", without: str = "") -> dict[str, int]:
    asking.ask_for("p", labels={"app": app}, affinity=affinity)
    return asking.spanning_scores(TOGETHER, "p", *without)


def test_company_that_is_preferred_counts_by_its_number() -> None:
    taken = {"a": 1, "b": 2, "c": 2, "d": 1}
    found = affinity_scores(cluster(**taken), preferring(10), without="e")
    assert {name: found[name] for name in "abcd"} == {"a": 100, "b": 100, "c": 50, "d": 0}
    assert affinity_scores(cluster(**taken), preferring(10)) == {"a": 100, "b": 100, "c": 66, "d": 33, "e": 0}
    assert affinity_scores(cluster(**taken), preferring(10, away=True)) == {"a": 0, "b": 0, "c": 33, "d": 66, "e": 100}


def test_what_the_pods_there_wish_counts_too_and_what_they_need_by_one() -> None:
    asking = cluster()
    asking.put("needs", "a", affinity=needing(term("other")))
    asking.put("wishes", "c", affinity=preferring(2, "other"))
    asking.put("wishes-too", "c", affinity=preferring(2, "other"))
    asking.put("others", "d", affinity=preferring(50, "third"))
    assert affinity_scores(asking, {}) == {"a": 25, "b": 25, "c": 100, "d": 0, "e": 0}


def test_own_wishes_and_those_of_others_add_up() -> None:
    asking = cluster(c=1)
    asking.put("wishes", "a", affinity=preferring(5, "other"))
    # 5 in zone x, 10 in zone y
    assert affinity_scores(asking, preferring(10)) == {"a": 50, "b": 50, "c": 100, "d": 0, "e": 0}


def test_where_all_are_equal_nobody_is_preferred() -> None:
    assert affinity_scores(cluster(), preferring(10)) == dict.fromkeys("abcde", 0)
    assert affinity_scores(cluster(a=1, c=1, d=1), preferring(10), without="e") == dict.fromkeys("abcde", 0)
    assert affinity_scores(cluster(a=1), preferring(10), without="abcde") == dict.fromkeys("abcde", 0)


# -- what is counted -----------------------------------------------------------------------------------------------------


def test_who_waits_notices_that_one_went_while_another_came() -> None:
    story = Story()
    story.nodes(node("a", labels={"zone": "x"}), node("c", cpu="0", labels={"zone": "y"}))
    story.pod(pod("web-1", nodeName="a", labels={"app": "web"}))
    story.settle()
    story.pod(pod("shy", affinity=avoiding(term())))
    story.settle()
    assert story.node_of("shy") is None
    story.pod(pod("web-2", nodeName="c", labels={"app": "web"}))
    story.pod_deleted("web-1")
    story.settle()
    assert story.node_of("shy") == "a"


def test_a_node_that_moves_to_another_zone_is_of_that_one() -> None:
    asking = cluster(a=1)
    assert affinity_codes(asking, avoiding(term())) == {"a": 2, "b": 2, "c": 0, "d": 0, "e": 0}
    asking.nodes(node("d", labels={"zone": "x"}), node("b", labels={"zone": "z"}))
    assert asking.codes(TOGETHER, "p") == {"a": 2, "b": 0, "c": 0, "d": 2, "e": 0}
