"""The results cached for rows with reservations: whatever changes, they are those of rows that are all judged again."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant_scheduler.cycle.reservations.candidates import FEW_ROWS, Candidates
from cotenant_scheduler.cycle.reservations.matched import lift
from cotenant_scheduler.plugins.reservation.fitting import NOT_IGNORED
from cotenant_scheduler.plugins.reservation.matching import Ask, ask_of
from cotenant_scheduler.plugins.reservation.scoring import WEIGHT
from cotenant_scheduler.state.reading.shapes import Shape
from tests.unit.scheduler.asking import GATE
from tests.unit.scheduler.builders_reservations import GROUP, ReservedStory, reservation, wants
from tests.unit.scheduler.builders_scheduler import node, pod

WEB = {"app": "web"}
IGNORES = {"app": "web", f"{GROUP}/reservation-ignored": "true"}
ORDER = f"{GROUP}/reservation-order"
UNITS: dict[str, Any] = {"example.com/unit": "4"}
MANY = tuple(f"n{index}" for index in range(FEW_ROWS + 8))


def on(name: str, where: str, **more: Any) -> dict[str, Any]:
    """A reservation of a named node that is allocated often."""
    return reservation(name, template={"nodeName": where}, **{"allocateOnce": False, "cpu": "4", **more})


class Judging(ReservedStory):
    """A log, and the candidates of one pod that is only asked about, kept from one change to the next."""

    def __init__(self, names: tuple[str, ...], labels: dict[str, str], annotations: dict[str, str], **spec: Any) -> None:
        super().__init__()
        self.nodes(*(node(name, cpu="16", labels={"zone": "near"}) for name in names))
        self.pod(pod("asked", cpu="2", labels=labels, annotations=annotations, schedulingGates=GATE, **spec))
        self.known: Candidates | None = None

    def _asked(self) -> tuple[Shape, Ask]:
        record = self.core.pods.records["default", "asked"]
        facts = record.facts
        assert facts is not None
        assert facts.shape is not None
        ask = ask_of(facts.labels, facts.traits.annotations, self.core.reservations.index.meaning(record, facts))
        assert ask is not None
        return facts.shape, ask

    def keep(self) -> dict[str, str]:
        """Judge all rows, and keep the results."""
        self.settle()
        self.known = Candidates(self.core.nodes, self.core.reservations, *self._asked(), NOT_IGNORED)
        return self.check()

    def check(self) -> dict[str, str]:
        """Compare the kept results with new ones; return by node the reservation that the pod would use there."""
        self.settle()
        nodes, known = self.core.nodes, self.known
        assert known is not None
        shape, ask = self._asked()
        fresh = Candidates(nodes, self.core.reservations, shape, ask, NOT_IGNORED)
        nodes.rank()
        for candidates in (known, fresh):
            candidates.refresh(self.core.placing.evaluation(shape))
        assert _results(known) == _results(fresh)
        assert (known.diagnoses, known.reasons) == (fresh.diagnoses, fresh.reasons)
        for instead in (-1, *range(nodes.size)):
            assert _best(known, instead) == _best(fresh, instead)
        return {
            nodes.names[row]: found.record.name if found.record is not None else ""
            for row, found in sorted(fresh.found.items())
        }


def _results(candidates: Candidates) -> dict[int, tuple[object, ...]]:
    return {row: (found.scores, found.record, found.room) for row, found in candidates.found.items()}


def _best(candidates: Candidates, instead: int) -> tuple[int, ...] | None:
    keys: list[int] = []

    def noted(key: int) -> int:
        keys.append(key)
        return instead

    best = candidates.best(WEIGHT, noted)
    return (best[0], best[1].row, *keys) if best is not None else None


ASKING: list[tuple[dict[str, str], dict[str, str]]] = [
    (WEB, {}),
    (WEB, wants(reservationSelector={"size": "large"})),
    (IGNORES, {}),
]


@pytest.mark.parametrize("names", [MANY[:2], MANY])
@pytest.mark.parametrize(("labels", "annotations"), ASKING, ids=["any", "selected", "ignoring"])
def test_results_that_are_kept_are_those_of_rows_that_are_judged_again(
    names: tuple[str, ...], labels: dict[str, str], annotations: dict[str, str]
) -> None:
    story = Judging(names, labels, annotations)
    large = {"size": "large"}
    story.reservation(reservation("too-large", cpu="99"))  # so that the owners stay known by one number
    for where in names:
        story.reservation(on(f"r-{where}", where, labels=large))
    named = "" if labels is IGNORES else "r-"
    assert story.keep() == {where: named and f"r-{where}" for where in names}
    first, second, *others = names

    # All of a node is used: by a pod that names it, and by an owner of the reservation there.
    story.pod(pod("rest", cpu="12", nodeName=first))
    story.pod(pod("owner", cpu="4", labels=WEB, annotations=wants(name=f"r-{first}")))
    assert story.check() == {where: named and f"r-{where}" for where in (second, *others)}
    story.pod_deleted("owner")
    assert set(story.check()) == set(names)

    # The node's labels count beside the reservation's; one without the label is not selected.
    story.reservation(on(f"r-{second}", second))
    kept = set(names) - ({second} if annotations else set())
    assert set(story.check()) == kept
    story.node(node(second, cpu="16", labels=large))
    assert set(story.check()) == set(names)

    # Several change at once: one is deleted, one is for other pods from now on, one comes for pods like this.
    story.reservation_deleted(f"r-{first}")
    story.reservation(on("alien", first, app="db", labels=large, cpu="1"))
    story.reservation(on(f"r-{second}", second, app="db"))
    kept = set(names) if labels is IGNORES else set(others)
    if others:
        assert set(story.check()) == kept
        story.reservation(on(f"r-{others[0]}", others[0], labels=large, unschedulable=True))
        story.reservation(on(f"r-{others[1]}", others[1], labels={**large, ORDER: "7"}))
        story.reservation(on(f"s-{others[2]}", others[2], labels=large, cpu="2"))
        found = story.check()
        assert set(found) == (kept if labels is IGNORES else kept - {others[0]})
        assert found[others[2]] == (named and f"s-{others[2]}"), "the pod fills it"
        story.node_deleted(others[3])
        assert others[3] not in story.check()
    story.reservation(on(f"late-{first}", first, labels=large, cpu="3"))
    found = story.check()
    assert found[first] == (named and f"late-{first}")

    # What is kept may be too old to be told what changed, and the table may have changed altogether.
    story.core.nodes.changes.forget()
    story.reservation_deleted(f"late-{first}")
    assert story.check().get(first) == ("" if labels is IGNORES else None)
    story.core.nodes.changes.forget()
    story.core.nodes.static_changes.forget()
    assert story.check().get(first) == ("" if labels is IGNORES else None)
    story.node(node(first, cpu="16", **UNITS))
    story.reservation(on(f"late-{first}", first, labels=large, cpu="3"))
    assert story.check() == found


def test_one_that_is_over_is_used_no_more() -> None:
    story = Judging(MANY, WEB, {})
    for where in MANY:
        story.reservation(on(f"r-{where}", where, ttl="60s" if where == "n3" else "24h", created="2026-01-01T11:59:30Z"))
    assert set(story.keep()) == set(MANY)
    story.later(30)
    assert set(story.check()) == set(MANY), "up to its last moment"
    story.later(0.001)
    assert set(story.check()) == set(MANY) - {"n3"}


def test_scores_follow_the_best_node_wherever_that_is() -> None:
    """Preferred affinity is worth 100 on the node that is preferred most, and a part of it on the others."""
    terms = [
        {"weight": weight, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}}
        for zone, weight in (("near", 10), ("here", 100))
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    story = Judging(MANY, WEB, {}, affinity=affinity)
    for where in MANY:
        story.reservation(on(f"r-{where}", where))
    story.keep()
    story.node(node("free", cpu="16", labels={"zone": "here"}))
    assert set(story.check()) == set(MANY)


def test_who_is_too_far_behind_to_be_told_what_changed_judges_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant_scheduler.state.reservations.cache.NAMES_KEPT", 2)
    story = Judging(MANY, WEB, {})
    for where in MANY:
        story.reservation(on(f"r-{where}", where))
    story.keep()
    for where in MANY[:5]:
        story.reservation(on(f"r-{where}", where, app="db"))
    assert set(story.check()) == set(MANY[5:]), "the owners of the others are those of the pod"


def test_matched_reservations_are_taken_off_a_row_and_put_back_without_a_trace() -> None:
    """Without them the row is one that has the owners alone."""
    with_it, without = ReservedStory(), ReservedStory()
    for story in (with_it, without):
        story.node(node("a", cpu="16", **UNITS))
    inside = {"cpu": "4", "memory": "3Gi", "example.com/unit": "2"}
    with_it.reservation(on("r", "a", requests=inside))
    with_it.reservation(on("no-memory", "a", app="db", requests={"cpu": "1"}))
    for story in (with_it, without):
        story.settle()
        story.pod(pod("owner", cpu="1", memory="1Gi", labels=WEB, annotations=wants(name="r") if story is with_it else {}))
        story.settle()
    nodes, alone = with_it.core.nodes, without.core.nodes
    row = nodes.rows["a"]
    uses = list(nodes.held.on(row).values())
    before = (nodes.requested[:, row].tolist(), nodes.nonzero[:, row].tolist(), [each.version for each in nodes.counters])
    lift(nodes, row, uses, -1)
    lifted = {name: int(nodes.requested[dim, row]) for name, dim in nodes.dims.items()}
    assert lifted == {name: int(alone.requested[dim, 0]) for name, dim in alone.dims.items()}
    assert lifted["example.com/unit"] == 0
    # For scores, a pod that requests no memory counts with 200 MB: so does a reserve pod, until it is taken off.
    assert nodes.nonzero[:, row].tolist() == alone.nonzero[:, 0].tolist()
    lift(nodes, row, uses, 1)
    after = (nodes.requested[:, row].tolist(), nodes.nonzero[:, row].tolist(), [each.version for each in nodes.counters])
    assert after == before


def test_a_pod_that_ignores_reservations_is_not_drawn_to_them() -> None:
    story = ReservedStory()
    story.nodes(node("a", cpu="16"), node("b", cpu="16"))
    story.pod(pod("busy", cpu="8", memory="16Gi", nodeName="a"))
    story.reservation(on("r", "a", cpu="1", memory="1Gi"))
    story.settle()
    story.pod(pod("any", cpu="2", labels=IGNORES))
    story.settle()
    assert (story.node_of("any"), story.used("any")) == ("b", ""), "b is idle"


def test_a_reservation_that_the_pod_fills_by_one_percent_draws_it() -> None:
    story = ReservedStory()
    story.nodes(node("a", cpu="200", memory="400Gi"), node("b", cpu="200", memory="400Gi"))
    story.pod(pod("busy", cpu="80", memory="200Gi", nodeName="a"))
    story.reservation(on("r", "a", cpu="100", memory="100Gi"))
    story.settle()
    # 2 of 100 CPUs and nothing to speak of memory: the mean is 1.
    story.pod(pod("w", cpu="2", memory="1Mi", labels=WEB))
    story.settle()
    assert (story.used("w"), story.node_of("w")) == ("r", "a")
