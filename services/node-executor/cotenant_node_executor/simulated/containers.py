"""The simulated runtime: containers as entries in a table, ended by the clock.

In: orders, and annotations of the pod. Out: states. `cotenant.io/simulated-duration: 30s` is how long every attempt runs,
`cotenant.io/simulated-exit-code` its exit code (default 0); without a duration it runs until it is stopped.
All state follows from the last reports and the time, so a restarted executor continues where it stopped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from datetime import datetime, timedelta
from functools import lru_cache

from cotenant.api.objects.pod import Pod
from cotenant.events.node.runs import ContainerRun, RunStatus
from cotenant_node_executor.runtime.interface import (
    REASON_COMPLETED,
    REASON_ERROR,
    REASON_OOM,
    UNKNOWN_EXIT,
    Collect,
    ContainerState,
    EndAttempt,
    Forget,
    LogRequest,
    Order,
    PodLogUnavailableError,
    PodToRun,
    Start,
    Stop,
)
from cotenant_node_executor.simulated.groups import SimulatedGroups

ANNOTATION_DURATION = "cotenant.io/simulated-duration"
ANNOTATION_EXIT_CODE = "cotenant.io/simulated-exit-code"
STOPPED_EXIT = 143

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@lru_cache(maxsize=4096)
def parse_duration(text: str) -> timedelta:
    """A duration such as `30s`, `1m30s`, `2h`. Raises ValueError that quotes the text."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"duration {text!r}: expected a number with ms, s, m, h or d, such as 90s or 1m30s")
    try:
        return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts))
    except OverflowError as error:
        raise ValueError(f"duration {text[:40]!r} is too long") from error


def simulated_duration(pod: Pod) -> timedelta | None:
    """How long an attempt of the pod's containers runs; None: until stopped. An unreadable annotation counts as absent."""
    text = pod.metadata.annotations.get(ANNOTATION_DURATION)
    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError:
        return None


