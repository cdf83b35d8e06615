"""The executor's core: which pods must run on this node, the values of its targets, and the status of its pods.

In: the node's subjects on the log (placements, node SLO, the executor's own reports) and an observation of the machine.
Out: orders for the runtime, one composed value for each target, and reports (`run`) as events.

State = last message of each subject below `node.<node>.>`, and the newest observation. A placement of another uid under
the same name replaces the former pod, whose processes are then ended like those of any orphaned pod.

A pod, or a strategy, whose rules raise is set aside by itself: it gets no orders and values, or keeps those of its last
decision, until its placement or report, or the node SLO, is another one. `findings` says so once each.

Over 300 lines: folding and deciding share the set of open pods and the cached steps, which each of them must keep true.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import datetime, timedelta

from msgspec import Struct

from cotenant.domain.node import overcommitted_amounts
from cotenant.engine.core import MAX_EVENTS_PER_DECISION
from cotenant.engine.last_sequences import LastSequences
from cotenant.engine.quarantine import Finding
from cotenant.events.envelope import Event
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.events.resources import NodeResources, NodeSLORendered
from cotenant.events.runs import ExecutorStatus, RunStatus
from cotenant.events.topology import MachineTopology
from cotenant.log.contract import ending, replaces
from cotenant.model.subjects import placement_subject, run_subject, slo_subject
from cotenant_node_executor.core.admission import Admission, RunState
from cotenant_node_executor.core.desired_values import DesiredTargets
from cotenant_node_executor.core.evictions import Evictions
from cotenant_node_executor.core.observation import Observation
from cotenant_node_executor.core.placed import DecodedPlacement, Key, read_placement, refused_report, sequence_of
from cotenant_node_executor.core.placed_pods import PlacedPods
from cotenant_node_executor.core.plan import NO_GROUPS, NOTHING, Plan, missing_groups
from cotenant_node_executor.core.pod_lifecycle import REASON_BACKOFF, PodStep, States, any_unfinished, pod_step
from cotenant_node_executor.core.topology_report import TopologyReport
from cotenant_node_executor.runtime.interface import Collect, Forget, Order, PodToRun, Start, Stop
from cotenant_node_executor.sampling.wanted import Wanted, wanted_by
from cotenant_node_executor.strategies.registry import STRATEGIES
from cotenant_node_executor.strategies.situation import NodeFacts
from cotenant_node_executor.strategies.strategy import RESTORE, Strategy
from cotenant_node_executor.targets.interface import Capabilities

MAX_PODS = 110
"""Pods on one node, as kubelet's default."""

START = timedelta(milliseconds=500)
"""A pod is reported as pending once its start takes longer."""
ORPHAN_GRACE_SECONDS = 30


class _Report(Struct, frozen=True, gc=False):
    status: RunStatus
    sequence: int
    time: datetime | None


_GONE = PlacementPhase.GONE
_NO_STATES: States = {}
_NOBODY: frozenset[str] = frozenset()


