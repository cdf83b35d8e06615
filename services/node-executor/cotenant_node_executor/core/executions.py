"""Events about the executor's actions on the node: changed files by topic, orders carried out, refusals.

In: the cycle's plan, the writer's report, the orders, and their causes. Out: events on stream EXECUTION.

| topic | content |
|---|---|
| the topic of a strategy | values that it set (old, new, why, figures), its evictions, memory that was reclaimed |
| restored | targets without a desired value: initial values; former values of sysctls, files below /sys, resctrl groups |
| runtime | a pod's containers were started; it is being stopped (by LOG's order: once that took STOP, as its report follows) |
| kubelet | where kubelet runs the pods: groups without a pod on LOG, pods without a group, Kata pods; when that changes |
| refusals | the kernel refused a value, a pod cannot run here, a strategy cannot do what is asked, evictions wait; each once |

The plain values (PLAIN) of a pod that starts are in the event of its start. In a cycle that starts one pod those of the QoS
groups, which follow from it, are there, too.

A strategy in a dry run publishes its would-be actions on its own topic, when they change. Several strategies may share a topic.

Bound: MAX_CHANGES changes in one event; more are counted in its summary. Over 300 lines: one short method a kind of event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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

DRY_RUN = "dry run"
"""Begins the summary of what a strategy in a dry run would do."""
RUNTIME = "runtime"
"""The topic of a pod's containers."""
NEWEST_USAGE = f"{USAGE}:newest"
"""Placeholder in the causes for the usage message that is stored just before the event."""

PLAIN = "batch-values"
OF_PODS = frozenset((PLAIN, "identity"))
"""Topics of values that follow from which pods there are."""
MAX_CAUSES = 10
_OF_A_TREE = frozenset((Knob.CPU_QUOTA, Knob.CPUSET_CPUS))
_TERMINATING = PlacementPhase.TERMINATING
_Written = tuple[WrittenValue, Desired]


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
        starts = _starts(carried_out) if carried_out else {}
        told, of_starts = _by_topic(core, plan, report, starts) if report.written else ({}, {})
        events = [self._values(core, topic, told[topic], now) for topic in sorted(told)]
        events += [self._started(core, own, of_starts.get(uid, ()), now) for uid, own in starts.items()]
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
        summary = f"{strangers[0]}{_and_more(strangers)}" if strangers else matching
        return self._event("kubelet", summary, (), now, [Change(target="kubelet", new=each) for each in strangers])

    def _values(self, core: ExecutorCore, topic: str, changes: Sequence[_Written], now: datetime) -> Event:
        """The values that were set on one topic."""
        summary, strategy = _summary(core, changes)
        causes = _causes(core, strategy)
        if strategy.cause is Cause.PLACEMENTS:
            causes = self._placements(core, {written.place for written, _ in changes}) or causes
        return self._event(topic, summary, causes, now, _changes(changes), core.figures(strategy.name))

    def _started(self, core: ExecutorCore, starts: Sequence[Start], values: Sequence[_Written], now: datetime) -> Event:
        """The start of a pod's containers, with its plain values."""
        texts = [
            f"container {each.container} started" + (f", attempt {each.attempt}" if each.attempt else "") for each in starts
        ]
        if values:
            texts.append(_summary(core, values)[0])
        return self._runtime(core, starts[0].pod.uid, "; ".join(texts), now, _changes(values))

    def _placements(self, core: ExecutorCore, places: Iterable[Place]) -> tuple[str, ...]:
        """The placements of the pods whose groups' files changed, at most ten."""
        groups = [place for place in places if isinstance(place, str)]
        return tuple([placed.ref for placed in core.pods.around(groups)[:MAX_CAUSES]])

    def _orders(self, core: ExecutorCore, orders: Sequence[Order], now: datetime) -> list[Event]:
        events: list[Event] = []
        for order in orders:
            match order:
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
        summary = f"{key[0]}/{key[1]}: evicted by {strategy}: {order.why}"
        begun = core.evictions.begun(order.uid)
        offer = (begun.offer,) if begun is not None and begun.offer else ()
        causes = (core.placed[key].ref, *_causes(core, core.strategies[strategy]), *offer)
        return self._event(topic, summary, causes, now, figures=core.figures(strategy), pod=key)

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
        summary = f"{DRY_RUN} of {strategy.name}, not done: {'; '.join(actions)}"
        told = [
            Change(target=_target(each.place, each.desired.attribute.value), old=each.old, new=each.desired.value)
            for each in changes[:MAX_CHANGES]
        ]
        return self._event(strategy.topic, summary, _causes(core, strategy), now, told, core.figures(strategy.name))

    def _evictions_that_wait(
        self, core: ExecutorCore, waiting: tuple[tuple[str, str], ...], now: datetime
    ) -> list[Event]:
        """Waiting evictions are reported when they begin to wait; not again while any of the strategy's wait."""
        before = {strategy for strategy, _ in self._waiting}
        new = [each for each in waiting if each[0] not in before]
        self._waiting = waiting
        return [
            self._event("refusals", f"evictions by {strategy} wait: {why}", _causes(core), now) for strategy, why in new
        ]

    def _problems(self, core: ExecutorCore, problems: Problems, now: datetime) -> Event:
        about = f"{problems.strategy} cannot do" if problems.strategy else "node SLO"
        summary = f"{about}: {problems.texts[0]}{_and_more(problems.texts)}"
        changes = [Change(target="problems", new=each) for each in problems.texts]
        return self._event("refusals", summary, _causes(core), now, changes, core.figures(problems.strategy))

    def of_reclaimed(self, core: ExecutorCore, reclaimed: Sequence[Reclaimed], now: datetime) -> list[Event]:
        """Events about memory that was reclaimed."""
        return [self._reclaimed(core, each, now) for each in reclaimed]

    def _reclaimed(self, core: ExecutorCore, reclaimed: Reclaimed, now: datetime) -> Event:
        topic = core.strategies[reclaimed.strategy].topic
        asked, error = reclaimed.asked_bytes, f" ({reclaimed.error})" if reclaimed.error else ""
        summary = f"{reclaimed.group}: {reclaimed.freed_bytes} bytes freed of {asked} asked{error}: {reclaimed.why}"
        figures = {"asked.memory-bytes": asked, "freed.memory-bytes": reclaimed.freed_bytes}
        own = core.figures(reclaimed.strategy)
        return self._event(topic, summary, (NEWEST_USAGE, *_causes(core)), now, figures={**own, **figures})

    def _runtime(
        self, core: ExecutorCore, uid: str, text: str, now: datetime, changes: Sequence[Change] = ()
    ) -> Event:
        placed = core.pods.of_uid(uid)
        if placed is None:
            return self._event(RUNTIME, f"uid {uid}, unplaced: {text}", (), now, changes)
        key = placed.placement.namespace, placed.placement.name
        return self._event(RUNTIME, f"{key[0]}/{key[1]}: {text}", (placed.ref,), now, changes, pod=key)

    def _refused_by_kernel(self, core: ExecutorCore, plan: CyclePlan, report: WriteReport, now: datetime) -> list[Event]:
        first = report.refused[0]
        winner = plan.targets.winner(first.place, first.attribute)
        where = place_text(first.place) or "/"
        summary = f"{where} {first.file} = {first.value}: {first.message}{_and_more(report.refused)}"
        causes = self._placements(core, {refused.place for refused in report.refused}) or _causes(core)
        why = f" ({winner.strategy}: {winner.why})" if winner else ""
        changes = [Change(target=_target(r.place, r.file), new=r.value, error=r.message) for r in report.refused[:MAX_CHANGES]]
        return [self._event("refusals", f"refused by the kernel: {summary}{why}", causes, now, changes)]

    def _refused_pods_of(self, core: ExecutorCore, now: datetime) -> list[Event]:
        events: list[Event] = []
        there: set[str] = set()
        for _, placed in sorted(core.pods.refused.items()):
            uid = placed.placement.uid
            there.add(uid)
            if uid not in self._refused_pods:
                key = placed.placement.namespace, placed.placement.name
                summary = f"{key[0]}/{key[1]} cannot run here: {placed.refusal}"
                events.append(self._event("refusals", summary, (placed.ref,), now, pod=key))
        self._refused_pods = there
        return events

    def _event(
        self,
        topic: str,
        summary: str,
        causes: tuple[str, ...],
        now: datetime,
        changes: Sequence[Change] = (),
        figures: dict[str, int] | None = None,
        pod: Key = ("", ""),
    ) -> Event:
        subject = self._subjects.get(topic)
        if subject is None:
            subject = self._subjects[topic] = execution_subject(self._node, topic)
        told = tuple(changes[:MAX_CHANGES])
        data = Execution(
            node=self._node, topic=topic, summary=summary, changes=told, figures=figures or {}, namespace=pod[0], pod=pod[1]
        )
        return Event(subject=subject, data=data, causes=causes, time=now, stream=EXECUTION)


