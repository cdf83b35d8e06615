"""Orders and report of each pod of the node: one step per pod, computed again when one of its inputs changes.

In: the pods placed here, their last reports, the states of their containers, evictions. Out: orders for the runtime, and the
reports that are not on LOG yet. Pods whose reports are up to date are skipped.

That a pod was stopped on order is reported by the tombstone of its run: one message says so and ends the report. It
counts for the terminating placement that it follows on LOG, until that ends or is stored again: then it is forgotten, and
reported again if the placement still ends the pod.

A pod whose step raises is quarantined alone: it gets no orders until its placement or its report changes; `findings`
reports it once. Processes without a placement (orphans) are ended, unless another LOG placed them.

Over 300 lines: orders and reports follow from the same steps, which are computed once a cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from datetime import datetime, timedelta

from msgspec.structs import replace

from cotenant.engine.quarantine import Finding
from cotenant.events.envelope import Event
from cotenant.events.node.runs import RunPhase, RunStatus, reports_stop
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.events.resizes import ResizeStatus
from cotenant.log.contract import ending, replaces
from cotenant.model.subjects import placement_subject, run_subject
from cotenant.model.values import Value
from cotenant_node_executor.core.admission import RunState
from cotenant_node_executor.core.evictions import Evictions
from cotenant_node_executor.core.kubelet_pods import kubelet_step
from cotenant_node_executor.core.observation import Observation
from cotenant_node_executor.core.placed import DecodedPlacement, Key, refused_report, sequence_of
from cotenant_node_executor.core.placed_pods import PlacedPods
from cotenant_node_executor.core.pod_lifecycle import REASON_BACKOFF, PodStep, States, any_unfinished, pod_step
from cotenant_node_executor.runtime.interface import Collect, Forget, Order, PodToRun, Start, Stop

START = timedelta(milliseconds=500)
"""A pod is reported as pending once its start takes longer."""
ORPHAN_GRACE_SECONDS = 30
_NO_STATES: States = {}
_STOPPED = RunPhase.STOPPED
_TERMINATING = PlacementPhase.TERMINATING


class _Report(Value, frozen=True):
    status: RunStatus
    sequence: int
    time: datetime | None
    stop: bool = False
    """It is a tombstone, which reports that the pod was stopped."""


class PodSteps:
    """Bound: the placed pods, those reported on, and those on the machine."""

    def __init__(self, node: str, pods: PlacedPods, evictions: Evictions, *, of_kubelet: bool = False) -> None:
        """`of_kubelet`: kubelet runs the pods; pods without a placement are left to it."""
        self._node = node
        self._of_kubelet = of_kubelet
        self._pods = pods
        self._evictions = evictions
        self._runs: dict[Key, _Report] = {}
        self._backoffs: dict[Key, list[datetime]] = {}
        """When each container in back-off may start, by pod; only reports with such containers."""
        self.open: set[Key] = set()
        """Pods that may need an order or a report; the reports of all others are up to date."""
        self._orphans: tuple[str, ...] | None = None
        """Pods on the machine without a placement; None: to be looked up."""
        self.keeps_orphans = False
        """Pods without a placement keep running: another LOG placed them."""
        self._quarantined: set[Key] = set()
        """Pods whose step raised, until a new fact about the pod."""
        self.findings: list[Finding] = []
        """What was quarantined and is not published yet."""
        self._starting: dict[Key, tuple[str, datetime]] = {}
        """Uids of pods whose first report is held back, and when their containers were first ordered to start. Bound: pods."""
        self.holds_reports = False
        """The last decision began to hold a report back: the next cycle, due at once, sees the result of the
        start."""
        self._steps: dict[Key, PodStep] = {}
        """Steps computed from the newest observation at `_stepped_at`; an event of a pod drops its entry."""
        self._stepped_at: datetime | None = None
        self.resize_of: Callable[[Key, str], ResizeStatus | None] = lambda _key, _uid: None
        """What became of the last resize of the pod of that name and uid."""

    # -- what changes --------------------------------------------------------------------------------------------------

    def touch(self, key: Key) -> None:
        """Something about this pod changed."""
        self.open.add(key)
        self._steps.pop(key, None)
        self._quarantined.discard(key)

    def placement_changed(self, key: Key, sequence: int, *, bound: bool, gone: bool) -> None:
        """A placement of this name was stored, or has ended, with this sequence."""
        self.touch(key)
        known = self._runs.get(key)
        if known is not None and known.stop and (bound or known.sequence < sequence):
            del self._runs[key]
        if self._orphans or key in self._pods.by_name:
            self._orphans = None
        if gone:
            self._starting.pop(key, None)

    def apply_run(self, data: RunStatus, event: Event) -> bool:
        """Fold a report. Return whether it may change a decision."""
        key = (data.namespace, data.name)
        if self._backoffs:
            self._backoffs.pop(key, None)
        before = self._runs.get(key)
        if before is not None and before.status.uid != data.uid:
            self._evictions.forget(before.status.uid)
        self._evictions.found(data, ended=event.tombstone or data.phase.terminal)
        if event.tombstone:
            self.touch(key)
            self._evictions.forget(data.uid)
            self._runs.pop(key, None)
            if reports_stop(event) and self._is_about(self._pods.by_name.get(key), event):
                self._runs[key] = _Report(data, event.sequence, event.time, stop=True)
            return True
        step = self._steps.get(key)
        expected = step is not None and step.steady and step.report == data
        if expected:
            self.open.discard(key)
        else:
            self.touch(key)
        self._runs[key] = _Report(data, event.sequence, event.time)
        for container in data.containers:
            if container.reason == REASON_BACKOFF and container.finished_at is not None:
                ends = container.finished_at + timedelta(seconds=container.backoff_seconds)
                self._backoffs.setdefault(key, []).append(ends)
        return not expected

    @staticmethod
    def _is_about(placed: DecodedPlacement | None, stop: Event) -> bool:
        """Return whether a pod's stop is about its present placement; a load may bring that later."""
        return placed is None or (placed.placement.phase is _TERMINATING and sequence_of(placed.ref) < stop.sequence)

    def observe(self, before: Observation | None, seen: Observation, changed: Set[str] | None) -> None:
        """Take the newest observation. `changed`: uids of pods whose states may differ from the last one; None: unknown."""
        self._steps.clear()
        if before is None:
            changed = seen.states.keys()
        elif changed is None:
            changed = _differing(before.states, seen.states)
        for uid in changed:
            key = self._pods.name_of(uid)
            if key is not None:
                self.open.add(key)
            else:
                self._orphans = None

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def orders_due(self) -> bool:
        """Whether a pod or an orphan may need an order."""
        return bool(self.open) or self._orphans != ()

    def run_state(self, key: Key, uid: str, seen: Observation) -> RunState:
        """A pod's progress, for the admission of others."""
        report = self.report_of(key, uid)
        if report is None:
            return RunState.BEGUN if uid in seen.states else RunState.NEW
        return RunState.OVER if report.phase.terminal else RunState.BEGUN

    def runs(self) -> dict[str, RunStatus]:
        """The last reports by pod uid."""
        return {report.status.uid: report.status for _, report in sorted(self._runs.items())}

    def next_start(self, now: datetime) -> datetime | None:
        """When the next back-off ends, from the last reports; None without a container in back-off."""
        if not self._backoffs:
            return None
        return min((time for times in self._backoffs.values() for time in times if time > now), default=None)

    # -- orders --------------------------------------------------------------------------------------------------------

    def orders(self, seen: Observation, now: datetime) -> list[Order]:
        """Orders for open pods, then for orphaned ones."""
        orders: list[Order] = []
        self._stepped_at = now
        for key in sorted(self.open):
            placed = self._pods.by_name.get(key)
            step = self._step(key, placed, seen, now) if placed is not None else None
            if step is not None:
                for order in step.orders:
                    if not isinstance(order, Collect) or self._has_groups(key, seen):
                        orders.append(order)
        if self._orphans != ():
            orders += self._orphan_orders(seen)
        return orders

    def _has_groups(self, key: Key, seen: Observation) -> bool:
        view = self._pods.by_name[key].view
        return view is not None and view.group in seen.groups

    def _orphan_orders(self, seen: Observation) -> list[Order]:
        """End orphaned pods: their placement was removed while the executor was down, or was replaced."""
        if self._orphans is None:
            self._orphans = () if self.keeps_orphans or self._of_kubelet else self._pods.unplaced(seen.states.keys())
        orders: list[Order] = []
        for uid in self._orphans:
            orders.append(Stop(uid, ORPHAN_GRACE_SECONDS) if any_unfinished(seen.states[uid]) else Forget(uid))
        return orders

    def _step(self, key: Key, placed: DecodedPlacement, seen: Observation, now: datetime) -> PodStep | None:
        """Compute a placed pod's orders and report; None where it cannot run here, or is quarantined."""
        if placed.to_run is None or placed.refusal or key in self._quarantined:
            return None
        try:
            return self._compute(key, placed.to_run, placed.placement, seen, now)
        except Exception as error:  # noqa: BLE001 - a pod that makes a rule raise is quarantined; the others go on
            self._quarantined.add(key)
            subject, sequence = placement_subject(self._node, *key), sequence_of(placed.ref)
            about = Event(subject=subject, data=placed.placement, sequence=sequence)
            self.findings.append(Finding(about, f"{type(error).__name__}: {error}"))
            return None

    def _compute(self, key: Key, to_run: PodToRun, placement: Placement, seen: Observation, now: datetime) -> PodStep:
        uid = placement.uid
        last = self.report_of(key, uid)
        evict = self._evictions.of(uid)
        if self._of_kubelet:
            step = kubelet_step(to_run, placement, last, seen.states.get(uid), now, evict)
        else:
            step = pod_step(to_run, placement, last, seen.states.get(uid, _NO_STATES), now, evict)
        if evict is not None and step.report.eviction is None:
            step = replace(step, report=replace(step.report, eviction=self._evictions.begun(uid)))
        resize = self.resize_of(key, uid)
        if resize is not None and step.report.resize != resize and not step.report.phase.terminal:
            report = replace(step.report, resize=resize)
            step = replace(step, report=report, steady=step.steady and not resize.restarts)
        self._steps[key] = step
        return step

    def report_of(self, key: Key, uid: str) -> RunStatus | None:
        """The last report of this very pod."""
        report = self._runs.get(key)
        return report.status if report is not None and report.status.uid == uid else None

    # -- reports -------------------------------------------------------------------------------------------------------

    def reports(self, seen: Observation, now: datetime) -> list[Event]:
        """Reports that are not on the log yet, by namespace and name, then tombstones for pods that are gone."""
        if self._stepped_at is not now:
            self._steps.clear()
            self._stepped_at = now
        events: list[Event] = []
        ends: list[Event] = []
        for key in sorted(self.open):
            placed, known = self._pods.by_name.get(key), self._runs.get(key)
            if placed is None:
                if known is None or known.stop:
                    self._runs.pop(key, None)
                    self.open.discard(key)
                else:
                    ends.append(self._end(key, known, now))
                continue
            step = self._steps.get(key) or self._step(key, placed, seen, now)
            if key in self._quarantined:
                self.open.discard(key)
                continue
            report = step.report if step is not None else refused_report(placed)
            if step is not None and self._is_starting(key, step, known, now):
                continue
            if known is None or known.status != report:
                events.append(self._told(key, report, placed, known, now))
            elif step is None or step.steady or self._is_over(key, step, seen):
                self.open.discard(key)
        return events + ends

    def _told(
        self, key: Key, report: RunStatus, placed: DecodedPlacement, known: _Report | None, now: datetime
    ) -> Event:
        """Return a report as an event: the tombstone of the run if the pod was stopped."""
        subject, causes = run_subject(self._node, *key), (placed.ref, *_eviction_of(known, report.uid))
        if report.phase is _STOPPED:
            return ending(subject, report, causes, time=now)
        last = known.time if known is not None and report.phase.terminal else None
        return Event(subject=subject, data=report, causes=causes, time=now, replaces=replaces(last, now))

    def _is_over(self, key: Key, step: PodStep, seen: Observation) -> bool:
        """Return whether a pod has ended and nothing of it is left to end or to remove."""
        return (
            step.report.phase.terminal
            and all(isinstance(order, Collect) for order in step.orders)
            and not self._has_groups(key, seen)
        )

    def _is_starting(self, key: Key, step: PodStep, known: _Report | None, now: datetime) -> bool:
        """Return whether a pod's containers were ordered to start less than START ago. The phase Pending is
        reported only if the start takes longer: usually they run by then, and one report suffices."""
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
        return ending(run_subject(self._node, *key), known.status, (f"LOG:{known.sequence}",), time=now)


def _eviction_of(known: _Report | None, uid: str) -> tuple[str, ...]:
    """The first report with the pod's eviction, or a later one: its causes lead to the sample, also after a restart."""
    if known is None or known.status.uid != uid or known.status.eviction is None:
        return ()
    return (f"LOG:{known.sequence}",)


def _differing(before: Mapping[str, States], now: Mapping[str, States]) -> set[str]:
    """The pods whose states differ between two observations."""
    return {uid for uid in before.keys() | now.keys() if before.get(uid) != now.get(uid)}