class ExecutorCore:
    """`plain_processes`: pods run as processes of this machine, so what these cannot do is refused; `root_pods`: they may run
    as root."""

    def __init__(
        self,
        facts: NodeFacts,
        capabilities: Capabilities,
        boot: str,
        *,
        plain_processes: bool,
        root_pods: bool = False,
        strategies: tuple[Strategy, ...] = STRATEGIES,
    ) -> None:
        self.facts = facts
        self.capabilities = capabilities
        self.boot = boot
        self._plain_processes = plain_processes
        self._root_pods = root_pods
        self.strategies = {strategy.name: strategy for strategy in strategies}
        """By name, in order of precedence."""
        self._pressures = [(each.name, each.pressure) for each in strategies if each.pressure is not None]
        self._evictions = Evictions(self.strategies)
        self.pods = PlacedPods()
        """The pods placed on this node."""
        self._runs: dict[Key, _Report] = {}
        self._backoffs: dict[Key, list[datetime]] = {}
        """When each container in back-off may start, by pod; only reports with such containers."""
        self._sequences = LastSequences()
        self._corrected: dict[str, int] = {}
        self._slo: NodeSLORendered | None = None
        self._resources: NodeResources | None = None
        self._admission = Admission()
        self._topology = TopologyReport(facts.name)
        self.wanted = Wanted()
        """What the node SLO asks to be measured; the same object while it does not change."""
        self.slo_ref = ""
        """The node SLO's event, empty before there is one."""
        self.loaded = False
        """Everything is folded that was there at the start: the executor's own start marker was delivered, or its log has no
        room for it and was read to the end."""
        self.own: ExecutorStatus | None = None
        """The executor's own report as last folded."""
        self.marked = False
        """The start marker was delivered."""
        self._seen: Observation | None = None
        # What follows is cached for speed only: it is derived from the state above, and recomputed when that changes.
        self._targets = DesiredTargets(facts, capabilities, strategies)
        self._changed = False
        """An event that may change the decision was folded since the last one."""
        self._open: set[Key] = set()
        """Pods that may need an order or a report; the reports of all others are up to date."""
        self._orphans: tuple[str, ...] | None = None
        self.keeps_orphans = False
        """Pods without a placement run on: LOG is not the one that placed them."""
        self._set_aside: set[Key] = set()
        """Pods whose step raised, until a fact of the pod comes."""
        self.findings: list[Finding] = []
        """What was set aside and is not published yet."""
        self._starting: dict[Key, tuple[str, datetime]] = {}
        """Uids of pods whose first report is held back, and when their containers were first ordered to start. Bound: pods."""
        self.holds_reports = False
        """The last decision began to hold a report back: the next cycle, which should follow at once, sees what became of the
        start."""
        self._steps: dict[Key, PodStep] = {}
        """Steps computed from the newest observation at `_stepped_at`; an event of a pod drops its entry."""
        self._stepped_at: datetime | None = None

    def fresh(self) -> ExecutorCore:
        """Return an empty core for the same node with a new boot id."""
        boot = f"{self.boot.partition('+')[0]}+{int(self.boot.partition('+')[2] or 0) + 1}"
        return ExecutorCore(
            self.facts,
            self.capabilities,
            boot,
            plain_processes=self._plain_processes,
            root_pods=self._root_pods,
            strategies=(*self.strategies.values(),),
        )

    # -- folding -------------------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Fold one event."""
        if not self._sequences.is_new(event):
            return
        if self._corrected:
            self._corrected.pop(event.subject, None)
        data = event.data
        if isinstance(data, RunStatus):
            self._apply_run(data, event)
        elif isinstance(data, Placement):
            self._apply_placement(data, event)
        elif isinstance(data, NodeSLORendered):
            self._slo = None if event.tombstone else data
            self.slo_ref = event.ref
            self._changed = self._topology.stale = True
            wanted = wanted_by(self._slo)
            if wanted != self.wanted:
                self.wanted = wanted
        elif isinstance(data, NodeResources):
            self._admission.overcommitted = {} if event.tombstone else overcommitted_amounts(data)
            self._admission.amplification = {} if event.tombstone else data.amplification
            self._resources = None if event.tombstone else data
            self._changed = True
        elif isinstance(data, ExecutorStatus):
            # The marker is removed with its node. The executor keeps running, and publishes it again at its next start.
            if not event.tombstone:
                self.loaded = self.marked = data.boot == self.boot
                self.own = data
                self._admission.allocatable = data.allocatable
            self._changed = True
        elif isinstance(data, MachineTopology):
            self._topology.apply(event, data)

    def _apply_placement(self, data: Placement, event: Event) -> None:
        key = (data.namespace, data.name)
        self._touch(key)
        if self._orphans or key in self.pods.by_name:
            self._orphans = None
        before = self.pods.by_name.get(key)
        if before is not None and (event.tombstone or data.phase is _GONE or data.uid != before.placement.uid):
            self._evictions.forget(before.placement.uid)
        if event.tombstone or data.phase is _GONE:
            self._starting.pop(key, None)
            self.pods.drop(key)
        else:
            placed = read_placement(event, data, self.facts.name, self._plain_processes, self._root_pods)
            self.pods.put(key, placed)
            if placed.names_node:
                self._admission.waiting.add(key)
        if self._topology.depends_on_pods or _holds_cpus(before) or _holds_cpus(self.pods.by_name.get(key)):
            self._topology.stale = True

    def _apply_run(self, data: RunStatus, event: Event) -> None:
        key = (data.namespace, data.name)
        if self._backoffs:
            self._backoffs.pop(key, None)
        if event.tombstone:
            self._touch(key)
            self._runs.pop(key, None)
            return
        step = self._steps.get(key)
        if step is not None and step.steady and step.report == data:
            self._open.discard(key)
        else:
            self._touch(key)
        self._runs[key] = _Report(data, event.sequence, event.time)
        for container in data.containers:
            if container.reason == REASON_BACKOFF and container.finished_at is not None:
                ends = container.finished_at + timedelta(seconds=container.backoff_seconds)
                self._backoffs.setdefault(key, []).append(ends)

    def _touch(self, key: Key) -> None:
        self._open.add(key)
        self._steps.pop(key, None)
        self._set_aside.discard(key)
        self._changed = True

    def last_sequence(self, subject: str) -> int:
        """Return the expected last sequence for a write to this subject; 0 for none. Of a subject that ended long ago it is
        not known any more: a write that is refused for it is repeated with the sequence that LOG has (`correct_sequence`)."""
        corrected = self._corrected.get(subject)
        return corrected if corrected is not None else self._sequences.of(subject)

    def correct_sequence(self, subject: str, sequence: int) -> None:
        """Replace the expected sequence after a refused write: a tombstone has expired, or an acknowledgement was lost.

        Holds until the next message of the subject is folded.
        """
        self._corrected[subject] = sequence

    def observe(self, observation: Observation, changed: Set[str] | None = None) -> None:
        """Take the newest observation of the machine. `changed`: the pods whose states may differ from the last observation;
        None: unknown."""
        before, self._seen = self._seen, observation
        self._topology.observe(observation.machine)
        self._steps.clear()
        if before is None:
            changed = observation.states.keys()
        elif changed is None:
            changed = _differing(before.states, observation.states)
        for uid in changed:
            key = self.pods.name_of(uid)
            if key is not None:
                self._open.add(key)
            else:
                self._orphans = None

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether a cycle on the same observation may produce a new order or report."""
        waits = bool(self._evictions.waiting)
        return self._changed or bool(self._open) or self._orphans != () or waits or self._targets.every_cycle

    @property
    def placed(self) -> Mapping[Key, DecodedPlacement]:
        """The pods placed on this node, by namespace and name."""
        return self.pods.by_name

    def trace_of(self, ref: str) -> str:
        """The traceparent of a standing placement, by its reference; empty where there is none."""
        return next((placed.traceparent for placed in self.pods.by_name.values() if placed.ref == ref), "")

    def figures(self, strategy: str) -> dict[str, int]:
        """The numbers behind a strategy's last decision."""
        return self.strategies.get(strategy, RESTORE).figures(self._targets.memory(strategy))

    @property
    def memory_pressure(self) -> str:
        """Why the node shall get no further best-effort pods, by the strategies' last decisions."""
        for name, pressure in self._pressures:
            why = pressure(self._targets.memory(name))
            if why and not self._targets.is_dry(name):
                return why
        return ""

    def orphans(self) -> tuple[str, ...]:
        """The uids of the pods that are on the machine without a placement."""
        return () if self._seen is None else self.pods.unplaced(self._seen.states.keys())

    def runs(self) -> dict[str, RunStatus]:
        """The last reports by pod uid."""
        return {report.status.uid: report.status for _, report in sorted(self._runs.items())}

    # -- deciding ------------------------------------------------------------------------------------------------------

    def plan(self, now: datetime) -> Plan:
        """Return this cycle's orders and file values; empty until the load is complete and the machine was observed."""
        seen = self._seen
        if seen is None or not self.loaded:
            return NOTHING
        if self._admission.waiting:
            self._admit(seen)
        orders: list[Order] = []
        missing: Set[str] = NO_GROUPS
        if self._open or self._orphans != ():
            orders = self._orders(seen, now)
            missing = missing_groups(orders, seen.groups) if orders else NO_GROUPS
        targets, ordered = self._targets.of_cycle(
            seen, self.pods.views, self.pods.changed(), missing, self._slo, self._resources, self._leaving()
        )
        evictions = self._evictions.begin(ordered, self.pods, self.runs(), now) if ordered else self._evictions.none_ordered()
        for key, _, _ in evictions:
            self._touch(key)
        if self._targets.faults:
            self._report_strategies()
        waiting = tuple(sorted(self._evictions.waiting.items())) if ordered else ()
        problems = tuple(self._targets.problems)
        self._targets.problems.clear()
        reclaims = tuple(self._targets.reclaims)
        self._targets.reclaims.clear()
        groups = tuple(sorted(missing)) if missing else ()
        rehearsed = self._targets.rehearsed
        return Plan(tuple(orders), groups, targets, evictions, waiting, problems, reclaims, rehearsed)

    def _leaving(self) -> frozenset[str]:
        """The pods that are being evicted here, and those that the placement ends."""
        if not self._evictions.uids and not self.pods.terminating:
            return _NOBODY
        return self._evictions.uids | self.pods.terminating

    def _admit(self, seen: Observation) -> None:
        """Refuse the pods that name this node and have no room."""

        def run_of(key: Key, uid: str) -> RunState:
            report = self._report_of(key, uid)
            if report is None:
                return RunState.BEGUN if uid in seen.states else RunState.NEW
            return RunState.OVER if report.phase.terminal else RunState.BEGUN

        for key, found in self._admission.refusals(self.pods.by_name, run_of):
            self.pods.refuse(key, found.reason, found.message)
            self._touch(key)

    def _report_of(self, key: Key, uid: str) -> RunStatus | None:
        report = self._runs.get(key)
        return report.status if report is not None and report.status.uid == uid else None

    def _orders(self, seen: Observation, now: datetime) -> list[Order]:
        """Orders for open pods, then for orphaned ones."""
        orders: list[Order] = []
        self._stepped_at = now
        for key in sorted(self._open):
            placed = self.pods.by_name.get(key)
            step = self._step(key, placed, seen, now) if placed is not None else None
            if step is not None:
                for order in step.orders:
                    if not isinstance(order, Collect) or self._has_groups(key, seen):
                        orders.append(order)
        if self._orphans != ():
            orders += self._orphan_orders(seen)
        return orders

    def _has_groups(self, key: Key, seen: Observation) -> bool:
        view = self.placed[key].view
        return view is not None and view.group in seen.groups

    def _orphan_orders(self, seen: Observation) -> list[Order]:
        """End orphaned pods: their placement was removed while the executor was down, or was replaced."""
        if self._orphans is None:
            self._orphans = () if self.keeps_orphans else self.pods.unplaced(seen.states.keys())
        orders: list[Order] = []
        for uid in self._orphans:
            orders.append(Stop(uid, ORPHAN_GRACE_SECONDS) if any_unfinished(seen.states[uid]) else Forget(uid))
        return orders

    def _step(self, key: Key, placed: DecodedPlacement, seen: Observation, now: datetime) -> PodStep | None:
        """Compute a placed pod's orders and report; None where it cannot run here, or is set aside."""
        if placed.to_run is None or placed.refusal or key in self._set_aside:
            return None
        try:
            return self._compute(key, placed.to_run, placed.placement, seen, now)
        except Exception as error:  # noqa: BLE001 - whatever a pod makes a rule raise, the node goes on without it
            self._set_aside.add(key)
            subject, sequence = placement_subject(self.facts.name, *key), sequence_of(placed.ref)
            about = Event(subject=subject, data=placed.placement, sequence=sequence)
            self.findings.append(Finding(about, f"{type(error).__name__}: {error}"))
            return None

    def _report_strategies(self) -> None:
        """Report the strategies that raised, with the node SLO, which is the message that they decide by."""
        faults, self._targets.faults = self._targets.faults, []
        slo = self._slo or NodeSLORendered(node=self.facts.name)
        about = Event(subject=slo_subject(self.facts.name), data=slo, sequence=sequence_of(self.slo_ref))
        self.findings += [Finding(about, f"strategy {name}: {type(error).__name__}: {error}") for name, error in faults]

    def _compute(self, key: Key, to_run: PodToRun, placement: Placement, seen: Observation, now: datetime) -> PodStep:
        uid = placement.uid
        last = self._report_of(key, uid)
        states = seen.states.get(uid, _NO_STATES)
        step = self._steps[key] = pod_step(to_run, placement, last, states, now, self._evictions.of(uid))
        return step

    def decide(self, now: datetime) -> Sequence[Event]:
        """Return reports that are not on the log yet: of the machine, of pods by namespace and name, then tombstones for pods
        that are gone."""
        seen = self._seen
        self.holds_reports = False
        if seen is None or not self.loaded:
            return ()
        self._changed = False
        topology = self._topology.decide(self.pods.views.values(), self._slo, now)
        reports = self._reports(seen, now) if self._open else []
        return reports if topology is None else [topology, *reports]

    def _reports(self, seen: Observation, now: datetime) -> list[Event]:
        if self._admission.waiting:
            self._admit(seen)
        if self._stepped_at is not now:
            self._steps.clear()
            self._stepped_at = now
        events: list[Event] = []
        ends: list[Event] = []
        for key in sorted(self._open):
            placed, known = self.pods.by_name.get(key), self._runs.get(key)
            if placed is None:
                if known is None:
                    self._open.discard(key)
                else:
                    ends.append(self._end(key, known, now))
                continue
            step = self._steps.get(key) or self._step(key, placed, seen, now)
            if key in self._set_aside:
                self._open.discard(key)
                continue
            report = step.report if step is not None else refused_report(placed)
            if step is not None and self._is_starting(key, step, known, now):
                continue
            if known is None or known.status != report:
                last = known.time if known is not None and report.phase.terminal else None
                events.append(
                    Event(
                        subject=run_subject(self.facts.name, *key),
                        data=report,
                        causes=(placed.ref,),
                        time=now,
                        replaces=replaces(last, now),
                    )
                )
            elif step is None or step.steady:
                self._open.discard(key)
        events += ends
        return events[: MAX_EVENTS_PER_DECISION - 1]

    def _is_starting(self, key: Key, step: PodStep, known: _Report | None, now: datetime) -> bool:
        """Tell whether a pod's containers were ordered to start less than START ago. That it is pending is reported
        only if the start takes longer: most often they run by then, and one report says all."""
        uid = step.report.uid
        if (known is not None and known.status.uid == uid) or not any(isinstance(order, Start) for order in step.orders):
            return False
        started = self._starting.get(key)
        if started is None or started[0] != uid:
            self._starting[key] = (uid, now)
            self.holds_reports = True
            return True
        return now < started[1] + START

    def _end(self, key: Key, known: _Report, now: datetime) -> Event:
        return ending(run_subject(self.facts.name, *key), known.status, (f"LOG:{known.sequence}",), time=now)

    def next_start(self, now: datetime) -> datetime | None:
        """When the next back-off ends, from the last reports; None without a container in back-off."""
        if not self._backoffs:
            return None
        return min((time for times in self._backoffs.values() for time in times if time > now), default=None)


def _holds_cpus(placed: DecodedPlacement | None) -> bool:
    return placed is not None and placed.view is not None and bool(placed.view.bound_cpus)


def _differing(before: Mapping[str, States], now: Mapping[str, States]) -> set[str]:
    """The pods whose states differ between two observations."""
    return {uid for uid in before.keys() | now.keys() if before.get(uid) != now.get(uid)}