def _starts(orders: Sequence[Order]) -> dict[str, list[Start]]:
    """The starts of each pod, by uid."""
    found: dict[str, list[Start]] = {}
    for order in orders:
        if isinstance(order, Start):
            found.setdefault(order.pod.uid, []).append(order)
    return found


def _by_topic(
    core: ExecutorCore, plan: CyclePlan, report: WriteReport, starts: Mapping[str, Sequence[Start]]
) -> tuple[dict[str, list[_Written]], dict[str, list[_Written]]]:
    """Written values by topic, and those that are part of a pod's start, by its uid."""
    told: dict[str, list[_Written]] = {}
    of_starts: dict[str, list[_Written]] = {}
    groups = {own[0].pod.group: uid for uid, own in starts.items()}
    alone = next(iter(starts)) if len(starts) == 1 else ""
    for written in report.written:
        winner = plan.targets.winner(written.place, written.attribute)
        if winner is not None:
            topic = core.strategies.get(winner.strategy, RESTORE).topic
        else:
            topic, winner = RESTORE.topic, Desired(written.attribute, written.new, RESTORE.name, "no strategy sets it")
        uid = ""
        if starts and topic == PLAIN:
            place = written.place if isinstance(written.place, str) else ""
            uid = alone or groups.get(place) or groups.get(place.rpartition("/")[0]) or ""
        (of_starts.setdefault(uid, []) if uid else told.setdefault(topic, [])).append((written, winner))
    return told, of_starts


def _summary(core: ExecutorCore, changes: Sequence[_Written]) -> tuple[str, Strategy]:
    """One topic's change that stands for the others, and its strategy."""
    # Suppression sets the whole best-effort tree by one decision, so its root's file represents the tree.
    first, winner = ([each for each in changes if each[0].attribute in _OF_A_TREE] or changes)[0]
    change = f"{place_text(first.place) or '/'} {first.file}: {first.old} -> {first.new}"
    return f"{change}{_and_more(changes)}: {winner.why}", core.strategies.get(winner.strategy, RESTORE)


def _changes(changes: Sequence[_Written]) -> list[Change]:
    return [Change(target=_target(each.place, each.file), old=each.old, new=each.new) for each, _ in changes[:MAX_CHANGES]]


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
