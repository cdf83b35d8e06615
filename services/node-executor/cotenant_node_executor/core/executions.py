"""Events about the executor's actions on the node: changed files by topic, orders carried out, refusals.

In: the cycle's plan, the writer's report, the orders, and their causes. Out: events on stream EXECUTION.

| topic | content |
|---|---|
| the topic of a strategy | values that it set (old, new, why, figures), its evictions, memory that was reclaimed |
| restored | targets without a desired value: initial values; former values of sysctls, files below /sys, resctrl groups |
| runtime | a container was started; a pod is being stopped (if LOG orders it, once that has taken STOP: its report follows) |
| kubelet | where kubelet runs the pods: groups without a pod on LOG, pods without a group, Kata pods; when that changes |
| refusals | the kernel refused a value, a pod cannot run here, a strategy cannot do what is asked, evictions wait; each once |

A strategy in a dry run publishes its would-be actions on its own topic, when they change. Several strategies may share a topic.

Bound: MAX_CHANGES changes in one event; more are counted in its summary. Over 300 lines: one short method a kind of event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from cotenant.events.envelope import Event
from cotenant.events.node.execution import Change, Execution
from cotenant.events.placements import PlacementPhase
from cotenant.log.contract import EXECUTION, USAGE
from cotenant.model.subjects import execution_subject
from cotenant_node_executor.core.core import ExecutorCore
from cotenant_node_executor.core.dry_runs import DryRunResult
from cotenant_node_executor.core.placed import Key
from cotenant_node_executor.core.plan import CyclePlan
from cotenant_node_executor.runtime.interface import Collect, EndAttempt, Forget, Order, Start, Stop
from cotenant_node_executor.strategies.strategy import RESTORE, Cause, Desired, Evict, Problems, Reclaim, Strategy
from cotenant_node_executor.targets.address import Place, place_text
from cotenant_node_executor.targets.interface import Knob, Reclaimed, WriteReport, WrittenValue

MAX_CHANGES = 50
STOP = timedelta(seconds=1)
"""A pod that a terminating placement ends has usually ended by then, and its report on LOG says so."""

RUNTIME = "runtime"
"""The topic of a pod's containers."""
NEWEST_USAGE = f"{USAGE}:newest"
"""Placeholder in the causes for the usage message that is stored just before the event."""

_OF_A_TREE = frozenset((Knob.CPU_QUOTA, Knob.CPUSET_CPUS))
_TERMINATING = PlacementPhase.TERMINATING


