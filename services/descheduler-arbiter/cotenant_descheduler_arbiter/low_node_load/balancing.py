"""One LowNodeLoad cycle over the state: hot nodes, moves, and the events about them.

In: the state, the policy, the time. Out: a NodeLoadJudged per hot (or formerly hot) node, each followed by the Migration jobs
created for it. Cycles are slots of `interval` since 1970; a node is judged once per slot, by the time of its last judgement.

Usage is corrected by moves in progress: pods with an unfinished job, or with a job finished less than a report interval before
the node's metric, no longer count on their source, but on the job's target.

Only nodes that are ready, selected and have a fresh metric take part, and at least two are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from cotenant.domain.selectors import selects
from cotenant.events.envelope import Event
from cotenant.events.migrations import NodeLoadJudged, RetainedPod
from cotenant.events.placements import Figure
from cotenant.model.names import RESOURCE_PODS
from cotenant.model.subjects import descheduling_subject, migration_subject
from cotenant_descheduler_arbiter.config.policy import LOW_NODE_LOAD, DeschedulerPolicy, LowNodeLoad
from cotenant_descheduler_arbiter.eviction.evictable import namespace_refusal
from cotenant_descheduler_arbiter.low_node_load.balance import Move, RefusedMove
from cotenant_descheduler_arbiter.low_node_load.classify import NodeLoad
from cotenant_descheduler_arbiter.low_node_load.pool_cycle import CycleResult, Judgement, run_cycle, streaks_of
from cotenant_descheduler_arbiter.low_node_load.scoring import percent_floor
from cotenant_descheduler_arbiter.low_node_load.under_way import under_way
from cotenant_descheduler_arbiter.migration.job_filters import JobFilters
from cotenant_descheduler_arbiter.migration.movable import Movable
from cotenant_descheduler_arbiter.migration.new_jobs import JobContext, job_name, new_job
from cotenant_descheduler_arbiter.migration.slots import slot_of
from cotenant_descheduler_arbiter.state.facts import PodFacts
from cotenant_descheduler_arbiter.state.fold import ClusterFold
from cotenant_descheduler_arbiter.state.known import end
from cotenant_descheduler_arbiter.state.measuring import MeasuredNode, add_amounts, amounts, fresh, measure, system_amounts
from cotenant_descheduler_arbiter.state.node_views import cycle_nodes, node_facts

MAX_KEPT = 10


def judged_in_slot(fold: ClusterFold, policy: DeschedulerPolicy, now: datetime) -> frozenset[str]:
    """Return the nodes that were judged in the current cycle."""
    slot = slot_of(now, policy.interval)
    return frozenset(
        name
        for name, known in fold.judged.items()
        if known.value.judged_at is not None and slot_of(known.value.judged_at, policy.interval) >= slot
    )


def end_deleted_nodes(fold: ClusterFold) -> Iterator[Event]:
    """Yield tombstones of the judgements of deleted nodes."""
    for name, known in sorted(fold.judged.items()):
        if name not in fold.nodes and name not in fold.executors:
            yield end(descheduling_subject(name), known)


class Balancing:
    """One cycle over one state."""

    def __init__(self, fold: ClusterFold, policy: DeschedulerPolicy, filters: JobFilters, now: datetime) -> None:
        self.fold = fold
        self.policy = policy
        self.now = now
        self.movable = Movable(fold, policy, filters, now)

    def decide(self, args: LowNodeLoad) -> Iterator[Event]:
        """Yield the events, by node."""
        names = cycle_nodes(self.fold, self.policy.node_selector)
        if len(names) <= 1:
            return
        pods = {name: self.fold.pods.on(name) for name in names}
        nodes = [node_facts(self.fold, name, pods[name]) for name in names]
        leaving, arriving = under_way(self.fold)
        measured: dict[str, MeasuredNode] = {}
        for node in nodes:
            metric = self.fold.metrics.get(node.name)
            if metric is None or not fresh(metric.value, self.policy.metric_expiration, self.now):
                continue
            usage = {
                f"{pod.namespace}/{pod.name}": amounts(pod.usage)
                for pod in metric.value.pods
                if (node.name, f"{pod.namespace}/{pod.name}", pod.uid) not in leaving
            }
            system = add_amounts(system_amounts(metric.value), *arriving.get(node.name, ()))
            measured[node.name] = measure(node, pods[node.name], system, usage)
        streaks = {name: streaks_of(known.value) for name, known in self.fold.judged.items()}
        result = run_cycle(
            args,
            nodes,
            measured,
            streaks,
            judged_in_slot(self.fold, self.policy, self.now),
            self.now,
            why_not_movable=self._why_not_movable,
            why_not_now=self._why_not_now,
        )
        yield from self._events(result)

    # -- callbacks of the balance --------------------------------------------------------------------------------

    def _why_not_movable(self, pod: PodFacts) -> str | None:
        reason = namespace_refusal(self.policy.balance_namespaces, pod.namespace)
        if reason is not None:
            return reason
        selectors = self.policy.balance_selectors
        if selectors and not any(selects(selector, pod.pod.metadata.labels, absent=False) for selector in selectors):
            return "no pod selector selects it"
        return self.movable.why_not(pod)

    def _why_not_now(self, pod: PodFacts) -> str | None:
        reason = self.movable.why_not_now(pod)
        if reason is None:
            self.movable.counts.count(pod.node, pod.namespace)
            self.movable.count(pod)
        return reason

    # -- events --------------------------------------------------------------------------------------------------

    def _events(self, result: CycleResult) -> Iterator[Event]:
        dry_run = self.policy.dry_run or self.policy.balance_dry_run
        for judgement in sorted(result.judgements, key=lambda each: each.node):
            moves = [move for move in result.moves if move.source == judgement.node]
            kept = [each for each in result.kept if each.source == judgement.node]
            metric = self.fold.metrics[judgement.node]
            known = self.fold.judged.get(judgement.node)
            causes = (metric.ref, *((known.ref,) if known is not None else ()))
            names = tuple(self._job_name(move) for move in moves)
            yield Event(
                subject=descheduling_subject(judgement.node),
                data=self._judged(judgement, names, moves, kept, dry_run),
                causes=causes,
            )
            if not dry_run:
                for name, move in zip(names, moves, strict=True):
                    yield self._job(name, move)

    def _judged(
        self, judgement: Judgement, names: tuple[str, ...], moves: list[Move], kept: list[RefusedMove], dry_run: bool
    ) -> NodeLoadJudged:
        streaks = judgement.streaks
        notes = []
        if dry_run and moves:
            notes.append("dry run: would move " + ", ".join(move.facts.key for move in moves))
        elif judgement.abnormal and not moves:
            notes.append("hot, and nothing can be moved")
        notes.append(_in_percent(judgement.load))
        return NodeLoadJudged(
            node=judgement.node,
            pool=judgement.pool,
            load_class=str(judgement.load_class),
            judged_at=self.now,
            node_streak=streaks.node,
            prod_streak=streaks.prod,
            abnormal_at=streaks.abnormal_at,
            figures=_load_figures(judgement.load),
            moved=() if dry_run else names,
            kept=tuple(
                RetainedPod(namespace=each.facts.namespace, name=each.facts.name, reason=each.reason)
                for each in kept[:MAX_KEPT]
            ),
            kept_count=len(kept),
            message="; ".join(notes),
        )

    def _job_name(self, move: Move) -> str:
        return job_name(move.facts, f"{move.facts.uid}/{move.facts.key}/{self.movable.slot}")

    def _job(self, name: str, move: Move) -> Event:
        pod = move.facts
        source, target = self.fold.metrics[move.source], self.fold.metrics[move.target]
        known = self.fold.pods.objects.get(pod.key)
        job = new_job(name, pod, LOW_NODE_LOAD, move.reason, self.policy.job_defaults, JobContext(), self.now)
        job = msgspec.structs.replace(
            job, node=move.source, target=move.target, pod_usage=move.pod_usage, figures=_move_figures(move)
        )
        causes = (source.ref, target.ref, *((known.ref,) if known is not None else ()))
        return Event(subject=migration_subject(name), data=job, causes=causes)


def _figures(prefix: str, amounts_by_name: Mapping[str, int]) -> tuple[Figure, ...]:
    return tuple(Figure(name=f"{prefix}.{name}", value=value) for name, value in sorted(amounts_by_name.items()))


def _in_percent(load: NodeLoad) -> str:
    """Usage in percent of the resources with thresholds."""
    used = percent_floor({name: load.usage.get(name, 0) for name in sorted(load.band.high)}, load.allocatable)
    return "uses " + ", ".join(f"{name} {percent} %" for name, percent in used.items() if load.allocatable.get(name))


def _load_figures(load: NodeLoad) -> tuple[Figure, ...]:
    named = [name for name in sorted(load.band.high) if name == RESOURCE_PODS or load.allocatable.get(name)]
    figures = []
    for prefix, usage, band in (("", load.usage, load.band), ("prod.", load.prod_usage, load.prod_band)):
        for name in named:
            figures += [
                Figure(name=f"{prefix}{name}.usage", value=usage.get(name, 0)),
                Figure(name=f"{prefix}{name}.low", value=band.low[name]),
                Figure(name=f"{prefix}{name}.high", value=band.high[name]),
            ]
    return tuple(figures)


def _move_figures(move: Move) -> tuple[Figure, ...]:
    return (
        *_figures("pod.usage", move.pod_usage),
        *_figures("source.before", move.source_before),
        *_figures("source.after", move.source_after),
        *_figures("source.high", move.source_high),
        *_figures("target.before", move.target_before),
        *_figures("target.after", move.target_after),
        *_figures("target.high", move.target_high),
    )
