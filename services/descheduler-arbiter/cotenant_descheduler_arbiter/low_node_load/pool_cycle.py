"""LowNodeLoad: one cycle over all pools, from measured usage to the pods that shall move.

In: the pools, the nodes with a fresh metric, the streaks so far, the time. Out: how each hot (or formerly hot) node was
judged with its new streaks, the moves, the pods that stay.

Per pool: classify; every hot node is marked abnormal, every other node that has a streak is marked normal; a hot node is
relieved only in state Anomaly (at once where the pool has no anomaly condition, or one of a single detection). Nothing moves
when no node is low, or when the low ones are not more than `number_of_nodes`, or when all are. After the balance a relieved
node is marked normal once, and its anomaly ends where the computed usage is no longer over.

A node that was judged in this cycle already is not judged again. A detector is forgotten when its node has not been hot for
`detector_cache_timeout`. koord-descheduler leaves the streak of a node that is neither hot nor low untouched; here it is
broken, because "consecutive" says so.

Source: koord-descheduler LowNodeLoad, the version with prod thresholds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from cotenant.events.migrations import AnomalyStreak, DetectorState, NodeLoadJudged
from cotenant_descheduler_arbiter.config.policy import AnomalyCondition, LowNodeLoad, Pool
from cotenant_descheduler_arbiter.low_node_load.anomaly import mark, reset
from cotenant_descheduler_arbiter.low_node_load.balance import Balance, Move, StayingPod, WhyNot
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
        """True where nothing would change by another normal mark."""
        return all(
            each.state is DetectorState.OK and each.abnormal_streak == 0 for each in (self.node, self.prod)
        )


def streaks_of(judged: NodeLoadJudged) -> Streaks:
    """Return the streaks that a stored judgement carries."""
    return Streaks(node=judged.node_streak, prod=judged.prod_streak, abnormal_at=judged.abnormal_at)


class Judgement(msgspec.Struct, frozen=True):
    """How one node was judged; `abnormal` says that it was relieved if there was room."""

    node: str
    pool: str
    load_class: LoadClass
    load: NodeLoad
    streaks: Streaks
    abnormal: bool = False


class CycleResult(msgspec.Struct):
    """What one cycle comes to."""

    judgements: list[Judgement] = []
    moves: list[Move] = []
    kept: list[StayingPod] = []
    classes: dict[str, dict[str, LoadClass]] = {}
    """Per pool: node to class."""


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
    """Return what follows for all pools. `nodes` in a stated order; `measured` holds those with a fresh metric."""
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
    pool: Pool,
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
            result.judgements.append(
                Judgement(
                    name, pool.name, _told(pool, classes[name]), judged.loads[name], marked[name], abnormal=name in abnormal
                )
            )


def _told(pool: Pool, load_class: LoadClass) -> LoadClass:
    """Return the class as it is published: without prod thresholds, every node is low for prod."""
    if pool.prod_low_thresholds or pool.prod_high_thresholds:
        return load_class
    return {LoadClass.BOTH_LOW: LoadClass.LOW, LoadClass.PROD_LOW: LoadClass.NORMAL}.get(load_class, load_class)


def _balance(
    args: LowNodeLoad,
    pool: Pool,
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


def _hottest_first(pool: Pool, judged: JudgedPool, names: Sequence[str]) -> list[str]:
    loads = [judged.loads[name] for name in names]
    return sort_nodes([(load.name, load.usage, load.allocatable) for load in loads], pool.weights)


def _abnormal(condition: AnomalyCondition | None, detector: AnomalyStreak) -> bool:
    return condition is None or condition.immediate or detector.state is DetectorState.ANOMALY


def _marked(
    args: LowNodeLoad, pool: Pool, known: Streaks | None, load_class: LoadClass, now: datetime
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


def normal_is_news(args: LowNodeLoad, known: Streaks, now: datetime) -> bool:
    """Tell whether it would change a node's streaks to be found not hot."""
    return any(_marked(args, pool, known, LoadClass.NORMAL, now) != known for pool in args.pools)


def _relieved(
    pool: Pool, streaks: Streaks, balance: Balance, load: NodeLoad, prod: bool, now: datetime
) -> Streaks:
    condition = pool.anomaly_condition
    if condition is None or condition.immediate:
        return streaks
    usage = balance.prod_usage[load.name] if prod else balance.usage[load.name]
    high = load.prod_band.high if prod else load.band.high
    detector = streaks.prod if prod else streaks.node
    after = mark(detector if is_over(usage, high) else reset(detector), condition, now, normal=True)
    return msgspec.structs.replace(streaks, prod=after) if prod else msgspec.structs.replace(streaks, node=after)