class Executions:
    """Builds the events of one node. Its only state is what was published, so that nothing is published twice."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._subjects: dict[str, str] = {}
        """By topic."""
        self._stopping: dict[str, datetime | None] = {}
        """When pods were first told to stop, by uid; None: that was published."""
        self._ending: set[tuple[str, str, int]] = set()
        self._refused_pods: set[str] = set()
        self._waiting: tuple[tuple[str, str], ...] = ()
        self._strangers: tuple[str, ...] = ()

    def of_cycle(
        self, core: ExecutorCore, plan: CyclePlan, report: WriteReport, carried_out: Sequence[Order], now: datetime
    ) -> list[Event]:
        """The events of one cycle, in a stated order."""
        events = self._writes(core, plan, report, now) if report.written else []
        if carried_out:
            events += self._orders(core, carried_out, now)
        if plan.evictions:
            events += [self._eviction(core, key, strategy, order, now) for key, strategy, order in plan.evictions]
        if plan.waiting != self._waiting:
            events += self._evictions_that_wait(core, plan.waiting, now)
        if plan.problems:
            events += [self._problems(core, problems, now) for problems in plan.problems]
        if plan.dry_runs:
            events += [self._dry_run(core, each, now) for each in plan.dry_runs]
        if report.refused:
            events += self._refused_by_kernel(core, plan, report, now)
        if core.pods.refused or self._refused_pods:
            events += self._refused_pods_of(core, now)
        if core.seen is not None and core.seen.strangers != self._strangers:
            self._strangers = core.seen.strangers
            events.append(self._strange(self._strangers, now))
        return events

    def _strange(self, strangers: tuple[str, ...], now: datetime) -> Event:
        """Mismatches of kubelet's tree and LOG, or that they have ended."""
        matching = "kubelet's control groups and the pods of LOG match"
        execution = Execution(
            node=self._node,
            topic="kubelet",
            summary=f"{strangers[0]}{_and_more(strangers)}" if strangers else matching,
            changes=tuple([Change(target="kubelet", new=each) for each in strangers[:MAX_CHANGES]]),
        )
        return self._event("kubelet", execution, (), now)

    def _writes(self, core: ExecutorCore, plan: CyclePlan, report: WriteReport, now: datetime) -> list[Event]:
        by_topic: dict[str, list[tuple[WrittenValue, Desired]]] = {}
        for written in report.written:
            winner = plan.targets.winner(written.place, written.attribute)
            if winner is not None:
                topic = core.strategies.get(winner.strategy, RESTORE).topic
            else:
                topic, winner = RESTORE.topic, Desired(written.attribute, written.new, RESTORE.name, "no strategy sets it")
            by_topic.setdefault(topic, []).append((written, winner))
        events: list[Event] = []
        for topic in sorted(by_topic):
            changes = by_topic[topic]
            # Suppression sets the whole best-effort tree by one decision, so its root's file represents the tree.
            first, winner = ([each for each in changes if each[0].attribute in _OF_A_TREE] or changes)[0]
            strategy = core.strategies.get(winner.strategy, RESTORE)
            causes = _causes(core, strategy)
            if strategy.cause is Cause.PLACEMENTS:
                causes = self._placements(core, {written.place for written, _ in changes}) or causes
            change = f"{place_text(first.place) or '/'} {first.file}: {first.old} -> {first.new}"
            execution = Execution(
                node=self._node,
                topic=topic,
                summary=f"{change}{_and_more(changes)}: {winner.why}",
                changes=tuple([
                    Change(target=_target(each.place, each.file), old=each.old, new=each.new)
                    for each, _ in changes[:MAX_CHANGES]
                ]),
                figures=core.figures(winner.strategy),
            )
            events.append(self._event(topic, execution, causes, now))
        return events

    def _placements(self, core: ExecutorCore, places: Iterable[Place]) -> tuple[str, ...]:
        """The placements of the pods whose groups' files changed, at most ten."""
        return tuple([placed.ref for placed in core.pods.around([place for place in places if isinstance(place, str)])[:10]])

    def _orders(self, core: ExecutorCore, orders: Sequence[Order], now: datetime) -> list[Event]:
        events: list[Event] = []
        for order in orders:
            match order:
                case Start():
                    text = f"container {order.container} started" + (f", attempt {order.attempt}" if order.attempt else "")
                    events.append(self._runtime(core, order.pod.uid, text, now))
                case Stop():
                    events += self._stop(core, order, now)
                case EndAttempt() if (ended := (order.uid, order.container, order.attempt)) not in self._ending:
                    self._ending.add(ended)
                    text = f"container {order.container} is restarted for its resize, {order.grace_seconds} s until SIGKILL"
                    events.append(self._runtime(core, order.uid, text, now))
                case Collect() | Forget():
                    self._ending -= {each for each in self._ending if each[0] == order.uid}
                    self._stopping.pop(order.uid, None)
        return events

    def _stop(self, core: ExecutorCore, order: Stop, now: datetime) -> list[Event]:
        since = self._stopping.setdefault(order.uid, now)
        placed = core.pods.of_uid(order.uid)
        by_placement = placed is not None and placed.placement.phase is _TERMINATING
        if since is None or (by_placement and now - since < STOP):
            return []
        self._stopping[order.uid] = None
        return [self._runtime(core, order.uid, f"stopping, {order.grace_seconds} s until SIGKILL", since)]

    def _eviction(self, core: ExecutorCore, key: Key, strategy: str, order: Evict, now: datetime) -> Event:
        topic = core.strategies[strategy].topic
        namespace, name = key
        execution = Execution(
            node=self._node,
            topic=topic,
            summary=f"{namespace}/{name}: evicted by {strategy}: {order.why}",
            figures=core.figures(strategy),
            namespace=namespace,
            pod=name,
        )
        begun = core.evictions.begun(order.uid)
        offer = (begun.offer,) if begun is not None and begun.offer else ()
        return self._event(topic, execution, (core.placed[key].ref, *_causes(core, core.strategies[strategy]), *offer), now)

    def _dry_run(self, core: ExecutorCore, result: DryRunResult, now: datetime) -> Event:
        """Would-be actions of a strategy in a dry run."""
        changes, strategy = result.changes, core.strategies[result.strategy]
        actions: list[str] = []
        if changes:
            first = changes[0]
            file = _target(first.place, first.desired.attribute.value)
            actions.append(f"{file}: {first.old or '?'} -> {first.desired.value}{_and_more(changes)}: {first.desired.why}")
        for order in result.orders:
            if isinstance(order, Reclaim):
                actions.append(f"{order.memory_bytes} bytes reclaimed from {order.group}: {order.why}")
                continue
            placed = core.pods.of_uid(order.uid)
            name = f"{placed.placement.namespace}/{placed.placement.name}" if placed is not None else f"uid {order.uid}"
            actions.append(f"{name} evicted: {order.why}")
        execution = Execution(
            node=self._node,
            topic=strategy.topic,
            summary=f"dry run of {strategy.name}, not done: {'; '.join(actions)}",
            changes=tuple([
                Change(target=_target(each.place, each.desired.attribute.value), old=each.old, new=each.desired.value)
                for each in changes[:MAX_CHANGES]
            ]),
            figures=core.figures(strategy.name),
        )
        return self._event(strategy.topic, execution, _causes(core, strategy), now)

    def _evictions_that_wait(
        self, core: ExecutorCore, waiting: tuple[tuple[str, str], ...], now: datetime
    ) -> list[Event]:
        """Waiting evictions are reported when they begin to wait; not again while any of the strategy's wait."""
        before = {strategy for strategy, _ in self._waiting}
        new = [each for each in waiting if each[0] not in before]
        self._waiting = waiting
        return [
            self._event(
                "refusals",
                Execution(node=self._node, topic="refusals", summary=f"evictions by {strategy} wait: {why}"),
                _causes(core),
                now,
            )
            for strategy, why in new
        ]

    def _problems(self, core: ExecutorCore, problems: Problems, now: datetime) -> Event:
        about = f"{problems.strategy} cannot do" if problems.strategy else "node SLO"
        execution = Execution(
            node=self._node,
            topic="refusals",
            summary=f"{about}: {problems.texts[0]}{_and_more(problems.texts)}",
            changes=tuple([Change(target="problems", new=each) for each in problems.texts[:MAX_CHANGES]]),
            figures=core.figures(problems.strategy),
        )
        return self._event("refusals", execution, _causes(core), now)

    def of_reclaimed(self, core: ExecutorCore, reclaimed: Sequence[Reclaimed], now: datetime) -> list[Event]:
        """Events about memory that was reclaimed."""
        return [self._reclaimed(core, each, now) for each in reclaimed]

    def _reclaimed(self, core: ExecutorCore, reclaimed: Reclaimed, now: datetime) -> Event:
        topic = core.strategies[reclaimed.strategy].topic
        asked, error = reclaimed.asked_bytes, f" ({reclaimed.error})" if reclaimed.error else ""
        execution = Execution(
            node=self._node,
            topic=topic,
            summary=f"{reclaimed.group}: {reclaimed.freed_bytes} bytes freed of {asked} asked{error}: {reclaimed.why}",
            figures={
                **core.figures(reclaimed.strategy),
                "asked.memory-bytes": asked,
                "freed.memory-bytes": reclaimed.freed_bytes,
            },
        )
        return self._event(topic, execution, (NEWEST_USAGE, *_causes(core)), now)

    def _runtime(self, core: ExecutorCore, uid: str, text: str, now: datetime) -> Event:
        placed = core.pods.of_uid(uid)
        if placed is None:
            execution = Execution(node=self._node, topic=RUNTIME, summary=f"uid {uid}, unplaced: {text}")
            return self._event(RUNTIME, execution, (), now)
        namespace, name = placed.placement.namespace, placed.placement.name
        execution = Execution(
            node=self._node, topic=RUNTIME, summary=f"{namespace}/{name}: {text}", namespace=namespace, pod=name
        )
        return self._event(RUNTIME, execution, (placed.ref,), now)

    def _refused_by_kernel(self, core: ExecutorCore, plan: CyclePlan, report: WriteReport, now: datetime) -> list[Event]:
        first = report.refused[0]
        winner = plan.targets.winner(first.place, first.attribute)
        where = place_text(first.place) or "/"
        summary = f"{where} {first.file} = {first.value}: {first.message}{_and_more(report.refused)}"
        causes = self._placements(core, {refused.place for refused in report.refused}) or _causes(core)
        return [
            self._event(
                "refusals",
                Execution(
                    node=self._node,
                    topic="refusals",
                    summary=f"refused by the kernel: {summary}" + (f" ({winner.strategy}: {winner.why})" if winner else ""),
                    changes=tuple(
                        Change(target=_target(r.place, r.file), new=r.value, error=r.message)
                        for r in report.refused[:MAX_CHANGES]
                    ),
                ),
                causes,
                now,
            )
        ]

    def _refused_pods_of(self, core: ExecutorCore, now: datetime) -> list[Event]:
        events: list[Event] = []
        there: set[str] = set()
        for _, placed in sorted(core.pods.refused.items()):
            uid = placed.placement.uid
            there.add(uid)
            if uid not in self._refused_pods:
                name = f"{placed.placement.namespace}/{placed.placement.name}"
                events.append(
                    self._event(
                        "refusals",
                        Execution(
                            node=self._node,
                            topic="refusals",
                            summary=f"{name} cannot run here: {placed.refusal}",
                            namespace=placed.placement.namespace,
                            pod=placed.placement.name,
                        ),
                        (placed.ref,),
                        now,
                    )
                )
        self._refused_pods = there
        return events

    def _event(self, topic: str, data: Execution, causes: tuple[str, ...], now: datetime) -> Event:
        subject = self._subjects.get(topic)
        if subject is None:
            subject = self._subjects[topic] = execution_subject(self._node, topic)
        return Event(subject=subject, data=data, causes=causes, time=now, stream=EXECUTION)


def _causes(core: ExecutorCore, strategy: Strategy | None = None) -> tuple[str, ...]:
    """The node SLO, if there is one; before it the newest usage, where the strategy decides by that."""
    policy = (core.slo_ref,) if core.slo_ref else ()
    return (NEWEST_USAGE, *policy) if strategy is not None and strategy.cause is Cause.USAGE else policy


def _and_more(texts: Sequence[object]) -> str:
    """How many there are beside the first, in words."""
    return f" and {len(texts) - 1} more" if len(texts) > 1 else ""


def _target(place: Place, file: str) -> str:
    text = place if type(place) is str else place_text(place)
    return f"{text}/{file}" if text else file
