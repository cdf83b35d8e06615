"""While a batch of its own is being stored the calculator decides as if it were stored, and as before if it is not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import TypeAlias

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.engine.core import MAX_EVENTS_PER_DECISION, Assuming
from cotenant.events import Event, NodeResources
from cotenant.model.subjects import resources_subject
from cotenant_batch_resource_calculator.core import BatchResourceCalculator
from tests.unit.batch_resource_calculator.builders_batch_resource_calculator import ENABLED, NOON, Bench, used

LATER = NOON + timedelta(minutes=1)
Step: TypeAlias = tuple[str, str, int]
BUDGET = {"riskBudget": {"brokenPercent": 1, "leastHours": 1}}
CONFIGURATIONS = (
    ENABLED,
    json.dumps({"enable": True, "cpuReclaimThresholdPercent": 70, "extensions": BUDGET}),
    '{"enable": false}',
    '{"enable": true, "cpuReclaimThresholdPercent": -1}',
    "{",
)


def take(bench: Bench, steps: Sequence[Step]) -> None:
    """Store a fact for each step: what, of which node, a number that varies it."""
    for what, node, number in steps:
        match what:
            case "metric":
                at = NOON + timedelta(minutes=20 * number)
                bench.metric(node, system=used(number, 1), pods={f"web-{node}": used(10 * number, 9)}, at=at)
            case "node":
                bench.node(node, cpu=str(50 + 10 * number), labels={"pool": str(number)})
            case "deleted":
                bench.delete_node(node)
            case "place":
                bench.place(f"{'web' if number else 'late'}-{node}", node=node, cpu=str(1 + number))
            case "configure":
                bench.configure(CONFIGURATIONS[number % len(CONFIGURATIONS)])


def decided(bench: Bench) -> list[Event]:
    """A decision, as it is being stored."""
    return [msgspec.structs.replace(event, time=NOON) for event in bench.core.decide(NOON)]


NODES = ("a", "b", "c")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["metric", "metric", "node", "deleted", "place", "configure"]),
        st.sampled_from(NODES),
        st.integers(0, 5),
    ),
    max_size=8,
)
BEGUN: list[Step] = [("configure", "", 0), *(("node", node, 5) for node in NODES), *(("metric", node, 0) for node in NODES)]


def test_the_core_decides_behind_a_batch_that_is_being_stored() -> None:
    assert isinstance(BatchResourceCalculator(), Assuming)


@settings(deadline=None, max_examples=300)
@given(STEPS, STEPS, STEPS)
def test_a_decision_behind_a_batch_is_the_same_whether_it_is_being_stored_or_stored(
    stored: list[Step], before: list[Step], meanwhile: list[Step]
) -> None:
    ahead, behind = Bench(), Bench()
    for bench in (ahead, behind):
        take(bench, [*BEGUN, *stored])
        bench.decide()
        take(bench, before)
    batch = decided(ahead)
    assert decided(behind) == batch
    ahead.core.assume(batch)
    first = len(ahead.log) + 1
    stored_batch = [msgspec.structs.replace(event, sequence=sequence) for sequence, event in enumerate(batch, first)]
    for event in stored_batch:
        behind.core.apply(event)
    for bench in (ahead, behind):
        bench.log.extend(stored_batch)
    for bench in (ahead, behind):
        take(bench, meanwhile)
    assert list(ahead.core.decide(LATER)) == list(behind.core.decide(LATER))
    ahead.core.confirm(first)
    assert list(ahead.core.decide(LATER)) == list(behind.core.decide(LATER))
    assert ahead.decide(LATER) == behind.decide(LATER)
    assert ahead.core.counts.resources == behind.core.counts.resources
    assert ahead.core.counts.slos == behind.core.counts.slos


@settings(deadline=None, max_examples=300)
@given(STEPS, STEPS, STEPS)
def test_a_batch_that_is_not_stored_leaves_nothing_behind(
    stored: list[Step], before: list[Step], meanwhile: list[Step]
) -> None:
    tried, never = Bench(), Bench()
    for bench in (tried, never):
        take(bench, [*BEGUN, *stored])
        bench.decide()
        take(bench, before)
    tried.core.assume(decided(tried))
    for bench in (tried, never):
        take(bench, meanwhile)
    tried.core.decide(LATER)
    tried.core.withdraw()
    assert list(tried.core.decide(LATER)) == list(never.core.decide(LATER))
    assert tried.decide(LATER) == never.decide(LATER)
    assert tried.core.counts.resources == never.core.counts.resources


def test_the_next_nodes_are_decided_while_the_first_are_being_stored() -> None:
    bench = Bench()
    bench.configure()
    names = [f"n{number:04}" for number in range(MAX_EVENTS_PER_DECISION - 1)]
    for name in names:
        bench.node(name)
        bench.metric(name)
    first = decided(bench)
    bench.core.assume(first)
    second = bench.core.decide(NOON)
    assert {event.subject for event in first}.isdisjoint(event.subject for event in second)
    nodes = {event.data.node for event in (*first, *second) if isinstance(event.data, NodeResources)}
    assert nodes == set(names)


def test_a_report_is_compared_with_a_loan_that_is_being_stored() -> None:
    bench = Bench()
    bench.configure(CONFIGURATIONS[1])
    bench.node()
    bench.place("web-a", cpu="50")
    metric = bench.metric(pods={"web-a": used(20, 10)})
    bench.core.assume(decided(bench))
    bench.metric(pods={"web-a": used(33, 10)}, at=LATER)
    found = next(event.data for event in bench.core.decide(LATER) if event.subject == resources_subject("a"))
    assert isinstance(found, NodeResources)
    terms = {term.name: term for term in found.terms}
    assert (terms["risk-assumed"].cpu_milli, terms["risk-real"].cpu_milli) == (20_000, 33_000)
    assert terms["risk-assumed"].source == metric.ref, "the metric that the loan was made from"
