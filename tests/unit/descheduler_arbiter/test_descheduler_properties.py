"""What holds for every balance, streak and bucket, whatever the figures."""

import itertools
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.api.objects.metadata import ObjectMeta, OwnerReference
from cotenant.api.objects.pod import Pod
from cotenant.events.migrations import AnomalyStreak, DetectorState
from cotenant_descheduler_arbiter.config.policy import AnomalyCondition, LowNodeLoad, NodePool
from cotenant_descheduler_arbiter.eviction.object_limiter import limited
from cotenant_descheduler_arbiter.low_node_load.anomaly import mark
from cotenant_descheduler_arbiter.low_node_load.classify import is_over, is_under
from cotenant_descheduler_arbiter.low_node_load.pool_cycle import CycleResult, run_cycle
from cotenant_descheduler_arbiter.low_node_load.pools import judge
from cotenant_descheduler_arbiter.migration.max_unavailable import max_away
from cotenant_descheduler_arbiter.state.facts import NodeFacts, PodFacts
from cotenant_descheduler_arbiter.state.measuring import measure

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CAPACITY = 10_000
POOL = NodePool("pool", low_thresholds={"cpu": 30.0}, high_thresholds={"cpu": 60.0})
NODES = st.lists(st.lists(st.integers(0, 4000), max_size=8), min_size=1, max_size=6)


def balance(usages: list[list[int]]) -> tuple[dict[str, int], CycleResult]:
    measured, facts = {}, []
    for index, pods in enumerate(usages):
        name = f"node-{index}"
        owner = OwnerReference(kind="ReplicaSet", name="web", uid="uid-web", controller=True)
        here = [
            PodFacts(
                Pod(metadata=ObjectMeta(name=f"{name}-{number}", namespace="default", owner_references=[owner])),
                node=name,
            )
            for number in range(len(pods))
        ]
        node = NodeFacts(name, allocatable={"cpu": CAPACITY, "memory": 1000, "pods": 100}, pod_count=len(here))
        usage = {pod.key: {"cpu": used, "memory": 0} for pod, used in zip(here, pods, strict=True)}
        facts.append(node)
        measured[name] = measure(node, here, {}, usage)
    result = run_cycle(
        LowNodeLoad(pools=(POOL,)),
        facts,
        measured,
        {},
        (),
        NOW,
        why_not_movable=lambda pod: None,
        why_not_now=lambda pod: None,
    )
    after = {name: node.usage["cpu"] for name, node in measured.items()}
    for move in result.moves:
        after[move.source] -= move.pod_usage["cpu"]
        after[move.target] += move.pod_usage["cpu"]
    loads = judge(POOL, [measured[node.name] for node in facts]).loads
    for move in result.moves:
        assert is_over(loads[move.source].usage, loads[move.source].band.high), "only hot nodes lose pods"
        assert is_under(loads[move.target].usage, loads[move.target].band.low), "only low nodes are targets"
    return after, result


@settings(max_examples=200, deadline=None)
@given(NODES)
def test_no_move_overloads_its_target_or_empties_its_source(usages: list[list[int]]) -> None:
    after, result = balance(usages)
    for move in result.moves:
        assert after[move.target] <= 6000
        assert after[move.source] > 3000
    assert len({move.facts.key for move in result.moves}) == len(result.moves)


@settings(max_examples=100, deadline=None)
@given(NODES)
def test_a_move_is_only_made_while_its_node_is_hot(usages: list[list[int]]) -> None:
    _, result = balance(usages)
    assert all(move.source_before["cpu"] > 6000 for move in result.moves)


@given(st.integers(2, 6), st.integers(1, 4), st.lists(st.booleans(), max_size=40))
def test_an_anomaly_needs_more_than_n_detections_in_a_row(needed: int, normalities: int, marks: list[bool]) -> None:
    condition = AnomalyCondition(timedelta(hours=1), needed, normalities)
    detector, row = AnomalyStreak(), 0
    for normal in marks:
        before = detector.state
        detector = mark(detector, condition, NOW, normal=normal)
        row = 0 if normal else row + 1
        if before is DetectorState.OK and detector.state is DetectorState.ANOMALY:
            assert row > needed


@given(st.integers(0, 500), st.one_of(st.none(), st.integers(0, 600), st.integers(0, 100).map(lambda p: f"{p}%")))
def test_never_more_pods_away_than_there_are_and_always_one_if_there_is_one(replicas: int, value: int | str | None) -> None:
    away = max_away(replicas, value)
    assert min(1, replicas) <= away <= replicas


@given(st.lists(st.integers(0, 600), max_size=20), st.integers(1, 10), st.integers(1, 600))
def test_who_obeys_the_limiter_never_evicts_faster_than_its_rate(offsets: list[int], maximum: int, seconds: int) -> None:
    duration = timedelta(seconds=seconds)
    granted: list[datetime] = []
    for offset in sorted(offsets):
        at = NOW + timedelta(seconds=offset)
        if not limited(granted, duration=duration, max_migrating=maximum, burst=1, now=at):
            granted.append(at)
    for first, second in itertools.pairwise(granted):
        assert (second - first).total_seconds() >= seconds / maximum - 1e-6
