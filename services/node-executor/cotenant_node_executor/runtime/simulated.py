"""The simulated runtime: containers as entries in a table, ended by the clock.

In: orders, and annotations of the pod. Out: states. `cotenant.io/simulated-duration: 30s` lets every attempt run that
long, `cotenant.io/simulated-exit-code` is what it ends with (default 0); without a duration it runs until it is stopped.
Everything follows from the last reports and the time, so a restarted executor goes on where it was.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache

from cotenant.events.runs import ContainerRun, RunStatus
from cotenant.objects.pod import Pod
from cotenant_node_executor.runtime.interface import (
    REASON_COMPLETED,
    REASON_ERROR,
    REASON_OOM,
    UNKNOWN_EXIT,
    Collect,
    ContainerState,
    Forget,
    LogRequest,
    LogUnavailableError,
    Order,
    PodToRun,
    Start,
    Stop,
)
from cotenant_node_executor.simulated_groups import SimulatedGroups

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
    return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts))


def simulated_duration(pod: Pod) -> timedelta | None:
    """How long an attempt of the pod's containers runs; None: until stopped. One that cannot be read counts as absent."""
    text = pod.metadata.annotations.get(ANNOTATION_DURATION)
    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError:
        return None


def simulated_exit_code(pod: Pod) -> int:
    """What an attempt ends with by itself."""
    text = pod.metadata.annotations.get(ANNOTATION_EXIT_CODE, "0")
    return int(text) if text.isdigit() and int(text) < 256 else 0


class SimulatedRuntime:
    """Runs nothing, remembers everything that matters of it. `groups` are the groups that the machine imitates.

    `outlived`: the machine outlives this object, and pods go on as the last reports say; else it begins without any.
    """

    def __init__(self, groups: SimulatedGroups, *, outlived: bool = True) -> None:
        self._groups = groups
        self._outlived = outlived
        self._pods: dict[str, PodToRun] = {}
        self._states: dict[str, dict[str, ContainerState]] = {}
        # What is shown: the same objects as long as nothing has changed.
        self._shown: dict[str, dict[str, ContainerState]] = {}
        self._running: dict[str, PodToRun] = {}
        self._ends: dict[str, datetime] = {}
        """When the next container of a pod ends by itself."""
        self._next_exit: datetime | None = None
        self._touched: dict[str, None] = {}
        """Pods of which something has changed since."""

    def adopt(self, pods: Mapping[str, PodToRun], runs: Mapping[str, RunStatus], now: datetime) -> None:
        """Go on with what the last reports say of pods that are not known here."""
        del now
        for uid in sorted(pods if self._outlived else ()):
            run = runs.get(uid)
            if run is None or run.phase.terminal or uid in self._states:
                continue
            for entry in run.containers:
                if entry.started_at is not None:
                    self._pods[uid] = pods[uid]
                    self._groups.add(pods[uid].group)
                    self._groups.add(pods[uid].container_group(entry.name))
                    self._states.setdefault(uid, {})[entry.name] = _adopted(entry)
                    self._touched[uid] = None

    def poll(self, now: datetime) -> dict[str, dict[str, ContainerState]]:
        """Let end what is over by now."""
        ends = self.next_exit()
        if ends is not None and now >= ends:
            self._end_what_is_over(now)
        self._show()
        return self._shown

    def _end_what_is_over(self, now: datetime) -> None:
        for uid in [uid for uid, ends in self._ends.items() if now >= ends]:
            pod, states = self._pods[uid].pod, self._states[uid]
            self._touched[uid] = None
            for name, ends in _ends(pod, states):
                if now >= ends:
                    code = simulated_exit_code(pod)
                    states[name] = _ended(states[name], ends, code, REASON_ERROR if code else REASON_COMPLETED)

    def _show(self) -> None:
        if not self._touched:
            return
        # Whoever was shown the former tables may still hold them.
        shown, running = dict(self._shown), dict(self._running)
        for uid in self._touched:
            shown.pop(uid, None)
            running.pop(uid, None)
            self._ends.pop(uid, None)
            states = self._states.get(uid)
            if states is None:
                continue
            shown[uid] = dict(sorted(states.items()))
            if any(not state.exited for state in states.values()):
                running[uid] = self._pods[uid]
            ends = min((end for _, end in _ends(self._pods[uid].pod, states)), default=None)
            if ends is not None:
                self._ends[uid] = ends
        self._touched.clear()
        self._shown = dict(sorted(shown.items()))
        self._running = running
        self._next_exit = min(self._ends.values(), default=None)

    def next_exit(self) -> datetime | None:
        """When the next container ends by itself; None: never."""
        self._show()
        return self._next_exit

    def running(self) -> Mapping[str, PodToRun]:
        """Pods with a container that runs, by uid; the same object as long as they are the same."""
        self._show()
        return self._running

    def carry_out(self, order: Order, now: datetime) -> None:
        """Carry out one order; everything happens at once."""
        self._touched[order.pod.uid if isinstance(order, Start) else order.uid] = None
        match order:
            case Start():
                states = self._states.setdefault(order.pod.uid, {})
                known = states.get(order.container)
                if known is None or known.attempt < order.attempt:
                    self._pods[order.pod.uid] = order.pod
                    states[order.container] = ContainerState(
                        order.container, order.attempt, started_at=now, backoff_seconds=order.backoff_seconds
                    )
            case Stop():
                self._end(order.uid, now, STOPPED_EXIT, REASON_ERROR)
            case Collect():
                self._drop_groups(order.uid)
            case Forget():
                self._drop_groups(order.uid)
                self._states.pop(order.uid, None)
                self._pods.pop(order.uid, None)

    def run_out_of_memory(self, uid: str, now: datetime) -> None:
        """The kernel ends every process of a pod."""
        self._touched[uid] = None
        self._end(uid, now, UNKNOWN_EXIT, REASON_OOM)

    def _end(self, uid: str, now: datetime, exit_code: int, reason: str) -> None:
        states = self._states.get(uid, {})
        for name, state in states.items():
            if not state.exited:
                states[name] = _ended(state, now, exit_code, reason)

    def _drop_groups(self, uid: str) -> None:
        if uid in self._pods:
            self._groups.remove(self._pods[uid].group)

    def read_log(self, request: LogRequest) -> str:
        """There is no log."""
        raise LogUnavailableError(f"container {request.container} is simulated and writes no log")


def _ends(pod: Pod, states: Mapping[str, ContainerState]) -> list[tuple[str, datetime]]:
    """When containers that run end by themselves."""
    duration = simulated_duration(pod)
    if duration is None:
        return []
    live = ((name, state.started_at) for name, state in states.items() if not state.exited)
    return [(name, started_at + duration) for name, started_at in live if started_at is not None]


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
