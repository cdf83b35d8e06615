"""What was really done on the node, as events: changed files by topic, orders carried out, refusals.

In: the cycle's plan, the writer's report, the orders, and where they come from (causes). Out: events on stream EXECUTION.

| topic | says |
|---|---|
| suppress | the best-effort group's quota or CPU set changed: from what to what, by which figures |
| batch-values | shares, quota, memory limit of pods |
| identity | cpu.bvt_warp_ns, cpu.idle, raised shares |
| runtime | a container was started, a pod is being stopped, its groups were removed |
| refusals | the kernel refused a value, or a pod cannot run here; each said once |

Bound: MAX_CHANGES changes in one event; more are counted in its summary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from cotenant.events.envelope import Event
from cotenant.events.execution import Change, Execution
from cotenant.log.contract import EXECUTION, USAGE
from cotenant.model.subjects import execution_subject
from cotenant_node_executor.core.core import ExecutorCore, Plan
from cotenant_node_executor.runtime.interface import Collect, Forget, Order, Start, Stop
from cotenant_node_executor.strategies import batch_pods, identity, idle, pod_values, suppress
from cotenant_node_executor.strategies.situation import Wish
from cotenant_node_executor.strategies.suppress import Suppression
from cotenant_node_executor.targets.interface import Knob, WriteReport, Written

MAX_CHANGES = 50

NEWEST_USAGE = f"{USAGE}:newest"
"""Stands among the causes for the usage message that is stored just before."""

TOPICS: dict[str, str] = {
    suppress.STRATEGY: "suppress",
    batch_pods.STRATEGY: "batch-values",
    pod_values.STRATEGY: "batch-values",
    identity.STRATEGY: "identity",
    idle.STRATEGY: "identity",
}
"""Topic by the strategy whose wish won."""

_OF_A_TREE = frozenset((Knob.CPU_QUOTA, Knob.CPUSET_CPUS))


class Executions:
    """Makes the events of one node. Remembers only what it has said already, so that nothing is said twice."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._subjects: dict[str, str] = {}
        """By topic."""
        self._stopping: set[str] = set()
        self._refused_pods: set[str] = set()

    def of_cycle(
        self, core: ExecutorCore, plan: Plan, report: WriteReport, carried_out: Sequence[Order], now: datetime
    ) -> list[Event]:
        """The events of one cycle, in a stated order."""
        events = self._writes(core, plan, report, now) if report.written else []
        if carried_out:
            events += self._orders(core, carried_out, now)
        if report.refused:
            events += self._refused_by_kernel(core, plan, report, now)
        if core.pods.refused or self._refused_pods:
            events += self._refused_pods_of(core, now)
        return events

    def _writes(self, core: ExecutorCore, plan: Plan, report: WriteReport, now: datetime) -> list[Event]:
        by_topic: dict[str, list[tuple[Written, Wish]]] = {}
        for written in report.written:
            wish = plan.files.wish(written.group, written.knob)
            if wish is not None:
                by_topic.setdefault(TOPICS[wish.strategy], []).append((written, wish))
        events: list[Event] = []
        for topic in sorted(by_topic):
            told = by_topic[topic]
            # A best-effort tree is one decision: its root's file speaks for all of it.
            first, wish = ([each for each in told if each[0].knob in _OF_A_TREE] or told)[0]
            causes: tuple[str, ...] = (core.slo_ref,) if core.slo_ref else ()
            if topic == "suppress":
                causes = (NEWEST_USAGE, *causes)
            elif topic == "batch-values":
                causes = self._placements(core, {written.group for written, _ in told}) or causes
            more = f" and {len(told) - 1} more" if len(told) > 1 else ""
            execution = Execution(
                node=self._node,
                topic=topic,
                summary=f"{first.group or '/'} {first.file}: {first.old} -> {first.new}{more}: {wish.why}",
                changes=tuple([
                    Change(target=_target(each.group, each.file), old=each.old, new=each.new)
                    for each, _ in told[:MAX_CHANGES]
                ]),
                figures=_figures(plan.suppression) if topic == "suppress" else {},
            )
            events.append(self._event(topic, execution, causes, now))
        return events

    def _placements(self, core: ExecutorCore, groups: Iterable[str]) -> tuple[str, ...]:
        """The placements of the pods whose groups' files changed, at most ten."""
        return tuple([placed.ref for placed in core.pods.around(groups)[:10]])

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
        wish = plan.files.wish(first.group, first.knob)
        more = len(report.refused) - 1
        summary = f"{first.group or '/'} {first.file} = {first.value}: {first.message}" + (f" and {more} more" if more else "")
        causes = self._placements(core, {refused.group for refused in report.refused}) or (
            (core.slo_ref,) if core.slo_ref else ()
        )
        return [
            self._event(
                "refusals",
                Execution(
                    node=self._node,
                    topic="refusals",
                    summary=f"refused by the kernel: {summary}" + (f" ({wish.strategy}: {wish.why})" if wish else ""),
                    changes=tuple(
                        Change(target=_target(r.group, r.file), new=r.value, error=r.message)
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


def _figures(suppression: Suppression | None) -> dict[str, int]:
    if suppression is None or suppression.split is None:
        return {}
    split = suppression.split
    return {
        "capacity.cpu-milli": suppression.capacity_milli,
        "threshold.percent": suppression.threshold_percent,
        "node.cpu-milli": suppression.node_used_milli,
        "services.cpu-milli": int(split.pods_non_be_milli),
        "host.cpu-milli": int(split.hosts_non_be_milli),
        "system.cpu-milli": int(split.system_milli),
        "best-effort.cpu-milli": suppression.quantity_milli,
    }


def _target(group: str, file: str) -> str:
    return f"{group}/{file}" if group else file
