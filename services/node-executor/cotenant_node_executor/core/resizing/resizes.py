"""Resizes of pods in place: admitted, deferred or refused by the node, and in force once their values are written.

In: the placements that say a resize, the node's last reports, its allocatable, the memory that containers use, the writes of a
cycle. Out: the pods with the resources that they have at present, for the strategies and the runtime; what became of each
resize, for the report. The rules:

    infeasible, for good   more of a resource than the node's allocatable; the CPU of a pod with CPUs of its own
    deferred               more than is left beside the other pods and reservations; looked at again in each cycle, in
                           the order of priority, QoS class and age
    in progress            admitted, but a value could not be written; a memory limit below what its container uses waits
                           until it uses less, so that the kernel kills nobody; it also waits if a further resize is
                           deferred or refused meanwhile
                           or a container is restarted for it (resizePolicy), which gets its values once it has ended
    done                   every value is in force; only now the scheduler counts less than before

A resize that asks for no more of any resource is always admitted. Where kubelet runs the pods it decides: a resize is done when
its placement comes. What was admitted stands in the pod's report; an executor that starts goes on from there, so a resize whose
report was never stored was not admitted. Bound: the pods of the node.
Source: kubelet, canResizePod and the order in which it retries pending resizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from msgspec.structs import replace

from cotenant.api.objects.pod_resources import pod_requests
from cotenant.domain.qos import KubeQoS
from cotenant.domain.resizing import Stated, larger, pod_with_resources, same_amounts, stated
from cotenant.events.placements import PlacementPhase
from cotenant.events.resizes import ResizeState, ResizeStatus
from cotenant.model.quantities import QuantityError
from cotenant_node_executor.core.admission import FIRST, Admission, RunState
from cotenant_node_executor.core.observation import Observation
from cotenant_node_executor.core.placed import DecodedPlacement, Key
from cotenant_node_executor.core.placed_pods import PlacedPods
from cotenant_node_executor.core.pod_lifecycle import attempts_to_end
from cotenant_node_executor.core.pod_steps import PodSteps
from cotenant_node_executor.core.resizing.amounts import CPU_NAMES, changed, spared, to_restart, until_ended, used_memory
from cotenant_node_executor.strategies.pod_view import pod_view
from cotenant_node_executor.targets.interface import WriteReport

_CLASSES = (KubeQoS.GUARANTEED, KubeQoS.BURSTABLE, KubeQoS.BEST_EFFORT)


class Resizes:
    """A fold of placements, and what was decided on them since the last reports."""

    def __init__(self, pods: PlacedPods, steps: PodSteps, admission: Admission, *, of_kubelet: bool) -> None:
        self._pods = pods
        self._steps = steps
        self._admission = admission
        self._of_kubelet = of_kubelet
        self.open: dict[Key, DecodedPlacement] = {}
        """Pods whose placement says a resize, with all that it asks for."""
        self._decided: dict[Key, tuple[str, ResizeStatus]] = {}
        """By pod: its uid, and what became of its last resize here."""
        self._refused: set[str] = set()
        """Groups with a value that the kernel refused in the last cycle."""
        self._waiting: set[Key] = set()
        """Pods with a memory limit that waited in the last cycle until the container uses less."""
        steps.resize_of = self._status_of

    def placed(self, key: Key, placed: DecodedPlacement | None) -> None:
        """Take over a placement; None: it is gone."""
        self.open.pop(key, None)
        known = self._decided.get(key)
        if placed is None or (known is not None and known[0] != placed.placement.uid):
            self._decided.pop(key, None)
        if placed is not None and placed.placement.resize is not None and placed.to_run is not None:
            self.open[key] = placed

    def _status_of(self, key: Key, uid: str) -> ResizeStatus | None:
        known = self._decided.get(key)
        return known[1] if known is not None and known[0] == uid else None

    def _last(self, key: Key, uid: str) -> ResizeStatus | None:
        known = self._status_of(key, uid)
        if known is not None:
            return known
        report = self._steps.report_of(key, uid)
        return report.resize if report is not None else None

    # -- deciding ------------------------------------------------------------------------------------------------------

    def judge(self, seen: Observation, now: datetime) -> None:
        """Decide on every resize, and give the pods the resources that they have then."""
        self._waiting.clear()
        if not self.open:
            return
        for key in sorted(self.open, key=self._order):
            asked = self.open[key]
            try:
                self._judge(key, asked, seen, now)
            except QuantityError:
                continue  # the placement's own refusal says it

    def _order(self, key: Key) -> tuple[int, int, int, Key]:
        placed = self.open[key]
        assert placed.to_run is not None
        assert placed.placement.resize is not None
        kube_qos = placed.view.kube_qos if placed.view is not None else KubeQoS.BEST_EFFORT
        return -(placed.to_run.pod.spec.priority or 0), _CLASSES.index(kube_qos), placed.placement.resize.sequence, key

    def _judge(self, key: Key, asked: DecodedPlacement, seen: Observation, now: datetime) -> None:
        placement, to_run = asked.placement, asked.to_run
        assert to_run is not None
        assert placement.resize is not None
        pod, uid, sequence = to_run.pod, placement.uid, placement.resize.sequence
        last = self._last(key, uid)
        has = last.admitted if last is not None and last.admitted else placement.resize.admitted
        current = last if last is not None and last.sequence == sequence else None
        states = seen.states.get(uid, {})
        ends = placement.phase is PlacementPhase.TERMINATING or self._steps.run_state(key, uid, seen) is RunState.OVER
        if self._of_kubelet:
            done = ResizeStatus(sequence=sequence, state=ResizeState.DONE, since=now, admitted=stated(pod.spec))
            self._decide(key, uid, current, done)
            return
        before = last.applied if last is not None else ()
        if not ends and (current is None or current.state is ResizeState.DEFERRED):
            wants = stated(pod.spec)
            refused = self._why_not(key, asked, has, wants, seen)
            if refused is None:
                status = ResizeStatus(
                    sequence=sequence,
                    state=ResizeState.IN_PROGRESS,
                    since=now,
                    admitted=wants,
                    applied=before or has,
                    restarts=to_restart(pod, changed(before or has, wants), states),
                )
            else:
                state, why = refused
                status = ResizeStatus(sequence=sequence, state=state, since=now, message=why, admitted=has, applied=before)
                if last is not None and last.restarts:
                    status = replace(status, restarts=last.restarts)
            self._decide(key, uid, current, status)
            current = status
        admitted, applied = (current.admitted, current.applied) if current is not None else (has, before)
        used = used_memory(seen, pod)
        if current is not None and current.restarts:
            used = {name: amount for name, amount in used.items() if name not in current.restarts}
        usable, waits = spared(admitted, applied, used)
        if restarted := attempts_to_end(current, states):
            usable = until_ended(usable, applied, states, restarted)
            waits = "; ".join(filter(None, (waits, f"restarted for it: container {', '.join(sorted(restarted))}")))
        if waits:
            self._waiting.add(key)
            if asked.view is not None and pod_view(pod_with_resources(pod, usable)).group != asked.view.group:
                usable = applied  # the mixture would be of another QoS class
        self._give(key, asked, usable)
        if current is not None and current.state is ResizeState.IN_PROGRESS and waits != current.message:
            self._decide(key, uid, current, replace(current, message=waits))

    def _decide(self, key: Key, uid: str, before: ResizeStatus | None, status: ResizeStatus) -> None:
        """Keep what was decided, since when it has been so, and report it."""
        if before is not None and before.state is status.state:
            if status.state is ResizeState.DEFERRED and before.applied == status.applied:
                return  # for the same reason, with the figures of when it was deferred
            status = replace(status, since=before.since)
        if before == status:
            return
        self._decided[key] = uid, status
        self._steps.touch(key)

    def _give(self, key: Key, asked: DecodedPlacement, resources: Stated) -> None:
        """Show the strategies and the runtime the pod with these resources."""
        present = self._pods.by_name.get(key)
        assert asked.to_run is not None
        if present is None or present.to_run is None or same_amounts(stated(present.to_run.pod.spec), resources):
            return
        pod = pod_with_resources(asked.to_run.pod, resources)
        self._pods.put(key, replace(present, to_run=replace(asked.to_run, pod=pod), view=pod_view(pod)))
        self._steps.touch(key)

    def _why_not(
        self, key: Key, asked: DecodedPlacement, has: Stated, wants: Stated, seen: Observation
    ) -> tuple[ResizeState, str] | None:
        """Return why a resize is not admitted, None if it is."""
        assert asked.to_run is not None
        pod = asked.to_run.pod
        differing = changed(has, wants)
        if asked.view is not None and asked.view.bound_cpus and any(name in CPU_NAMES for _, name in differing):
            return ResizeState.INFEASIBLE, "the CPU of a pod that holds CPUs of its own cannot be resized in place"
        before, after = pod_requests(pod_with_resources(pod, has)), pod_requests(pod_with_resources(pod, wants))
        grows = [name for name in after if after[name] > before.get(name, 0)]
        if not grows:
            return None
        offered, used = self._admission.offer, self._used_beside(key, after, seen)
        more = sorted((name for name in grows if name in offered), key=lambda name: (name not in FIRST, name))
        for name in more:
            if after[name] > offered[name]:
                figures = f"requested: {after[name]}, capacity: {offered[name]}"
                return ResizeState.INFEASIBLE, f"Node didn't have enough capacity: {name}, {figures}"
        for name in more:
            if used.get(name, 0) + after[name] > offered[name]:
                figures = f"requested: {after[name]}, used: {used.get(name, 0)}, capacity: {offered[name]}"
                return ResizeState.DEFERRED, f"Node didn't have enough resource: {name}, {figures}"
        return None

    def _used_beside(self, key: Key, after: Mapping[str, int], seen: Observation) -> Mapping[str, int]:
        """What other pods were admitted with, and what is left in reservations once this pod has what it asks for."""
        used: Counter[str] = Counter()
        left = {share.uid: Counter(share.allocatable) for share in self._admission.reserved.values()}
        for other, placed in self._pods.by_name.items():
            placement = placed.placement
            if placed.refusal or self._steps.run_state(other, placement.uid, seen) is RunState.OVER:
                continue
            holds = after if other == key else self._holds(other, placed)
            if other != key:
                used.update(holds)
            of = placement.allocation.reservation if placement.allocation is not None else None
            if of is not None and of.uid in left:
                left[of.uid].subtract(holds)
        for share in left.values():
            used.update(+share)
        return used

    def _holds(self, key: Key, placed: DecodedPlacement) -> Mapping[str, int]:
        asked = self.open.get(key)
        if asked is None or asked.to_run is None or asked.placement.resize is None:
            return placed.placement.requests
        last = self._last(key, placed.placement.uid)
        if last is None or not last.admitted:
            held = asked.placement.resize.admitted
        else:
            held = larger(last.admitted, last.applied) if last.applied else last.admitted
        return pod_requests(pod_with_resources(asked.to_run.pod, held))

    # -- after the writes ----------------------------------------------------------------------------------------------

    def wrote(self, report: WriteReport, now: datetime) -> None:
        """Take over the writes of a cycle: a resize whose values are all in force is done, and so is one whose memory limit
        waited while a further resize was deferred or refused."""
        if not self.open:
            return
        refused = {refused.place for refused in report.refused if isinstance(refused.place, str)}
        self._refused = refused | (self._refused if report.still_refused else set())
        for key, asked in self.open.items():
            placement = asked.placement
            last = self._last(key, placement.uid)
            if last is None or placement.resize is None or last.sequence != placement.resize.sequence:
                continue
            in_progress = last.state is ResizeState.IN_PROGRESS
            if key in self._waiting or not (in_progress or last.applied):
                continue
            group = asked.view.group if asked.view is not None else ""
            if not any(each == group or each.startswith(f"{group}/") for each in self._refused):
                done = replace(last, state=ResizeState.DONE, since=now, message="") if in_progress else last
                self._decide(key, placement.uid, last, replace(done, applied=(), restarts={}))
            elif in_progress:
                self._decide(key, placement.uid, last, replace(last, message="the kernel refused a value; it is tried again"))
