"""Events about what the executor did on the node: changed files by topic, orders carried out, refusals.

In: the cycle's plan, the writer's report, the orders, and their causes. Out: events on stream EXECUTION.

| topic | content |
|---|---|
| suppress | a changed quota or CPU set of the best-effort group: old and new value, the figures behind it |
| batch-values | shares, quota, memory limit of pods |
| identity | cpu.bvt_warp_ns, cpu.idle, raised shares |
| memory-qos, blkio, resctrl, system-config | changed files of these strategies |
| restored | a sysctl, a file below /sys or a resctrl group got back what it held before |
| runtime | a container was started, a pod is being stopped or evicted, its groups were removed |
| memory-relief | memory.high of the best-effort group, memory that was reclaimed, with the figures |
| memory-evict | an eviction for memory, with the figures behind it |
| refusals | the kernel refused a value, or a pod cannot run here, or evictions wait for their rate; each published once |

A strategy in a dry run publishes what it would do on its own topic, when that changes.

Bound: MAX_CHANGES changes in one event; more are counted in its summary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from cotenant.events.envelope import Event
from cotenant.events.execution import Change, Execution
from cotenant.log.contract import EXECUTION, USAGE
from cotenant.model.subjects import execution_subject
from cotenant_node_executor.core.core import ExecutorCore
from cotenant_node_executor.core.placed import Key
from cotenant_node_executor.core.plan import WOULD, Plan, Said
from cotenant_node_executor.runtime.interface import Collect, Forget, Order, Start, Stop
from cotenant_node_executor.strategies.strategy import Cause, Desired, Evict
from cotenant_node_executor.targets.address import Place, place_text
from cotenant_node_executor.targets.interface import Knob, Reclaimed, WriteReport, Written

MAX_CHANGES = 50

NEWEST_USAGE = f"{USAGE}:newest"
"""Placeholder in the causes for the usage message that is stored just before the event."""

_OF_A_TREE = frozenset((Knob.CPU_QUOTA, Knob.CPUSET_CPUS))


class Executions:
    """Builds the events of one node. Keeps only what it has published, so that nothing is published twice."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._subjects: dict[str, str] = {}
        """By topic."""
        self._stopping: set[str] = set()
        self._refused_pods: set[str] = set()
        self._waiting: tuple[tuple[str, str], ...] = ()

    def of_cycle(
        self, core: ExecutorCore, plan: Plan, report: WriteReport, carried_out: Sequence[Order], now: datetime
    ) -> list[Event]:
        """The events of one cycle, in a stated order."""
        events = self._writes(core, plan, report, now) if report.written else []
        if carried_out:
            events += self._orders(core, carried_out, now)
        if plan.evictions:
            events += [self._eviction(core, key, strategy, order, now) for key, strategy, order in plan.evictions]
        if plan.waiting != self._waiting:
            events += self._evictions_that_wait(core, plan.waiting, now)
        if plan.said:
            events += [self._said(core, said, now) for said in plan.said]
        if report.refused:
            events += self._refused_by_kernel(core, plan, report, now)
        if core.pods.refused or self._refused_pods:
            events += self._refused_pods_of(core, now)
        return events

    def _writes(self, core: ExecutorCore, plan: Plan, report: WriteReport, now: datetime) -> list[Event]:
        by_topic: dict[str, list[tuple[Written, Desired]]] = {}
        restored: list[Written] = []
        for written in report.written:
            winner = plan.targets.winner(written.place, written.attribute)
            if winner is not None:
                by_topic.setdefault(core.strategies[winner.strategy].topic, []).append((written, winner))
            else:
                restored.append(written)
        events: list[Event] = [self._restored(core, restored, now)] if restored else []
        for topic in sorted(by_topic):
            changes = by_topic[topic]
            # Suppression sets the whole best-effort tree by one decision, so its root's file represents the tree.
            first, winner = ([each for each in changes if each[0].attribute in _OF_A_TREE] or changes)[0]
            strategy = core.strategies[winner.strategy]
            causes: tuple[str, ...] = (core.slo_ref,) if core.slo_ref else ()
            if strategy.cause is Cause.USAGE:
                causes = (NEWEST_USAGE, *causes)
            elif strategy.cause is Cause.PLACEMENTS:
                causes = self._placements(core, {written.place for written, _ in changes}) or causes
            more = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
            execution = Execution(
                node=self._node,
                topic=topic,
                summary=f"{place_text(first.place) or '/'} {first.file}: {first.old} -> {first.new}{more}: {winner.why}",
                changes=tuple([
                    Change(target=_target(each.place, each.file), old=each.old, new=each.new)
                    for each, _ in changes[:MAX_CHANGES]
                ]),
                figures=core.figures(winner.strategy),
            )
            events.append(self._event(topic, execution, causes, now))
        return events

    def _restored(self, core: ExecutorCore, restored: Sequence[Written], now: datetime) -> Event:
        """What nobody asks for any more has its former value again."""
        first, more = restored[0], f" and {len(restored) - 1} more" if len(restored) > 1 else ""
        execution = Execution(
            node=self._node,
            topic="restored",
            summary=f"{place_text(first.place) or '/'} {first.file}: {first.old} -> {first.new}{more}: no strategy sets it",
            changes=tuple([
                Change(target=_target(each.place, each.file), old=each.old, new=each.new) for each in restored[:MAX_CHANGES]
            ]),
        )
        return self._event("restored", execution, (core.slo_ref,) if core.slo_ref else (), now)

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
                case Stop() if order.uid not in self._stopping:
                    self._stopping.add(order.uid)
                    text = f"stopping, {order.grace_seconds} s until SIGKILL"
                    events.append(self._runtime(core, order.uid, text, now))
                case Collect() | Forget():
                    self._stopping.discard(order.uid)
        return events

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
        return self._event(topic, execution, (core.placed[key].ref, *((core.slo_ref,) if core.slo_ref else ())), now)

    def _evictions_that_wait(
        self, core: ExecutorCore, waiting: tuple[tuple[str, str], ...], now: datetime
    ) -> list[Event]:
        """Evictions that wait are said when they begin to; not again while any of the strategy's wait."""
        before = {strategy for strategy, _ in self._waiting}
        new = [each for each in waiting if each[0] not in before]
        self._waiting = waiting
        return [
            self._event(
                "refusals",
                Execution(node=self._node, topic="refusals", summary=f"evictions by {strategy} wait: {why}"),
                (core.slo_ref,) if core.slo_ref else (),
                now,
            )
            for strategy, why in new
        ]

    def _said(self, core: ExecutorCore, said: Said, now: datetime) -> Event:
        dry = said.kind == WOULD
        topic = core.strategies[said.strategy].topic if dry else "refusals"
        more = f" and {len(said.texts) - 1} more" if len(said.texts) > 1 else ""
        execution = Execution(
            node=self._node,
            topic=topic,
            summary=f"{said.strategy} {'would do, but for its dry run' if dry else 'cannot do'}: {said.texts[0]}{more}",
            changes=tuple([Change(target=said.kind, new=each) for each in said.texts[:MAX_CHANGES]]),
            figures=core.figures(said.strategy),
        )
        return self._event(topic, execution, (core.slo_ref,) if core.slo_ref else (), now)

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
        return self._event(topic, execution, (NEWEST_USAGE, *((core.slo_ref,) if core.slo_ref else ())), now)

    def _runtime(self, core: ExecutorCore, uid: str, text: str, now: datetime) -> Event:
        placed = core.pods.of_uid(uid)
        if placed is None:
            execution = Execution(node=self._node, topic="runtime", summary=f"uid {uid}, unplaced: {text}")
            return self._event("runtime", execution, (), now)
        namespace, name = placed.placement.namespace, placed.placement.name
        execution = Execution(
            node=self._node, topic="runtime", summary=f"{namespace}/{name}: {text}", namespace=namespace, pod=name
        )
        return self._event("runtime", execution, (placed.ref,), now)

    def _refused_by_kernel(self, core: ExecutorCore, plan: Plan, report: WriteReport, now: datetime) -> list[Event]:
        first = report.refused[0]
        winner = plan.targets.winner(first.place, first.attribute)
        more = len(report.refused) - 1
        where = place_text(first.place) or "/"
        summary = f"{where} {first.file} = {first.value}: {first.message}" + (f" and {more} more" if more else "")
        causes = self._placements(core, {refused.place for refused in report.refused}) or (
            (core.slo_ref,) if core.slo_ref else ()
        )
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


def _target(place: Place, file: str) -> str:
    text = place if type(place) is str else place_text(place)
    return f"{text}/{file}" if text else file
