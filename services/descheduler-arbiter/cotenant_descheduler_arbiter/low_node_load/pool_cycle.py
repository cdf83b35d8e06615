"""LowNodeLoad: one cycle over all pools, from measured usage to the moves.

In: the pools, the nodes with a fresh metric, the streaks so far, the time. Out: the judgement of each hot (or formerly hot)
node with its new streaks, the moves, the pods that stay.

Per pool: classify; every hot node is marked abnormal, every other node with a streak is marked normal; a hot node is relieved
only in state Anomaly (at once if the pool has no anomaly condition, or one of a single detection). Nothing moves if no node is
low, if at most `number_of_nodes` are low, or if all are. After the balance a relieved node is marked normal once, and its
anomaly ends if the computed usage is no longer over.

A node is judged at most once per cycle. A detector is dropped when its node has not been hot for `detector_cache_timeout`.
koord-descheduler does not change the streak of a node that is neither hot nor low; here the streak ends, as detections must be
consecutive.

Source: koord-descheduler LowNodeLoad, the version with prod thresholds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from cotenant.events.migrations import AnomalyStreak, DetectorState, NodeLoadJudged
from cotenant_descheduler_arbiter.config.policy import AnomalyCondition, LowNodeLoad, NodePool
from cotenant_descheduler_arbiter.low_node_load.anomaly import mark, reset
from cotenant_descheduler_arbiter.low_node_load.balance import Balance, Move, RefusedMove, WhyNot
from cotenant_descheduler_arbiter.low_node_load.classify import LoadClass, NodeLoad, classify, is_over
from cotenant_descheduler_arbiter.low_node_load.pools import JudgedPool, filter_nodes, judge
from cotenant_descheduler_arbiter.low_node_load.sorting import sort_nodes
from cotenant_descheduler_arbiter.state.facts import NodeFacts
from cotenant_descheduler_arbiter.state.measuring import MeasuredNode

_LOW = (LoadClass.LOW, LoadClass.BOTH_LOW)
SOURCES = (LoadClass.HIGH, LoadClass.PROD_HIGH)
"""The classes of hot nodes."""


class Streaks(msgspec.Struct, frozen=True):
    """Both detectors of a node and when it was last hot."""

    node: AnomalyStreak = AnomalyStreak()
    prod: AnomalyStreak = AnomalyStreak()
    abnormal_at: datetime | None = None

    @property
    def idle(self) -> bool:
        """Whether another normal mark would change nothing."""
        return all(
            each.state is DetectorState.OK and each.abnormal_streak == 0 for each in (self.node, self.prod)
        )


def streaks_of(judged: NodeLoadJudged) -> Streaks:
    """Return the streaks in a stored judgement."""
    return Streaks(node=judged.node_streak, prod=judged.prod_streak, abnormal_at=judged.abnormal_at)


class Judgement(msgspec.Struct, frozen=True):
    """The judgement of one node; `abnormal`: it is relieved as far as targets have capacity."""

    node: str
    pool: str
    load_class: LoadClass
    load: NodeLoad
    streaks: Streaks
    abnormal: bool = False


class CycleResult(msgspec.Struct):
    """The result of one cycle."""

    judgements: list[Judgement] = []
    moves: list[Move] = []
    kept: list[RefusedMove] = []
    classes: dict[str, dict[str, LoadClass]] = {}
    """Classes by node, per pool."""


def run_cycle(
    args: LowNodeLoad,
    nodes: Sequence[NodeFacts],
    measured: Mapping[str, MeasuredNode],
    streaks: Mapping[str, Streaks],
    judged_already: Collection[str],
    now: datetime,
    *,
    why_not_movable: WhyNot,
    why_not_now: WhyNot,
) -> CycleResult:
    """Return the result over all pools. `nodes`: in order of evaluation; `measured`: those with a fresh metric."""
    result = CycleResult()
    processed: set[str] = set()
    labelled = [(node.name, node.labels) for node in nodes]
    for pool in args.pools:
        names = filter_nodes(pool.node_selector, labelled, processed)
        members = [measured[name] for name in names if name in measured]
        if members:
            _run_pool(
                args, pool, members, streaks, judged_already, processed, now, result, why_not_movable, why_not_now
            )
    return result


def _run_pool(
    args: LowNodeLoad,
    pool: NodePool,
    members: Sequence[MeasuredNode],
    streaks: Mapping[str, Streaks],
    judged_already: Collection[str],
    processed: set[str],
    now: datetime,
    result: CycleResult,
    why_not_movable: WhyNot,
    why_not_now: WhyNot,
) -> None:
    judged = judge(pool, members)
    classes = {name: classify(load) for name, load in judged.loads.items()}
    result.classes[pool.name] = classes
    fresh = [name for name in classes if name not in judged_already]
    marked = {name: _marked(args, pool, streaks.get(name), classes[name], now) for name in fresh}
    hot = [
        name
        for name in fresh
        if classes[name] is LoadClass.HIGH and _abnormal(pool.anomaly_condition, marked[name].node)
    ]
    prod_hot = [
        name
        for name in fresh
        if classes[name] is LoadClass.PROD_HIGH and _abnormal(pool.anomaly_condition, marked[name].prod)
    ]
    balance = _balance(args, pool, members, judged, classes, why_not_movable, why_not_now)
    if (hot or prod_hot) and _has_destinations(args, classes):
        balance.run(_hottest_first(pool, judged, hot), _hottest_first(pool, judged, prod_hot))
        result.moves += balance.moves
        result.kept += balance.kept
        for name in (*hot, *prod_hot):
            marked[name] = _relieved(pool, marked[name], balance, judged.loads[name], name in prod_hot, now)
    abnormal = {*hot, *prod_hot}
    processed.update(name for name, each in classes.items() if each in SOURCES)
    for name in fresh:
        if classes[name] in SOURCES or marked[name] != streaks.get(name, Streaks()):
            load_class = _published_class(pool, classes[name])
            result.judgements.append(
                Judgement(name, pool.name, load_class, judged.loads[name], marked[name], abnormal=name in abnormal)
            )


def _published_class(pool: NodePool, load_class: LoadClass) -> LoadClass:
    """Return the class to publish: without prod thresholds every node is low for prod."""
    if pool.prod_low_thresholds or pool.prod_high_thresholds:
        return load_class
    return {LoadClass.BOTH_LOW: LoadClass.LOW, LoadClass.PROD_LOW: LoadClass.NORMAL}.get(load_class, load_class)


def _balance(
    args: LowNodeLoad,
    pool: NodePool,
    members: Sequence[MeasuredNode],
    judged: JudgedPool,
    classes: Mapping[str, LoadClass],
    why_not_movable: WhyNot,
    why_not_now: WhyNot,
) -> Balance:
    return Balance(
        members,
        judged.loads,
        classes,
        node_fit=args.node_fit,
        weights=pool.weights,
        band=judged.band,
        prod_band=judged.prod_band,
        why_not_movable=why_not_movable,
        why_not_now=why_not_now,
    )


def _has_destinations(args: LowNodeLoad, classes: Mapping[str, LoadClass]) -> bool:
    low = sum(1 for each in classes.values() if each in (*_LOW, LoadClass.PROD_LOW))
    return low > 0 and low > args.number_of_nodes and low < len(classes)


def _hottest_first(pool: NodePool, judged: JudgedPool, names: Sequence[str]) -> list[str]:
    loads = [judged.loads[name] for name in names]
    return sort_nodes([(load.name, load.usage, load.allocatable) for load in loads], pool.weights)


def _abnormal(condition: AnomalyCondition | None, detector: AnomalyStreak) -> bool:
    return condition is None or condition.immediate or detector.state is DetectorState.ANOMALY


def _marked(
    args: LowNodeLoad, pool: NodePool, known: Streaks | None, load_class: LoadClass, now: datetime
) -> Streaks:
    """Return the streaks of a node after this cycle's observation."""
    before = known if known is not None else Streaks()
    if before.abnormal_at is not None and now - before.abnormal_at > args.detector_cache_timeout:
        before = Streaks()
    condition = pool.anomaly_condition
    source = load_class in SOURCES
    if condition is None or condition.immediate:
        return Streaks(abnormal_at=now) if source else Streaks()
    if not source and before.idle:
        return before if known is None else known
    node, prod = before.node, before.prod
    if load_class is LoadClass.HIGH:
        node = mark(node, condition, now, normal=False)
    else:
        node = mark(reset(node) if load_class in _LOW else node, condition, now, normal=True)
        if load_class is LoadClass.PROD_HIGH:
            prod = mark(prod, condition, now, normal=False)
        else:
            prod = mark(reset(prod) if load_class is LoadClass.PROD_LOW else prod, condition, now, normal=True)
    return Streaks(node=node, prod=prod, abnormal_at=now if source else before.abnormal_at)


def normal_changes_streaks(args: LowNodeLoad, known: Streaks, now: datetime) -> bool:
    """Whether a normal mark would change a node's streaks."""
    return any(_marked(args, pool, known, LoadClass.NORMAL, now) != known for pool in args.pools)


def _relieved(
    pool: NodePool, streaks: Streaks, balance: Balance, load: NodeLoad, prod: bool, now: datetime
) -> Streaks:
    condition = pool.anomaly_condition
    if condition is None or condition.immediate:
        return streaks
    usage = balance.prod_usage[load.name] if prod else balance.usage[load.name]
    high = load.prod_band.high if prod else load.band.high
    detector = streaks.prod if prod else streaks.node
    after = mark(detector if is_over(usage, high) else reset(detector), condition, now, normal=True)
    return msgspec.structs.replace(streaks, prod=after) if prod else msgspec.structs.replace(streaks, node=after)