def simulated_exit_code(pod: Pod) -> int:
    """The exit code of an attempt that ends by itself."""
    text = pod.metadata.annotations.get(ANNOTATION_EXIT_CODE, "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 3 and int(text) < 256 else 0


class SimulatedRuntime:
    """Keeps the state of containers without running them. `groups`: the simulated control groups.

    `outlived`: pods continue as last reported, as on a machine that kept running; else the machine begins without pods.
    """

    def __init__(self, groups: SimulatedGroups, *, outlived: bool = True) -> None:
        self._groups = groups
        self._outlived = outlived
        self._pods: dict[str, PodToRun] = {}
        self._states: dict[str, Mapping[str, ContainerState]] = {}
        """Container states by uid; entries are replaced, never modified."""
        self._shown: Mapping[str, Mapping[str, ContainerState]] | None = {}
        """A read-only view of the same; the same object until something changes."""
        self._changed: set[str] = set()
        """Pods whose states changed since the last call of `changed`. Bound: present and former pods."""
        self._running: set[str] = set()
        """Pods with a running container."""
        self._transitions: dict[str, PodToRun | None] = {}
        """Pods that started or stopped running since the last call of `transitions`; None: stopped. Bound: present and
        former pods."""
        self._ends: dict[str, datetime] = {}
        """When the next container of a pod ends by itself."""
        self.next_exit: datetime | None = None
        """When the next container ends by itself; None: never."""

    def follow(self, pods: Mapping[str, PodToRun]) -> None:
        """No effect: this runtime depends on orders alone."""

    def adopt(self, pods: Mapping[str, PodToRun], runs: Mapping[str, RunStatus], now: datetime) -> None:
        """Continue pods that are not known here as last reported."""
        del now
        for uid in sorted(pods if self._outlived else ()):
            run = runs.get(uid)
            if run is None or run.phase.terminal or uid in self._states:
                continue
            adopted = {entry.name: _adopted(entry) for entry in run.containers if entry.started_at is not None}
            if adopted:
                self._pods[uid] = pods[uid]
                self._groups.add(pods[uid].group)
                for name in adopted:
                    self._groups.add(pods[uid].container_group(name))
                self._put(uid, adopted)

    def poll(self, now: datetime) -> Mapping[str, Mapping[str, ContainerState]]:
        """End the containers whose duration is over."""
        if self.next_exit is not None and now >= self.next_exit:
            self._end_what_is_over(now)
        if self._shown is None:
            self._shown = dict(self._states)
        return self._shown

    def _end_what_is_over(self, now: datetime) -> None:
        for uid in [uid for uid, ends in self._ends.items() if now >= ends]:
            pod, states = self._pods[uid].pod, self._states[uid]
            code = simulated_exit_code(pod)
            reason = REASON_ERROR if code else REASON_COMPLETED
            live = [state for state in states.values() if not state.exited]
            over = {state.name: _ended(state, ends, code, reason) for state, ends in _ends(pod, live) if now >= ends}
            self._put(uid, {**states, **over})

    def _put(self, uid: str, states: Mapping[str, ContainerState]) -> None:
        """Set the states of a pod's containers; an empty mapping removes the pod."""
        self._shown = None
        self._changed.add(uid)
        if states:
            self._states[uid] = states
        else:
            del self._states[uid]
        live = [state for state in states.values() if state.exit_code is None]
        if bool(live) is not (uid in self._running):
            self._running ^= {uid}
            if uid in self._transitions:
                del self._transitions[uid]
            else:
                self._transitions[uid] = self._pods[uid] if live else None
        ending = _ends(self._pods[uid].pod, live)
        if ending:
            self._ends[uid] = min(end for _, end in ending)
        elif uid in self._ends:
            del self._ends[uid]
        else:
            return
        self.next_exit = min(self._ends.values(), default=None)

    def changed(self) -> Set[str]:
        """Pods whose states changed since the last call."""
        changed = self._changed
        if changed:
            self._changed = set()
        return changed

    def transitions(self) -> Mapping[str, PodToRun | None]:
        """Pods that started running since the last call; None for pods that stopped."""
        transitions = self._transitions
        if transitions:
            self._transitions = {}
        return transitions

    def carry_out(self, order: Order, now: datetime) -> None:
        """Carry out one order; it takes effect immediately."""
        match order:
            case Start():
                uid = order.pod.uid
                states = self._states.get(uid, {})
                known = states.get(order.container)
                if known is None or known.attempt < order.attempt:
                    self._pods[uid] = order.pod
                    state = ContainerState(
                        order.container, order.attempt, started_at=now, backoff_seconds=order.backoff_seconds
                    )
                    self._put(uid, {**states, order.container: state})
            case Stop():
                self._end(order.uid, now, STOPPED_EXIT, REASON_ERROR)
            case EndAttempt():
                states = self._states.get(order.uid, {})
                known = states.get(order.container)
                if known is not None and known.attempt == order.attempt and not known.exited:
                    self._put(
                        order.uid, {**states, order.container: _ended(known, now, STOPPED_EXIT, REASON_ERROR)}
                    )
            case Collect():
                self._drop_groups(order.uid)
            case Forget():
                self._drop_groups(order.uid)
                if order.uid in self._states:
                    self._put(order.uid, {})
                self._pods.pop(order.uid, None)

    def run_out_of_memory(self, uid: str, now: datetime) -> None:
        """Kill every process of a pod, like the OOM killer. The sampler reads `transitions` and has counted it already."""
        self._end(uid, now, UNKNOWN_EXIT, REASON_OOM)
        self._transitions.pop(uid, None)

    def _end(self, uid: str, now: datetime, exit_code: int, reason: str) -> None:
        if uid in self._running:
            states = self._states[uid].items()
            self._put(
                uid, {name: state if state.exited else _ended(state, now, exit_code, reason) for name, state in states}
            )

    def _drop_groups(self, uid: str) -> None:
        if uid in self._pods:
            self._groups.remove(self._pods[uid].group)

    def read_log(self, request: LogRequest) -> str:
        """There is no log."""
        raise PodLogUnavailableError(f"container {request.container} is simulated and writes no log")


def _ends(pod: Pod, live: Iterable[ContainerState]) -> list[tuple[ContainerState, datetime]]:
    """The running containers that end by themselves, and when."""
    duration = simulated_duration(pod)
    if duration is None:
        return []
    return [(state, state.started_at + duration) for state in live if state.started_at is not None]


def _ended(state: ContainerState, at: datetime, exit_code: int, reason: str) -> ContainerState:
    return ContainerState(
        state.name,
        state.attempt,
        started_at=state.started_at,
        finished_at=at,
        exit_code=exit_code,
        reason=reason,
        backoff_seconds=state.backoff_seconds,
    )


def _adopted(entry: ContainerRun) -> ContainerState:
    return ContainerState(
        entry.name,
        entry.restarts,
        started_at=entry.started_at,
        finished_at=entry.finished_at,
        exit_code=entry.exit_code,
        reason=entry.reason,
    )
