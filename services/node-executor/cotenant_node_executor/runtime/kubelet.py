"""The runtime of a node whose pods kubelet runs: nothing is started or stopped here.

In: the pods that LOG places on the node, kubelet's directories. Out: states of the containers whose group exists, by pod uid:
runc and the like create a container's group at its start and remove it at its end, so a container with a group runs. An
attempt is counted whenever a container's group differs from the last. Only kubelet knows exit codes.

Evictions that strategies order are kept as requests for the API (`asked_evictions`).

Bound: the pods of the node.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from datetime import UTC, datetime

from msgspec import Struct

from cotenant.events.node.runs import RunStatus
from cotenant_node_executor.runtime.interface import (
    AskEviction,
    ContainerState,
    LogRequest,
    Order,
    PodLogUnavailableError,
    PodToRun,
)
from cotenant_node_executor.targets.kubelet.driver import KubeletDriver


class _Known(Struct, frozen=True):
    inode: int
    state: ContainerState


class KubeletRuntime:
    """See `runtime.interface.Runtime`."""

    def __init__(self, driver: KubeletDriver) -> None:
        self._driver = driver
        self._pods: Mapping[str, PodToRun] = {}
        self._runs: Mapping[str, RunStatus] = {}
        """The last reports as of the start, for containers that ran before."""
        self._known: dict[tuple[str, str], _Known] = {}
        """By uid and container, those that are there; what was there before keeps its attempt in `_attempts`."""
        self._attempts: dict[tuple[str, str], int] = {}
        """Of the containers that were seen here, as long as their pod is placed."""
        self._states: dict[str, dict[str, ContainerState]] = {}
        self._changed: set[str] = set()
        self.asked_evictions: dict[str, AskEviction] = {}
        """Evictions that are ordered, by uid; as long as the pod is placed."""

    @property
    def pods(self) -> Mapping[str, PodToRun]:
        """The pods that LOG places here, by uid."""
        return self._pods

    def adopt(self, pods: Mapping[str, PodToRun], runs: Mapping[str, RunStatus], now: datetime) -> None:
        """See `Runtime`."""
        del now
        self.follow(pods)
        self._runs = runs

    def follow(self, pods: Mapping[str, PodToRun]) -> None:
        """See `Runtime`."""
        self._pods = pods
        self._attempts = {key: attempt for key, attempt in self._attempts.items() if key[0] in pods}
        self.asked_evictions = {uid: asked for uid, asked in self.asked_evictions.items() if uid in pods}

    def poll(self, now: datetime) -> Mapping[str, Mapping[str, ContainerState]]:
        """See `Runtime`."""
        del now
        bound = self._driver.bound
        known: dict[tuple[str, str], _Known] = {}
        states: dict[str, dict[str, ContainerState]] = {}
        for uid, pod in self._pods.items():
            if pod.group not in bound.directories:
                continue
            own = states[uid] = {}
            for container in pod.pod.spec.containers:
                group = pod.container_group(container.name)
                if group not in bound.ids:
                    continue
                key, inode = (uid, container.name), bound.inodes[group]
                before = self._known.get(key)
                found = before if before is not None and before.inode == inode else self._found(key, group, inode)
                known[key] = found
                own[container.name] = found.state
        self._known = known
        self._changed |= {uid for uid in states.keys() | self._states.keys() if states.get(uid) != self._states.get(uid)}
        self._states = states
        return states

    def _found(self, key: tuple[str, str], group: str, inode: int) -> _Known:
        """A container whose group is another one than before, or was not known."""
        uid, name = key
        started_at = self._made_at(group)
        last = self._attempts.get(key)
        if last is not None:
            attempt = last + 1
        else:
            run = self._runs.get(uid)
            reported = next((each for each in run.containers if each.name == name), None) if run is not None else None
            # A report that knows no start is of a container that was waiting.
            attempt = reported.restarts if reported is not None else 0
            if reported is not None and reported.started_at is not None and started_at is not None:
                attempt += started_at.replace(microsecond=0) > reported.started_at
        self._attempts[key] = attempt
        pids = self._driver.pids(group)
        return _Known(inode, ContainerState(name, attempt, pid=pids[0] if pids else 0, started_at=started_at))

    def _made_at(self, group: str) -> datetime | None:
        directory = self._driver.directory(group)
        try:
            made = os.stat(self._driver.top / directory).st_mtime if directory is not None else None
        except OSError:
            return None
        return datetime.fromtimestamp(made, UTC) if made is not None else None

    def changed(self) -> Set[str]:
        """See `Runtime`."""
        changed, self._changed = self._changed, set()
        return changed

    def carry_out(self, order: Order, now: datetime) -> None:
        """Keep an eviction as a request; there are no other orders here."""
        del now
        if isinstance(order, AskEviction):
            self.asked_evictions.setdefault(order.uid, order)

    def read_log(self, request: LogRequest) -> str:
        """Raises LogUnavailableError: kubelet keeps the logs."""
        raise PodLogUnavailableError(f"kubelet keeps the log of container {request.container}: ask it, or read /var/log/pods")
